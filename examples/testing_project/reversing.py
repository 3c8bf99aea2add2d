"""Kernels that reverse the items of each block of 64, through shared memory."""

import cudadrv as cu

# An array of 64 items in shared memory; each thread writes one item, and reads another one.
TEXT = """.version 8.0
.target sm_80
.address_size 64
.visible .entry reverse(.param .u64 items)
{
    .reg .b32 %r<8>; .reg .b64 %rd<4>;
    .shared .align 4 .b8 tile[256];
    ld.param.u64 %rd1, [items];
    mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mad.lo.u32 %r3, %r2, 64, %r1;
    mul.wide.u32 %rd2, %r3, 4; add.u64 %rd1, %rd1, %rd2;
    mov.u32 %r4, tile; mad.lo.u32 %r5, %r1, 4, %r4; sub.u32 %r6, 63, %r1;
    mad.lo.u32 %r6, %r6, 4, %r4;
    ld.global.u32 %r7, [%rd1];
    st.shared.u32 [%r5], %r7;
    BARRIER
    ld.shared.u32 %r7, [%r6];
    st.global.u32 [%rd1], %r7;
    ret;
}
"""


def reverse(module: cu.Module, items: cu.DeviceBuffer, stream: cu.Stream) -> cu.Token:
    """Reverse each block of 64 items in place."""
    return module["reverse"].launch(items.count // 64, 64, items, stream=stream)


def correct() -> cu.Module:
    return cu.Module(TEXT.replace("BARRIER", "bar.sync 0;"))


def careless() -> cu.Module:
    """The module with a forgotten __syncthreads(): on a GPU, its results are right now and then."""
    return cu.Module(TEXT.replace("BARRIER", ""))


def divergent() -> cu.Module:
    """The module with a __syncthreads() in a branch that half of each warp takes."""
    some = ".reg .pred %p<2>; .reg .b32 %lane; and.b32 %lane, %r1, 31; setp.lt.u32 %p1, %lane, 16;"
    return cu.Module(TEXT.replace("BARRIER", f"{some} @%p1 bar.sync 0;"))


def incomplete() -> cu.Module:
    """The module in which only 63 threads write their item to shared memory."""
    some = ".reg .pred %p<2>; setp.lt.u32 %p1, %r1, 63; @%p1 st.shared.u32"
    return cu.Module(TEXT.replace("st.shared.u32", some, 1).replace("BARRIER", "bar.sync 0;"))
