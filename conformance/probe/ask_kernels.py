"""Kernels that are launched: their effects, and on which stream and when they run."""

import ctypes

from driver import INT, LEGACY, OUT, PER_THREAD
from kernels import (
    CHAINS,
    CLUSTERED,
    HEAD,
    address,
    config,
    function,
    launch,
    launch_on,
    load,
    load_library,
    pointers,
)
from section import Section

section = Section("kernels")
question = section.question


@question("a store is seen")
def _(p):
    target = p.device()
    return launch_on(p, "store", target, 0x12345678), p.read(target, 4)


@question("a store to page-locked memory is seen")
def _(p):
    target = p.host()
    status = launch_on(p, "store", target, 0x12345678)
    p.must("cuCtxSynchronize")
    return status, p.bytes_at(target, 4)


@question("a store to managed memory is seen")
def _(p):
    target = p.managed()
    status = launch_on(p, "store", target, 0x12345678)
    p.must("cuCtxSynchronize")
    return status, p.bytes_at(target, 4)


@question("parameters are taken at the launch")
def _(p):
    stream, target, value = p.stream(), p.device(), ctypes.c_uint32(1)
    p.write(target, bytes(4))
    kernel = function(p, "store")
    gate = p.gate(stream)
    status = launch(p, kernel, pointers(p, address(target), value), stream=stream)
    value.value = 2
    gate.open()
    p.must("cuStreamSynchronize", stream)
    return status, p.read(target, 4)


@question("extra is taken at the launch")
def _(p):
    target, stream, kernel = p.device(), p.stream(), function(p, "store")
    block, size = ctypes.create_string_buffer(12), ctypes.c_size_t(12)
    ctypes.c_uint64.from_buffer(block).value = target
    words = [1, ctypes.addressof(block), 2, ctypes.addressof(size), 0]
    gate = p.gate(stream)
    status = launch(p, kernel, stream=stream, extra=p.keep((ctypes.c_uint64 * 5)(*words)))
    block[8] = 1
    gate.open()
    p.must("cuStreamSynchronize", stream)
    return status, p.read(target, 4)


@question("shared memory")
def _(p):
    target = p.device()
    found = [launch_on(p, "shared", target), p.read(target, 4)]
    return found, launch_on(p, "dynamic", target, shared=16), p.read(target, 4)


@question("constants")
def _(p):
    target = p.device()
    return launch_on(p, "read_table", target), p.read(target, 4)


@question("constants that the host has written")
def _(p):
    target, module = p.device(), load(p)
    table = p.need("cuModuleGetGlobal_v2", OUT, OUT, module, b"table")[0]
    p.write(table + 4, b"abcd")
    kernel = function(p, "read_table", module)
    return launch(p, kernel, pointers(p, address(target))), p.read(target, 4)


@question("division by zero")
def _(p):
    target = p.device()
    return launch_on(p, "divide", target, 0), p.read(target, 8)


TRIPLES = ((1, 2, 3), (2, 1, 0), (2**64 - 1, 1, 2**64 - 1), (2**63, 2**63 + 5, 2**32 - 1))

for name, text in CHAINS.items():

    @question(name)
    def _(p, text=text):
        """For each triple, the result, and the carry as addc and as subc read it."""
        target, kernel = p.device(), text.split("entry ")[1].split("(")[0]
        module, found = load(p, HEAD + text), []
        for triple in TRIPLES:
            p.write(target, bytes(24))
            values = [ctypes.c_uint64(value) for value in triple]
            given = pointers(p, address(target), *values)
            found.append(launch(p, function(p, kernel, module), given))
            p.must("cuCtxSynchronize")
            found += [p.read(target + 8 * i, 8) for i in range(3)]
        return found


@question("a launch blocks behind held work")
def _(p):
    stream, kernel = p.stream(), function(p, "empty")
    p.gate(stream)
    return p.blocks("cuLaunchKernel", kernel, 1, 1, 1, 1, 1, 1, 0, stream, 0, 0)


@question("a kernel spins until the host writes")
def _(p):
    stream, flag = p.stream(), p.host()
    status = launch_on(p, "spin", flag, stream=stream)
    found = [p("cuStreamQuery", stream) for _ in range(3)]
    ctypes.c_uint32.from_address(flag).value = 1
    return status, found, p("cuStreamSynchronize", stream)


@question("a kernel spins until another stream writes")
def _(p):
    stream, other, flag = p.stream(), p.stream(), p.device()
    p.write(flag, bytes(4))
    status = launch_on(p, "spin", flag, stream=stream)
    p.must("cuStreamWriteValue32_v2", other, flag, 1, 0)
    return status, p("cuStreamSynchronize", stream)


@question("six kernels spin until the last of them is there")
def _(p):
    flag = p.device()
    p.write(flag, bytes(4))
    streams = [p.stream() for _ in range(7)]
    module = load(p)
    spin, store = function(p, "spin", module), function(p, "store", module)
    for stream in streams[:6]:
        launch(p, spin, pointers(p, address(flag)), stream=stream)
    launch(p, store, pointers(p, address(flag), ctypes.c_uint32(1)), stream=streams[6])
    return [p("cuStreamSynchronize", stream) for stream in streams]


@question("a stream of another context")
def _(p):
    kernel = function(p, "empty")
    p.context()
    stream = p.stream()
    status = launch(p, kernel, stream=stream)
    other = launch(p, kernel)
    p("cuCtxPopCurrent_v2", p.cell())
    return status, other, launch(p, kernel, stream=stream)


@question("a stream of the kernel's context while another is current")
def _(p):
    kernel, stream = function(p, "empty"), p.stream()
    p.context()
    status = launch(p, kernel, stream=stream)
    p("cuCtxPopCurrent_v2", p.cell())
    return status


@question("a stream of the kernel's context while none is current")
def _(p):
    kernel, stream = function(p, "empty"), p.stream()
    p("cuCtxSetCurrent", 0)
    return launch(p, kernel, stream=stream), launch(p, kernel)


@question("a kernel of a library in each context")
def _(p):
    library = load_library(p)
    kernel = p.need("cuLibraryGetKernel", OUT, library, b"empty")
    first = launch(p, kernel)
    p.context()
    second = launch(p, kernel), launch(p, kernel, stream=p.stream())
    p("cuCtxPopCurrent_v2", p.cell())
    return first, second


@question("a kernel of a library while no context is current")
def _(p):
    library, stream = load_library(p), p.stream()
    kernel = p.need("cuLibraryGetKernel", OUT, library, b"empty")
    p("cuCtxSetCurrent", 0)
    return launch(p, kernel), launch(p, kernel, stream=stream)


for name, stream in (("legacy", LEGACY), ("per-thread", PER_THREAD)):

    @question(f"launch in the {name} stream while a blocking stream is captured")
    def _(p, stream=stream):
        captured, kernel = p.stream(0), function(p, "empty")
        p.must("cuStreamBeginCapture_v2", captured, 0)
        return launch(p, kernel, stream=stream), p.get("cuStreamIsCapturing", captured, INT)


@question("captured launches do not run")
def _(p):
    stream, target = p.stream(), p.device()
    p.write(target, bytes(4))
    kernel = function(p, "store")
    p.must("cuStreamBeginCapture_v2", stream, 0)
    status = launch(p, kernel, pointers(p, address(target), ctypes.c_uint32(7)), stream=stream)
    graph = p.need("cuStreamEndCapture", stream, OUT)
    return status, p("cuGraphDestroy", graph), p.read(target, 4)


@question("a captured launch that is wrong")
def _(p):
    stream, kernel = p.stream(), function(p, "empty")
    p.must("cuStreamBeginCapture_v2", stream, 0)
    status = launch(p, kernel, grid=(0, 1, 1), stream=stream)
    return status, p.get("cuStreamIsCapturing", stream, INT)


for mode in (0, 1, 2):

    @question(f"loading while a capture of mode {mode} is active")
    def _(p, mode=mode):
        stream, module = p.stream(), load(p)
        p.must("cuStreamBeginCapture_v2", stream, mode)
        found = [
            p.tried("cuModuleLoadData", p.cell(), p.image),
            p("cuModuleGetFunction", p.cell(), module, b"empty"),
        ]
        found.append(p("cuModuleUnload", module))
        return found, p.get("cuStreamIsCapturing", stream, INT)


@question("a kernel with clusters of its own")
def _(p):
    kernel = function(p, "clustered", load(p, CLUSTERED))
    found = [launch(p, kernel, grid=(grid, 1, 1)) for grid in (1, 2, 3, 4)]
    for size in (1, 2, 4):
        found.append(p("cuLaunchKernelEx", config(p, (4, size, 1, 1), grid=4), kernel, 0, 0))
    return found, p("cuCtxSynchronize")


@question("a kernel that needs clusters")
def _(p):
    kernel = function(p, "explicit", load(p, CLUSTERED))
    found = [p.get("cuFuncGetAttribute", INT, 10, kernel), launch(p, kernel, grid=(2, 1, 1))]
    for size in (1, 2):
        found.append(p("cuLaunchKernelEx", config(p, (4, size, 1, 1), grid=4), kernel, 0, 0))
    return found, p("cuCtxSynchronize")


@question("a kernel with a largest cluster")
def _(p):
    kernel = function(p, "ranked", load(p, CLUSTERED))
    found = [launch(p, kernel, grid=(3, 1, 1))]
    for size in (1, 2, 4):
        found.append(p("cuLaunchKernelEx", config(p, (4, size, 1, 1), grid=4), kernel, 0, 0))
    return found, p("cuCtxSynchronize")


@question("a captured launch of another block than the required one")
def _(p):
    stream, kernel = p.stream(), function(p, "required")
    p.must("cuStreamBeginCapture_v2", stream, 0)
    status = launch(p, kernel, block=(64, 1, 1), stream=stream)
    return status, p.get("cuStreamIsCapturing", stream, INT)


@question("clusters beyond the portable size, allowed")
def _(p):
    kernel = function(p, "empty")
    found = [p("cuFuncSetAttribute", kernel, 14, 1)]
    for size in (16, 32):
        found.append(p("cuLaunchKernelEx", config(p, (4, size, 1, 1), grid=32), kernel, 0, 0))
    return found, p("cuCtxSynchronize")


@question("the largest cluster")
def _(p):
    kernel = function(p, "empty")
    name = "cuOccupancyMaxPotentialClusterSize"
    found = [p.get(name, INT, kernel, config(p, block=128))]
    p.must("cuFuncSetAttribute", kernel, 14, 1)
    return found, p.get(name, INT, kernel, config(p, block=128))
