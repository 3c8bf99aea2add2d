"""Libraries, which belong to no context, and their kernels; links of several texts."""

import ctypes

from driver import INT, OUT
from kernels import HEAD, KERNELS, TEXT, entry, function, image, launch, load_library, on_address
from section import Section

section = Section("libraries")
question = section.question

FAR = (
    HEAD
    + """
.visible .global .align 4 .u32 far_number = 11;
.visible .func (.param .b32 result) far(.param .b32 given)
{
    .reg .b32 %r<3>;
    ld.param.b32 %r1, [given];
    add.u32 %r2, %r1, 100;
    st.param.b32 [result], %r2;
    ret;
}
"""
)
CALL = """    ld.global.u32 %r1, [far_number];
    {
        .param .b32 given;
        st.param.b32 [given], %r1;
        .param .b32 result;
        call (result), far, (given);
        ld.param.b32 %r2, [result];
    }
    st.global.u32 [%rd1], %r2;"""
NEAR = (
    HEAD
    + """
.extern .global .align 4 .u32 far_number;
.extern .func (.param .b32 result) far(.param .b32 given);
"""
    + entry("near", ".param .u64 at", on_address(CALL))
)

section.calls(
    """
    load null | cuLibraryLoadData 0, text, 0, 0, 0, 0, 0, 0
    load, code null | cuLibraryLoadData out, 0, 0, 0, 0, 0, 0, 0
    load, options null | cuLibraryLoadData out, text, 0, 0, 1, 0, 0, 0
    load, library options null | cuLibraryLoadData out, text, 0, 0, 0, 0, 0, 1
    load, words | cuLibraryLoadData out, words, 0, 0, 0, 0, 0, 0
    load, empty | cuLibraryLoadData out, empty, 0, 0, 0, 0, 0, 0
    load, unknown library option | cuLibraryLoadData out, text, 0, 0, 0, ints(99), ints(0, 0), 1
    load, library option 1 | cuLibraryLoadData out, text, 0, 0, 0, ints(1), ints(1, 0), 1
    load a file null | cuLibraryLoadFromFile out, 0, 0, 0, 0, 0, 0, 0
    load no file | cuLibraryLoadFromFile out, b"/nothing/here", 0, 0, 0, 0, 0, 0
    unload null | cuLibraryUnload 0
    kernel null | cuLibraryGetKernel 0, l, b"store"
    kernel, library null | cuLibraryGetKernel out, 0, b"store"
    kernel, name null | cuLibraryGetKernel out, l, 0
    kernel, no such | cuLibraryGetKernel out, l, b"nothing"
    kernel count null | cuLibraryGetKernelCount 0, l
    kernel count, library null | cuLibraryGetKernelCount out, 0
    enumerate null | cuLibraryEnumerateKernels 0, 1, l
    enumerate none | cuLibraryEnumerateKernels out, 0, l
    module null | cuLibraryGetModule 0, l
    module, library null | cuLibraryGetModule out, 0
    global both null | cuLibraryGetGlobal 0, 0, l, b"counter"
    global, name null | cuLibraryGetGlobal out, out, l, 0
    global, library null | cuLibraryGetGlobal out, out, 0, b"counter"
    global, no such | cuLibraryGetGlobal out, out, l, b"nothing"
    global, constant | cuLibraryGetGlobal out, out, l, b"table"
    global, managed | cuLibraryGetGlobal out, out, l, b"common"
    global, hidden | cuLibraryGetGlobal out, out, l, b"hidden"
    managed | cuLibraryGetManaged out, out, l, b"common"
    managed, of a global | cuLibraryGetManaged out, out, l, b"counter"
    managed, no such | cuLibraryGetManaged out, out, l, b"nothing"
    unified function | cuLibraryGetUnifiedFunction out, l, b"store"
    unified function, no such | cuLibraryGetUnifiedFunction out, l, b"nothing"
    unified function null | cuLibraryGetUnifiedFunction 0, l, b"store"
    function null | cuKernelGetFunction 0, k
    function of null | cuKernelGetFunction out, 0
    library null | cuKernelGetLibrary 0, k
    library of null | cuKernelGetLibrary out, 0
    name null | cuKernelGetName 0, k
    name of null | cuKernelGetName out, 0
    parameter, no offset | cuKernelGetParamInfo k, 0, 0, out
    parameter, no size | cuKernelGetParamInfo k, 0, out, 0
    parameter too far | cuKernelGetParamInfo k, 2, out, out
    parameter of null | cuKernelGetParamInfo 0, 0, out, out
    attribute null | cuKernelGetAttribute 0, 0, k, 0
    attribute of null | cuKernelGetAttribute out, 0, 0, 0
    attribute, no such device | cuKernelGetAttribute out, 0, k, 99
    attribute 99 | cuKernelGetAttribute out, 99, k, 0
    set attribute | cuKernelSetAttribute 8, 60000, k, 0
    set attribute, no such device | cuKernelSetAttribute 8, 60000, k, 99
    set attribute of null | cuKernelSetAttribute 8, 60000, 0, 0
    set attribute too large | cuKernelSetAttribute 8, 1 << 30, k, 0
    cache | cuKernelSetCacheConfig k, 1, 0
    cache 4 | cuKernelSetCacheConfig k, 4, 0
    cache of null | cuKernelSetCacheConfig 0, 1, 0
    cache, no such device | cuKernelSetCacheConfig k, 1, 99
""",
    lambda p: _handles(p),
)


def _handles(p):
    library = load_library(p)
    return {
        "l": library,
        "k": p.need("cuLibraryGetKernel", OUT, library, b"store"),
        "text": p.image,
        "words": p.keep(image("this is no PTX")),
        "empty": p.keep(image("")),
        "ints": lambda *values: p.keep((ctypes.c_int * len(values))(*values)),
    }


@question("without a context", setup="initialised", alone=True)
def _(p):
    library = load_library(p)
    kernel = p.need("cuLibraryGetKernel", OUT, library, b"store")
    out = p.cell()
    return {
        "count": p.get("cuLibraryGetKernelCount", INT, library) == KERNELS,
        "module": p("cuLibraryGetModule", out, library),
        "function": p("cuKernelGetFunction", out, kernel),
        "global": p("cuLibraryGetGlobal", out, out, library, b"counter"),
        "managed": p("cuLibraryGetManaged", out, out, library, b"common"),
        "attribute": p("cuKernelGetAttribute", out, 0, kernel, 0),
        "launch": launch(p, kernel),
        "unload": p("cuLibraryUnload", library),
    }


@question("kernels and functions")
def _(p):
    library = load_library(p)
    kernel = p.need("cuLibraryGetKernel", OUT, library, b"store")
    module = p.need("cuLibraryGetModule", OUT, library)
    found = p.need("cuKernelGetFunction", OUT, kernel)
    name = ctypes.c_char_p()
    p.must("cuKernelGetName", ctypes.byref(name), kernel)
    return {
        "same kernel": p.get("cuLibraryGetKernel", OUT, library, b"store") == kernel,
        "same function": found == function(p, "store", module),
        "function's module": p.get("cuFuncGetModule", OUT, found) == module,
        "library": p.get("cuKernelGetLibrary", OUT, kernel) == library,
        "name": name.value.decode(),
        "same module": p.get("cuLibraryGetModule", OUT, library) == module,
    }


@question("the module of a library is unloaded", alone=True)
def _(p):
    library = load_library(p)
    module = p.need("cuLibraryGetModule", OUT, library)
    return p("cuModuleUnload", module)


@question("attributes of a kernel and of its function")
def _(p):
    library = load_library(p)
    kernel = p.need("cuLibraryGetKernel", OUT, library, b"store")
    first = p.need("cuKernelGetFunction", OUT, kernel)
    p.must("cuKernelSetAttribute", 8, 60000, kernel, 0)
    found = [p.get("cuKernelGetAttribute", INT, 8, kernel, 0)]
    found.append(p.get("cuFuncGetAttribute", INT, 8, first))
    p.must("cuFuncSetAttribute", first, 8, 50000)
    found.append(p.get("cuKernelGetAttribute", INT, 8, kernel, 0))
    found.append(p.get("cuFuncGetAttribute", INT, 8, first))
    return found


@question("each context has its own variables")
def _(p):
    library = load_library(p)
    one = p.need("cuLibraryGetGlobal", OUT, OUT, library, b"counter")[0]
    shared = p.need("cuLibraryGetManaged", OUT, OUT, library, b"common")[0]
    p.context()
    other = p.need("cuLibraryGetGlobal", OUT, OUT, library, b"counter")[0]
    same = p.need("cuLibraryGetManaged", OUT, OUT, library, b"common")[0]
    p("cuCtxPopCurrent_v2", p.cell())
    return one == other, shared == same


@question("an unloaded library", alone=True)
def _(p):
    library = load_library(p)
    p.need("cuLibraryGetKernel", OUT, library, b"store")
    return p.release(library), p("cuLibraryGetKernel", p.cell(), library, b"store")


@question("unload of a library behind held work")
def _(p):
    stream, library = p.stream(), load_library(p)
    kernel = p.need("cuLibraryGetKernel", OUT, library, b"empty")
    p.must("cuLaunchKernel", kernel, 1, 1, 1, 1, 1, 1, 0, stream, 0, 0)
    p.must("cuStreamSynchronize", stream)
    p.gate(stream)
    p.must("cuLaunchKernel", kernel, 1, 1, 1, 1, 1, 1, 0, stream, 0, 0)
    return p.blocks("cuLibraryUnload", library)


section.calls(
    """
    link null | cuLinkCreate_v2 0, 0, 0, 0
    link, options null | cuLinkCreate_v2 1, 0, 0, out
    link, first version null | cuLinkCreate 0, 0, 0, 0
    link add to null | cuLinkAddData_v2 0, 1, text, size, 0, 0, 0, 0
    link add null | cuLinkAddData_v2 l, 1, 0, size, 0, 0, 0, 0
    link add of size 0 | cuLinkAddData_v2 l, 1, text, 0, 0, 0, 0, 0
    link add without the zero | cuLinkAddData_v2 l, 1, text, size - 1, 0, 0, 0, 0
    link add | cuLinkAddData_v2 l, 1, text, size, b"name", 0, 0, 0
    link add type -1 | cuLinkAddData_v2 l, -1, text, size, 0, 0, 0, 0
    link add type 6 | cuLinkAddData_v2 l, 6, text, size, 0, 0, 0, 0
    link add text as cubin | cuLinkAddData_v2 l, 0, text, size, 0, 0, 0, 0
    link add text as object | cuLinkAddData_v2 l, 3, text, size, 0, 0, 0, 0
    link add text as fatbin | cuLinkAddData_v2 l, 2, text, size, 0, 0, 0, 0
    link add words | cuLinkAddData_v2 l, 1, words, 14, 0, 0, 0, 0
    link add no file | cuLinkAddFile_v2 l, 1, b"/nothing/here", 0, 0, 0
    link add file null | cuLinkAddFile_v2 l, 1, 0, 0, 0, 0
    link complete null | cuLinkComplete 0, out, out
    link complete, image null | cuLinkComplete l, 0, out
    link complete of nothing | cuLinkComplete l, out, out
    link destroy null | cuLinkDestroy 0
""",
    lambda p: {
        "l": _link(p),
        "text": p.keep(image(TEXT)),
        "size": len(TEXT) + 1,
        "words": p.keep(image("this is no PTX")),
    },
)


def _link(p):
    return p.make("cuLinkDestroy", "cuLinkCreate_v2", 0, 0, 0, OUT)


def _complete(p, *texts):
    """Links texts. Returns all statuses, the image and its size (or zeros), and the link."""
    link, found = _link(p), []
    for text in texts:
        found.append(p("cuLinkAddData_v2", link, 1, p.keep(image(text)), len(text) + 1, 0, 0, 0, 0))
    made, size = ctypes.c_uint64(), ctypes.c_size_t()
    found.append(p("cuLinkComplete", link, ctypes.byref(made), ctypes.byref(size)))
    return found, made.value, size.value, link


@question("link of two texts")
def _(p):
    found, made, size, _ = _complete(p, NEAR, FAR)
    if found[-1] != "SUCCESS":
        return found
    module = p.make("cuModuleUnload", "cuModuleLoadData", OUT, made)
    target = p.device()
    kernel = function(p, "near", module)
    cells = p.keep((ctypes.c_void_p * 1)(ctypes.addressof(p.keep(ctypes.c_uint64(target)))))
    return found, size > 0, launch(p, kernel, cells), p.read(target, 4)


@question("link in the other order")
def _(p):
    return _complete(p, FAR, NEAR)[0]


@question("link with a missing function")
def _(p):
    return _complete(p, NEAR)[0]


@question("link with a function twice")
def _(p):
    return _complete(p, NEAR, FAR, FAR)[0]


@question("link completed twice")
def _(p):
    found, _, _, link = _complete(p, NEAR, FAR)
    return found, p("cuLinkComplete", link, p.cell(), p.cell())


@question("link added to after its completion")
def _(p):
    found, _, _, link = _complete(p, NEAR, FAR)
    text = p.keep(image(TEXT))
    return found, p("cuLinkAddData_v2", link, 1, text, len(TEXT) + 1, 0, 0, 0, 0)


@question("a function of a linked module by name")
def _(p):
    made = _complete(p, NEAR, FAR)[1]
    module = p.make("cuModuleUnload", "cuModuleLoadData", OUT, made)
    out = p.cell()
    return (
        p("cuModuleGetFunction", out, module, b"near"),
        p("cuModuleGetFunction", out, module, b"far"),
        p("cuModuleGetGlobal_v2", out, out, module, b"far_number"),
    )


@question("what a link makes is machine code")
def _(p):
    _, made, size, _ = _complete(p, FAR, NEAR)
    return ctypes.string_at(made, 4) == b"\x7fELF" if size > 4 else "nothing"
