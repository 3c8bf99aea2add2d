"""Integer instructions: sums, products, quotients, carries."""

from .kinds import KINDS
from .operation import Operation, operation

MODULAR = ("u16", "s16", "u32", "s32", "u64", "s64")


def clamp(value: int) -> int:
    return min(max(value, -(1 << 31)), (1 << 31) - 1)


def quotient(a: int, b: int) -> int:
    """The quotient, rounded toward zero. GPUs return all ones for a division by zero."""
    return -1 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def remainder(a: int, b: int) -> int:
    return -1 if b == 0 else a - b * quotient(a, b)


def low24(value: int, signed: bool) -> int:
    value &= 0xFFFFFF
    return value - (1 << 24) if signed and value >> 23 else value


def sums() -> list[Operation]:
    found = []
    for t in MODULAR:
        two, three = f"{t} {t}", f"{t} {t} {t}"
        found += [
            operation(f"add.{t}", t, two, lambda a, b: a + b),
            operation(f"sub.{t}", t, two, lambda a, b: a - b),
            operation(f"min.{t}", t, two, min),
            operation(f"max.{t}", t, two, max),
            operation(f"div.{t}", t, two, quotient),
            operation(f"rem.{t}", t, two, remainder),
            operation(f"sad.{t}", t, three, lambda a, b, c: c + abs(a - b)),
        ]
        if t[0] == "s":
            found += [
                operation(f"abs.{t}", t, t, abs),
                operation(f"neg.{t}", t, t, lambda a: -a),
            ]
    return [
        *found,
        operation("add.sat.s32", "s32", "s32 s32", lambda a, b: clamp(a + b)),
        operation("sub.sat.s32", "s32", "s32 s32", lambda a, b: clamp(a - b)),
        operation("min.relu.s32", "s32", "s32 s32", lambda a, b: max(min(a, b), 0)),
        operation("max.relu.s32", "s32", "s32 s32", lambda a, b: max(a, b, 0)),
    ]


def products() -> list[Operation]:
    found = []
    for t in MODULAR:
        bits = KINDS[t].bits
        two, three = f"{t} {t}", f"{t} {t} {t}"
        found += [
            operation(f"mul.lo.{t}", t, two, lambda a, b: a * b),
            operation(f"mul.hi.{t}", t, two, lambda a, b, n=bits: a * b >> n),
            operation(f"mad.lo.{t}", t, three, lambda a, b, c: a * b + c),
            operation(f"mad.hi.{t}", t, three, lambda a, b, c, n=bits: (a * b >> n) + c),
        ]
        if bits < 64:
            wide = f"{t[0]}{2 * bits}"
            found += [
                operation(f"mul.wide.{t}", wide, two, lambda a, b: a * b),
                operation(f"mad.wide.{t}", wide, f"{two} {wide}", lambda a, b, c: a * b + c),
            ]
    found.append(
        operation("mad.hi.sat.s32", "s32", "s32 s32 s32", lambda a, b, c: clamp((a * b >> 32) + c))
    )
    return found


def products_of_24_bits() -> list[Operation]:
    found = []
    for t in ("u32", "s32"):

        def product(a: int, b: int, signed: bool = t == "s32") -> int:
            return low24(a, signed) * low24(b, signed)

        two, three = f"{t} {t}", f"{t} {t} {t}"
        found += [
            operation(f"mul24.lo.{t}", t, two, product),
            operation(f"mul24.hi.{t}", t, two, lambda a, b, p=product: p(a, b) >> 16),
            operation(f"mad24.lo.{t}", t, three, lambda a, b, c, p=product: p(a, b) + c),
            operation(f"mad24.hi.{t}", t, three, lambda a, b, c, p=product: (p(a, b) >> 16) + c),
        ]
    found.append(
        operation(
            "mad24.hi.sat.s32",
            "s32",
            "s32 s32 s32",
            lambda a, b, c, p=product: clamp(KINDS["s32"].wrap(p(a, b) >> 16) + c),
        )
    )
    return found


def halves() -> list[Operation]:
    def each(t: str, function):
        kind = KINDS[f"{t}16"]

        def both(a: int, b: int) -> int:
            low = function(kind.wrap(a), kind.wrap(b)) & 0xFFFF
            return low | (function(kind.wrap(a >> 16), kind.wrap(b >> 16)) & 0xFFFF) << 16

        return both

    named = {"add": lambda a, b: a + b, "min": min, "max": max}
    found = [
        operation(f"{name}.{t}16x2", f"{t}16x2", f"{t}16x2 {t}16x2", each(t, function))
        for t in "us"
        for name, function in named.items()
    ]
    return [
        *found,
        operation(
            "min.relu.s16x2", "s16x2", "s16x2 s16x2", each("s", lambda a, b: max(min(a, b), 0))
        ),
        operation("max.relu.s16x2", "s16x2", "s16x2 s16x2", each("s", lambda a, b: max(a, b, 0))),
    ]


def carries() -> list[Operation]:
    """Instructions that read a carry (the lowest bit of c) and write one.

    Each instruction has two operations: one returns its result, the other its carry. The carry of a
    subtraction is a borrow. %x holds the value that sets the carry, and then the result.
    """
    found = []
    for t in ("u32", "s32", "u64", "s64"):
        n, mask = KINDS[t].bits, (1 << KINDS[t].bits) - 1
        carry = f"and.b{n} %x, %c, 1; add.cc.{t} %x, %x, -1;"
        borrow = f"and.b{n} %x, %c, 1; sub.cc.{t} %x, 0, %x;"
        of_carry = f"addc.{t} %d, 0, 0;"
        of_borrow = f"subc.{t} %d, 0, 0; neg.s{n} %d, %d;"

        def add(name, before, operands, after, value, t=t, n=n) -> None:
            code = f"{{ .reg .b{n} %x; {before} {name}.cc.{t} %x, {operands};"
            kinds = f"{t} {t} {t}"
            found.append(
                operation(f"{name}.cc.{t}", t, kinds, value, f"{code} mov.b{n} %d, %x; }}")
            )
            found.append(
                operation(
                    f"{name}.cc.{t}, carry",
                    t,
                    kinds,
                    lambda a, b, c: value(a, b, c) >> n & 1,
                    f"{code} {after} }}",
                )
            )

        def plus(a, b, c, m=mask) -> int:
            return (a & m) + (b & m) + (c & 1)

        def minus(a, b, c, m=mask) -> int:
            return (a & m) - (b & m) - (c & 1)

        def low(a, b, c, m=mask) -> int:
            return (a * b & m) + (c & m) + (c & 1)

        def high(a, b, c, m=mask, n=n) -> int:
            return (a * b >> n & m) + (c & m) + (c & 1)

        add("addc", carry, "%a, %b", of_carry, plus)
        add("subc", borrow, "%a, %b", of_borrow, minus)
        add("madc.lo", carry, "%a, %b, %c", of_carry, low)
        add("madc.hi", carry, "%a, %b, %c", of_carry, high)
    return found


def chains() -> list[Operation]:
    """Each pair of instructions of which the first writes the carry and the second reads it.

    A subtraction adds the complement of its second operand: `sub.cc` also adds 1, and `subc` adds
    the carry. So a carry of 1 after `sub.cc` stands for no borrow. Each pair has three operations,
    which return the result of the second instruction, its carry as `addc` reads it, and its carry
    as `subc` reads it.
    """
    begins = {"add.cc": "%a, %b", "sub.cc": "%a, %b"}
    begins |= {f"mad.{part}.cc": "%a, %b, %c" for part in ("lo", "hi")}
    goes_on = {"addc": "%b, %c", "subc": "%b, %c"}
    goes_on |= {f"madc.{part}": "%b, %c, %a" for part in ("lo", "hi")}
    found = []
    for t in ("u32", "s32", "u64", "s64"):
        n, mask = KINDS[t].bits, (1 << KINDS[t].bits) - 1

        def step(name: str, carry: int, x: int, y: int, z: int, n=n, mask=mask) -> tuple[int, int]:
            """The result and the carry of an instruction."""
            if name.startswith("mad"):
                x, y = x * y >> (n if ".hi" in name else 0), z
            total = (x & mask) + (~y & mask if name.startswith("sub") else y & mask) + carry
            return total & mask, total >> n

        for first, given in begins.items():
            for second, following in goes_on.items():

                def both(a, b, c, first=first, second=second, step=step) -> tuple[int, int]:
                    carry = step(first, int(first == "sub.cc"), a, b, c)[1]
                    x, y, z = (b, c, a) if second.startswith("madc") else (b, c, 0)
                    return step(second, carry, x, y, z)

                def add(what, after, value, t=t, n=n, first=first, second=second, given=given,
                        following=following) -> None:  # fmt: skip
                    code = f"""{{ .reg .b{n} %x; {first}.{t} %x, {given};
                    {second}.cc.{t} %d, {following}; {after} }}"""
                    name = f"{second}.cc.{t} after {first}{what}"
                    found.append(operation(name, t, f"{t} {t} {t}", value, code))

                add("", "", lambda *given, both=both: both(*given)[0])
                add(", addc", f"addc.{t} %d, 0, 0;", lambda *given, both=both: both(*given)[1])
                add(", subc", f"subc.{t} %d, 0, 0;", lambda *given, both=both: both(*given)[1] - 1)
    return found


def dot_products() -> list[Operation]:
    def pick(value: int, place: int, bits: int, signed: bool) -> int:
        part = value >> (bits * place) & ((1 << bits) - 1)
        return part - (1 << bits) if signed and part >> (bits - 1) else part

    found = []
    for s in ("u32", "s32"):
        for t in ("u32", "s32"):
            signs = (s == "s32", t == "s32")
            result = "s32" if any(signs) else "u32"

            def dot(a: int, b: int, c: int, x: bool, y: bool, width: int, first: int) -> int:
                return c + sum(
                    pick(a, i, width, x) * pick(b, first + i, 8, y) for i in range(32 // width)
                )

            found.append(
                operation(
                    f"dp4a.{s}.{t}",
                    result,
                    f"{s} {t} {result}",
                    lambda a, b, c, g=signs, f=dot: f(a, b, c, *g, 8, 0),
                )
            )
            found += [
                operation(
                    f"dp2a.{half}.{s}.{t}",
                    result,
                    f"{s} {t} {result}",
                    lambda a, b, c, g=signs, f=dot, n=first: f(a, b, c, *g, 16, n),
                )
                for half, first in (("lo", 0), ("hi", 2))
            ]
    return found


def operations() -> list[Operation]:
    return [
        *sums(),
        *products(),
        *products_of_24_bits(),
        *halves(),
        *carries(),
        *chains(),
        *dot_products(),
    ]
