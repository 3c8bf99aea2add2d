"""Choices of the driver other than which stream goes on next are explored, too.

Each program is compared with all of its orders without reduction.
"""

import ctypes
import itertools
import random

import numpy as np
import pytest

import cudadrv as cu
from cudadrv import testing
from tests.conformance.structures import ANY_ORDER, STREAM_ORDER, CopyAttributes
from tests.conformance.test_copy_batches import batch
from tests.conformance.test_dependent_launches import TEXT, Attribute, Config
from tests.explore.calls import Calls, run_all

BYTES = 4
MOST_ORDERS = 100_000

pytestmark = [
    pytest.mark.cuda_software,
    pytest.mark.cuda_allow("races"),
    pytest.mark.parametrize("cuda_schedule", ["lazy"], indirect=True),
]

CONDITION = """.version 8.0
.target sm_90
.address_size 64
.extern .func cudaGraphSetConditional(.param .u64 handle, .param .u32 value);
.visible .entry set(.param .u64 condition, .param .u32 value)
{
    .reg .b64 %rd1; .reg .b32 %r1;
    ld.param.u64 %rd1, [condition]; ld.param.u32 %r1, [value];
    { .param .u64 a; .param .u32 b; st.param.b64 [a], %rd1; st.param.b32 [b], %r1;
      call.uni cudaGraphSetConditional, (a, b); }
    ret;
}
"""


def compared(program, runs=None):
    """Run in all orders, with and without reduction. Return what the program has seen."""
    every = run_all(program, everything=True, most=MOST_ORDERS)
    found = run_all(program)
    assert found.limits == ()
    assert found.results == every.results
    assert found.orders == every.orders
    assert found.runs == len(every.orders)
    if runs is not None:
        assert found.runs == runs
    if runs == 1:
        assert not found.redundant
    return found.results


class Driver(Calls):
    """Some streams, and buffers of four bytes. All bytes of a buffer have the same value."""

    def __init__(self, work, buffers=4, streams=2):
        super().__init__([])
        self.work, self.count, self.of_streams = work, buffers, streams

    def __call__(self):
        with cu.Device(0):
            self.streams = [self._make("cuStreamCreate", 1) for _ in range(self.of_streams)]
            self.buffers = [ctypes.c_uint64() for _ in range(self.count)]
            for number, buffer in enumerate(self.buffers):
                self._call("cuMemAlloc_v2", ctypes.byref(buffer), BYTES)
                self._call("cuMemsetD8_v2", buffer, 10 * number, BYTES)
            self._call("cuCtxSynchronize")
            seen = self.work(self)
            for stream in self.streams:
                self._call("cuStreamSynchronize", stream)
                self._call("cuStreamDestroy_v2", stream)
            return (*(seen or ()), *map(self.value, self.buffers))

    def value(self, buffer):
        found = (ctypes.c_ubyte * BYTES)()
        self._call("cuMemcpyDtoH_v2", found, buffer, BYTES)
        self._call("cuMemFree_v2", buffer)
        return found[0]

    def fill(self, stream, buffer, value):
        self._do("fill", stream, buffer, value)

    def batch(self, stream, *pairs):
        with_attributes(self, STREAM_ORDER, *pairs, stream=stream)


def test_copies_of_a_batch(cuda_device):
    def work(driver):
        driver.batch(0, (1, 0), (2, 1), (3, 2))

    results = compared(Driver(work), runs=4)
    assert {result[1:] for result in results} == {(0, 0, 0), (0, 0, 20), (0, 10, 10), (0, 10, 20)}


def test_another_stream_between_the_copies_of_a_batch(cuda_device):
    def work(driver):
        driver.batch(0, (1, 0), (3, 2))
        driver.batch(1, (2, 1), (3, 0))

    compared(Driver(work))


def test_work_behind_a_batch(cuda_device):
    def work(driver):
        driver.fill(0, 0, 7)
        driver.batch(0, (1, 0), (2, 0))
        driver.fill(0, 0, 9)

    assert compared(Driver(work), runs=1) == {(9, 7, 7, 30)}


def test_copies_of_copy_batch(cuda_device):
    """The order of the copies of `cu.copy_batch` is a choice."""
    streams = [cu.Stream(), cu.Stream()]
    source, *made = (cu.LockedBuffer.zeros(8) for _ in range(5))
    source.fill(1)

    def work():
        first, second, *seen = made
        for buffer in made:
            buffer.fill(0)
        with cu.ordering("unchecked"):
            cu.copy_batch([(first, source), (second, source)], streams[0])
            seen[0].copy_from_async(first, streams[1])
            seen[1].copy_from_async(second, streams[1])
        cu.Device(0).synchronize()
        return tuple(int(each.to_numpy()[0]) for each in seen)

    work()  # makes what later runs use again
    # (1, 0) is seen only if the first copy comes first, and the second one after both reads.
    assert compared(work) == {(0, 0), (1, 1), (1, 0), (0, 1)}


FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def test_host_functions(cuda_device):
    """Among themselves, beside fills, and beside what the host asks."""
    seen = []
    functions = [FUNCTION(lambda _, number=number: seen.append(number)) for number in range(3)]

    def work(driver):
        seen.clear()
        for number, stream in enumerate((0, 1, 0)):
            driver._call("cuLaunchHostFunc", driver.streams[stream], functions[number], None)
            driver.fill(stream, 0, number + 1)
        answer = driver._do("ask", 1)
        early = tuple(seen)
        for stream in driver.streams:
            driver._call("cuStreamSynchronize", stream)
        return answer, early, tuple(seen)

    results = compared(Driver(work, buffers=1))
    assert {result[2] for result in results} == {(0, 1, 2), (0, 2, 1), (1, 0, 2)}
    assert len({result[1] for result in results}) > 3


# ---- values in memory ----

GEQ, EQ = 0, 1


def write(driver, stream, buffer, value):
    place = ctypes.c_uint64(driver.flags.value + 8 * buffer)
    arguments = driver.streams[stream], place, ctypes.c_uint64(value), 0
    driver._call("cuStreamWriteValue64_v2", *arguments)


def wait(driver, stream, buffer, value, how=GEQ):
    place = ctypes.c_uint64(driver.flags.value + 8 * buffer)
    arguments = driver.streams[stream], place, ctypes.c_uint64(value), how
    driver._call("cuStreamWaitValue64_v2", *arguments)


class Signals(Driver):
    """Also has two flags of 64 bits, which are 0 at the beginning of each run."""

    def __call__(self):
        with cu.Device(0):
            self.flags = ctypes.c_uint64()
            self._call("cuMemAlloc_v2", ctypes.byref(self.flags), 16)
            self._call("cuMemsetD8_v2", self.flags, 0, 16)
            found = super().__call__()
            self._call("cuMemFree_v2", self.flags)
        return found


def test_a_signal_orders_streams(cuda_device):
    def work(driver):
        driver.fill(0, 0, 7)
        write(driver, 0, 0, 1)
        wait(driver, 1, 0, 1)
        driver._do("copy", 1, 1, 0)

    assert compared(Signals(work, buffers=2), runs=1) == {(7, 7)}


def test_a_signal_that_is_given_too_early(cuda_device):
    def work(driver):
        write(driver, 0, 0, 1)
        driver.fill(0, 0, 7)
        wait(driver, 1, 0, 1)
        driver._do("copy", 1, 1, 0)

    assert compared(Signals(work, buffers=2), runs=2) == {(7, 0), (7, 7)}


def test_signals_in_both_directions(cuda_device):
    """Frames go through a slot: the reader says when it is empty."""

    def work(driver):
        for number in range(2):
            wait(driver, 0, 1, number)
            driver.fill(0, 0, 7 + number)
            write(driver, 0, 0, number + 1)
            wait(driver, 1, 0, number + 1)
            driver._do("copy", 1, 1 + number, 0)
            write(driver, 1, 1, number + 1)

    assert compared(Signals(work, buffers=3), runs=1) == {(8, 7, 8)}


def test_a_query_of_work_that_no_wait_needs(cuda_device):
    """The fill runs before the query in the first order, because it is queued before the write."""

    def work(driver):
        driver.fill(0, 0, 7)
        write(driver, 2, 0, 1)
        wait(driver, 1, 0, 1)
        driver._call("cuStreamSynchronize", driver.streams[1])
        return (driver._do("ask", 0),)

    assert compared(Signals(work, buffers=1, streams=3)) == {(False, 7), (True, 7)}


def test_a_value_that_is_there_at_first(cuda_device):
    """The wait may be over before the first write, or behind the second one, which waits for it."""

    def work(driver):
        write(driver, 0, 0, 1)
        driver.fill(0, 0, 7)
        write(driver, 0, 0, 0)
        wait(driver, 1, 0, 0, EQ)
        driver._do("copy", 1, 1, 0)

    assert compared(Signals(work, buffers=2)) == {(7, 7), (7, 0)}


def test_a_value_that_is_there_twice(cuda_device):
    def work(driver):
        for number, value in enumerate((1, 2, 1)):
            driver.fill(0, 0, number)
            write(driver, 0, 0, value)
        wait(driver, 1, 0, 1, EQ)
        driver._do("copy", 1, 1, 0)

    results = compared(Signals(work, buffers=2))
    assert {result[1] for result in results} == {0, 1, 2}


SEEDS = (
    0,
    4,
    9,
    22,
    24,
    27,
    28,
    34,
    39,
    41,
    62,
    63,
    64,
    82,
    93,
    96,
    97,
    98,
    99,
    101,
    103,
    115,
    119,
)


def signals(seed):
    """Return random work with values on three streams."""
    draw = random.Random(seed)
    calls = []
    for number in range(draw.randrange(4, 8)):
        stream = draw.randrange(3)
        kind = draw.random()
        if kind < 0.4:
            calls.append((write, stream, draw.randrange(2), draw.randrange(3)))
        elif kind < 0.65:
            calls.append((wait, stream, draw.randrange(2), draw.randrange(2), EQ))
        elif kind < 0.85:
            calls.append((Driver.fill, stream, draw.randrange(2), number + 1))
        else:
            calls.append((Driver._do, "copy", stream, 0, 1))

    def work(driver):
        for call, *arguments in calls:
            call(driver, *arguments)

    return work


# In other programs, a wait never ends in some order.
@pytest.mark.parametrize("seed", SEEDS)
def test_random_signals(cuda_device, seed):
    compared(Signals(signals(seed), buffers=2, streams=3))


def test_a_host_function_behind_a_signal(cuda_device):
    seen = []
    function = FUNCTION(lambda _: seen.append(1))

    def work(driver):
        seen.clear()
        wait(driver, 1, 0, 1)
        driver._call("cuLaunchHostFunc", driver.streams[1], function, None)
        early = driver._do("ask", 1), tuple(seen)
        write(driver, 0, 0, 1)
        later = driver._do("ask", 1), tuple(seen)
        return early, later

    answers = {result[:2] for result in compared(Signals(work, buffers=1))}
    assert answers == {((False, ()), later) for later in ((False, ()), (True, (1,)))}


# ---- conditional nodes ----


class Conditions:
    """A graph with a condition, and kernels that set it."""

    def __init__(self):
        self.module = cu.Module(CONDITION)
        self.set = self.module["set"]

    def __call__(self, build, beside=None, words=3):
        def program():
            with cu.ordering("unchecked"):
                one, other = cu.Stream(), cu.Stream()
                buffer = cu.DeviceBuffer.zeros(words, "u4")
                graph = cu.Graph()
                build(graph, buffer)
                with graph.instantiate() as step:
                    step.launch(one)
                    if beside:
                        beside(buffer, other)
                    one.synchronize()
                    other.synchronize()
                found = np.empty(words, "u4")
                buffer.copy_to(found)
                for thing in (graph, buffer, one, other):
                    thing.close()
                return tuple(map(int, found))

        return program


@pytest.fixture
def conditions(cuda_device):
    if cu.driver_info().version < (12, 8):
        pytest.skip("the driver is older than CUDA 12.8")
    return Conditions()


def test_nodes_of_a_body(conditions):
    """Two nodes of a body that no edge orders, and work of another stream beside them."""

    def build(graph, buffer):
        _, body = graph.add_if(graph.condition(1))
        body.add_fill(buffer[:1], 1)
        body.add_fill(buffer[:1], 2)

    assert compared(conditions(build), runs=2) == {(1, 0, 0), (2, 0, 0)}

    def beside(buffer, stream):
        buffer[:1].fill_async(3, stream)

    results = compared(conditions(build, beside), runs=6)
    assert {result[0] for result in results} == {1, 2, 3}


def test_a_copy_between_the_nodes_of_a_body(conditions):
    """The body is not one step: another stream sees its first node done, and not its last."""

    def build(graph, buffer):
        _, body = graph.add_if(graph.condition(1))
        first = body.add_fill(buffer[:1], 1)
        body.add_fill(buffer[1:2], 2, after=[first])

    def beside(buffer, stream):
        buffer[:1].copy_to_async(buffer[2:], stream)
        buffer[1:2].fill_async(9, stream)

    results = compared(conditions(build, beside))
    assert (1, 2, 1) in results
    assert (1, 9, 1) in results
    assert (1, 2, 0) in results


def test_who_sets_a_condition(conditions):
    """Two kernels that nothing orders set the value of an if."""

    def build(graph, buffer):
        condition = graph.condition(0)
        sets = [graph.add_launch(conditions.set, 1, 1, condition, np.uint32(v)) for v in (0, 1)]
        _, body = graph.add_if(condition, after=sets[:1])
        body.add_fill(buffer[:1], 1)

    assert compared(conditions(build)) == {(0, 0, 0), (1, 0, 0)}


def test_a_kernel_beside_a_graph_sets_a_condition(conditions):
    """It comes before the graph, which sets the condition to 0, or before the if, or behind it."""
    made = []

    def build(graph, buffer):
        made[:] = [graph.condition(0)]
        _, body = graph.add_if(made[0])
        body.add_fill(buffer[:1], 1)

    def beside(buffer, stream):
        conditions.set.launch(1, 1, made[0], np.uint32(1), stream=stream)

    assert compared(conditions(build, beside), runs=3) == {(0, 0, 0), (1, 0, 0)}


def test_a_loop_beside_another_stream(conditions):
    def build(graph, buffer):
        condition = graph.condition(1)
        _, body = graph.add_while(condition)
        fill = body.add_fill(buffer[:1], 5)
        body.add_launch(conditions.set, 1, 1, condition, np.uint32(0), after=[fill])

    def beside(buffer, stream):
        buffer[:1].fill_async(6, stream)

    assert compared(conditions(build, beside), runs=2) == {(5, 0, 0), (6, 0, 0)}


def test_two_conditional_nodes(conditions):
    """Their bodies run at the same time."""

    def build(graph, buffer):
        for value in (1, 2):
            _, body = graph.add_if(graph.condition(1))
            first = body.add_fill(buffer[:1], value)
            body.add_fill(buffer[1:2], value, after=[first])

    assert compared(conditions(build)) == {(1, 1, 0), (1, 2, 0), (2, 1, 0), (2, 2, 0)}


def test_a_condition_in_a_body(conditions):
    def build(graph, buffer):
        _, body = graph.add_if(graph.condition(1))
        inner = body.condition(1)
        _, deep = body.add_if(inner)
        deep.add_fill(buffer[:1], 1)
        body.add_launch(conditions.set, 1, 1, inner, np.uint32(0))

    def beside(buffer, stream):
        buffer[:1].fill_async(3, stream)

    assert compared(conditions(build, beside)) == {(1, 0, 0), (3, 0, 0)}


# ---- programmatic dependent launches ----


class Launches:
    def __init__(self, *names, beside=False, waits=False):
        self.beside, self.waits = beside, waits
        self.driver = ctypes.CDLL(cu.driver_info().path)
        self.module = cu.Module(TEXT)
        self.names = names

    def launch(self, stream, *addresses):
        """Launch the kernels, each of which may begin before the one before it has ended.

        `waits` is whether the host waits for the first one before it launches the others.
        """
        for number, name in enumerate(self.names):
            cells = list(map(ctypes.c_uint64, addresses))
            array = (ctypes.c_void_p * 2)(*map(ctypes.addressof, cells))
            attribute = Attribute(6, 0, (1,))
            shape = (4, 1, 1, 64, 1, 1, 0)
            config = Config(shape, stream.handle, ctypes.addressof(attribute), int(number > 0))
            function = ctypes.c_void_p(self.module[name].handle)
            status = self.driver.cuLaunchKernelEx(ctypes.byref(config), function, array, None)
            assert status == 0
            if self.waits and not number:
                stream.synchronize()

    def __call__(self):
        with cu.Device(0), cu.ordering("unchecked"):
            stream = cu.Stream()
            data, result = (cu.zeros(2048, "u4", pooled=False) for _ in range(2))
            self.launch(stream, data.address, result.address)
            if self.beside:
                other = cu.Stream()
                data.fill_async(5, other)
                other.synchronize()
                other.close()
            stream.synchronize()
            found = np.empty(2048, "u4")
            result.copy_to(found)
            for thing in (data, result, stream):
                thing.close()
            return tuple(sorted(set(map(int, found[:256]))))


@pytest.mark.parametrize(
    ("names", "results"),
    [
        (["produce", "consume"], {(0,), (7,)}),
        (["produce", "consume_after_wait"], {(7,)}),
        (["produce_without_trigger", "consume"], {(7,)}),
        (["produce_then_trigger", "consume"], {(7,)}),
        (["produce", "triggers_and_waits", "consume_after_wait"], {(7,)}),
        (["produce", "waits_and_triggers", "consume"], {(7,)}),
        (["produce", "stores_and_waits", "consume_after_wait"], {(9,), (7, 9)}),
        (["produce", "exchanges_and_waits", "consume_after_wait"], {(9,), (7, 9)}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_launch_that_may_begin_early(cuda_device, names, results):
    assert compared(Launches(*names)) == results


@pytest.mark.parametrize(
    ("names", "results"),
    [
        (["produce", "consume"], {0, 7}),
        (["produce", "consume_after_wait"], {7}),
        (["produce_then_trigger", "consume"], {7}),
        (["produce", "waits_and_triggers", "consume"], {7}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_launch_in_a_body_that_may_begin_early(conditions, names, results):
    launches = Launches(*names)

    def build(graph, buffer):
        _, body = graph.add_if(graph.condition(1))
        with cu.Stream() as stream, body.capture(stream):
            launches.launch(stream, buffer.address, buffer.address + 8192)

    found = compared(conditions(build, words=4096))
    assert {result[2048] for result in found} == results


# ---- what else steps share ----

SHARING = """.version 7.8
.target sm_90
.address_size 64
.extern .func (.param .b32 result) vprintf (.param .b64 format, .param .b64 values);
.extern .func (.param .b64 result) malloc (.param .b64 bytes);
.global .align 1 .b8 text[3] = {46, 10, 0};
.visible .entry prints()
{
    .reg .b64 %rd<3>; .reg .b32 %r<2>;
    mov.u64 %rd1, text; cvta.global.u64 %rd1, %rd1; mov.u64 %rd2, 0;
    { .param .b64 a; .param .b64 b; .param .b32 n; st.param.b64 [a], %rd1; st.param.b64 [b], %rd2;
      call.uni (n), vprintf, (a, b); }
    ret;
}
.visible .entry allocates()
{
    .reg .b64 %rd<2>;
    { .param .b64 n; .param .b64 p; st.param.b64 [n], 16; call.uni (p), malloc, (n);
      ld.param.b64 %rd1, [p]; }
    ret;
}
.visible .entry exchanges(.param .u64 at, .param .u32 value)
{
    .reg .b64 %rd1; .reg .b32 %r<3>;
    ld.param.u64 %rd1, [at]; ld.param.u32 %r1, [value];
    atom.global.exch.b32 %r2, [%rd1], %r1;
    ret;
}
"""


@pytest.mark.parametrize("name", ["prints", "allocates", "exchanges"])
def test_kernels_that_share(cuda_device, capfd, name):
    """Two kernels that share the output of printf, the memory of malloc, or a word that both change
    atomically: there are two orders.
    """
    kernel = cu.Module(SHARING)[name]

    def program():
        with cu.ordering("unchecked"):
            streams = [cu.Stream() for _ in range(2)]
            word = cu.zeros(1, "u4", pooled=False)
            for value, stream in enumerate(streams, 1):
                arguments = (word, np.uint32(value)) if name == "exchanges" else ()
                kernel.launch(1, 1, *arguments, stream=stream)
            for stream in streams:
                stream.synchronize()
            found = np.empty(1, "u4")
            word.copy_to(found)
            for thing in (word, *streams):
                thing.close()
            return int(found[0])

    assert len(compared(program, runs=2)) == (2 if name == "exchanges" else 1)


def test_a_kernel_that_fails(cuda_device):
    """Other work comes before it, or does not run at all."""
    seen = []
    function = FUNCTION(lambda _: seen.append(1))
    driver = Calls([]).driver

    def program():
        seen.clear()
        streams = [cu.Stream() for _ in range(2)]
        kernel = cu.Module(SHARING)["exchanges"]
        with cu.ordering("unchecked"):
            kernel.launch(1, 1, ctypes.c_uint64(16), np.uint32(1), stream=streams[0])
            driver.cuLaunchHostFunc(ctypes.c_void_p(streams[1].handle), function, None)
            with pytest.raises(cu.ContextLostError):
                streams[0].synchronize()
        testing.reset_device()
        return tuple(seen)

    assert compared(program, runs=2) == {(), (1,)}


def test_a_part_of_a_kernel_and_an_error(cuda_device):
    """A kernel has stored before it lets the next one begin; or the error comes before all that."""

    def program():
        streams = [cu.Stream() for _ in range(2)]
        data = cu.LockedBuffer.zeros(4096, "u4")
        word = ctypes.c_uint32.from_address(data.address)
        fails = cu.Module(SHARING)["exchanges"]
        with cu.ordering("unchecked"):
            fails.launch(1, 1, ctypes.c_uint64(16), np.uint32(1), stream=streams[0])
            launches = Launches("produce_then_trigger", "consume_after_wait")
            launches.launch(streams[1], data.address, data.address + 8192)
            with pytest.raises(cu.ContextLostError):
                streams[0].synchronize()
        found = word.value
        testing.reset_device()
        return found

    every = run_all(program, everything=True, most=MOST_ORDERS)
    found = run_all(program)
    assert found.results == every.results == {0, 7}
    assert found.orders == every.orders


def test_the_programs_own_memory_may_be_elsewhere_in_each_run(cuda_device):
    places = []

    def work(driver):
        found = (ctypes.c_ubyte * BYTES)()
        places.append(found)  # so the next run has another one
        driver._call("cuMemcpyDtoH_v2", found, driver.buffers[0], BYTES)
        for stream in range(2):
            driver.fill(stream, 1, stream)

    assert compared(Driver(work, buffers=2), runs=2) == {(0, 0), (0, 1)}
    assert len(set(map(ctypes.addressof, places))) == len(places)


@pytest.fixture
def nothing():
    return FUNCTION(lambda _: None)


def test_what_the_host_knows_orders_its_steps(cuda_device):
    """The event's answer is known, because the host has waited for its stream.

    The stream may be idle then, so the wait itself does not name the record.
    """

    def work(driver):
        event = driver._make("cuEventCreate", 2)
        driver.fill(0, 0, 1)
        driver._call("cuEventRecord", event, driver.streams[0])
        driver.fill(1, 1, 1)
        first = driver._do("ask", 1)
        driver._call("cuStreamSynchronize", driver.streams[0])
        second = driver._call("cuEventQuery", event)
        driver._call("cuEventDestroy_v2", event)
        return first, second

    assert {result[:2] for result in compared(Driver(work))} == {(False, True), (True, True)}
    assert not run_all(Driver(work)).redundant


def test_work_is_behind_what_the_host_did_before(cuda_device, nothing):
    """The function cannot run before the host has waited, because it is queued later."""

    def work(driver):
        for stream in range(2):
            driver.fill(stream, stream, 1)
        driver._call("cuStreamSynchronize", driver.streams[0])
        driver._call("cuLaunchHostFunc", driver.streams[0], nothing, None)
        driver._call("cuStreamSynchronize", driver.streams[0])

    compared(Driver(work, buffers=2), runs=1)


def test_a_kernel_that_could_begin_early(cuda_device):
    """The one before it has ended. What it stores before it waits belongs to its only step."""
    launches = Launches(
        "produce", "stores_and_waits", "consume_after_wait", beside=True, waits=True
    )
    assert compared(launches) == {(5,), (9,)}


def test_a_kernel_that_lets_the_next_begin_is_two_steps(cuda_device):
    """Work of another stream comes before both, between them, or behind them."""
    launches = Launches("produce_then_trigger", "consume", beside=True)
    assert compared(launches) == {(5,), (7,)}


def test_the_rest_of_an_early_kernel_uses_nothing_again(cuda_device):
    """Work of another stream comes before its early store, or behind it: two orders."""
    compared(Launches("nothing", "stores_and_waits", beside=True), runs=2)


def test_memory_that_is_freed_between_two_steps(cuda_device):
    """What has used it before and what uses it later conflict: the fills have two orders."""

    def work(driver):
        made = ctypes.c_uint64()
        driver._call("cuMemAlloc_v2", ctypes.byref(made), BYTES)
        for stream in range(2):
            driver._call("cuMemsetD8Async", made, 7, BYTES, driver.streams[stream])
        done = driver._do("ask", 0)
        driver._call("cuMemFree_v2", made)
        return (done,)

    assert compared(Driver(work, buffers=1), runs=4) == {(True, 0), (False, 0)}


def test_nodes_of_a_body_in_order(conditions):
    """Two nodes follow a third one, which writes where they write."""

    def build(graph, buffer):
        _, body = graph.add_if(graph.condition(1))
        first = body.add_fill(buffer[:2], 1)
        for at in range(2):
            body.add_fill(buffer[at : at + 1], 2, after=[first])

    assert compared(conditions(build), runs=1) == {(2, 2, 0)}


def test_an_event_of_the_run_before(cuda_device):
    """Its record is no step of this run."""
    events = [Calls([])._make("cuEventCreate", 2) for _ in range(2)]
    runs = itertools.count()

    def work(driver):
        number = next(runs)
        before, event = events[number % 2], events[1 - number % 2]
        driver._call("cuEventSynchronize", before)
        driver._call("cuStreamWaitEvent", driver.streams[0], before, 0)
        for stream in range(2):
            driver.fill(stream, 0, stream + 1)
        driver._call("cuEventRecord", event, driver.streams[1])

    assert compared(Driver(work, buffers=1), runs=2) == {(1,), (2,)}
    for event in events:
        Calls([])._call("cuEventDestroy_v2", event)


def test_answers_between_steps(cuda_device):
    """Two early answers in one state of the device are enough, but a step makes another state."""

    def work(driver):
        for value in range(3):
            driver.fill(0, 0, value)
        return tuple(driver._do("ask", 0) for _ in range(3))

    found = run_all(Driver(work, buffers=1))
    assert {result[:3] for result in found.results} == {
        (False, False, False),
        (False, False, True),
        (False, True, True),
        (True, True, True),
    }


def with_attributes(driver, order, *pairs, stream=0):
    copies = [(driver.buffers[to].value, driver.buffers[of].value, BYTES) for to, of in pairs]
    arguments = batch(copies, CopyAttributes(order=order))
    numbers = (ctypes.c_size_t(a) if isinstance(a, int) else a for a in arguments)
    driver._call("cuMemcpyBatchAsync_v2", *numbers, driver.streams[stream])


def test_a_copy_that_reads_at_any_time(cuda_device):
    """It may read its source before the work that the stream does before the copy."""

    def work(driver):
        driver.fill(0, 0, 7)
        driver.fill(0, 1, 8)
        with_attributes(driver, ANY_ORDER, (1, 0))

    assert compared(Driver(work, buffers=2), runs=2) == {(7, 0), (7, 7)}


def test_a_batch_that_reads_at_any_time(cuda_device):
    """Its copies have two steps each, and another stream writes what they read."""

    def work(driver):
        with_attributes(driver, ANY_ORDER, (1, 0), (2, 1))
        driver.fill(1, 0, 7)

    results = compared(Driver(work, buffers=3))
    assert {result[1:] for result in results} == {(0, 0), (0, 10), (7, 7), (7, 10)}


def test_work_behind_a_copy_that_reads_at_any_time(cuda_device):
    def work(driver):
        with_attributes(driver, ANY_ORDER, (1, 0))
        driver.fill(0, 0, 7)

    assert compared(Driver(work, buffers=2), runs=1) == {(7, 0)}
