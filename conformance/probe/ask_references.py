"""Texture and surface references: which functions find them, and cuParamSetTexRef."""

from driver import OUT
from kernels import HEAD, entry, function, load, load_library
from section import Section

section = Section("references")

BODY = """.reg .f32 %f<4>; .reg .b32 %r<4>;
    mov.f32 %f0, 0f00000000;
    tex.1d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [tex, %f0]; suq.width.b32 %r1, [surf];"""
TEXT = HEAD + ".global .texref tex;\n.global .surfref surf;\n" + entry("k", body=BODY)
FLOAT = 0x20


def _names(p):
    module = load(p, TEXT)
    return {
        "m": module,
        "k": function(p, "k", module),
        "tex": p.need("cuModuleGetTexRef", OUT, module, b"tex"),
        "surf": p.need("cuModuleGetSurfRef", OUT, module, b"surf"),
    }


section.calls(
    """
    global, of a texture | cuModuleGetGlobal_v2 out, out, m, b"tex"
    global, of a surface | cuModuleGetGlobal_v2 out, out, m, b"surf"
    kernel, of a texture | cuModuleGetFunction out, m, b"tex"
    texture, of a surface | cuModuleGetTexRef out, m, b"surf"
    texture, of a kernel | cuModuleGetTexRef out, m, b"k"
    surface, of a texture | cuModuleGetSurfRef out, m, b"tex"
    surface, of a kernel | cuModuleGetSurfRef out, m, b"k"
    parameter, nothing bound | cuParamSetTexRef k, -1, tex
    parameter 0, nothing bound | cuParamSetTexRef k, 0, tex
    parameter, kernel null | cuParamSetTexRef 0, -1, tex
    array null | cuTexRefSetArray tex, 0, 1
    address of a texture, nothing bound | cuTexRefGetAddress_v2 out, tex
    array of a texture, nothing bound | cuTexRefGetArray out, tex
    array of a surface, nothing bound | cuSurfRefGetArray out, surf
""",
    _names,
)
section.calls(
    """
    library: global, of a texture | cuLibraryGetGlobal out, out, l, b"tex"
    library: global, of a surface | cuLibraryGetGlobal out, out, l, b"surf"
""",
    lambda p: {"l": load_library(p, TEXT)},
)


def _bound(p):
    """The names, after linear memory was bound to the texture."""
    names = _names(p)
    p.must("cuTexRefSetFormat", names["tex"], FLOAT, 1)
    p.must("cuTexRefSetAddress_v2", p.cell(), names["tex"], p.device(), 16)
    return names


section.calls(
    """
    bound: parameter | cuParamSetTexRef k, -1, tex
    bound: parameter 0 | cuParamSetTexRef k, 0, tex
    bound: address of a texture | cuTexRefGetAddress_v2 out, tex
    bound: array of a texture | cuTexRefGetArray out, tex
""",
    _bound,
)


@section.question("created: parameter, nothing bound")
def _(p):
    made = p.make("cuTexRefDestroy", "cuTexRefCreate", OUT)
    return p("cuParamSetTexRef", function(p, "k", load(p, TEXT)), -1, made)
