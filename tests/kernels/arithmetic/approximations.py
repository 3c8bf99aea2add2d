"""Approximate instructions (.approx and .full), for which PTX gives error bounds."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from . import exact
from .exact import NEAREST, round_to, value_of
from .kinds import F32, F64, KINDS, Format
from .operation import Operation, operation


def safe(function: Callable[..., float]) -> Callable[..., float]:
    """Wrap a function so that it returns NaN or infinity as in IEEE, and raises nothing."""

    def call(*values: float) -> float:
        try:
            return function(*values)
        except ValueError:
            return math.nan
        except OverflowError:
            return math.inf

    return call


def reciprocal(x: float) -> float:
    return 1 / x if x else math.copysign(math.inf, x)


def logarithm(x: float) -> float:
    return -math.inf if x == 0 else math.log2(x)


def root_reciprocal(x: float) -> float:
    return reciprocal(math.copysign(math.sqrt(x), x))


def to_bits(x: float, form: Format) -> int:
    if math.isnan(x):
        return exact.DEFAULT_NAN[form]
    sign = form.sign if math.copysign(1, x) < 0 else 0
    if math.isinf(x):
        return form.infinity | sign
    return round_to(Fraction(x), form, NEAREST, sign)


@dataclass(frozen=True)
class Bound:
    """An error bound: the larger one of a relative and an absolute error.

    It holds only for operands for which `inside` returns True.
    """

    form: Format
    relative: float = 0.0
    absolute: float = 0.0
    inside: Callable[..., bool] = lambda *values: True
    ftz: bool = False

    def __call__(self, got: int, wanted: int, *operands: int) -> bool:
        values = [value_of(bits, self.form) for bits in operands]
        if not self.inside(*values):
            return True
        x, y = value_of(got, self.form), value_of(wanted, self.form)
        if math.isnan(y) or math.isinf(y) or math.isinf(x):
            return math.isnan(x) and math.isnan(y)
        # The unit of subnormal numbers, or with .ftz the smallest normal number: results below it
        # may or may not be flushed to zero.
        smallest = 2.0 ** (1 - self.form.bias - (0 if self.ftz else self.form.mantissa))
        return abs(x - y) <= max(self.relative * abs(y), self.absolute, smallest)


def unary(
    text: str,
    t: str,
    function: Callable[[float], float],
    bound: Bound,
    ftz: bool = False,
    known: int = -1,
) -> Operation:
    """An instruction with one operand. Only the bits that are set in `known` affect the result."""
    form = KINDS[t].format
    reference = safe(function)

    def expected(a: int) -> int:
        a = form.flush(a & known) if ftz else a & known
        bits = to_bits(reference(value_of(a, form)), form)
        return form.flush(bits) if ftz else bits

    return operation(f"{text}.{t}", t, t, expected, close=bound)


def singles() -> list[Operation]:
    found = []
    for ftz in ("", ".ftz"):

        def bound(relative: float, absolute: float = 0.0, ftz=ftz, **more) -> Bound:
            return Bound(F32, relative, absolute, ftz=bool(ftz), **more)

        def near(x: float) -> bool:
            return not abs(x) > math.pi or math.isinf(x)

        def add(text: str, function, bound: Bound, ftz=ftz) -> None:
            found.append(unary(f"{text}.approx{ftz}", "f32", function, bound, bool(ftz)))

        add("rcp", reciprocal, bound(2.0**-23))
        add("sqrt", math.sqrt, bound(2.0**-22))
        add("rsqrt", root_reciprocal, bound(2.0**-22.4))
        add("sin", math.sin, bound(0, 2.0**-20.5, inside=near))
        add("cos", math.cos, bound(0, 2.0**-20.5, inside=near))
        add("lg2", logarithm, bound(2.0**-22, 2.0**-22))
        add("ex2", math.exp2, bound(2.0**-22))
    return [*found, unary("tanh.approx", "f32", math.tanh, Bound(F32, 2.0**-11))]


def quotients() -> list[Operation]:
    found = []
    for way in ("approx", "full"):
        for ftz in ("", ".ftz"):

            def expected(a: int, b: int, ftz=bool(ftz), way=way) -> int:
                if ftz:
                    a, b = F32.flush(a), F32.flush(b)
                y = abs(value_of(b, F32))
                if way == "approx" and 2.0**126 < y < math.inf:
                    b = F32.infinity | b & F32.sign
                bits = exact.div(F32, NEAREST, a, b)
                return F32.flush(bits) if ftz else bits

            def inside(x: float, y: float, ftz=bool(ftz)) -> bool:
                return not 0 < abs(y) < 2.0**-126

            text = f"div.{way}{ftz}.f32"
            bound = Bound(F32, 2.0**-22, ftz=bool(ftz), inside=inside)
            found.append(operation(text, "f32", "f32 f32", expected, close=bound))
    return found


def doubles() -> list[Operation]:
    upper = ~0xFFFFFFFF
    gross = Bound(F64, 2.0**-19, ftz=True)
    return [
        unary("rcp.approx.ftz", "f64", reciprocal, gross, ftz=True, known=upper),
        unary("rsqrt.approx.ftz", "f64", root_reciprocal, gross, ftz=True, known=upper),
        unary("rsqrt.approx", "f64", root_reciprocal, Bound(F64, 2.0**-50)),
    ]


def half_precision() -> list[Operation]:
    found = []
    for t, exponential, tangent in (
        ("f16", {"relative": 2.0**-9.9}, {"absolute": 2.0**-10.9}),
        ("bf16", {"relative": 2.0**-7}, {"relative": 2.0**-7}),
    ):
        ftz = ".ftz" if t == "bf16" else ""
        form = KINDS[t].format
        bound = Bound(form, **exponential, ftz=bool(ftz))
        for packed in ("", "x2"):
            for text, function, each, flush in (
                (f"ex2.approx{ftz}", math.exp2, bound, bool(ftz)),
                ("tanh.approx", math.tanh, Bound(form, **tangent), False),
            ):
                one = unary(text, t, function, each, flush)
                found.append(both_halves(one, text, f"{t}x2") if packed else one)
    return found


def both_halves(one: Operation, text: str, t: str) -> Operation:
    def expected(a: int) -> int:
        return one.expected(a & 0xFFFF) | one.expected(a >> 16) << 16

    def close(got: int, wanted: int, a: int) -> bool:
        parts = ((v & 0xFFFF, v >> 16) for v in (got, wanted, a))
        return all(g == w or one.close(g, w, x) for g, w, x in zip(*parts, strict=True))

    return operation(f"{text}.{t}", t, t, expected, close=close)


def operations() -> list[Operation]:
    return [*singles(), *quotients(), *doubles(), *half_precision()]
