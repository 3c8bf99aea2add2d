"""Pitfalls that are known from other projects, unless other tests cover them."""

import ctypes
import gc
import threading
import weakref

import numpy as np
import pytest
from limits import PATIENCE

import cudadrv as cu
from cudadrv import testing


@pytest.fixture
def library(driver):
    """The driver as another library calls it, with the primary context current."""
    with cu.Device(0):
        yield ctypes.CDLL(cu.driver_info().path)


def test_legacy_work_is_ordered_with_blocking_streams_and_with_no_others(stream):
    legacy, blocking = cu.Stream.legacy(), cu.Stream(blocking=True)
    buffer, target = cu.DeviceBuffer.zeros(8), cu.LockedBuffer(8)
    buffer.fill_async(1, blocking)
    buffer.fill_async(2, legacy)
    buffer.fill_async(3, blocking)
    with pytest.raises(cu.BufferBorrowedError):
        buffer.fill_async(4, stream)
    stream.wait(blocking)
    buffer.fill_async(4, stream)
    for default in (legacy, blocking, cu.Stream.per_thread()):
        with pytest.raises(cu.BufferBorrowedError):
            target.copy_from_async(buffer, default)
    legacy.wait(stream)
    target.copy_from_async(buffer, cu.Stream.per_thread())
    cu.Stream.per_thread().synchronize()
    assert set(target.to_numpy()) == {4}


def test_per_thread_streams_are_ordered_by_legacy_work_alone(driver):
    buffer, begun = cu.LockedBuffer.zeros(8), threading.Event()

    def work():
        own = cu.Stream.per_thread()
        buffer.fill_async(1, own)
        begun.set()
        main_is_done.wait(PATIENCE)
        own.synchronize()

    main_is_done = threading.Event()
    thread = threading.Thread(target=work)
    thread.start()
    begun.wait(PATIENCE)
    try:
        with pytest.raises(cu.BufferBorrowedError, match="nothing orders"):
            buffer.fill_async(2, cu.Stream.per_thread())
        cu.Stream.legacy().record()
        buffer.fill_async(2, cu.Stream.per_thread())
    finally:
        main_is_done.set()
        thread.join()
    cu.Stream.per_thread().synchronize()
    assert set(buffer.to_numpy()) == {2}


def test_a_new_buffer_at_an_old_address_is_another_one(stream, other):
    memory = cu.DeviceBuffer(64)
    for _ in range(3):
        buffer = cu.DeviceBuffer.from_address(memory.address, 64, owner=memory)
        # A buffer over memory of cudadrv shares its records.
        assert buffer.borrows == memory.borrows
        buffer.fill_async(1, stream)
        del buffer
    for _ in range(3):
        buffer = cu.DeviceBuffer(64, stream=other)
        assert [borrow.operation for borrow in buffer.borrows] == ["its allocation"]
        buffer.close()
    stream.synchronize()


def test_allocating_freeing_and_closing_order_nothing(stream, other):
    """Allocating, freeing and closing order no work, although the driver may block in them."""
    buffer, locked = cu.DeviceBuffer(8), cu.LockedBuffer(8)
    buffer.fill_async(1, stream)
    for make in (cu.DeviceBuffer, cu.LockedBuffer, cu.UnifiedBuffer):
        make(1 << 16).close()
        make(1 << 16)  # a buffer that is dropped at once
    cu.DeviceBuffer(8, stream=other).close()
    cu.Stream().close()
    cu.Event().close()
    cu.reap()
    assert buffer.borrowed
    with pytest.raises(cu.BufferBorrowedError):
        locked.copy_from_async(buffer, other)
    with pytest.raises(cu.BufferBorrowedError):
        buffer.close()


@pytest.mark.cuda_software
@pytest.mark.parametrize("nbytes", [4 << 10, 4 << 20])
def test_ordinary_memory_is_free_and_nobody_waits(stream, gate, nbytes):
    """A queued copy from ordinary memory does not need the array any more, and nothing waits.

    cudadrv copies the array in the call: the driver would read it now or later, depending on its
    size.
    """
    source = np.full(nbytes, 3, "u1")
    buffer, found = cu.DeviceBuffer.zeros(nbytes), np.zeros(nbytes, "u1")
    gate.hold(stream)
    token = buffer.copy_from_async(source, stream)
    source[:] = 4
    assert not token.done
    gate.open()
    buffer.copy_to(found, stream=stream)
    assert set(found) == {3}


@pytest.mark.cuda_software
def test_blocking_calls_are_not_the_drivers_synchronous_ones(stream):
    functions = ("cuMemcpyHtoD_v2", "cuMemcpyDtoH_v2", "cuMemcpyDtoD_v2", "cuMemcpy")
    functions += ("cuMemsetD8_v2", "cuMemsetD16_v2", "cuMemsetD32_v2", "cuLaunchHostFunc")
    before = [testing.calls(name) for name in functions]
    for on in (None, stream):
        for make in (cu.DeviceBuffer, cu.LockedBuffer, cu.UnifiedBuffer):
            buffer, other = make(64, "u2"), cu.DeviceBuffer(64, "u2")
            buffer.fill(1, stream=on)
            buffer.copy_to(np.zeros(64, "u2"), stream=on)
            buffer.copy_from(np.ones(64, "u2"), stream=on)
            other.copy_from(buffer, stream=on)
            assert not buffer.borrowed, "complete on return"
    assert [testing.calls(name) for name in functions] == before


@pytest.mark.parametrize("mode", [0, 1, 2], ids=["global", "thread_local", "relaxed"])
def test_a_capture_does_not_notice_what_dies(library, stream, other, mode):
    """Objects that are dropped during a capture do not invalidate it.

    Their release waits until the capture has ended, or uses calls that a capture allows.
    """
    handle, graph = ctypes.c_void_p(stream.handle), ctypes.c_void_p()
    used = [cu.DeviceBuffer(8), cu.LockedBuffer(8), cu.UnifiedBuffer(8)]
    used += [cu.DeviceBuffer(8, stream=other)]
    for buffer in used:
        buffer.fill_async(1, other)
    dying = [*used, cu.DeviceBuffer(8), cu.LockedBuffer(8), cu.Stream(), cu.Event()]
    del buffer
    used.clear()
    assert library.cuStreamBeginCapture_v2(handle, mode) == 0
    dying.clear()
    gc.collect()
    cu.DeviceBuffer(0)  # an allocation first releases memory that can be released
    assert library.cuStreamEndCapture(handle, ctypes.byref(graph)) == 0
    assert library.cuGraphDestroy(graph) == 0
    cu.reap()


@pytest.mark.cuda_software
def test_a_primary_context_that_another_library_resets(script):
    """Another library resets the primary context: calls raise errors, the process ends quietly.

    The driver returns 201 for old streams and 709 for all other objects.
    """
    script.quiet(
        """
        import ctypes
        import cudadrv as cu
        stream, event = cu.Stream(), cu.Event()
        buffer, locked = cu.DeviceBuffer(8), cu.LockedBuffer(8)
        buffer.fill_async(1, stream)
        stream.record(event)
        library = ctypes.CDLL(cu.driver_info().path)
        assert library.cuDevicePrimaryCtxReset_v2(0) == 0
        for call in (lambda: buffer.fill_async(0, stream), stream.synchronize, event.synchronize,
                     cu.Stream, lambda: cu.DeviceBuffer(8), lambda: buffer.copy_from(bytes(8))):
            try:
                call()
            except cu.CudaError:
                pass
            else:
                raise AssertionError("no error")
        stream.close()
        event.close()
        buffer.close()
        locked.close()
        """
    )


def test_nothing_keeps_the_frame_of_its_line(stream, other):
    """Tokens, events, views and refusals keep the line of their call, but not its frame."""

    class Local:
        pass

    def work(buffer):
        local = Local()
        references.append(weakref.ref(local))
        kept = [buffer[:4].fill_async(1, stream), stream.record(), memoryview(buffer[4:])]
        for refused in (lambda: buffer[:4].fill_async(0, other), buffer.close):
            try:
                refused()
            except cu.OwnershipError as error:
                kept.append(str(error))
        return kept

    references = []
    kept = work(cu.LockedBuffer(8))
    assert len(kept) == 5
    assert references[0]() is None
    stream.synchronize()


def test_page_locked_memory_is_cached_unless_asked_otherwise(library):
    write_combined, flags = 4, ctypes.c_uint()
    for options, asked in (({}, False), ({"write_combined": True}, True)):
        buffer = cu.LockedBuffer(8, **options)
        address = ctypes.c_void_p(buffer.address)
        assert library.cuMemHostGetFlags(ctypes.byref(flags), address) == 0
        assert bool(flags.value & write_combined) == asked


@pytest.mark.parametrize("dtype", [np.dtype("i4"), np.dtype("i4", metadata={"equal": "only"})])
def test_a_copy_between_two_names_of_the_same_bytes_is_none(stream, unchanged, dtype):
    own = cu.DeviceBuffer(64, "i4")
    first = cu.DeviceBuffer.from_address(own.address, 64, np.dtype("i4"), owner=own)
    second = cu.DeviceBuffer.from_address(own.address, 64, dtype, owner=own)
    with unchanged("cuMemcpyDtoDAsync_v2"):
        token = first.copy_from_async(second, stream)
    assert token.done
    assert not first.borrowed
    assert not second.borrowed
