"""Correct and wrong PTX texts. The name of each text says what is special about it."""

from kernels import EMPTY, HEAD, TEXT, VARIABLES, entry


def body(instructions):
    registers = "    .reg .b32 %r<4>;\n    .reg .f32 %f<4>;\n    .reg .pred %p<4>;\n"
    return HEAD + entry("k", body=registers + instructions)


TEXTS = {
    "a right text": TEXT,
    "no kernel": HEAD,
    "variables only": HEAD + VARIABLES,
    "empty": "",
    "a line end": "\n",
    "white space": "  \n\t ",
    "a comment": "// nothing\n",
    "words": "this is no PTX",
    "one letter": "x",
    "binary": "\x01\x02\x03\x04",
    "a C function": 'extern "C" __global__ void f() {}',
    "without version": HEAD.replace(".version 7.5\n", "") + EMPTY,
    "without target": HEAD.replace(".target sm_75\n", "") + EMPTY,
    "without address size": HEAD.replace(".address_size 64\n", "") + EMPTY,
    "comment before the version": "// first\n" + HEAD + EMPTY,
    "space before the version": "  \n" + HEAD + EMPTY,
    "version 1.0": HEAD.replace("7.5", "1.0") + EMPTY,
    "version 6.3": HEAD.replace("7.5", "6.3") + EMPTY,
    "version 6.2, too old for its target": HEAD.replace("7.5", "6.2") + EMPTY,
    "version 9.9": HEAD.replace("7.5", "9.9") + EMPTY,
    "version 99.9": HEAD.replace("7.5", "99.9") + EMPTY,
    "version 7": HEAD.replace("7.5", "7") + EMPTY,
    "version x": HEAD.replace("7.5", "x") + EMPTY,
    "target sm_10": HEAD.replace("sm_75", "sm_10") + EMPTY,
    "target sm_30": HEAD.replace("sm_75", "sm_30") + EMPTY,
    "target sm_50": HEAD.replace("sm_75", "sm_50") + EMPTY,
    "target sm_90": HEAD.replace("7.5", "7.8").replace("sm_75", "sm_90") + EMPTY,
    "target sm_90a": HEAD.replace("7.5", "8.0").replace("sm_75", "sm_90a") + EMPTY,
    "target sm_100": HEAD.replace("7.5", "8.6").replace("sm_75", "sm_100") + EMPTY,
    "target sm_120": HEAD.replace("7.5", "8.7").replace("sm_75", "sm_120") + EMPTY,
    "target sm_999": HEAD.replace("sm_75", "sm_999") + EMPTY,
    "target nonsense": HEAD.replace("sm_75", "nonsense") + EMPTY,
    "target debug": HEAD.replace("sm_75", "sm_75, debug") + EMPTY,
    "target texmode_independent": HEAD.replace("sm_75", "sm_75, texmode_independent") + EMPTY,
    "address size 32": HEAD.replace("64", "32") + EMPTY,
    "address size 16": HEAD.replace("64", "16") + EMPTY,
    "a kernel twice": HEAD + EMPTY + EMPTY,
    "a kernel that is not visible": HEAD + EMPTY.replace(".visible ", ""),
    "a name that is not declared": HEAD + entry("k", body="    mov.u32 %r1, 1;"),
    "an unknown opcode": body("    frobnicate.u32 %r1, %r2;"),
    "an unknown modifier": body("    add.frob.u32 %r1, %r2, %r3;"),
    "an unknown type": body("    add.u37 %r1, %r2, %r3;"),
    "too few operands": body("    add.u32 %r1, %r2;"),
    "too many operands": body("    add.u32 %r1, %r2, %r3, %r1;"),
    "wrong type of operand": body("    add.f32 %f1, %r2, %f3;"),
    "a missing semicolon": body("    add.u32 %r1, %r2, %r3\n    add.u32 %r1, %r2, %r3;"),
    "a missing label": body("    bra nowhere;"),
    "a label twice": body("one:\n    add.u32 %r1, %r2, %r3;\none:\n"),
    "a missing brace": (HEAD + EMPTY)[:-3],
    "cut off in an instruction": body("    add.u32 %r1, %r2, %r3;")[:-20],
    "an unknown special register": body("    mov.u32 %r1, %nothing;"),
    "an undefined function": body("    call nothing;"),
    "an extern function": HEAD + ".extern .func far;\n" + entry("k", body="    call far;"),
    "an extern variable": HEAD
    + ".extern .global .u32 far;\n"
    + entry("k", body="    .reg .b32 %r<2>;\n    ld.global.u32 %r1, [far];"),
    "an extern variable that is not used": HEAD + ".extern .global .u32 far;\n" + EMPTY,
    "an opcode of a newer version": body("    redux.sync.add.s32 %r1, %r2, -1;").replace(
        "7.5", "6.3"
    ),
    "an opcode of a newer target": body("    redux.sync.add.s32 %r1, %r2, -1;"),
    "too much static shared memory": HEAD
    + entry("k", body="    .shared .b8 s[49153];\n    st.shared.u8 [s], 1;"),
    "48 KiB of static shared memory": HEAD
    + entry("k", body="    .shared .b8 s[49152];\n    st.shared.u8 [s], 1;"),
    "too much static shared memory, not used": HEAD + entry("k", body="    .shared .b8 s[49153];"),
    "64 KiB of constants": HEAD + ".visible .const .b8 c[65536];\n" + EMPTY,
    "too many constants": HEAD + ".visible .const .b8 c[65537];\n" + EMPTY,
    "4 KiB of parameters": HEAD + entry("k", ".param .b8 p[4352]"),
    "too many parameters": HEAD + entry("k", ".param .b8 p[4360]"),
    "too many parameters for any version": HEAD.replace("7.5", "8.1")
    + entry("k", ".param .b8 p[32765]"),
    "32764 bytes of parameters": HEAD.replace("7.5", "8.1") + entry("k", ".param .b8 p[32764]"),
    "a huge variable": HEAD + ".visible .global .b8 huge[1099511627776];\n" + EMPTY,
    "maxntid 2048": HEAD + entry("k", directives=".maxntid 2048, 1, 1"),
    "maxntid 0": HEAD + entry("k", directives=".maxntid 0, 1, 1"),
    "text behind the end": TEXT + "\nthis is no PTX",
    "a zero in the middle": HEAD + EMPTY + "\0this is no PTX",
    "line ends of Windows": TEXT.replace("\n", "\r\n"),
    "a letter that is not ASCII": HEAD + "// \xe9\n" + EMPTY,
}
