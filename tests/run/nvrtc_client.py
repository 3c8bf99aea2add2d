"""Functions of a client of NVRTC, by ctypes. An argument names another library."""

import ctypes
import sys

nvrtc = ctypes.CDLL(sys.argv[1] if len(sys.argv) > 1 else "libnvrtc.so.13")
nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p


def texts(*items):
    return (ctypes.c_char_p * len(items))(*items)


def compiled(source=b"kernel", *options, expect=0):
    program = ctypes.c_void_p()
    arguments = source, b"k.cu", 2, texts(b" a", b" b"), texts(b".h", b".cuh")
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), *arguments) == 0
    status = nvrtc.nvrtcCompileProgram(program, len(options), texts(*options))
    assert status == expect, status
    return program


def get(name, program):
    size = ctypes.c_size_t()
    assert getattr(nvrtc, f"nvrtcGet{name}Size")(program, ctypes.byref(size)) == 0
    content = ctypes.create_string_buffer(b"?" * (size.value + 1))
    assert getattr(nvrtc, f"nvrtcGet{name}")(program, content) == 0
    assert content.raw[size.value :] == b"?\0"  # nothing was written behind its end
    return content.raw[: size.value]
