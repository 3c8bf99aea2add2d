"""Objects whose ``__init__`` never ran, as in a careless subclass: errors, but no crash."""

import pytest

import cudadrv as cu

# One schedule suffices: the results do not depend on when GPU work runs.
pytestmark = pytest.mark.parametrize("cuda_schedule", ["lazy"], indirect=True)


class Forgetful(cu.HostBuffer):
    def __init__(self):
        pass


def bare(kind):
    return Forgetful() if kind is Forgetful else kind.__new__(kind)


@pytest.mark.parametrize("kind", [cu.DeviceBuffer, cu.LockedBuffer, cu.UnifiedBuffer, Forgetful])
@pytest.mark.parametrize("way", ["copy_from", "copy_to", "copy_from_async", "copy_to_async"])
@pytest.mark.parametrize("first", [True, False])
def test_copies(stream, kind, way, first):
    good, other = cu.DeviceBuffer(4), bare(kind)
    one, two = (other, good) if first else (good, other)
    options = (stream,) if way.endswith("async") else ()
    with pytest.raises(TypeError, match="never initialized"):
        getattr(one, way)(two, *options)


def test_handles(stream):
    none = cu.Stream.__new__(cu.Stream)
    assert none.device is None
    with pytest.raises(TypeError, match="never initialized"):
        cu.DeviceBuffer(4, stream=none)


@pytest.mark.parametrize("kind", [cu.Buffer, cu.HostBuffer])
@pytest.mark.parametrize("make", ["from_raw", "from_address", "zeros", "from_array"])
def test_the_classes_in_common_make_nothing(kind, make):
    with pytest.raises(TypeError, match="use DeviceBuffer, LockedBuffer or UnifiedBuffer"):
        getattr(kind, make)(*((4096, 1) if make in ("from_raw", "from_address") else (1,)))


@pytest.mark.parametrize("kind", [cu.DeviceBuffer, cu.LockedBuffer, cu.UnifiedBuffer])
def test_memory_that_is_owned_has_no_second_owner(kind):
    whole = kind(64)
    for address in (whole.address, whole.address + 32):
        with pytest.raises(ValueError, match=r"lies in a live .* with into_raw\(\) first"):
            kind.from_raw(address, 8)
    kind.from_raw(whole.into_raw(), 64).close()
