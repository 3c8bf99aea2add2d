"""2-D and 3-D copies: random shapes compared with slices of NumPy arrays, and refused copies."""

import ctypes
import random

import numpy
import pytest

from .boxes import ARRAY, DEVICE, HOST, UNIFIED, Copy2D, Copy3D, Copy3DPeer
from .client import INVALID_VALUE, SUCCESS, blocks

# Pairs: the kind of memory of a source or target, and the memory type that the copy names.
ENDS = [
    ("device", DEVICE),
    ("device", UNIFIED),
    ("host", HOST),
    ("host", UNIFIED),
    ("pageable", HOST),
    ("managed", DEVICE),
    ("managed", UNIFIED),
]


class End:
    """The source or target of a copy: a volume of bytes, and the box in it that is copied."""

    def __init__(self, client, rng, memory, box):
        self.memory = memory
        self.at = [rng.randrange(4) for _ in range(3)]  # in the order z, y, x
        self.volume = [
            begin + length + rng.randrange(3) for begin, length in zip(self.at, box, strict=True)
        ]
        self.content = numpy.frombuffer(rng.randbytes(self.size), "u1").reshape(self.volume)
        self.box = tuple(slice(b, b + n) for b, n in zip(self.at, box, strict=True))
        self._client = client
        self._keep = None
        self.address = self._allocate()
        self._write(self.content.tobytes())

    @property
    def size(self):
        return int(numpy.prod(self.volume))

    def _allocate(self):
        if self.memory == "pageable":
            self._keep = ctypes.create_string_buffer(self.size)
            return ctypes.addressof(self._keep)
        return getattr(self._client, self.memory)(self.size)

    def _write(self, data):
        if self.memory == "device":
            self._client.write(self.address, data)
        else:
            ctypes.memmove(self.address, data, len(data))

    def read(self):
        if self.memory == "device":
            data = self._client.read(self.address, self.size)
        else:
            self._client.ok("cuCtxSynchronize")
            data = ctypes.string_at(self.address, self.size)
        return numpy.frombuffer(data, "u1").reshape(self.volume)

    def describe(self, copy, prefix, kind):
        values = {"MemoryType": kind, "XInBytes": self.at[2], "Y": self.at[1]}
        values |= {"Pitch": self.volume[2], "Host" if kind == HOST else "Device": self.address}
        if not isinstance(copy, Copy2D):
            values |= {"Z": self.at[0], "Height": self.volume[1]}
        for name, value in values.items():
            setattr(copy, prefix + name, value)


def shape(copy, box):
    copy.WidthInBytes, copy.Height = box[2], box[1]
    if not isinstance(copy, Copy2D):
        copy.Depth = box[0]
    return copy


def describe(kind, source, source_kind, target, target_kind, box):
    copy = shape(kind(), box)
    source.describe(copy, "src", source_kind)
    target.describe(copy, "dst", target_kind)
    return copy


def check(source, target):
    expected = target.content.copy()
    expected[target.box] = source.content[source.box]
    assert (target.read() == expected).all()
    assert (source.read() == source.content).all()


@pytest.mark.parametrize("source", ENDS, ids=lambda end: f"from_{end[0]}_{end[1]}")
@pytest.mark.parametrize("target", ENDS, ids=lambda end: f"to_{end[0]}_{end[1]}")
def test_random_boxes(client, source, target):
    rng = random.Random(f"{source}{target}")
    for name in ("cuMemcpy3D_v2", "cuMemcpy3DAsync_v2", "cuMemcpy2D_v2", "cuMemcpy2DAsync_v2"):
        flat = "2D" in name
        box = [1 if flat else rng.randrange(1, 5), rng.randrange(1, 6), rng.randrange(1, 40)]
        ends = [End(client, rng, end[0], box) for end in (source, target)]
        for end in ends:
            if flat:  # a 2-D copy uses the first plane of the volume
                end.at[0], end.box = 0, (slice(0, 1), *end.box[1:])
        copy = describe(Copy2D if flat else Copy3D, ends[0], source[1], ends[1], target[1], box)
        if "Async" in name:
            client.ok(name, ctypes.byref(copy), client.stream())
        else:
            client.ok(name, ctypes.byref(copy))
        check(*ends)


def test_large_box_from_pageable_memory(client):
    box = [3, 200, 300]
    ends = [End(client, random.Random(1), memory, box) for memory in ("pageable", "device")]
    copy = describe(Copy3D, ends[0], HOST, ends[1], DEVICE, box)
    client.ok("cuMemcpy3DAsync_v2", ctypes.byref(copy), client.stream())
    check(*ends)


def test_unaligned(client):
    ends = [End(client, random.Random(1), "device", [1, 4, 5]) for _ in range(2)]
    for end in ends:
        end.at[0], end.box = 0, (slice(0, 1), *end.box[1:])
    copy = describe(Copy2D, ends[0], DEVICE, ends[1], DEVICE, [1, 4, 5])
    client.ok("cuMemcpy2DUnaligned_v2", ctypes.byref(copy))
    check(*ends)


def test_box_between_contexts_of_one_device(client):
    ends = [End(client, random.Random(2), "device", [2, 3, 4]) for _ in range(2)]
    copy = describe(Copy3DPeer, ends[0], DEVICE, ends[1], DEVICE, [2, 3, 4])
    copy.srcContext = copy.dstContext = client.lib.primary
    client.ok("cuMemcpy3DPeer", ctypes.byref(copy))
    client.ok("cuMemcpy3DPeerAsync", ctypes.byref(copy), client.stream())
    check(*ends)
    copy.srcContext = None  # the driver finds the context by the address
    client.ok("cuMemcpy3DPeer", ctypes.byref(copy))


def plane(client, **changes):
    """A copy of 4 rows of 16 bytes between two allocations of 4 rows of 32 bytes."""
    copy = Copy2D(srcMemoryType=DEVICE, dstMemoryType=DEVICE, WidthInBytes=16, Height=4)
    copy.srcPitch = copy.dstPitch = 32
    copy.srcDevice, copy.dstDevice = client.device(128), client.device(128)
    for name, value in changes.items():
        setattr(copy, name, value)
    return ctypes.byref(copy)


@pytest.mark.parametrize(
    "changes",
    [
        {"srcPitch": 15},
        {"dstPitch": 15},
        {"srcXInBytes": 17},  # the row would end behind the pitch
        {"dstXInBytes": 17},
        {"srcY": 1},  # past the end of the allocation
        {"dstY": 1},
        {"Height": 5},
        {"srcPitch": 1 << 31},
        {"srcDevice": 16},
        {"dstDevice": 0},
        {"srcMemoryType": 0},
        {"srcMemoryType": 5},
        {"dstMemoryType": ARRAY},
    ],
    ids=str,
)
def test_refused_planes(client, changes):
    assert client.call("cuMemcpy2D_v2", plane(client, **changes)) == INVALID_VALUE
    stream = client.stream()
    assert client.call("cuMemcpy2DAsync_v2", plane(client, **changes), stream) == INVALID_VALUE


@pytest.mark.cuda_software  # a real driver may crash
@pytest.mark.parametrize("kind", [HOST, UNIFIED])
def test_no_memory_with_an_offset_is_none(client, kind):
    nothing = {"srcHost": None, "srcDevice": 0, "srcXInBytes": 1 << 20, "srcPitch": 1 << 21}
    copy = plane(client, srcMemoryType=kind, **nothing)
    assert client.call("cuMemcpy2D_v2", copy) == INVALID_VALUE


@pytest.mark.cuda_software  # a real driver may crash
@pytest.mark.parametrize("kind", [HOST, UNIFIED])
def test_page_locked_memory_ends_where_it_ends(client, kind):
    host = client.host(4096)
    behind = {"srcHost": host, "srcDevice": host, "srcXInBytes": 4096, "srcPitch": 8192}
    copy = plane(client, srcMemoryType=kind, **behind)
    assert client.call("cuMemcpy2D_v2", copy) == INVALID_VALUE


def test_planes_without_bytes(client):
    assert client.call("cuMemcpy2D_v2", plane(client, Height=0)) == SUCCESS
    assert client.call("cuMemcpy2D_v2", plane(client, WidthInBytes=0)) == SUCCESS


def test_last_row_needs_no_whole_pitch(client):
    changes = {"srcY": 0, "srcXInBytes": 16, "dstXInBytes": 16}
    assert client.call("cuMemcpy2D_v2", plane(client, **changes)) == SUCCESS


def volume(client, **changes):
    """The parameters of a copy of 2 slices of 2 rows of 8 bytes between 2 x 4 x 16 byte volumes."""
    copy = Copy3D(srcMemoryType=DEVICE, dstMemoryType=DEVICE, WidthInBytes=8, Height=2, Depth=2)
    copy.srcPitch = copy.dstPitch = 16
    copy.srcHeight = copy.dstHeight = 4
    copy.srcDevice, copy.dstDevice = client.device(128), client.device(128)
    for name, value in changes.items():
        setattr(copy, name, value)
    return ctypes.byref(copy)


@pytest.mark.parametrize(
    "changes",
    [{"srcHeight": 1}, {"dstHeight": 1, "Depth": 1}, {"srcZ": 1}, {"Depth": 3}, {"srcY": 3}],
    ids=str,
)
def test_refused_volumes(client, changes):
    assert client.call("cuMemcpy3D_v2", volume(client, **changes)) == INVALID_VALUE


def test_without_distances_rows_and_slices_lie_side_by_side(client):
    source, target = client.device(64), client.device(12)
    client.ok("cuMemcpyHtoD_v2", source, bytes(range(64)), 64)
    ends = {"srcDevice": source, "dstDevice": target, "srcPitch": 8, "srcHeight": 4}
    changes = {"dstPitch": 0, "dstHeight": 0, "WidthInBytes": 3, **ends}
    client.ok("cuMemcpy3D_v2", volume(client, **changes))
    expected = [0, 1, 2, 8, 9, 10, 32, 33, 34, 40, 41, 42]
    assert client.read(target, 12) == bytes(expected)


def test_a_level_means_nothing_without_arrays(client):
    client.ok("cuMemcpy3D_v2", volume(client, srcLOD=1, dstLOD=1))


@pytest.mark.parametrize("size", [{"WidthInBytes": 0}, {"Height": 0}, {"Depth": 0}], ids=str)
def test_nothing_is_copied_from_nowhere(client, size):
    client.ok("cuMemcpy3D_v2", volume(client, srcMemoryType=0, srcDevice=16, **size))


def test_one_slice_needs_no_height(client):
    assert client.call("cuMemcpy3D_v2", volume(client, Depth=1, srcHeight=0)) == SUCCESS


def test_planes_block_as_rows_do(client):
    stream = client.stream()
    target = client.host(128)
    change = {"dstMemoryType": HOST, "dstHost": target}
    gate = client.gate().hold(stream)
    assert not blocks(client, gate, "cuMemcpy2DAsync_v2", plane(client, **change), stream)
    pageable = ctypes.create_string_buffer(128)
    change = {"dstMemoryType": HOST, "dstHost": ctypes.addressof(pageable)}
    gate = client.gate().hold(stream)
    assert blocks(client, gate, "cuMemcpy2DAsync_v2", plane(client, **change), stream)


def test_small_pageable_box_is_read_at_the_call(client, schedule):
    if schedule == "random":
        pytest.skip("the call may block instead")
    stream = client.stream()
    source = ctypes.create_string_buffer(b"abcdefgh" * 16)
    target = client.device(128)
    change = {"srcMemoryType": HOST, "srcHost": ctypes.addressof(source), "dstDevice": target}
    client.write(target, bytes(128))
    gate = client.gate().hold(stream)
    client.ok("cuMemcpy2DAsync_v2", plane(client, **change), stream)
    ctypes.memset(source, 0, 128)
    gate.open()
    assert client.read(target, 128)[32:48] == b"abcdefgh" * 2


@pytest.mark.parametrize("element", [4, 8, 16])
def test_pitched_allocation(client, element):
    address, pitch = ctypes.c_uint64(), ctypes.c_size_t()
    arguments = (ctypes.byref(address), ctypes.byref(pitch))
    client.ok("cuMemAllocPitch_v2", *arguments, 100, 7, element)
    assert pitch.value >= 100
    assert pitch.value % 32 == 0
    client.ok("cuMemsetD2D8_v2", address, pitch, 1, 100, 7)
    client.ok("cuMemFree_v2", address)
    assert client.call("cuMemAllocPitch_v2", *arguments, 100, 7, 3) == INVALID_VALUE
    assert client.call("cuMemAllocPitch_v2", *arguments, 0, 7, 4) == INVALID_VALUE
    assert client.call("cuMemAllocPitch_v2", *arguments, 100, 0, 4) == INVALID_VALUE
