"""Pairs of calls that once broke something: each call runs at every moment of the other one.

    CUDADRV_DRIVER=.../interposed.so python known_faults.py NAME

test_known.py compiles the driver that stops calls (windows.py), and runs each of these functions in
a process of its own, because some of the faults were crashes and hangs.
"""

import ctypes
import faulthandler
import gc
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
from in_threads import started, until_it_waits
from other_library import Library
from windows import Case, Moments, Second, outcome

import cudadrv as cu
from cudadrv import testing

PTX = Path(__file__).parents[1] / "kernels" / "kernels.ptx"
SECONDS = 600  # a use that takes longer hangs, even if 28 processes share a GPU
GRANULE = 2 << 20
ROUNDS = 100

FAULTS: dict[str, Callable[[], Case]] = {}


def fault(case: Callable[[], Case], *words: str) -> Callable[[], Case]:
    FAULTS["_".join([case.__name__, *words])] = case
    return case


def refused(found: Any, *messages: str) -> bool:
    """Whether a call was refused, with an OwnershipError or a ValueError with one of the texts."""
    if isinstance(found, cu.OwnershipError):
        return True
    return isinstance(found, ValueError) and any(text in str(found) for text in messages)


def done_or_refused(results: tuple[Any, Any], *messages: str) -> None:
    """Check that each of the two calls has done what it says, or was refused."""
    for found in results:
        assert not isinstance(found, Exception) or refused(found, *messages), repr(found)


def is_lent(buffer: cu.Buffer, stream: cu.Stream) -> None:
    """Check that nobody else can use a buffer when all work of its borrower is complete."""
    stream.synchronize()
    assert isinstance(outcome(lambda: buffer.fill_async(2, cu.Stream())), cu.OwnershipError)
    assert isinstance(outcome(buffer.close), cu.OwnershipError)


def is_free(buffer: cu.Buffer, *streams: cu.Stream) -> None:
    """Check that a buffer can be used and closed when all work is complete."""
    gc.collect()
    cu.Device(0).synchronize()
    assert not buffer.borrowed, buffer.explain()
    with cu.Stream() as stream:
        buffer.fill_async(2, stream).wait()
    buffer.close()
    for each in streams:
        each.close()


# ---- a loan ends while another thread makes an array of it ----


class Lending:
    """A buffer that is lent, or can be lent, to a stream."""

    def __init__(self) -> None:
        # A loan to a blocking stream makes driver calls at its beginning and at its end.
        self.stream = cu.Stream(blocking=True)
        self.buffer = cu.DeviceBuffer.zeros(64)
        self.loan = self.buffer.lend(self.stream)
        self.arrays: list[Any] = []

    def export(self) -> None:
        self.arrays.append(self.loan.__dlpack__(stream=self.stream.handle))

    def drop(self) -> None:
        self.arrays.pop(0)
        self.buffer.borrowed  # noqa: B018 (it ends the loans that were given back)

    def end(self) -> None:
        """Check that the loan lasts as long as its arrays."""
        if self.arrays:
            is_lent(self.buffer, self.stream)
        self.arrays.clear()
        is_free(self.buffer, self.stream)


@fault
def last_array_and_another_one() -> Case:
    lending = Lending()
    lending.export()

    def check(*results: Any) -> None:
        done_or_refused(results)
        lending.end()

    return Case(lending.drop, lending.export, check)


@fault
def end_of_block_and_an_array() -> Case:
    lending = Lending()
    lending.loan.__enter__()

    def check(*results: Any) -> None:
        done_or_refused(results)
        if isinstance(results[0], Exception):
            lending.loan.__exit__(None, None, None)
        lending.end()

    return Case(lambda: lending.loan.__exit__(None, None, None), lending.export, check)


@fault
def late_end_and_an_array() -> Case:
    """A loan that could not end at first ends at a synchronization."""
    lending = Lending()
    lending.export()
    driver, graph = library.driver, ctypes.c_void_p()
    handle = ctypes.c_void_p(lending.stream.handle)
    assert driver.cuStreamBeginCapture_v2(handle, 2) == 0  # another library captures the stream
    lending.arrays.clear()
    assert lending.buffer.borrowed
    assert driver.cuStreamEndCapture(handle, ctypes.byref(graph)) == 0
    assert driver.cuGraphDestroy(graph) == 0

    def check(*results: Any) -> None:
        done_or_refused(results)
        lending.end()

    return Case(cu.Device(0).synchronize, lending.export, check)


# ---- imported memory is closed while another thread uses it ----


def of_address(address: int) -> cu.Buffer:
    return cu.DeviceBuffer.from_address(address, 64)


class Array:
    """An array with the CUDA Array Interface."""

    def __init__(self, address: int) -> None:
        about = {"shape": (64,), "typestr": "|u1", "stream": 1, "version": 3}
        self.__cuda_array_interface__ = {**about, "data": (address, False)}


def of_cuda_array(address: int) -> cu.Buffer:
    return cu.from_cuda_array(Array(address))


IMPORTS = {"address": of_address, "cuda_array": of_cuda_array}


def imported(name: str, end: str, use: str, given: cu.Stream | None = None) -> Callable[[], Case]:
    def imported() -> Case:
        stream = given or cu.Stream()
        buffer = IMPORTS[name](library.address)
        uses: dict[str, Callable[[], Any]] = {
            "fill": lambda: buffer.fill_async(1, stream),
            "copy": lambda: buffer.copy_from_async(cu.DeviceBuffer(64), stream),
            "part": lambda: buffer[:8].fill_async(1, stream),
            "lend": lambda: buffer.lend(stream).__enter__(),
            "to_numpy": lambda: buffer.to_numpy(),
        }
        ends = {"close": buffer.close, "give_back": lambda: buffer.give_back(stream)}

        def check(*results: Any) -> None:
            done_or_refused(results, "given back", "was closed", "is closed")
            cu.Device(0).synchronize()

        return Case(ends[end], uses[use], check)

    return imported


def ended_while_another_waits(name: str, end: str, use: str) -> Callable[[], Case]:
    """A thread waits for the stream's issue lock, to use a buffer that ends meanwhile."""

    def ended() -> Case:
        stream, mine = cu.Stream(), cu.DeviceBuffer(64)
        calls = imported(name, end, use, stream)()
        waiting: list[tuple[threading.Thread, list[Any]]] = []

        def end_while_another_waits() -> Any:
            waiting.append(started(calls.second))
            until_it_waits(waiting[0][0])
            return calls.first()

        def check(first: Any, second: Any) -> None:
            thread, found = waiting[0]
            thread.join()
            calls.check(second, found[0])

        return Case(lambda: mine.fill_async(1, stream), end_while_another_waits, check)

    return ended


for _name in IMPORTS:
    for _end in ("close", "give_back") if _name != "address" else ("close",):
        for _use in ("fill", "copy", "part", "lend", "to_numpy"):
            fault(imported(_name, _end, _use), _end, _name, _use)
        fault(ended_while_another_waits(_name, _end, "fill"), _end, _name)


# ---- one loan is taken back twice ----


@fault
def back_twice() -> Case:
    lending = Lending()
    lending.export()
    blocks = [lending.loan.back(), lending.loan.back()]

    def check(*results: Any) -> None:
        taken = [block for block, each in zip(blocks, results, strict=True) if each is None]
        assert len(taken) == 1, "only one of the blocks can begin"
        done_or_refused(results, "to take back")
        taken[0].__exit__(None, None, None)
        lending.end()

    return Case(blocks[0].__enter__, blocks[1].__enter__, check)


@fault
def back_and_an_array() -> Case:
    lending = Lending()
    lending.export()
    back = lending.loan.back()

    def check(*results: Any) -> None:
        done_or_refused(results, "taken back")
        if not isinstance(results[0], Exception):
            back.__exit__(None, None, None)
        lending.end()

    return Case(back.__enter__, lending.export, check)


@fault
def back_and_the_last_array() -> Case:
    lending = Lending()
    lending.export()
    back = lending.loan.back()

    def check(*results: Any) -> None:
        done_or_refused(results, "to take back")
        if not isinstance(results[0], Exception):
            back.__exit__(None, None, None)
        is_free(lending.buffer, lending.stream)

    return Case(back.__enter__, lending.drop, check)


# ---- two captures into one graph, or of one stream ----


def two_captures(graphs: int, streams: int) -> Callable[[], Case]:
    def captures() -> Case:
        buffer = cu.DeviceBuffer(64)
        into, of = [cu.Graph() for _ in range(graphs)], [cu.Stream() for _ in range(streams)]
        blocks = [into[0].capture(of[0]), into[-1].capture(of[-1])]

        def check(*results: Any) -> None:
            done_or_refused(results)
            entered = [
                (block, stream)
                for block, found, stream in zip(blocks, results, (of[0], of[-1]), strict=True)
                if not isinstance(found, Exception)
            ]
            assert len(entered) == 1
            for block, stream in entered:
                buffer.fill_async(1, stream)
                block.__exit__(None, None, None)
            nodes = sum(len(graph.nodes) for graph in into)
            assert nodes == 1, nodes
            for thing in (*into, *of):
                thing.close()

        return Case(blocks[0].__enter__, blocks[1].__enter__, check)

    return captures


for _graphs, _streams in ((1, 1), (1, 2), (2, 1)):
    fault(two_captures(_graphs, _streams), f"of_{_streams}_into_{_graphs}")


@fault
def one_capture_in_two_threads() -> Case:
    graph, stream = cu.Graph(), cu.Stream()
    block = graph.capture(stream)

    def check(*results: Any) -> None:
        found = [isinstance(each, Exception) for each in results]
        assert sorted(found) == [False, True]
        block.__exit__(None, None, None)
        graph.close()
        stream.close()

    return Case(block.__enter__, block.__enter__, check)


@fault
def one_profiled_block_in_two_threads() -> Case:
    block = cu.capture_profiler()

    def check(*results: Any) -> None:
        found = [isinstance(each, Exception) for each in results]
        assert sorted(found) == [False, True]
        block.__exit__(None, None, None)

    return Case(block.__enter__, block.__enter__, check)


class Joined:
    """A block of joins_capture, on a stream that another library captures."""

    def __init__(self) -> None:
        self.stream, self.buffer = cu.Stream(), cu.DeviceBuffer(64)
        self._handle = ctypes.c_void_p(self.stream.handle)
        assert library.driver.cuStreamBeginCapture_v2(self._handle, 2) == 0
        self.joined = cu.joins_capture(self.stream)

    def leave(self) -> None:
        self.joined.__exit__(None, None, None)

    def end(self) -> None:
        """End the library's capture, and let the buffer go."""
        graph = ctypes.c_void_p()
        assert library.driver.cuStreamEndCapture(self._handle, ctypes.byref(graph)) == 0
        assert library.driver.cuGraphDestroy(graph) == 0
        self.joined.close()
        is_free(self.buffer)


@fault
def a_joined_capture_that_begins_and_is_closed() -> Case:
    t = Joined()

    def check(*results: Any) -> None:
        done_or_refused(results, "is closed")
        if not isinstance(results[0], Exception):  # it has begun, so it holds what it captures
            t.buffer.fill_async(1, t.stream)
            t.leave()
            assert not t.joined.closed
        t.end()

    return Case(t.joined.__enter__, t.joined.close, check)


@fault
def a_joined_capture_that_ends_and_is_closed() -> Case:
    t = Joined()
    t.joined.__enter__()
    t.buffer.fill_async(1, t.stream)

    def check(*results: Any) -> None:
        done_or_refused(results)
        assert not isinstance(results[0], Exception)
        t.end()

    return Case(t.leave, t.joined.close, check)


@fault
def a_joined_capture_that_ends_in_two_threads() -> Case:
    t = Joined()
    t.joined.__enter__()
    t.buffer.fill_async(1, t.stream)

    def check(*results: Any) -> None:
        assert sorted(isinstance(each, RuntimeError) for each in results) == [False, True]
        t.end()

    return Case(t.leave, t.leave, check)


@fault
def one_offload_that_ends_in_two_threads() -> Case:
    array = np.zeros(64, "u1")
    block = cu.offload(inout=array)
    (buffer,) = block.__enter__()
    buffer.fill(7)

    def end() -> None:
        block.__exit__(None, None, None)

    def check(*results: Any) -> None:
        found = [isinstance(each, Exception) for each in results]
        assert sorted(found) == [False, True]
        assert (array == 7).all()

    return Case(end, end, check)


# ---- the host waits for a context, or for an event, while a stream is captured ----


def captured_meanwhile(wait: Callable[[], Any], event: cu.Event | None = None) -> Case:
    """A call of the host that waits, and a capture, which also records the event."""
    buffer, stream, over = cu.DeviceBuffer(64), cu.Stream(), threading.Event()

    def first() -> None:
        try:
            wait()
        finally:
            over.set()

    def capture() -> int:
        with cu.Graph() as graph:
            with graph.capture(stream):
                buffer.fill_async(1, stream)
                if event is not None:
                    stream.record(event)
                over.wait(0.1)  # the other thread goes on meanwhile
            return len(graph.nodes)

    def check(first: Any, second: Any) -> None:
        assert second == 1 or (event and isinstance(second, cu.OwnershipError)), repr(second)
        assert not isinstance(first, Exception) or isinstance(first, cu.CaptureError), repr(first)
        is_free(buffer, stream)

    return Case(first, capture, check)


@fault
def synchronize_and_a_capture() -> Case:
    return captured_meanwhile(cu.Device(0).synchronize)


@fault
def work_without_an_event_and_a_capture() -> Case:
    """The host waits for the default stream of a thread that has ended, before it frees memory."""
    thread, _ = started(lambda: cu.DeviceBuffer(64).fill_async(1, cu.Stream.per_thread()))
    thread.join()
    return captured_meanwhile(cu.reap)


def recorded_event_and_a_capture(ask: Callable[[cu.Event], Any]) -> Callable[[], Case]:
    def case() -> Case:
        event = cu.Stream().record()
        return captured_meanwhile(lambda: ask(event), event)

    case.__name__ = "event_that_is_recorded_in_a_capture"
    return case


fault(recorded_event_and_a_capture(cu.Event.synchronize), "synchronize")
fault(recorded_event_and_a_capture(lambda event: event.done), "done")


# ---- a stream is closed while a loan to it begins ----


@fault
def close_and_a_loan_to_the_stream() -> Case:
    lending = Lending()

    def check(*results: Any) -> None:
        done_or_refused(results, "closed")
        if not isinstance(results[1], Exception):
            lending.loan.__exit__(None, None, None)
        is_free(lending.buffer, lending.stream)

    return Case(lending.stream.close, lending.loan.__enter__, check)


@fault
def close_and_an_array_for_the_stream() -> Case:
    lending = Lending()

    def check(*results: Any) -> None:
        done_or_refused(results, "closed")
        lending.arrays.clear()
        is_free(lending.buffer, lending.stream)

    return Case(lending.stream.close, lending.export, check)


# ---- things are used while they are closed ----


def used_module(use: Callable[[cu.Module, cu.Kernel], Any]) -> Callable[[], Case]:
    def close_of_a_module_and() -> Case:
        module = cu.Module(PTX.read_bytes())
        kernel = module["saxpy"]

        def check(*results: Any) -> None:
            done_or_refused(results, "closed")
            cu.Device(0).synchronize()
            module.close()

        return Case(lambda: use(module, kernel), module.close, check)

    return close_of_a_module_and


USES_OF_MODULES: dict[str, Callable[[cu.Module, cu.Kernel], Any]] = {
    "lookup": lambda module, kernel: module["scaled"],
    "global": lambda module, kernel: module.global_("counter"),
    "occupancy": lambda module, kernel: kernel.occupancy(32),
    "suggest_block": lambda module, kernel: kernel.suggest_block(),
    "attributes": lambda module, kernel: kernel.attributes,
    "shared_bytes": lambda module, kernel: setattr(kernel, "max_dynamic_shared_bytes", 64),
    "cache": lambda module, kernel: kernel.prefer_cache("l1"),
    "prepare": lambda module, kernel: kernel.prepare(1, 1, 2.0, 0, 0, 0),
}
for _name, _function in USES_OF_MODULES.items():
    fault(used_module(_function), _name)


def used_pool(use: Callable[[cu.DriverPool], Any]) -> Callable[[], Case]:
    def close_of_a_pool_and() -> Case:
        pool = cu.DriverPool("device")

        def check(*results: Any) -> None:
            done_or_refused(results, "closed")
            pool.close()

        return Case(lambda: use(pool), pool.close, check)

    return close_of_a_pool_and


USES_OF_POOLS: dict[str, Callable[[cu.DriverPool], Any]] = {
    "trim": lambda pool: pool.trim(),
    "stats": lambda pool: pool.stats,
    "reset_peaks": lambda pool: pool.reset_peaks(),
    "release_threshold": lambda pool: pool.release_threshold,
    "new_threshold": lambda pool: setattr(pool, "release_threshold", 1 << 20),
    "access": lambda pool: pool.access(pool.place),
}
for _name, _use_of_pool in USES_OF_POOLS.items():
    fault(used_pool(_use_of_pool), _name)


def closed_source(source: Callable[[], Any], use: Callable[[Any], Any]) -> Callable[[], Case]:
    def close_of_a_source_and() -> Case:
        shared = source()

        def check(*results: Any) -> None:
            done_or_refused(results, "closed")
            if not isinstance(results[0], Exception):
                results[0].close()
            shared.close()

        return Case(lambda: use(shared), shared.close, check)

    return close_of_a_source_and


USES_OF_SOURCES: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "texture": (lambda: cu.Array((8, 8), "u1"), cu.Texture),
    "mipmaps": (
        lambda: cu.Array((8, 8), "u1", mipmaps=2),
        lambda array: cu.Texture(array, normalized=True),
    ),
    "buffer": (lambda: cu.DeviceBuffer(256, "u1", pooled=False), cu.Texture),
    "surface": (lambda: cu.Array((8, 8), "u1", surface=True), cu.Surface),
    "level": (lambda: cu.Array((8, 8), "u1", mipmaps=2), lambda array: array.level(1)),
}
for _name, (_source, _use_of_source) in USES_OF_SOURCES.items():
    fault(closed_source(_source, _use_of_source), _name)


# ---- an object changes while a refusal is worded, or while a block begins ----


@fault
def refused_node_and_close() -> Case:
    graph, buffer = cu.Graph(), cu.DeviceBuffer.zeros(64).view("f4")
    kernel = cu.Module(PTX.read_bytes())["scaled"]
    graph.add_launch(kernel, 1, 1, buffer)

    def check(*results: Any) -> None:
        done_or_refused(results, "closed")
        assert isinstance(results[0], Exception)
        graph.close()

    return Case(lambda: graph.add_launch(kernel, 1, 1, buffer), graph.close, check)


@fault
def offload_twice() -> Case:
    block = cu.offload(np.zeros(64))

    def check(*results: Any) -> None:
        refusals = [each for each in results if isinstance(each, Exception)]
        assert len(refusals) == 1, results
        assert "has been entered already" in str(refusals[0])
        block.__exit__(None, None, None)

    return Case(block.__enter__, block.__enter__, check)


# ---- the function that makes room ----


def fill_device() -> list[cu.Buffer]:
    """Make buffers until the device has no room for one more GRANULE."""
    hoard = []
    while free := cu.Device(0).memory_info()[0] // GRANULE * GRANULE:
        hoard.append(cu.DeviceBuffer(free, pooled=False))
    return hoard


def shrinking_each_other() -> None:
    """Two buffers grow in two threads. The function that makes room for one shrinks the other."""
    pools, both = cu.Device(0).context.pools, threading.Barrier(2)
    buffers = [cu.DeviceBuffer(GRANULE, capacity=4 * GRANULE) for _ in range(2)]
    mine = threading.local()
    found: list[Any] = []

    def make_room(nbytes: int, context: cu.Context) -> bool:
        both.wait()
        found.append(outcome(lambda: buffers[1 - mine.index].shrink(0)))
        return False

    def grow(index: int) -> Any:
        mine.index = index
        return outcome(lambda: buffers[index].grow(2 * GRANULE))

    pools.on_out_of_memory = make_room
    hoard = fill_device()  # noqa: F841
    try:
        moments.second.start(lambda: grow(1))
        grow(0)
        moments.second.end()
    finally:
        pools.on_out_of_memory = None
    assert any(isinstance(each, cu.OwnershipError) for each in found), found
    for buffer in buffers:
        buffer.close()


def taken_while_it_grows() -> None:
    """Nothing may end or move a buffer in the function that makes room for it."""
    pools = cu.Device(0).context.pools
    for call in ("take", "close", "into_raw"):
        buffer = cu.DeviceBuffer(GRANULE, capacity=4 * GRANULE)
        found: list[Any] = []

        def make_room(nbytes: int, context: cu.Context) -> bool:
            found.append(outcome(getattr(buffer, call)))  # noqa: B023
            return False

        pools.on_out_of_memory = make_room
        hoard = fill_device()
        try:
            outcome(lambda: buffer.grow(2 * GRANULE))  # noqa: B023
        finally:
            pools.on_out_of_memory = None
            hoard.clear()
        assert refused(found[0], "cannot give away"), (call, found)
        buffer.close()


OTHERS = {each.__name__: each for each in (shrinking_each_other, taken_while_it_grows)}


def run(
    moments: Moments,
    name: str,
    case: Callable[[], Case],
    schedules: tuple[str, ...] = ("lazy", "random"),
    rounds: int = ROUNDS,
    step: int = 1,
) -> None:
    """Run two calls at every nth moment of each other, and at once."""
    software = cu.driver_info().is_software
    faulthandler.dump_traceback_later(SECONDS, exit=True)
    for schedule in schedules if software else ("",):
        if software:
            testing.configure(f"schedule={schedule}")
        passed = moments.each(case, step)
        for seed in range(rounds):
            moments.together(case, Random(seed))
        print(f"{name}: {passed} moments, {rounds} rounds {schedule}", flush=True)
        gc.collect()  # may end a block that a call has left entered
        cu.Device(0).synchronize()
        assert not software or not testing.races(), testing.races()


def begin() -> Moments:
    faulthandler.enable()
    faulthandler.dump_traceback_later(SECONDS, exit=True)
    sys.setswitchinterval(1e-6)
    return Moments(Second())


def main(name: str) -> None:
    if name in OTHERS:
        OTHERS[name]()
    else:
        run(moments, name, FAULTS[name])


if __name__ == "__main__":
    library, moments = Library(), begin()
    main(*sys.argv[1:])
