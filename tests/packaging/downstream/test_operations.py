"""Operations of another project behave like cudadrv's own, even when they are misused."""

import inspect
import threading
import time
from pathlib import Path

import downstream
import numpy as np
import plusplus
import pytest

import cudadrv as cu
from cudadrv import testing

pytestmark = pytest.mark.usefixtures("cuda_checked")

PTX = """
.version 6.4
.target sm_75
.address_size 64
.global .u32 counter;
.visible .entry scale(.param .u64 x, .param .f32 factor, .param .u32 n) {
    .reg .pred %p; .reg .f32 %f<3>; .reg .b32 %r<3>; .reg .b64 %d<3>;
    ld.param.u64 %d1, [x];
    ld.param.f32 %f1, [factor];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %tid.x;
    setp.ge.u32 %p, %r2, %r1;
    @%p bra END;
    mul.wide.u32 %d2, %r2, 4;
    add.s64 %d1, %d1, %d2;
    ld.global.f32 %f2, [%d1];
    mul.f32 %f2, %f2, %f1;
    st.global.f32 [%d1], %f2;
END:
    ret;
}
.visible .entry count() {
    .reg .b32 %r<2>;
    ld.global.u32 %r1, [counter];
    add.u32 %r1, %r1, 1;
    st.global.u32 [counter], %r1;
    ret;
}
"""
FILL, COPY, LAUNCH = "cuMemsetD8Async", "cuMemcpyAsync", "cuLaunchKernelEx"
UNKNOWN = 999


@pytest.fixture
def stream():
    return cu.Stream()


@pytest.fixture
def other():
    return cu.Stream()


@pytest.fixture
def buffer():
    return cu.DeviceBuffer.zeros(64, "f4", name="buffer")


@pytest.fixture
def second():
    return cu.DeviceBuffer.zeros(64, "f4", name="second")


@pytest.fixture
def module():
    return cu.Module(PTX)


def here() -> int:
    return inspect.currentframe().f_back.f_lineno


def in_use(*buffers: cu.Buffer) -> list[bool]:
    return [each.borrowed for each in buffers]


def contents(buffer: cu.Buffer, stream: cu.Stream) -> np.ndarray:
    stream.synchronize()
    array = np.empty(buffer.count, buffer.dtype)
    buffer.copy_to(array)
    return array


# ---- one operation ----


def test_types_are_those_of_python():
    for kind in downstream.types():
        assert kind is getattr(cu, kind.__name__, kind)
    assert downstream.is_stream(cu.Stream())
    assert not downstream.is_stream(None)


def test_copy(buffer, stream):
    source = cu.LockedBuffer.from_array(np.arange(64, dtype="f4"))
    token = downstream.copy(buffer, source, stream)
    line = here() - 1
    assert (token.reads, token.writes) == ((source,), (buffer,))
    assert repr(token).startswith(f"<Token downstream.copy on Stream {int_of(stream)}, queued at ")
    assert token.site == f"test_operations.py:{line}"
    assert buffer.borrows[0].operation == "downstream.copy"
    token.wait()
    assert not buffer.borrowed
    assert (contents(buffer, stream) == np.arange(64)).all()


def int_of(stream: cu.Stream) -> str:
    return repr(stream).split()[1].rstrip(",>")


@pytest.mark.cuda_software
def test_refusal_names_operation_and_lines(buffer, second, stream, other):
    downstream.copy(buffer, second, stream)
    first = here() - 1
    before = testing.calls()
    with pytest.raises(cu.BufferBorrowedError) as raised:
        downstream.copy(buffer, second, other)
    assert testing.calls() == before
    text = str(raised.value)
    assert text.startswith("cannot write DeviceBuffer 'buffer'[0:64] (float32) by downstream.copy")
    assert f"written by downstream.copy on Stream {int_of(stream)}, queued at" in text
    assert f"test_operations.py:{first},\n" in text
    with pytest.raises(cu.BufferBorrowedError, match=r"written by downstream\.copy on"):
        buffer.fill_async(0, other)
    stream.synchronize()
    downstream.copy(buffer, second, other).wait()


def test_host_view_is_in_the_way(buffer, stream):
    source = cu.LockedBuffer.zeros(64, "f4")
    with source.write(), pytest.raises(cu.BufferExportedError, match=r"by downstream\.copy on"):
        downstream.copy(buffer, source, stream)
    downstream.copy(buffer, source, stream).wait()


def test_policies(buffer, second, stream, other):
    downstream.copy(buffer, second, stream)
    with cu.ordering("wait"):
        downstream.copy(buffer, second, other).wait()
    downstream.copy(buffer, second, stream)
    stream.record().synchronize()
    with cu.ordering("unchecked"):
        downstream.copy(buffer, second, other).wait()


def test_stream_of_the_block(buffer, second, stream):
    with pytest.raises(TypeError, match=r"downstream\.copy needs a stream: pass one, or"):
        downstream.copy(buffer, second)
    with stream:
        assert downstream.copy(buffer, second).stream is stream
    stream.synchronize()
    for wrong in (5, "stream", buffer):
        with pytest.raises(TypeError, match="stream must be a Stream"):
            downstream.copy(buffer, second, wrong)


def test_closed_stream(buffer, second, stream):
    stream.close()
    with pytest.raises(ValueError, match="is closed"):
        downstream.copy(buffer, second, stream)
    assert in_use(buffer, second) == [False, False]


def test_closed_and_moved_buffers(buffer, second, stream):
    work = downstream.Work().use(buffer).use(second)
    second.close()
    with pytest.raises(cu.BufferClosedError, match=r"'second'.* was closed at test_operations"):
        downstream.copy(buffer, second, stream)
    # `work` got the buffer before it was closed.
    with pytest.raises(cu.BufferClosedError, match=r"'second'.* was closed at"):
        work.issue(stream)
    taken = buffer.take()
    with pytest.raises(cu.BufferClosedError, match="was moved at"):
        downstream.Work().use(buffer)
    downstream.Work().use(taken).issue(stream).wait()
    assert work.calls == 0


def test_other_context(buffer, stream):
    with cu.Context.create(cu.Device(0)):
        foreign = cu.Stream()
        theirs = cu.DeviceBuffer(64, "f4")
        for work, where in (
            (downstream.Work().use(buffer), foreign),
            (downstream.Work().use(buffer).use(theirs), stream),
        ):
            with pytest.raises(ValueError, match="to another context"):
                work.issue(where)
            assert work.calls == 0
        kernel = cu.Module(PTX)["count"]
        with pytest.raises(ValueError, match="to another context"):
            downstream.bare_launch(kernel, stream)
        page_locked = cu.LockedBuffer(64, "f4")
        downstream.Work().use(page_locked).issue(stream).wait()


def test_no_accesses_and_empty_buffers(stream):
    empty = cu.DeviceBuffer(0, name="empty")
    assert downstream.Work().issue(stream).reads == ()
    work = downstream.Work().use(empty, "read")
    token = work.issue(stream)
    assert (work.calls, token.reads) == (1, (empty,))
    assert not empty.borrowed
    token.wait()


def test_same_buffer_twice(buffer, second, stream, other):
    work = downstream.Work().use(buffer).use(buffer, "read").use(buffer[:8]).use(buffer, "shared")
    work.issue(stream)
    with pytest.raises(cu.BufferBorrowedError):
        downstream.copy(second, buffer, other)
    stream.synchronize()
    assert not buffer.borrowed


def test_default_streams(buffer, other):
    for default in (cu.Stream.legacy(), cu.Stream.per_thread()):
        token = downstream.Work().use(buffer).issue(default)
        with pytest.raises(
            cu.BufferBorrowedError, match=r"by downstream\.fill on (the legacy|per-)"
        ):
            buffer.fill_async(0, other)
        token.wait()


def test_shared_is_about_lifetime(buffer, second, stream, other):
    downstream.Work().use(buffer, "shared").issue(stream)
    downstream.copy(buffer, second, other).wait()
    with pytest.raises(cu.BufferBorrowedError, match=r"cannot close .*\n.*by downstream.fill on"):
        buffer.close()
    stream.synchronize()
    buffer.close()


def test_operation_can_be_issued_again(buffer, second, stream, other):
    work = downstream.Work().use(buffer).use(second, "read")
    work.issue(stream)
    with pytest.raises(cu.BufferBorrowedError):
        work.issue(other)
    other.wait(work.issue(stream))
    work.issue(other).wait()
    assert work.calls == 3
    assert (contents(buffer.view("u1"), other) == 7).all()


def test_more_accesses_than_fit_anywhere(stream, other):
    whole = cu.DeviceBuffer(4000)
    work = downstream.Work()
    for part in whole.chunks(1):
        work.use(part, "read")
    token = work.issue(stream)
    assert len(token.reads) == 4000
    with pytest.raises(cu.BufferBorrowedError, match=r"\[3999:4000\]"):
        whole[3999:].fill_async(0, other)
    token.wait()


@pytest.mark.parametrize("name", ["", "two\nlines", "\ud800"])
def test_names_that_cannot_be(name):
    with pytest.raises(ValueError, match="must be printable, and is"):
        downstream.Work(name)


def test_objects_that_cannot_be(buffer, stream, module):
    operation = downstream.Work().operation
    assert repr(operation) == "<Operation 'downstream.fill'>"
    with pytest.raises(TypeError, match="name of an operation must be a str, not int"):
        downstream.Work(5)
    for call in ("borrow", "borrow_kernel", "borrow_prepared", "issue"):
        for wrong in (None, 5, buffer):
            with pytest.raises(TypeError, match=r"operation must be a cudadrv\.Operation, not"):
                downstream.misuse(call, wrong, buffer)
    for call in ("borrow", "borrow_kernel", "borrow_prepared"):
        for wrong in (None, stream, operation):
            with pytest.raises(TypeError, match=r"must be a (Buffer|Kernel|Prepared), not"):
                downstream.misuse(call, operation, wrong)
    with pytest.raises(ValueError, match="call is NULL"):
        downstream.misuse("issue", operation, stream)
    for mode in (0, 4, -1, 1 << 20):
        with pytest.raises(ValueError, match="mode must be READ, WRITE or SHARED"):
            downstream.Work().use(buffer, mode)
    for kind in downstream.types():
        with pytest.raises(TypeError):
            downstream.misuse("borrow", operation, kind.__new__(kind))
    with pytest.raises(TypeError):
        type(operation).__new__(type(operation))


def test_one_operation_in_several_threads(buffer, second):
    """One thread issues an operation while another thread adds buffers to it."""
    work = downstream.Work()
    work.use(buffer, "read")

    def issue():
        stream = cu.Stream()
        for _ in range(100):
            work.issue(stream)
        stream.synchronize()

    threads = [threading.Thread(target=issue) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(200):
        work.use(second, "read")
    for thread in threads:
        thread.join()
    assert work.calls == 300


def test_module_that_binds_no_table():
    assert downstream.status_of_an_unbound_function() == cu.CUresult.CUDA_ERROR_NOT_INITIALIZED


def test_in_cplusplus(stream):
    buffer = cu.DeviceBuffer.zeros(1, "u1")
    assert plusplus.fill_one(buffer, stream).writes == (buffer,)
    assert contents(buffer, stream)[0] == 9


# ---- driver calls that fail ----


@pytest.mark.cuda_software
def test_first_call_fails_and_the_call_says_so(buffer, second, stream, other):
    work = downstream.Work(tells=True).use(buffer).use(second)
    testing.fail(FILL, UNKNOWN)
    with pytest.raises(cu.CudaError) as raised:
        work.issue(stream)
    assert (raised.value.call, int(raised.value.status)) == ("cuMemsetD8Async", UNKNOWN)
    assert in_use(buffer, second) == [False, False]
    work.issue(other).wait()


@pytest.mark.cuda_software
def test_first_call_fails_and_the_call_says_nothing(buffer, stream, other):
    """A failed operation does not tell whether it queued work, so its buffers stay borrowed."""
    work = downstream.Work().use(buffer)
    testing.fail(FILL, UNKNOWN)
    with pytest.raises(cu.CudaError):
        work.issue(stream)
    with pytest.raises(cu.BufferBorrowedError, match=r"written by downstream\.fill on"):
        work.issue(other)
    stream.synchronize()
    work.issue(other).wait()


@pytest.mark.cuda_software
@pytest.mark.parametrize("tells", [False, True])
def test_later_call_fails(buffer, second, stream, other, tells):
    work = downstream.Work(tells=tells).use(buffer).use(second)
    testing.fail(FILL, UNKNOWN, nth=2)
    with pytest.raises(cu.CudaError):
        work.issue(stream)
    assert in_use(buffer, second) == [True, True]
    with pytest.raises(cu.BufferBorrowedError):
        work.issue(other)
    stream.synchronize()
    work.issue(other).wait()


@pytest.mark.cuda_software
def test_failed_call_is_not_made_again(buffer, stream):
    """A failed operation of another project is not repeated.

    cudadrv repeats its own calls if another context was current.
    """
    work = downstream.Work(tells=True).use(buffer)
    with cu.Context.create(cu.Device(0)):
        testing.fail(FILL, UNKNOWN)
        with pytest.raises(cu.CudaError):
            work.issue(stream)
        assert work.calls == 1
        assert not buffer.borrowed
        work.issue(stream).wait()


@pytest.mark.parametrize("status", [1, UNKNOWN, -1, -2, -3, -101, -105, 0x7FFF0000, -(2**31)])
def test_status_that_no_driver_call_returned(buffer, stream, status):
    """A status that is not from the driver is raised under the operation's name."""
    work = downstream.Work("downstream.other", status=status).use(buffer)
    with pytest.raises(cu.CudaError) as raised:
        work.issue(stream)
    assert raised.value.call == "downstream.other"
    assert work.calls == 1
    assert buffer.borrowed
    stream.synchronize()


# ---- launches ----


def test_launch(buffer, module, stream, other):
    buffer.copy_from(np.arange(64, dtype="f4"))
    downstream.scale(module["scale"], buffer, 2, stream)
    with pytest.raises(cu.BufferBorrowedError, match=r"written by downstream\.scale on"):
        downstream.scale(module["scale"], buffer, 2, other)
    with pytest.raises(cu.BufferBorrowedError, match=r"by downstream\.scale on"):
        module.close()
    assert (contents(buffer, stream) == 2 * np.arange(64)).all()
    module.close()
    with pytest.raises(cu.BufferClosedError):
        downstream.bare_launch(module["count"], stream)


def test_advice_of_a_launch_takes_no_operation_for_one(buffer, module, stream, other):
    for _ in range(2):
        module["scale"].launch(1, 64, buffer, 1.0, 64, stream=stream)
        with pytest.raises(cu.BufferBorrowedError, match="If both kernels only read it"):
            module["scale"].launch(1, 64, buffer, 1.0, 64, stream=other)
        downstream.Work().use(buffer).issue(stream)
        with pytest.raises(cu.BufferBorrowedError) as raised:
            module["scale"].launch(1, 64, buffer, 1.0, 64, stream=other)
        assert "kernel" not in str(raised.value)
        stream.synchronize()


def test_closed_module(module, stream):
    kernel = module["count"]
    module.close()
    with pytest.raises(cu.BufferClosedError):
        downstream.bare_launch(kernel, stream)


def test_launch_borrows_the_variables_of_the_kernel(module, stream, other):
    counter, kernel = module.global_("counter", "u4"), module["count"]
    counter.fill(0)
    downstream.bare_launch(kernel, stream)
    with pytest.raises(cu.BufferBorrowedError, match=r"written by downstream\.launch on"):
        counter.fill_async(0, other)
    with pytest.raises(cu.BufferBorrowedError, match="cannot write the variable DeviceBuffer 'cou"):
        downstream.bare_launch(kernel, other)
    assert contents(counter, stream)[0] == 1
    # The launch declares `counter` as read. cudadrv does not check that.
    downstream.bare_launch(kernel, stream, counter)
    assert counter.borrows[0].mode == "read"
    stream.synchronize()


def test_several_kernels(stream):
    modules = [cu.Module(PTX, name=f"module {i}") for i in range(3)]
    first, *others = [each["count"] for each in modules]
    downstream.bare_launch(first, stream, others=others)
    for module in modules:
        with pytest.raises(cu.BufferBorrowedError, match=r"by downstream\.launch on"):
            module.close()
    stream.synchronize()
    for module in modules:
        module.close()


def test_variable_that_appears_while_a_launch_waits(stream, other):
    """The program first asks for a variable while a launch waits. The launch borrows it, too.

    Without PTX text, any kernel of a module may use any variable.
    """
    module = cu.Module.from_file(Path(__file__).with_name("kernels.fatbin"))
    kernel, pause = module["nothing"], downstream.Paused()
    first = threading.Thread(target=pause.issue, args=(stream,))
    second = threading.Thread(target=downstream.bare_launch, args=(kernel, stream))
    first.start()
    while not pause.begun:
        time.sleep(0.001)
    second.start()
    time.sleep(0.05)  # enough time to reach the wait for the stream
    counter = module.global_("counter", "u4")
    pause.end()
    first.join()
    second.join()
    with pytest.raises(cu.BufferBorrowedError, match=r"may be in use by downstream\.launch on"):
        counter.fill_async(0, other)
    stream.synchronize()


def test_launch_beyond_the_limits(buffer, module, stream):
    many = cu.DeviceBuffer(5000, "f4")
    with pytest.raises(cu.CudaError) as raised:
        downstream.scale(module["scale"], many, 2, stream)
    assert raised.value.call == "cuLaunchKernel"
    stream.synchronize()


# ---- several copies and a launch as one operation ----


@pytest.fixture
def batch(buffer, second, module):
    sources = [cu.LockedBuffer.from_array(np.full(32, i + 1, "f4")) for i in range(2)]
    ready = module["scale"].prepare(1, 64, buffer, 3.0, 64)
    return list(zip(buffer.chunks(32), sources, strict=True)), ready


def test_batch(batch, buffer, stream, other):
    pairs, ready = batch
    token = downstream.copy_and_launch(pairs, ready, stream)
    assert token.reads == tuple(source for _, source in pairs)
    assert buffer in token.writes
    for where in (buffer, pairs[1][1]):
        with pytest.raises(cu.BufferBorrowedError, match=r"(written|read) by downstream\.batch on"):
            where.fill_async(0, other)
    assert (contents(buffer, stream) == np.repeat([3, 6], 32)).all()


@pytest.mark.cuda_software
def test_batch_is_all_or_nothing(batch, buffer, second, module, stream, other):
    pairs, _ = batch
    ready = module["scale"].prepare(1, 64, second, 3.0, 64)
    second.fill_async(0, other)
    before = testing.calls()
    with pytest.raises(cu.BufferBorrowedError) as raised:
        downstream.copy_and_launch(pairs, ready, stream)
    assert testing.calls() == before
    text = str(raised.value)
    assert text.startswith("cannot write argument 0 (x, .u64) DeviceBuffer 'second'[0:64]")
    assert " by downstream.batch on " in text
    assert in_use(buffer, *(source for _, source in pairs)) == [False] * 3
    stream.wait(other)
    downstream.copy_and_launch(pairs, ready, stream).wait()


@pytest.mark.cuda_software
@pytest.mark.parametrize(
    ("function", "nth", "stays"), [(COPY, 1, False), (COPY, 2, True), (LAUNCH, 1, True)]
)
def test_batch_fails_in_the_middle(batch, buffer, stream, other, function, nth, stays):
    pairs, ready = batch
    testing.fail(function, UNKNOWN, nth=nth)
    with pytest.raises(cu.CudaError) as raised:
        downstream.copy_and_launch(pairs, ready, stream)
    assert raised.value.call == function
    assert in_use(*(source for _, source in pairs)) == [stays, stays]
    stream.synchronize()
    downstream.copy_and_launch(pairs, ready, other).wait()
    assert (contents(buffer, other) == np.repeat([3, 6], 32)).all()


# ---- in graphs ----


def captured(stream, buffer, second):
    graph = cu.Graph()
    with graph.capture(stream):
        downstream.copy(second, buffer, stream)
        second.fill_async(3, stream)
    return graph


def test_a_captured_operation_of_another_project(stream, buffer, second):
    graph = captured(stream, buffer, second)
    copied, filled = graph.nodes
    assert copied.operation == "downstream.copy"
    assert (copied.reads, copied.writes) == ((buffer,), (second,))
    with graph.instantiate() as step:
        with pytest.raises(cu.CaptureError, match=r"downstream.copy .* cannot be changed: only"):
            step[copied].set(source=second)
        with pytest.raises(cu.CaptureError, match=r"downstream.copy .* cannot be changed: only"):
            step[copied].enabled = False
        step[filled].enabled = False
        buffer.fill(7)
        step.launch(stream).wait()
    assert set(second.to_numpy()) == {7}
    with graph.instantiate() as step:
        step.launch(stream)
        with pytest.raises(cu.BufferBorrowedError, match=r"downstream\.copy at .*test_operations"):
            buffer.fill_async(1, cu.Stream())
        stream.synchronize()


def test_updates_with_operations_of_another_project(stream, buffer, second):
    """After an update, single nodes cannot be changed if there are operations of another project.

    Nobody knows which of the driver's nodes belong to such an operation.
    """
    graph, another = captured(stream, buffer, second), captured(stream, second, buffer)
    step = graph.instantiate()
    step[1].enabled = False
    with pytest.raises(cu.CaptureError, match=r"nodes are disabled.* Enable them first"):
        step.update(another)
    step[1].enabled = True
    second.fill(5)
    step.update(another)
    step.launch(stream).wait()
    assert set(buffer.to_numpy()) == {3}
    with pytest.raises(cu.CaptureError, match=r"fill_async .* cannot be changed any more: a graph"):
        step[1].set(value=4)
    with pytest.raises(cu.CaptureError, match="cannot be changed any more"):
        step[another.nodes[1]].enabled = False
    step.update(graph)  # allowed: an update of the whole graph
    step.launch(stream).wait()
    assert set(second.to_numpy()) == {3}
