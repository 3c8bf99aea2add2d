"""Video instructions: operations on bytes and halves of registers."""

import operator
from collections.abc import Callable
from fnmatch import fnmatchcase

from .operation import Operation, operation

# Operations for which driver 580.159.04 on an H200 does not do what the PTX ISA says, at any level
# of optimization. Some are computed in 32 bits, some do not saturate, and some that saturate into
# h1 always return 0.
NOT_AS_SPECIFIED = (
    "v*.sat (h1|h0|b3)",
    "vadd.u32.u32.u32.sat (||)",
    "vadd.u32.u32.u32.sat.min (||)",
    "vsub.u32.u32.u32.sat.min (||)",
    "vset.s32.u32.*.max (|h1|)",
    "vmad.u32.u32.u32.sat*",
    "vmad.u32.u32.u32.shr7*",
    "vmad.s32.u32.s32.sat (|)",
    "vmad.s32.u32.s32.shr7 (|)",
    "vmad.s32.u32.s32.sat.shr15 (|)",
    "vmad.s32.s32.u32.sat (|)",
    "vmad.s32.s32.u32.shr7 (|)",
    "vmad.s32.s32.u32.sat.shr15 (|)",
)

PARTS = {"": (0, 32), "b0": (0, 8), "b1": (8, 8), "b2": (16, 8), "b3": (24, 8)}
PARTS |= {"h0": (0, 16), "h1": (16, 16)}
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
BASIC: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "absdiff": lambda a, b: abs(a - b),
    "min": min,
    "max": max,
}


def extended(value: int, bits: int, kind: str) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if kind[0] == "s" and value >> (bits - 1) else value


def selected(value: int, part: str, kind: str) -> int:
    first, bits = PARTS[part]
    return extended(value >> first, bits, kind)


def limited(value: int, bits: int, kind: str) -> int:
    signed = kind[0] == "s"
    low = -(1 << (bits - 1)) if signed else 0
    return min(max(value, low), (1 << (bits - signed)) - 1)


def scalar(
    name: str,
    function: Callable[[int, int], int],
    types: str,
    flags: str = "",
    parts: str = "||",
    secondary: str = "",
) -> Operation:
    """A scalar video instruction.

    `types` are the types of d, a and b (of vset: of a and b), and `parts` their selected parts.
    """
    d, a, b = types.split() if len(types.split()) == 3 else ["u32", *types.split()]
    d_part, a_part, b_part = parts.split("|")
    first, bits = PARTS[d_part]
    with_third = bool(d_part or secondary)

    def expected(x: int, y: int, z: int = 0) -> int:
        value = function(selected(x, a_part, a), selected(y, b_part, b))
        if ".sat" in flags:
            value = limited(value, bits, d)
        third = extended(z, 32, d)
        if secondary:
            value = {"add": operator.add, "min": min, "max": max}[secondary](value, third)
        mask = ((1 << bits) - 1) << first
        return (z & ~mask | value << first & mask) & 0xFFFFFFFF

    text = f"{name}.{types.replace(' ', '.')}{flags}{'.' + secondary if secondary else ''}"
    operands = [
        f"%{r}{'.' + p if p else ''}" for r, p in (("d", d_part), ("a", a_part), ("b", b_part))
    ]
    code = f"{text} {', '.join(operands)}{', %c' if with_third else ''};"
    kinds = "b32 b32 b32" if with_third else "b32 b32"
    return operation(f"{text} ({parts})", "b32", kinds, expected, code)


def scalars() -> list[Operation]:
    found = []
    for name, function in BASIC.items():
        for types in ("u32 u32 u32", "s32 s32 s32", "s32 u32 s32"):
            found += [
                scalar(f"v{name}", function, types, ".sat"),
                scalar(f"v{name}", function, types, "", "|b1|h1"),
                scalar(f"v{name}", function, types, ".sat", "h1|h0|b3"),
                scalar(f"v{name}", function, types, "", "b2|b0|"),
                scalar(f"v{name}", function, types, "", "|h0|b2", "add"),
                scalar(f"v{name}", function, types, ".sat", "||", "min"),
                scalar(f"v{name}", function, types, ".sat", "|h1|b3", "max"),
            ]
    for comparison in COMPARISONS:
        function = getattr(operator, comparison)
        found += [
            scalar("vset", lambda a, b, f=function: int(f(a, b)), types, f".{comparison}", *more)
            for types in ("u32 u32", "s32 u32")
            for more in ([], ["|b1|h0"], ["b3||"], ["||", "add"], ["|h1|", "max"])
        ]
    return found


def shifts() -> list[Operation]:
    found = []
    for mode in ("clamp", "wrap"):

        def amount(b: int, mode: str = mode) -> int:
            return b & 31 if mode == "wrap" else min(b, 32)

        for types in ("u32 u32 u32", "s32 s32 u32"):
            found += [
                scalar("vshl", lambda a, b, n=amount: a << n(b), types, f".{mode}", parts)
                for parts in ("||", "|b1|b0", "h0||b3")
            ]
            found += [
                scalar("vshr", lambda a, b, n=amount: a >> n(b), types, f".{mode}", parts)
                for parts in ("||", "|h1|b0", "b1||b3")
            ]
    return found


def multiplications() -> list[Operation]:
    found = []
    for types in ("u32 u32 u32", "s32 s32 s32", "s32 u32 s32", "s32 s32 u32"):
        _, a, b = types.split()
        signed = "s" if "s32" in (a, b) else "u"
        for flags, shift in (("", 0), (".po", 0), (".sat", 0), (".shr7", 7), (".sat.shr15", 15)):
            for a_part, b_part in (("", ""), ("h1", "b2")):

                def expected(
                    x: int,
                    y: int,
                    z: int,
                    sign=(signed, a, b),
                    f=(flags, shift),
                    p=(a_part, b_part),
                ) -> int:
                    product = selected(x, p[0], sign[1]) * selected(y, p[1], sign[2])
                    value = product + extended(z, 32, sign[0]) + (".po" in f[0]) >> f[1]
                    return limited(value, 32, sign[0]) if ".sat" in f[0] else value

                text = f"vmad.{types.replace(' ', '.')}{flags}"
                dots = [f"%{r}{'.' + p if p else ''}" for r, p in (("a", a_part), ("b", b_part))]
                code = f"{text} %d, {dots[0]}, {dots[1]}, %c;"
                found.append(
                    operation(f"{text} ({a_part}|{b_part})", "b32", "b32 b32 b32", expected, code)
                )
    return found


def average(a: int, b: int) -> int:
    return a + b + (a + b >= 0) >> 1


def several(
    name: str,
    function: Callable[[int, int], int],
    count: int,
    types: str,
    flags: str = "",
    parts: str = "||",
) -> Operation:
    """A SIMD video instruction.

    `parts` are the mask of the result and the selections of both operands, as digits.
    """
    bits, letter = 32 // count, {2: "h", 4: "b"}[count]
    mask, first, second = parts.split("|")
    usual = "3210"[-count:], "3210"[-count:], "7654" if count == 4 else "32"
    chosen = [given or default for given, default in zip((mask, first, second), usual, strict=True)]
    d, a, b = types.split() if len(types.split()) == 3 else ["u32", *types.split()]

    def expected(x: int, y: int, z: int) -> int:
        both = y << 32 | x
        result = z
        for i in range(count):
            one = extended(both >> bits * int(chosen[1][-1 - i]), bits, a)
            two = extended(both >> bits * int(chosen[2][-1 - i]), bits, b)
            value = function(one, two)
            if ".sat" in flags:
                value = limited(value, bits, d)
            if str(i) not in chosen[0]:
                continue
            ones = ((1 << bits) - 1) << bits * i
            result = (
                result + value if ".add" in flags else result & ~ones | value << bits * i & ones
            )
        return result

    text = f"{name}{count}.{types.replace(' ', '.')}{flags}"
    code = ", ".join(
        f"%{r}{'.' + letter + p if p else ''}"
        for r, p in (("d", mask), ("a", first), ("b", second))
    )
    return operation(f"{text} ({parts})", "b32", "b32 b32 b32", expected, f"{text} {code}, %c;")


def parallel() -> list[Operation]:
    found = []
    for count, parts in ((2, ("1|03|21", "0|32|")), (4, ("310|7025|", "2|0000|1357"))):
        for name, function in (BASIC | {"avrg": average}).items():
            for types in ("u32 u32 u32", "s32 s32 s32"):
                found += [
                    several(f"v{name}", function, count, types),
                    several(f"v{name}", function, count, types, ".sat"),
                    several(f"v{name}", function, count, types, "", parts[0]),
                    several(f"v{name}", function, count, types, ".sat", parts[1]),
                ]
            found.append(several(f"v{name}", function, count, "s32 s32 s32", ".add", parts[0]))
        for comparison in COMPARISONS:
            function = getattr(operator, comparison)
            found += [
                several(
                    "vset",
                    lambda a, b, f=function: int(f(a, b)),
                    count,
                    "s32 u32",
                    f".{comparison}{add}",
                )
                for add in ("", ".add")
            ]
    return found


def operations() -> list[Operation]:
    return [*scalars(), *shifts(), *multiplications(), *parallel()]


def runs_as_specified(each: Operation) -> bool:
    """Whether a real driver does for this operation what the PTX ISA says."""
    return not any(fnmatchcase(each.text, pattern) for pattern in NOT_AS_SPECIFIED)
