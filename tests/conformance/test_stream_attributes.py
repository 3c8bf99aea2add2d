"""Attributes of streams, and batches of memory operations (wait and write values)."""

import ctypes

import pytest

from .client import GEQ, INVALID_VALUE, NOT_READY, SUCCESS

POLICY_WINDOW, SYNCHRONIZATION, PRIORITY, DOMAIN_MAP, DOMAIN = 1, 3, 8, 9, 10
NOT_SUPPORTED = 801
WAIT_32, WRITE_32, WAIT_64, WRITE_64, BARRIER = 1, 2, 4, 5, 6


class Value(ctypes.Union):
    class Window(ctypes.Structure):
        _fields_ = [
            ("base", ctypes.c_void_p),
            ("bytes", ctypes.c_size_t),
            ("ratio", ctypes.c_float),
            ("hit", ctypes.c_int),
            ("miss", ctypes.c_int),
        ]

    _fields_ = [
        ("pad", ctypes.c_char * 64),
        ("window", Window),
        ("number", ctypes.c_int),
        ("map", ctypes.c_ubyte * 2),
    ]


def get(client, stream, attribute):
    value = Value()
    client.ok("cuStreamGetAttribute", stream, attribute, ctypes.byref(value))
    return value


def put(client, stream, attribute, **fields):
    value = Value()
    for name, field in fields.items():
        setattr(value, name, field)
    return client.call("cuStreamSetAttribute", stream, attribute, ctypes.byref(value))


def test_defaults(client):
    stream = client.stream()
    assert get(client, stream, SYNCHRONIZATION).number == -1
    assert get(client, stream, PRIORITY).number == 0
    assert get(client, stream, DOMAIN).number == 0
    assert list(get(client, stream, DOMAIN_MAP).map) == [0, 1]
    assert get(client, stream, POLICY_WINDOW).window.bytes == 0


@pytest.mark.parametrize("attribute, number", [(SYNCHRONIZATION, 4), (PRIORITY, -1), (DOMAIN, 1)])
def test_numbers(client, attribute, number):
    stream, other = client.stream(), client.stream()
    assert put(client, stream, attribute, number=number) == SUCCESS
    assert get(client, stream, attribute).number == number
    client.ok("cuStreamCopyAttributes", other, stream)
    assert get(client, other, attribute).number == number


def test_priority_is_the_streams(client):
    stream, priority = client.stream(), ctypes.c_int()
    assert put(client, stream, PRIORITY, number=-2) == SUCCESS
    client.ok("cuStreamGetPriority", stream, ctypes.byref(priority))
    assert priority.value == -2


def test_window(client):
    stream, memory = client.stream(), client.device(65536)
    window = Value.Window(memory, 65536, 0.5, 2, 1)
    assert put(client, stream, POLICY_WINDOW, window=window) == SUCCESS
    assert get(client, stream, POLICY_WINDOW).window.hit == 2
    assert put(client, stream, POLICY_WINDOW, window=Value.Window(0, 0, 0, 0, 0)) == SUCCESS


@pytest.mark.parametrize("attribute", [0, 2, 4, 99])
def test_not_of_streams(client, attribute):
    stream, value = client.stream(), Value()
    assert client.call("cuStreamGetAttribute", stream, attribute, ctypes.byref(value)) == (
        INVALID_VALUE
    )
    assert put(client, stream, attribute) == INVALID_VALUE


@pytest.mark.cuda_software  # a real driver crashes
def test_nothing_given(client):
    stream = client.stream()
    assert client.call("cuStreamGetAttribute", stream, PRIORITY, None) == INVALID_VALUE
    assert client.call("cuStreamBatchMemOp_v2", stream, 1, None, 0) == INVALID_VALUE


def test_bad_values(client):
    stream = client.stream()
    assert put(client, stream, SYNCHRONIZATION, number=99) == INVALID_VALUE
    assert put(client, stream, POLICY_WINDOW, window=Value.Window(0, 64, 2.0, 0, 0)) == (
        INVALID_VALUE
    )


def test_context_of_a_stream(client):
    context, green = ctypes.c_void_p(), ctypes.c_void_p(1)
    client.ok("cuStreamGetCtx_v2", client.stream(), ctypes.byref(context), ctypes.byref(green))
    assert (context.value, green.value) == (client.lib.primary, None)


class Item(ctypes.Structure):
    _fields_ = [
        ("operation", ctypes.c_int),
        ("address", ctypes.c_uint64),
        ("value", ctypes.c_uint64),
        ("flags", ctypes.c_uint),
        ("alias", ctypes.c_uint64),
        ("pad", ctypes.c_uint64),
    ]


def batch(client, stream, *items, name="cuStreamBatchMemOp_v2", flags=0):
    array = (Item * len(items))(*[Item(*item) for item in items])
    return client.call(name, stream, len(items), array, flags)


def test_batch(client):
    stream, words = client.stream(), client.host(64)
    first = ctypes.c_uint32.from_address(words)
    status = batch(
        client,
        stream,
        (WAIT_32, words, 1, GEQ),
        (WRITE_32, words + 4, 7, 0),
        (WRITE_64, words + 8, 1 << 40, 0),
        (WAIT_64, words + 8, 1 << 40, GEQ),
    )
    assert status == SUCCESS
    assert client.call("cuStreamQuery", stream) == NOT_READY
    first.value = 1
    assert client.finish(stream) == SUCCESS
    assert ctypes.c_uint32.from_address(words + 4).value == 7
    assert ctypes.c_uint64.from_address(words + 8).value == 1 << 40


def test_batch_is_refused_as_a_whole(client):
    stream, words = client.stream(), client.host(64)
    status = batch(client, stream, (WRITE_32, words, 7, 0), (WRITE_32, 16, 7, 0))
    assert status == INVALID_VALUE
    client.ok("cuStreamSynchronize", stream)
    assert ctypes.c_uint32.from_address(words).value == 0


@pytest.mark.parametrize("operation", [0, 99])
def test_unknown_operation(client, operation):
    words = client.host(64)
    assert batch(client, client.stream(), (operation, words, 0, 0)) == INVALID_VALUE


def test_batch_arguments(client):
    stream, words = client.stream(), client.host(64)
    assert batch(client, stream, (WRITE_32, words, 7, 0), flags=1) == INVALID_VALUE
    assert batch(client, stream, *[(WRITE_32, words, 7, 0)] * 256) == INVALID_VALUE


def test_barrier_is_of_the_second_version(client):
    stream = client.stream()
    assert batch(client, stream, (BARRIER, 0)) == SUCCESS
    assert batch(client, stream, (BARRIER, 0), name="cuStreamBatchMemOp") == NOT_SUPPORTED
