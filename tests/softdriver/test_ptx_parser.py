"""The PTX parser: the trees of valid texts, and the errors of invalid texts.

The parser is built alone, with the address sanitizer. The program ptx_dump prints its trees.
"""

import os
import re
import subprocess
from pathlib import Path

import pytest
from limits import PATIENCE

from .sanitized import ADDRESS, PTX_DUMP, PTX_FUZZ, Build

CORPUS = sorted((Path(__file__).parent / "ptx_corpus").glob("*.ptx"))
SEEDS = range(1, 1 + int(os.environ.get("CUDADRV_FUZZ_SEEDS", "2")))
INPUTS = os.environ.get("CUDADRV_PTX_FUZZ_INPUTS", "2000")
HEAD = ".version 8.0\n.target sm_75\n.address_size 64\n"
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def build() -> Build:
    return Build("address", ADDRESS)


@pytest.fixture(scope="module")
def dump(build, tmp_path_factory):
    program = build.ptx_program(PTX_DUMP)
    file = tmp_path_factory.mktemp("ptx") / "module.ptx"

    def run(text: str | bytes) -> tuple[bool, list[str]]:
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        done = subprocess.run([program, file], capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode in (0, 1), done.stderr[-4000:]
        return done.returncode == 0, done.stdout.splitlines()

    return run


@pytest.fixture
def lines(dump):
    def run(text: str) -> list[str]:
        good, lines = dump(HEAD + text)
        assert good, lines
        return [line.strip() for line in lines[1:]]

    return run


def instructions(lines: list[str]) -> list[str]:
    """The instructions of all functions, without positions and line numbers."""
    return [line.partition(") ")[2] for line in lines if line[0].isdigit()]


@pytest.mark.parametrize("seed", SEEDS)
def test_random_texts(build, seed):
    """No random text or fatbin causes a memory error or takes long."""
    program = build.program(PTX_FUZZ)
    command = [str(program), str(seed), INPUTS, *map(str, CORPUS)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE, cwd=program.parent
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-12000:]
    assert done.stdout.startswith("ptx_fuzz: ")
    # Kernels with textures really run: about every eighth input finds a texture.
    found, ended = re.search(r"(\d+) found textures, and (\d+) of", done.stdout).groups()
    assert int(found) * 10 > int(INPUTS), done.stdout
    assert int(ended) * 3 > int(found), done.stdout
    (hazards,) = re.findall(r"(\d+) had hazards", done.stdout)
    assert int(hazards) * 200 > int(INPUTS), done.stdout


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_corpus(dump, path):
    good, lines = dump(path.read_bytes())
    assert good, lines


def test_heading(dump):
    good, lines = dump(b'.version 7.1 .target sm_90a, debug\n.file 1 "x.cu"\n\0 rest {')
    assert good
    assert lines == ["version 71 target sm_90a capability 90 source x.cu"]


def test_newer_version(dump):
    good, lines = dump(".version 9.6\n.target sm_75\n.new_directive;\n")
    assert not good
    assert lines == ["1: unsupported .version 9.6: the newest known is 9.5 (version)"]


@pytest.mark.parametrize(
    ("declaration", "expected"),
    [
        (".global .b32 x;", "global b32 x x1 align 4 at 0"),
        (".visible .const .align 16 .f64 x[2][3];", "const f64 x x6 align 16 at 0 visible"),
        (".extern .shared .b8 x[];", "shared b8 x x0 align 1 at 0 extern"),
        (".global .v4 .f32 x[2];", "global f32 x x8 align 16 at 0"),
        (
            ".global .attribute(.managed) .b16 x[] = {1, 0x203, -1};",
            "global b16 x x3 align 2 at 0 managed = 1 0 3 2 255 255",
        ),
        (
            ".global .b8 x[3][2] = {{1}, {2, 3}};",
            "global b8 x x6 align 1 at 0 = 1 0 2 3",
        ),
        (".global .b8 x[100000] = {7};", "global b8 x x100000 align 1 at 0 = 7"),
        (".const .f32 x = 1.5;", "const f32 x x1 align 4 at 0 = 0 0 192 63"),
        (".const .f64 x = 0f3F800000;", "const f64 x x1 align 8 at 0 = 0 0 0 0 0 0 240 63"),
        (
            ".global .u64 x[2] = {generic(y)+8, x};",
            "global u64 x x2 align 8 at 0 &y+8>>0 at 0 width 8 generic &x+0>>0 at 8 width 8",
        ),
        (
            ".global .u8 x[2] = {0xFF(generic(y)), 0xFF00(y)};",
            "global u8 x x2 align 1 at 0 &y+0>>0 at 0 width 1 generic &y+0>>8 at 1 width 1",
        ),
        (".const .u64 x = f;", "const u64 x x1 align 8 at 0 &f+0>>0 at 0 width 8"),
    ],
)
def test_variable(lines, declaration, expected):
    found = lines(f".global .b64 y;\n.func f;\n{declaration}\n")
    assert [line for line in found if " x x" in line] == [expected]


@pytest.mark.parametrize(
    ("operands", "expected"),
    [
        ("mov.b32 a, -1;", "mov.b32 a, -1"),
        ("mov.b32 a, 0x1F;", "mov.b32 a, 31"),
        ("mov.b32 a, 017;", "mov.b32 a, 15"),
        ("mov.b32 a, 0b101U;", "mov.b32 a, 5"),
        ("mov.b32 a, (1 + 2) * 3 << 1 | 64;", "mov.b32 a, 82"),
        ("mov.b32 a, 5 - 3 - 1;", "mov.b32 a, 1"),
        ("mov.b32 a, -7 / 2;", "mov.b32 a, -3"),
        ("mov.b32 a, -7 % 4 + ~0;", "mov.b32 a, -4"),
        ("mov.b32 a, -8 >> 1;", "mov.b32 a, -4"),
        ("mov.b32 a, 1 << 64;", "mov.b32 a, 0"),
        ("mov.b32 a, -1 < 0U;", "mov.b32 a, 0"),
        ("mov.b32 a, 1 && 0 || !0;", "mov.b32 a, 1"),
        ("mov.b32 a, 2 > 1 ? WARP_SZ : 0;", "mov.b32 a, 32"),
        ("mov.b32 a, (9223372036854775807 + 1) / -1 == 1 << 63;", "mov.b32 a, 1"),
        ("mov.f32 f, 0f3F800000;", "mov.f32 f, single 3f800000"),
        ("mov.f64 d, 0d3FF0000000000000;", "mov.f64 d, double 3ff0000000000000"),
        ("mov.f32 f, -1.5e0;", "mov.f32 f, double bff8000000000000"),
        ("mov.f32 f, .5;", "mov.f32 f, double 3fe0000000000000"),
        ("@!q add.s32 a, a, b;", "@!q add.s32 a, a, b"),
        ("setp.lt.and.u32 q|r, a, b, !q;", "setp.lt.and.u32 q|r, a, b, !q"),
        ("mov.u32 a, %ctaid.y;", "mov.u32 a, special %ctaid.y"),
        ("mov.u32 a, %envreg3;", "mov.u32 a, special %envreg3"),
        ("ld.global.L2::128B.b32 a, [l+-4];", "ld.global.L2::128B.b32 a, [l + -4]"),
        ("ld.param.b64 l, [p];", "ld.param.b64 l, [p of function]"),
        ("ld.b32 a, [s+(2*4)];", "ld.b32 a, [s of module + 8]"),
        ("ld.local.b32 a, [16];", "ld.local.b32 a, [16]"),
        ("mov.b64 {a, _}, l;", "mov.b64 {a, _}, l"),
        ("st.v2.b32 [l], {1, b};", "st.v2.b32 [l], {1, b}"),
        ("mov.b32 a, w.y;", "mov.b32 a, w.y"),
        ("st.v2.b32 [l], w;", "st.v2.b32 [l], {w.x, w.y}"),
        ("tex.2d.v2.s32.f32 w, [l, {f, f}];", "tex.2d.v2.s32.f32 {w.x, w.y}, [l, {f, f}]"),
        ("vadd.s32.s32.s32 a, b.b3, a.h0;", "vadd.s32.s32.s32 a, b.b3, a.h0"),
        ("call.uni h, (a);", "call.uni {}, function h, {a}"),
        ("call (a), g, ();", "call {a}, function g, {}"),
        ("call (a), g;", "call {a}, function g, {}"),
        ("mov.u64 l, h;", "mov.u64 l, function h"),
        ("ld.shared.b32 a, s[a];", "ld.shared.b32 a, s of module[a * 4 + 0]"),
        ("ld.shared.b32 a, s[l+(2*3)];", "ld.shared.b32 a, s of module[l * 4 + 24]"),
        ("mov.b32 a, s[-1];", "mov.b32 a, s of module[ * 4 + -4]"),
        ("mov.v2.b32 w, {w.g, w.r};", "mov.v2.b32 {w.x, w.y}, {w.y, w.x}"),
        ("mov.b32 a, b+(2*3);", "mov.b32 a, b + 6"),
    ],
)
def test_operands(lines, operands, expected):
    found = lines(
        ".shared .b32 s[8]; .func h (.reg .b32 x); .func (.reg .b32 x) g;\n"
        ".entry k (.param .u64 p) { .reg .b32 a, b; .reg .b64 l; .reg .f32 f; .reg .f64 d;\n"
        ".reg .pred q, r; .reg .v2 .b32 w;\n" + operands + "}"
    )
    assert instructions(found) == [expected]


def test_scopes(lines):
    """An inner name hides an outer one. Labels may be used before they are defined."""
    found = lines(
        ".entry k { .reg .b32 a; .reg .pred p; { .reg .b64 a; L: mov.b64 a, 1; @p bra L; bra M; }\n"
        "{ L: bra L; { bra L; } } mov.b32 a, 2; M: @p bra L; L: bra N; N: }"
    )
    assert instructions(found) == [
        "mov.b64 a, 1",
        "@p bra label 0",
        "bra label 6",
        "bra label 3",
        "bra label 3",
        "mov.b32 a, 2",
        "@p bra label 7",
        "bra label 8",
    ]
    assert [line for line in found if line.startswith("reg")] == [
        "reg b32 a",
        "reg pred p",
        "reg b64 a",
    ]


def test_only_used_registers_exist(lines):
    found = lines(
        ".entry k { .reg .b32 %r<1000000>, %s; .reg .pred %r1<5>;\n"
        "mov.b32 %r999999, 1; mov.b32 %r0, 1; setp.eq.b32 %r14, %r0, 1; }"
    )
    registers = [line for line in found if line.startswith("reg")]
    assert registers == ["reg b32 %s", "reg b32 %r999999", "reg b32 %r0", "reg pred %r14"]


def test_parameters(lines):
    found = lines(
        ".entry k (.param .u8 a, .param .u64 .ptr .global .align 32 b, .param .u16 c,\n"
        ".param .align 16 .b8 d[20], .param .f32 e) .maxntid 8, 4 .maxnreg 32 .minnctapersm 3 "
        ".maxclusterrank 4 .reqnctapercluster 2, 1, 1 { }\n"
        ".visible .func (.param .b32 r) f (.param .b64 x, .reg .u32 y);"
    )
    assert [line.partition(" at ")[2] for line in found if line.startswith("param")] == [
        "0", "8", "16", "32", "52", "0", "0", "8",
    ]  # fmt: skip
    assert "maxntid 8 4 1 reqntid 0 0 0 cluster 2 1 1 rank 4 maxnreg 32 minnctapersm 3" in found
    assert "func f line 6 declared visible results 1 parameters 2 alias -1" in found
    assert "param u32 y x1 align 4 at 8" in found


def test_calls(lines):
    """The list of called functions has each of them once, also those in lists of targets.

    An alias counts as the function for which it stands.
    """
    found = lines(
        ".func f (.reg .b32 x) { } .func a (.reg .b32 x); .func g { }\n.alias a, f;\n"
        ".entry k { .reg .b64 p; .reg .b32 x; call f, (x); call a, (x); call f, (x);\n"
        "{ P: .callprototype _ (.reg .b32 _); call p, (x), P; C: .calltargets g, a;\n"
        "call p, (x), C; } T: .branchtargets A, B; A: brx.idx x, T; B: }"
    )
    assert [line for line in found if line.startswith("calls")] == ["calls f", "calls g"]
    assert instructions(found) == [
        "ld.param.b32 x, [x of function]",
        "call {}, function f, {x}",
        "call {}, function f, {x}",
        "call {}, function f, {x}",
        "call {}, p, {x}, 0",
        "call {}, p, {x}, {function g, function f}",
        "brx.idx x, {label 5, label 6}",
    ]


def test_recursion(lines):
    found = lines(".func f; .func g { call f; } .func f { call g; call f; }")
    assert [line for line in found if line.startswith("calls")] == ["calls g", "calls f", "calls f"]


def test_debugging_information_is_skipped(lines):
    found = lines(
        '.file 1 "a.cu", 1, 2\n.entry k {\n.loc 1 2 3\n.pragma "nounroll";\n'
        ".loc 1 2 3, function_name $x+4, inlined_at 1 2 3\nret; }\n"
        ".section .debug_info {\n.b8 1,2 .b32 x {} }\n.section .debug_loc { }\n"
    )
    assert instructions(found) == ["ret"]


WRONG = [
    ("ret", "syntax error near '}'"),
    ("ret; }", "syntax error near '}'"),
    ("foo a b;", "syntax error near 'b'"),
    ("foo a;", "unknown symbol 'a'"),
    ("mov.b32 %r1, %tid;;", "syntax error near ';'"),
    ("mov.b32 %r1, %tid.q;", "syntax error near '.q'"),
    ("mov.b32 %r5, 1;", "unknown symbol '%r5'"),
    ("mov.b32 %r01, 1;", "unknown symbol '%r01'"),
    ("mov.b32 %r1, %foo;", "unknown symbol '%foo'"),
    ("mov.b32 %r1, [%r1+%r1];", "syntax error near '%r1'"),
    ("mov.b32 %r1, [%r1-4];", "syntax error near '-'"),
    ("mov.b32 %r1, %r1-4;", "syntax error near '-'"),
    ("mov.b32 %r1, %tid.x+1;", "syntax error near '+'"),
    ("st.v2.b32 [0], {%r1+1, %r1};", "syntax error near '+'"),
    ("mov.b32 %r1, -%r1;", "syntax error near '%r1'"),
    ("mov.b32 %r1, !%r1;", "'!' needs a predicate"),
    ("mov.b32 %r1, 1/0;", "a constant expression divides by zero"),
    ("mov.b32 %r1, 1.5 % 2;", "a constant expression needs integers for '%'"),
    ("mov.b32 %r1, 0x1FFFFFFFFFFFFFFFF;", "syntax error near '0x1FFFFFFFFFFFFFFFF'"),
    ("mov.b32 %r1, 09;", "syntax error near '09'"),
    ("mov.b32 %r1, 0f3F80;", "syntax error near '0f3F80'"),
    ("mov.b32 %r1, %r1,;", "syntax error near ';'"),
    ("mov.b64 {{%r1,%r1},%r1}, 0;", "syntax error near '{'"),
    ("@%r1 ret;", "'%r1' is no predicate: '@' needs one"),
    ("@nope ret;", "unknown symbol 'nope'"),
    ("bra nowhere;", "unknown symbol 'nowhere'"),
    ("bra %r1;", "a branch needs a label"),
    ("bra v;", "a branch needs a label"),
    ("bra inner; { inner: }", "unknown symbol 'inner'"),
    ("L: L: ret;", "duplicate definition of label 'L'"),
    (".reg .b32 a, a;", "duplicate definition of 'a'"),
    (".reg .b32 %r<9>;", "duplicate definition of '%r'"),
    (".reg .f32 %r3;", "duplicate definition of '%r3'"),
    (".reg .b32 p;", "duplicate definition of 'p'"),
    (".reg .b32 a<4000000000>;", "too many registers 'a': 4000000000"),
    (".reg .quad a;", "unknown or unsupported type '.quad'"),
    (".visible .shared .b32 a;", "syntax error near '.visible'"),
    (".nothing;", "syntax error near '.nothing'"),
    ("call later;", "unknown function 'later'"),
    ("call v;", "what is called is no function"),
    ("call f, (1);", "a call of 'f' has another number of results or arguments than the function"),
    ("{" * 70 + "}" * 70, "blocks are nested too deeply"),
    ("mov.b32 %r1, " + "(" * 9999, "the constant expression is nested too deeply"),
    ("mov.b32 %r1, " + "-" * 9999, "the constant expression is nested too deeply"),
    ("mov.b32 %r1, \u00e9;", "syntax error near '?'"),
    ("/* no end", "syntax error near '/* no end??}?'"),
    (".shared .b32 x = 1;", "variable 'x' cannot have an initial value"),
    ("mov.b64 %r1, v[1];", "'v' is no array, so it has no items"),
    ("ld.b32 %r1, many[1.5];", "an integer is needed here, not a float"),
    ("ld.b32 %r1, many[%tid.x];", "an index is a constant or an integer register, not '%tid'"),
    ("ld.b32 %r1, many[q];", "an index is a constant or an integer register, not 'q'"),
    ("ld.b32 %r1, many[f];", "an index is a constant or an integer register, not 'f'"),
    ("ld.b32 %r1, many[%r1-1];", "syntax error near '-'"),
    ("ld.b32 %r1, many[1][2];", "syntax error near '['"),
    ("ld.b32 %r1, [many[1]];", "syntax error near '['"),
    ("mov.v2.b32 {%r1, %r2}, {many[1], 1};", "syntax error near '['"),
]


@pytest.mark.parametrize(("text", "expected"), WRONG, ids=range(len(WRONG)))
def test_problem_in_a_body(dump, text, expected):
    good, lines = dump(
        HEAD + ".global .b32 v, many[9]; .func f { }\n"
        ".entry k (.param .b32 p) { .reg .b32 %r<5>; .reg .pred q;\n"
        f"\n{text}\n\n}}\n"
    )
    assert not good
    line, _, text = lines[0].partition(": ")
    assert text == expected
    assert line in ("7", "9")  # the first unexpected token may be in a later line


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "1: a PTX text begins with .version"),
        (".version 8\n", "1: syntax error near '8'"),
        (".version 8.0\n", "2: after .version stands .target"),
        (".version 8.0\n.target sm_x\n", "2: unknown target 'sm_x'"),
        (HEAD.replace("64", "32"), "3: addresses of other than 64 bits are not supported"),
        (HEAD + HEAD, "4: syntax error near '.version'"),
        (HEAD + ".entry k {\n", "5: syntax error at the end of the text: a function is not closed"),
        (HEAD + ".global .b8 x[1<<60];", "4: the size of array 'x' is zero or too large"),
        (HEAD + ".global .b8 x[0];", "4: the size of array 'x' is zero or too large"),
        (HEAD + ".global .b8 x[];", "4: array 'x' has no size"),
        (HEAD + ".global .b8 x[2] = {1, 2, 3};", "4: too many initial values for 'x'"),
        (HEAD + ".global .b8 x[2][1] = {{1, 2}};", "4: too many initial values for 'x'"),
        (HEAD + ".global .b8 x[2][1] = {1, 2};", "4: syntax error near '1'"),
        (HEAD + ".global .f32 x = 1;", "4: the initial value of 'x' is of another type"),
        (HEAD + ".global .s32 x = 1.0;", "4: the initial value of 'x' is of another type"),
        (HEAD + ".global .u64 x = y;", "4: unknown symbol 'y'"),
        (HEAD + ".global .b32 x;\n.global .b32 x;", "5: duplicate definition of 'x'"),
        (
            HEAD + ".global .b8 x[1<<10][1<<30] = {" + "{0}," * 999 + "{1}};",
            "4: the module needs too much memory for so short a text",
        ),
        (HEAD + ".global .align 3 .b8 x;", "4: an alignment is a power of two up to 1024"),
        (
            HEAD + ".func f { }\n.func f { }",
            "5: duplicate definition of 'f', which is in line 4, too",
        ),
        (
            HEAD + ".func f (.param .b32 x);\n.func f { }",
            "5: other parameters of 'f', which is in line 4, too",
        ),
        (HEAD + ".func f (.param .pred x);", "4: a variable in memory cannot be a predicate"),
        (HEAD + ".func f () x", "4: syntax error near 'x'"),
        (HEAD + ".entry f ()\n.func g { }", "5: syntax error near '.func'"),
        (
            HEAD + ".reg .b32 x;",
            "4: registers and local memory outside of functions are allowed before .version 3.0 "
            "only",
        ),
        (
            HEAD.replace("8.0", "2.3") + ".extern .local .b32 x[4];",
            "4: registers and local memory cannot be .extern",
        ),
        (HEAD.replace("75", "75, map_f64_to_f32"), "2: map_f64_to_f32 is for targets before sm_13"),
        (HEAD.replace("75", "75, other"), "2: unsupported option 'other' of .target"),
        (HEAD + ".func f;\n.func g;\n.alias f, g;", "6: function 'f' cannot be an alias of 'g'"),
        (HEAD + ".entry k .maxntid 0 { }", "4: a number of threads or blocks cannot be zero"),
        (
            HEAD + ".entry k .maxntid 8 .reqntid 8 { }",
            "4: a kernel has .maxntid or .reqntid, not both",
        ),
        (HEAD + ".entry k (.param .b8 x[]) { }", "4: parameter 'x' of a kernel has no size"),
    ],
)
def test_problem_of_a_module(dump, text, expected):
    good, lines = dump(text)
    assert not good
    assert lines == [expected]


def test_several_problems(dump):
    """Each error is reported, up to a maximum number."""
    good, lines = dump(HEAD + ".entry k { mov a, 1;\n" + "mov b, c;\n" * 100 + "}")
    assert not good
    assert lines[:3] == ["4: unknown symbol 'a'", "5: unknown symbol 'b'", "5: unknown symbol 'c'"]
    assert len(lines) == 20


def test_parameters_in_registers(lines):
    """Parameters in registers are loaded at the start, and stored before each return.

    Labels still refer to the same instructions.
    """
    found = lines(
        ".func (.reg .b32 r) f (.reg .b32 x, .param .b64 y, .reg .f64 z) { .reg .pred p;\n"
        "bra L; @p ret; L: ret; M: }"
    )
    assert instructions(found) == [
        "ld.param.b32 x, [x of function]",
        "ld.param.b64 z, [z of function]",
        "bra label 5",
        "st.param.b32 [r of function], r",
        "@p ret",
        "st.param.b32 [r of function], r",
        "ret",
        "st.param.b32 [r of function], r",
    ]


def test_predicates_and_vectors_as_parameters(lines):
    """A predicate is passed as a number of 16 bits, and a vector item by item."""
    found = lines(".func (.reg .pred r) f (.reg .v2 .b64 x, .reg .b8 y, .reg .pred p) { }")
    assert instructions(found) == [
        "ld.param.b64 x.x, [x of function]",
        "ld.param.b64 x.y, [x of function + 8]",
        "ld.param.b16 y, [y of function]",
        "ld.param.b16 , [p of function]",
        "setp.ne.u16 p, , 0",
        "selp.u16 , 1, 0, r",
        "st.param.b16 [r of function],",
    ]


def test_registers_of_the_module(dump):
    """A register of the module is in memory while other functions run.

    Branches to the first instruction do not load it again, and the result of a call stays.
    """
    good, lines = dump(
        ".version 2.3 .target sm_20 .reg .b32 a, b, c; .reg .pred %p<3>;\n"
        ".func (.reg .b32 x) g;\n.func f { L: add.u32 a, a, 1; call (a), g, (); @%p1 bra L; M: }"
    )
    assert good, lines
    found = instructions([line.strip() for line in lines])
    load = ["ld.local.b16 , [%p1 of module]", "setp.ne.u16 %p1, , 0"]
    store = ["selp.u16 , 1, 0, %p1", "st.local.b16 [%p1 of module],"]
    assert found == [
        "ld.local.b32 a, [a of module]",
        *load,
        "add.u32 a, a, 1",
        "st.local.b32 [a of module], a",
        *store,
        "call {a}, function g, {}",
        *load,
        "@%p1 bra label 3",
        "st.local.b32 [a of module], a",
        *store,
    ]
    assert [line.split(" at ")[0] for line in lines if line.startswith("local")] == [
        "local b32 a x1 align 4",
        "local u16 %p1 x1 align 2",
    ]
