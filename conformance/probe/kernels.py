"""PTX for the questions about code, and helpers that load and launch its kernels."""

import ctypes

from driver import OUT

HEAD = """.version 7.5
.target sm_75
.address_size 64
"""

VARIABLES = """
.visible .global .align 4 .u32 counter = 5;
.visible .global .align 8 .b8 array[100];
.visible .const .align 4 .f32 table[4] = {0f3F800000, 0f40000000, 0f40400000, 0f40800000};
.global .align 4 .u32 hidden = 7;
.visible .global .attribute(.managed) .align 4 .u32 common = 9;
"""


def entry(name, parameters="", body="", directives=""):
    """The PTX of a kernel. The body does not contain the `ret` at its end."""
    return f".visible .entry {name}({parameters}) {directives}\n{{\n{body}\n    ret;\n}}\n"


def on_address(instructions):
    """The body of a kernel whose first parameter, an address, is in %rd1."""
    return f"""    .reg .b64 %rd<8>;
    .reg .b32 %r<8>;
    .reg .pred %p<4>;
    ld.param.u64 %rd1, [at];
{instructions}"""


EMPTY = entry("empty")
STORE = entry(
    "store",
    ".param .u64 at, .param .u32 value",
    on_address("    ld.param.u32 %r1, [value];\n    st.global.u32 [%rd1], %r1;"),
)
LAYOUT = entry(
    "layout",
    ".param .u8 a, .param .u16 b, .param .u32 c, .param .u64 d, "
    ".param .align 16 .b8 e[24], .param .f32 f, .param .align 1 .b8 g[3], .param .f64 h",
)
SPIN = entry(
    "spin",
    ".param .u64 at",
    on_address(
        "again:\n    ld.volatile.global.u32 %r1, [%rd1];\n"
        "    setp.eq.u32 %p1, %r1, 0;\n    @%p1 bra again;"
    ),
)
SHARED = entry(
    "shared",
    ".param .u64 at",
    "    .shared .align 4 .b8 block[1000];\n"
    + on_address(
        "    st.shared.u32 [block], 3;\n    ld.shared.u32 %r1, [block];\n"
        "    st.global.u32 [%rd1], %r1;"
    ),
)
DYNAMIC = ".extern .shared .align 16 .b8 dynamic_block[];\n" + entry(
    "dynamic",
    ".param .u64 at",
    on_address(
        "    st.shared.u32 [dynamic_block], 3;\n    ld.shared.u32 %r1, [dynamic_block];\n"
        "    st.global.u32 [%rd1], %r1;"
    ),
)
LOCAL = entry(
    "local",
    ".param .u64 at",
    "    .local .align 4 .b8 depot[400];\n"
    + on_address(
        "    cvt.u32.u64 %r1, %rd1;\n    mov.u32 %r4, depot;\n    and.b32 %r2, %r1, 255;\n"
        "    add.u32 %r3, %r4, %r2;\n    st.local.u8 [%r3], %r1;\n    ld.local.u8 %r5, [depot+7];\n"
        "    st.global.u32 [%rd1], %r5;"
    ),
)
BOUNDED = entry("bounded", directives=".maxntid 64, 1, 1")
REQUIRED = entry("required", directives=".reqntid 32, 2, 1")
READ_TABLE = entry(
    "read_table",
    ".param .u64 at",
    on_address("    ld.const.u32 %r1, [table+4];\n    st.global.u32 [%rd1], %r1;"),
)
COUNT = entry("count", "", "    .reg .b32 %r<2>;\n    atom.global.add.u32 %r1, [counter], 1;")
DIVIDE = entry(
    "divide",
    ".param .u64 at, .param .u32 by",
    on_address(
        "    ld.param.u32 %r1, [by];\n    mov.u32 %r2, 7;\n    div.u32 %r3, %r2, %r1;\n"
        "    rem.u32 %r4, %r2, %r1;\n    st.global.u32 [%rd1], %r3;\n"
        "    st.global.u32 [%rd1+4], %r4;"
    ),
)
# Kernels that are launched with a wrong address as `at`, or that execute `trap` or `exit`.
FAULTY = "".join(
    entry(f"fault_{name}", ".param .u64 at", on_address(body))
    for name, body in {
        "store": "    st.global.u32 [%rd1], 1;",
        "load": "    ld.global.u32 %r1, [%rd1];\n    st.global.u32 [%rd1], %r1;",
        "generic": "    st.u32 [%rd1], 1;",
        "trap": "    trap;",
        "exit": "    exit;",
        "shared": "    cvt.u32.u64 %r1, %rd1;\n    st.shared.u32 [%r1], 1;",
        "wide": "    st.global.v4.u32 [%rd1], {%r1, %r1, %r1, %r1};",
        "atomic": "    atom.global.add.u32 %r1, [%rd1], 1;",
        "breakpoint": "    brkpt;",
    }.items()
)
TEXT = "".join(
    [
        HEAD,
        VARIABLES,
        EMPTY,
        STORE,
        LAYOUT,
        SPIN,
        SHARED,
        DYNAMIC,
        LOCAL,
        BOUNDED,
        REQUIRED,
        READ_TABLE,
        COUNT,
        DIVIDE,
        FAULTY,
    ]
)
CHAIN_BEGINS = {"add.cc": "%rd2, %rd3", "sub.cc": "%rd2, %rd3"} | {
    f"mad.{part}.cc": "%rd2, %rd3, %rd4" for part in ("lo", "hi")
}
CHAIN_GOES_ON = {"addc": "%rd3, %rd4", "subc": "%rd3, %rd4"} | {
    f"madc.{part}": "%rd3, %rd4, %rd2" for part in ("lo", "hi")
}


def chain(name, first, second, bits):
    """A kernel of two instructions with a carry between them.

    The kernel stores the result of the second instruction, and that instruction's carry as addc and
    as subc read it.
    """
    r = "%rd" if bits == 64 else "%r"
    given, following = CHAIN_BEGINS[first], CHAIN_GOES_ON[second]
    chain = f"{first}.u{bits} %rd5, {given}; {second}.cc.u{bits} %rd6, {following};"
    chain = chain.replace("%rd", r)
    shorten = "".join(f"    cvt.u32.u64 %r{i}, %rd{i};\n" for i in (2, 3, 4) if bits == 32)
    stores = "".join(f"    st.global.u{bits} [%rd1+{8 * i}], {r}{6 + i};\n" for i in range(3))
    return entry(
        name,
        ".param .u64 at, .param .u64 a, .param .u64 b, .param .u64 c",
        on_address(
            "    ld.param.u64 %rd2, [a]; ld.param.u64 %rd3, [b]; ld.param.u64 %rd4, [c];\n"
            f"{shorten}    {chain} addc.u{bits} {r}7, 0, 0;\n"
            f"    {chain} subc.u{bits} {r}8, 0, 0;\n{stores}"
        ).replace("<8>", "<9>"),
    )


CHAINS = {
    f"carry of {first} in {second}, {bits} bits": chain(
        f"chain_{first}_{second}_{bits}".replace(".", "_"), first, second, bits
    )
    for bits in (32, 64)
    for first in CHAIN_BEGINS
    for second in CHAIN_GOES_ON
}
CLUSTERED = (
    HEAD.replace("7.5", "7.8").replace("sm_75", "sm_90")
    + entry("clustered", directives=".reqnctapercluster 2, 1, 1")
    + entry("explicit", directives=".explicitcluster")
    + entry("ranked", directives=".maxclusterrank 2")
    + EMPTY
)
KERNELS = TEXT.count(".entry ")


def image(text):
    return ctypes.create_string_buffer(text.encode())


def load(p, text=TEXT):
    """Loads a module, which is unloaded after the question."""
    p.image = p.keep(image(text))
    return p.make("cuModuleUnload", "cuModuleLoadData", OUT, p.image)


def load_library(p, text=TEXT):
    p.image = p.keep(image(text))
    return p.make("cuLibraryUnload", "cuLibraryLoadData", OUT, p.image, 0, 0, 0, 0, 0, 0)


def function(p, name, module=None):
    module = module or load(p)
    return p.need("cuModuleGetFunction", OUT, module, name.encode())


def pointers(p, *values):
    """The parameters for cuLaunchKernel: the addresses of the values. None is a null pointer."""
    cells = [value if value is None else p.keep(value) for value in values]
    found = [None if cell is None else ctypes.addressof(cell) for cell in cells]
    return p.keep((ctypes.c_void_p * max(1, len(found)))(*found))


def address(value):
    return ctypes.c_uint64(value)


def launch(p, kernel, parameters=0, grid=(1, 1, 1), block=(1, 1, 1), shared=0, stream=0, extra=0):
    return p("cuLaunchKernel", kernel, *grid, *block, shared, stream, parameters, extra)


def launch_on(p, name, at, *more, **options):
    """Launches a kernel of this file. Its parameters are an address and the numbers `more`."""
    numbers = [ctypes.c_uint32(number) for number in more]
    return launch(p, function(p, name), pointers(p, address(at), *numbers), **options)


class Attribute(ctypes.Structure):
    _fields_ = [("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_int * 16)]


class Config(ctypes.Structure):
    _fields_ = [
        ("sizes", ctypes.c_uint * 6),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_uint64),
        ("attributes", ctypes.c_void_p),
        ("count", ctypes.c_uint),
    ]


def config(p, *attributes, grid=1, block=1, stream=0, count=0):
    array = (Attribute * max(1, len(attributes)))()
    for entry, (key, *values) in zip(array, attributes, strict=False):
        entry.id = key
        for i, value in enumerate(values):
            entry.value[i] = value
    p.keep(array)
    found = Config((grid, 1, 1, block, 1, 1), 0, stream, None, count or len(attributes))
    if attributes:
        found.attributes = ctypes.addressof(array)
    return ctypes.byref(p.keep(found))
