"""Floating-point results that are computed as rational numbers and rounded once."""

import math
import struct
from fractions import Fraction

from .kinds import BF16, F16, F32, F64, Format

# The rounding modifiers rn, rz, rm, rp, rna.
NEAREST, ZERO, DOWN, UP, AWAY = "n", "z", "m", "p", "a"
DEFAULT_NAN = {F16: 0x7FFF, BF16: 0x7FFF, F32: 0x7FFFFFFF, F64: 0xFFF8000000000000}
UNPACK = {F16: ("<H", "<e"), F32: ("<I", "<f"), F64: ("<Q", "<d")}


def value_of(bits: int, form: Format) -> float:
    """The number with these bits. Each number of the formats fits into a Python float."""
    if form == BF16:
        return value_of(bits << 16, F32)
    integer, floating = UNPACK[form]
    return struct.unpack(floating, struct.pack(integer, bits))[0]


def nan_among(form: Format, *operands: int) -> int:
    """The NaN that an operation returns.

    For doubles it is the first operand that is a NaN, made quiet.
    """
    if form == F64:
        for bits in operands:
            if form.is_nan(bits):
                return bits | 1 << 51
    return DEFAULT_NAN[form]


def divide(above: int, below: int, mode: str) -> int:
    """Divide integers and round the quotient."""
    down, rest = divmod(above, below)
    if mode in (NEAREST, AWAY):
        tie = down % 2 if mode == NEAREST else above > 0
        return down + (2 * rest > below or (2 * rest == below and bool(tie)))
    return down + (rest != 0 and (mode == UP or (mode == ZERO and above < 0)))


def round_to(exact: Fraction, form: Format, mode: str, zero: int = 0) -> int:
    """Round to the bits of a format. The result for 0 is `zero`."""
    if exact == 0:
        return zero
    sign = form.sign if exact < 0 else 0
    above, below = abs(exact.numerator), exact.denominator
    exponent = above.bit_length() - below.bit_length()
    exponent -= above << max(-exponent, 0) < below << max(exponent, 0)
    lowest = 1 - form.bias - form.mantissa  # exponent of the smallest subnormal number
    quantum = exponent - form.mantissa if form.ftz else max(exponent - form.mantissa, lowest)
    if sign:
        mode = {DOWN: UP, UP: DOWN}.get(mode, mode)
    count = divide(above << max(-quantum, 0), below << max(quantum, 0), mode)
    if quantum < lowest:  # flushed, unless the number was rounded up to the smallest normal number
        reached = quantum == lowest - 1 and count == 2 << form.mantissa
        return sign | (1 << form.mantissa if reached else 0)
    bits = count + ((quantum - lowest) << form.mantissa)
    if bits >= form.infinity:
        bits = form.infinity - (mode in (ZERO, DOWN))
    return sign | bits


def opposite_zero(mode: str, form: Format, *signs: int) -> int:
    """The bits of a sum that is zero, whose terms have these signs."""
    same = len(set(signs)) == 1
    return signs[0] if same else form.sign if mode == DOWN else 0


def fma(form: Format, mode: str, a: int, b: int, c: int) -> int:
    x, y, z = (value_of(bits, form) for bits in (a, b, c))
    if any(map(math.isnan, (x, y, z))):
        return nan_among(form, a, c, b)
    sign = (a ^ b) & form.sign
    if math.isinf(x) or math.isinf(y):
        if x == 0 or y == 0 or (math.isinf(z) and c & form.sign != sign):
            return nan_among(form)
        return form.infinity | sign
    if math.isinf(z):
        return c
    exact = Fraction(x) * Fraction(y) + Fraction(z)
    return round_to(exact, form, mode, opposite_zero(mode, form, sign, c & form.sign))


def add(form: Format, mode: str, a: int, b: int) -> int:
    if form.is_nan(a) or form.is_nan(b):
        return nan_among(form, a, b)
    return fma(form, mode, a, form.one, b)


def sub(form: Format, mode: str, a: int, b: int) -> int:
    if form.is_nan(a) or form.is_nan(b):
        return nan_among(form, a, b)
    return add(form, mode, a, b ^ form.sign)


def mul(form: Format, mode: str, a: int, b: int) -> int:
    if form.is_nan(a) or form.is_nan(b):
        return nan_among(form, a, b)
    return fma(form, mode, a, b, (a ^ b) & form.sign)  # adds a zero with the sign of the product


def div(form: Format, mode: str, a: int, b: int) -> int:
    x, y = value_of(a, form), value_of(b, form)
    if math.isnan(x) or math.isnan(y):
        return nan_among(form, a, b)
    sign = (a ^ b) & form.sign
    if math.isinf(x) or y == 0:
        bad = math.isinf(y) or x == 0
        return nan_among(form) if bad and not (math.isinf(x) and y == 0) else form.infinity | sign
    if math.isinf(y):
        return sign
    return round_to(Fraction(x) / Fraction(y), form, mode, sign)


def rcp(form: Format, mode: str, a: int) -> int:
    return div(form, mode, form.one, a)


def sqrt(form: Format, mode: str, a: int) -> int:
    x = value_of(a, form)
    if math.isnan(x) or x < 0:
        return nan_among(form, a)
    if x == 0 or math.isinf(x):
        return a
    exact = Fraction(x)
    power = 2 * (form.mantissa + form.bias + 8)  # many more bits than any format keeps
    scaled = (exact.numerator << power) // exact.denominator
    root = math.isqrt(scaled)
    sticky = root * root != scaled or scaled * exact.denominator != exact.numerator << power
    return round_to(Fraction(2 * root + sticky, 1 << (power // 2 + 1)), form, mode)


OPERATIONS = {"add": add, "sub": sub, "mul": mul, "fma": fma, "div": div, "rcp": rcp, "sqrt": sqrt}


def saturate(form: Format, bits: int) -> int:
    if form.is_nan(bits) or bits & form.sign:
        return 0
    return min(bits, form.one)


def relu(form: Format, bits: int) -> int:
    return 0 if bits & form.sign and not form.is_nan(bits) else bits


def convert_nan(to: Format, a: int, form: Format) -> int:
    """Convert a NaN.

    The payload is kept if one of the formats is F64, or from bfloat16 to float.
    """
    if form == BF16 and to == F32:
        return a << 16
    if F64 not in (to, form):
        return DEFAULT_NAN[to]
    sign = to.sign if a & form.sign else 0
    payload = (a & ((1 << form.mantissa) - 1)) << 64 >> (64 + form.mantissa - to.mantissa)
    return sign | to.infinity | payload | 1 << (to.mantissa - 1)


def convert(to: Format, mode: str, a: int, form: Format) -> int:
    """Convert a number to another format."""
    x = value_of(a, form)
    if math.isnan(x):
        return convert_nan(to, a, form)
    sign = to.sign if a & form.sign else 0
    return to.infinity | sign if math.isinf(x) else round_to(Fraction(x), to, mode, sign)


def integral(form: Format, mode: str, a: int) -> int:
    """Round to an integer, in the same format."""
    x = value_of(a, form)
    if math.isnan(x):
        return nan_among(form, a)
    if math.isinf(x):
        return a
    whole = Fraction(divide(*x.as_integer_ratio(), mode))
    return round_to(whole, form, NEAREST, a & form.sign)


def to_integer(low: int, high: int, nan: int, mode: str, a: int, form: Format) -> int:
    x = value_of(a, form)
    if math.isnan(x):
        return nan
    if math.isinf(x):
        return high if x > 0 else low
    return min(max(divide(*x.as_integer_ratio(), mode), low), high)
