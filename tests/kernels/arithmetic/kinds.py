"""The types of PTX operands: their forms in memory and registers, and test values."""

import functools
import random
from dataclasses import dataclass, field, replace

COUNT = 2048  # number of values of each operand; each thread uses one


@dataclass(frozen=True)
class Format:
    """A floating-point format, by the numbers of bits of its fraction and exponent."""

    mantissa: int
    exponent: int
    ftz: bool = field(default=False, compare=False)  # whether subnormal results are flushed to zero

    @property
    def bias(self) -> int:
        return (1 << (self.exponent - 1)) - 1

    @property
    def sign(self) -> int:
        return 1 << (self.mantissa + self.exponent)

    @property
    def infinity(self) -> int:
        return ((1 << self.exponent) - 1) << self.mantissa

    @property
    def one(self) -> int:
        return self.bias << self.mantissa

    def is_nan(self, bits: int) -> bool:
        return bits & ~self.sign > self.infinity

    def is_subnormal(self, bits: int) -> bool:
        return 0 < bits & ~self.sign < 1 << self.mantissa

    def flushing(self, ftz: bool = True) -> "Format":
        return replace(self, ftz=ftz)

    def flush(self, bits: int) -> int:
        return bits & self.sign if self.is_subnormal(bits) else bits


@dataclass(frozen=True)
class Kind:
    """A type of operands.

    Values are Python integers; for floating-point types they are the bits.
    """

    name: str
    bits: int
    signed: bool = False
    format: Format | None = None
    lanes: int = 1
    values: str = ""  # "amount": small numbers are likely; "float": floats in a .b32 register

    @property
    def memory(self) -> str:
        return f"{'s' if self.signed else 'u'}{self.bits}"

    @property
    def register(self) -> str:
        return f"b{max(self.bits, 16)}"

    @property
    def dtype(self) -> str:
        return f"{'i' if self.signed else 'u'}{self.bits // 8}"

    def wrap(self, value: int) -> int:
        value &= (1 << self.bits) - 1
        return value - (1 << self.bits) if self.signed and value >> (self.bits - 1) else value


F16, BF16, F32, F64 = Format(10, 5), Format(7, 8), Format(23, 8), Format(52, 11)
KINDS = {
    **{f"u{bits}": Kind(f"u{bits}", bits) for bits in (8, 16, 32, 64)},
    **{f"b{bits}": Kind(f"b{bits}", bits) for bits in (16, 32, 64)},
    **{f"s{bits}": Kind(f"s{bits}", bits, signed=True) for bits in (8, 16, 32, 64)},
    **{f"{sign}16x2": Kind(f"{sign}16x2", 32, lanes=2) for sign in "us"},
    "f16": Kind("f16", 16, format=F16),
    "bf16": Kind("bf16", 16, format=BF16),
    "f16x2": Kind("f16x2", 32, format=F16, lanes=2),
    "bf16x2": Kind("bf16x2", 32, format=BF16, lanes=2),
    "f32": Kind("f32", 32, format=F32),
    "f64": Kind("f64", 64, format=F64),
    "amount": Kind("u32", 32, values="amount"),
}


def special_integers(bits: int) -> list[int]:
    top = 1 << bits
    near = [0, 1, 2, 3, 7, 8, 10, 100, top // 2, top // 3, top // 5 * 2, 1 << (bits // 2)]
    return sorted({(value + step) % top for value in near for step in (-1, 0)})


def special_floats(form: Format) -> list[int]:
    ulp, one, infinity = 1, form.one, form.infinity
    smallest = 1 << form.mantissa  # the smallest normal number
    exponent = 1 << form.mantissa
    positive = [
        *(0, ulp, 2, smallest - 1, smallest, smallest + 1, infinity - 1, infinity),
        *(one, one + ulp, one - ulp, one + exponent, one - exponent, one + exponent // 2),
        *(infinity + exponent // 2, infinity + 1, infinity + exponent // 2 + 5),
    ]
    return [sign | bits for bits in positive for sign in (0, form.sign)]


def near_limits(form: Format) -> list[int]:
    """Numbers that conversions clamp or round: halves, and numbers near limits of other types."""
    found = []
    of_floats = (-150, -149, -127, -126, -25, -24, -15, -14, 15, 16, 127, 128)
    for power in (-1, 0, 1, 2, 7, 8, 10, 22, 23, 24, 31, 32, 52, 53, 63, 64, *of_floats):
        base = (form.bias + power) << form.mantissa
        if 0 < base < form.infinity:
            steps = [-1, 0, 1]
            # Number of bits of the fraction that a conversion keeps.
            for kept in (max(power, 0), 7, 10, 23):
                half = 1 << max(form.mantissa - kept - 1, 0)
                steps += [-half - 1, -half, half - 1, half, half + 1, 3 * half]
            found += [base + step for step in steps]
    return [sign | min(bits, form.infinity) for bits in found for sign in (0, form.sign)]


def random_float(form: Format, choose: random.Random) -> int:
    bits = choose.getrandbits(form.mantissa + form.exponent + 1)
    way = choose.randrange(4)
    if way == 0:
        return bits
    if way == 1:  # few bits, so that sums and products are often halfway between two numbers
        bits &= ~((1 << (form.mantissa * 2 // 3)) - 1)
    # Near 1, or among the smallest numbers.
    size = form.bias + choose.randint(-4, 4) if way < 3 else choose.randrange(3)
    fraction = bits & ((1 << form.mantissa) - 1)
    return bits & form.sign | size << form.mantissa | fraction


def random_value(kind: Kind, choose: random.Random) -> int:
    if kind.values == "amount":
        return choose.choice([choose.randrange(70), choose.randrange(300), choose.getrandbits(32)])
    if kind.format:
        return random_float(kind.format, choose)
    bits = choose.getrandbits(kind.bits) >> choose.choice([0, 0, choose.randrange(kind.bits)])
    return choose.choice([bits, -bits])


def specials_of(kind: Kind, only: bool) -> list[int]:
    """All special values of a type.

    With `only` (the instruction has no other operand), the list is longer.
    """
    if kind.values == "amount":
        return [*range(66), 127, 128, 255, 256, 0x80000000, 0xFFFFFFFF]
    if kind.format:
        return special_floats(kind.format) + (near_limits(kind.format) if only else [])
    return special_integers(kind.bits)


def lane_values(kind: Kind, place: int, kinds: int, choose: random.Random) -> list[int]:
    """Special values, then random ones.

    With two operands, all pairs of special values occur; with three, a random choice of triples.
    """
    specials = specials_of(kind, kinds == 1)
    if kinds == 1:
        values = list(specials)
    elif kinds == 2:
        pairs = 34  # all pairs of this many special values are tested
        specials = specials[:pairs] if kind.values != "amount" else choose.sample(specials, pairs)
        each = [(i // pairs, i % pairs)[place] for i in range(pairs * pairs)]
        values = [specials[i % len(specials)] for i in each]
    else:
        values = [choose.choice(specials) for _ in range(COUNT // 2)]
    return values + [random_value(kind, choose) for _ in range(COUNT - len(values))]


@functools.cache
def operands(kinds: tuple[Kind, ...]) -> tuple[tuple[int, ...], ...]:
    """Values for all operands of an instruction. They are the same in each run."""
    choose = random.Random(" ".join(kind.name + kind.values for kind in kinds))
    columns = []
    for place, kind in enumerate(kinds):
        lanes = [lane_values(kind, place, len(kinds), choose) for _ in range(kind.lanes)]
        width = kind.bits // kind.lanes
        mask = (1 << width) - 1
        rows = zip(*lanes, strict=True)
        columns.append([sum((v & mask) << (width * i) for i, v in enumerate(row)) for row in rows])
    first = kinds[0].format
    if len(kinds) > 1 and first and all(kind.format == first for kind in kinds):
        cancel(columns, first, choose)
    return tuple(
        tuple(kind.wrap(value) for value in column)
        for kind, column in zip(kinds, columns, strict=True)
    )


def cancel(columns: list[list[int]], form: Format, choose: random.Random) -> None:
    """Make the last operand nearly the opposite of the first one in some rows."""
    for row in range(COUNT - COUNT // 8, COUNT):
        near = columns[0][row] + choose.randint(-2, 2)
        if near >= 0:
            columns[-1][row] = near ^ choose.choice([0, form.sign])
            if len(columns) == 3:
                columns[1][row] = form.one + choose.randint(-2, 2)
