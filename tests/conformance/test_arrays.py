"""Arrays and mipmapped arrays, and copies from and to them."""

import ctypes
import random

import numpy
import pytest

from .arrays import (
    CUBEMAP,
    FORMATS,
    FRACTIONS,
    GATHER,
    LAYERED,
    SPARSE,
    SURFACE,
    Descriptor,
    Descriptor3D,
    descriptor,
    filled,
    level_of,
    make,
    make_mipmap,
    read,
    write,
)
from .boxes import ARRAY, DEVICE, HOST, Copy2D, Copy3D
from .client import CONTEXT_IS_DESTROYED, INVALID_HANDLE, INVALID_VALUE, SUCCESS

RANDOM = numpy.random.default_rng(5)


def bytes_of(*shape):
    return RANDOM.integers(0, 256, shape, "u1")


def described(client, array):
    found = Descriptor3D()
    client.ok("cuArray3DGetDescriptor_v2", ctypes.byref(found), array)
    return tuple(getattr(found, name) for name, _ in Descriptor3D._fields_)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("channels", [1, 2, 4])
def test_formats(client, kind, channels):
    array = make(client, 7, 5, kind=kind, channels=channels)
    assert described(client, array) == (7, 5, 0, FORMATS[kind], channels, 0)
    flat = Descriptor()
    client.ok("cuArrayGetDescriptor_v2", ctypes.byref(flat), array)
    assert (flat.width, flat.height, flat.format, flat.channels) == (7, 5, FORMATS[kind], channels)
    content = bytes_of(1, 5, 7 * channels * numpy.dtype(kind).itemsize)
    write(client, array, content)
    assert (read(client, array, content.shape, "u1") == content).all()


SHAPES = [
    ((9, 0, 0), 0),
    ((9, 4, 0), 0),
    ((9, 4, 3), 0),
    ((9, 0, 3), LAYERED),
    ((9, 4, 3), LAYERED),
    ((4, 4, 6), CUBEMAP),
    ((4, 4, 12), CUBEMAP | LAYERED),
    ((9, 4, 0), GATHER),
    ((9, 4, 3), SURFACE),
]


@pytest.mark.parametrize(("extents", "flags"), SHAPES)
def test_shapes(client, extents, flags):
    array = make(client, *extents, kind="u2", flags=flags)
    assert described(client, array) == (*extents, FORMATS["u2"], 1, flags)
    shape = (max(1, extents[2]), max(1, extents[1]), extents[0])
    content = bytes_of(*shape[:2], 2 * shape[2]).view("u2")
    write(client, array, content)
    assert (read(client, array, shape, "u2") == content).all()


@pytest.mark.parametrize(
    ("extents", "options"),
    [
        ((0, 4, 0), {}),
        ((9, 0, 3), {}),  # layers without the flag for layers
        ((9, 4, 0), {"flags": LAYERED}),
        ((4, 4, 5), {"flags": CUBEMAP}),
        ((4, 5, 6), {"flags": CUBEMAP}),
        ((4, 4, 13), {"flags": CUBEMAP | LAYERED}),
        ((9, 4, 3), {"flags": GATHER}),
        ((9, 4, 0), {"channels": 3}),
        ((9, 4, 0), {"channels": 0}),
        ((1 << 24, 0, 0), {}),
        ((8, 1 << 20, 0), {}),
        ((8, 8, 1 << 17), {}),
        ((8, 8, 4096), {"flags": LAYERED}),
        ((9, 4, 0), {"flags": 1 << 30}),
    ],
)
def test_refused_shapes(client, extents, options):
    handle = ctypes.c_void_p()
    given = ctypes.byref(descriptor(*extents, **options))
    assert client.call("cuArray3DCreate_v2", ctypes.byref(handle), given) == INVALID_VALUE
    assert client.call("cuMipmappedArrayCreate", ctypes.byref(handle), given, 1) == INVALID_VALUE


@pytest.mark.parametrize("channels", [1, 2, 4])
@pytest.mark.parametrize("kind", FRACTIONS)
def test_formats_of_fractions(client, kind, channels):
    """The array has the format of the description, and copies move the integers."""
    content = numpy.arange(8 * channels, dtype=f"u{kind[-1]}").reshape(1, 1, 8, channels)
    array = make(client, 8, 1, kind=kind, channels=channels, flags=SURFACE)
    write(client, array, content)
    assert (read(client, array, content.shape, content.dtype) == content).all()
    found, made = Descriptor3D(), descriptor(8, 1, kind=kind, channels=channels, flags=SURFACE)
    client.ok("cuArray3DGetDescriptor_v2", ctypes.byref(found), array)
    assert bytes(found)[:36] == bytes(made)[:36]


def test_the_channels_of_fractions_are_those_of_the_format(software, client):
    handle = ctypes.c_void_p()
    for channels in (1, 4):
        given = descriptor(8, 8, kind="un1", channels=2)
        given.channels = channels
        made = ctypes.byref(handle), ctypes.byref(given)
        assert client.call("cuArray3DCreate_v2", *made) == INVALID_VALUE


def test_refused_formats(client):
    handle, given = ctypes.c_void_p(), descriptor(8, 8)
    given.format = 5
    arguments = ctypes.byref(handle), ctypes.byref(given)
    assert client.call("cuArray3DCreate_v2", *arguments) == INVALID_VALUE
    assert client.call("cuArray3DCreate_v2", None, arguments[1]) == INVALID_VALUE
    assert client.call("cuArray3DCreate_v2", arguments[0], None) == INVALID_VALUE
    assert client.call("cuArrayCreate_v2", arguments[0], None) == INVALID_VALUE


@pytest.mark.cuda_software
def test_what_is_not_implemented(client):
    handle, compressed = ctypes.c_void_p(), descriptor(64, 64)
    compressed.format = 0x91
    for given in (descriptor(64, 64, flags=SPARSE), compressed):
        made = ctypes.byref(handle), ctypes.byref(given)
        assert client.call("cuArray3DCreate_v2", *made) == 801


def test_flat_arrays(client):
    given = ctypes.byref(Descriptor(6, 0, FORMATS["f4"], 2))
    array = client._make("cuArrayDestroy", ctypes.c_void_p, "cuArrayCreate_v2", given)
    assert described(client, array) == (6, 0, 0, FORMATS["f4"], 2, 0)


def test_arrays_that_are_gone(client):
    array = make(client, 8)
    client.ok("cuArrayDestroy", array)
    client.forget("cuArrayDestroy", array)
    assert client.call("cuArrayDestroy", None) == INVALID_HANDLE
    if client.lib.software:  # a real driver may crash
        found = ctypes.byref(Descriptor3D())
        assert client.call("cuArrayDestroy", array) == CONTEXT_IS_DESTROYED
        assert client.call("cuArray3DGetDescriptor_v2", found, array) == CONTEXT_IS_DESTROYED
        assert client.call("cuMemcpyHtoA_v2", array, 0, bytes(8), 8) == INVALID_VALUE


def test_what_only_other_arrays_have(client):
    array, room = make(client, 8, 8), ctypes.create_string_buffer(256)
    mipmap = make_mipmap(client, 2, 8, 8)
    assert client.call("cuArrayGetPlane", room, array, 0) == INVALID_VALUE
    assert client.call("cuArrayGetSparseProperties", room, array) == INVALID_VALUE
    assert client.call("cuArrayGetMemoryRequirements", room, array, 0) == INVALID_VALUE
    assert client.call("cuMipmappedArrayGetSparseProperties", room, mipmap) == INVALID_VALUE
    assert client.call("cuMipmappedArrayGetMemoryRequirements", room, mipmap, 0) == INVALID_VALUE


def test_levels(client):
    mipmap = make_mipmap(client, 20, 12, 5, kind="u2")
    extents, contents = [(12, 5), (6, 2), (3, 1), (1, 1)], []
    arrays = [level_of(client, mipmap, level) for level in range(4)]
    for array, (width, height) in zip(arrays, extents, strict=True):
        assert described(client, array)[:3] == (width, height, 0)
        contents.append(bytes_of(1, height, 2 * width).view("u2"))
        write(client, array, contents[-1])
    for array, content in zip(arrays, contents, strict=True):
        assert (read(client, array, content.shape, "u2") == content).all()
    beyond = ctypes.c_void_p()
    assert client.call("cuMipmappedArrayGetLevel", ctypes.byref(beyond), mipmap, 4) == INVALID_VALUE


def test_layers_and_cubes_have_no_smaller_depth(client):
    layered = make_mipmap(client, 3, 8, 8, 5, flags=LAYERED)
    assert described(client, level_of(client, layered, 2))[:3] == (2, 2, 5)
    deep = make_mipmap(client, 9, 2, 2, 16)
    assert described(client, level_of(client, deep, 4))[:3] == (1, 1, 1)


@pytest.mark.cuda_software  # a real driver may crash
def test_levels_belong_to_their_array(client):
    mipmap = make_mipmap(client, 2, 8)
    level = level_of(client, mipmap, 1)
    if client.lib.software:  # a real driver destroys the level
        assert client.call("cuArrayDestroy", level) == INVALID_HANDLE
    client.ok("cuMipmappedArrayDestroy", mipmap)
    client.forget("cuMipmappedArrayDestroy", mipmap)
    assert client.call("cuMemcpyHtoA_v2", level, 0, bytes(4), 4) == INVALID_VALUE
    assert client.call("cuMipmappedArrayDestroy", mipmap) == CONTEXT_IS_DESTROYED


def test_rows(client):
    """The copy functions for one row: blocking, asynchronous, and from one array to another."""
    one, other = make(client, 64, kind="u4"), make(client, 64, kind="f4")
    data, stream = bytes_of(256), client.stream()
    memory, host = client.device(256), client.host(256)
    client.ok("cuMemcpyHtoA_v2", one, 0, data.ctypes.data, 256)
    client.ok("cuMemcpyAtoA_v2", other, 128, one, 4, 64)
    client.ok("cuMemcpyAtoA_v2", other, 0, one, 128, 128)
    client.ok("cuMemcpyAtoD_v2", memory, other, 8, 128)
    assert client.read(memory, 128) == bytes(data[136:256]) + bytes(data[4:12])
    client.ok("cuMemcpyDtoA_v2", one, 252, memory, 4)
    client.ok("cuCtxSynchronize")
    client.ok("cuMemcpyAtoHAsync_v2", host, one, 248, 8, stream)
    client.ok("cuStreamSynchronize", stream)
    assert ctypes.string_at(host, 8) == bytes(data[248:252]) + bytes(data[136:140])
    ctypes.memset(host, 7, 16)
    client.ok("cuMemcpyHtoAAsync_v2", one, 16, host, 16, stream)
    client.ok("cuStreamSynchronize", stream)
    back = ctypes.create_string_buffer(24)
    client.ok("cuMemcpyAtoH_v2", back, one, 12, 24)
    assert back.raw == bytes(data[12:16]) + b"\7" * 16 + bytes(data[32:36])


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("cuMemcpyHtoA_v2", ("array", 0, "host", 33)),
        ("cuMemcpyHtoA_v2", ("array", 28, "host", 8)),
        ("cuMemcpyAtoH_v2", ("host", "array", 33, 1)),
        ("cuMemcpyAtoA_v2", ("array", 0, "array", 16, 20)),
        ("cuMemcpyAtoD_v2", ("device", None, 0, 16)),
        ("cuMemcpyHtoA_v2", (None, 0, "host", 16)),
    ],
)
def test_refused_rows(client, name, arguments):
    assert client.call(name, *row(client, arguments)) == INVALID_VALUE


def row(client, arguments):
    things = {
        "array": make(client, 8, kind="u4"),
        "small": make(client, 8),
        "host": client.host(64),
        "device": client.device(64),
    }
    return [things[each] if isinstance(each, str) else each for each in arguments]


def status_of_parts(client):
    """The status of a copy of parts of elements.

    The documentation forbids such copies. Real drivers copy the bytes without an error.
    """
    return INVALID_VALUE if client.lib.software else SUCCESS


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("cuMemcpyAtoD_v2", ("device", "array", 0, 6)),
        ("cuMemcpyDtoA_v2", ("array", 0, "device", 6)),
        ("cuMemcpyAtoA_v2", ("array", 0, "small", 0, 4)),
    ],
)
def test_rows_with_parts_of_elements(client, name, arguments):
    assert client.call(name, *row(client, arguments)) == status_of_parts(client)


@pytest.mark.parametrize("name", ["cuMemcpy3D_v2", "cuMemcpy3DAsync_v2", "cuMemcpy2D_v2"])
def test_random_boxes(client, name):
    rng = random.Random(name)
    arguments = (client.stream(),) if "Async" in name else ()
    for _ in range(20):
        volume = [1 if "2D" in name else rng.randrange(1, 4), rng.randrange(1, 6), 6]
        contents = [bytes_of(*volume, 4) for _ in range(2)]
        extents = volume[::-1] if volume[0] > 1 else [*volume[:0:-1], 0]
        source, target = (filled(client, each, extents=extents) for each in contents)
        box = [rng.randrange(1, extent + 1) for extent in volume]
        copy = (Copy2D if "2D" in name else Copy3D)()
        wanted, places = contents[1].copy(), []
        for prefix, array in (("src", source), ("dst", target)):
            at = [rng.randrange(all_ - n + 1) for all_, n in zip(volume, box, strict=True)]
            values = {"MemoryType": ARRAY, "Array": array, "XInBytes": 4 * at[2], "Y": at[1]}
            for field, value in (values if "2D" in name else values | {"Z": at[0]}).items():
                setattr(copy, prefix + field, value)
            places.append(tuple(slice(b, b + n) for b, n in zip(at, box, strict=True)))
        copy.WidthInBytes, copy.Height = 4 * box[2], box[1]
        if "2D" not in name:
            copy.Depth = box[0]
        wanted[places[1]] = contents[0][places[0]]
        client.ok(name, ctypes.byref(copy), *arguments)
        client.ok("cuCtxSynchronize")
        assert (read(client, target, wanted.shape, "u1") == wanted).all()


def plane(client, **changes):
    """A copy of 4 rows of 4 elements of 4 bytes from device memory to an array of 8 x 5."""
    copy = Copy2D(srcMemoryType=DEVICE, dstMemoryType=ARRAY, WidthInBytes=16, Height=4)
    copy.srcDevice, copy.srcPitch = client.device(64), 16
    copy.dstArray = make(client, 8, 5, kind="u4")
    for name, value in changes.items():
        setattr(copy, name, value)
    return ctypes.byref(copy)


@pytest.mark.parametrize(
    "changes",
    [
        {"dstXInBytes": 20},
        {"dstY": 2},
        {"Height": 6},
        {"dstArray": None},
        {"srcMemoryType": ARRAY},
        {"srcMemoryType": 6},
    ],
    ids=str,
)
def test_refused_planes(client, changes):
    assert client.call("cuMemcpy2D_v2", plane(client)) == SUCCESS
    assert client.call("cuMemcpy2D_v2", plane(client, **changes)) == INVALID_VALUE
    stream = client.stream()
    assert client.call("cuMemcpy2DAsync_v2", plane(client, **changes), stream) == INVALID_VALUE


@pytest.mark.parametrize("changes", [{"dstXInBytes": 2}, {"WidthInBytes": 14}], ids=str)
def test_planes_with_parts_of_elements(client, changes):
    stream, wanted = client.stream(), status_of_parts(client)
    assert client.call("cuMemcpy2D_v2", plane(client, **changes)) == wanted
    assert client.call("cuMemcpy2DAsync_v2", plane(client, **changes), stream) == wanted
    client.ok("cuStreamSynchronize", stream)


@pytest.mark.cuda_software
def test_programs_have_no_address_of_arrays(program):
    """A report of a race shows the address of an array, but no function accepts this address."""
    array = make(program, 64)
    host, streams = program.host(64), [program.stream() for _ in range(2)]
    for stream in streams:
        program.ok("cuMemcpyHtoAAsync_v2", array, 0, host, 64, stream)
    program.ok("cuCtxSynchronize")
    race = program.lib.races()[0]
    assert "race on array memory 0x" in race
    address = int(race.partition("array memory ")[2].split()[0], 16)
    assert program.call("cuMemsetD8_v2", address, 0, 4) == INVALID_VALUE
    assert program.call("cuMemcpyDtoH_v2", bytes(4), address, 4) == INVALID_VALUE
    assert program.call("cuMemFree_v2", address) == INVALID_VALUE
    kind = ctypes.byref(ctypes.c_uint64())
    assert program.call("cuPointerGetAttribute", kind, 2, address) == INVALID_VALUE


def copies(program, array, streams, order=None):
    source, target = program.host(64), program.host(64)
    program.ok("cuMemcpyHtoAAsync_v2", array, 0, source, 64, streams[0])
    if order:
        event = program.event()
        program.ok("cuEventRecord", event, streams[0])
        program.ok("cuStreamWaitEvent", streams[1], event, 0)
    program.ok("cuMemcpyAtoHAsync_v2", target, array, 0, 64, streams[1])
    program.ok("cuCtxSynchronize")
    return program.lib.races()


def test_copies_of_arrays_race(program):
    streams = [program.stream() for _ in range(2)]
    races = copies(program, make(program, 64), streams)
    assert len(races) == 1
    assert "cuMemcpyAtoHAsync_v2" in races[0]
    assert "cuMemcpyHtoAAsync_v2" in races[0]


def test_ordered_copies_of_arrays_do_not_race(program):
    assert copies(program, make(program, 64), [program.stream() for _ in range(2)], True) == []


def test_a_free_races_with_copies(program):
    array, stream, source = make(program, 64), program.stream(), program.host(64)
    program.ok("cuMemcpyHtoAAsync_v2", array, 0, source, 64, stream)
    program.ok("cuArrayDestroy", array)
    program.forget("cuArrayDestroy", array)
    program.ok("cuCtxSynchronize")
    assert "cuArrayDestroy frees it" in program.lib.races()[0]


def test_copies_are_in_the_order_of_the_stream(client):
    array, stream, gate = make(client, 64), client.stream(), client.gate()
    first, last = client.host(64, fill=1), client.host(64, fill=2)
    back = client.host(64)
    gate.hold(stream)
    client.ok("cuMemcpyHtoAAsync_v2", array, 0, first, 64, stream)
    client.ok("cuMemcpyHtoAAsync_v2", array, 32, last, 32, stream)
    client.ok("cuMemcpyAtoHAsync_v2", back, array, 0, 64, stream)
    assert ctypes.string_at(back, 64) == bytes(64)
    gate.open()
    client.ok("cuStreamSynchronize", stream)
    assert ctypes.string_at(back, 64) == b"\1" * 32 + b"\2" * 32


def test_captured_copies(client):
    """A memcpy node returns the parameters of the captured copy, also for an array."""
    array, stream = make(client, 8, 6, 4), client.stream()
    write(client, array, numpy.zeros((4, 6, 8), "u1"))
    host = client.host(6, fill=9)
    copy = Copy3D(srcMemoryType=HOST, srcHost=host, dstMemoryType=ARRAY, dstArray=array)
    copy.dstXInBytes, copy.dstY, copy.dstZ = 2, 3, 1
    copy.WidthInBytes, copy.Height, copy.Depth = 3, 2, 1
    client.ok("cuStreamBeginCapture_v2", stream, 2)
    client.ok("cuMemcpy3DAsync_v2", ctypes.byref(copy), stream)
    graph = client._make("cuGraphDestroy", ctypes.c_void_p, "cuGraphCreate", 0)
    captured = ctypes.c_void_p()
    client.ok("cuStreamEndCapture", stream, ctypes.byref(captured))
    client.call("cuGraphDestroy", graph)
    client._undo[-1] = ("cuGraphDestroy", captured.value)
    nodes, count = (ctypes.c_void_p * 1)(), ctypes.c_size_t(1)
    client.ok("cuGraphGetNodes", captured, nodes, ctypes.byref(count))
    found = Copy3D()
    client.ok("cuGraphMemcpyNodeGetParams", ctypes.c_void_p(nodes[0]), ctypes.byref(found))
    assert (found.dstArray, found.dstXInBytes, found.dstY, found.dstZ) == (array, 2, 3, 1)
    exec_ = ctypes.c_void_p()
    client.ok("cuGraphInstantiateWithFlags", ctypes.byref(exec_), captured, 0)
    client.ok("cuGraphLaunch", exec_, stream)
    client.ok("cuStreamSynchronize", stream)
    client.ok("cuGraphExecDestroy", exec_)
    wanted = numpy.zeros((4, 6, 8), "u1")
    wanted[1, 3:5, 2:5] = 9
    assert (read(client, array, wanted.shape, "u1") == wanted).all()


class Operand(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("words", ctypes.c_uint64 * 4)]


class BoxCopy(ctypes.Structure):
    """CUDA_MEMCPY3D_BATCH_OP."""

    _fields_ = [
        ("source", Operand),
        ("target", Operand),
        ("extent", ctypes.c_size_t * 3),
        ("order", ctypes.c_int),
        ("flags", ctypes.c_uint),
    ]


def test_batches_count_elements(client):
    content = bytes_of(1, 5, 8 * 4).view("u4")
    array, memory = filled(client, content, extents=(8, 5)), client.device(4 * 32)
    client.write(memory, bytes(128))
    box = BoxCopy(extent=(3, 2, 1), order=1)
    box.source = Operand(2, (array, 4, 1, 0))
    box.target = Operand(1, (memory, 8, 0, 0))
    batch = (1, ctypes.byref(box), 0, client.stream())
    client.ok("cuMemcpy3DBatchAsync_v2", *batch)
    found = numpy.frombuffer(client.read(memory, 128), "u4").reshape(4, 8)
    assert (found[:2, :3] == content[0, 1:3, 4:7]).all()
    assert not found[2:].any()
    box.source.words[1] = 6
    assert client.call("cuMemcpy3DBatchAsync_v2", *batch) == INVALID_VALUE
    box.source.words[1], box.target = 0, Operand(2, (make(client, 8, 5), 0, 0, 0))
    # The two arrays have different elements.
    assert client.call("cuMemcpy3DBatchAsync_v2", *batch) == INVALID_VALUE


def test_contexts_take_their_arrays_along(lost):
    """Destroying a context destroys its arrays. The `lost` client does not destroy them again."""
    before, context = lost.lib.counts(), ctypes.c_void_p()
    lost.ok("cuCtxCreate_v2", ctypes.byref(context), 0, 0)
    array = make(lost, 64)
    make_mipmap(lost, 3, 64)
    assert lost.lib.count("arrays") == before["arrays"] + 2
    lost.ok("cuCtxDestroy_v2", context)
    lost.ok("cuCtxSetCurrent", lost.lib.primary)
    assert lost.lib.counts() == before
    assert lost.call("cuArrayDestroy", array) == CONTEXT_IS_DESTROYED


def test_arrays_use_the_capacity(client):
    if not client.lib.software:
        pytest.skip("other programs may allocate, too")
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    client.ok("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    before = free.value
    make(client, 1024, 1024, kind="f4")
    client.ok("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    assert before - free.value == 4 << 20
    handle = ctypes.c_void_p()
    given = ctypes.byref(descriptor(16384, 16384, 16384, kind="f4", channels=4))
    assert client.call("cuArray3DCreate_v2", ctypes.byref(handle), given) == 2
