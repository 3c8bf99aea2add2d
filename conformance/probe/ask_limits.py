"""Limits and configuration of a context."""

from driver import INT, OUT
from section import Section

section = Section("limits")
question = section.question

section.calls("""
    get null | cuCtxGetLimit 0, 0
    get 99 | cuCtxGetLimit out, 99
    get null 99 | cuCtxGetLimit 0, 99
    get -1 | cuCtxGetLimit out, -1
    set 99 | cuCtxSetLimit 99, 1
    set -1 | cuCtxSetLimit -1, 1
    set stack huge | cuCtxSetLimit 0, 1 << 40
    set stack 512 KiB | cuCtxSetLimit 0, 512 << 10
    set fifo huge | cuCtxSetLimit 1, 1 << 50
    set heap huge | cuCtxSetLimit 2, 1 << 50
    set fetch granularity 129 | cuCtxSetLimit 5, 129
    set persisting huge | cuCtxSetLimit 6, 1 << 50
    set shared memory size | cuCtxSetLimit 7, 1024
    set in graphics | cuCtxSetLimit 8, 1
    set in graphics fallback | cuCtxSetLimit 9, 1
    set sync depth 0 | cuCtxSetLimit 3, 0
    set sync depth 3 | cuCtxSetLimit 3, 3
    set sync depth 99 | cuCtxSetLimit 3, 99
    set pending launches 0 | cuCtxSetLimit 4, 0
""")

for number in range(10):
    section.ask(f"default of {number}", lambda p, n=number: p.get("cuCtxGetLimit", OUT, n))

_VALUES = {
    0: (0, 1, 15, 16, 100, 1000, 4096, 65536, 1025),
    1: (0, 1, 100, 4096, 1 << 20, 1000000),
    2: (0, 1, 4096, 1 << 20, 8 << 20, 1000000),
    3: (1, 2, 24, 25),
    4: (1, 2048, 100000),
    5: (0, 1, 31, 32, 64, 100, 128),
    6: (0, 1, 1 << 20, 1000000),
}

for number, values in _VALUES.items():
    for value in values:
        section.ask(
            f"set {number} to {value}",
            lambda p, n=number, v=value: (
                p.context(),
                p("cuCtxSetLimit", n, v),
                p.get("cuCtxGetLimit", OUT, n),
            )[1:],
        )


@question("limits of one context are its own")
def _(p):
    before = p.get("cuCtxGetLimit", OUT, 1)
    p.context()
    p("cuCtxSetLimit", 1, 2 << 20)
    p("cuCtxSetCurrent", p.primary)
    return before == p.get("cuCtxGetLimit", OUT, 1)


for config in (0, 1, 2, 3, 4, -1):
    section.ask(
        f"cache config {config}",
        lambda p, c=config: (
            p.context(),
            p("cuCtxSetCacheConfig", c),
            p.get("cuCtxGetCacheConfig", INT),
        )[1:],
    )
    section.ask(
        f"shared config {config}",
        lambda p, c=config: (
            p.context(),
            p("cuCtxSetSharedMemConfig", c),
            p.get("cuCtxGetSharedMemConfig", INT),
        )[1:],
    )


@question("default configs")
def _(p):
    return p.get("cuCtxGetCacheConfig", INT), p.get("cuCtxGetSharedMemConfig", INT)


@question("priority range")
def _(p):
    return p.get("cuCtxGetStreamPriorityRange", INT, INT)


@question("priority range, one null")
def _(p):
    return p.get("cuCtxGetStreamPriorityRange", INT, 0), p.get(
        "cuCtxGetStreamPriorityRange", 0, INT
    )


section.calls(
    """
    limit | cuCtxGetLimit out, 0
    limit 99 | cuCtxGetLimit out, 99
    set limit | cuCtxSetLimit 0, 1024
    cache config | cuCtxGetCacheConfig out
    flags | cuCtxGetFlags out
    set flags | cuCtxSetFlags 0
    exec affinity | cuCtxGetExecAffinity out, 0
    persisting | cuCtxResetPersistingL2Cache
    shared config | cuCtxGetSharedMemConfig out
    priority range without context | cuCtxGetStreamPriorityRange out, out
    version of null | cuCtxGetApiVersion 0, out
    identifier of null | cuCtxGetId 0, out
    device | cuCtxGetDevice out
    device to null | cuCtxGetDevice 0
    synchronize | cuCtxSynchronize
    memory | cuMemGetInfo_v2 out, out
    memory null | cuMemGetInfo_v2 0, 0
    pop | cuCtxPopCurrent_v2 out
    flush | cuFlushGPUDirectRDMAWrites 0, 100
    record | cuCtxRecordEvent 0, 0
""".replace(" |", " with no context |"),
    lambda p: p.get("cuCtxPopCurrent_v2", OUT) and {},
)


@question("exec affinity")
def _(p):
    parameter = p.pageable()
    return p("cuCtxGetExecAffinity", parameter, 0), p.bytes_at(parameter, 4)


@question("memory info null")
def _(p):
    both = p("cuMemGetInfo_v2", 0, 0)
    return both, p("cuMemGetInfo_v2", p.cell(), 0), p("cuMemGetInfo_v2", 0, p.cell())


@question("free memory sinks by at least what is allocated")
def _(p):
    before = p.need("cuMemGetInfo_v2", OUT, OUT)[0]
    p.device(8 << 20)
    return before - p.need("cuMemGetInfo_v2", OUT, OUT)[0] >= 8 << 20
