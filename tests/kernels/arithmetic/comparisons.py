"""set, setp, selp, slct and testp."""

import math
import operator
from collections.abc import Callable

from .exact import value_of
from .kinds import KINDS, Format, Kind
from .operation import Operation, operation

ORDERED = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}
UNSIGNED = {"lo": operator.lt, "ls": operator.le, "hi": operator.gt, "hs": operator.ge}


def compare_floats(name: str, form: Format, ftz: bool) -> Callable[[int, int], bool]:
    def compare(a: int, b: int) -> bool:
        x, y = (value_of(form.flush(bits) if ftz else bits, form) for bits in (a, b))
        unordered = math.isnan(x) or math.isnan(y)
        if name in ("num", "nan"):
            return unordered == (name == "nan")
        if unordered:
            return name.endswith("u")
        return ORDERED[name.removesuffix("u")](x, y)

    return compare


def comparisons_of(kind: Kind, ftz: bool) -> dict[str, Callable[[int, int], bool]]:
    if kind.format:
        names = [*ORDERED, *(f"{name}u" for name in ORDERED), "num", "nan"]
        return {name: compare_floats(name, kind.format, ftz) for name in names}
    if kind.name[0] == "b":
        return {name: ORDERED[name] for name in ("eq", "ne")}
    return ORDERED | (UNSIGNED if kind.name[0] == "u" else {})


def compared() -> list[Operation]:
    found = []
    for t in ("b16", "u16", "s16", "b32", "u32", "s32", "b64", "u64", "s64", "f32", "f64"):
        for ftz in ("", ".ftz") if t == "f32" else ("",):
            for name, compare in comparisons_of(KINDS[t], bool(ftz)).items():
                found += [
                    operation(
                        f"setp.{name}{ftz}.{t}",
                        "u32",
                        f"{t} {t}",
                        lambda a, b, f=compare: int(f(a, b)),
                        f"setp.{name}{ftz}.{t} %p, %a, %b; selp.u32 %d, 1, 0, %p;",
                    ),
                    operation(
                        f"set.{name}{ftz}.u32.{t}",
                        "u32",
                        f"{t} {t}",
                        lambda a, b, f=compare: -int(f(a, b)),
                    ),
                    operation(
                        f"set.{name}{ftz}.f32.{t}",
                        "f32",
                        f"{t} {t}",
                        lambda a, b, f=compare: 0x3F800000 * f(a, b),
                    ),
                ]
    for t in ("f16x2", "bf16x2"):
        for ftz in ("", ".ftz") if t == "f16x2" else ("",):
            for name, compare in comparisons_of(KINDS[t.removesuffix("x2")], bool(ftz)).items():
                for to, true in ((t, KINDS[t].format.one), ("u32", 0xFFFF), ("s32", 0xFFFF)):
                    found.append(
                        operation(
                            f"set.{name}{ftz}.{to}.{t}",
                            "u32",
                            f"{t} {t}",
                            lambda a, b, f=compare, one=true: (
                                one * f(a & 0xFFFF, b & 0xFFFF) | (one * f(a >> 16, b >> 16)) << 16
                            ),
                        )
                    )
    for t in ("f16", "bf16"):
        for name, compare in comparisons_of(KINDS[t], False).items():
            found.append(
                operation(
                    f"setp.{name}.{t}",
                    "u32",
                    f"{t} {t}",
                    lambda a, b, f=compare: int(f(a, b)),
                    f"setp.{name}.{t} %p, %a, %b; selp.u32 %d, 1, 0, %p;",
                )
            )
    return found


def combined() -> list[Operation]:
    """Comparisons that are combined with a predicate, and setp with two results."""
    found = []
    greater = compare_floats("gt", KINDS["f32"].format, False)
    for name, function in (("and", operator.and_), ("or", operator.or_), ("xor", operator.xor)):
        found.append(
            operation(
                f"setp.lt.{name}.s32 p|q",
                "u32",
                "s32 s32 u32",
                lambda a, b, c, f=function: f(a < b, c & 1) + 2 * f(a >= b, c & 1),
                "and.b32 %c, %c, 1; setp.ne.u32 %p, %c, 0;"
                f" {{ .reg .pred %x; setp.lt.{name}.s32 %x|%q, %a, %b, %p;"
                " selp.u32 %t0, 1, 0, %x; selp.u32 %t1, 2, 0, %q; add.u32 %d, %t0, %t1; }",
            )
        )
        found.append(
            operation(
                f"set.gt.{name}.u32.f32, with !p",
                "u32",
                "f32 f32 u32",
                lambda a, b, c, f=function: -f(int(greater(a, b)), 1 - (c & 1)),
                f"and.b32 %c, %c, 1; setp.ne.u32 %p, %c, 0; set.gt.{name}.u32.f32 %d, %a, %b, !%p;",
            )
        )
    return found


def selected() -> list[Operation]:
    found = []
    for t in ("b16", "u16", "s16", "b32", "u32", "s32", "b64", "u64", "s64", "f32", "f64"):
        found += [
            operation(
                f"selp.{t}",
                t,
                f"{t} {t} u32",
                lambda a, b, c: a if c & 1 else b,
                f"and.b32 %c, %c, 1; setp.ne.u32 %p, %c, 0; selp.{t} %d, %a, %b, %p;",
            ),
            operation(f"slct.{t}.s32", t, f"{t} {t} s32", lambda a, b, c: a if c >= 0 else b),
        ]
        for ftz in ("", ".ftz"):

            def choose(a: int, b: int, c: int, ftz: bool = bool(ftz)) -> int:
                form = KINDS["f32"].format
                return a if value_of(form.flush(c) if ftz else c, form) >= 0 else b

            found.append(operation(f"slct{ftz}.{t}.f32", t, f"{t} {t} f32", choose))
    return found


def tested() -> list[Operation]:
    found = []
    for t in ("f32", "f64"):
        form = KINDS[t].format
        smallest = 1 << form.mantissa
        tests = {
            "finite": lambda m, f=form: m < f.infinity,
            "infinite": lambda m, f=form: m == f.infinity,
            "number": lambda m, f=form: m <= f.infinity,
            "notanumber": lambda m, f=form: m > f.infinity,
            "normal": lambda m, f=form, s=smallest: m == 0 or s <= m < f.infinity,
            "subnormal": lambda m, s=smallest: 0 < m < s,
        }
        for name, test in tests.items():
            found.append(
                operation(
                    f"testp.{name}.{t}",
                    "u32",
                    t,
                    lambda a, f=test, sign=form.sign: int(f(a & ~sign)),
                    f"testp.{name}.{t} %p, %a; selp.u32 %d, 1, 0, %p;",
                )
            )
    return found


def operations() -> list[Operation]:
    return [*compared(), *combined(), *selected(), *tested()]
