"""Kernels that read textures and write surfaces, one thread for each row of words."""

import numpy as np

import cudadrv as cu

# Each thread has 4 words of the input in %r1 to %r4, and as floats in %f1 to %f4. At the end, %r11
# to %r14 contain its output. %rd1 is the handle.
TEXT = """.version 7.5
.target sm_75
.address_size 64
.visible .entry k(.param .u64 handle, .param .u64 given, .param .u64 found, .param .u32 count)
{{
    .reg .pred %p<4>; .reg .b16 %h<8>; .reg .b32 %r<32>; .reg .b64 %rd<16>; .reg .f32 %f<16>;
    ld.param.u64 %rd1, [handle]; ld.param.u64 %rd2, [given]; ld.param.u64 %rd3, [found];
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
# Coordinates of each geometry. The words of a thread are x, y and z, or the layer.
FLOATS = {"1d": "%f1", "2d": "{%f1, %f2}", "3d": "{%f1, %f2, %f3, %f3}"} | {
    "a1d": "{%r3, %f1}",
    "a2d": "{%r3, %f1, %f2, %f2}",
    "cube": "{%f1, %f2, %f3, %f3}",
}
WHOLE = {"1d": "%r1", "2d": "{%r1, %r2}", "3d": "{%r1, %r2, %r3, %r3}"} | {
    "a1d": "{%r3, %r1}",
    "a2d": "{%r3, %r1, %r2, %r2}",
}


def reads(geometry, kind="f32"):
    """A kernel that reads a texture at coordinates."""
    return cu.Module(
        TEXT.format(body=f"tex.{geometry}.v4.{kind}.f32 {RESULT}, [%rd1, {FLOATS[geometry]}];")
    )["k"]


def fetches(kind="s32"):
    """A kernel that reads a texture over a buffer with one dimension by numbers of texels."""
    return cu.Module(TEXT.format(body=f"tex.1d.v4.{kind}.s32 {RESULT}, [%rd1, %r1];"))["k"]


def reads_levels(geometry="1d"):
    """A kernel that reads a level, which is the fourth word, at coordinates."""
    return cu.Module(
        TEXT.format(
            body=f"tex.level.{geometry}.v4.f32.f32 {RESULT}, [%rd1, {FLOATS[geometry]}], %f4;"
        )
    )["k"]


def stores(geometry="2d"):
    """A kernel that stores the fourth word in a surface. x counts bytes."""
    return cu.Module(
        TEXT.format(body=f"sust.b.{geometry}.b32.trap [%rd1, {WHOLE[geometry]}], %r4;")
    )["k"]


def loads(geometry="2d"):
    """A kernel that loads a word of a surface. x counts bytes."""
    return cu.Module(
        TEXT.format(body=f"suld.b.{geometry}.b32.trap %r11, [%rd1, {WHOLE[geometry]}];")
    )["k"]


def rows(words):
    """Rows of four words, as a buffer, from rows of fewer."""
    words = np.ascontiguousarray(words)
    given = np.zeros((len(words), 4), words.dtype)
    given[:, : words.shape[1]] = words
    return cu.DeviceBuffer.from_array(given.reshape(-1).view("u4"))


def launch(kernel, handle, given, found, stream):
    count = given.count // 4
    return kernel.launch(
        (count + 63) // 64, 64, handle, cu.read(given), found, count, stream=stream
    )


def run(kernel, handle, words, stream):
    """Run a kernel with a texture or a surface; return its output words, four for each row."""
    given = rows(words)
    found = cu.DeviceBuffer.zeros(given.count, "u4")
    launch(kernel, handle, given, found, stream).wait()
    return found.to_numpy().reshape(-1, 4)


def places(*shape):
    """The numbers of all texels of an array, in C order: rows of x, y and z, or the layer."""
    grid = np.indices(shape).reshape(len(shape), -1)[::-1]
    return np.stack([*grid, *[np.zeros_like(grid[0])] * (3 - len(shape))], axis=1)
