"""checks=init on random programs, compared with all values that the undefined bits can have."""

import itertools
import random

import numpy as np
import pytest

import cudadrv as cu
from cudadrv import testing

pytestmark = [
    pytest.mark.cuda_software,
    pytest.mark.parametrize("cuda_schedule", ["eager"], indirect=True),
    pytest.mark.cuda_allow("hazards"),
]

MASK = 0xFFFFFFFF
MOST_UNDEFINED = 5  # bits of all inputs of a program, so that all their values can be tried
INPUTS = 3
# Bit k of the result becomes the byte k of `out`.
TEXT = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out, .param .u64 fresh)
{{
    .reg .pred %p<8>; .reg .b32 %r<64>; .reg .b64 %rd<16>;
    ld.param.u64 %rd1, [out]; ld.param.u64 %rd5, [fresh];
    {body}
    ret;
}}
"""


def signed(value):
    return value - (1 << 32) if value >> 31 else value


def bfe(a, at, count):
    at, count = at & 0xFF, count & 0xFF
    return a >> at & ((1 << count) - 1) if at < 32 else 0


def bfe_signed(a, at, count):
    at, count = at & 0xFF, count & 0xFF
    sign = a >> min(at + count - 1, 31) & 1 if count else 0
    bits = (a >> at + i & 1 if i < count and at + i < 32 else sign for i in range(32))
    return sum(bit << i for i, bit in enumerate(bits))


def bfi(a, b, at, count):
    at, count = at & 0xFF, count & 0xFF
    field = ((1 << count) - 1) << at & MASK
    return (b & ~field) | (a << at & field)


def prmt(a, b, selector):
    both, result = b << 32 | a, 0
    for i in range(4):
        choice = selector >> 4 * i & 0xF
        byte = both >> 8 * (choice & 7) & 0xFF
        if choice & 8:
            byte = 0xFF if byte & 0x80 else 0
        result |= byte << 8 * i
    return result


def lop3(a, b, c, table):
    result = 0
    for bit in range(32):
        index = (a >> bit & 1) << 2 | (b >> bit & 1) << 1 | c >> bit & 1
        result |= (table >> index & 1) << bit
    return result


# The instruction, how many registers it reads, and what it computes. The constants are in braces.
EXACT = {
    "and.b32 {d}, {a}, {b};": lambda a, b: a & b,
    "or.b32 {d}, {a}, {b};": lambda a, b: a | b,
    "xor.b32 {d}, {a}, {b};": lambda a, b: a ^ b,
    "not.b32 {d}, {a};": lambda a: ~a,
    "shl.b32 {d}, {a}, {n};": lambda a, n: a << n,
    "shr.u32 {d}, {a}, {n};": lambda a, n: a >> n,
    "shr.s32 {d}, {a}, {n};": lambda a, n: signed(a) >> n,
    "bfe.u32 {d}, {a}, {n}, {m};": bfe,
    "bfe.s32 {d}, {a}, {n}, {m};": bfe_signed,
    "bfi.b32 {d}, {a}, {b}, {n}, {m};": bfi,
    "prmt.b32 {d}, {a}, {b}, {k};": prmt,
    "lop3.b32 {d}, {a}, {b}, {c}, {t};": lop3,
    "mov.b64 %rd9, {{{a}, {b}}}; mov.b64 {{_, {d}}}, %rd9;": lambda a, b: b,
    "cvt.u32.u8 {d}, {a};": lambda a: a & 0xFF,
    "cvt.s32.s8 {d}, {a};": lambda a: (a & 0xFF) - ((a & 0x80) << 1),
    "shfl.sync.idx.b32 {d}, {a}, 0, 31, -1;": lambda a: a,
}
OTHERS = {
    "add.u32 {d}, {a}, {b};": lambda a, b: a + b,
    "sub.u32 {d}, {a}, {b};": lambda a, b: a - b,
    "mul.lo.u32 {d}, {a}, {b};": lambda a, b: a * b,
    "mad.lo.u32 {d}, {a}, {b}, {c};": lambda a, b, c: a * b + c,
    "mul.hi.u32 {d}, {a}, {b};": lambda a, b: a * b >> 32,
    "min.u32 {d}, {a}, {b};": min,
    "max.s32 {d}, {a}, {b};": lambda a, b: max(a, b, key=signed),
    "abs.s32 {d}, {a};": lambda a: abs(signed(a)),
    "neg.s32 {d}, {a};": lambda a: -a,
    "popc.b32 {d}, {a};": lambda a: bin(a).count("1"),
    "clz.b32 {d}, {a};": lambda a: 32 - a.bit_length(),
    "brev.b32 {d}, {a};": lambda a: int(f"{a:032b}"[::-1], 2),
    "shl.b32 {d}, {a}, {b};": lambda a, b: a << min(b, 32),
    "shf.l.wrap.b32 {d}, {a}, {b}, {n};": lambda a, b, n: (b << 32 | a) << (n & 31) >> 32,
    "setp.eq.u32 %p1, {a}, {b}; selp.u32 {d}, {c}, {a}, %p1;": lambda a, b, c: c if a == b else a,
    "setp.lt.s32 %p1, {a}, {b}; selp.u32 {d}, {a}, {b}, %p1;": (lambda a, b: min(a, b, key=signed)),
    "setp.ne.u32 %p1, {a}, 0; setp.lt.u32 %p2, {b}, {c}; and.pred %p3, %p1, %p2;"
    "selp.u32 {d}, 1, 0, %p3;": lambda a, b, c: int(a != 0 and b < c),
    "setp.gt.u32 %p1, {a}, {b}; mov.u32 {d}, {c}; @%p1 mov.u32 {d}, 7;": (
        lambda a, b, c: 7 if a > b else c
    ),
    "st.global.u32 [%rd5+64], {a}; ld.global.u32 {d}, [%rd5+64];": lambda a: a,
    "st.global.u32 [%rd5+64], {a}; ld.global.u8 {d}, [%rd5+65];": lambda a: a >> 8 & 0xFF,
    "st.global.u32 [%rd5+64], {a}; st.global.u16 [%rd5+66], {b}; ld.global.u32 {d}, [%rd5+64];": (
        lambda a, b: a & 0xFFFF | (b & 0xFFFF) << 16
    ),
    "div.u32 {d}, {a}, 3;": lambda a: a // 3,
}


class Program:
    """A straight-line program. Its first registers are the inputs."""

    def __init__(self, random, instructions, length):
        left = MOST_UNDEFINED
        self.inputs = []
        for _ in range(INPUTS):
            count = random.randint(0, min(left, 3))
            left -= count
            undefined = sum(1 << bit for bit in random.sample(range(32), count))
            value = random.choice((random.getrandbits(32), random.getrandbits(4), 0, MASK))
            self.inputs.append((value & ~undefined & MASK, undefined))
        self.steps = []
        for number in range(INPUTS, INPUTS + length):
            text = random.choice(list(instructions))
            given = {name: random.randrange(number) for name in "abc" if f"{{{name}}}" in text}
            if number > INPUTS and "a" in given and random.random() < 0.7:
                given["a"] = number - 1
            constants = {
                "n": random.randint(0, 33),
                "m": random.randint(0, 33),
                "k": random.getrandbits(16),
                "t": random.getrandbits(8),
            }
            constants = {name: n for name, n in constants.items() if f"{{{name}}}" in text}
            self.steps.append((text, instructions[text], given, constants))

    def ptx(self):
        lines = []
        for number, (value, undefined) in enumerate(self.inputs):
            lines.append(
                f"ld.global.u32 %r{number}, [%rd5+{4 * number}]; and.b32 %r{number}, %r{number},"
                f" {undefined:#x}; or.b32 %r{number}, %r{number}, {value:#x};"
            )
        for number, (text, _, given, constants) in enumerate(self.steps, INPUTS):
            registers = {name: f"%r{index}" for name, index in given.items()}
            lines.append(text.format(d=f"%r{number}", **registers, **constants))
        last = INPUTS + len(self.steps) - 1
        for bit in range(32):
            lines.append(f"bfe.u32 %r63, %r{last}, {bit}, 1; st.global.u8 [%rd1+{bit}], %r63;")
        return TEXT.format(body="\n".join(lines))

    def has_different_operands(self):
        return all(len({*given.values()}) == len(given) for _, _, given, _ in self.steps)

    def result(self, inputs):
        values = list(inputs)
        for _, compute, given, constants in self.steps:
            values.append(
                compute(*(values[index] for index in given.values()), *constants.values()) & MASK
            )
        return values[-1]

    def varying(self):
        """The bits of the result that depend on undefined bits."""
        choices = []
        for value, undefined in self.inputs:
            bits = [1 << bit for bit in range(32) if undefined >> bit & 1]
            parts = itertools.product(*((0, bit) for bit in bits))
            choices.append([value | sum(part) for part in parts])
        results = [self.result(inputs) for inputs in itertools.product(*choices)]
        return sum(
            1 << bit for bit in range(32) if len({result >> bit & 1 for result in results}) > 1
        ), set(results)


def found(program):
    """The bits of the result that the check calls undefined, and the result."""
    with testing.configured("checks=init"), cu.Stream() as stream:
        out, fresh = cu.DeviceBuffer.zeros(32, np.uint8), cu.DeviceBuffer(128, np.uint8)
        with cu.Module(program.ptx()) as module:
            module["k"].launch(1, 1, out, fresh, stream=stream)
            stream.synchronize()
        undefined = result = 0
        for bit in range(32):
            testing.forget_hazards()
            result |= int(out[bit : bit + 1].to_numpy(stream=stream)[0]) << bit
            undefined |= bool(testing.hazards()) << bit
        return undefined, result


@pytest.mark.parametrize("text", EXACT)
def test_exact(text):
    """These instructions make exactly those bits undefined that depend on undefined bits.

    The check takes two operands for two values, also if they are the same register.
    """
    draw = random.Random(text)
    for _ in range(12):
        program = Program(draw, {text: EXACT[text]}, 1)
        while not program.has_different_operands():
            program = Program(draw, {text: EXACT[text]}, 1)
        undefined, result = found(program)
        varying, results = program.varying()
        assert result in results, program.ptx()
        assert undefined == varying, program.ptx()


@pytest.mark.parametrize("seed", range(40))
def test_random_programs(seed):
    """No bit that depends on an undefined bit is missed, and what is defined stays defined."""
    draw = random.Random(seed)
    program = Program(draw, EXACT | OTHERS, draw.randint(1, 6))
    undefined, result = found(program)
    varying, results = program.varying()
    assert result in results, program.ptx()
    assert varying & ~undefined == 0, program.ptx()
    if not any(bits for _, bits in program.inputs):
        assert undefined == 0, program.ptx()
