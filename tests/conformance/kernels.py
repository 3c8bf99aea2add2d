"""PTX for tests of modules and launches."""

HEAD = b""".version 7.5
.target sm_75
.address_size 64
"""

REGISTERS = b"""
    .reg .pred %p<4>;
    .reg .b32 %r<12>;
    .reg .f32 %f<6>;
    .reg .b64 %rd<10>;
"""

# Puts the global index of the thread into %r1. Threads whose index is not below %r2 end here.
BOUNDED = b"""
    mov.u32 %r3, %ctaid.x;
    mov.u32 %r4, %ntid.x;
    mov.u32 %r5, %tid.x;
    mad.lo.u32 %r1, %r3, %r4, %r5;
    setp.ge.u32 %p1, %r1, %r2;
    @%p1 bra done;
"""


def entry(name, parameters, body, directives=b""):
    return b".visible .entry %s(%s) %s\n{%s%s\ndone:\n    ret;\n}\n" % (
        name,
        parameters,
        directives,
        REGISTERS,
        body,
    )


VARIABLES = b""".visible .global .align 4 .u32 counter = 5;
.visible .const .align 4 .u32 table[4] = {1, 2, 3, 4};
.visible .global .attribute(.managed) .align 4 .u32 common = 9;
"""

SAXPY = entry(
    b"saxpy",
    b".param .u32 n, .param .f32 a, .param .u64 x, .param .u64 y",
    b"    ld.param.u32 %r2, [n];"
    + BOUNDED
    + b"""
    ld.param.f32 %f1, [a];
    ld.param.u64 %rd1, [x];
    ld.param.u64 %rd2, [y];
    mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd4, %rd1, %rd3;
    add.s64 %rd5, %rd2, %rd3;
    ld.global.f32 %f2, [%rd4];
    ld.global.f32 %f3, [%rd5];
    fma.rn.f32 %f3, %f1, %f2, %f3;
    st.global.f32 [%rd5], %f3;""",
)
# Stores a number in n words, starting at an address.
FILL = entry(
    b"fill",
    b".param .u64 at, .param .u32 n, .param .u32 value",
    b"    ld.param.u32 %r2, [n];"
    + BOUNDED
    + b"""
    ld.param.u64 %rd1, [at];
    ld.param.u32 %r6, [value];
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd3, %rd1, %rd2;
    st.global.u32 [%rd3], %r6;""",
)
# Copies n words.
MOVE = entry(
    b"move",
    b".param .u64 to, .param .u64 from, .param .u32 n",
    b"    ld.param.u32 %r2, [n];"
    + BOUNDED
    + b"""
    ld.param.u64 %rd1, [to];
    ld.param.u64 %rd2, [from];
    mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd1, %rd1, %rd3;
    add.s64 %rd2, %rd2, %rd3;
    ld.global.u32 %r6, [%rd2];
    st.global.u32 [%rd1], %r6;""",
)
# Waits until a word is not zero.
SPIN = entry(
    b"spin",
    b".param .u64 flag",
    b"""
    ld.param.u64 %rd1, [flag];
again:
    ld.volatile.global.u32 %r1, [%rd1];
    setp.eq.u32 %p1, %r1, 0;
    @%p1 bra again;""",
)
# Sets one word, and waits until another word is set.
MEET = entry(
    b"meet",
    b".param .u64 mine, .param .u64 other",
    b"""
    ld.param.u64 %rd1, [mine];
    ld.param.u64 %rd2, [other];
    mov.u32 %r1, 1;
    st.volatile.global.u32 [%rd1], %r1;
again:
    ld.volatile.global.u32 %r2, [%rd2];
    setp.eq.u32 %p1, %r2, 0;
    @%p1 bra again;""",
)
ADD = entry(
    b"add",
    b".param .u64 at",
    b"""
    ld.param.u64 %rd1, [at];
    atom.global.add.u32 %r1, [%rd1], 1;""",
)
COUNT = entry(b"count", b"", b"    atom.global.add.u32 %r1, [counter], 1;")
FOREVER = entry(b"forever", b"", b"again:\n    bra again;")
TRAP = entry(b"stop", b"", b"    trap;")
WRITE_TABLE = entry(
    b"write_table",
    b"",
    b"    mov.u64 %rd1, table;\n    cvta.const.u64 %rd2, %rd1;\n    mov.u32 %r1, 1;\n"
    b"    st.u32 [%rd2], %r1;",
)
BIG = entry(
    b"big",
    b".param .u64 at",
    b"    .shared .align 4 .b8 block[1000];\n    st.shared.u32 [block], 3;",
)

TEXT = b"".join(
    [HEAD, VARIABLES, SAXPY, FILL, MOVE, SPIN, MEET, ADD, COUNT, FOREVER, TRAP, WRITE_TABLE, BIG]
)
