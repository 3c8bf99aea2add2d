"""cvt between all types."""

import bisect
from collections.abc import Callable
from fractions import Fraction
from functools import cache

from . import exact
from .exact import AWAY, NEAREST, convert, integral, round_to, saturate, to_integer
from .kinds import BF16, F16, F32, F64, KINDS, Format, Kind
from .operation import Operation, operation

INTEGERS = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64")
FLOATS = ("f16", "f32", "f64")
MODES = ("n", "z", "m", "p")


def stored(t: str) -> str:
    """The type of the register that stores a result: a byte is extended to 16 bits."""
    return {"u8": "u16", "s8": "s16"}.get(t, t)


def limits(kind: Kind) -> tuple[int, int]:
    if kind.signed:
        return -(1 << (kind.bits - 1)), (1 << (kind.bits - 1)) - 1
    return 0, (1 << kind.bits) - 1


def between_integers() -> list[Operation]:
    found = []
    for to in INTEGERS:
        low, high = limits(KINDS[to])
        for source in INTEGERS:
            found.append(operation(f"cvt.{to}.{source}", stored(to), source, KINDS[to].wrap))
            lowest, highest = limits(KINDS[source])
            # .sat is an error if the target type has all values of the source.
            if lowest < low or highest > high:
                found.append(
                    operation(
                        f"cvt.sat.{to}.{source}",
                        stored(to),
                        source,
                        lambda a, low=low, high=high: min(max(a, low), high),
                    )
                )
    return found


def packs() -> list[Operation]:
    """cvt.pack: two numbers, clamped, and the rest of the result from a third operand."""
    found = []
    for bits in (2, 4, 8, 16):
        for sign in "us":
            low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if sign == "s" else (0, 0)
            high = high or (1 << bits) - 1

            def pack(a: int, b: int, c: int = 0, n=bits, low=low, high=high) -> int:
                first, second = (min(max(x, low), high) & ((1 << n) - 1) for x in (a, b))
                return second | first << n | (c & ((1 << 32) - 1)) << (2 * n)

            kinds, rest = ("s32 s32", "") if bits == 16 else ("s32 s32 b32", ".b32")
            found.append(operation(f"cvt.pack.sat.{sign}{bits}.s32{rest}", "b32", kinds, pack))
    return found


def integers_from_floats() -> list[Operation]:
    found = []
    for to in INTEGERS:
        kind = KINDS[to]
        low, high = limits(kind)
        for source in FLOATS:
            form = KINDS[source].format
            wide = kind.bits == 64 or form == F64
            nan = kind.wrap(1 << (kind.bits - 1)) if wide else 0
            for mode in MODES:
                for ftz in ("", ".ftz") if source == "f32" else ("",):

                    def expected(a: int, f=form, r=(low, high, nan), mode=mode, z=bool(ftz)) -> int:
                        return to_integer(*r, mode, f.flush(a) if z else a, f)

                    text = f"cvt.r{mode}i{ftz}.{to}.{source}"
                    found.append(operation(text, stored(to), source, expected))
    return found


def floats_from_integers() -> list[Operation]:
    found = []
    for to in FLOATS:
        form = KINDS[to].format
        for source in INTEGERS:
            for mode in MODES:
                found.append(
                    operation(
                        f"cvt.r{mode}.{to}.{source}",
                        to,
                        source,
                        lambda a, f=form, mode=mode: round_to(Fraction(a), f, mode),
                    )
                )
    found.append(
        operation(
            "cvt.rn.sat.f32.s32",
            "f32",
            "s32",
            lambda a: saturate(F32, round_to(Fraction(a), F32, NEAREST)),
        )
    )
    return found


def modified(
    function: Callable[[int], int], source: Format, to: Format, flags: str
) -> Callable[[int], int]:
    def expected(a: int) -> int:
        ftz = ".ftz" in flags
        if ftz and source == F32:
            a = exact.nan_among(source, a) if source.is_nan(a) else source.flush(a)
        bits = function(a)
        bits = to.flush(bits) if ftz and to == F32 else bits
        if ".relu" in flags:
            bits = exact.relu(to, bits)
        return saturate(to, bits) if ".sat" in flags else bits

    return expected


def between_floats() -> list[Operation]:
    texts = []
    for mode in MODES:
        texts += [
            *(f"r{mode}.f32.f64", f"r{mode}.ftz.f32.f64", f"r{mode}.sat.f32.f64"),
            *(f"r{mode}.f16.f32", f"r{mode}.f16.f64"),
            *(f"r{mode}i.{t}.{t}" for t in FLOATS),
            *(f"r{mode}i.ftz.f32.f32", f"r{mode}i.sat.f32.f32"),
        ]
    texts += ["f32.f16", "f64.f16", "f64.f32", "ftz.f64.f32", "ftz.f32.f16", "f32.bf16"]
    texts += ["f32.f32", "ftz.f32.f32", "sat.f32.f32", "f64.f64", "sat.f64.f64", "f16.f16"]
    texts += ["rn.sat.f16.f32", "rn.ftz.f16.f32", "rn.relu.f16.f32", "rz.relu.f16.f32"]
    texts += ["rn.bf16.f32", "rz.bf16.f32", "rn.relu.bf16.f32", "sat.f32.f16", "sat.f64.f32"]
    found = []
    for text in texts:
        first, to, source = text.rsplit(".", 2) if text.count(".") > 1 else ("", *text.split("."))
        mode = first[1] if first[:1] == "r" and first[:2] != "re" else NEAREST
        form = KINDS[source].format
        into = KINDS[to].format.flushing("ftz" in first and to == "f32")

        def function(a: int, whole=first[2:3] == "i", m=mode, f=form, t=into) -> int:
            if whole:
                return integral(f, m, a)
            return convert(t, m, a, f)

        expected = modified(function, form, into, f".{first}")
        # A conversion to the same type may copy a NaN unchanged.
        close = either_nan(into) if to == source and not first else None
        found.append(operation(f"cvt.{text}", to, source, expected, close=close))
    return found


def either_nan(form: Format) -> Callable[..., bool]:
    return lambda got, wanted, *operands: form.is_nan(got) and form.is_nan(wanted)


def packed() -> list[Operation]:
    found = []
    for to, form in (("f16x2", F16), ("bf16x2", BF16)):
        for mode in ("n", "z"):
            for relu in ("", ".relu"):

                def both(a: int, b: int, f=form, mode=mode, r=bool(relu)) -> int:
                    high, low = (convert(f, mode, bits, F32) for bits in (a, b))
                    if r:
                        high, low = exact.relu(f, high), exact.relu(f, low)
                    return high << 16 | low

                found.append(operation(f"cvt.r{mode}{relu}.{to}.f32", to, "f32 f32", both))
    # The result for a NaN is not specified; GPUs were seen to give an infinity.
    found.append(
        operation(
            "cvt.rna.tf32.f32", "b32", "f32", to_tf32, close=lambda got, wanted, a: F32.is_nan(a)
        )
    )
    return found


@cache
def f8_values(item: str) -> list[Fraction]:
    """The positive numbers of an 8-bit format, in the order of their bits."""
    mantissa, bias, count = (3, 7, 0x7F) if item == "e4m3" else (2, 15, 0x7C)
    return [
        Fraction((bits >> mantissa and 1 << mantissa) + bits % (1 << mantissa))
        * Fraction(2) ** (max(bits >> mantissa, 1) - bias - mantissa)
        for bits in range(count)
    ]


def into_f8(item: str, a: int, form: Format, relu: bool) -> int:
    """The nearest number, at most the largest one. If two are equally near, the even one."""
    x = exact.value_of(a, form)
    if x != x:
        return 0x7F
    if relu and a & form.sign:
        return 0
    sign = 0x80 if a & form.sign else 0
    numbers = f8_values(item)
    if abs(x) >= numbers[-1]:
        return sign | len(numbers) - 1
    size = abs(Fraction(x))
    above = bisect.bisect_left(numbers, size)
    around = [bits for bits in (above - 1, above) if bits >= 0]
    return sign | min(around, key=lambda bits: (abs(numbers[bits] - size), bits % 2))


def from_f8(item: str, bits: int, relu: bool) -> int:
    size = bits & 0x7F
    if size == 0x7F or (item == "e5m2" and size > 0x7C):
        return 0x7FFF
    if relu and bits & 0x80:
        return 0
    if item == "e5m2" and size == 0x7C:
        return (bits & 0x80) << 8 | 0x7C00
    return (bits & 0x80) << 8 | round_to(f8_values(item)[size], F16, NEAREST)


def either_f8_nan(item: str) -> Callable[..., bool]:
    """A comparison that accepts any NaN of e5m2, because PTX does not specify which one results."""

    def plain(pair: int) -> list[int]:
        return [0x7F if item == "e5m2" and b & 0x7F > 0x7C else b for b in (pair >> 8, pair & 255)]

    return lambda got, wanted, *operands: plain(got) == plain(wanted)


def eight_bits() -> list[Operation]:
    found = []
    for item in ("e4m3", "e5m2"):
        for relu in ("", ".relu"):

            def of_floats(a: int, b: int, i=item, r=bool(relu)) -> int:
                return into_f8(i, a, F32, r) << 8 | into_f8(i, b, F32, r)

            def of_halves(a: int, i=item, r=bool(relu)) -> int:
                return into_f8(i, a >> 16, F16, r) << 8 | into_f8(i, a & 0xFFFF, F16, r)

            def to_halves(a: int, i=item, r=bool(relu)) -> int:
                return from_f8(i, a >> 8, r) << 16 | from_f8(i, a & 255, r)

            close = either_f8_nan(item)
            into = f"cvt.rn.satfinite{relu}.{item}x2"
            found += [
                operation(f"{into}.f32", "b16", "f32 f32", of_floats, close=close),
                operation(f"{into}.f16x2", "b16", "f16x2", of_halves, close=close),
                operation(f"cvt.rn{relu}.f16x2.{item}x2", "b32", "b16", to_halves),
            ]
    return found


def to_tf32(a: int) -> int:
    """Round to a float whose lowest 13 bits are zero."""
    short = Format(10, 8)
    if a & ~F32.sign >= F32.infinity:
        return a
    return round_to(Fraction(exact.value_of(a, F32)), short, AWAY, (a & F32.sign) >> 13) << 13


def operations() -> list[Operation]:
    return [
        *between_integers(),
        *packs(),
        *integers_from_floats(),
        *floats_from_integers(),
        *between_floats(),
        *packed(),
        *eight_bits(),
    ]
