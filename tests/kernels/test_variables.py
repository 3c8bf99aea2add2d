"""Variables that kernels use without arguments: which launches must be ordered because of them."""

import re
import threading
import time
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from limits import PATIENCE
from results import PTX, array_of

import cudadrv as cu
from cudadrv._ptx import Text

HEAD = ".version 7.7\n.target sm_75\n.address_size 64\n"
FATBIN = PTX.with_suffix(".fatbin")
WRITES = "st.global.u32 [{}], 1;"
READS = "ld.global.u32 r, [{}];"


def entry(name, body):
    return f".visible .entry {name}() {{ .reg .u32 r; .reg .u64 p; {body} ret; }}\n"


def function(name, body, before=""):
    return f".func {before} {name} () {{ .reg .u32 r; .reg .u64 p; {body} ret; }}\n"


def kernels(text, *names):
    module = cu.Module(HEAD + text)
    return [module, *[module[name] for name in names]]


@pytest.fixture
def refused(stream, other):
    """A function that makes two launches on two streams, and waits for both.

    It returns the text of the second launch's refusal, or None.
    """

    def is_refused(first, second, *args):
        first.launch(1, 1, *args, stream=stream)
        try:
            second.launch(1, 1, *args, stream=other)
        except cu.BufferBorrowedError as error:
            return str(error)
        finally:
            stream.synchronize()
            other.synchronize()
        return None

    return is_refused


# ---- which variables a kernel reaches, by its PTX ----


@pytest.mark.parametrize(
    ("text", "reached"),
    [
        (".global .u32 A, B;" + entry("k", WRITES.format("B")), {"B": True}),
        (".global .u32 A, B;" + entry("k", WRITES.format("A")), {"A": True}),
        (
            ".global .align 8 .v2 .u32 A[2] = {{1, 2}, {3, 4}}, B = {5, 6};"
            + entry("k", READS.format("A+8") + READS.format("B")),
            {"A": False, "B": False},
        ),
        (".global .u32 A<3>;" + entry("k", WRITES.format("A2")), {"A2": True}),
        (".const .f32 C[2];" + entry("k", "ld.const.f32 r, [C];"), {"C": False}),
        (
            ".global .attribute(.managed) .u32 M, N;" + entry("k", WRITES.format("N")),
            {"N": True},
        ),
        (
            ".global .u32 A;"
            + function("real", WRITES.format("A"))
            + ".func other ();\n.alias other, real;\n"
            + entry("k", "call other;"),
            {"A": True},
        ),
        (
            ".global .u32 A;"
            + function("f", WRITES.format("A"), ".attribute(.unified(1, 2))")
            + entry("k", "call f;"),
            {"A": True},
        ),
        (
            ".global .u32 A, B = 1; .visible .global .u64 P[2] = {0, generic(A)};"
            + entry("k", "ld.global.u64 p, [P+8]; st.u32 [p], 1;"),
            {"A": True, "P": False},
        ),
        (
            ".global .u32 A, B;"
            + function("f", WRITES.format("A"))
            + ".visible .global .u64 _ZTV1S[3] = {0, 0, f};"
            + entry("k", "mov.u64 p, _ZTV1S; ld.u64 p, [p+16]; call p, proto; proto: "
                         ".callprototype _ ();"),
            {"A": True},
        ),
        # A kernel may be named like an opcode, so searching the text for opcodes proves nothing.
        (
            ".global .u32 A;" + entry("st", WRITES.format("A")) + entry("k", "st.u32 [p], 1;"),
            {},
        ),
        (
            '.global .u32 A; // .entry x() { "\n.section .debug_info { .b8 1, 2\n .b32 A }'
            + entry("k", "/* st [A] { */ .loc 1 2 3\n"),
            {},
        ),
        (".global .u32 A, B;" + entry("k", ".loc 1 2 3 " + WRITES.format("A")), {"A": True}),
        (entry("k", ".global .u32 I, J[2] = {1, 2}; " + WRITES.format("J")), {"J": True}),
        (".global .u32 A, B;" + entry("k", ".reg .u32 A; mov.u32 A, 1;"), {"A": False}),
        # Declarations of functions without a semicolon.
        (
            ".func f ()\n.extern .func (.param .b32 r) g (.param .b64 a)\n.global .u32 A, B;"
            + entry("k", WRITES.format("A")),
            {"A": True},
        ),
        (
            ".global .u32 A; .func f ()\n.global .u64 P[2] = {0, A};"
            + entry("k", "ld.global.u64 p, [P+8]; st.u32 [p], 1;"),
            {"A": True, "P": False},
        ),
        (
            ".global .u32 A;.func f ()\n"
            + function("f", WRITES.format("A"))
            + entry("k", "call f;"),
            {"A": True},
        ),
        # A register of the module may bring an address to other functions.
        (".reg .u64 r; .global .u32 A, B;" + entry("k", ""), {"A": True, "B": True}),
    ],
    ids=range(19),
)  # fmt: skip
def test_which_variables_a_kernel_reaches(text, reached):
    found = Text(HEAD + text).reached("k")
    assert {name: found[name] for name in found if name not in ("I",)} == reached


READING = [
    "mov.u64 p, A; ld.u32 r, [p];",
    "mov.u64 p, A; cvta.global.u64 p, p; add.s64 p, p, 4; @q ld.global.nc.u32 r, [p];",
    "ld.global.v2.u32 {r, r}, [A];",
    "{ .param .u64 x; .param .u32 y; st.param.u64 [x], A; call (y), vprintf, (x, x); }"
    "{ .param .u64 x; call away, (x); }",
    "mov.u64 p, A; selp.u64 p, p, p2, q; setp.eq.u64 q, p, 0; prefetch.global.L2 [p];",
    "label: ld.volatile.global.u32 r, [A+4];",
    "ld.global.u32 r, A[r2+1]; mov.u64 p, A[r]; ld.u32 r, [p];",
    "mov.u64 p, A; mov.v2.u64 {p2, p3}, {p, p4}; ld.u32 r, [p2];",
    "{ .param .u64 x; st.param.u64 [x], A; call vprintf, (x, x); }",
]
WRITING = [
    "st.global.u32 [A], 1;",
    "st.global.u32 A[r2+1], 1;",
    "mov.u64 p, A[r]; st.u32 [p], 1;",
    "mov.u64 p, A; mov.v2.u64 {p2, p3}, {p, p4}; st.u32 [p2], 1;",
    "label: @!q st.global.u32 [A], 1;",
    "mov.u64 p, A; add.s64 p2, p, 4; st.u32 [p2], 1;",
    "atom.global.add.u32 r, [A], 1;",
    "red.global.add.u32 [A], 1;",
    "mov.u64 p, A; st.global.u64 [p3], p;",
    "mov.u64 p, A; { .param .u64 x; st.param.u64 [x], p; call away, (x); }",
    "{ .param .u64 x; st.param.u64 [x], A; mov.u64 p, x; ld.u64 p, [p]; st.u32 [p], 1; }",
    "mov.u64 p, A; mov.b64 {r, r2}, p; mov.b64 p2, {r, r2}; st.u32 [p2], 1;",
    "mov.u64 p, A; shfl.sync.idx.b32 r|q, p, 0, 31, -1; mov.u64 p2, r; st.u32 [p2], 1;",
    "somethingnew.global [A], r;",
    ".loc 1 2 3 st.global.u32 [A], 1;",
    ".loc 1 2 3, function_name $L, inlined_at 1 2 3 st.global.u32 [A], 1;",
]


@pytest.mark.parametrize("body", READING)
def test_reading_is_told_from_writing(body):
    text = Text(HEAD + ".global .u32 A;" + f".entry k() {{ {body} ret; }}")
    assert text.reached("k") == {"A": False}


@pytest.mark.parametrize("body", WRITING)
def test_whatever_may_write_counts_as_written(body):
    for wrapped in (body, "{ " + body + " }"):
        text = Text(HEAD + ".global .u32 A;" + f".entry k() {{ {wrapped} ret; }}")
        assert text.reached("k") == {"A": True}


def test_an_address_that_is_returned_counts_as_written():
    for result, body in (
        (".reg .u64 out", "mov.u64 out, A;"),
        (".param .b64 out", "mov.u64 p, A; st.param.b64 [out], p;"),
    ):
        text = ".global .u32 A;" + f".func ({result}) f () {{ {body} ret; }}"
        assert Text(HEAD + text + entry("k", "call (p), f;")).reached("k") == {"A": True}


@pytest.mark.parametrize(
    "unknown",
    [".future .u32 X;", ".global .u32 1X;", "}", ".func (;", ".global .u32 A<9999999>;", "entry"],
)
def test_what_is_not_understood_may_touch_everything(unknown):
    text = Text(HEAD + ".global .u32 A;.const .u32 C;" + entry("k", "") + unknown)
    assert text.reached("k").get("A") is True
    assert text.reached("k").get("C") is False
    assert text.reached("no such kernel").get("A") is True


@settings(deadline=None)
@given(st.text(alphabet=' \n.;,{}()[]<>="/*\\@:%$_aAk1', max_size=60), st.data())
def test_no_text_makes_the_reader_fail(noise, data):
    whole = HEAD + ".global .u32 A, B = 1;" + entry("k", WRITES.format("A"))
    at = data.draw(st.integers(0, len(whole)))
    text = Text(whole[:at] + noise + whole[at:])
    for name in [*text.kernels, "k"]:
        text.reached(name)


# ---- two launches that use variables ----

SHARED = ".global .u32 A, B;" + entry("a", WRITES.format("A")) + entry("b", WRITES.format("B"))
SHARED += entry("ra", READS.format("A")) + entry("nothing", "")


@pytest.mark.parametrize("asked", [False, True])
def test_kernels_that_share_a_variable_are_ordered(driver, refused, asked):
    """Kernels that use one variable must be ordered, whether or not `global_` was called for it."""
    module, a, b, reads = kernels(SHARED, "a", "b", "ra")
    if asked:
        module.global_("A"), module.global_("B")
    message = refused(a, a)
    assert "cannot write the variable DeviceBuffer 'A' by launch of a" in message
    assert "is being written by launch of a" in message
    assert refused(a, b) is None
    assert "cannot read the variable DeviceBuffer 'A'" in refused(a, reads)
    assert "is being read by launch of ra" in refused(reads, a)
    assert refused(reads, reads) is None
    assert refused(reads, b) is None


def test_order_is_enough(driver, stream, other):
    module, a = kernels(SHARED, "a")
    other.wait(a.launch(1, 1, stream=stream))
    a.launch(1, 1, stream=other)
    other.synchronize()
    assert array_of(module.global_("A", "u4")).tolist() == [1]


@pytest.mark.parametrize("asked", [False, True])
def test_only_kernels_that_touch_a_variable_use_it(driver, stream, other, asked):
    module, b, nothing = kernels(SHARED, "b", "nothing")
    if asked:
        module.global_("A")
    b.launch(1, 1, stream=stream)
    nothing.launch(1, 1, stream=stream)
    module.global_("A").fill_async(0, other)
    with pytest.raises(cu.BufferBorrowedError, match="is being written by launch of b"):
        module.global_("B").fill_async(0, other)
    stream.synchronize()
    other.synchronize()


def test_the_program_can_say_what_a_kernel_does(driver, stream, other):
    module, a, reads = kernels(SHARED, "a", "ra")
    variable = module.global_("A", "u4")
    a.launch(1, 1, stream=stream)
    a.launch(1, 1, stream=other, borrows=[cu.shared(variable)])  # this launch writes A, too
    if cu.driver_info().is_software:
        from cudadrv import testing

        stream.synchronize()
        other.synchronize()
        testing.forget_races()
    stream.synchronize()
    other.synchronize()
    ready = reads.prepare(1, 1, borrows=[cu.write(variable)])
    ready.launch(stream)
    with pytest.raises(cu.BufferBorrowedError, match=r"borrows\[0\] DeviceBuffer 'A'"):
        ready.launch(other)
    stream.synchronize()
    ready.launch(other).wait()


def test_no_second_set_of_books(driver, stream, other):
    """Names with a zero byte are refused: the driver would find `A`, which has records already."""
    module, a = kernels(SHARED, "a")
    a.launch(1, 1, stream=stream)
    for name in ("A\0", "A\0x", "\0A"):
        with pytest.raises(cu.CudaNotFoundError, match="has no variable"):
            module.global_(name)
    stream.synchronize()


def test_variables_nobody_asked_for_are_no_live_buffers(driver):
    module, _ = kernels(SHARED, "a")
    before = len(cu.live_buffers())
    first, second = module.global_("A"), module.global_("A", "u4")
    added = [buffer for buffer in cu.live_buffers() if "'A'" in buffer.label]
    assert len(cu.live_buffers()) == before + 1
    assert [buffer.site.split(":")[0].endswith("test_variables.py") for buffer in added] == [True]
    del first, second


def test_closing_names_the_module(driver, stream):
    module, a = kernels(SHARED, "a")
    a.launch(1, 1, stream=stream)
    with pytest.raises(cu.BufferBorrowedError, match=r"cannot close Module 'PTX'"):
        module.close()
    stream.synchronize()
    module.close()


@pytest.mark.cuda_software
def test_a_variable_that_the_driver_does_not_know(driver):
    """The driver may not know a variable, for example if its compiler has removed it.

    Looking up a kernel that uses it succeeds then. Other errors of the driver are raised.
    """
    from cudadrv import testing

    module = cu.Module(HEAD + SHARED)
    testing.fail("cuModuleGetGlobal_v2", 500)
    a = module["a"]
    testing.fail("cuModuleGetGlobal_v2", 2)
    with pytest.raises(cu.CudaOutOfMemoryError):
        module["b"]
    module["b"]
    module.close()
    del a


# ---- images that are no PTX ----


@pytest.mark.parametrize("asked", ["before", "after"])
def test_launches_of_a_fatbin_exclude_only_uses_of_buffers(driver, stream, other, asked):
    """Launches from a fatbin conflict with uses of a variable's buffer, and not with each other.

    Nobody knows which kernel uses which variable. The answers do not depend on when the buffer was
    made.
    """
    module = cu.Module.from_file(FATBIN)
    nothing = np.zeros(4, "u4")
    if asked == "before":
        module.global_("counter")
    module["count"].launch(1, 1, np.uint32(1), stream=stream)
    module["nothing"].launch(1, 1, stream=other)
    counter = module.global_("counter", "u4")
    assert [borrow.mode for borrow in counter.borrows] == ["use", "use"]
    with pytest.raises(cu.BufferBorrowedError, match="it may be in use by launch of"):
        counter.copy_to(nothing, stream=stream)
    other.synchronize()
    counter.copy_to(nothing, stream=stream)
    counter.fill_async(0, stream)
    with pytest.raises(cu.BufferBorrowedError) as caught:
        module["count"].launch(1, 1, np.uint32(1), stream=other)
    assert "cannot use the variable DeviceBuffer 'counter' by launch of count" in str(caught.value)
    assert "use by" in counter.explain() or "write by" in counter.explain()
    stream.synchronize()
    counter.fill_async(0, stream)
    module["count"].launch(1, 1, np.uint32(1), stream=other, borrows=[cu.shared(counter)])
    stream.synchronize()
    other.synchronize()
    if cu.driver_info().is_software:
        from cudadrv import testing

        testing.forget_races()


@pytest.mark.cuda_software
@pytest.mark.parametrize("image", [PTX, FATBIN])
def test_asking_does_not_wait_for_launches_that_wait(driver, stream, other, gate, image):
    """`global_` does not wait for launches that block.

    One launch blocks in the driver, and another one waits for its lock.
    """
    from cudadrv import testing

    module = cu.Module.from_file(image)
    count = module["count"]
    begun = threading.Barrier(3)

    def launch():
        begun.wait()
        count.launch(1, 1, np.uint32(1), stream=stream)

    gate.hold(stream)
    threads = [threading.Thread(target=launch) for _ in range(2)]
    for thread in threads:
        thread.start()
    begun.wait()
    counter = module.global_("counter", "u4")
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    with pytest.raises(cu.BufferBorrowedError):
        counter.fill_async(0, other)
    gate.open()
    stream.synchronize()
    assert testing.pending() == 0


@pytest.mark.parametrize("image", [PTX, FATBIN])
def test_asking_while_others_launch(driver, image):
    """Each launch counts as a use of a variable, also those before `global_` is called for it."""
    for _ in range(20):
        module, streams = cu.Module.from_file(image), [cu.Stream() for _ in range(3)]
        end = time.monotonic() + 0.02

        def launch(stream, module=module, end=end):
            while time.monotonic() < end:
                with suppress(cu.BufferBorrowedError):
                    module["count"].launch(1, 1, np.uint32(1), stream=stream)
                    stream.synchronize()

        threads = [threading.Thread(target=launch, args=[each]) for each in streams[1:]]
        for thread in threads:
            thread.start()
        counter = module.global_("counter", "u4")
        while time.monotonic() < end:
            with suppress(cu.BufferBorrowedError):
                counter.fill_async(0, streams[0])
                streams[0].synchronize()
        for thread in threads:
            thread.join()


# ---- programs from a grammar ----

NAMES = st.sampled_from(["v0", "v1", "v2", "v3"])
WAYS = {
    "read": "ld.global.u32 r, [{}];",
    "write": "st.global.u32 [{}], 1;",
    "read through a pointer": "mov.u64 p, {}; cvta.global.u64 p, p; ld.u32 r, [p];",
    "write through a pointer": "mov.u64 p, {}; add.s64 p, p, 4; st.global.u32 [p], 1;",
    "read in a block": "{{ .reg .u64 q; mov.u64 q, {}; ld.global.u32 r, [q+4]; }}",
    "write under a condition": "setp.eq.u32 c, r, r; label: @c st.global.u32 [{}+4], 1;",
}
PASSED = {
    "read behind a call": "reader",
    "write behind a call": "writer",
}
USES = st.tuples(st.sampled_from([*WAYS, *PASSED]), NAMES)
FUNCTIONS = ["f0", "f1", "f2"]
CALLS = st.tuples(st.sampled_from(["call", "alias", "pointer"]), st.sampled_from(FUNCTIONS))
BODIES = st.lists(USES | CALLS, max_size=2)
HELPERS = """
.func reader (.param .u64 x) { .reg .u64 p; .reg .u32 r; ld.param.u64 p, [x];
  ld.global.u32 r, [p]; ret; }
.func writer (.param .u64 x) { .reg .u64 p; ld.param.u64 p, [x]; st.global.u32 [p], 1; ret; }
"""


def written_out(body, function):
    """The PTX of a body. As compilers do, it uses a new register for each address."""
    lines = []
    for at, (way, target) in enumerate(body):
        if way in WAYS:
            line = WAYS[way].format(target).replace("label", f"l{at}")
            lines.append(re.sub(r"\bp\b", f"p{at}", line))
        elif way in PASSED:
            passed = f"st.param.u64 [x], {target}; call {PASSED[way]}, (x);"
            lines.append(f"{{ .param .u64 x; {passed} }}")
        elif function is not None and FUNCTIONS.index(target) <= FUNCTIONS.index(function):
            continue  # skips calls that would be recursive
        elif way == "pointer":
            lines.append(f"mov.u64 p{at}, {target}; call p{at}, pr{at};")
            lines.append(f"pr{at}: .callprototype _ ();")
        else:
            lines.append(f"call {'a' if way == 'alias' else ''}{target};")
    registers = ".reg .u32 r; .reg .u64 p<2>; .reg .pred c; mov.u32 r, 0;"
    return " ".join([registers, *lines, "ret;"])


DECLARATIONS = st.sampled_from(
    [
        ".global .u32 v0[2], v1[2], v2[2], v3[2];",
        ".visible .global .u32 v0[2] = {1, 2}, v1[2];\n.global .align 8 .u32 v2[2], v3[2] = {3};",
        ".global .attribute(.managed) .u32 v0[2], v1[2];.global .v2 .u32 v2, v3 = {1, 2};",
    ]
)


@st.composite
def modules(draw):
    """The PTX of kernels k0 and k1, and the bodies of kernels and functions by name."""
    bodies = {name: draw(BODIES) for name in [*FUNCTIONS, "k0", "k1"]}
    parts = [draw(DECLARATIONS), HELPERS]
    parts += [f".func {name} ();\n.func a{name} ();" for name in FUNCTIONS]
    attribute = draw(st.sampled_from(["", ".attribute(.unified(1, 2)) "]))
    for name in FUNCTIONS:
        parts.append(f".func {attribute}{name} () {{ {written_out(bodies[name], name)} }}")
        parts.append(f".alias a{name}, {name};")
    parts += [f".entry {k} () {{ {written_out(bodies[k], None)} }}" for k in ("k0", "k1")]
    return HEAD + "\n".join(parts), bodies


def uses(bodies, name, found=None):
    """The variables that a kernel uses, and whether its PTX shows all uses.

    The variables are a dict. Its values say whether the kernel writes the variable.
    """
    found = {} if found is None else found
    plain = True
    for way, target in bodies[name]:
        if way in WAYS or way in PASSED:
            found[target] = found.get(target, False) or "write" in way
            plain &= way in WAYS or "write" in way
        elif name not in FUNCTIONS or FUNCTIONS.index(target) > FUNCTIONS.index(name):
            plain &= way != "pointer"
            plain &= uses(bodies, target, found)[1]
    return found, plain


@pytest.mark.cuda_software
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(modules())
def test_programs_from_a_grammar(driver, stream, other, program):
    """Accepted launches do not race.

    Launches whose PTX shows that they do not conflict are accepted.
    """
    from cudadrv import testing

    text, bodies = program
    module = cu.Module(text)
    (first, plain), (second, plain_too) = uses(bodies, "k0"), uses(bodies, "k1")
    conflict = any(first[name] or second[name] for name in first.keys() & second.keys())
    module["k0"].launch(1, 1, stream=stream)
    try:
        module["k1"].launch(1, 1, stream=other)
        refused = False
    except cu.BufferBorrowedError:
        refused = True
    stream.synchronize()
    other.synchronize()
    assert testing.races() == []
    assert refused >= conflict
    if plain and plain_too:
        assert refused == conflict
    module.close()
