"""Functions that kernels call, with parameters and results in registers."""

from results import array_of

import cudadrv as cu

TEXT = """
.version 7.0
.target sm_75
.address_size 64
.func (.reg .s32 result) mixed(.reg .u32 x, .param .u32 y, .reg .s32 z)
{
    .reg .pred p;
    .reg .u32 other;
    ld.param.u32 other, [y];
    setp.gt.u32 p, x, 4;
    mov.s32 result, z;
    @p ret;
    mad.lo.s32 result, z, x, other;
}
.visible .entry calls(.param .u64 out)
{
    .reg .u32 i;
    .reg .s32 s, a;
    .reg .u64 place;
    mov.u32 i, %tid.x;
    neg.s32 s, i;
    call (a), mixed, (i, 1000, s);
    ld.param.u64 place, [out];
    mad.wide.u32 place, i, 4, place;
    st.global.u32 [place], a;
    ret;
}
"""


def test_parameters_in_registers(stream):
    """Each thread gets its own result, whichever branch of the function it has taken."""
    output = cu.DeviceBuffer(8, "i4")
    with cu.Module(TEXT) as module:
        module["calls"].launch(1, 8, output, stream=stream)
        stream.synchronize()
    expected = [1000 - i * i if i <= 4 else -i for i in range(8)]
    assert array_of(output).tolist() == expected
