"""An instruction to be tested: its PTX, its operands, and its expected results."""

from collections.abc import Callable
from dataclasses import dataclass, field

from .kinds import COUNT, KINDS, Kind, operands

THREADS = 256  # number of threads in a block
HEADER = ".version 8.0\n.target sm_90\n.address_size 64\n"
KERNEL = """
.visible .entry {name}(.param .u64 out, .param .u64 in0, .param .u64 in1, .param .u64 in2)
{{
    .reg .b64 %at, %base;
    .reg .b32 %i, %n, %block, %t<4>;
    .reg .pred %p, %q;
    .reg .{register} %d;
{declared}
    mov.u32 %i, %tid.x;
    mov.u32 %n, %ntid.x;
    mov.u32 %block, %ctaid.x;
    mad.lo.u32 %i, %block, %n, %i;
{loads}
    {code}
    ld.param.u64 %base, [out];
    mad.wide.u32 %at, %i, {width}, %base;
    st.global.{memory} [%at], %d;
    ret;
}}
"""
LOAD = """    ld.param.u64 %base, [in{place}];
    mad.wide.u32 %at, %i, {width}, %base;
    ld.global.{memory} {name}, [%at];
"""


@dataclass(frozen=True)
class Operation:
    """An instruction. `expected` takes a value of each operand and returns the result, as integers.

    `code` may use %d, %a, %b, %c, the predicates %p and %q, and %t0 to %t3. If a result differs,
    `close(got, expected, *operands)` says whether it is nevertheless accepted.
    """

    text: str
    result: Kind
    operands: tuple[Kind, ...]
    expected: Callable[..., int]
    code: str = ""
    close: Callable[..., bool] | None = field(default=None)

    def kernel(self, name: str) -> str:
        registers = [f"%{letter}" for letter in "abc"[: len(self.operands)]]
        declared, loads = "", ""
        for place, (register, kind) in enumerate(zip(registers, self.operands, strict=True)):
            declared += f"    .reg .{kind.register} {register};\n"
            width = kind.bits // 8
            loads += LOAD.format(place=place, width=width, memory=kind.memory, name=register)
        code = self.code or f"{self.text} {', '.join(['%d', *registers])};"
        return KERNEL.format(
            name=name,
            register=self.result.register,
            declared=declared,
            loads=loads,
            code=code,
            width=self.result.bits // 8,
            memory=self.result.memory,
        )

    def difference(self, results: list[int]) -> str:
        """A text with the first wrong result and the number of wrong ones.

        The text is empty if all results are right.
        """
        wrong = []
        for row, got in enumerate(results):
            values = [column[row] for column in operands(self.operands)]
            wanted = self.result.wrap(self.expected(*values))
            if got != wanted and not (self.close and self.close(got, wanted, *values)):
                wrong.append((values, got, wanted))
        if not wrong:
            return ""
        values, got, wanted = wrong[0]

        def digits(value: int, kind: Kind) -> str:
            return f"{value & ((1 << kind.bits) - 1):#0{kind.bits // 4 + 2}x}"

        given = ", ".join(digits(v, k) for v, k in zip(values, self.operands, strict=True))
        return (
            f"{self.text} of {given}: {digits(got, self.result)}, expected "
            f"{digits(wanted, self.result)} ({len(wrong)} of {COUNT} differ)"
        )


def operation(text, result, kinds, expected, code="", close=None) -> Operation:
    """Make an Operation by the names of its types: operation("add.u32", "u32", "u32 u32", ...)."""
    given = tuple(KINDS[kind] for kind in kinds.split())
    return Operation(text, KINDS[result], given, expected, code, close)


def module_text(operations: list[Operation]) -> str:
    return HEADER + "".join(each.kernel(f"k{i}") for i, each in enumerate(operations))
