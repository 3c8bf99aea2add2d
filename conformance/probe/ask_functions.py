"""Functions of modules: attributes, parameters, names, occupancy."""

import ctypes

from driver import INT, OUT
from kernels import CLUSTERED, function, image, load
from section import Section

section = Section("functions")
question = section.question

section.calls(
    """
    attribute null | cuFuncGetAttribute 0, 0, f
    attribute of null | cuFuncGetAttribute out, 0, 0
    attribute -1 | cuFuncGetAttribute out, -1, f
    attribute 16 | cuFuncGetAttribute out, 16, f
    attribute 99 | cuFuncGetAttribute out, 99, f
    set attribute of null | cuFuncSetAttribute 0, 8, 0
    set attribute 99 | cuFuncSetAttribute f, 99, 0
    set threads | cuFuncSetAttribute f, 0, 64
    set static shared | cuFuncSetAttribute f, 1, 64
    set registers | cuFuncSetAttribute f, 4, 64
    set dynamic 0 | cuFuncSetAttribute f, 8, 0
    set dynamic 48 KiB | cuFuncSetAttribute f, 8, 49152
    set dynamic -1 | cuFuncSetAttribute f, 8, -1
    set dynamic largest | cuFuncSetAttribute f, 8, opt
    set dynamic too large | cuFuncSetAttribute f, 8, opt + 1
    set dynamic huge | cuFuncSetAttribute f, 8, 1 << 30
    set dynamic with static, largest | cuFuncSetAttribute shared, 8, opt - 1000
    set dynamic with static, too large | cuFuncSetAttribute shared, 8, opt - 999
    set carveout -1 | cuFuncSetAttribute f, 9, -1
    set carveout -2 | cuFuncSetAttribute f, 9, -2
    set carveout 100 | cuFuncSetAttribute f, 9, 100
    set carveout 101 | cuFuncSetAttribute f, 9, 101
    set cluster must | cuFuncSetAttribute f, 10, 1
    set cluster width | cuFuncSetAttribute f, 11, 2
    set cluster width 3 | cuFuncSetAttribute f, 11, 3
    set cluster width 0 | cuFuncSetAttribute f, 11, 0
    set cluster width -1 | cuFuncSetAttribute f, 11, -1
    set cluster height | cuFuncSetAttribute f, 12, 2
    set cluster depth | cuFuncSetAttribute f, 13, 2
    set non-portable clusters | cuFuncSetAttribute f, 14, 1
    set non-portable clusters 2 | cuFuncSetAttribute f, 14, 2
    set cluster policy 0 | cuFuncSetAttribute f, 15, 0
    set cluster policy 2 | cuFuncSetAttribute f, 15, 2
    set cluster policy 3 | cuFuncSetAttribute f, 15, 3
    cache of null | cuFuncSetCacheConfig 0, 0
    cache 0 | cuFuncSetCacheConfig f, 0
    cache 3 | cuFuncSetCacheConfig f, 3
    cache 4 | cuFuncSetCacheConfig f, 4
    cache -1 | cuFuncSetCacheConfig f, -1
    banks of null | cuFuncSetSharedMemConfig 0, 0
    banks 2 | cuFuncSetSharedMemConfig f, 2
    banks 3 | cuFuncSetSharedMemConfig f, 3
    module null | cuFuncGetModule 0, f
    module of null | cuFuncGetModule out, 0
    name null | cuFuncGetName 0, f
    name of null | cuFuncGetName out, 0
    parameter null | cuFuncGetParamInfo f, 0, 0, 0
    parameter, no offset | cuFuncGetParamInfo f, 0, 0, out
    parameter, no size | cuFuncGetParamInfo f, 0, out, 0
    parameter of null | cuFuncGetParamInfo 0, 0, out, out
    parameter too far | cuFuncGetParamInfo f, 2, out, out
    parameter of a kernel without any | cuFuncGetParamInfo empty, 0, out, out
    is loaded null | cuFuncIsLoaded 0, f
    is loaded of null | cuFuncIsLoaded out, 0
    load | cuFuncLoad f
    load null | cuFuncLoad 0
    occupancy null | cuOccupancyMaxActiveBlocksPerMultiprocessor 0, f, 32, 0
    occupancy of null | cuOccupancyMaxActiveBlocksPerMultiprocessor out, 0, 32, 0
    occupancy 0 threads | cuOccupancyMaxActiveBlocksPerMultiprocessor out, f, 0, 0
    occupancy -1 threads | cuOccupancyMaxActiveBlocksPerMultiprocessor out, f, -1, 0
    occupancy 1025 threads | cuOccupancyMaxActiveBlocksPerMultiprocessor out, f, 1025, 0
    occupancy flags 1 | cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags out, f, 32, 0, 1
    occupancy flags 2 | cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags out, f, 32, 0, 2
    block size nulls | cuOccupancyMaxPotentialBlockSize 0, 0, f, 0, 0, 0
    block size, no grid | cuOccupancyMaxPotentialBlockSize 0, out, f, 0, 0, 0
    block size, no block | cuOccupancyMaxPotentialBlockSize out, 0, f, 0, 0, 0
    block size of null | cuOccupancyMaxPotentialBlockSize out, out, 0, 0, 0, 0
    block size, limit -1 | cuOccupancyMaxPotentialBlockSize out, out, f, 0, 0, -1
    block size, flags 2 | cuOccupancyMaxPotentialBlockSizeWithFlags out, out, f, 0, 0, 0, 2
    available null | cuOccupancyAvailableDynamicSMemPerBlock 0, f, 1, 32
    available of null | cuOccupancyAvailableDynamicSMemPerBlock out, 0, 1, 32
    available, 0 blocks | cuOccupancyAvailableDynamicSMemPerBlock out, f, 0, 32
    available, 0 threads | cuOccupancyAvailableDynamicSMemPerBlock out, f, 1, 0
    available, 33 blocks | cuOccupancyAvailableDynamicSMemPerBlock out, f, 33, 32
    available, 3 large blocks | cuOccupancyAvailableDynamicSMemPerBlock out, f, 3, 1024
""",
    lambda p: _handles(p),
)


def _handles(p):
    module = load(p)
    return {
        "f": function(p, "store", module),
        "shared": function(p, "shared", module),
        "empty": function(p, "empty", module),
        "opt": p.need("cuDeviceGetAttribute", INT, 97, 0),
    }


def attribute(p, kernel, number):
    return p.get("cuFuncGetAttribute", INT, number, kernel)


@question("most threads")
def _(p):
    module = load(p)
    return {
        name: attribute(p, function(p, name, module), 0)
        for name in ("empty", "bounded", "required", "shared")
    }


@question("shared memory")
def _(p):
    module = load(p)
    return {
        name: [attribute(p, function(p, name, module), number) for number in (1, 8)]
        for name in ("empty", "shared", "dynamic")
    }


@question("local memory")
def _(p):
    module = load(p)
    found = [attribute(p, function(p, name, module), 3) for name in ("empty", "local")]
    return found[0], found[1] >= 400


@question("constants")
def _(p):
    module = load(p)
    return [attribute(p, function(p, name, module), 2) for name in ("empty", "read_table")]


@question("registers")
def _(p):
    module = load(p)
    return [1 <= attribute(p, function(p, name, module), 4) <= 32 for name in ("empty", "store")]


@question("versions")
def _(p):
    kernel = function(p, "empty")
    major, minor = p.need("cuDeviceComputeCapability", INT, INT, 0)
    return attribute(p, kernel, 5), attribute(p, kernel, 6) == major * 10 + minor


@question("other attributes")
def _(p):
    kernel = function(p, "empty")
    return [attribute(p, kernel, number) for number in (7, 9, 10, 11, 12, 13, 14, 15)]


@question("attributes of a kernel with clusters")
def _(p):
    kernel = function(p, "clustered", load(p, CLUSTERED))
    return [attribute(p, kernel, number) for number in (0, 10, 11, 12, 13, 14, 15)]


for number, value in ((8, 100), (8, 60000), (9, 30), (11, 2), (14, 1), (15, 2)):

    @question(f"attribute {number} once set to {value}")
    def _(p, number=number, value=value):
        kernel = function(p, "empty")
        return p("cuFuncSetAttribute", kernel, number, value), attribute(p, kernel, number)


@question("cluster sizes once set")
def _(p):
    kernel = function(p, "empty")
    found = [p("cuFuncSetAttribute", kernel, number, 2) for number in (11, 12, 13)]
    return found, [attribute(p, kernel, number) for number in (10, 11, 12, 13)]


@question("cluster size of a kernel with clusters set")
def _(p):
    kernel = function(p, "clustered", load(p, CLUSTERED))
    return p("cuFuncSetAttribute", kernel, 11, 4), attribute(p, kernel, 11)


@question("layout of parameters")
def _(p):
    kernel, found = function(p, "layout"), []
    for index in range(9):
        found.append(_parameter(p, kernel, index))
    return found


def _parameter(p, kernel, index):
    offset, size = ctypes.c_size_t(77), ctypes.c_size_t(77)
    status = p("cuFuncGetParamInfo", kernel, index, ctypes.byref(offset), ctypes.byref(size))
    return f"{offset.value}+{size.value}" if status == "SUCCESS" else status


@question("name")
def _(p):
    name = ctypes.c_char_p()
    p.must("cuFuncGetName", ctypes.byref(name), function(p, "store"))
    return name.value.decode()


@question("module of a function")
def _(p):
    module = load(p)
    return p.get("cuFuncGetModule", OUT, function(p, "store", module)) == module


@question("is loaded, before and after")
def _(p):
    kernel = function(p, "store")
    p.must("cuFuncLoad", kernel)
    return p.get("cuFuncIsLoaded", INT, kernel)


@question("occupancy")
def _(p):
    kernel = function(p, "empty")
    name = "cuOccupancyMaxActiveBlocksPerMultiprocessor"
    return [p.get(name, INT, kernel, threads, 0) for threads in (1, 32, 64, 100, 128, 512, 1024)]


@question("occupancy by shared memory")
def _(p):
    kernel = function(p, "empty")
    p.must("cuFuncSetAttribute", kernel, 8, 200000)
    name = "cuOccupancyMaxActiveBlocksPerMultiprocessor"
    return [p.get(name, INT, kernel, 32, b) for b in (1000, 10000, 49152, 49153, 100000, 200000)]


@question("occupancy beyond what was allowed")
def _(p):
    kernel = function(p, "empty")
    name = "cuOccupancyMaxActiveBlocksPerMultiprocessor"
    return [p.get(name, INT, kernel, 32, b) for b in (49152, 49153, 100000, 1 << 20)]


@question("occupancy of bounded kernels")
def _(p):
    module = load(p)
    name = "cuOccupancyMaxActiveBlocksPerMultiprocessor"
    return [
        p.get(name, INT, function(p, kernel, module), threads, 0)
        for kernel in ("bounded", "required")
        for threads in (32, 64, 65)
    ]


@question("best block size")
def _(p):
    module = load(p)
    name = "cuOccupancyMaxPotentialBlockSize"
    count = p.need("cuDeviceGetAttribute", INT, 16, 0)
    found = []
    for kernel in ("empty", "bounded", "required"):
        for limit in (0, 100, 300):
            grid, block = p.get(name, INT, INT, function(p, kernel, module), 0, 0, limit)
            found.append(f"{grid // count}x{block}")
    return found


@question("available shared memory")
def _(p):
    kernel = function(p, "empty")
    name = "cuOccupancyAvailableDynamicSMemPerBlock"
    return [
        p.get(name, OUT, kernel, blocks, threads)
        for blocks, threads in ((1, 32), (2, 32), (3, 32), (4, 256), (32, 32), (1, 1024))
    ]


@question("a function in another context")
def _(p):
    kernel = function(p, "store")
    p.context()
    found = [
        p("cuFuncGetAttribute", p.cell(), 0, kernel),
        p("cuFuncSetCacheConfig", kernel, 1),
        p("cuFuncGetName", p.cell(), kernel),
    ]
    p("cuCtxPopCurrent_v2", p.cell())
    return found


@question("a kernel of a library as a function")
def _(p):
    p.image = p.keep(image(CLUSTERED))
    library = p.make("cuLibraryUnload", "cuLibraryLoadData", OUT, p.image, 0, 0, 0, 0, 0, 0)
    kernel = p.need("cuLibraryGetKernel", OUT, library, b"empty")
    out = p.cell()
    return {
        "attribute": p("cuFuncGetAttribute", out, 0, kernel),
        "set": p("cuFuncSetAttribute", kernel, 8, 100),
        "cache": p("cuFuncSetCacheConfig", kernel, 1),
        "name": p("cuFuncGetName", out, kernel),
        "module": p("cuFuncGetModule", out, kernel),
        "occupancy": p("cuOccupancyMaxActiveBlocksPerMultiprocessor", out, kernel, 32, 0),
        "launch": p("cuLaunchKernel", kernel, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0),
    }
