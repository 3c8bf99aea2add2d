"""Modules: which images are loaded, and which names are found in a module."""

import ctypes
import tempfile
from pathlib import Path

from driver import INT, OUT
from kernels import COUNT, HEAD, KERNELS, TEXT, VARIABLES, function, image, launch, load
from section import Section
from texts import TEXTS

section = Section("modules")
question = section.question


for name, text in TEXTS.items():
    section.ask(
        f"load: {name}",
        lambda p, text=text: p.tried("cuModuleLoadData", p.cell(), p.keep(image(text))),
    )

CUBIN_HEAD = b"\x7fELF\x02\x01\x01\x33\x07" + bytes(7) + b"\x02\x00\xbe\x00" + bytes(2000)
FATBIN_HEAD = bytes.fromhex("50ed55ba0100100000000000") + bytes(2000)
for name, data in {
    "the head of a cubin": CUBIN_HEAD,
    "an ELF file for another machine": CUBIN_HEAD.replace(b"\xbe", b"\x3e"),
    "the head of a fatbin with nothing in it": FATBIN_HEAD,
}.items():
    section.ask(
        f"load: {name}",
        lambda p, data=data: p.tried(
            "cuModuleLoadData", p.cell(), p.keep(ctypes.create_string_buffer(data))
        ),
        alone=True,
    )


def options(p, *pairs):
    """The number of options, their names and their values, as the driver takes them."""
    names = p.keep((ctypes.c_int * len(pairs))(*[key for key, _ in pairs]))
    values = p.keep((ctypes.c_void_p * len(pairs))(*[value for _, value in pairs]))
    return len(pairs), names, values


section.calls(
    """
    load null module | cuModuleLoadData 0, text
    load null image | cuModuleLoadData out, 0
    load both null | cuModuleLoadData 0, 0
    loadex null | cuModuleLoadDataEx 0, 0, 0, 0, 0
    loadex without options | cuModuleLoadDataEx out, text, 0, 0, 0
    loadex, options null | cuModuleLoadDataEx out, text, 1, 0, 0
    fat binary of a text | cuModuleLoadFatBinary out, text
    fat binary null | cuModuleLoadFatBinary out, 0
    load a file null | cuModuleLoad out, 0
    load a file, module null | cuModuleLoad 0, b"/nothing/here"
    load no file | cuModuleLoad out, b"/nothing/here"
    load a folder | cuModuleLoad out, b"/tmp"
    load an empty name | cuModuleLoad out, b""
    unload null | cuModuleUnload 0
    unload 16 | cuModuleUnload 16
    loading mode null | cuModuleGetLoadingMode 0
    function null | cuModuleGetFunction 0, m, b"store"
    function, name null | cuModuleGetFunction out, m, 0
    function, name empty | cuModuleGetFunction out, m, b""
    function, no such | cuModuleGetFunction out, m, b"nothing"
    function, of a variable | cuModuleGetFunction out, m, b"counter"
    function, module null | cuModuleGetFunction out, 0, b"store"
    function | cuModuleGetFunction out, m, b"store"
    function count null | cuModuleGetFunctionCount 0, m
    function count, module null | cuModuleGetFunctionCount out, 0
    enumerate null | cuModuleEnumerateFunctions 0, 1, m
    enumerate none | cuModuleEnumerateFunctions out, 0, m
    enumerate null none | cuModuleEnumerateFunctions 0, 0, m
    enumerate, module null | cuModuleEnumerateFunctions out, 1, 0
    global both null | cuModuleGetGlobal_v2 0, 0, m, b"counter"
    global address only | cuModuleGetGlobal_v2 out, 0, m, b"counter"
    global size only | cuModuleGetGlobal_v2 0, out, m, b"counter"
    global, name null | cuModuleGetGlobal_v2 out, out, m, 0
    global, name empty | cuModuleGetGlobal_v2 out, out, m, b""
    global, no such | cuModuleGetGlobal_v2 out, out, m, b"nothing"
    global, of a kernel | cuModuleGetGlobal_v2 out, out, m, b"store"
    global, hidden | cuModuleGetGlobal_v2 out, out, m, b"hidden"
    global, module null | cuModuleGetGlobal_v2 out, out, 0, b"counter"
    global, constant | cuModuleGetGlobal_v2 out, out, m, b"table"
    global, managed | cuModuleGetGlobal_v2 out, out, m, b"common"
""",
    lambda p: {"text": p.keep(image(TEXT)), "m": load(p)},
)


@question("loading mode")
def _(p):
    return p.get("cuModuleGetLoadingMode", INT) in (1, 2)


@question("count of functions")
def _(p):
    module = load(p)
    return p.get("cuModuleGetFunctionCount", INT, module) == KERNELS


@question("enumerate too many")
def _(p):
    found = p.keep((ctypes.c_uint64 * (KERNELS + 8))())
    status = p("cuModuleEnumerateFunctions", found, KERNELS + 8, load(p))
    return status, sum(map(bool, found)) == KERNELS


@question("enumerate too few")
def _(p):
    found = p.keep((ctypes.c_uint64 * 8)())
    return p("cuModuleEnumerateFunctions", found, 3, load(p)), sum(map(bool, found))


@question("a function is the same each time")
def _(p):
    module = load(p)
    return function(p, "store", module) == function(p, "store", module)


@question("an enumerated function is the one found by name")
def _(p):
    module = load(p)
    found = p.keep((ctypes.c_uint64 * KERNELS)())
    p.must("cuModuleEnumerateFunctions", found, KERNELS, module)
    return function(p, "store", module) in list(found)


@question("a text loaded twice is two modules")
def _(p):
    one, other = load(p), load(p)
    return one != other, function(p, "store", one) != function(p, "store", other)


@question("without the final zero at a page's end is asked by none: sizes")
def _(p):
    module, found = load(p), []
    for name in ("counter", "array", "table", "common"):
        found.append(p.get("cuModuleGetGlobal_v2", OUT, OUT, module, name.encode())[1])
    return found


@question("what variables hold at first")
def _(p):
    module, found = load(p), []
    for name, size in (("counter", 4), ("array", 16), ("table", 16), ("common", 4)):
        found.append(
            p.read(p.need("cuModuleGetGlobal_v2", OUT, OUT, module, name.encode())[0], size)
        )
    return found


def variable(p, name="counter", module=None):
    return p.need("cuModuleGetGlobal_v2", OUT, OUT, module or load(p), name.encode())[0]


@question("a variable's address range")
def _(p):
    found = []
    for name in ("counter", "array", "table", "common"):
        at = variable(p, name)
        answer = p.get("cuMemGetAddressRange_v2", OUT, OUT, at)
        found.append(answer if isinstance(answer, str) else (answer[0] == at, answer[1]))
    return found


@question("a variable's attributes")
def _(p):
    found = []
    for name in ("counter", "table", "common"):
        at = variable(p, name)
        for attribute in (2, 8, 9, 11):  # memory type, managed, device, range's start
            answer = p.get("cuPointerGetAttribute", OUT, attribute, at)
            found.append(
                answer == at if attribute == 11 and not isinstance(answer, str) else answer
            )
    return found


@question("free of a variable")
def _(p):
    return [p("cuMemFree_v2", variable(p, name)) for name in ("counter", "table", "common")]


@question("copy and fill of a variable")
def _(p):
    at = variable(p, "array")
    p.write(at, bytes(range(100)))
    status = p("cuMemsetD8_v2", at + 10, 255, 10)
    return status, p.read(at, 100)


@question("copy past a variable's end")
def _(p):
    at = variable(p, "counter")
    return p("cuMemsetD8_v2", at, 1, 8), p("cuMemcpyHtoD_v2", at, bytes(1 << 22), 1 << 22)


@question("a constant is written by the host")
def _(p):
    at = variable(p, "table")
    p.write(at + 4, b"abcd")
    return p.read(at, 16)


@question("the host writes a managed variable")
def _(p):
    at = variable(p, "common")
    ctypes.memmove(at, b"abcd", 4)
    return p.read(at, 4)


@question("each module has its own variables")
def _(p):
    one, other = load(p), load(p)
    p.must("cuLaunchKernel", function(p, "count", one), 1, 1, 1, 32, 1, 1, 0, 0, 0, 0)
    return [p.read(variable(p, "counter", module), 4) for module in (one, other)]


@question("a variable after the unload")
def _(p):
    module = load(p)
    at = variable(p, "counter", module)
    p.must("cuCtxSynchronize")
    return (
        p.release(module),
        p("cuMemsetD8_v2", at, 1, 4),
        p("cuMemGetAddressRange_v2", 0, p.cell(), at),
    )


@question("an unloaded module", alone=True)
def _(p):
    module = load(p)
    kernel = function(p, "empty", module)
    found = [p.release(module), p("cuModuleUnload", module)]
    return found, p("cuModuleGetFunction", p.cell(), module, b"empty"), kernel != 0


@question("a function of an unloaded module", alone=True)
def _(p):
    module = load(p)
    kernel = function(p, "empty", module)
    p.release(module)
    return launch(p, kernel)


@question("attributes of a function of an unloaded module", alone=True)
def _(p):
    module = load(p)
    kernel = function(p, "empty", module)
    p.release(module)
    return p("cuFuncGetAttribute", p.cell(), 0, kernel)


@question("a destroyed module handle of another kind", alone=True)
def _(p):
    return p("cuModuleUnload", p.stream())


@question("unload behind held work")
def _(p):
    stream, module = p.stream(), load(p)
    kernel = function(p, "empty", module)
    p.gate(stream)
    p.must("cuLaunchKernel", kernel, 1, 1, 1, 1, 1, 1, 0, stream, 0, 0)
    return p.blocks("cuModuleUnload", module)


@question("unload beside held work")
def _(p):
    stream, module = p.stream(), load(p)
    p.gate(stream)
    return p.blocks("cuModuleUnload", module)


@question("load beside held work")
def _(p):
    p.gate(p.stream())
    return p.function_blocks(lambda: "SUCCESS" if load(p) else "failed")


@question("without a context")
def _(p):
    module = load(p)
    kernel = function(p, "empty", module)
    p("cuCtxSetCurrent", 0)
    text, out = p.keep(image(TEXT)), p.cell()
    return {
        "load": p("cuModuleLoadData", out, text),
        "load null": p("cuModuleLoadData", 0, 0),
        "load file": p("cuModuleLoad", out, b"/nothing/here"),
        "function": p("cuModuleGetFunction", out, module, b"empty"),
        "count": p("cuModuleGetFunctionCount", out, module),
        "enumerate": p("cuModuleEnumerateFunctions", out, 1, module),
        "global": p("cuModuleGetGlobal_v2", out, out, module, b"counter"),
        "mode": p("cuModuleGetLoadingMode", out),
        "attribute": p("cuFuncGetAttribute", out, 0, kernel),
        "set attribute": p("cuFuncSetAttribute", kernel, 8, 100),
        "cache": p("cuFuncSetCacheConfig", kernel, 1),
        "module": p("cuFuncGetModule", out, kernel),
        "name": p("cuFuncGetName", out, kernel),
        "parameters": p("cuFuncGetParamInfo", kernel, 0, out, out),
        "loaded": p("cuFuncIsLoaded", out, kernel),
        "load function": p("cuFuncLoad", kernel),
        "occupancy": p("cuOccupancyMaxActiveBlocksPerMultiprocessor", out, kernel, 32, 0),
        "launch": launch(p, kernel),
        "unload": p("cuModuleUnload", module),
    }


@question("a file", alone=True)
def _(p):
    with tempfile.TemporaryDirectory() as folder:
        found = []
        for name, text in (("right", TEXT), ("empty", ""), ("wrong", "wrong")):
            path = Path(folder, name)
            path.write_text(text, encoding="utf-8")
            found.append(p.tried("cuModuleLoad", p.cell(), str(path).encode()))
        return found


@question("a module in another context")
def _(p):
    module = load(p)
    p.context()
    out = p.cell()
    found = [p("cuModuleGetFunction", out, module, b"empty")]
    found.append(p("cuModuleGetGlobal_v2", out, out, module, b"counter"))
    p("cuCtxPopCurrent_v2", out)
    return found


@question("a module after its context", alone=True)
def _(p):
    context = p.context()
    module = load(p)
    function(p, "empty", module)
    p.release(context)
    p("cuCtxSetCurrent", p.primary)
    return p("cuModuleGetFunction", p.cell(), module, b"empty"), p("cuModuleUnload", module)


@question("the kernel with a name that another text has")
def _(p):
    one = load(p, HEAD + VARIABLES + COUNT)
    return p.get("cuModuleGetFunctionCount", INT, one)
