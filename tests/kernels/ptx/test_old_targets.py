"""PTX for devices before sm_20, as newer devices run it."""

import numpy as np
import pytest

import cudadrv as cu

pytestmark = pytest.mark.parametrize("cuda_schedule", ["eager"], indirect=True)

KERNEL = """.version 3.0
.target {target}
.address_size 64
.visible .entry k(.param .u64 out, .param .u64 in)
{{
    .reg .pred %p<3>; .reg .u16 %h<3>; .reg .u32 %r<6>; .reg .u64 %rd<6>; .reg .f32 %f<6>;
    .reg .f64 %fd<6>;
    ld.param.u64 %rd1, [out]; ld.param.u64 %rd2, [in];
    ld.global.f32 %f1, [%rd2]; ld.global.f32 %f2, [%rd2+4]; ld.global.f64 %fd1, [%rd2+8];
    {body}
    ret;
}}
"""
TINY = np.array([0x00000007, 0x3F800000], "u4")  # a subnormal number, and 1


def run(body: str, target: str = "sm_10") -> np.ndarray:
    given = cu.DeviceBuffer.from_array(np.concatenate([TINY, np.array([1 / 3]).view("u4")]))
    result = cu.DeviceBuffer.zeros(2, "u4")
    text = KERNEL.format(target=target, body=body)
    with cu.Module(text) as module, cu.Stream() as stream:
        module["k"].launch(1, 1, result, cu.read(given), stream=stream)
        stream.synchronize()
        return result.to_numpy()


STORE = "st.global.f32 [%rd1], %f3;"
FLUSHED = {
    "add.f32 %f3, %f1, %f1;": 0,
    "sub.f32 %f3, %f1, %f2;": 0xBF800000,
    "mul.rz.f32 %f3, %f1, %f2;": 0,
    "mad.f32 %f3, %f1, %f2, %f1;": 0,
    "min.f32 %f3, %f1, %f2;": 0,
    "max.f32 %f3, %f1, 0f80000000;": 0,
    "abs.f32 %f3, %f1;": 0,
    "neg.f32 %f3, %f1;": 0x80000000,
    "cvt.f32.f32 %f3, %f1;": 0,
    "cvt.f64.f32 %fd2, %f1; cvt.rn.f32.f64 %f3, %fd2;": 0,
    "cvt.rpi.s32.f32 %r1, %f1; cvt.rn.f32.s32 %f3, %r1;": 0,
    "mov.f32 %f3, 0f3F800000; setp.gt.f32 %p1, %f1, 0f00000000; @%p1 mov.f32 %f3, %f1;": 0x3F800000,
    "set.gt.f32.f32 %f3, %f1, 0f00000000;": 0,
    "set.gt.u32.f32 %r1, %f1, 0f00000000; mov.b32 %f3, %r1;": 0,
    "slct.f32.f32 %f3, %f2, %f1, 0f80000001;": 0x3F800000,
    "div.approx.f32 %f3, %f1, %f2;": 0,
    "mov.f32 %f3, %f1;": 7,
    "selp.f32 %f3, %f1, %f2, 1;": 7,
}


@pytest.mark.parametrize("target", ["sm_10", "sm_12, map_f64_to_f32"])
@pytest.mark.parametrize("body", [body for body in FLUSHED if "selp" not in body])
def test_subnormal_floats_are_zero(body, target):
    assert run(body + STORE, target)[0] == FLUSHED[body]


@pytest.mark.parametrize("body", [body for body in FLUSHED if body[:3] in ("add", "min", "abs")])
def test_subnormal_floats_exist_since_sm_20(body):
    assert run(body + STORE, "sm_20")[0] in (7, 14)


@pytest.mark.parametrize("target", ["sm_10, map_f64_to_f32", "sm_11", "sm_13"])
def test_double_precision_stays(target):
    """The option map_f64_to_f32 is accepted, but newer devices compute in double precision."""
    body = "add.f64 %fd2, %fd1, %fd1; st.global.f64 [%rd1], %fd2;"
    assert run(body, target).view("f8")[0] == 2 / 3


def test_the_lower_half_of_special_registers():
    body = """cvt.u32.u16 %r1, %ntid.x; mov.u16 %h1, %ctaid.x; cvt.u32.u16 %r2, %h1;
    mad24.lo.u32 %r1, %r2, 100, %r1; st.global.u32 [%rd1], %r1;"""
    assert run(body)[0] == 1


def test_map_f64_to_f32_is_refused_for_newer_targets():
    with pytest.raises(cu.CudaError, match="map_f64_to_f32"):
        run("", "sm_13, map_f64_to_f32")
