"""Bit instructions: shifts, logic tables, bit fields, counts, bytes."""

from .kinds import KINDS
from .operation import Operation, operation

ONES = 0xFFFFFFFF


def shifts() -> list[Operation]:
    found = []
    for n in (16, 32, 64):
        b, u, s = f"b{n}", f"u{n}", f"s{n}"
        found += [
            operation(f"shl.{b}", b, f"{b} amount", lambda a, k, n=n: a << min(k, n)),
            operation(f"shr.{b}", b, f"{b} amount", lambda a, k, n=n: a >> min(k, n)),
            operation(f"shr.{u}", u, f"{u} amount", lambda a, k, n=n: a >> min(k, n)),
            operation(f"shr.{s}", s, f"{s} amount", lambda a, k, n=n: a >> min(k, n)),
        ]
    for mode, amount in (("clamp", lambda k: min(k, 32)), ("wrap", lambda k: k % 32)):
        found += [
            operation(
                f"shf.l.{mode}.b32",
                "b32",
                "b32 b32 amount",
                lambda a, b, k, f=amount: ((b << 32 | a) << f(k)) >> 32,
            ),
            operation(
                f"shf.r.{mode}.b32",
                "b32",
                "b32 b32 amount",
                lambda a, b, k, f=amount: (b << 32 | a) >> f(k),
            ),
        ]
    return found


def table(index: int):
    def each(a: int, b: int, c: int) -> int:
        places = ((a >> i & 1) << 2 | (b >> i & 1) << 1 | c >> i & 1 for i in range(32))
        return sum((index >> place & 1) << i for i, place in enumerate(places))

    return each


def logic() -> list[Operation]:
    found = []
    for n in (16, 32, 64):
        b = f"b{n}"
        found += [
            operation(f"and.{b}", b, f"{b} {b}", lambda x, y: x & y),
            operation(f"or.{b}", b, f"{b} {b}", lambda x, y: x | y),
            operation(f"xor.{b}", b, f"{b} {b}", lambda x, y: x ^ y),
            operation(f"not.{b}", b, b, lambda x: ~x),
            operation(f"cnot.{b}", b, b, lambda x: int(x == 0)),
        ]
    for index in (0x00, 0x01, 0x1B, 0x80, 0x96, 0xCA, 0xE8, 0xF0, 0xFF):
        found.append(
            operation(
                f"lop3.b32 table {index:#04x}",
                "b32",
                "b32 b32 b32",
                table(index),
                f"lop3.b32 %d, %a, %b, %c, {index:#x};",
            )
        )
    return found


def extract(a: int, position: int, length: int, bits: int, signed: bool) -> int:
    a &= (1 << bits) - 1
    position, length, top = position & 0xFF, length & 0xFF, bits - 1
    sign = a >> min(position + length - 1, top) & 1 if signed and length else 0
    return sum(
        (a >> (position + i) & 1 if i < length and position + i <= top else sign) << i
        for i in range(bits)
    )


def insert(a: int, b: int, position: int, length: int, bits: int) -> int:
    position, length = position & 0xFF, length & 0xFF
    for i in range(min(length, max(bits - position, 0))):
        b = b & ~(1 << (position + i)) | (a >> i & 1) << (position + i)
    return b


def to_byte(t: str, register: str) -> str:
    """PTX that masks a position or a length to its lowest byte.

    PTX says that instructions use only this byte, but GPUs do so only for fields of 32 bits.
    """
    return f"and.b32 {register}, {register}, 255;" if "64" in t else ""


def fields() -> list[Operation]:
    found = [
        operation(
            f"bfe.{t}",
            t,
            f"{t} amount amount",
            lambda a, p, n, bits=KINDS[t].bits, s=t[0] == "s": extract(a, p, n, bits, s),
            f"{to_byte(t, '%b')} {to_byte(t, '%c')} bfe.{t} %d, %a, %b, %c;",
        )
        for t in ("u32", "s32", "u64", "s64")
    ]
    # The kernels have three operands, so the third one contains position and length.
    for b in ("b32", "b64"):
        found.append(
            operation(
                f"bfi.{b}",
                b,
                f"{b} {b} amount",
                lambda x, y, k, n=KINDS[b].bits: insert(x, y, k, k >> 2 & 0x1F, n),
                f"shr.u32 %t0, %c, 2; and.b32 %t0, %t0, 31; {to_byte(b, '%c')}"
                f" bfi.{b} %d, %a, %b, %c, %t0;",
            )
        )
        found.append(
            operation(
                f"bfi.{b}, any length",
                b,
                f"{b} {b} amount",
                lambda x, y, k, n=KINDS[b].bits: insert(x, y, 3, k, n),
                f"mov.u32 %t0, 3; {to_byte(b, '%c')} bfi.{b} %d, %a, %b, %t0, %c;",
            )
        )
    return found


def highest(a: int, bits: int) -> int:
    """The index of the highest one bit; for a negative number, of its highest zero bit."""
    value = ~a if a < 0 else a
    return value.bit_length() - 1 if value else ONES


def find_nth(mask: int, base: int, offset: int) -> int:
    if offset == 0:
        return base if mask >> base & 1 else ONES
    step = 1 if offset > 0 else -1
    places = range(base, 32 if step > 0 else -1, step)
    found = [place for place in places if mask >> place & 1]
    return found[abs(offset) - 1] if abs(offset) <= len(found) else ONES


def counts() -> list[Operation]:
    found = []
    for n in (32, 64):
        b = f"b{n}"
        found += [
            operation(f"popc.{b}", "u32", b, lambda a: a.bit_count()),
            operation(f"clz.{b}", "u32", b, lambda a, n=n: n - a.bit_length()),
            operation(f"brev.{b}", b, b, lambda a, n=n: int(f"{a:0{n}b}"[::-1], 2)),
        ]
        for t in (f"u{n}", f"s{n}"):

            def shift(a: int, n: int = n) -> int:
                place = highest(a, n)
                return place if place == ONES else n - 1 - place

            found += [
                operation(f"bfind.{t}", "u32", t, lambda a, n=n: highest(a, n)),
                operation(f"bfind.shiftamt.{t}", "u32", t, shift),
            ]
    found.append(
        operation(
            "fns.b32",
            "b32",
            "b32 amount s32",
            lambda mask, base, offset: find_nth(mask, base & 31, offset % 70 - 35),
            "and.b32 %b, %b, 31; rem.s32 %c, %c, 70; setp.lt.s32 %p, %c, 0;"
            " @%p add.s32 %c, %c, 70; sub.s32 %c, %c, 35; fns.b32 %d, %a, %b, %c;",
        )
    )
    return found


MODES = {  # modes of prmt: the selected bytes for each selector, the highest byte first
    "f4e": ("3210", "4321", "5432", "6543"),
    "b4e": ("5670", "6701", "7012", "0123"),
    "rc8": ("0000", "1111", "2222", "3333"),
    "ecl": ("3210", "3211", "3222", "3333"),
    "ecr": ("0000", "1110", "2210", "3210"),
    "rc16": ("1010", "3232", "1010", "3232"),
}


def permute(a: int, b: int, selector: int) -> int:
    source = (b << 32 | a).to_bytes(8, "little")
    result = []
    for i in range(4):
        digit = selector >> (4 * i) & 15
        byte = source[digit & 7]
        result.append(0xFF * (byte >> 7) if digit & 8 else byte)
    return int.from_bytes(result, "little")


def bytes_() -> list[Operation]:
    found = [operation("prmt.b32", "b32", "b32 b32 b32", permute)]
    for mode, selectors in MODES.items():
        found.append(
            operation(
                f"prmt.b32.{mode}",
                "b32",
                "b32 b32 b32",
                lambda a, b, c, s=selectors: permute(a, b, int(s[c & 3], 16)),
            )
        )
    return found


def extend(a: int, width: int, wrap: bool, signed: bool) -> int:
    width = width & 31 if wrap else min(width, 32)
    a &= (1 << width) - 1
    return a - (1 << width) if signed and width and a >> (width - 1) else a


def mask(start: int, width: int, wrap: bool) -> int:
    start, width = (start & 31, width & 31) if wrap else (min(start, 32), min(width, 32))
    return ((1 << width) - 1) << start


def masks() -> list[Operation]:
    found = []
    for mode, wrap in (("clamp", False), ("wrap", True)):
        for t in ("u32", "s32"):
            found.append(
                operation(
                    f"szext.{mode}.{t}",
                    t,
                    f"{t} amount",
                    lambda a, k, w=wrap, s=t[0] == "s": extend(a, k, w, s),
                )
            )
        found.append(
            operation(
                f"bmsk.{mode}.b32",
                "b32",
                "amount amount",
                lambda a, k, w=wrap: mask(a, k, w),
            )
        )
    return found


def operations() -> list[Operation]:
    return [*shifts(), *logic(), *fields(), *counts(), *bytes_(), *masks()]
