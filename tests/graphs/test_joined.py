"""Captures that another library begins, and that cudadrv joins."""

import ctypes
import gc
import subprocess
import sys
import threading

import numpy as np
import pytest
from capsules import Consumer

import cudadrv as cu
from cudadrv import testing

MODES = {"global": 0, "thread local": 1, "relaxed": 2}
ONE = 0x3F800000  # 1.0 as float32


class Library:
    """Another library, which captures a stream and launches its own graph."""

    def __init__(self, stream, mode=0):
        self.driver = ctypes.CDLL(cu.driver_info().path)
        self.handle, self.mode = ctypes.c_void_p(stream.handle), mode
        self.graph, self.executable = ctypes.c_void_p(), ctypes.c_void_p()

    def call(self, name, *arguments):
        with cu.Device(0):
            return getattr(self.driver, name)(*arguments)

    def begin(self):
        assert self.call("cuStreamBeginCapture_v2", self.handle, self.mode) == 0

    def end(self):
        return self.call("cuStreamEndCapture", self.handle, ctypes.byref(self.graph))

    @property
    def status(self):
        status = ctypes.c_int()
        assert self.call("cuStreamIsCapturing", self.handle, ctypes.byref(status)) == 0
        return status.value

    def fill(self, buffer, value):
        address, count = ctypes.c_uint64(buffer.address), ctypes.c_size_t(buffer.count)
        code = ctypes.c_uint(value)
        assert self.call("cuMemsetD32Async", address, code, count, self.handle) == 0

    def copy(self, target, source):
        addresses = ctypes.c_uint64(target.address), ctypes.c_uint64(source.address)
        nbytes = ctypes.c_size_t(source.nbytes)
        assert self.call("cuMemcpyAsync", *addresses, nbytes, self.handle) == 0

    def nodes(self):
        count = ctypes.c_size_t()
        assert self.call("cuGraphGetNodes", self.graph, None, ctypes.byref(count)) == 0
        return count.value

    def launch(self, stream):
        made = ctypes.byref(self.executable)
        if not self.executable:
            instantiate = "cuGraphInstantiateWithFlags"
            assert self.call(instantiate, made, self.graph, ctypes.c_ulonglong(0)) == 0
        handle = ctypes.c_void_p(stream.handle)
        assert self.call("cuGraphLaunch", self.executable, handle) == 0

    def drop(self):
        if self.status:
            self.end()
        if self.executable:
            assert self.call("cuGraphExecDestroy", self.executable) == 0
        if self.graph:
            assert self.call("cuGraphDestroy", self.graph) == 0
        self.graph, self.executable = ctypes.c_void_p(), ctypes.c_void_p()


@pytest.fixture
def library(world):
    library = Library(world.main)
    yield library
    library.drop()


@pytest.fixture
def held():
    """Objects that are closed after the test."""
    kept = []
    yield kept
    for each in kept:
        each.close()


@pytest.mark.parametrize("mode", MODES)
def test_our_operations_become_nodes_of_theirs(world, held, mode):
    library = Library(world.main, MODES[mode])
    library.begin()
    library.fill(world.work, ONE)
    with cu.joins_capture(world.main) as kept:
        held.append(kept)
        world.side.wait(world.main)
        world.out[:8].copy_from_async(world.work[:8], world.side)
        world.out[8:].fill_async(3, world.main)
        world.main.wait(world.side)
        token = world.result.copy_from_async(world.out, world.main)
        assert kept.nodes == ()
        assert not world.out.borrowed
        assert "captured at" in repr(token)
    assert library.end() == 0
    assert library.nodes() == 4
    assert [node.operation for node in kept.nodes] == [
        "copy_from_async",
        "fill_async",
        "copy_from_async",
    ]
    world.result[:] = 0
    library.launch(world.main)
    world.main.synchronize()
    assert list(world.result) == [1] * 8 + [3] * 8
    library.drop()


def test_our_operations_are_checked(world, library, held):
    library.begin()
    with cu.joins_capture(world.main) as kept:
        held.append(kept)
        world.side.wait(world.main)
        world.out.fill_async(1, world.side)
        with pytest.raises(cu.BufferBorrowedError) as caught:
            world.result.copy_from_async(world.out, world.main)
        world.main.wait(world.side)
        world.result.copy_from_async(world.out, world.main)
    text = str(caught.value)
    assert "in the capture of graph" in text
    assert "of another library, joined at" in text
    assert library.status == 1
    assert library.end() == 0
    assert library.nodes() == 2


def test_loans_to_the_library(world, library, held):
    constant = cu.LockedBuffer.from_array(np.ones(16, "f4"))
    library.begin()
    with cu.joins_capture(world.main) as kept:
        held.append(kept)
        world.side.wait(world.main)
        with world.out.lend(world.main):
            library.fill(world.out, ONE)
            with pytest.raises(cu.BufferExportedError, match="lent to Stream"):
                world.out.fill_async(1, world.side)
        world.result.copy_from_async(world.out, world.main)
        world.work.copy_from_async(constant, world.main)
        del constant
        world.main.wait(world.side)
    assert library.end() == 0
    gc.collect()
    cu.reap()
    with world.result.lend(world.main), world.work.lend(world.main), world.out.lend(world.main):
        library.launch(world.main)
    with pytest.raises(cu.BufferBorrowedError, match="written by lend"):
        world.result.to_numpy()
    world.main.synchronize()
    assert list(world.result) == [1] * 16
    assert list(world.work.to_numpy()) == [1] * 16


def test_arrays_by_dlpack_in_their_capture(world, library, held, module):
    """A kernel of cudadrv runs between operations of another library, in the library's capture.

    examples/interop/torch_graph.py does the same.
    """
    saxpy = module["saxpy"]
    world.frames[:] = 4

    def step():
        world.work.copy_from_async(world.frames, world.main)
        arrays = [
            Consumer(buffer.__dlpack__(stream=world.main.handle, max_version=(1, 0)))
            for buffer in (world.work, world.out)
        ]
        library.fill(world.out, ONE)
        for array in arrays:
            array.end()
        saxpy.launch(1, 16, 2.0, cu.read(world.work), world.out, 16, stream=world.main)
        with world.out.lend(world.main, readonly=True), world.result.lend(world.main):
            library.copy(world.result, world.out)

    step()
    world.main.synchronize()
    library.begin()
    with cu.joins_capture(world.main) as kept:
        held.append(kept)
        step()
    assert library.end() == 0
    assert library.nodes() == 4
    assert [node.operation.split()[0] for node in kept.nodes] == [
        "copy_from_async",
        "lend",
        "lend",
        "launch",
        "lend",
        "lend",
    ]
    for batch in range(3):
        world.frames[:] = batch
        with world.frames.lend(world.main, readonly=True), world.result.lend(world.main):
            library.launch(world.main)
        with pytest.raises(cu.BufferBorrowedError, match="read by lend"):
            world.frames[:] = 9
        world.main.synchronize()
        assert list(world.result) == [2 * batch + 1] * 16
    with pytest.raises(cu.BufferBorrowedError, match="of another library uses it"):
        world.frames.close()
    library.drop()


def test_what_is_kept(world, library, module):
    library.begin()
    with cu.joins_capture(world.main) as kept:
        saxpy = module["saxpy"]
        saxpy.launch(1, 16, 2.0, cu.read(world.work), world.out, 16, stream=world.main)
        with pytest.raises(cu.CaptureError, match="leave the block"):
            kept.close()
    for ended in range(2):
        for call in (world.work.close, world.work.take, world.work.into_raw):
            with pytest.raises(cu.BufferBorrowedError) as caught:
                call()
            assert "of another library uses it, in launch of saxpy at" in str(caught.value)
            assert "is gone, let go of what it used: kept.close()." in str(caught.value)
        with pytest.raises(cu.BufferBorrowedError, match="cannot close Module"):
            module.close()
        assert "of another library, which uses it in" in world.out.explain()
        if not ended:
            assert library.end() == 0
    library.drop()
    assert not kept.closed
    kept.close()
    kept.close()
    assert kept.closed
    world.work.close()
    module.close()
    with pytest.raises(ValueError, match="is closed"):
        _ = kept.nodes


def test_dropped_names_are_safe(world, library, held):
    buffer = cu.DeviceBuffer(16, "f4", name="dropped")
    library.begin()
    with cu.joins_capture(world.main) as kept:
        held.append(kept)
        buffer.fill_async(1, world.main)
    address = buffer.address
    del buffer
    gc.collect()
    cu.reap()
    assert library.end() == 0
    assert address not in [cu.DeviceBuffer(16, "f4").address for _ in range(4)]
    assert "DeviceBuffer 'dropped'" in {each.label for each in cu.live_buffers()}
    library.drop()
    kept.close()
    gc.collect()
    assert "DeviceBuffer 'dropped'" not in {each.label for each in cu.live_buffers()}


REFUSED = {
    "synchronize": lambda w: w.main.synchronize(),
    "done": lambda w: w.main.done,
    "close": lambda w: w.main.close(),
    "context": lambda w: w.main.context.synchronize(),
    "blocking": lambda w: w.work.fill(1, stream=w.main),
    "array": lambda w: w.work.copy_from_async(np.zeros(16, "f4"), w.main),
    "function": lambda w: w.main.call(print),
    "wait outside": lambda w: w.main.wait(cu.Stream()),
    "capture": lambda w: w.graph.capture(w.main).__enter__(),
    "join again": lambda w: cu.joins_capture(w.main).__enter__(),
    "token": lambda w: w.token.wait(),
    "event": lambda w: w.event.synchronize(),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_captured_does_not_end_their_capture(world, held, name, mode):
    library = Library(world.main, MODES[mode])
    library.begin()
    with cu.joins_capture(world.main) as kept:
        held.append(kept)
        world.token = world.out.fill_async(1, world.main)
        world.event = world.main.record()
        with pytest.raises(cu.CaptureError):
            REFUSED[name](world)
        world.work.fill_async(1, world.main)
    assert library.status == 1
    assert library.end() == 0
    assert library.nodes() == 2
    library.drop()


@pytest.mark.parametrize("mode", MODES)
def test_work_beside_it(world, held, mode):
    library = Library(world.main, MODES[mode])
    free, memory = cu.Stream(), cu.LockedBuffer(100, pooled=False)
    library.begin()
    with cu.joins_capture(world.main) as kept:
        held.append(kept)
        world.work.fill_async(1, world.main)
        world.result.fill_async(4, free).wait()
        world.out.fill(1)
        memory.fill_async(1, world.main)
        if mode == "relaxed":  # in other modes the driver forbids these calls
            buffer = cu.DeviceBuffer(1 << 20, pooled=False)
            buffer.fill(1)
            buffer.close()
        cu.Stream().close()
        cu.reap()
    assert world.result[0] == 4
    assert library.end() == 0
    assert library.nodes() == 2
    library.drop()


def test_outside_the_block_all_is_refused_until_they_end(world, library, held):
    library.begin()
    with pytest.raises(cu.OwnershipError, match=r"with cudadrv\.joins_capture"):
        world.work.fill_async(1, world.main)
    with cu.joins_capture(world.main) as kept:
        held.append(kept)
        world.side.wait(world.main)
        world.work.fill_async(1, world.side)
        world.main.wait(world.side)
        event = world.main.record()
    for stream in (world.main, world.side):
        with pytest.raises(cu.OwnershipError, match="begun by another library"):
            world.work.fill_async(1, stream)
    with pytest.raises(cu.CaptureError):
        event.synchronize()
    assert library.status == 1
    assert library.end() == 0
    for stream in (world.main, world.side):
        world.out.fill_async(1, stream).wait()


def test_the_work_of_a_stream_must_be_joined(world, library, held):
    joined = cu.joins_capture(world.main)
    held.append(joined)

    def join():
        with joined:
            world.side.wait(world.main)
            world.work.fill_async(1, world.side)

    library.begin()
    with pytest.raises(
        cu.CaptureError, match=r"another library cannot be captured: Stream .* join"
    ):
        join()
    assert len(joined.nodes) == 1
    with pytest.raises(cu.BufferBorrowedError):
        world.work.close()
    library.end()
    joined.close()
    world.work.fill_async(1, world.side).wait()
    world.work.close()


def test_nobody_captures(world, library):
    for stream in (world.main, cu.Stream.legacy()):
        with pytest.raises(cu.CaptureError, match="no library is capturing"):
            cu.joins_capture(stream).__enter__()
    world.main.synchronize()
    library.begin()
    assert library.end() == 0
    with pytest.raises(cu.CaptureError, match="no library is capturing"):
        cu.joins_capture(world.main).__enter__()
    with world.graph.capture(world.main):
        with pytest.raises(cu.CaptureError, match="is a part of the capture of graph 'step'"):
            cu.joins_capture(world.main).__enter__()
        world.work.fill_async(1, world.main)
    assert len(world.graph.nodes) == 1


@pytest.mark.parametrize(
    "use",
    [
        lambda w: w.work.fill_async(1, w.main),
        lambda w: w.main.record(),
        lambda w: w.side.wait(w.main),
        lambda w: w.work.lend(w.main).__enter__(),
    ],
)
def test_the_library_ends_its_capture_inside(world, library, held, use):
    library.begin()
    with cu.joins_capture(world.main) as kept:
        held.append(kept)
        world.out.fill_async(1, world.main)
        assert library.end() == 0
        with pytest.raises(cu.CaptureError, match="another thread or library has ended"):
            use(world)
    assert len(kept.nodes) == 1
    assert not world.work.borrowed
    world.work.fill_async(1, world.main).wait()
    world.side.synchronize()


def test_the_library_begins_another_capture_inside(world, library, held):
    """A library ends its capture inside a joined block and begins another one: calls are refused.

    The block checks calls for the graph of the first capture only.
    """
    library.begin()
    with cu.joins_capture(world.main) as kept:
        held.append(kept)
        world.out.fill_async(1, world.main)
        assert library.end() == 0
        library.begin()
        with pytest.raises(cu.CaptureError, match="another thread or library has ended"):
            world.work.fill_async(1, world.main)
        with pytest.raises(cu.CaptureError, match="another thread or library has ended"):
            world.side.wait(world.main)
    with cu.joins_capture(world.main) as another:
        held.append(another)
        world.work.fill_async(1, world.main)
    assert (len(kept.nodes), len(another.nodes)) == (1, 1)


@pytest.mark.cuda_software
def test_the_driver_invalidates_the_capture(world, library, held):
    library.begin()
    with cu.joins_capture(world.main) as kept:
        held.append(kept)
        world.out.fill_async(1, world.main)
        assert library.call("cuStreamSynchronize", library.handle) == 900
        with pytest.raises(cu.CudaError, match="CAPTURE_INVALIDATED"):
            world.work.fill_async(1, world.main)
    assert library.end() == 901
    world.work.fill_async(1, world.main).wait()


def test_an_exception_in_the_block(world, library, held):
    joined = cu.joins_capture(world.main)
    held.append(joined)

    def join():
        with joined:
            world.side.wait(world.main)
            world.work.fill_async(1, world.side)
            raise KeyError

    library.begin()
    with pytest.raises(KeyError):
        join()
    with pytest.raises(cu.BufferBorrowedError):  # the library may launch its graph at any time
        world.work.close()
    library.end()
    joined.close()
    world.work.close()
    world.out.fill_async(1, world.side).wait()


def test_a_generator(world, library, held):
    def steps():
        with cu.joins_capture(world.main) as kept:
            held.append(kept)
            world.work.fill_async(1, world.main)
            yield

    library.begin()
    running = steps()
    next(running)
    del running
    gc.collect()
    assert library.end() == 0
    assert len(held[0].nodes) == 1
    world.work.fill_async(1, world.main).wait()


def test_a_block_that_is_abandoned_without_operations(world, library):
    library.begin()
    cu.joins_capture(world.main).__enter__()
    gc.collect()
    with pytest.raises(cu.OwnershipError, match="begun by another library"):
        world.work.fill_async(1, world.main)
    assert library.end() == 0
    world.work.fill_async(1, world.main).wait()


FORGET = """
import ctypes, gc, warnings
import cudadrv as cu
from cudadrv import testing

stream, buffer = cu.Stream(), cu.DeviceBuffer(16, name="kept")
library, graph = ctypes.CDLL(cu.driver_info().path), ctypes.c_void_p()
for abandoned in (False, True):
    with cu.Device(0):
        assert library.cuStreamBeginCapture_v2(ctypes.c_void_p(stream.handle), 0) == 0
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        joined = cu.joins_capture(stream)
        joined.__enter__()
        buffer.fill_async(1, stream)
        if not abandoned:
            joined.__exit__(None, None, None)
        del joined
        gc.collect()
    assert ["stay open until the program ends" in str(each.message) for each in found] == [True]
    with cu.Device(0):
        assert library.cuStreamEndCapture(ctypes.c_void_p(stream.handle), ctypes.byref(graph)) == 0
        assert library.cuGraphDestroy(graph) == 0
    try:
        buffer.close()
    except cu.BufferBorrowedError:
        print("kept")
"""


@pytest.mark.parametrize("cuda_schedule", ["lazy"], indirect=True)
def test_what_is_forgotten_stays_open(driver):
    """Dropping a `JoinedCapture` frees nothing: the library may launch its graph at any time."""
    done = subprocess.run([sys.executable, "-c", FORGET], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("kept\nkept\n", "")


def test_what_is_no_stream(world):
    for wrong in (None, 5, "stream", object()):
        with pytest.raises(TypeError):
            cu.joins_capture(wrong)
    world.side.close()
    with pytest.raises(ValueError, match="closed"):
        cu.joins_capture(world.side)
    joined = cu.joins_capture(world.main)
    with pytest.raises(RuntimeError, match="not entered"):
        joined.__exit__(None, None, None)


def test_a_stream_of_theirs(world):
    """A foreign stream must be known before its capture, in which the driver answers no queries."""

    class Theirs:
        def __init__(self, handle):
            self.cuda_stream = handle

    library = Library(world.main)
    handle = ctypes.c_void_p()
    assert library.call("cuStreamCreate", ctypes.byref(handle), 1) == 0
    theirs, library.handle = Theirs(handle.value), handle
    library.begin()
    with pytest.raises(cu.CaptureError, match="make the Stream before"):
        cu.joins_capture(theirs)
    assert library.status == 1
    assert library.end() == 0
    library.drop()
    stream = cu.Stream.from_object(theirs)
    library.begin()
    with cu.joins_capture(stream) as kept:
        world.work.fill_async(1, theirs)  # the block knows the stream
        assert cu.Stream.from_handle(handle.value) is stream
    assert library.end() == 0
    assert library.nodes() == 1
    library.drop()
    kept.close()
    stream.close()
    assert library.call("cuStreamDestroy_v2", handle) == 0


def test_representations(world, library):
    joined = cu.joins_capture(world.main)
    name = repr(joined).removeprefix("<JoinedCapture of ").removesuffix(", not begun>")
    library.begin()
    with joined:
        assert repr(joined) == f"<JoinedCapture of {name}, open>"
        world.work.fill_async(1, world.main)
    assert repr(joined) == f"<JoinedCapture of {name}, ended, 1 operation>"
    with pytest.raises(cu.CaptureError, match="has begun already"):
        joined.__enter__()
    joined.close()
    assert repr(joined) == f"<JoinedCapture of {name}, closed>"
    with pytest.raises(ValueError, match="is closed"):
        joined.__enter__()
    assert library.end() == 0


def test_other_threads(world, library, held):
    library.mode = MODES["relaxed"]
    library.begin()
    with cu.joins_capture(world.main) as kept:
        held.append(kept)
        parts = world.work.chunks(4)
        threads = [
            threading.Thread(target=lambda part=part: [part.fill_async(1, world.main)] * 20)
            for part in parts
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert library.end() == 0
    assert library.nodes() == len(kept.nodes) == 4


def test_the_block_ends_in_another_thread(world, library, held):
    library.mode = MODES["relaxed"]
    library.begin()
    kept = cu.joins_capture(world.main).__enter__()
    held.append(kept)
    world.work.fill_async(1, world.main)
    thread = threading.Thread(target=kept.__exit__, args=(None, None, None))
    thread.start()
    thread.join()
    assert len(kept.nodes) == 1
    assert library.end() == 0


OURS = [
    "cuStreamGetCaptureInfo_v2",
    "cuMemsetD32Async",
    "cuMemcpyDtoHAsync_v2",
    "cuEventCreate",
    "cuEventRecord",
    "cuStreamWaitEvent",
    "cuCtxPushCurrent_v2",
]


@pytest.mark.cuda_software
@pytest.mark.parametrize("cuda_schedule", ["lazy"], indirect=True)
@pytest.mark.parametrize("function", OURS)
def test_each_of_our_calls_fails(world, function):
    """Each driver call in the block fails in turn, at each of its occurrences."""

    def block(kept):
        with kept:
            world.work.fill_async(1, world.main)
            world.side.wait(world.main)
            with world.out.lend(world.main):
                world.out.fill_async(2, world.main)
            world.result.copy_from_async(world.work, world.side)
            world.main.wait(world.side)

    failures = 0
    for number in range(1, 40):
        library, kept = Library(world.main, MODES["relaxed"]), cu.joins_capture(world.main)
        library.begin()
        testing.configure(f"fault={function}:{number}:800")
        try:
            block(kept)
        except (cu.CudaError, cu.CaptureError) as error:
            failed = error
        else:
            failed = None
        finally:
            testing.configure("fault=none")
        assert library.end() in (0, 901, 904)
        assert not world.work.borrowed
        assert world.result.to_numpy()[0] == 0
        kept.close()
        library.drop()
        for stream in (world.main, world.side):
            world.out.fill_async(1, stream).wait()
        if failed is None:
            break
        failures += 1
        assert "800" in str(failed)
    assert failures or function == "cuCtxPushCurrent_v2"
    for buffer in (world.work, world.out, world.result):
        buffer.close()
