"""Managed memory that is attached to one stream, or to the host."""

import numpy as np
import pytest

import cudadrv as cu
from cudadrv import testing

software = pytest.mark.cuda_software
CALL = "cuStreamAttachMemAsync"


@pytest.fixture
def managed(driver):
    buffer = cu.UnifiedBuffer(64, "u4", name="managed")
    buffer[:] = 5
    return buffer


def test_the_driver_is_told(managed, stream):
    before = testing.calls(CALL) if cu.driver_info().is_software else 0
    token = managed.attach(stream)
    assert (token.stream, token.reads, token.writes) == (stream, (), (managed,))
    token.wait()
    managed.attach("host", stream).wait()
    with stream:
        managed.attach("global").wait()
    if before:
        assert testing.calls(CALL) == before + 3
    assert managed.to_numpy().tolist() == [5] * 64


def test_it_is_ordered_as_a_write(managed, stream, other, gate):
    gate.hold(stream)
    managed.fill_async(1, stream)
    with pytest.raises(cu.BufferBorrowedError, match=r"cannot write .* by attach on"):
        managed.attach(other)
    managed.attach(stream)
    with pytest.raises(cu.BufferBorrowedError, match="is being written by attach on"):
        managed.to_numpy()
    with pytest.raises(cu.BufferBorrowedError, match="is being written by attach on"):
        managed.close()
    gate.open()
    stream.synchronize()
    assert managed.to_numpy().tolist() == [1] * 64
    managed.close()


def test_everybody_may_use_it_where_access_is_concurrent(managed, stream, other):
    if not cu.Device(0).attribute("concurrent_managed_access"):
        pytest.skip("this device excludes others")
    for to in (stream, "host"):
        managed.attach(to, None if to is stream else stream)
        other.wait(stream)
        managed.fill_async(9, other)
        stream.wait(other)
        stream.synchronize()
        assert managed[63] == 9


def test_a_view_or_a_loan_is_in_the_way(managed, stream, unchanged):
    array = np.asarray(managed)
    with unchanged(CALL), pytest.raises(cu.BufferExportedError, match="a host view of it is alive"):
        managed.attach(stream)
    del array
    with managed.lend(stream):
        with unchanged(CALL), pytest.raises(cu.BufferExportedError, match="it is lent to"):
            managed.attach(stream)
    managed.attach(stream).wait()


def test_its_memory_leaves_the_pool(stream):
    pool = cu.Device(0).context.pools.unified
    buffer = cu.UnifiedBuffer(1 << 16)
    used = pool.stats.used_bytes
    with pytest.raises(cu.BufferExportedError):
        with buffer.read():
            buffer.attach(stream)
    assert pool.stats.used_bytes == used  # memory whose attachment was refused stays in the pool
    buffer.attach(stream).wait()
    assert pool.stats.used_bytes == used - (1 << 16)
    cached = pool.stats.cached_bytes
    buffer.close()
    assert pool.stats.cached_bytes == cached


def test_bad_input(managed, stream, other, unchanged):
    closed = cu.UnifiedBuffer(8)
    closed.close()
    with unchanged(CALL):
        for to in (None, 3, b"host", cu.Device(0), managed):
            with pytest.raises(TypeError, match=r"is attached to a Stream|stream must be"):
                managed.attach(to)
        for to in ("", "Host", "all", "host:0"):
            with pytest.raises(ValueError, match="is attached to a Stream, 'global' or 'host'"):
                managed.attach(to, stream)
        with pytest.raises(ValueError, match="queued on that stream itself"):
            managed.attach(stream, other)
        with pytest.raises(TypeError, match="attach needs a stream"):
            managed.attach("host")
        for part in (managed[:8], managed[8:], managed.view("u1")[:255]):
            with pytest.raises(ValueError, match="not the whole of an allocation"):
                part.attach(stream)
        with pytest.raises(cu.BufferClosedError):
            closed.attach(stream)
        assert cu.UnifiedBuffer(0).attach(stream).done
        assert not hasattr(cu.LockedBuffer(4), "attach")
    managed.view("u1").attach(stream).wait()
    managed[:].attach("global", stream).wait()


def test_memory_of_others(managed, stream):
    some = cu.UnifiedBuffer.from_address(managed.address, 8, "u4", owner=managed)
    with pytest.raises(ValueError, match="not the whole of an allocation"):
        some.attach(stream)
    size = 1 << 16
    raw = cu.UnifiedBuffer(size, pooled=False).into_raw()
    buffer = cu.UnifiedBuffer.from_address(raw, size)
    buffer.attach(stream).wait()
    with pytest.raises(ValueError, match="not the whole of an allocation"):
        cu.UnifiedBuffer.from_address(raw, 100).attach(stream)
    buffer.close()
    cu.UnifiedBuffer.from_raw(raw, size).close()


def test_a_variable_of_a_module(stream):
    module = cu.Module(
        ".version 6.0\n.target sm_50\n.address_size 64\n"
        ".visible .global .attribute(.managed) .align 4 .u32 common;\n"
    )
    variable = module.global_("common", "u4")
    with pytest.raises(ValueError, match="not the whole of an allocation"):
        variable.attach(stream)


@software
def test_a_failing_call_attaches_nothing(managed, stream, other):
    testing.fail(CALL, cu.CUresult.CUDA_ERROR_INVALID_VALUE)
    with pytest.raises(cu.CudaError, match=CALL):
        managed.attach(stream)
    assert not managed.borrowed
    managed.attach(other).wait()


def test_the_stream_lives_as_long_as_the_attachment(managed):
    import weakref

    stream = cu.Stream()
    died = weakref.ref(stream)
    managed.attach(stream).wait()
    del stream
    assert died() is not None
    managed.attach("global", cu.Stream()).wait()
    assert died() is None


# ---- devices on which unfinished work excludes the host from managed memory ----

EXCLUSIVE = """
import cudadrv as cu, numpy as np
def refused(call):
    try:
        call()
    except cu.OwnershipError as error:
        return f"{type(error).__name__}: {error}"
    raise SystemExit("not refused")
managed, work = cu.UnifiedBuffer(64, "u4", name="managed"), cu.DeviceBuffer(64, "u4")
stream, other = cu.Stream(name="mine"), cu.Stream()
managed[:] = 5
"""


@pytest.fixture
def alone(driver, script):
    def alone(program):
        return script.quiet(EXCLUSIVE + program, CUDADRV_SOFTWARE="concurrent_managed=0")

    return alone


@software
def test_other_streams_are_refused(alone):
    said = alone(
        """
managed.attach(stream).wait()
print(refused(lambda: managed.fill_async(1, other)))
print(refused(lambda: work.copy_from_async(managed, other)))
print(refused(lambda: managed.lend(other).__enter__()))
print(refused(lambda: managed.lend(None).__enter__()))
with cu.ordering("unchecked"):
    refused(lambda: managed.fill_async(1, other))
managed.fill_async(3, stream).wait()
print(managed[63])
"""
    )
    assert said.count("OwnershipError: cannot ") == 4
    assert "cannot write UnifiedBuffer 'managed'[0:64] (uint32) by fill_async on Stream" in said
    assert said.count("it is attached to Stream 'mine', at <string>:") == 4
    assert said.count("the device lets no other stream use it") == 4
    assert said.endswith("\n3\n")


@software
def test_only_that_work_excludes_the_host(alone):
    said = alone(
        """
free = cu.UnifiedBuffer(4)
managed.attach(stream).wait()
work.fill_async(1, other)
refused(lambda: free.to_numpy())
print(managed.to_numpy().sum())
with managed.write() as array:
    work.fill_async(2, other)
    print(refused(lambda: managed.fill_async(1, stream)))
    other.synchronize()
    array[:] = 6
    cu.DeviceBuffer(64, "u4").fill_async(1, other)
work.fill_async(1, cu.Stream())
managed.fill_async(8, stream)
print(refused(lambda: managed[0]))
stream.synchronize()
print(managed[0])
"""
    )
    assert said.startswith("320\nBufferExportedError: ")
    assert "BufferBorrowedError: cannot read UnifiedBuffer 'managed'[0:1]" in said
    assert said.endswith("\n8\n")


@software
def test_memory_for_the_host(alone):
    said = alone(
        """
managed.attach("host", stream).wait()
work.fill_async(1, other)
managed[:] = 7
with managed.read() as array:
    cu.DeviceBuffer(4).fill_async(2, stream)
    print(array.sum())
print(refused(lambda: managed.fill_async(1, stream)))
with stream:
    managed.attach("global")
managed.fill_async(9, stream)
stream.synchronize()
other.synchronize()
print(managed[5])
"""
    )
    assert said.startswith("448\nOwnershipError: ")
    assert "it is attached to the host, at " in said
    assert "the device lets no stream use it (concurrent_managed_access is 0)" in said
    assert said.endswith("\n9\n")


@software
def test_an_attachment_ends_with_its_stream(alone):
    said = alone(
        """
managed.attach(stream).wait()
token = work.fill_async(1, stream)
stream.close()
print(refused(lambda: managed.fill_async(1, other)))
token.wait()
managed.fill_async(4, other)
print(refused(lambda: managed[0]))
other.synchronize()
print(managed[0])
"""
    )
    assert "it is attached to Stream 'mine' (closed or dropped), at " in said
    assert said.endswith("\n4\n")
