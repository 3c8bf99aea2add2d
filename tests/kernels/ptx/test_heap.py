"""malloc and free in kernels."""

import re

import numpy as np
import pytest

import cudadrv as cu

from .running import WORD, run

pytestmark = pytest.mark.parametrize("cuda_schedule", ["eager"], indirect=True)

FUNCTIONS = """.extern .func (.param .b64 result) malloc (.param .b64 bytes);
.extern .func free (.param .b64 address);
"""
HEAP = 8 << 20  # bytes; the default size of the heap


def malloc(register: str, size: object) -> str:
    return f"""{{ .param .b64 n; .param .b64 p; st.param.b64 [n], {size};
    call.uni (p), malloc, (n); ld.param.b64 {register}, [p]; }}"""


def free(register: str) -> str:
    return f"{{ .param .b64 p; st.param.b64 [p], {register}; call.uni free, (p); }}"


def words(body: str, **options) -> list[int]:
    zeros = np.zeros(options.get("threads", 32) * options.get("blocks", 1), "u4")
    return run(body, zeros, zeros, before=FUNCTIONS, **options).tolist()


def fault(body: str, script) -> str:
    """Run a kernel that faults, and return the software driver's text about the fault."""
    text = "".join(
        [
            ".version 8.0\n.target sm_80\n.address_size 64\n",
            FUNCTIONS,
            ".visible .entry k() { .reg .b32 %r<9>; .reg .b64 %rd<9>;\n",
            body,
            "ret; }",
        ]
    )
    done = script.run(f"""
    import cudadrv as cu
    with cu.Stream() as stream:
        cu.Module({text!r})["k"].launch(1, 1, stream=stream)
        try:
            stream.synchronize()
        except cu.ContextLostError as error:
            assert error.status == 700, error
        else:
            raise AssertionError("no fault")
    """)
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_each_thread_has_memory_of_its_own():
    """128 threads of 4 blocks hold memory of different sizes at once, aligned to 16 bytes."""
    body = f"""mov.u32 %r2, %ctaid.x; mad.lo.u32 %r1, %r2, 32, %r1; {WORD}
    add.u32 %r3, %r1, 1; mul.wide.u32 %rd4, %r3, 4; {malloc("%rd5", "%rd4")}
    mov.u32 %r4, 0; mov.u64 %rd6, %rd5;
    write: st.u32 [%rd6], %r1; add.u64 %rd6, %rd6, 4; add.u32 %r4, %r4, 1;
    setp.lt.u32 %p1, %r4, %r3; @%p1 bra write;
    atom.add.u32 %r5, [%rd2], 1;
    wait: ld.volatile.u32 %r5, [%rd2]; setp.lt.u32 %p1, %r5, 128; @%p1 bra wait;
    mov.u32 %r4, 0; mov.u32 %r6, 0; mov.u64 %rd6, %rd5;
    read: ld.u32 %r7, [%rd6]; add.u32 %r6, %r6, %r7; add.u64 %rd6, %rd6, 4;
    add.u32 %r4, %r4, 1; setp.lt.u32 %p1, %r4, %r3; @%p1 bra read;
    and.b64 %rd7, %rd5, 15; cvt.u32.u64 %r7, %rd7; mad.lo.u32 %r6, %r7, 1000000, %r6;
    {free("%rd5")} st.global.u32 [%rd3], %r6;"""
    assert words(body, blocks=4) == [n * (n + 1) for n in range(128)]


def test_an_exhausted_heap_returns_null():
    """A thread allocates until malloc returns null, frees all pieces, and gets the same number."""
    rounds = ""
    for n in range(3):
        rounds += f"""mov.u32 %r2, 0; mov.u64 %rd5, 0; more{n}: {malloc("%rd4", 65536)}
        setp.eq.u64 %p1, %rd4, 0; @%p1 bra full{n}; st.u64 [%rd4], %rd5; mov.u64 %rd5, %rd4;
        add.u32 %r2, %r2, 1; bra more{n};
        full{n}: st.global.u32 [%rd1+{4 * n}], %r2;
        back{n}: setp.eq.u64 %p1, %rd5, 0; @%p1 bra done{n}; ld.u64 %rd6, [%rd5];
        {free("%rd5")} mov.u64 %rd5, %rd6; bra back{n}; done{n}:"""
    zeros = np.zeros(3, "u4")
    first, second, third = run(rounds, zeros, zeros, threads=1, before=FUNCTIONS)
    assert first == second == third
    assert HEAP // 65536 // 2 <= first <= HEAP // 65536


def test_more_than_the_heap_has():
    body = f"""{malloc("%rd4", 1 << 40)}
    cvt.u32.u64 %r2, %rd4; {WORD} st.global.u32 [%rd3], %r2;"""
    assert words(body) == [0] * 32


def test_null_can_be_freed():
    assert words(f"mov.u64 %rd4, 0; {free('%rd4')} {WORD} st.global.u32 [%rd3], 1;") == [1] * 32


KEEPING = """.version 8.0
.target sm_80
.address_size 64
.extern .func (.param .b64 result) malloc (.param .b64 bytes);
.extern .func free (.param .b64 address);
.visible .entry keep(.param .u64 out) {
    .reg .b64 %rd<4>; ld.param.u64 %rd1, [out];
    { .param .b64 n; .param .b64 p; st.param.b64 [n], 64;
    call.uni (p), malloc, (n); ld.param.b64 %rd2, [p]; }
    st.u64 [%rd2+56], 4711; st.global.u64 [%rd1], %rd2; ret; }
.visible .entry use(.param .u64 out) {
    .reg .b64 %rd<4>; ld.param.u64 %rd1, [out]; ld.global.u64 %rd2, [%rd1];
    ld.u64 %rd3, [%rd2+56]; st.global.u64 [%rd1], %rd3;
    { .param .b64 p; st.param.b64 [p], %rd2; call.uni free, (p); } ret; }
"""


def test_memory_lives_until_it_is_freed():
    """Memory of malloc lives until free: another launch can use and free it.

    The driver API does not accept its address.
    """
    with cu.Module(KEEPING) as module, cu.Stream() as stream:
        out = cu.DeviceBuffer.zeros(1, "u8")
        found = np.zeros(1, "u8")
        module["keep"].launch(1, 1, out, stream=stream)
        out.copy_to(found, stream=stream)
        with pytest.raises((cu.CudaError, ValueError)):
            cu.DeviceBuffer.from_address(int(found[0]), 8, "u8").copy_to(found)
        module["use"].launch(1, 1, out, stream=stream)
        out.copy_to(found, stream=stream)
    assert found[0] == 4711


@pytest.mark.cuda_software
@pytest.mark.parametrize(
    "body, found",
    [
        (
            f"{malloc('%rd1', 24)} st.u32 [%rd1+24], 1;",
            "write of 4 bytes at 0x.* the address is 0 bytes beyond the end of the 24 bytes that "
            "malloc returned",
        ),
        (
            f"{malloc('%rd1', 24)} {malloc('%rd2', 24)} ld.u32 %r1, [%rd1+36];",
            "read of 4 bytes at 0x.* the address is 12 bytes beyond the end of the 24 bytes",
        ),
        (
            f"{malloc('%rd1', 24)} {free('%rd1')} ld.u32 %r1, [%rd1+8];",
            "the address is 8 bytes into the 24 bytes that malloc returned and free freed",
        ),
        (
            f"{malloc('%rd1', 24)} ld.u32 %r1, [%rd1]; {free('%rd1')} {malloc('%rd2', 24)} "
            "ld.u32 %r1, [%rd1];",
            "the address is 0 bytes into the 24 bytes that malloc returned and free freed",
        ),
        (
            f"{malloc('%rd1', 24)} {free('%rd1')} {free('%rd1')}",
            "call.uni: free of an address at which no memory of malloc begins, thread .* the "
            "address is 0 bytes into the 24 bytes that malloc returned and free freed",
        ),
        (
            f"{malloc('%rd1', 24)} add.u64 %rd1, %rd1, 16; {free('%rd1')}",
            "free of an address at which .* 16 bytes into the 24 bytes that malloc returned",
        ),
        (
            f"mov.u64 %rd1, 4096; {free('%rd1')}",
            "free of an address at which .* the address is not near any memory",
        ),
        (f"{malloc('%rd1', 0)} ld.u8 %r1, [%rd1];", "0 bytes beyond the end of the 0 bytes"),
    ],
)
def test_wrong_uses_are_found(script, body, found):
    assert re.search(found, fault(body, script))


@pytest.mark.cuda_software
def test_the_size_of_the_heap_is_a_limit(script):
    """The size of the heap can be set until the first kernel that allocates is launched."""
    script.quiet(f"""
    import ctypes
    import numpy as np
    import cudadrv as cu
    driver = ctypes.CDLL(cu.driver_info().path)
    limit, value = 2, ctypes.c_size_t()
    cu.Device(0)
    out, found = cu.DeviceBuffer.zeros(1, "u8"), np.zeros(1, "u8")
    assert driver.cuCtxSetLimit(limit, ctypes.c_size_t(64 << 20)) == 0
    assert driver.cuCtxGetLimit(ctypes.byref(value), limit) == 0
    assert value.value == 64 << 20
    module = cu.Module({KEEPING.replace("64;", f"{HEAP * 3};")!r})
    with cu.Stream() as stream:
        module["keep"].launch(1, 1, out, stream=stream)
        out.copy_to(found, stream=stream)
    assert found[0]
    assert driver.cuCtxSetLimit(limit, ctypes.c_size_t(8 << 20)) == 1
    assert driver.cuCtxGetLimit(ctypes.byref(value), limit) == 0
    assert value.value == 64 << 20
    """)
