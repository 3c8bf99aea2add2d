"""Values whose class cannot be looked up: their own exception is raised."""

import pytest

import cudadrv as cu

PTX = """
.version 7.0
.target sm_52
.address_size 64
.visible .entry takes(.param .u32 number) { ret; }
"""


class Failing:
    """isinstance looks up `__class__`, which Ctrl-C can interrupt, too."""

    @property
    def __class__(self):
        raise ZeroDivisionError


def launch(argument):
    cu.Module(PTX)["takes"].launch(1, 1, argument)


def call(argument):
    cu.Module(PTX)["takes"].launch(1, 1, cu.In(argument))


USES = {
    "an argument": launch,
    "an argument for an array": call,
    "a value to fill with": lambda value: cu.DeviceBuffer(4, "i4").fill(value),
    "a value to fill parts of a structure with": (
        lambda value: cu.DeviceBuffer(4, [("x", "i4")]).fill((value,))
    ),
    "an index": lambda index: cu.DeviceBuffer(16, "i4").reshape(4, 4)[index, 0:2],
    "a slice": lambda index: cu.DeviceBuffer(16, "i4").reshape(4, 4)[0, index:],
    "an index of a host buffer": lambda index: cu.LockedBuffer(4, "i4")[index],
    "images to link": cu.Module.link,
    "an image to link": lambda image: cu.Module.link([image]),
    "an image": cu.Module,
    "a shape": lambda shape: cu.DeviceBuffer(4).reshape(shape),
    "a part of a shape": lambda size: cu.DeviceBuffer(4).reshape(size, 2),
    "a count": cu.DeviceBuffer,
    "a dtype": lambda dtype: cu.DeviceBuffer(4, dtype),
    "an array": cu.DeviceBuffer.from_array,
    "devices": lambda devices: cu.DeviceBuffer(4, capacity=8, accessible_by=devices),
    "a grid": lambda grid: cu.Module(PTX)["takes"].launch(grid, 1, 1),
    "a stream": lambda stream: cu.DeviceBuffer(4).fill_async(0, stream),
    "a source": lambda source: cu.DeviceBuffer(4).copy_from(source),
    "copies": cu.copy_batch,
    "the sides of a copy": lambda side: cu.copy_batch([(side, side)]),
    "a number for a signal": lambda number: cu.Signal().set(number),
    "memory to lock": cu.LockedBuffer.from_memory,
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_it_is_refused(use):
    with pytest.raises((ZeroDivisionError, TypeError, ValueError)):
        use(Failing())
