"""Texture and surface references: modules that declare them, and what kernels read through them."""

import ctypes

import numpy
import pytest
from texture_kernels import RESULT

from .arrays import FORMATS, SURFACE, Descriptor, filled, level_of, make_mipmap, read, write
from .client import ILLEGAL_ADDRESS, INVALID_HANDLE, INVALID_VALUE, SUCCESS
from .textures import AS_INTEGER, BORDER, CLAMP, LINEAR, NORMALIZED, POINT, run_kernel, text_of

NOT_FOUND, INVALID_PTX = 500, 218
OVERRIDE_FORMAT = 1
DECLARED = ".global .texref tex; .global .texref other; .global .surfref surf; .global .u32 plain;"
PLANE = f"tex.2d.v4.f32.f32 {RESULT}, [tex, {{%f1, %f2}}];"


def with_references(body, declared=DECLARED, **options):
    return text_of(body, **options).replace(b".visible", declared.encode() + b"\n.visible", 1)


def loaded(client, body, **options):
    """A module with references, and its kernel."""
    module = client.module(with_references(body, **options))
    return module, client.function(module, "k")


def reference(client, module, name="tex", surface=False):
    handle = ctypes.c_void_p()
    function = "cuModuleGetSurfRef" if surface else "cuModuleGetTexRef"
    client.ok(function, ctypes.byref(handle), module, name.encode())
    return handle.value


def floats(client, function, words):
    return run_kernel(client, function, 0, numpy.asarray(words, "f4")).view("f4")


def plane(*shape, seed=0):
    return numpy.random.default_rng(seed).uniform(-4, 4, (1, *shape)).astype("f4")


CENTERS = [(x + 0.5, y + 0.5) for y in range(3) for x in range(5)]


def test_array(client):
    module, function = loaded(client, PLANE)
    content = plane(3, 5, 4)
    array = filled(client, content, extents=(5, 3, 0))
    texture = reference(client, module)
    client.ok("cuTexRefSetArray", texture, array, OVERRIDE_FORMAT)
    assert (floats(client, function, CENTERS) == content.reshape(-1, 4)).all()
    found, channels, kind = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_int()
    client.ok("cuTexRefGetArray", ctypes.byref(found), texture)
    client.ok("cuTexRefGetFormat", ctypes.byref(kind), ctypes.byref(channels), texture)
    assert (found.value, kind.value, channels.value) == (array, FORMATS["f4"], 4)


def test_reading(client):
    """Filter, address mode, border color and flags can be set before or after binding."""
    module, function = loaded(client, PLANE)
    content = numpy.arange(16, dtype="f4").reshape(1, 4, 4)
    texture = reference(client, module)
    client.ok("cuTexRefSetFlags", texture, NORMALIZED)
    client.ok("cuTexRefSetArray", texture, filled(client, content, extents=(4, 4, 0)), 1)
    client.ok("cuTexRefSetFilterMode", texture, LINEAR)
    color = (ctypes.c_float * 4)(7, 0, 0, 0)
    client.ok("cuTexRefSetBorderColor", texture, color)
    for dimension in range(3):
        client.ok("cuTexRefSetAddressMode", texture, dimension, BORDER)
    found = floats(client, function, [(0.5, 0.5), (2, 2)])[:, 0]
    assert found.tolist() == [content.mean(), 7]
    client.ok("cuTexRefSetAddressMode", texture, 0, CLAMP)
    client.ok("cuTexRefSetAddressMode", texture, 1, CLAMP)
    assert floats(client, function, [(2, 2)])[0, 0] == 15
    mode, flags = ctypes.c_int(), ctypes.c_uint()
    for name, wanted in [("AddressMode", CLAMP), ("FilterMode", LINEAR)]:
        more = (0,) if name == "AddressMode" else ()
        client.ok(f"cuTexRefGet{name}", ctypes.byref(mode), texture, *more)
        assert mode.value == wanted
    client.ok("cuTexRefGetFlags", ctypes.byref(flags), texture)
    assert flags.value == NORMALIZED
    client.ok("cuTexRefGetBorderColor", color, texture)
    assert list(color) == [7, 0, 0, 0]


@pytest.mark.parametrize("kind, flags", [("u4", AS_INTEGER), ("u1", 0)])
def test_linear_memory(client, kind, flags):
    """Kernels read linear memory in the format that was set: as integers, or as fractions."""
    typed = "u32" if flags else "f32"
    module, function = loaded(client, f"tex.1d.v4.{typed}.s32 {RESULT}, [tex, {{%r1}}];")
    content = numpy.arange(200, dtype=kind)
    memory = client.device(content.nbytes)
    client.write(memory, content.tobytes())
    texture, address = reference(client, module), ctypes.c_uint64()
    client.ok("cuTexRefSetFormat", texture, FORMATS[kind], 1)
    client.ok("cuTexRefSetFlags", texture, flags)
    client.ok("cuTexRefSetAddress_v2", None, texture, memory, content.nbytes)
    found = run_kernel(client, function, 0, numpy.array([[3], [199]], "i4"))[:, 0]
    wanted = content[[3, 199]] if flags else (content[[3, 199]] / numpy.float32(255)).view("u4")
    assert (found == wanted).all()
    client.ok("cuTexRefGetAddress_v2", ctypes.byref(address), texture)
    assert address.value == memory


def test_offset(client):
    """Memory that does not begin at an aligned address has an offset that the kernel must add."""
    module, function = loaded(client, f"tex.1d.v4.f32.s32 {RESULT}, [tex, {{%r1}}];")
    content = numpy.arange(200, dtype="f4")
    memory = client.device(content.nbytes)
    client.write(memory, content.tobytes())
    texture, offset = reference(client, module), ctypes.c_size_t(1)
    arguments = (texture, memory + 16, content.nbytes - 16)
    assert client.call("cuTexRefSetAddress_v2", None, *arguments) == INVALID_VALUE
    client.ok("cuTexRefSetAddress_v2", ctypes.byref(offset), *arguments)
    assert offset.value == 16
    found = run_kernel(client, function, 0, numpy.array([[4 + 9]], "i4")).view("f4")
    assert found[0, 0] == content[4 + 9]


@pytest.mark.parametrize("function_name", ["cuTexRefSetAddress2D_v2", "cuTexRefSetAddress2D_v3"])
def test_pitched_memory(client, function_name):
    module, function = loaded(client, PLANE)
    content = plane(3, 128, seed=1)[0]
    memory = client.device(content.nbytes)
    client.write(memory, content.tobytes())
    described = Descriptor(5, 3, FORMATS["f4"], 1)
    texture = reference(client, module)
    client.ok(function_name, texture, ctypes.byref(described), memory, 512)
    found = floats(client, function, CENTERS)[:, 0]
    assert (found == content[:, :5].ravel()).all()


def test_mipmapped_array(client):
    module, function = loaded(
        client, f"tex.level.2d.v4.f32.f32 {RESULT}, [tex, {{%f1, %f2}}], %f3;"
    )
    mipmap = make_mipmap(client, 2, 4, 4, kind="f4")
    for level, value in enumerate((1.0, 5.0)):
        size = 4 >> level
        write(client, level_of(client, mipmap, level), numpy.full((1, size, size), value, "f4"))
    texture, found = reference(client, module), ctypes.c_void_p()
    client.ok("cuTexRefSetFlags", texture, NORMALIZED)
    client.ok("cuTexRefSetMipmapFilterMode", texture, LINEAR)
    client.ok("cuTexRefSetMipmapLevelClamp", texture, 0.0, 1.0)
    client.ok("cuTexRefSetMipmappedArray", texture, mipmap, OVERRIDE_FORMAT)
    levels = [(0.5, 0.5, 0), (0.5, 0.5, 0.5), (0.5, 0.5, 1)]
    assert floats(client, function, levels)[:, 0].tolist() == [1, 3, 5]
    client.ok("cuTexRefSetMipmapLevelBias", texture, 1.0)
    assert floats(client, function, levels)[:, 0].tolist() == [5, 5, 5]
    client.ok("cuTexRefGetMipmappedArray", ctypes.byref(found), texture)
    assert found.value == mipmap


def test_surface(client):
    body = "suld.b.2d.b32.trap %r11, [surf, {%r1, %r2}]; add.u32 %r12, %r11, 1;"
    body += "sust.b.2d.b32.trap [surf, {%r1, %r2}], %r12; suq.width.b32 %r13, [surf];"
    module, function = loaded(client, body)
    content = numpy.arange(15, dtype="u4").reshape(1, 3, 5)
    array = filled(client, content, extents=(5, 3, 0), flags=SURFACE)
    surface, found = reference(client, module, "surf", surface=True), ctypes.c_void_p()
    client.ok("cuSurfRefSetArray", surface, array, 0)
    words = run_kernel(client, function, 0, numpy.array([[8, 1]], "i4"))
    assert words[0].tolist() == [7, 8, 5, 0]
    assert read(client, array, (1, 3, 5), "u4")[0, 1, 2] == 8
    client.ok("cuSurfRefGetArray", ctypes.byref(found), surface)
    assert found.value == array


@pytest.mark.parametrize(
    "declared, version",
    [(".tex .u64 tex;", "1.4"), (".tex .u32 tex;", "1.4"), (".global .texref tex;", "1.5")],
)
def test_ptx_of_old_versions(client, declared, version):
    """PTX 1 has a state space of textures, and four coordinates whatever the geometry is."""
    body = f"tex.2d.v4.f32.f32 {RESULT}, [tex, {{%f1, %f2, %f3, %f4}}];"
    module, function = loaded(client, body, declared=declared, version=version)
    content = plane(3, 5, seed=2)
    array = filled(client, content, extents=(5, 3, 0))
    client.ok("cuTexRefSetArray", reference(client, module), array, OVERRIDE_FORMAT)
    assert (floats(client, function, CENTERS)[:, 0] == content.ravel()).all()


def test_handle_in_a_register(client):
    """Of two references, the kernel chooses one."""
    body = "mov.u64 %rd5, tex; mov.u64 %rd6, other; setp.eq.u32 %p2, %r3, 0;"
    body += f"selp.b64 %rd7, %rd5, %rd6, %p2; tex.2d.v4.f32.f32 {RESULT}, [%rd7, {{%f1, %f2}}];"
    module, function = loaded(client, body)
    contents = [plane(3, 5, seed=3), plane(3, 5, seed=4)]
    for name, content in zip(("tex", "other"), contents, strict=True):
        array = filled(client, content, extents=(5, 3, 0))
        client.ok("cuTexRefSetArray", reference(client, module, name), array, OVERRIDE_FORMAT)
    for chosen in (0, 1):
        words = [(x, y, chosen) for x, y in CENTERS]
        assert (floats(client, function, words)[:, 0] == contents[chosen].ravel()).all()


def test_what_is_bound_at_the_launch_counts(client):
    """A queued launch reads what was bound at its call, under every schedule."""
    module, function = loaded(client, PLANE)
    texture, stream, gate = reference(client, module), client.stream(), client.gate()
    source, target = client.device(16), client.device(32)
    client.write(source, numpy.array([0.5, 0.5, 0, 0], "f4").tobytes())
    arrays = [
        filled(client, numpy.full((1, 1, 1), value, "f4"), extents=(1, 1, 0)) for value in (1, 2)
    ]
    gate.hold(stream)
    for place, array in enumerate(arrays):
        client.ok("cuTexRefSetArray", texture, array, OVERRIDE_FORMAT)
        count = ctypes.c_uint(1)
        assert client.launch(function, stream, 0, source, target + 16 * place, count) == SUCCESS
    gate.open()
    found = numpy.frombuffer(client.read(target, 32), "f4").reshape(2, 4)
    assert found[:, 0].tolist() == [1, 2]


def test_look_ups(client):
    module, _ = loaded(client, PLANE)
    assert reference(client, module) == reference(client, module)
    found, size = ctypes.c_uint64(), ctypes.c_size_t()
    names = [
        ("cuModuleGetTexRef", "surf"),
        ("cuModuleGetTexRef", "plain"),
        ("cuModuleGetSurfRef", "tex"),
    ]
    for name, wanted in names:
        assert client.call(name, ctypes.byref(found), module, wanted.encode()) == NOT_FOUND
    assert client.call("cuModuleGetTexRef", ctypes.byref(found), None, b"tex") == INVALID_HANDLE
    assert client.call("cuModuleGetTexRef", ctypes.byref(found), module, b"") == INVALID_VALUE
    for wanted in (b"tex", b"surf"):
        arguments = (ctypes.byref(found), ctypes.byref(size), module, wanted)
        assert client.call("cuModuleGetGlobal_v2", *arguments) == INVALID_VALUE, wanted


def test_created(client):
    """References can be created without a module."""
    made, mode = ctypes.c_void_p(), ctypes.c_int(9)
    client.ok("cuTexRefCreate", ctypes.byref(made))
    client.ok("cuTexRefGetFilterMode", ctypes.byref(mode), made)
    assert mode.value == POINT
    client.ok("cuTexRefDestroy", made)


def test_only_created_references_are_destroyed(software, client):
    """A real driver may use the memory of an object that is gone, so it is not asked."""
    made = ctypes.c_void_p()
    client.ok("cuTexRefCreate", ctypes.byref(made))
    client.ok("cuTexRefDestroy", made)
    assert client.call("cuTexRefDestroy", made) == INVALID_VALUE
    module, _ = loaded(client, PLANE)
    assert client.call("cuTexRefDestroy", reference(client, module)) == INVALID_VALUE


def test_parameters(client):
    """cuParamSetTexRef needs a reference to which something is bound."""
    module, function = loaded(client, PLANE)
    texture = reference(client, module)
    assert client.call("cuParamSetTexRef", function, -1, None) == INVALID_HANDLE
    assert client.call("cuParamSetTexRef", function, -1, texture) == INVALID_VALUE
    array = filled(client, plane(3, 5), extents=(5, 3, 0))
    client.ok("cuTexRefSetArray", texture, array, OVERRIDE_FORMAT)
    client.ok("cuParamSetTexRef", function, -1, texture)
    client.ok("cuParamSetTexRef", function, 0, texture)


@pytest.mark.parametrize("bound", [False, True])
def test_nothing_to_read(lost, bound):
    """At the launch nothing is bound, or the bound array is already destroyed."""
    module, function = loaded(lost, PLANE)
    memory, count, stream = lost.device(16), ctypes.c_uint(1), lost.stream()
    if bound:
        array = filled(lost, plane(3, 5), extents=(5, 3, 0))
        lost.ok("cuTexRefSetArray", reference(lost, module), array, OVERRIDE_FORMAT)
        lost.ok("cuArrayDestroy", array)
        lost.forget("cuArrayDestroy", array)
    assert lost.launch(function, stream, 0, memory, memory, count) == SUCCESS
    assert lost.call("cuStreamSynchronize", stream) == ILLEGAL_ADDRESS
    said = "what is bound to" if bound else "nothing is bound to"
    assert f"{said} the texture reference 'tex'" in lost.lib.fault_text()


@pytest.mark.parametrize(
    "body",
    [
        "ld.global.u64 %rd5, [tex];",
        f"tex.2d.v4.f32.f32 {RESULT}, [surf, {{%f1, %f2}}];",
        f"tex.2d.v4.f32.f32 {RESULT}, [plain, {{%f1, %f2}}];",
        f"tex.2d.v4.f32.f32 {RESULT}, [tex+8, {{%f1, %f2}}];",
        f"tex.2d.v4.f32.f32 {RESULT}, [tex, {{%f1}}];",
        "suld.b.2d.b32.trap %r11, [tex, {%r1, %r2}];",
    ],
)
def test_refused(client, body):
    """NVIDIA's compiler refuses these texts, too."""
    module, text = ctypes.c_void_p(), with_references(body)
    assert client.call("cuModuleLoadData", ctypes.byref(module), text) == INVALID_PTX


@pytest.mark.parametrize(
    "declared, version",
    [(".tex .u64 tex;", "1.5"), (".tex .u32 tex;", "7.5"), (".tex .s32 tex;", "1.4")],
)
def test_refused_declarations(client, declared, version):
    """A .tex has the type .u32 or .u64, and has not existed since PTX 1.5."""
    body = f"tex.2d.v4.f32.f32 {RESULT}, [tex, {{%f1, %f2, %f3, %f4}}];"
    module, text = ctypes.c_void_p(), with_references(body, declared, version=version)
    assert client.call("cuModuleLoadData", ctypes.byref(module), text) == INVALID_PTX
