"""Tensor maps, and copies of tensors: cuTensorMapEncodeTiled, cp.async.bulk.tensor, tensormap."""

import ctypes
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from limits import PATIENCE

from .client import ILLEGAL_ADDRESS, SUCCESS
from .tensors import Tensor
from .test_kernel_faults import ILLEGAL_INSTRUCTION, MISALIGNED

INVALID_VALUE, NOT_SUPPORTED = 1, 801
SHARED = 16384
THREADS = 128

# Shared memory is filled with the input. Then one thread copies a box, and all threads copy
# shared memory to the output.
TEXT = """.version 8.3
.target {target}
.address_size 64
.visible .entry k(.param .align 64 .b8 map[128], .param .u64 in, .param .u64 out,
    .param .align 4 .b8 corner[20], .param .u64 place)
{{
    .reg .pred %p<4>; .reg .b32 %r<32>; .reg .b64 %rd<16>;
    .shared .align 1024 .b8 tile[{shared}]; .shared .align 8 .b64 bar;
    .shared .align 128 .b8 copy[128];
    mov.u32 %r1, %tid.x; mov.u32 %r2, tile; mov.u32 %r3, bar;
    ld.param.u64 %rd1, [in]; ld.param.u64 %rd2, [out]; ld.param.u64 %rd7, [place];
    mov.b64 %rd3, map; cvta.param.u64 %rd3, %rd3;
    ld.param.b32 %r10, [corner]; ld.param.b32 %r11, [corner+4]; ld.param.b32 %r12, [corner+8];
    ld.param.b32 %r13, [corner+12]; ld.param.b32 %r14, [corner+16];
    mul.lo.u32 %r5, %r1, 4;
    fill: cvt.u64.u32 %rd5, %r5; add.u64 %rd6, %rd1, %rd5; ld.global.b32 %r6, [%rd6];
    add.u32 %r7, %r2, %r5; st.shared.b32 [%r7], %r6; add.u32 %r5, %r5, {step};
    setp.lt.u32 %p1, %r5, {shared}; @%p1 bra fill;
    fence.proxy.async; bar.sync 0; setp.ne.u32 %p2, %r1, 0;
    {before}
    @%p2 bra join;
    {copy}
    join: bar.sync 0; mul.lo.u32 %r5, %r1, 4;
    back: add.u32 %r7, %r2, %r5; ld.shared.b32 %r6, [%r7];
    cvt.u64.u32 %rd5, %r5; add.u64 %rd6, %rd2, %rd5; st.global.b32 [%rd6], %r6;
    add.u32 %r5, %r5, {step}; setp.lt.u32 %p1, %r5, {shared}; @%p1 bra back;
    ret;
}}
"""
LOAD = """mbarrier.init.shared.b64 [%r3], 1; fence.proxy.async;
    mbarrier.arrive.expect_tx.shared.b64 %rd8, [%r3], {bytes};
    cp.async.bulk.tensor.{rank}d.shared::cluster.global{mode}.mbarrier::complete_tx::bytes
        [%r2{offset}], [%rd3, {{{corner}}}], [%r3];
    wait: mbarrier.try_wait.parity.shared.b64 %p3, [%r3], 0; @!%p3 bra wait;"""
STORE = """cp.async.bulk.tensor.{rank}d.global.shared::cta.bulk_group [%rd3, {{{corner}}}], [%r2];
    cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"""
CASES = {
    "one dimension": (Tensor((100,), (64,)), [(0,), (-8,), (56,), (104,), (-64,)]),
    "bytes": (Tensor((100, 20), (48, 8), "u1"), [(0, 0), (-16, 15), (80, -2)]),
    "floats": (Tensor((40, 9), (12, 4), "f4", padding=32), [(4, 3), (32, 7)]),
    "doubles": (Tensor((9, 7, 5), (4, 3, 2), "f8"), [(2, 1, 0), (6, -1, 4)]),
    "swizzled by 32": (Tensor((50, 40), (16, 19), swizzle=32), [(0, 0), (40, 30)]),
    "swizzled by 64": (Tensor((50, 40), (32, 19), swizzle=64), [(0, 0), (-8, 30)]),
    "swizzled by 128": (Tensor((80, 40), (64, 19), swizzle=128), [(0, 0), (32, -4)]),
    "narrow rows": (Tensor((80, 40), (24, 19), swizzle=128), [(8, 3)]),
    "four dimensions": (Tensor((20, 6, 5, 4), (8, 3, 2, 2), padding=16), [(8, 2, 1, 3)]),
    "five dimensions": (Tensor((12, 4, 3, 3, 3), (8, 2, 2, 2, 2), "u2"), [(-8, -1, 2, 1, 2)]),
    "steps": (Tensor((20, 30, 9), (8, 7, 4), steps=(1, 3, 2)), [(0, 0, 0), (8, 20, 3)]),
}


@pytest.fixture
def schedule(lib):
    """One schedule is enough here."""
    return "eager" if lib.software else None


@pytest.fixture
def run(client):
    def run(map, given, result, corner, copy, *, target="sm_90", before="", place=0):
        """Launch the kernel. Returns what it has left in shared memory."""
        text = TEXT.format(target=target, copy=copy, before=before, shared=SHARED, step=4 * THREADS)
        function = client.function(client.module(text.encode()), "k")
        corner = (ctypes.c_int32 * 5)(*corner)
        map = ctypes.create_string_buffer(map, 128)
        status = client.launch(
            function, client.stream(), map, given, result, corner, place, block=THREADS
        )
        assert status == SUCCESS
        return np.frombuffer(client.read(result, SHARED), "u1")

    major = ctypes.c_int()
    client.ok("cuDeviceGetAttribute", ctypes.byref(major), 75, 0)
    if major.value < 9:
        pytest.skip("the GPU has no copies of tensors")
    return run


def instruction(template, tensor, mode="", offset=""):
    rank = len(tensor.sizes)
    registers = ", ".join(f"%r{10 + i}" for i in range(rank))
    bytes = tensor.rows * tensor.row_bytes
    return template.format(rank=rank, corner=registers, bytes=bytes, mode=mode, offset=offset)


def random_bytes(count):
    return np.random.default_rng(count).integers(0, 256, count, "u1")


def encoded(client, tensor, address):
    status, map = tensor.encode(client, address)
    assert status == SUCCESS
    return map


def memory_of(client, data):
    address = client.device(data.nbytes)
    client.write(address, data.tobytes())
    return address


@pytest.mark.parametrize("case", CASES)
def test_loads(client, run, case):
    """Loads copy a box to shared memory. Its parts outside of the tensor become 0."""
    tensor, corners = CASES[case]
    data, old = random_bytes(tensor.bytes), random_bytes(SHARED)
    map = encoded(client, tensor, memory_of(client, data))
    given, result = memory_of(client, old), client.device(SHARED)
    for corner in corners:
        wanted, covered = old.copy(), np.zeros(SHARED, bool)
        for shared, place in tensor.places(corner):
            part = slice(shared, shared + tensor.width)
            wanted[part] = 0 if place is None else data[place : place + tensor.width]
            covered[part] = True
        mode = ".tile" if corner is corners[0] else ""
        found = run(map, given, result, corner, instruction(LOAD, tensor, mode))
        assert (found[covered] == wanted[covered]).all()
        used = tensor.rows * tensor.pitch
        assert (found[used:] == wanted[used:]).all()


@pytest.mark.parametrize("case", CASES)
def test_stores(client, run, case):
    """Stores copy the chunks of a box that begin in the tensor, and ignore the others."""
    tensor, corners = CASES[case]
    corners = [tuple(abs(place) for place in corner) for corner in corners]
    old, image = random_bytes(tensor.bytes), random_bytes(SHARED)
    given, result = memory_of(client, image), client.device(SHARED)
    for corner in corners:
        address = memory_of(client, old)
        wanted = old.copy()
        for shared, place in tensor.places(corner, chunks=True):
            if place is not None:
                wanted[place : place + tensor.width] = image[shared : shared + tensor.width]
        map = encoded(client, tensor, address)
        run(map, given, result, corner, instruction(STORE, tensor))
        assert (np.frombuffer(client.read(address, tensor.bytes), "u1") == wanted).all()


RACES = {
    "a load": (LOAD, "", []),
    "a load without a wait": (LOAD.partition("wait:")[0], "", ["asynchronous write", "read"]),
    "a store": (STORE, "", []),
    "a store of what was written behind the fence": (
        STORE,
        "@!%p2 st.shared.b32 [%r2], %r6;",
        ["asynchronous read", "write"],
    ),
}


@pytest.mark.parametrize("case", RACES)
def test_races(client, run, software, case):
    template, before, expected = RACES[case]
    tensor = Tensor((40, 9), (16, 4), "f4", swizzle=64)
    map = encoded(client, tensor, memory_of(client, random_bytes(tensor.bytes)))
    given, result = memory_of(client, random_bytes(SHARED)), client.device(SHARED)
    with software.checking("race") as found:
        run(map, given, result, (4, 3), instruction(template, tensor), before=before)
    modes = [sorted((hazard["first"]["mode"], hazard["second"]["mode"])) for hazard in found]
    assert modes == [expected] * bool(expected)


def test_a_store_at_the_end_of_an_allocation(client, run):
    """The last chunk of the row has more bytes than the allocation."""
    tensor, image, old = Tensor((100,), (64,)), random_bytes(SHARED), random_bytes(200)
    given, address = memory_of(client, image), memory_of(client, old)
    map = encoded(client, tensor, address)
    run(map, given, client.device(SHARED), (56,), instruction(STORE, tensor))
    found = np.frombuffer(client.read(address, 200), "u1")
    assert (found == np.concatenate([old[:112], image[:88]])).all()


REDUCE = """cp.reduce.async.bulk.tensor.{rank}d.global.shared::cta.{mode}.bulk_group
    [%rd3, {{{corner}}}], [%r2]; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"""
UPDATES = {
    "add": (np.add, "u4 i4 u8 f2 f4"),
    "min": (np.minimum, "u4 i4 u8 i8 f2"),
    "max": (np.maximum, "u4 i4 u8 i8 f2"),
    "and": (np.bitwise_and, "u4 u8"),
    "or": (np.bitwise_or, "i4 u8"),
    "xor": (np.bitwise_xor, "u4 u8"),
}


@pytest.mark.parametrize(
    ("operation", "dtype"),
    [(name, dtype) for name, (_, dtypes) in UPDATES.items() for dtype in dtypes.split()],
)
def test_reductions(client, run, operation, dtype):
    """Reductions update the items of the box that are in the tensor."""
    width = np.dtype(dtype).itemsize
    tensor = Tensor((64 // width, 9), (32 // width, 5), dtype, swizzle=32)
    low = 0 if dtype[0] == "u" else -50
    random = np.random.default_rng(3)
    old = random.integers(low, 50, tensor.bytes // width).astype(dtype)
    image = random.integers(low, 50, SHARED // width).astype(dtype)
    address, given = memory_of(client, old), memory_of(client, image)
    wanted = old.copy()
    for shared, place in tensor.places((48 // width, 6)):
        if place is not None:
            at = place // width
            wanted[at] = UPDATES[operation][0](old[at], image[shared // width])
    map = encoded(client, tensor, address)
    run(map, given, client.device(SHARED), (48 // width, 6), instruction(REDUCE, tensor, operation))
    assert (np.frombuffer(client.read(address, tensor.bytes), dtype) == wanted).all()


def test_a_reduction_of_a_part_of_a_chunk(client, run):
    """Rows end inside a chunk. Like a store, a reduction changes the whole chunk."""
    tensor = Tensor((10, 6), (12, 4), "u4")
    old = np.random.default_rng(5).integers(0, 1000, tensor.bytes // 4).astype("u4")
    image = np.random.default_rng(6).integers(0, 1000, SHARED // 4).astype("u4")
    address, given = memory_of(client, old), memory_of(client, image)
    map = encoded(client, tensor, address)
    run(map, given, client.device(SHARED), (0, 0), instruction(REDUCE, tensor, "add"))
    found = np.frombuffer(client.read(address, tensor.bytes), "u4")
    wanted = old.copy()
    wanted[:48] += image[:48]
    assert (found == wanted).all()


def test_a_reduction_at_the_end_of_an_allocation(client, run):
    """The last chunk of the row has more bytes than the allocation, which ends within an item."""
    tensor = Tensor((13,), (16,), "u8")
    old = np.arange(13, dtype="u8")
    image = np.arange(100, 100 + SHARED // 8, dtype="u8")
    given, address = memory_of(client, image), client.device(108)
    client.write(address, old.tobytes() + b"tail")
    map = encoded(client, tensor, address)
    run(map, given, client.device(SHARED), (0,), instruction(REDUCE, tensor, "add"))
    found = client.read(address, 108)
    assert found[:104] == (old + image[:13]).tobytes()
    assert found[104:] == b"tail" or not client.lib.software


FLUSHED, TF32, FLUSHED_TF32 = 10, 11, 12


@pytest.mark.parametrize("dtype", [FLUSHED, TF32, FLUSHED_TF32])
def test_loads_that_convert(client, run, dtype):
    """Loads round to the nearest tf32 number, ties to even. They flush no subnormal number."""
    tensor = Tensor((32,), (32,), "f4")
    bits = np.random.default_rng(11).integers(0, 1 << 32, 32, "u4")
    bits[:4] = 0x3F801000, 0x3F803000, 0x3F801001, 0x3F800FFF  # two ties, and their neighbours
    bits[4:8] = 0x80000FFF, 0x007FFFFF, 0x7F7FFFFF, 0xFF800000  # -infinity is the last
    bits[8:10] = 0x7FC00001, 0x7F800001  # NaNs
    bits = np.where((bits >> 23 & 0xFF == 0xFF) & (np.arange(32) > 9), bits & 0xBFFFFFFF, bits)
    wanted = bits.astype("u8")
    if dtype != FLUSHED:
        wanted = (wanted + 0xFFF + (wanted >> 13 & 1)) & 0xFFFFE000
        wanted[8:10] = 0x7FFFE000
    status, map = tensor.encode(client, memory_of(client, bits), dtype=dtype)
    assert status == SUCCESS
    given, result = (client.device(SHARED) for _ in range(2))
    found = run(map, given, result, (0,), instruction(LOAD, tensor))
    assert (found[:128].view("u4") == wanted).all()


REPLACE = "tensormap.replace.tile.{}.shared::cta.b1024.{} [%r20], {};"
TO_GLOBAL = """bar.sync 0; setp.ge.u32 %p3, %r1, 32; @%p3 bra other;
    tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned
        [%rd7], [%r20], 128;
    fence.proxy.tensormap::generic.acquire.gpu [%rd7], 128;
    other: bar.sync 0; mov.b64 %rd3, %rd7;"""


def test_maps_that_a_kernel_makes(client, run):
    """A kernel sets all fields of a map in shared memory, and copies the map to global memory."""
    tensor = Tensor((80, 40), (64, 19), "f2", swizzle=128)
    data = random_bytes(tensor.bytes)
    address = memory_of(client, data)
    fields = [("rank", "b32", "1"), ("elemtype", "b32", "6"), ("swizzle_mode", "b32", "3")]
    fields += [("interleave_layout", "b32", "0"), ("fill_mode", "b32", "0")]
    before = f"""mov.u32 %r20, copy; mad.lo.u32 %r21, %r1, 1, %r20; mov.b32 %r22, 0;
    st.shared.b8 [%r21], %r22; bar.sync 0; @%p2 bra ready; mov.b64 %rd9, {address};
    mov.b64 %rd10, {tensor.strides[0]};"""
    before += REPLACE.format("global_address", "b64", "%rd9")
    before += "".join(REPLACE.format(*field) for field in fields)
    before += REPLACE.format("global_stride", "b64", "0, %rd10")  # in bytes
    for i in range(2):
        values = {"box_dim": tensor.box[i], "global_dim": tensor.sizes[i], "element_stride": 1}
        for name, value in values.items():
            before += f"mov.b32 %r22, {value};" + REPLACE.format(name, "b32", f"{i}, %r22")
    before += f"ready: {TO_GLOBAL}"
    wanted = np.zeros(SHARED, "u1")
    for shared, place in tensor.places((8, 5)):
        if place is not None:
            wanted[shared : shared + 2] = data[place : place + 2]
    given, result, place = (client.device(SHARED) for _ in range(3))
    client.write(given, bytes(SHARED))
    copy = instruction(LOAD, tensor)
    found = run(
        bytes(128), given, result, (8, 5), copy, target="sm_90a", before=before, place=place
    )
    assert (found == wanted).all()


def test_another_address(client, run):
    """The address of a map is replaced: by cuTensorMapReplaceAddress, and by a kernel."""
    tensor = Tensor((64,), (64,))
    data = random_bytes(256)
    address = memory_of(client, data)
    given, result, place = (client.device(SHARED) for _ in range(3))
    memory = ctypes.create_string_buffer(256)
    aligned = -(-ctypes.addressof(memory) // 128) * 128
    ctypes.memmove(aligned, encoded(client, tensor, address), 128)
    client.ok("cuTensorMapReplaceAddress", ctypes.c_void_p(aligned), ctypes.c_void_p(address + 128))
    map = ctypes.string_at(aligned, 128)
    found = run(map, given, result, (0,), instruction(LOAD, tensor))
    assert (found[:128] == data[128:]).all()
    before = f"""mov.u32 %r20, copy; add.u32 %r21, %r20, %r1; cvt.u64.u32 %rd9, %r1;
    add.u64 %rd9, %rd3, %rd9; ld.b8 %r22, [%rd9]; st.shared.b8 [%r21], %r22; bar.sync 0;
    @%p2 bra ready; mov.b64 %rd9, {address};"""
    before += REPLACE.format("global_address", "b64", "%rd9") + f"ready: {TO_GLOBAL}"
    copy = instruction(LOAD, tensor)
    found = run(map, given, result, (0,), copy, target="sm_90a", before=before, place=place)
    assert (found[:128] == data[:128]).all()


MISTAKES = [
    *({"dtype": 16}, {"dtype": -1}, {"rank": 0}, {"rank": 6}, {"address": 8}),
    *({"sizes": (0, 40)}, {"sizes": (80, (1 << 32) + 1)}, {"sizes": None}, {"box": None}),
    *({"strides": (168,)}, {"strides": (1 << 40,)}, {"strides": None}, {"steps": None}),
    *({"box": (60, 19)}, {"box": (0, 19)}, {"box": (64, 257)}, {"box": (72, 19)}),
    *({"steps": (1, 0)}, {"steps": (1, 9)}, {"interleave": 3}, {"swizzle": 7}),
    *({"promotion": 4}, {"fill": 2}, {"target": 0}),
]


@pytest.mark.parametrize("changes", MISTAKES, ids=str)
def test_wrong_parameters(client, changes):
    tensor = Tensor((80, 40), (64, 19), "f2", swizzle=128)
    assert tensor.encode(client, 1 << 20)[0] == SUCCESS
    assert tensor.encode(client, 1 << 20, **changes)[0] == INVALID_VALUE


def test_a_map_whose_address_is_not_aligned(client, software):
    """The software driver refuses such a map. NVIDIA's driver 580.159.04 crashes."""
    tensor = Tensor((80, 40), (64, 19), "f2", swizzle=128)
    assert tensor.encode(client, 1 << 20, target=4)[0] == INVALID_VALUE


@pytest.mark.parametrize(
    "changes", [{"dtype": 13}, {"interleave": 1, "swizzle": 0}, {"fill": 1}, {"swizzle": 4}]
)
def test_what_is_not_supported(client, software, changes):
    tensor = Tensor((80, 40, 2), (64, 19, 1), "f2", swizzle=128)
    assert tensor.encode(client, 1 << 20, **changes)[0] == NOT_SUPPORTED


SMALL = Tensor((80, 40), (64, 19), "f2", swizzle=128)
FAULTS = {
    "no map": (b"", SMALL, "", ILLEGAL_INSTRUCTION, "no tensor map at this address"),
    "other dimensions": (
        None,
        Tensor((80,), (64,)),
        "",
        ILLEGAL_INSTRUCTION,
        "the tensor has 2 dimensions, and the instruction 1",
    ),
    "an odd place": (None, SMALL, "+64", MISALIGNED, "not a multiple of 128"),
    "beyond shared memory": (None, SMALL, "+15360", ILLEGAL_ADDRESS, "in shared memory"),
    "freed": (None, SMALL, "", ILLEGAL_ADDRESS, "cuMemFree_v2 freed"),
}


def status_of(lost, map, copy, *corner):
    """The status of a kernel that copies a box."""
    code = TEXT.format(target="sm_90", copy=copy, before="", shared=SHARED, step=4 * THREADS)
    function = lost.function(lost.module(code.encode()), "k")
    arguments = [ctypes.create_string_buffer(map, 128), lost.device(SHARED), lost.device(SHARED)]
    arguments += [(ctypes.c_int32 * 5)(*corner), 0]
    assert lost.launch(function, lost.stream(), *arguments, block=THREADS) == SUCCESS
    return lost.call("cuCtxSynchronize")


@pytest.mark.parametrize("case", FAULTS)
def test_faults(lost, software, case):
    map, tensor, offset, status, text = FAULTS[case]
    address = lost.device(SMALL.bytes)
    if map is None:
        map = encoded(lost, SMALL, address)
    if case == "freed":
        lost.forget("cuMemFree_v2", address)
        lost.ok("cuMemFree_v2", address)
    assert status_of(lost, map, instruction(LOAD, tensor, offset=offset)) == status
    assert text in software.fault_text()
    assert "cp.async.bulk.tensor" in software.fault_text()


# Only the minimum and the maximum of S64 exist.
NO_REDUCTIONS = ["add-i8", "and-i8", "or-i8", "xor-i8", "min-f4", "max-f8", "or-f4"]


def status_of_reduction(client, case):
    operation, dtype = case.split("-")
    tensor = Tensor((16,), (16,), dtype)
    map = encoded(client, tensor, client.device(tensor.bytes))
    return status_of(client, map, instruction(REDUCE, tensor, operation))


@pytest.mark.parametrize("case", NO_REDUCTIONS)
def test_reductions_that_do_not_exist(lost, software, case):
    assert status_of_reduction(lost, case) == ILLEGAL_INSTRUCTION
    assert "no such reduction for the type of the tensor" in software.fault_text()


PROGRAM = """
import ctypes
import sys

sys.path.insert(0, sys.argv[3])
from conformance.client import Client, Library
from conformance.test_tensor_maps import status_of_reduction

lib, context = Library(sys.argv[1]), ctypes.c_void_p()
lib.ok("cuInit", 0)
lib.ok("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
lib.ok("cuCtxSetCurrent", context)
print(status_of_reduction(Client(lib), sys.argv[2]))
"""


def status_in_a_process(library_path, case):
    """The status of a reduction in another process, whose context may be lost."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, library_path, case, str(Path(__file__).parents[1])],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.usefixtures("run")
@pytest.mark.parametrize("case", NO_REDUCTIONS)
def test_reductions_that_a_gpu_refuses(library_path, case):
    assert status_in_a_process(library_path, case) == ILLEGAL_INSTRUCTION


@pytest.mark.parametrize("copy", [LOAD, STORE, REDUCE])
def test_a_box_begins_at_a_multiple_of_16_bytes(lost, software, copy):
    map = encoded(lost, SMALL, lost.device(SMALL.bytes))
    copy = instruction(copy, SMALL, "add" if copy is REDUCE else "")
    assert status_of(lost, map, copy, 56, 1) == SUCCESS
    assert status_of(lost, map, copy, 60, 1) == ILLEGAL_INSTRUCTION
    text = "the first coordinate is 60, so the box begins 120 bytes from the tensor's first column"
    assert text in software.fault_text()


@pytest.mark.parametrize("corner", [(-8, 0), (0, -1)])
@pytest.mark.parametrize("copy", [LOAD, STORE, REDUCE])
def test_only_loads_begin_before_the_tensor(lost, software, copy, corner):
    map = encoded(lost, SMALL, lost.device(SMALL.bytes))
    instructed = instruction(copy, SMALL, "add" if copy is REDUCE else "")
    status = status_of(lost, map, instructed, *corner)
    assert status == (SUCCESS if copy is LOAD else ILLEGAL_INSTRUCTION)
    if copy is not LOAD:
        at = int(corner[0] == 0)
        assert f"coordinate {at} is {corner[at]}, and only a load can" in software.fault_text()
