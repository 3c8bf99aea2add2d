"""The state of a context after wrong uses of textures and surfaces, each in its own process."""

from section import Section
from texture_tools import (
    CUBEMAP,
    GATHER,
    LAYERED,
    NORMALIZED,
    RESULT,
    SURFACE,
    array,
    mipmap,
    of_array,
    of_linear,
    of_mipmap,
    reading,
    run,
    surface,
    tex,
    texture,
    words,
)

section = Section("texture_faults")


def plane(p, flags=0, **of):
    return array(p, 16, 8, kind="u4", flags=flags | SURFACE, **of)


def gone(p, handle):
    p.release(handle)
    return handle


def of_gone_array(p):
    held = plane(p)
    handle = texture(p, of_array(held), reading(flags=1))
    p.release(held)
    return handle


def surface_of_gone_array(p):
    held = plane(p)
    handle = surface(p, held)
    p.release(held)
    return handle


def of_gone_memory(p):
    memory = p.device(64 << 20)
    handle = texture(p, of_linear(memory, 64 << 20))
    p.release(memory)
    return handle


def of_another_context(p):
    handle = texture(p, of_array(plane(p)))
    p.context()
    return handle


READ = tex("2d", "u32")
LOAD = "suld.b.2d.b32.{} %r11, [%rd1, {{%r1, %r2}}];"
STORE = "sust.b.2d.b32.{} [%rd1, {{%r1, %r2}}], 9;"
FORMATTED = "sust.p.2d.b32.{} [%rd1, {{%r1, %r2}}], 9;"
REDUCE = "sured.b.add.2d.u32.{} [%rd1, {{%r1, %r2}}], 9;"
FAULTS = {
    "texture that is gone": (lambda p: gone(p, texture(p, of_array(plane(p)))), READ, (0, 0)),
    "texture 0": (lambda p: 0, READ, (0, 0)),
    "texture 0x1234": (lambda p: 0x1234, READ, (0, 0)),
    "texture 2^40": (lambda p: 1 << 40, READ, (0, 0)),
    "texture of an array that is gone": (of_gone_array, READ, (0, 0)),
    "texture of memory that is gone": (of_gone_memory, tex("1d", "s32", "s32"), (5, 0)),
    "texture of another context": (of_another_context, READ, (0, 0)),
    "texture that is a surface": (lambda p: surface(p, plane(p)), READ, (0, 0)),
    "surface that is gone": (lambda p: gone(p, surface(p, plane(p))), LOAD.format("trap"), (0, 0)),
    "surface 0": (lambda p: 0, LOAD.format("trap"), (0, 0)),
    "surface 0x1234": (lambda p: 0x1234, LOAD.format("trap"), (0, 0)),
    "surface of an array that is gone": (surface_of_gone_array, LOAD.format("trap"), (0, 0)),
    "surface that is a texture": (
        lambda p: texture(p, of_array(plane(p))),
        LOAD.format("trap"),
        (0, 0),
    ),
    "load, x below": (lambda p: surface(p, plane(p)), LOAD.format("trap"), (-4, 0)),
    "load, x beyond": (lambda p: surface(p, plane(p)), LOAD.format("trap"), (64, 0)),
    "load, y beyond": (lambda p: surface(p, plane(p)), LOAD.format("trap"), (0, 8)),
    "load, not aligned": (lambda p: surface(p, plane(p)), LOAD.format("trap"), (6, 0)),
    "load, clamp, not aligned": (lambda p: surface(p, plane(p)), LOAD.format("clamp"), (6, 0)),
    "load, zero, not aligned": (lambda p: surface(p, plane(p)), LOAD.format("zero"), (6, 0)),
    "store, x beyond": (lambda p: surface(p, plane(p)), STORE.format("trap"), (64, 0)),
    "store, not aligned": (lambda p: surface(p, plane(p)), STORE.format("trap"), (6, 0)),
    "store, zero, not aligned": (lambda p: surface(p, plane(p)), STORE.format("zero"), (6, 0)),
    "formatted store, x beyond": (
        lambda p: surface(p, plane(p)),
        FORMATTED.format("trap"),
        (16, 0),
    ),
    "reduction, x beyond": (lambda p: surface(p, plane(p)), REDUCE.format("trap"), (64, 0)),
    "reduction, not aligned": (lambda p: surface(p, plane(p)), REDUCE.format("trap"), (6, 0)),
    "row of a plane": (lambda p: texture(p, of_array(plane(p))), tex("1d", "u32"), (0, 0)),
    "plane of a row": (lambda p: texture(p, of_array(array(p, 16, kind="u4"))), READ, (0, 0)),
    "volume of a plane": (lambda p: texture(p, of_array(plane(p))), tex("3d", "u32"), (0, 0)),
    "plane of layers": (
        lambda p: texture(p, of_array(array(p, 16, 8, 4, kind="u4", flags=LAYERED))),
        READ,
        (0, 0),
    ),
    "layers of a plane": (lambda p: texture(p, of_array(plane(p))), tex("a2d", "u32"), (0, 0)),
    "cube of a plane": (lambda p: texture(p, of_array(plane(p))), tex("cube", "u32"), (0, 0)),
    "plane of a cube": (
        lambda p: texture(
            p, of_array(array(p, 8, 8, 6, kind="u4", flags=CUBEMAP)), reading(flags=NORMALIZED)
        ),
        READ,
        (0, 0),
    ),
    "row of linear memory by floats": (
        lambda p: texture(p, of_linear(p.device(4096), 64)),
        tex("1d"),
        (0, 0),
    ),
    "plane of linear memory": (
        lambda p: texture(p, of_linear(p.device(4096), 64)),
        tex("2d"),
        (0, 0),
    ),
    "level of an array": (
        lambda p: texture(p, of_array(plane(p))),
        f"tex.level.2d.v4.u32.f32 {RESULT}, [%rd1, {{%f1, %f2}}], %f3;",
        (0, 0),
    ),
    "plane of levels": (
        lambda p: texture(p, of_mipmap(mipmap(p, 3, 16, 8, kind="u4")), reading(flags=NORMALIZED)),
        READ,
        (0, 0),
    ),
    "gather of an array without the flag": (
        lambda p: texture(p, of_array(plane(p))),
        f"tld4.r.2d.v4.u32.f32 {RESULT}, [%rd1, {{%f1, %f2}}];",
        (0, 0),
    ),
    "gather of an array with the flag": (
        lambda p: texture(p, of_array(array(p, 16, 8, kind="u4", flags=GATHER))),
        f"tld4.r.2d.v4.u32.f32 {RESULT}, [%rd1, {{%f1, %f2}}];",
        (0, 0),
    ),
    "surface, row of a plane": (
        lambda p: surface(p, plane(p)),
        "suld.b.1d.b32.trap %r11, [%rd1, %r1];",
        (0, 0),
    ),
    "surface, plane of a row": (
        lambda p: surface(p, array(p, 16, kind="u4", flags=SURFACE)),
        LOAD.format("trap"),
        (0, 0),
    ),
    "surface, volume of a plane": (
        lambda p: surface(p, plane(p)),
        "suld.b.3d.b32.trap %r11, [%rd1, {%r1, %r2, %r3, %r3}];",
        (0, 0),
    ),
    "surface, layers of a plane": (
        lambda p: surface(p, plane(p)),
        "suld.b.a2d.b32.trap %r11, [%rd1, {%r3, %r1, %r2, %r2}];",
        (0, 0),
    ),
    "surface, plane of layers": (
        lambda p: surface(p, array(p, 16, 8, 4, kind="u4", flags=SURFACE | LAYERED)),
        LOAD.format("trap"),
        (0, 0),
    ),
    "surface, formatted store of 64 bits": (
        lambda p: surface(p, plane(p, channels=2)),
        FORMATTED.format("trap"),
        (0, 0),
    ),
    "surface of bytes, load of 32 bits": (
        lambda p: surface(p, array(p, 16, 8, flags=SURFACE)),
        LOAD.format("trap"),
        (4, 0),
    ),
    "surface of halves, formatted store": (
        lambda p: surface(p, array(p, 16, 8, kind="f2", flags=SURFACE)),
        FORMATTED.format("trap"),
        (4, 0),
    ),
    "trap": (lambda p: 0, "trap;", (0, 0)),
}


def _fault(p, handle, body, at):
    found = run(p, body, handle(p), [at])
    status = words(found, 4)
    return status, p("cuCtxSynchronize")


for _name, (_handle, _body, _at) in FAULTS.items():
    section.ask(_name, lambda p, h=_handle, b=_body, a=_at: _fault(p, h, b, a), alone=True)
