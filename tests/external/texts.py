"""PTX for programs that launch something."""

SCALE = b""".version 7.5
.target sm_75
.address_size 64
.visible .global .align 4 .u32 launches = 0;
.visible .entry scale(.param .u64 at, .param .u32 n, .param .u32 by)
{
    .reg .pred %p<2>;
    .reg .b32 %r<10>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [at];
    ld.param.u32 %r1, [n];
    ld.param.u32 %r2, [by];
    mov.u32 %r3, %ctaid.x;
    mov.u32 %r4, %ntid.x;
    mov.u32 %r5, %tid.x;
    mad.lo.u32 %r6, %r3, %r4, %r5;
    setp.ne.u32 %p1, %r6, 0;
    @%p1 bra work;
    atom.global.add.u32 %r7, [launches], 1;
work:
    setp.ge.u32 %p1, %r6, %r1;
    @%p1 bra done;
    mul.wide.u32 %rd2, %r6, 4;
    add.s64 %rd3, %rd1, %rd2;
    ld.global.u32 %r8, [%rd3];
    mul.lo.u32 %r9, %r8, %r2;
    st.global.u32 [%rd3], %r9;
done:
    ret;
}
"""
