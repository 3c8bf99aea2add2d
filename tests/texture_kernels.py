"""The kernel that reads textures and writes surfaces: one thread for each row of words."""

# Each thread has 4 words of the input in %r1 to %r4, and as floats in %f1 to %f4. At the end, %r11
# to %r14 contain its output. %rd1 is the handle.
TEXT = """.version {version}
.target {target}
.address_size 64
.visible .entry k(.param .u64 handle, .param .u64 in, .param .u64 out, .param .u32 count)
{{
    .reg .pred %p<4>; .reg .b16 %h<8>; .reg .b32 %r<32>; .reg .b64 %rd<16>; .reg .f32 %f<16>;
    ld.param.u64 %rd1, [handle]; ld.param.u64 %rd2, [in]; ld.param.u64 %rd3, [out];
    ld.param.u32 %r20, [count];
    mov.u32 %r21, %tid.x; mov.u32 %r22, %ctaid.x; mov.u32 %r23, %ntid.x;
    mad.lo.u32 %r21, %r22, %r23, %r21; setp.ge.u32 %p1, %r21, %r20; @%p1 ret;
    mul.wide.u32 %rd4, %r21, 16; add.u64 %rd2, %rd2, %rd4; add.u64 %rd3, %rd3, %rd4;
    ld.global.v4.u32 {{%r1, %r2, %r3, %r4}}, [%rd2];
    mov.b32 %f1, %r1; mov.b32 %f2, %r2; mov.b32 %f3, %r3; mov.b32 %f4, %r4;
    mov.u32 %r11, 0; mov.u32 %r12, 0; mov.u32 %r13, 0; mov.u32 %r14, 0;
    {body}
    st.global.v4.u32 [%rd3], {{%r11, %r12, %r13, %r14}};
    ret;
}}
"""
RESULT = "{%r11, %r12, %r13, %r14}"
