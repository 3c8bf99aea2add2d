"""checks=init through instructions on matrices and bulk copies.

A kernel computes words of `out` from `fresh`, of which some bytes are undefined. The words that
change with the value of these bytes must be those that the check calls undefined.
"""

import ctypes
import random
from typing import NamedTuple

import numpy as np
import pytest

import cudadrv as cu
from cudadrv import testing

pytestmark = [
    pytest.mark.cuda_software,
    pytest.mark.parametrize("cuda_schedule", ["eager"], indirect=True),
    pytest.mark.cuda_allow("hazards"),
]

# %r1 is the index of the thread, %r9 the address of `tile`, and %rd5 that of `fresh`.
TEXT = """.version 8.4
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out, .param .u64 fresh, .param .u64 map)
{{
    .reg .pred %p<8>; .reg .b32 %r<32>; .reg .b64 %rd<32>;
    {registers}
    .shared .align 1024 .b8 tile[{shared}]; .shared .align 8 .b64 bar;
    ld.param.u64 %rd1, [out]; ld.param.u64 %rd5, [fresh]; ld.param.u64 %rd6, [map];
    mov.u32 %r1, %tid.x; mov.u32 %r9, tile; setp.ne.u32 %p6, %r1, 0;
    {body}
    ret;
}}
"""
# The numbers that an item can have. If all items are the first number, replacing one item by any of
# the other numbers changes the result, provided the result depends on this item.
NUMBERS = {
    "f16": np.array([1, 2, 3], "f2"),
    "bf16": np.array([0x3F80, 0x4000, 0x4040], "u2"),
    "f32": np.array([1, 2, 3], "f4"),
    "f64": np.array([1, np.pi, np.e], "f8"),
    "e4m3": np.array([0x38, 0x40, 0x44], "u1"),
    "u8": np.array([1, 2, 3], "u1"),
    "u4": np.array([0x11, 0x22, 0x23], "u1"),  # two in a byte
    "b1": np.array([0xFF, 0, 0x81], "u1"),
    "s32": np.array([1, 2, 3], "u4"),
}


class Case(NamedTuple):
    """`given` has the format and the number of items in each part of `fresh`."""

    given: tuple[tuple[str, int], ...]
    words: int  # of `out`
    body: str
    registers: str = ""
    threads: int = 32
    shared: int = 4096
    map: object = None  # makes the bytes of the third argument from the addresses


def memory(case):
    """The bytes of `fresh`, and for each item where it is and what else it can be."""
    parts, places, at = [], [], 0
    for item, count in case.given:
        numbers = NUMBERS[item]
        parts.append(np.full(count, numbers[0]).view("u1"))
        places += [(at + i * numbers.itemsize, numbers[1:]) for i in range(count)]
        at += count * numbers.itemsize
    return np.concatenate(parts), places


def launched(case, given, undefined=None):
    """Run the kernel. `undefined` is a range of bytes of `fresh` that nobody writes."""
    with cu.Stream() as stream:
        fresh = cu.DeviceBuffer(len(given), np.uint8, name="fresh")
        out = cu.DeviceBuffer.zeros(case.words, np.uint32, name="out")
        start, stop = undefined or (0, 0)
        for part in (slice(0, start), slice(stop, len(given))):
            if part.start < part.stop:
                fresh[part].copy_from(given[part], stream=stream)
        extra = case.map(out.address, fresh.address) if case.map else np.zeros(128, "u1")
        third = cu.DeviceBuffer.from_array(extra)
        text = TEXT.format(body=case.body, registers=case.registers, shared=case.shared)
        with cu.Module(text) as module:
            module["k"].launch(1, case.threads, out, fresh, third, stream=stream)
            stream.synchronize()
        return out, fresh


def changing(case, given, place, numbers):
    """The words of `out` that depend on an item."""
    results = []
    for number in (None, *numbers):
        bytes_of = given.copy()
        if number is not None:
            bytes_of[place : place + number.itemsize] = np.array([number]).view("u1")
        results.append(launched(case, bytes_of)[0].to_numpy())
    return {i for i in range(case.words) if len({int(result[i]) for result in results}) > 1}


def reported(case, given, place, size):
    """The words of `out` that are undefined, and the hazards inside of the kernel."""
    with testing.configured("checks=init"), cu.Stream() as stream:
        testing.forget_hazards()
        out, _fresh = launched(case, given, (place, place + size))  # whose name is needed
        inside = [hazard.text for hazard in testing.hazards()]
        found = set()
        for word in range(case.words):
            testing.forget_hazards()
            out[word : word + 1].to_numpy(stream=stream)
            for hazard in testing.hazards():
                found.add(word)
                assert hazard.memory == "DeviceBuffer 'fresh'", hazard.text
        return found, inside


def registers(name, count, width=32):
    """A declaration, and the vector of the registers."""
    names = [f"%{name}{i}" for i in range(count)]
    return f".reg .b{width} {', '.join(names)};", f"{{{', '.join(names)}}}"


def moves(kind, name, count, base, at=0, width=32):
    """Each thread loads or stores its own registers, which follow each other in memory."""
    size = width // 8
    text = f"mul.wide.u32 %rd8, %r1, {count * size}; add.u64 %rd8, %rd8, {base};"
    for i in range(count):
        place = f"[%rd8+{at + i * size}]"
        text += (
            f"ld.global.b{width} %{name}{i}, {place};"
            if kind == "ld"
            else f"st.global.b{width} {place}, %{name}{i};"
        )
    return text


def filled(bytes_of, threads=32):
    """The threads copy `fresh` to `tile`, by 16 bytes."""
    rounds = bytes_of // (16 * threads)
    text = "mul.wide.u32 %rd8, %r1, 16; add.u64 %rd8, %rd8, %rd5; mad.lo.u32 %r3, %r1, 16, %r9;"
    for i in range(rounds):
        at = 16 * threads * i
        text += f"""ld.global.v4.u32 {{%r10, %r11, %r12, %r13}}, [%rd8+{at}];
        st.shared.v4.u32 [%r3+{at}], {{%r10, %r11, %r12, %r13}};"""
    return text + "bar.sync 0;"


ROW = "and.b32 %r5, %r1, 31; mad.lo.u32 %r5, %r5, 16, %r9;"
CASES = {}


def add_small_matrices():
    for count, trans in ((4, ""), (4, ".trans"), (2, ""), (1, ".trans")):
        declared, all_of = registers("a", count)
        CASES[f"ldmatrix x{count}{trans}"] = Case(
            (("f16", 64 * count + 64),),
            32 * count,
            f"""{filled(512)} {ROW}
            ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {all_of}, [%r5];"""
            + moves("st", "a", count, "%rd1"),
            declared,
        )._replace(given=(("f16", 256),))
        CASES[f"stmatrix x{count}{trans}"] = Case(
            (("f16", 64 * count),),
            128,
            moves("ld", "a", count, "%rd5")
            + f"""{ROW} st.shared.v4.u32 [%r5], {{%r1, %r1, %r1, %r1}}; bar.warp.sync -1;
            stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 [%r5], {all_of};
            bar.warp.sync -1; ld.shared.v4.u32 {{%r10, %r11, %r12, %r13}}, [%r5];
            mul.wide.u32 %rd8, %r1, 16; add.u64 %rd8, %rd8, %rd1;
            st.global.v4.u32 [%rd8], {{%r10, %r11, %r12, %r13}};""",
            declared,
        )
    CASES["movmatrix"] = Case(
        (("f16", 64),),
        32,
        moves("ld", "a", 1, "%rd5")
        + "movmatrix.sync.aligned.m8n8.trans.b16 %a0, %a0;"
        + moves("st", "a", 1, "%rd1"),
        registers("a", 1)[0],
    )


def add_product(name, instruction, d, a, b, c):
    """A product of registers: the format and the number of registers of each operand."""
    declared, text, at, given, vectors = "", "", 0, [], []
    for letter, (item, count) in zip("abc", (a, b, c), strict=True):
        width = 64 if item == "f64" else 32
        one, vector = registers(letter, count, width)
        declared += one
        vectors.append(vector if count > 1 else vector[1:-1])
        text += moves("ld", letter, count, "%rd5", at, width)
        size = 32 * count * width // 8
        given.append((item, size // NUMBERS[item].itemsize))
        at += size
    width = 64 if d[0] == "f64" else 32
    one, vector = registers("d", d[1], width)
    vectors.insert(0, vector if d[1] > 1 else vector[1:-1])
    CASES[name] = Case(
        tuple(given),
        32 * d[1] * width // 32,
        text + f"{instruction} {', '.join(vectors)};" + moves("st", "d", d[1], "%rd1", 0, width),
        declared + one,
    )


def add_products():
    mma = "mma.sync.aligned"
    half = ("f16", 2)
    for d, c in ((("f32", 4), ("f32", 4)), (half, half), (("f32", 4), half), (half, ("f32", 4))):
        add_product(
            f"mma m16n8k16 {d[0]} {c[0]}",
            f"{mma}.m16n8k16.row.col.{d[0]}.f16.f16.{c[0]}",
            d,
            ("f16", 4),
            half,
            c,
        )
    for d, c in (("f32", "f32"), ("f16", "f16"), ("f32", "f16")):
        counts = {"f32": 8, "f16": 4}
        for layouts in ("row.col", "col.row"):
            add_product(
                f"mma m8n8k4 {d} {c} {layouts}",
                f"{mma}.m8n8k4.{layouts}.{d}.f16.f16.{c}",
                (d, counts[d]),
                half,
                half,
                (c, counts[c]),
            )
    sums = ("f32", 4)
    add_product(
        "mma bf16", f"{mma}.m16n8k8.row.col.f32.bf16.bf16.f32", sums, ("bf16", 2), ("bf16", 1), sums
    )
    add_product(
        "mma tf32", f"{mma}.m16n8k8.row.col.f32.tf32.tf32.f32", sums, ("f32", 4), ("f32", 2), sums
    )
    add_product(
        "mma f8", f"{mma}.m16n8k32.row.col.f32.e4m3.e4m3.f32", sums, ("e4m3", 4), ("e4m3", 2), sums
    )
    add_product(
        "mma f64",
        f"{mma}.m8n8k4.row.col.f64.f64.f64.f64",
        ("f64", 2),
        ("f64", 1),
        ("f64", 1),
        ("f64", 2),
    )
    sums = ("s32", 4)
    for item, k in (("u8", 32), ("u4", 64)):
        add_product(
            f"mma {item}",
            f"{mma}.m16n8k{k}.row.col.s32.{item}.{item}.s32",
            sums,
            (item, 4),
            (item, 2),
            sums,
        )
    add_product(
        "mma b1",
        f"{mma}.m16n8k256.row.col.s32.b1.b1.s32.and.popc",
        sums,
        ("b1", 4),
        ("b1", 2),
        sums,
    )


def add_wmma():
    for item, sums, columns in (("f16", "f32", "row"), ("f16", "f16", "col"), ("u8", "s32", "row")):
        size, of_sum = NUMBERS[item].itemsize, NUMBERS[sums].itemsize
        parts, names = "", {}
        for name, count in (("a", 8 if size == 2 else 2), ("b", 8 if size == 2 else 2)):
            one, names[name] = registers(name, count)
            parts += one
        one, names["c"] = registers("c", 8 if of_sum == 4 else 4)
        second = 256 * size
        shape = "sync.aligned.{}.m16n16k16.{}.{} {}, [{}]"
        given = (item, 256), (item, 256), (sums, 256)
        padding = -sum(NUMBERS[each].itemsize * count for each, count in given) % 512
        types = f"{sums}.{item}.{item}.{sums}" if item != "f16" else f"{sums}.{sums}"
        CASES[f"wmma {item} {sums} {columns}"] = Case(
            (*given, *((("u8", padding),) if padding else ())),
            64 * of_sum,
            f"""{filled(512 * size + 256 * of_sum + padding)} add.u32 %r6, %r9, {second};
            wmma.load.a.{shape.format(columns, "shared", item, names["a"], "%r9")}, 16;
            wmma.load.b.{shape.format("col", "shared", item, names["b"], "%r6")}, 16;
            wmma.load.c.{shape.format("row", "shared", sums, names["c"], "%r6+" + str(second))};
            wmma.mma.sync.aligned.{columns}.col.m16n16k16.{types} {names["c"]}, {names["a"]},
            {names["b"]}, {names["c"]};
            wmma.store.d.sync.aligned.{columns}.m16n16k16.global.{sums} [%rd1], {names["c"]};""",
            parts + one,
        )


class Layout(NamedTuple):
    """How the descriptor of wgmma says where a matrix is: 8 rows of 16 bytes, or of 32."""

    leading: int = 128
    stride: int = 256
    swizzled: bool = False
    transposed: bool = False

    def descriptor(self, address=0):
        strides = self.leading >> 4 << 16 | self.stride >> 4 << 32
        return address >> 4 | strides | 3 * self.swizzled << 62


def add_group_product(name, a, b, adds, item="f16", columns=16):
    """wgmma with A in shared memory, or in registers if `a` is None."""
    inner = 32 // NUMBERS[item].itemsize
    words = columns // 2
    half = 2048
    declared, of_d = registers("d", words)
    more, of_a = registers("a", 4)
    descriptors = [0 if a is None else a.descriptor(), b.descriptor(half)]
    body = (
        filled(2 * half, 128)
        + f"""shr.u32 %r2, %r9, 4; cvt.u64.u32 %rd10, %r2;
    add.u64 %rd11, %rd10, {descriptors[0]}; add.u64 %rd12, %rd10, {descriptors[1]};
    setp.eq.u32 %p1, {adds}, 1;"""
    )
    body += moves("ld", "a", 4, "%rd5", 2 * half) + moves("ld", "d", words, "%rd5", 2 * half + 2048)
    left = of_a if a is None else "%rd11"
    last = "" if item == "u8" else ", 1, 1"
    if NUMBERS[item].itemsize == 2:
        last += "".join(f", {int(each.transposed)}" for each in (a, b) if each)
    sums = "s32" if item == "u8" else "f32"
    body += f"""fence.proxy.async; bar.sync 0; wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n{columns}k{inner}.{sums}.{item}.{item} {of_d}, {left}, %rd12,
    %p1{last}; wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"""
    count = half // NUMBERS[item].itemsize
    of_b = inner * columns  # the rest of that half is not used
    CASES[name] = Case(
        ((item, count), (item, of_b), (item, 2 * count - of_b), (sums, 128 * words)),
        128 * words,
        body + moves("st", "d", words, "%rd1"),
        declared + more,
        128,
        2 * half,
    )


def add_group_products():
    across = Layout(transposed=True)
    add_group_product("wgmma", Layout(), Layout(), 1)
    add_group_product("wgmma without D", Layout(), Layout(), 0)
    add_group_product("wgmma, A in registers", None, Layout(), 1)
    add_group_product("wgmma, transposed", across, across, 1)
    add_group_product("wgmma, swizzled", Layout(swizzled=True), Layout(swizzled=True), 1)
    add_group_product("wgmma u8", Layout(), Layout(), 1, "u8")


IN = """@!%p6 mbarrier.init.shared.b64 [bar], 1; bar.sync 0;
@!%p6 mbarrier.arrive.expect_tx.shared.b64 %rd9, [bar], {bytes};
@!%p6 cp.async.bulk{kind}.shared::cluster.global{mode}.mbarrier::complete_tx::bytes {place}, [bar];
wait: mbarrier.try_wait.parity.shared.b64 %p7, [bar], 0; @!%p7 bra wait;"""
READ = """mad.lo.u32 %r5, %r1, 16, %r9; ld.shared.v4.u32 {%r10, %r11, %r12, %r13}, [%r5];
mul.wide.u32 %rd8, %r1, 16; add.u64 %rd8, %rd8, %rd1;
st.global.v4.u32 [%rd8], {%r10, %r11, %r12, %r13};"""
OUT = "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"


def tensor_map(address, swizzle=0, sizes=(24, 40), box=(16, 16)):
    """A tensor of 32-bit items, in rows of 128 bytes, of which a copy moves a box."""
    encode = ctypes.CDLL(cu.driver_info().path).cuTensorMapEncodeTiled
    room = ctypes.create_string_buffer(256)
    target = -(-ctypes.addressof(room) // 128) * 128
    encode.argtypes = [
        *(ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p),
        *((ctypes.c_void_p,) * 4),
        *((ctypes.c_int,) * 4),
    ]
    status = encode(
        target,
        2,  # CU_TENSOR_MAP_DATA_TYPE_UINT32
        2,
        address,
        (ctypes.c_uint64 * 2)(*sizes),
        (ctypes.c_uint64 * 1)(128),
        (ctypes.c_uint32 * 2)(*box),
        (ctypes.c_uint32 * 2)(1, 1),
        0,
        swizzle,
        0,
        0,
    )
    assert status == 0
    return np.frombuffer(ctypes.string_at(target, 128), "u1")


def add_copies():
    given = (("s32", 128),)
    CASES["a bulk copy to shared memory"] = Case(
        given, 128, IN.format(bytes=512, kind="", mode="", place="[%r9], [%rd5], 512") + READ
    )
    CASES["a bulk copy to global memory"] = Case(
        given,
        128,
        f"""{filled(512)} fence.proxy.async; bar.sync 0;
        @!%p6 cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r9], 512; {OUT}""",
    )
    for item in ("u32", "u64"):
        CASES[f"a reduction of {item}"] = Case(
            given,
            128,
            f"""{filled(512)} fence.proxy.async; bar.sync 0;
            @!%p6 cp.reduce.async.bulk.global.shared::cta.bulk_group.add.{item} [%rd1], [%r9], 512;
            {OUT}""",
        )
    for swizzle in (0, 2):
        CASES[f"a load of a tensor, swizzle {swizzle}"] = Case(
            (("s32", 40 * 32),),
            256,
            "mov.u32 %r20, 12; mov.u32 %r21, 3;"
            + IN.format(bytes=1024, kind=".tensor.2d", mode="", place="[%r9], [%rd6, {%r20, %r21}]")
            + READ.replace("%rd1;", "%rd1; st.global.v4.u32 [%rd8+512], {%r10, %r11, %r12, %r13};")
            + "ld.shared.v4.u32 {%r10, %r11, %r12, %r13}, [%r5+512];"
            "st.global.v4.u32 [%rd8+512], {%r10, %r11, %r12, %r13};",
            map=lambda out, fresh, swizzle=swizzle: tensor_map(fresh, swizzle),
        )
        for kind in ("", "reduce.add"):
            operation = "cp.reduce" if kind else "cp"
            CASES[f"a {kind or 'store'} of a tensor, swizzle {swizzle}"] = Case(
                (("s32", 256),),
                40 * 32,
                f"""{filled(1024)} fence.proxy.async; bar.sync 0; mov.u32 %r20, 12; mov.u32 %r21, 3;
                @!%p6 {operation}.async.bulk.tensor.2d.global.shared::cta{".add" if kind else ""}"""
                f""".tile.bulk_group [%rd6, {{%r20, %r21}}], [%r9]; {OUT}""",
                map=lambda out, fresh, swizzle=swizzle: tensor_map(out, swizzle),
            )


add_small_matrices()
add_products()
add_wmma()
add_group_products()
add_copies()


@pytest.mark.parametrize("name", CASES)
def test_what_depends_on_an_undefined_item(cuda_device, name):
    case = CASES[name]
    given, places = memory(case)
    draw = random.Random(name)
    ends = np.cumsum([count for _, count in case.given])
    for begin, end in zip((0, *ends[:-1]), ends, strict=True):  # items of each part
        for place, numbers in draw.sample(places[begin:end], 3):
            wanted = changing(case, given, place, numbers)
            found, inside = reported(case, given, place, numbers.itemsize)
            assert inside == []
            if name == "a reduction of u64":  # the two words of an item
                wanted |= {word ^ 1 for word in wanted}
            assert found == wanted, (place, numbers.itemsize)
