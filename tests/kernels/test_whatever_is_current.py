"""The handles of streams, events and kernels say which context is meant, whichever is current."""

import ctypes

import numpy as np
import pytest

import cudadrv as cu


def current():
    handle = ctypes.c_void_p()
    ctypes.CDLL(cu.driver_info().path).cuCtxGetCurrent(ctypes.byref(handle))
    return handle.value


@pytest.mark.parametrize("where", ["nothing", "another context"])
@pytest.mark.parametrize("exposed", [False, True])
def test_work_of_a_stream(saxpy, vectors, stream, other, in_a_thread, where, exposed):
    x, y = vectors
    host = cu.LockedBuffer.from_array(np.full(1000, 3, dtype="f4"))
    back = cu.LockedBuffer.zeros(1000, "f4")
    if exposed:
        assert stream.handle

    def work():
        x.copy_from_async(host, stream)
        saxpy.launch(1, 1000, 2.0, cu.read(x), y, 1000, stream=stream)
        x.fill_async(5, stream)
        event = stream.record(cu.Event(device=stream.device))
        other.wait(event)
        back.copy_from_async(y, other)
        other.synchronize()
        assert stream.done

    def under_another():
        with cu.Context.create(stream.device):
            before = current()
            work()
            assert current() == before

    assert in_a_thread(work if where == "nothing" else under_another) is None
    assert np.all(back.to_numpy() == 7)
    stream.synchronize()
    x.copy_to(back)
    assert np.all(back.to_numpy() == 5)
