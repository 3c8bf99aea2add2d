"""Kernels that read textures and write surfaces, one thread for each row of words."""

import numpy as np
from texture_kernels import RESULT, TEXT

import cudadrv as cu

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


def kernel(body):
    return cu.Module(TEXT.format(version="7.5", target="sm_75", body=body))["k"]


def reads(geometry, kind="f32"):
    """A kernel that reads a texture at coordinates."""
    return kernel(f"tex.{geometry}.v4.{kind}.f32 {RESULT}, [%rd1, {FLOATS[geometry]}];")


def fetches(kind="s32"):
    """A kernel that reads a texture over a buffer with one dimension by numbers of texels."""
    return kernel(f"tex.1d.v4.{kind}.s32 {RESULT}, [%rd1, %r1];")


def reads_levels(geometry="1d"):
    """A kernel that reads a level, which is the fourth word, at coordinates."""
    return kernel(f"tex.level.{geometry}.v4.f32.f32 {RESULT}, [%rd1, {FLOATS[geometry]}], %f4;")


def stores(geometry="2d"):
    """A kernel that stores the fourth word in a surface. x counts bytes."""
    return kernel(f"sust.b.{geometry}.b32.trap [%rd1, {WHOLE[geometry]}], %r4;")


def loads(geometry="2d"):
    """A kernel that loads a word of a surface. x counts bytes."""
    return kernel(f"suld.b.{geometry}.b32.trap %r11, [%rd1, {WHOLE[geometry]}];")


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
