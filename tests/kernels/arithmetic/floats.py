"""Floating-point instructions with exactly specified results: sums, products, quotients, roots."""

import functools
from collections.abc import Callable
from dataclasses import replace

from . import exact
from .exact import F64, NEAREST
from .kinds import KINDS, Format
from .operation import Operation, operation

OPERANDS = {"add": 2, "sub": 2, "mul": 2, "fma": 3, "mad": 3, "div": 2, "rcp": 1, "sqrt": 1}
ROUNDINGS = ("rn", "rz", "rm", "rp")


def with_modifiers(
    function: Callable[..., int], form: Format, ftz: bool, sat: bool, relu: bool = False
) -> Callable[..., int]:
    def expected(*operands: int) -> int:
        if ftz:
            operands = tuple(form.flush(bits) for bits in operands)
        bits = function(*operands)
        if ftz:
            bits = form.flush(bits)
        if relu:
            bits = exact.relu(form, bits)
        return exact.saturate(form, bits) if sat else bits

    return expected


def each_lane(function: Callable[..., int]) -> Callable[..., int]:
    """Apply a function to the two halves of a register."""

    def both(*operands: int) -> int:
        low = function(*(bits & 0xFFFF for bits in operands))
        return low | function(*(bits >> 16 for bits in operands)) << 16

    return both


def kinds_of(t: str, count: int) -> str:
    return " ".join([t] * count)


def make(text: str, t: str, count: int, function: Callable[..., int]) -> Operation:
    """An instruction whose operands and result have one type."""
    expected = each_lane(function) if KINDS[t].lanes == 2 else function
    return operation(text, t, kinds_of(t, count), expected)


def arithmetic(t: str, names: str, flags: list[str]) -> list[Operation]:
    """Instructions with all roundings and all flags (".ftz", ".sat")."""
    form = KINDS[t].format
    found = []
    for name in names.split():
        function = exact.OPERATIONS[name.replace("mad", "fma")]
        for rounding in ROUNDINGS:
            for flag in flags:
                flushing = form.flushing(".ftz" in flag)
                rounded = functools.partial(function, flushing, rounding[1])
                if ".sat" in flag and name in ("div", "rcp", "sqrt"):
                    continue
                expected = with_modifiers(rounded, form, ".ftz" in flag, ".sat" in flag)
                found.append(make(f"{name}.{rounding}{flag}.{t}", t, OPERANDS[name], expected))
                if form == F64 and OPERANDS[name] > 1:
                    found[-1] = replace(found[-1], close=one_of_the_nans)
    return found


def one_of_the_nans(got: int, _: int, *operands: int) -> bool:
    """Accept each NaN among the operands: GPUs and their compilers differ in which one results."""
    return got in [bits | 1 << 51 for bits in operands if F64.is_nan(bits)]


def half_arithmetic() -> list[Operation]:
    found = []
    for t in ("f16", "f16x2", "bf16", "bf16x2"):
        form = KINDS[t].format
        flags = ["", ".ftz", ".sat", ".ftz.sat"] if t[0] == "f" else [""]
        for name in ("add", "sub", "mul", "fma"):
            for flag in flags + ([".relu"] if name == "fma" else []):
                flushing = form.flushing(".ftz" in flag)
                function = functools.partial(exact.OPERATIONS[name], flushing, NEAREST)
                modified = with_modifiers(
                    function, form, ".ftz" in flag, ".sat" in flag, flag == ".relu"
                )
                found.append(make(f"{name}.rn{flag}.{t}", t, OPERANDS[name], modified))
    return found


def select(form: Format, sign: int, propagate: bool, a: int, b: int) -> int:
    """The reference for min (sign 1) and max (sign -1), where -0 is less than +0."""
    if form.is_nan(a) and form.is_nan(b):
        return exact.nan_among(form, b, a)
    if form.is_nan(a) or form.is_nan(b):
        return exact.nan_among(form, a, b) if propagate else b if form.is_nan(a) else a

    def key(bits: int) -> tuple[float, bool]:
        return sign * exact.value_of(bits, form), bool(bits & form.sign) == (sign < 0)

    return min(a, b, key=key)


def xorsign(form: Format, function: Callable[..., int], a: int, b: int) -> int:
    bits = function(a & ~form.sign, b & ~form.sign)
    return bits if form.is_nan(bits) else bits & ~form.sign | (a ^ b) & form.sign


def extremes() -> list[Operation]:
    flags = {
        "f64": [""],
        "f32": ["", ".ftz", ".NaN", ".ftz.NaN", ".xorsign.abs", ".ftz.NaN.xorsign.abs"],
        "f16": ["", ".ftz", ".NaN", ".ftz.NaN", ".xorsign.abs", ".NaN.xorsign.abs"],
        "bf16": ["", ".NaN", ".xorsign.abs"],
    }
    found = []
    for t in ("f32", "f64", "f16", "f16x2", "bf16", "bf16x2"):
        form = KINDS[t].format
        for name, sign in (("min", 1), ("max", -1)):
            for flag in flags[t.removesuffix("x2")]:
                function = functools.partial(select, form, sign, ".NaN" in flag)
                if "xorsign" in flag:
                    function = functools.partial(xorsign, form, function)
                expected = with_modifiers(function, form, ".ftz" in flag, False)
                found.append(make(f"{name}{flag}.{t}", t, 2, expected))
    return found


def signs() -> list[Operation]:
    found = []
    for t in ("f32", "f64", "f16", "f16x2", "bf16", "bf16x2"):
        form = KINDS[t].format
        for flag in ["", ".ftz"] if t in ("f32", "f16", "f16x2") else [""]:
            functions = {"abs": lambda a, f=form: a & ~f.sign, "neg": lambda a, f=form: a ^ f.sign}
            for name, function in functions.items():

                def unless_nan(a: int, f=function, form=form) -> int:
                    return exact.nan_among(form, a) if form.is_nan(a) else f(a)

                expected = with_modifiers(unless_nan, form, bool(flag), False)
                found.append(make(f"{name}{flag}.{t}", t, 1, expected))
        if t in ("f32", "f64"):
            found.append(
                operation(
                    f"copysign.{t}",
                    t,
                    f"{t} {t}",
                    lambda a, b, f=form: a & f.sign | b & ~f.sign,
                )
            )
    return found


@functools.cache
def singles() -> list[Operation]:
    return arithmetic("f32", "add sub mul fma mad div rcp sqrt", ["", ".ftz", ".sat", ".ftz.sat"])


@functools.cache
def doubles() -> list[Operation]:
    return arithmetic("f64", "add sub mul fma mad div rcp sqrt", [""])
