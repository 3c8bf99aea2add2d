"""Waits for and writes of values in memory."""

import ctypes
import time

from driver import AND, EQ, FLUSH, GEQ, NOR, OUT, ValueOperation
from section import Section

section = Section("values")
question = section.question

section.calls(
    """
    wait null | cuStreamWaitValue32_v2 s, 0, 0, 0
    wait 16 | cuStreamWaitValue32_v2 s, 16, 0, 0
    wait misaligned | cuStreamWaitValue32_v2 s, h + 2, 0, 0
    wait misaligned null | cuStreamWaitValue32_v2 s, 2, 0, 0
    wait flags 4 | cuStreamWaitValue32_v2 s, h, 0, 4
    wait flags 8 | cuStreamWaitValue32_v2 s, h, 0, 8
    wait flags -1 | cuStreamWaitValue32_v2 s, h, 0, -1
    wait with flush | cuStreamWaitValue32_v2 s, h, 0, 1 << 30
    wait null flags 8 | cuStreamWaitValue32_v2 s, 0, 0, 8
    wait for anything | cuStreamWaitValue32_v2 s, h, 0, 0
    wait in null stream | cuStreamWaitValue32_v2 0, h, 0, 0
    wait in legacy | cuStreamWaitValue32_v2 1, h, 0, 0
    wait in per-thread | cuStreamWaitValue32_v2 2, h, 0, 0
    wait in device memory | cuStreamWaitValue32_v2 s, zero(a), 0, 0
    wait in managed memory | cuStreamWaitValue32_v2 s, zero(p.managed()), 0, 0
    wait in registered memory | cuStreamWaitValue32_v2 s, p.registered(), 0, 0
    wait in stream-ordered memory | cuStreamWaitValue32_v2 s, zero(p.ordered()), 0, 0
    wait in ordinary memory | cuStreamWaitValue32_v2 s, p.pageable(), 0, 0
    wait past the end | cuStreamWaitValue32_v2 s, h + 4096, 0, 0
    wait across the end | cuStreamWaitValue64_v2 s, h + 4088, 0, 0
    wait 64 | cuStreamWaitValue64_v2 s, h, 0, 0
    wait 64 misaligned by 4 | cuStreamWaitValue64_v2 s, h + 4, 0, 0
    wait 64 null | cuStreamWaitValue64_v2 s, 0, 0, 0
    wait 64 flags 8 | cuStreamWaitValue64_v2 s, h, 0, 8
    wait, first version | cuStreamWaitValue32 s, h, 0, 0
    wait 64, first version | cuStreamWaitValue64 s, h, 0, 0
    wait per-thread function | cuStreamWaitValue32_v2_ptsz 0, h, 0, 0
    write null | cuStreamWriteValue32_v2 s, 0, 0, 0
    write 16 | cuStreamWriteValue32_v2 s, 16, 0, 0
    write misaligned | cuStreamWriteValue32_v2 s, h + 2, 0, 0
    write flags 1 | cuStreamWriteValue32_v2 s, h, 0, 1
    write flags 2 | cuStreamWriteValue32_v2 s, h, 0, 2
    write flags -1 | cuStreamWriteValue32_v2 s, h, 0, -1
    write in null stream | cuStreamWriteValue32_v2 0, h, 0, 0
    write in device memory | cuStreamWriteValue32_v2 s, a, 0, 0
    write in managed memory | cuStreamWriteValue32_v2 s, p.managed(), 0, 0
    write in registered memory | cuStreamWriteValue32_v2 s, p.registered(), 0, 0
    write in stream-ordered memory | cuStreamWriteValue32_v2 s, p.ordered(), 0, 0
    write in ordinary memory | cuStreamWriteValue32_v2 s, p.pageable(), 0, 0
    write past the end | cuStreamWriteValue32_v2 s, h + 4096, 0, 0
    write 64 | cuStreamWriteValue64_v2 s, h, 0, 0
    write 64 misaligned by 4 | cuStreamWriteValue64_v2 s, h + 4, 0, 0
    write, first version | cuStreamWriteValue32 s, h, 0, 0
    write 64, first version | cuStreamWriteValue64 s, h, 0, 0
    batch null | cuStreamBatchMemOp_v2 s, 1, 0, 0
    batch of none | cuStreamBatchMemOp_v2 s, 0, ops(), 0
    batch of none, null | cuStreamBatchMemOp_v2 s, 0, 0, 0
    batch of 257 | cuStreamBatchMemOp_v2 s, 257, ops(*[(2, h, 1, 0)] * 257), 0
    batch of 256 | cuStreamBatchMemOp_v2 s, 256, ops(*[(2, h, 1, 0)] * 256), 0
    batch flags 1 | cuStreamBatchMemOp_v2 s, 1, ops((2, h, 1, 0)), 1
    batch unknown | cuStreamBatchMemOp_v2 s, 1, ops((9, h, 1, 0)), 0
    batch operation 0 | cuStreamBatchMemOp_v2 s, 1, ops((0, h, 1, 0)), 0
    batch misaligned | cuStreamBatchMemOp_v2 s, 1, ops((2, h + 1, 1, 0)), 0
    batch null address | cuStreamBatchMemOp_v2 s, 1, ops((2, 0, 1, 0)), 0
    batch flush | cuStreamBatchMemOp_v2 s, 1, ops((3, 0, 0, 0)), 0
    batch barrier | cuStreamBatchMemOp_v2 s, 1, ops((6, 0, 0, 0)), 0
    batch, first version | cuStreamBatchMemOp s, 1, ops((2, h, 1, 0)), 0
    batch in null stream | cuStreamBatchMemOp_v2 0, 1, ops((2, h, 1, 0)), 0
""",
    lambda p: {
        "s": p.stream(),
        "h": p.host(),
        "a": p.device(),
        "ops": lambda *o: _ops(p, *o),
        "zero": lambda address: _zero(p, address),
    },
)


def _zero(p, address):
    p.must("cuMemsetD8_v2", address, 0, 16)
    p.must("cuCtxSynchronize")
    return address


def _ops(p, *operations):
    return p.keep((ValueOperation * max(1, len(operations)))(*operations))


def _satisfied(p, name, kind, held, value, flags):
    """Whether the held value satisfies a wait. If not, another value then ends the wait."""
    address, stream = p.host(), p.stream()
    word = kind.from_address(address)
    word.value = held
    status = p(name, stream, address, value, flags)
    if status != "SUCCESS":
        return status
    time.sleep(p.patience / 3)
    for _ in range(20):
        p("cuStreamQuery", stream)
    found = "waits" if p("cuStreamQuery", stream) == "NOT_READY" else "passes"
    ends = {GEQ: value, EQ: value, AND: -1, NOR: 0}
    word.value = ends[flags & 3]
    return found, p("cuStreamSynchronize", stream)


_HIGH = 0x80000000
for held, value, flags in (
    (0, 0, GEQ), (1, 0, GEQ), (0, 1, GEQ), (5, 7, GEQ), (7, 5, GEQ), (0xFFFFFFFF, 0, GEQ),
    (0, 0xFFFFFFFF, GEQ), (_HIGH, 0, GEQ), (_HIGH - 1, 0, GEQ), (0, _HIGH, GEQ), (0, 0, EQ),
    (1, 0, EQ), (7, 7, EQ), (8, 7, EQ), (1, 1, AND), (2, 1, AND), (3, 2, AND),
    (0xFFFFFFFF, 4, AND), (0, 0, NOR), (0xFFFFFFFF, 0, NOR), (0xFFFF0000, 0xFFFF, NOR),
    (0xFFFF0000, 0xFFFE, NOR), (1, 0, GEQ | FLUSH),
):  # fmt: skip
    for name, kind in (
        ("cuStreamWaitValue32_v2", ctypes.c_uint32),
        ("cuStreamWaitValue64_v2", ctypes.c_uint64),
    ):
        section.ask(
            f"{name[8:19]}: {held:#x} held, {value:#x} wanted, flags {flags:#x}",
            lambda p, a=(name, kind, held, value, flags): _satisfied(p, *a),
        )
for held, value, flags in (
    (1 << 63, 0, GEQ), ((1 << 63) - 1, 0, GEQ), ((1 << 64) - 1, 0, GEQ), (1 << 32, 1, GEQ),
    (1 << 32, 0, EQ), (1 << 32, 1 << 32, AND),
):  # fmt: skip
    section.ask(
        f"WaitValue64: {held:#x} held, {value:#x} wanted, flags {flags:#x}, wide",
        lambda p, a=("cuStreamWaitValue64_v2", ctypes.c_uint64, held, value, flags): _satisfied(
            p, *a
        ),
    )


@question("writes arrive")
def _(p):
    address, stream = p.host(), p.stream()
    p("cuStreamWriteValue32_v2", stream, address, 0x11223344, 0)
    p("cuStreamWriteValue64_v2", stream, address + 8, 0x1122334455667788, 0)
    p("cuStreamSynchronize", stream)
    return p.bytes_at(address, 16)


@question("a write of one stream lets another go")
def _(p):
    word, waiter, writer = p.host(), p.stream(), p.stream()
    p("cuStreamWaitValue32_v2", waiter, word, 1, GEQ)
    before = p("cuStreamQuery", waiter)
    p("cuStreamWriteValue32_v2", writer, word, 1, 0)
    return before, p("cuStreamSynchronize", waiter)


@question("a write in device memory lets another stream go")
def _(p):
    word, waiter, writer = p.device(), p.stream(), p.stream()
    p.write(word, bytes(8))
    p("cuStreamWaitValue32_v2", waiter, word, 1, GEQ)
    before = p("cuStreamQuery", waiter)
    p("cuStreamWriteValue32_v2", writer, word, 1, 0)
    return before, p("cuStreamSynchronize", waiter)


@question("a copy lets a stream go that waits in device memory")
def _(p):
    word, waiter, writer = p.device(), p.stream(), p.stream()
    p.write(word, bytes(8))
    p("cuStreamWaitValue32_v2", waiter, word, 1, GEQ)
    one = p.host()
    p.fill_host(one, b"\1")
    status = p("cuMemcpyHtoDAsync_v2", word, one, 4, writer)
    return status, p("cuStreamSynchronize", waiter)


@question("a wait passes and the value goes back")
def _(p):
    stream, word = p.stream(), p.host()
    p.fill_host(word, b"\1")
    p("cuStreamWaitValue32_v2", stream, word, 1, EQ)
    p("cuStreamSynchronize", stream)
    p.fill_host(word, b"\0")
    return p("cuStreamQuery", stream)


@question("batch: waits and writes in order")
def _(p):
    stream, word = p.stream(), p.host()
    ops = _ops(
        p, (2, word, 5, 0), (1, word, 5, EQ), (5, word + 8, 1 << 40, 0), (4, word + 8, 1, GEQ)
    )
    return (
        p("cuStreamBatchMemOp_v2", stream, 4, ops, 0),
        p("cuStreamSynchronize", stream),
        p.bytes_at(word, 16),
    )


@question("batch with one bad operation does nothing")
def _(p):
    stream, word = p.stream(), p.host()
    ops = _ops(p, (2, word, 5, 0), (9, word, 5, EQ))
    status = p("cuStreamBatchMemOp_v2", stream, 2, ops, 0)
    return status, p("cuStreamSynchronize", stream), p.bytes_at(word, 4)


@question("waits with no context current")
def _(p):
    stream, word = p.stream(), p.host()
    p("cuCtxSetCurrent", 0)
    names = ("cuStreamWaitValue32_v2", "cuStreamWriteValue32_v2")
    return [p(name, s, word, 0, 0) for name in names for s in (stream, 0)]


@question("host address of memory that is mapped at another")
def _(p):
    address = p.registered(flags=2)
    pointer = p.need("cuMemHostGetDevicePointer_v2", OUT, address, 0)
    return p("cuStreamWaitValue32_v2", p.stream(), pointer, 0, 0), pointer == address
