"""Cooperative launches: what their kernels read, and how all blocks of a grid synchronize."""

import ctypes

from kernels import HEAD, address, config, entry, function, load, pointers
from section import Section

section = Section("cooperation")
question = section.question

# The PTX that nvcc generates for cooperative_groups::this_grid().sync().
SYNC = """    barrier.sync 0;
    @%p7 bra WAITED_{0};
    atom.add.release.gpu.u32 %r20, [%rd20+4], %r21;
AGAIN_{0}:
    ld.acquire.gpu.u32 %r22, [%rd20+4];
    xor.b32 %r23, %r22, %r20;
    setp.gt.s32 %p6, %r23, -1;
    @%p6 bra AGAIN_{0};
WAITED_{0}:
    barrier.sync 0;
"""
REGISTERS = """    .reg .pred %p<8>;
    .reg .b32 %r<32>;
    .reg .b64 %rd<32>;
    ld.param.u64 %rd1, [at];
    mov.u32 %r1, %envreg1;
    mov.u32 %r2, %envreg2;
    mov.b64 %rd20, {%r2, %r1};
    mov.u32 %r3, %ctaid.x;
    mov.u32 %r4, %tid.x;
    mov.u32 %r5, %nctaid.x;
    setp.ne.u32 %p7, %r4, 0;
    setp.eq.u32 %p5, %r3, 0;
    sub.u32 %r6, -2147483647, %r5;
    selp.b32 %r21, %r6, 1, %p5;
    mov.u32 %r7, %ntid.x;
    mad.lo.u32 %r8, %r3, %r7, %r4;
    mul.wide.u32 %rd2, %r8, 4;
    add.u64 %rd3, %rd1, 256;
    add.u64 %rd3, %rd3, %rd2;
"""
# Each thread increments a counter. After the grid has synchronized, it reads the counter.
TWICE = REGISTERS + "".join(
    f"    atom.global.add.u32 %r9, [%rd1+{4 * i}], 1;\n"
    + SYNC.format(i)
    + f"    ld.global.u32 %r1{i}, [%rd1+{4 * i}];\n"
    for i in range(3)
)
TWICE += "    add.u32 %r14, %r10, %r11;\n    add.u32 %r14, %r14, %r12;\n"
TWICE += "    st.global.u32 [%rd3], %r14;\n"
REPORT = REGISTERS + "".join(
    f"    mov.u32 %r15, %envreg{i};\n    st.global.u32 [%rd1+{4 * i}], %r15;\n" for i in range(32)
)
WORDS = REGISTERS + "".join(
    f"    ld.global.u32 %r15, [%rd20+{4 * i}];\n    st.global.u32 [%rd1+{4 * i}], %r15;\n"
    for i in range(2)
)
TEXT = (
    HEAD
    + entry("sync", ".param .u64 at", TWICE)
    + entry("report", ".param .u64 at", REPORT)
    + entry("words", ".param .u64 at", WORDS)
)


def run(p, name, how, target, grid=1, block=1, stream=0):
    kernel, cells = function(p, name, load(p, TEXT)), pointers(p, address(target))
    if how == "plain":
        return p("cuLaunchKernel", kernel, grid, 1, 1, block, 1, 1, 0, stream, cells, 0)
    if how == "cooperative":
        return p("cuLaunchCooperativeKernel", kernel, grid, 1, 1, block, 1, 1, 0, stream, cells)
    chosen = config(p, (2, 1), grid=grid, block=block, stream=stream)
    return p("cuLaunchKernelEx", chosen, kernel, cells, 0)


def numbers(p, target, count, offset=0):
    return list((ctypes.c_uint32 * count).from_buffer_copy(p.read(target + offset, 4 * count)))


def cleared(p, size=65536):
    target = p.device(size)
    p.write(target, bytes(size))
    return target


for how in ("plain", "cooperative", "attribute"):

    @question(f"environment, {how}")
    def _(p, how=how):
        target = cleared(p)
        status = run(p, "report", how, target)
        found = numbers(p, target, 32)
        workspace = found[1] << 32 | found[2]
        others = [i for i in range(32) if found[i] and i not in (1, 2)]
        return {
            "status": status,
            "workspace": workspace != 0,
            "aligned": workspace % 16 == 0,
            "others that are not 0": others,
        }

    for grid, block in ((1, 1), (1, 64), (7, 32), (33, 96), (64, 256)):
        if how == "plain":
            continue

        @question(f"grid of {grid} blocks of {block}, {how}")
        def _(p, how=how, grid=grid, block=block):
            target = cleared(p, 1 << 17)
            status = run(p, "sync", how, target, grid, block)
            found = numbers(p, target, grid * block, 256)
            return status, set(found) == {3 * grid * block}, numbers(p, target, 3)


@question("the workspace")
def _(p):
    target = cleared(p)
    status = run(p, "words", "cooperative", target)
    size, barrier = numbers(p, target, 2)
    return status, f"size {size}", f"barrier {barrier:#x}"


@question("the workspace after the grid synchronized")
def _(p):
    target = cleared(p)
    run(p, "sync", "cooperative", cleared(p, 1 << 17), 4, 32)
    status = run(p, "words", "cooperative", target)
    size, barrier = numbers(p, target, 2)
    return status, f"size {size}", f"barrier {barrier & 0x7FFFFFFF:#x}"


@question("workspaces of two launches in a stream are one")
def _(p):
    found = []
    for _ in range(2):
        target = cleared(p)
        run(p, "report", "cooperative", target)
        found.append(numbers(p, target, 3)[1:])
    return found[0] == found[1]


@question("workspaces of two launches in two streams are one")
def _(p):
    found, targets = [], [cleared(p), cleared(p)]
    for target in targets:
        run(p, "report", "cooperative", target, stream=p.stream())
    for target in targets:
        found.append(numbers(p, target, 3)[1:])
    return found[0] == found[1]


@question("two launches in two streams")
def _(p):
    targets = [cleared(p, 1 << 17) for _ in range(4)]
    found = [run(p, "sync", "cooperative", t, 16, 64, p.stream()) for t in targets]
    return found, [set(numbers(p, t, 16 * 64, 256)) == {3 * 16 * 64} for t in targets]


@question("the workspace is no memory that the program knows")
def _(p):
    target = cleared(p)
    run(p, "report", "cooperative", target)
    found = numbers(p, target, 3)
    workspace = found[1] << 32 | found[2]
    return p("cuPointerGetAttribute", p.cell(), 2, workspace), p("cuMemFree_v2", workspace)


@question("a plain launch that reads the workspace", alone=True)
def _(p):
    return run(p, "words", "plain", cleared(p)), p("cuCtxSynchronize")
