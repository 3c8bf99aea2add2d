"""Copies with attributes, alone and in batches."""

import ctypes

import pytest

from .captures import ACTIVE, broken
from .client import CAPTURE_UNSUPPORTED, INVALID_VALUE, LEGACY, SUCCESS, blocks
from .structures import (
    ANY_ORDER,
    ARRAY_OPERAND,
    DURING_CALL,
    POINTER_OPERAND,
    STREAM_ORDER,
    BoxCopy,
    CopyAttributes,
    PointerOperand,
)

# These tests check what cuda.h says. They have not run on a GPU yet.
unasked = pytest.mark.cuda_software

SIZE = 4096
ORDERS = {"stream": STREAM_ORDER, "call": DURING_CALL, "any": ANY_ORDER}


def batch(copies, *attributes, first=(0,)):
    """The arguments for a batch of copies (target, source, size).

    `first` has, for each item of `attributes`, the index of the first copy to which it applies.
    """
    count = len(copies)
    targets, sources, sizes = zip(*copies, strict=True)
    return (
        (ctypes.c_uint64 * count)(*targets),
        (ctypes.c_uint64 * count)(*sources),
        (ctypes.c_size_t * count)(*sizes),
        count,
        (CopyAttributes * len(attributes))(*attributes),
        (ctypes.c_size_t * len(first))(*first),
        len(attributes),
    )


def attributes(order=STREAM_ORDER, flags=0):
    return CopyAttributes(order=order, flags=flags)


def copy_batch(client, stream, copies, *given, **where):
    return client.call(
        "cuMemcpyBatchAsync_v2", *batch(copies, *(given or [attributes()]), **where), stream
    )


def box(source, target, width, height=1, depth=1, *, row=0, layer=0, order=STREAM_ORDER, flags=0):
    """A copy of a box. The source determines row and layer lengths; the target has no gaps."""
    return BoxCopy(
        PointerOperand(POINTER_OPERAND, source, row, layer),
        PointerOperand(POINTER_OPERAND, target),
        width,
        height,
        depth,
        order,
        flags,
    )


def content(size, start=0):
    return bytes((start + i) % 251 for i in range(size))


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_every_copy_arrives(client, order):
    stream = client.stream()
    device, locked, managed = client.device(SIZE), client.host(SIZE), client.managed(SIZE)
    there, back = client.device(3 * SIZE), ctypes.create_string_buffer(SIZE)
    pageable = ctypes.create_string_buffer(content(SIZE, 3), SIZE)
    client.write(device, content(SIZE, 1))
    ctypes.memmove(locked, content(SIZE, 2), SIZE)
    ctypes.memmove(managed, content(SIZE, 4), SIZE)
    copies = [
        (there, ctypes.addressof(pageable), SIZE),
        (there + SIZE, locked, SIZE),
        (there + 2 * SIZE, managed, SIZE),
        (ctypes.addressof(back), device, SIZE),
    ]
    assert copy_batch(client, stream, copies, attributes(order)) == SUCCESS
    client.ok("cuStreamSynchronize", stream)
    assert back.raw == content(SIZE, 1)
    assert client.read(there, 3 * SIZE) == b"".join(content(SIZE, i) for i in (3, 2, 4))


@pytest.mark.parametrize("order", [STREAM_ORDER, ANY_ORDER])
def test_a_batch_does_not_wait_for_pageable_memory(client, order):
    """A batch with a copy into pageable memory returns early. A single copy would block."""
    stream, gate, device = client.stream(), client.gate(), client.device(SIZE)
    back = ctypes.create_string_buffer(SIZE)
    client.write(device, content(SIZE))
    gate.hold(stream)
    copies = batch([(ctypes.addressof(back), device, SIZE)], attributes(order))
    assert not blocks(client, gate, "cuMemcpyBatchAsync_v2", *copies, stream)
    client.ok("cuStreamSynchronize", stream)
    assert back.raw == content(SIZE)


@pytest.mark.cuda_software  # a real driver may wait for earlier work during the call
def test_attributes_apply_from_an_index_on(client):
    """Attributes apply to copies from their first index on.

    After the call, the source of a copy with DURING_CALL may change. The source of a copy with
    STREAM_ORDER may not.
    """
    stream, gate = client.stream(), client.gate()
    sources, there = [client.host(SIZE, fill=1) for _ in range(3)], client.device(3 * SIZE)
    copies = [(there + i * SIZE, source, SIZE) for i, source in enumerate(sources)]
    gate.hold(stream)
    given = [attributes(STREAM_ORDER), attributes(DURING_CALL)]
    assert copy_batch(client, stream, copies, *given, first=(0, 2)) == SUCCESS
    for source in sources:
        ctypes.memset(source, 2, SIZE)
    gate.open()
    assert client.read(there, 3 * SIZE) == b"\x02" * 2 * SIZE + b"\x01" * SIZE


def test_any_order_shows_what_depends_on_one(software):
    """A copy with ANY_ORDER may read its source early or late, and the schedules show both.

    Under `lazy` the copy reads early, under `eager` late, and under `random` early or late.
    """
    from .client import Client

    seen = {}
    for schedule in ("eager", "lazy", "random"):
        software.configure(f"schedule={schedule},seed=1,fault=none")
        with Client(software) as client:
            stream, source, there = client.stream(), client.host(1, fill=1), client.device(1)
            seen[schedule] = set()
            for _ in range(20):
                gate = client.gate()
                gate.hold(stream)
                ctypes.memset(source, 1, 1)
                client.ok(
                    "cuMemcpyWithAttributesAsync",
                    there,
                    source,
                    1,
                    ctypes.byref(attributes(ANY_ORDER)),
                    stream,
                )
                ctypes.memset(source, 2, 1)
                gate.open()
                seen[schedule] |= set(client.read(there, 1))
    software.forget_races()
    assert seen == {"eager": {2}, "lazy": {1}, "random": {1, 2}}


@pytest.mark.cuda_software  # a real driver may run the copies in order
def test_nothing_orders_the_copies_of_a_batch(client):
    """The copies of a batch are not ordered.

    If a copy needs the result of an earlier copy of the batch, the program is wrong. The
    software driver makes this error visible.
    """
    stream = client.stream()
    first, second, third = (client.device(1) for _ in range(3))
    for memory, value in ((first, b"1"), (second, b"2")):
        client.write(memory, value)
    seen = set()
    for _ in range(20):
        client.write(second, b"2")
        assert copy_batch(client, stream, [(second, first, 1), (third, second, 1)]) == SUCCESS
        seen.add(client.read(third, 1))
    assert b"2" in seen


def test_races_with_other_streams(program):
    stream, other = program.stream(), program.stream()
    memory, source = program.device(SIZE), program.device(SIZE)
    assert copy_batch(program, stream, [(memory, source, SIZE)]) == SUCCESS
    program.ok("cuMemsetD8Async", memory + 8, 1, 4, other)
    program.ok("cuCtxSynchronize")
    [race] = program.lib.races()
    assert "cuMemcpyBatchAsync_v2 on stream" in race
    assert "cuMemsetD8Async on stream" in race


def refused_batches(client):
    memory = client.device(SIZE)
    good, none = (memory, memory + 64, 64), attributes()
    return {
        "no copies": (*batch([good], none)[:3], 0, *batch([good], none)[4:]),
        "no attributes": (*batch([good], none)[:6], 0),
        "more attributes than copies": batch([good], none, none, first=(0, 1)),
        "indices do not begin with 0": batch([good, good], none, first=(1,)),
        "indices do not increase": batch([good, good], none, none, first=(0, 0)),
        "order 0": batch([good], attributes(0)),
        "order 4": batch([good], attributes(4)),
        "unknown flag": batch([good], attributes(flags=2)),
        "memory that does not exist": batch([good, (memory, 64, 64)], none),
        "beyond the end": batch([good, (memory, memory + SIZE - 1, 2)], none),
    }


@pytest.mark.cuda_software  # a real driver may read any address of the host
@pytest.mark.parametrize("version", ["", "_v2"])
def test_a_refused_batch_copies_nothing(client, version):
    stream = client.stream()
    for why, arguments in refused_batches(client).items():
        failed = ctypes.c_size_t(77)
        told = [] if version else [ctypes.byref(failed)]
        status = client.call(f"cuMemcpyBatchAsync{version}", *arguments, *told, stream)
        assert status == INVALID_VALUE, why
        at = 1 if why in ("memory that does not exist", "beyond the end") else 2**64 - 1
        assert failed.value == (77 if version else at), why
    assert client.lib.pending() == 0


@unasked
def test_not_in_the_legacy_stream(client):
    memory = client.device(128)
    for stream in (None, LEGACY):
        assert copy_batch(client, stream, [(memory, memory + 64, 64)]) == INVALID_VALUE
    client.ok(
        "cuMemcpyWithAttributesAsync", memory, memory + 64, 64, ctypes.byref(attributes()), None
    )


@unasked
def test_capture(capture):
    """A batch invalidates a capture. A single copy with attributes becomes a node of the graph."""
    client, stream, memory = capture.client, capture.stream, capture.device
    arguments = memory, memory + 64, 64, ctypes.byref(attributes()), stream
    client.ok("cuMemcpyWithAttributesAsync", *arguments)
    assert capture.status() == ACTIVE
    assert client.lib.pending() == 0
    assert copy_batch(client, stream, [(memory, memory + 64, 64)]) == CAPTURE_UNSUPPORTED
    assert broken(capture)


@unasked
def test_boxes(client):
    """The sources have gaps between rows and layers, and the targets have none."""
    stream, row, layer = client.stream(), 32, 5
    source, target = client.device(row * layer * 3), client.device(2 * 16 * 4 * 3)
    numbers = content(row * layer * 3)
    client.write(source, numbers)
    boxes = (BoxCopy * 2)(
        box(source, target, 16, 4, 3, row=row, layer=layer),
        box(source + 16, target + 16 * 4 * 3, 16, 4, 3, row=row, layer=layer, order=DURING_CALL),
    )
    client.ok("cuMemcpy3DBatchAsync_v2", 2, boxes, 0, stream)

    def expected(begin):
        places = (begin + row * (layer * z + y) for z in range(3) for y in range(4))
        return b"".join(numbers[place : place + 16] for place in places)

    assert client.read(target, 2 * 16 * 4 * 3) == expected(0) + expected(16)
    client.ok("cuMemcpy3DWithAttributesAsync", ctypes.byref(boxes[1]), 0, stream)


def test_a_box_has_a_width(client):
    stream, memory = client.stream(), client.device(SIZE)
    boxes, failed = (BoxCopy * 2)(*(box(memory, memory + 64, w) for w in (8, 0))), ctypes.c_size_t()
    batch = 2, boxes, ctypes.byref(failed), 0, stream
    assert client.call("cuMemcpy3DBatchAsync", *batch) == INVALID_VALUE
    assert failed.value == 1


@pytest.mark.cuda_software  # a real driver may read any address of the host
def test_refused_boxes(client):
    client.require("cuMemcpy3DWithAttributesAsync")
    stream, memory = client.stream(), client.device(SIZE)
    wrong = {
        "no width": box(memory, memory + 64, 0),
        "no height": box(memory, memory + 64, 8, 0),
        "no depth": box(memory, memory + 64, 8, 1, 0),
        "rows overlap": box(memory, memory + 64, 8, row=7),
        "layers overlap": box(memory, memory + 64, 8, 4, layer=3),
        "order 0": box(memory, memory + 64, 8, order=0),
        "unknown flag": box(memory, memory + 64, 8, flags=4),
        "memory that does not exist": box(64, memory, 8),
    }
    for why, one in wrong.items():
        boxes, failed = (BoxCopy * 2)(box(memory, memory + 64, 8), one), ctypes.c_size_t()
        told = ctypes.byref(failed)
        assert client.call("cuMemcpy3DBatchAsync", 2, boxes, told, 0, stream) == INVALID_VALUE, why
        assert failed.value == 1, why
        single = ctypes.byref(one)
        assert client.call("cuMemcpy3DWithAttributesAsync", single, 0, stream) == INVALID_VALUE, why
    array = box(0, memory + 64, 8)
    array.source.type = ARRAY_OPERAND
    batch = (1, ctypes.byref(array), 0, stream)
    assert client.call("cuMemcpy3DBatchAsync_v2", *batch) == INVALID_VALUE
    one = box(memory, memory + 64, 8)
    for arguments in ((0, ctypes.byref(one), 0), (1, None, 0), (1, ctypes.byref(one), 1)):
        assert client.call("cuMemcpy3DBatchAsync_v2", *arguments, stream) == INVALID_VALUE
