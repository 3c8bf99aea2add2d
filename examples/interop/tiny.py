"""tiny: arrays of float32. An expression becomes one kernel, when its items are needed.

It has no waits, no locks and no events: every buffer knows who uses it. See array_library.py.
"""

from functools import cache

import numpy as np

import cudadrv as cu

cu.skip_file_prefixes(__file__)  # messages name the lines of those who use this library

THREADS = 256
FOLDERS = 256  # threads of the first step of a reduction
HEAD = ".version 6.4\n.target sm_75\n.address_size 64\n"
INDEX = """
    mov.u32 %block, %ctaid.x;
    mov.u32 %threads, %ntid.x;
    mov.u32 %i, %tid.x;
    mad.lo.u32 %i, %block, %threads, %i;
    ld.param.u32 %n, [count];
    setp.ge.u32 %done, %i, %n;
    @%done bra END;
    ld.param.u64 %out, [out];
    mul.wide.u32 %at, %i, 4;
    add.u64 %out, %out, %at;
"""
REGISTERS = """
    .reg .pred %done;
    .reg .u32 %i, %n, %block, %threads;
    .reg .u64 %at, %out, %x;
    .reg .f32 %a, %b;
"""


@cache
def fused(words, device):
    """The kernel of a postfix expression: "x" is an array, "s" a number, all else an operator."""
    parameters, lines, stack = [".param .u64 out"], [], []
    for number, word in enumerate(words):
        register = f"%f{number}"
        if word == "x":
            parameters.append(f".param .u64 p{number}")
            lines += [f"ld.param.u64 %x, [p{number}];", "add.u64 %x, %x, %at;"]
            lines.append(f"ld.global.f32 {register}, [%x];")
        elif word == "s":
            parameters.append(f".param .f32 p{number}")
            lines.append(f"ld.param.f32 {register}, [p{number}];")
        else:
            right, left = stack.pop(), stack.pop()
            lines.append(f"{word}.f32 {register}, {left}, {right};")
        stack.append(register)
    lines.append(f"st.global.f32 [%out], {stack.pop()};")
    entry = ", ".join([*parameters, ".param .u32 count"])
    text = f".visible .entry fused({entry}) {{{REGISTERS}    .reg .f32 %f<{len(words)}>;\n{INDEX}"
    text += "".join(f"    {line}\n" for line in lines) + "END:\n    ret;\n}\n"
    return cu.Module(HEAD + text, device=device, name=" ".join(words))["fused"]


@cache
def fold(word, device):
    """Return the kernel in which thread i of n folds items i, i + n, i + 2 n, ... into one."""
    text = f""".visible .entry fold(.param .u64 out, .param .u64 items, .param .u32 count) {{
    {REGISTERS}    .reg .u64 %step;
    {INDEX}
    ld.param.u64 %x, [items];
    add.u64 %x, %x, %at;
    mul.wide.u32 %step, %threads, 4;
    ld.global.f32 %a, [%x];
LOOP:
    add.u32 %i, %i, %threads;
    setp.ge.u32 %done, %i, %n;
    @%done bra STORE;
    add.u64 %x, %x, %step;
    ld.global.f32 %b, [%x];
    {word}.f32 %a, %a, %b;
    bra LOOP;
STORE:
    st.global.f32 [%out], %a;
END:
    ret;
}}"""
    return cu.Module(HEAD + text, device=device, name=word)["fold"]


class Array:
    """Items in a buffer, or an expression that has not been computed yet."""

    def __init__(self, count, buffer=None, expression=()):
        self.count = count
        self.buffer = buffer
        self.expression = expression  # operands, then an instruction

    @classmethod
    def of(cls, numbers, *, stream=None, name=None):
        numbers = np.ascontiguousarray(numbers, "f4").ravel()
        buffer = cu.DeviceBuffer(numbers.size, "f4", name=name)
        buffer.copy_from_async(numbers, stream)
        return cls(numbers.size, buffer)

    @classmethod
    def from_dlpack(cls, array, *, stream=None):
        """Wrap another library's array. That library orders its own work before the stream."""
        buffer = cu.from_dlpack(array, stream)
        if buffer.dtype != np.float32:
            raise TypeError(f"items must be float32, and are {buffer.dtype}")
        return cls(buffer.count, buffer)

    def __dlpack__(self, **options):
        return self.compute().buffer.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.compute().buffer.__dlpack_device__()

    def _with(self, word, other, swapped=False):
        count = getattr(other, "count", self.count)
        if count != self.count:
            raise ValueError(f"{self.count} and {count} items")
        operands = (other, self) if swapped else (self, other)
        return Array(count, expression=(*operands, word))

    def __add__(self, other):
        return self._with("add", other)

    def __mul__(self, other):
        return self._with("mul", other)

    def __sub__(self, other):
        return self._with("sub", other)

    def __rsub__(self, other):
        return self._with("sub", other, swapped=True)

    __radd__, __rmul__ = __add__, __mul__

    def maximum(self, other):
        return self._with("max", other)

    def _flat(self):
        """Return the words of the expression, and the kernel's arguments."""
        if self.buffer is not None:
            return ["x"], [cu.read(self.buffer)]
        words, arguments = [], []
        for operand in self.expression[:-1]:
            more = operand._flat() if isinstance(operand, Array) else (["s"], [float(operand)])
            words, arguments = words + more[0], arguments + more[1]
        return [*words, self.expression[-1]], arguments

    def compute(self, *, stream=None):
        """Queue the kernel, if there is something to compute."""
        if self.buffer is None:
            words, arguments = self._flat()
            out = cu.DeviceBuffer(self.count, "f4")
            kernel, blocks = fused(tuple(words), out.device), -(-self.count // THREADS)
            kernel.launch(blocks, THREADS, out, *arguments, self.count, stream=stream)
            self.buffer, self.expression = out, ()
        return self

    def _fold(self, word, stream):
        items, count = self.compute(stream=stream).buffer, self.count
        for threads in (min(FOLDERS, count), 1):
            out = cu.DeviceBuffer(threads, "f4")
            kernel = fold(word, out.device)
            kernel.launch(1, threads, out, cu.read(items), count, stream=stream)
            items, count = out, threads
        return float(items.to_numpy(stream=stream)[0])

    def sum(self, *, stream=None):
        return self._fold("add", stream)

    def max(self, *, stream=None):
        return self._fold("max", stream)

    def to_numpy(self, *, stream=None):
        return self.compute(stream=stream).buffer.to_numpy(stream=stream)
