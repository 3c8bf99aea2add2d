"""`early=True`: launches that may begin before the kernel before them has ended."""

from pathlib import Path

import pytest

import cudadrv as cu
from cudadrv._ptx import Text

HEAD = ".version 7.8\n.target sm_90\n.address_size 64\n"
WAIT = "griddepcontrol.wait;"


def text_of(body, name="k"):
    return f"""
.visible .entry {name}(.param .u64 at)
{{
    .reg .pred %p;
    .reg .b32 %r<4>;
    .reg .b64 %a;
    .shared .align 4 .b32 room[32];
    {body}
}}
"""


def early_access(body):
    return Text(HEAD + text_of(body)).early_access("k")


LOAD = "ld.param.u64 %a, [at];"
ACCESS = "ld.global.u32 %r1, [%a];"


@pytest.mark.parametrize(
    "body",
    [
        f"{WAIT} {LOAD} {ACCESS} ret;",
        f"{LOAD} cvta.to.global.u64 %a, %a; mov.u32 %r1, %tid.x; {WAIT} {ACCESS} ret;",
        f"st.shared.u32 [room], 0; bar.sync 0; {WAIT} {ACCESS} ret;",
        f"ld.volatile.shared::cta.u32 %r1, [room]; {WAIT} {ACCESS} ret;",
        "st.shared.v2.u32 [room], {%r1, %r2}; " + f"{WAIT} {ACCESS} ret;",
        f"{{ .reg .b32 %r1; mov.u32 %r1, 0; }} {WAIT} {ACCESS} ret;",
        f"griddepcontrol.launch_dependents; {WAIT} {ACCESS} ret;",
        f"@%p bra END; {WAIT} {ACCESS} END: ret;",
        f"@!%p exit; {WAIT} {ACCESS} ret;",
        f"bra.uni LATER; EARLIER: {ACCESS} ret; LATER: {WAIT} bra.uni EARLIER;",
        f"AGAIN: add.u32 %r1, %r1, 1; @%p bra AGAIN; {WAIT} {ACCESS} ret;",
        f"@%p bra OTHER; {WAIT} bra.uni BOTH; OTHER: {WAIT} BOTH: {ACCESS} ret;",
        f"\n.loc 1 2 3\nSTART:\n.loc 1 3 3\n{WAIT} {ACCESS} ret;",
        "ret;",
    ],
)
def test_each_path_waits(body):
    assert early_access(body) is None


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (f"{ACCESS} ret;", "ld.global.u32 %r1, [%a]"),
        (f"{ACCESS} {WAIT} ret;", "ld.global.u32 %r1, [%a]"),
        (f"ld.u32   %r1,\n [%a]; {WAIT} ret;", "ld.u32 %r1, [%a]"),
        (f"red.global.add.u32 [%a], 1; {WAIT} ret;", "red.global.add.u32 [%a], 1"),
        (f"@%p {WAIT} {ACCESS} ret;", "ld.global.u32 %r1, [%a]"),
        (f"@%p bra OTHER; {WAIT} OTHER: {ACCESS} ret;", "ld.global.u32 %r1, [%a]"),
        (f"@%p bra OTHER; {WAIT} ret; OTHER: st.global.u32 [%a], 1; ret;", "st.global.u32 [%a], 1"),
        (
            f"cp.async.ca.shared.global [room], [%a], 4; {WAIT} ret;",
            "cp.async.ca.shared.global [room], [%a], 4",
        ),
        (f"call other; {WAIT} ret;", "call other"),
        (
            f"LIST: .branchtargets A, B; brx.idx %r1, LIST; A: {WAIT} ret; B: {WAIT} ret;",
            "brx.idx %r1, LIST",
        ),
        (f"bra NOWHERE; {WAIT} ret;", "bra NOWHERE"),
        (f"bra OUT; {{ OUT: {WAIT} ret; }} {{ OUT: {ACCESS} ret; }}", "ld.global.u32 %r1, [%a]"),
        (f"%what; {WAIT} ret;", "%what"),
    ],
)
def test_a_path_accesses_memory_before_it_waits(body, found):
    assert early_access(body) == found


# first: y[i] = i, and its successor can begin. second: y[i] = 2 * y[i], after the wait. wrong: does
# not wait.
PTX = HEAD + "".join(
    text_of(
        f"""
    mov.u32 %r1, %tid.x;
    ld.param.u64 %a, [at];
    mad.wide.u32 %a, %r1, 4, %a;
    {body}
    st.global.u32 [%a], %r2;
    ret;""",
        name,
    )
    for name, body in {
        "first": "griddepcontrol.launch_dependents; mov.u32 %r2, %r1;",
        "second": f"{WAIT} ld.global.u32 %r2, [%a]; add.u32 %r2, %r2, %r2;",
        "wrong": "ld.global.u32 %r2, [%a];",
    }.items()
)


@pytest.fixture
def module():
    if cu.Device(0).compute_capability < (9, 0):
        pytest.skip("the PTX is for compute capability 9.0")
    return cu.Module(PTX, name="early.ptx")


@pytest.fixture
def numbers():
    return cu.UnifiedBuffer(32, "u4", name="numbers")


def twice(module, numbers, stream, launch):
    for _ in range(3):
        module["first"].launch(1, 32, numbers, stream=stream)
        launch()
        launch()
    stream.synchronize()
    assert numbers.to_numpy().tolist() == [4 * i for i in range(32)]


def test_results_are_those_of_ordinary_launches(module, numbers, stream):
    second = module["second"]
    twice(module, numbers, stream, lambda: second.launch(1, 32, numbers, stream=stream, early=True))
    ready = second.prepare(1, 32, numbers, early=True)
    twice(module, numbers, stream, lambda: ready.launch(stream))


def test_in_a_graph(module, numbers, stream):
    step = cu.Graph()
    with step.capture(stream):
        module["first"].launch(1, 32, numbers, stream=stream)
        module["second"].launch(1, 32, numbers, stream=stream, early=True)
        numbers[:16].fill_async(7, stream)
    step = step.instantiate()
    for _ in range(2):
        step.launch(stream)
    stream.synchronize()
    assert numbers.to_numpy().tolist() == [7] * 16 + [2 * i for i in range(16, 32)]


def test_borrows_are_those_of_an_ordinary_launch(module, numbers, stream, other, gate):
    gate.hold(stream)
    token = module["second"].launch(1, 32, numbers, stream=stream, early=True)
    with pytest.raises(cu.BufferBorrowedError, match="written by launch of second"):
        numbers.fill_async(0, other)
    gate.open()
    token.wait()
    numbers.fill_async(0, other)
    other.synchronize()


@pytest.mark.parametrize("call", ["launch", "prepare"])
def test_a_kernel_that_does_not_wait_is_refused(module, numbers, stream, call):
    options = {"stream": stream} if call == "launch" else {}
    with pytest.raises(ValueError, match="wrong cannot be launched early") as refused:
        getattr(module["wrong"], call)(1, 32, numbers, early=True, **options)
    assert "'ld.global.u32 %r2, [%a]' before griddepcontrol.wait" in str(refused.value)
    module["wrong"].launch(1, 32, numbers, stream=stream)
    stream.synchronize()


def test_code_without_a_text_is_refused(stream):
    binary = (Path(__file__).parent / "kernels.fatbin").read_bytes()
    kernel = cu.Module(binary, name="binary")["saxpy"]
    with pytest.raises(ValueError, match="saxpy cannot be launched early: Module 'binary' has no"):
        kernel.prepare(1, 1, 2.0, cu.LockedBuffer(1, "f4"), cu.LockedBuffer(1, "f4"), 1, early=True)
