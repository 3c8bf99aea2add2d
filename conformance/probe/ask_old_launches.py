"""Launches as they were before CUDA 4: the function keeps block, shared memory and parameters."""

import ctypes

from driver import INT, OUT
from kernels import address, function, launch, load, load_library, pointers
from section import Section

section = Section("old_launches")
question = section.question

section.calls(
    """
    shape | cuFuncSetBlockShape f, 32, 1, 1
    shape of null | cuFuncSetBlockShape 0, 32, 1, 1
    shape of null, 0 | cuFuncSetBlockShape 0, 0, 1, 1
    shape x 0 | cuFuncSetBlockShape f, 0, 1, 1
    shape y 0 | cuFuncSetBlockShape f, 1, 0, 1
    shape z 0 | cuFuncSetBlockShape f, 1, 1, 0
    shape x -1 | cuFuncSetBlockShape f, -1, 1, 1
    shape x 1024 | cuFuncSetBlockShape f, 1024, 1, 1
    shape x 1025 | cuFuncSetBlockShape f, 1025, 1, 1
    shape y 1025 | cuFuncSetBlockShape f, 1, 1025, 1
    shape z 64 | cuFuncSetBlockShape f, 1, 1, 64
    shape z 65 | cuFuncSetBlockShape f, 1, 1, 65
    shape 33 by 32 | cuFuncSetBlockShape f, 33, 32, 1
    shape of a bounded kernel, 64 | cuFuncSetBlockShape bounded, 64, 1, 1
    shape of a bounded kernel, 65 | cuFuncSetBlockShape bounded, 65, 1, 1
    shape of a kernel that requires another | cuFuncSetBlockShape required, 64, 1, 1
    shared 0 | cuFuncSetSharedSize f, 0
    shared 48 KiB | cuFuncSetSharedSize f, 49152
    shared 48 KiB and 1 | cuFuncSetSharedSize f, 49153
    shared 1 MiB | cuFuncSetSharedSize f, 1 << 20
    shared -1 | cuFuncSetSharedSize f, -1
    shared of null | cuFuncSetSharedSize 0, 16
    size 0 | cuParamSetSize f, 0
    size | cuParamSetSize f, 12
    size, more than the kernel takes | cuParamSetSize f, 16
    size, less than the kernel takes | cuParamSetSize f, 8
    size 4096 | cuParamSetSize f, 4096
    size 4097 | cuParamSetSize f, 4097
    size 4353 | cuParamSetSize f, 4353
    size 32765 | cuParamSetSize f, 32765
    size -1 | cuParamSetSize f, -1
    size of null | cuParamSetSize 0, 12
    integer | cuParamSeti f, 8, 5
    integer, beyond the kernel's | cuParamSeti f, 12, 5
    integer at 4092 | cuParamSeti f, 4092, 5
    integer at 4093 | cuParamSeti f, 4093, 5
    integer at 4096 | cuParamSeti f, 4096, 5
    integer at 32764 | cuParamSeti f, 32764, 5
    integer at 1 | cuParamSeti f, 1, 5
    integer at -1 | cuParamSeti f, -1, 5
    integer of null | cuParamSeti 0, 0, 5
    float | cuParamSetf f, 8, number
    float at 4093 | cuParamSetf f, 4093, number
    float of null | cuParamSetf 0, 0, number
    bytes | cuParamSetv f, 0, data, 8
    bytes at 1 | cuParamSetv f, 1, data, 3
    bytes, none | cuParamSetv f, 0, data, 0
    bytes, beyond the kernel's | cuParamSetv f, 8, data, 8
    bytes at 4092 | cuParamSetv f, 4092, data, 8
    bytes, 4096 | cuParamSetv f, 0, data, 4096
    bytes, 4097 | cuParamSetv f, 0, data, 4097
    bytes null | cuParamSetv f, 0, 0, 8
    bytes null, none | cuParamSetv f, 0, 0, 0
    bytes of null | cuParamSetv 0, 0, data, 8
    texture null | cuParamSetTexRef f, -1, 0
    launch null | cuLaunch 0
    launch of a grid null | cuLaunchGrid 0, 1, 1
    launch in a stream null | cuLaunchGridAsync 0, 1, 1, 0
    launch, nothing set | cuLaunch f
    launch, nothing set, no parameters | cuLaunch empty
    launch of a grid, nothing set | cuLaunchGrid f, 1, 1
    launch of a grid, nothing set, no parameters | cuLaunchGrid empty, 1, 1
    launch in a stream, nothing set, no parameters | cuLaunchGridAsync empty, 1, 1, 0
""",
    lambda p: _names(p),
)


def _names(p):
    module = load(p)
    return {
        **{name: function(p, name, module) for name in ("empty", "bounded", "required")},
        "f": function(p, "store", module),
        "number": ctypes.c_float(1.5),
        "data": p.keep(ctypes.create_string_buffer(8192)),
    }


def prepared(p, value=7, target=None, name="store", size=12, block=(1, 1, 1)):
    """Prepares launches of a kernel that stores a number. Returns the kernel and its target."""
    kernel, target = function(p, name), target or p.device()
    p.write(target, bytes(16))
    if block:
        p.must("cuFuncSetBlockShape", kernel, *block)
    data = p.keep(ctypes.c_uint64(target))
    p.must("cuParamSetv", kernel, 0, ctypes.byref(data), 8)
    p.must("cuParamSeti", kernel, 8, value)
    if size is not None:
        p.must("cuParamSetSize", kernel, size)
    return kernel, target


for name, call in (
    ("cuLaunch", lambda p, kernel: p("cuLaunch", kernel)),
    ("cuLaunchGrid", lambda p, kernel: p("cuLaunchGrid", kernel, 2, 1)),
    ("cuLaunchGridAsync", lambda p, kernel: p("cuLaunchGridAsync", kernel, 2, 1, p.stream())),
):

    @question(f"{name} runs")
    def _(p, call=call):
        kernel, target = prepared(p)
        return call(p, kernel), p("cuCtxSynchronize"), p.read(target, 4)

    @question(f"{name} without a shape")
    def _(p, call=call):
        kernel, target = prepared(p, block=None)
        return call(p, kernel), p("cuCtxSynchronize"), p.read(target, 4)

    @question(f"{name} without a size")
    def _(p, call=call):
        kernel, target = prepared(p, size=None)
        return call(p, kernel), p("cuCtxSynchronize"), p.read(target, 4)

    for size in (0, 4, 8, 11, 16, 4096):

        @question(f"{name} with a size of {size}")
        def _(p, call=call, size=size):
            kernel, _ = prepared(p, size=size)
            return call(p, kernel), p("cuCtxSynchronize")

    @question(f"{name}, none current")
    def _(p, call=call):
        kernel, _ = prepared(p)
        p.must("cuCtxSetCurrent", 0)
        return call(p, kernel)

    @question(f"{name}, another context current")
    def _(p, call=call):
        kernel, _ = prepared(p)
        p.context()
        return call(p, kernel)

    @question(f"{name} twice")
    def _(p, call=call):
        kernel, target = prepared(p)
        found = [call(p, kernel), p.read(target, 4)]
        p.write(target, bytes(4))
        return found, call(p, kernel), p.read(target, 4)

    @question(f"{name} behind held work of its stream blocks")
    def _(p, call=call):
        kernel, _ = prepared(p)
        p.gate(0)
        return p.function_blocks(lambda: call(p, kernel))

    @question(f"{name} in a capture")
    def _(p, call=call):
        kernel, _ = prepared(p)
        stream = p.stream(0)
        p.must("cuStreamBeginCapture_v2", stream, 0)
        status = call(p, kernel)
        return status, p.get("cuStreamIsCapturing", stream, INT)

    @question(f"{name} of a bounded kernel, too many threads")
    def _(p, call=call):
        kernel = function(p, "bounded")
        return p("cuFuncSetBlockShape", kernel, 128, 1, 1), call(p, kernel)

    @question(f"{name} of a kernel that requires another block")
    def _(p, call=call):
        kernel = function(p, "required")
        return p("cuFuncSetBlockShape", kernel, 64, 1, 1), call(p, kernel)

    @question(f"{name} with dynamic shared memory")
    def _(p, call=call):
        kernel, target = function(p, "dynamic"), p.device()
        data = p.keep(ctypes.c_uint64(target))
        p.must("cuFuncSetBlockShape", kernel, 1, 1, 1)
        p.must("cuParamSetv", kernel, 0, ctypes.byref(data), 8)
        p.must("cuParamSetSize", kernel, 8)
        return p("cuFuncSetSharedSize", kernel, 16), call(p, kernel), p.read(target, 4)

    @question(f"{name} with too much shared memory")
    def _(p, call=call):
        kernel, _ = prepared(p)
        return p("cuFuncSetSharedSize", kernel, 1 << 18), call(p, kernel)


for grid in ((0, 1), (1, 0), (-1, 1), (65536, 1), (1, 65535), (1, 65536), (1, -1)):

    @question(f"grid of {grid[0]} by {grid[1]}")
    def _(p, grid=grid):
        kernel = function(p, "empty")
        p.must("cuFuncSetBlockShape", kernel, 1, 1, 1)
        return p("cuLaunchGrid", kernel, *grid), p("cuLaunchGridAsync", kernel, *grid, 0)


@question("in a stream that was destroyed")
def _(p):
    kernel, stream = function(p, "empty"), p.stream()
    p.must("cuFuncSetBlockShape", kernel, 1, 1, 1)
    return p("cuLaunchGridAsync", kernel, 1, 1, 0), p.release(stream)


@question("in a stream of another context")
def _(p):
    kernel, _ = prepared(p)
    p.context()
    stream = p.stream()
    p("cuCtxPopCurrent_v2", p.cell())
    return p("cuLaunchGridAsync", kernel, 1, 1, stream)


@question("parameters are taken at the launch")
def _(p):
    stream, (kernel, target) = p.stream(), prepared(p)
    gate = p.gate(stream)
    status = p("cuLaunchGridAsync", kernel, 1, 1, stream)
    p.must("cuParamSeti", kernel, 8, 9)
    gate.open()
    p.must("cuStreamSynchronize", stream)
    return status, p.read(target, 4)


@question("a launch by cuLaunchKernel between changes nothing")
def _(p):
    kernel, target = prepared(p)
    found = launch(p, kernel, pointers(p, address(target), ctypes.c_uint32(3)), block=(8, 1, 1))
    first = p.read(target, 4)
    return found, first, p("cuLaunch", kernel), p.read(target, 4)


@question("cuLaunchKernel without parameters after some were set")
def _(p):
    kernel, _ = prepared(p)
    return launch(p, kernel)


@question("the function that is got again is the same")
def _(p):
    module = load(p)
    kernel, target = function(p, "store", module), p.device()
    p.write(target, bytes(4))
    data = p.keep(ctypes.c_uint64(target))
    p.must("cuFuncSetBlockShape", kernel, 1, 1, 1)
    p.must("cuParamSetv", kernel, 0, ctypes.byref(data), 8)
    p.must("cuParamSeti", kernel, 8, 5)
    p.must("cuParamSetSize", kernel, 12)
    return p("cuLaunch", function(p, "store", module)), p.read(target, 4)


@question("a parameter that was never set")
def _(p):
    kernel, target = function(p, "store"), p.device()
    p.write(target, b"\1" * 4)
    data = p.keep(ctypes.c_uint64(target))
    p.must("cuFuncSetBlockShape", kernel, 1, 1, 1)
    p.must("cuParamSetv", kernel, 0, ctypes.byref(data), 8)
    p.must("cuParamSetSize", kernel, 12)
    return p("cuLaunch", kernel), p.read(target, 4)


@question("a kernel of a library as a function")
def _(p):
    library = load_library(p)
    kernel, target = p.need("cuLibraryGetKernel", OUT, library, b"store"), p.device()
    p.write(target, bytes(4))
    data = p.keep(ctypes.c_uint64(target))
    return (
        p("cuFuncSetBlockShape", kernel, 1, 1, 1),
        p("cuFuncSetSharedSize", kernel, 0),
        p("cuParamSetv", kernel, 0, ctypes.byref(data), 8),
        p("cuParamSeti", kernel, 8, 5),
        p("cuParamSetSize", kernel, 12),
        p("cuLaunch", kernel),
        p.read(target, 4),
    )


@question("setting, none current")
def _(p):
    kernel = function(p, "store")
    p.must("cuCtxSetCurrent", 0)
    return (
        p("cuFuncSetBlockShape", kernel, 1, 1, 1),
        p("cuFuncSetSharedSize", kernel, 0),
        p("cuParamSetSize", kernel, 12),
        p("cuParamSeti", kernel, 8, 5),
    )


@question("before cuInit", setup="nothing", alone=True)
def _(p):
    return (
        p("cuFuncSetBlockShape", 0, 1, 1, 1),
        p("cuFuncSetSharedSize", 0, 0),
        p("cuParamSetSize", 0, 0),
        p("cuParamSeti", 0, 0, 0),
        p("cuLaunch", 0),
        p("cuLaunchGrid", 0, 1, 1),
        p("cuLaunchGridAsync", 0, 1, 1, 0),
    )
