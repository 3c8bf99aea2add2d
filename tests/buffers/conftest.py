"""Fixtures that make and read buffers of every kind."""

import numpy as np
import pytest

import cudadrv as cu

KINDS = ("device", "stream_ordered", "locked", "unified")


@pytest.fixture
def make(driver, stream):
    """Make a buffer of a kind, filled with items if any are given. Nothing uses it any more."""

    def make(kind, count, dtype="u1", items=None, **options):
        if kind == "stream_ordered":
            buffer = cu.DeviceBuffer(count, dtype, stream=stream, **options)
            stream.synchronize()
        else:
            cls = {"device": cu.DeviceBuffer, "locked": cu.LockedBuffer}.get(kind, cu.UnifiedBuffer)
            buffer = cls(count, dtype, **options)
        if items is not None:
            buffer.copy_from(items)
        return buffer

    return make


@pytest.fixture
def concurrent_access(driver):
    if not cu.Device(0).attribute("concurrent_managed_access"):
        pytest.skip("needs concurrent_managed_access")


@pytest.fixture
def items_of():
    """The items of a buffer of any kind, as a new array."""

    def items_of(buffer):
        array = np.empty(buffer.count, buffer.dtype)
        buffer.copy_to(array)
        return array

    return items_of
