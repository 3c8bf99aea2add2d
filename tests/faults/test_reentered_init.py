"""Arguments whose conversion calls `__init__` of the object that is being initialized."""

import gc

import numpy as np
import pytest

import cudadrv as cu


class Reentering:
    """A value that calls a function when it is converted for the first time."""

    def __init__(self, value, call):
        self.value, self.call = value, call

    def met(self):
        call, self.call = self.call, None
        if call:
            call()
        return self.value

    def __index__(self):
        return self.met()

    def __bool__(self):
        return self.met()

    @property
    def dtype(self):
        return self.met()


class ReenteringName(str):
    __slots__ = ("call",)

    def __repr__(self):
        call, self.call = self.call, None
        if call:
            call()
        return super().__repr__()


BUFFERS = (cu.DeviceBuffer, cu.LockedBuffer, cu.UnifiedBuffer)
ARGUMENTS = [
    (cu.Stream, "priority", 0),
    (cu.Stream, "blocking", True),
    (cu.Event, "timing", True),
    (cu.Event, "blocking_sync", True),
    (cu.LockedBuffer, "write_combined", False),
    *((kind, "count", 16) for kind in BUFFERS),
    *((kind, "dtype", np.dtype("f4")) for kind in BUFFERS),
    *((kind, "name", "mine") for kind in BUFFERS),
    *((kind, "pooled", False) for kind in (cu.DeviceBuffer, cu.LockedBuffer)),
]


@pytest.mark.parametrize(("kind", "name", "value"), ARGUMENTS)
def test_it_is_initialized_once(driver, kind, name, value):
    """The second of two nested initializations is refused, and nothing leaks."""
    made = kind.__new__(kind)
    plain = {"count": 8} if kind in BUFFERS else {}

    def initialize():
        made.__init__(**plain)

    if name == "name":
        argument = ReenteringName(value)
        argument.call = initialize
    else:
        argument = Reentering(value, initialize)
    with pytest.raises(TypeError, match=r"exists already|is initialized already|Expected str"):
        made.__init__(**{**plain, name: argument})
    assert argument.call is None
    with pytest.raises(TypeError, match=r"exists already|is initialized already"):
        made.__init__(**plain)
    made.close()
    argument = initialize = None
    gc.collect()
