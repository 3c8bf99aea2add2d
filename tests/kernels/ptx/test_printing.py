"""vprintf in kernels, as compilers declare it."""

import pytest

pytestmark = pytest.mark.parametrize("cuda_schedule", ["eager"], indirect=True)

TEXT = """.version 8.0
.target sm_75
.address_size 64
{declared}
.visible .global .align 1 .b8 format[13] =
    {{37, 100, 32, 105, 115, 32, 37, 53, 46, 50, 102, 10, 0}};
.visible .entry k()
{{
    .reg .b32 %r<3>; .reg .b64 %rd<4>; .reg .f64 %fd<2>;
    .local .align 8 .b8 values[16];
    mov.u32 %r1, %tid.x; cvt.rn.f64.u32 %fd1, %r1; mul.f64 %fd1, %fd1, 0d3FF4000000000000;
    st.local.u32 [values], %r1; st.local.f64 [values+8], %fd1;
    mov.u64 %rd1, values; cvta.local.u64 %rd1, %rd1;
    mov.u64 %rd2, format; cvta.global.u64 %rd2, %rd2;
    {call}
    ret;
}}
"""
PASSED = "{ .param .b64 p; .param .b64 q; st.param.b64 [p], %rd2; st.param.b64 [q], %rd1;"
WITHOUT = ".extern .func vprintf (.param .b64 format_of, .param .b64 values_of)"
WITH = f".extern .func (.param .b32 count) {WITHOUT.removeprefix('.extern .func ')}"
CHECKED = "setp.ne.s32 %p1, {}, 2; @%p1 trap;"
WAYS = {
    "without a result": (WITHOUT + ";", f"{PASSED} call vprintf, (p, q); }}"),
    "without a result or a semicolon": (WITHOUT, f"{PASSED} call.uni vprintf, (p, q); }}"),
    "with a result": (
        WITH + ";",
        f"{PASSED} .param .b32 n; .reg .pred %p<2>; call.uni (n), vprintf, (p, q);"
        f"ld.param.b32 %r2, [n]; {CHECKED.format('%r2')} }}",
    ),
    "in registers": (
        WITH + ";",
        f"{{ .reg .pred %p<2>; call (%r2), vprintf, (%rd2, %rd1); {CHECKED.format('%r2')} }}",
    ),
    "in registers without a result": (WITHOUT + ";", "call vprintf, (%rd2, %rd1);"),
    "under a guard": (
        WITHOUT + ";",
        "{ .reg .pred %p<2>; setp.lt.u32 %p1, %r1, 3; @%p1 call vprintf, (%rd2, %rd1); }",
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_text_is_printed(script, way):
    declared, call = WAYS[way]
    text, threads = TEXT.format(declared=declared, call=call), 5 if way == "under a guard" else 3
    done = script.run(f"""
    import cudadrv as cu
    with cu.Stream() as stream:
        cu.Module({text!r})["k"].launch(1, {threads}, stream=stream)
        stream.synchronize()
    """)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["0 is  0.00", "1 is  1.25", "2 is  2.50"]


def test_text_is_printed_after_a_long_wait(script):
    """The text is printed before `synchronize` returns, and not only at the end of the program."""
    declared, call = WAYS["with a result"]
    slow = (
        "mov.u32 %r2, 0; slow: nanosleep.u32 500000; add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 40;"
    )
    call = "{ .reg .pred %p<2>; " + slow + " @%p1 bra slow; }" + call
    text = TEXT.format(declared=declared, call=call)
    done = script.run(f"""
    import os
    import cudadrv as cu
    with cu.Stream() as stream:
        cu.Module({text!r})["k"].launch(1, 3, stream=stream)
        stream.synchronize()
        os._exit(0)
    """)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["0 is  0.00", "1 is  1.25", "2 is  2.50"]
