"""Programmatic dependent launches: a kernel that begins before the one before it has ended.

Under the schedules lazy and random it does begin early, and what it does before
griddepcontrol.wait comes before the other kernel's remaining stores.
"""

import ctypes

import pytest

from .graphs import captured

pytestmark = pytest.mark.cuda_software

BLOCKS, THREADS = 4, 64
WORDS = BLOCKS * THREADS
TRIGGER, WAIT = "griddepcontrol.launch_dependents;", "griddepcontrol.wait;"
LOAD, STORE = "ld.global.u32 %r4, [%rd4];", "st.global.u32 [%rd4], 7;"
# What the kernels do: %rd4 is the address of the thread's word in `data`, %rd5 in `result`.
BODIES = {
    "produce": f"{TRIGGER} {STORE}",
    "produce_without_trigger": STORE,
    "nothing": "",
    "triggers_and_waits": f"{TRIGGER} {WAIT}",
    "waits_and_triggers": f"{WAIT} {TRIGGER}",
    "stores_and_waits": f"st.global.u32 [%rd4], 9; {WAIT}",
    "exchanges_and_waits": f"atom.global.exch.b32 %r4, [%rd4], 9; {WAIT}",
    "produce_then_trigger": f"{STORE} bar.sync 0; {TRIGGER}",
    "produce_in_a_late_block": f"setp.eq.u32 %p1, %r2, 3; @!%p1 {TRIGGER} {STORE}",
    "produce_in_a_chain": f"""{WAIT} {TRIGGER} {LOAD} add.u32 %r4, %r4, 1;
        st.global.u32 [%rd4], %r4;""",
    "produce_after_flags": f"""{TRIGGER} setp.eq.u32 %p1, %r2, 0; @%p1 bra last;
        mov.u32 %r6, 1; st.volatile.global.u32 [%rd6], %r6; {STORE} bra done;
        last: ld.volatile.global.u32 %r6, [%rd6]; setp.eq.u32 %p1, %r6, 0; @%p1 bra last;
        {STORE}""",
    "consume": f"{LOAD} st.global.u32 [%rd5], %r4;",
    "consume_in_a_loop": """again: ld.volatile.global.u32 %r4, [%rd4];
        setp.eq.u32 %p1, %r4, 0; @%p1 bra again; st.global.u32 [%rd5], %r4;""",
    "consume_after_wait": f"{WAIT} {LOAD} st.global.u32 [%rd5], %r4;",
    "consume_after_a_barrier": f"""setp.ne.u32 %p1, %r3, 0; @!%p1 {WAIT} bar.sync 0;
        {LOAD} st.global.u32 [%rd5], %r4;""",
    "consume_early_and_late": f"""ld.global.u32 %r6, [%rd5+1024]; {WAIT} {LOAD}
        add.u32 %r4, %r4, %r6; st.global.u32 [%rd5], %r4;""",
    "consume_in_half_of_the_warps": f"""setp.lt.u32 %p1, %r3, 32; @%p1 {WAIT}
        {LOAD} st.global.u32 [%rd5], %r4;""",
}
TEXT = ".version 7.8\n.target sm_90\n.address_size 64\n" + "".join(
    f""".visible .entry {name}(.param .u64 data, .param .u64 result)
{{
    .reg .pred %p<2>; .reg .b32 %r<8>; .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [data]; ld.param.u64 %rd2, [result];
    mov.u32 %r2, %ctaid.x; mov.u32 %r3, %tid.x; mad.lo.u32 %r1, %r2, {THREADS}, %r3;
    mul.wide.u32 %rd3, %r1, 4; add.u64 %rd4, %rd1, %rd3; add.u64 %rd5, %rd2, %rd3;
    add.u64 %rd6, %rd1, 4096;
    {body}
    done: ret;
}}
"""
    for name, body in BODIES.items()
)


class Attribute(ctypes.Structure):
    """A CUlaunchAttribute: PROGRAMMATIC_STREAM_SERIALIZATION."""

    _fields_ = [("id", ctypes.c_int), ("padding", ctypes.c_int), ("value", ctypes.c_uint * 16)]


class Config(ctypes.Structure):
    _fields_ = [
        ("shape", ctypes.c_uint * 7),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("count", ctypes.c_uint),
    ]


class Launches:
    def __init__(self, program):
        self.program = program
        self.module = program.module(TEXT.encode())
        self.functions = {name: program.function(self.module, name) for name in BODIES}
        self.stream = program.stream()
        self.data, self.result = program.device(8192), program.device(8192)
        self.clear()

    def clear(self):
        for address in (self.data, self.result):
            self.program.ok("cuMemsetD8_v2", address, 0, 8192)
        self.program.ok("cuCtxSynchronize")

    def __call__(self, name, early=False, stream=None, grid=BLOCKS):
        cells = [ctypes.c_uint64(self.data), ctypes.c_uint64(self.result)]
        array = (ctypes.c_void_p * 2)(*map(ctypes.addressof, cells))
        attribute = Attribute(6, 0, (1,))
        shape = (grid, 1, 1, THREADS, 1, 1, 0)
        where = stream or self.stream
        config = Config(shape, where, ctypes.addressof(attribute), int(early))
        function = self.functions[name]
        self.program.ok("cuLaunchKernelEx", ctypes.byref(config), function, array, None)

    def results(self):
        """The words of `result`, as a set."""
        content = self.program.read(self.result, 4 * WORDS)
        return {content[i] for i in range(0, 4 * WORDS, 4)}

    def races(self):
        self.program.ok("cuCtxSynchronize")
        return self.program.lib.races()


@pytest.fixture
def launches(program):
    return Launches(program)


def by_stream(launches, *names):
    for i, name in enumerate(names):
        launches(name, early=i > 0)


def by_graph(launches, *names):
    with captured(launches.program, launches.stream) as graph:
        by_stream(launches, *names)
    launches.program.ok("cuGraphLaunch", graph.exec(), launches.stream)


def found(launches, run, *names):
    """The values that the last kernel can read, found by many runs."""
    values = set()
    for _ in range(50):
        launches.clear()
        run(launches, *names)
        values |= launches.results()
    return values


WAYS = pytest.mark.parametrize("run", [by_stream, by_graph])


@WAYS
def test_without_a_wait(launches, schedule, run):
    """Under eager, kernels do not overlap. Under random, the first may be over at the launch."""
    values = found(launches, run, "produce", "consume")
    may_be_over = schedule == "random" and run == by_stream
    assert values == ({7} if schedule == "eager" else {0, 7} if may_be_over else {0})
    (race,) = launches.races()
    assert "of kernel 'consume' before griddepcontrol.wait" in race
    assert "of kernel 'produce'" in race


@WAYS
def test_with_a_wait(launches, run):
    run(launches, "produce", "consume_after_wait")
    assert launches.results() == {7}
    assert launches.races() == []


@WAYS
@pytest.mark.parametrize("first", ["produce_without_trigger", "produce_then_trigger"])
def test_stores_before_the_trigger(launches, run, first):
    """The kernel begins late, but only a wait makes the stores visible."""
    run(launches, first, "consume")
    assert launches.results() == {7}
    assert len(launches.races()) == 1


def test_every_block_has_to_trigger(launches):
    """A block that has ended counts as if it had triggered."""
    by_stream(launches, "produce_in_a_late_block", "consume")
    results = launches.results()
    assert 7 in results  # the value of the block that does not trigger
    assert len(launches.races()) == 1


def test_without_the_attribute(launches):
    launches("produce")
    launches("consume")
    assert launches.results() == {7}
    assert launches.races() == []


def test_a_wait_without_the_attribute(launches):
    launches("produce")
    launches("consume_after_wait")
    launches("consume_after_wait", early=True, stream=launches.program.stream(0))
    assert launches.results() == {7}


def test_a_wait_and_a_barrier(launches):
    """The loads behind the barrier come after the wait of the first thread."""
    by_stream(launches, "produce", "consume_after_a_barrier")
    assert launches.results() == {7}
    assert launches.races() == []


def test_other_memory_before_the_wait(launches):
    by_stream(launches, "produce", "consume_early_and_late")
    assert launches.results() == {7}
    assert launches.races() == []


def test_a_wait_in_half_of_the_warps(launches, schedule):
    values = found(launches, by_stream, "produce", "consume_in_half_of_the_warps")
    assert values == ({7} if schedule == "eager" else {0, 7})
    assert len(launches.races()) == 1


def test_a_chain(launches):
    """Each kernel waits for the one before it, and lets the next one begin."""
    by_stream(launches, "produce", *["produce_in_a_chain"] * 3, "consume_after_wait")
    assert launches.results() == {10}
    assert launches.races() == []


@pytest.mark.parametrize("second", ["nothing", "triggers_and_waits"])
def test_a_third_kernel_begins_early(launches, schedule, second):
    """The second kernel lets the third one begin before it has itself waited for the first one."""
    by_graph(launches, "produce", second, "consume")
    assert launches.results() == ({7} if schedule == "eager" else {0})
    (race,) = launches.races()
    assert "of kernel 'consume' before griddepcontrol.wait" in race


def test_a_third_kernel_behind_a_wait(launches):
    """The second kernel waits for the first one before it lets the third one begin."""
    by_graph(launches, "produce", "waits_and_triggers", "consume")
    assert launches.results() == {7}
    assert launches.races() == []


def test_a_third_kernel_waits_for_both(launches):
    by_stream(launches, "produce", "consume")
    launches("consume")
    assert launches.results() == {7}
    assert len(launches.races()) == 1


@WAYS
def test_the_host_waits_for_both(launches, run):
    for _ in range(50):
        launches.clear()
        run(launches, "produce", "consume")
        content = launches.program.read(launches.data, 4 * WORDS)
        assert set(content[::4]) == {7}


def test_something_between(launches):
    launches("produce")
    launches.program.record(launches.stream)
    launches("consume", early=True)
    assert launches.results() == {7}
    assert launches.races() == []


def test_blocks_that_wait_for_each_other(launches):
    """A block that has triggered goes on if others wait for it."""
    by_stream(launches, "produce_after_flags", "consume_after_wait")
    assert launches.results() == {7}


def test_a_kernel_that_waits_for_a_value(launches):
    """Without griddepcontrol.wait; the value comes after the other kernel has triggered."""
    by_stream(launches, "produce", "consume_in_a_loop")
    assert launches.results() == {7}


def test_more_blocks_than_are_resident(launches):
    blocks = 5000  # a GPU with 132 processors has 4224 blocks at a time
    launches.data, launches.result = (launches.program.device(8 * blocks * THREADS) for _ in "12")
    launches("produce", grid=blocks)
    launches("consume_after_wait", early=True, grid=blocks)
    assert launches.results() == {7}
    assert launches.races() == []
