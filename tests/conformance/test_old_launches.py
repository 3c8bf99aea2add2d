"""cuLaunch and its family: a function keeps its block shape, shared memory size and parameters."""

import ctypes

import pytest

from .client import ILLEGAL_ADDRESS, INVALID_VALUE, SUCCESS
from .kernels import TEXT

LAUNCH_OUT_OF_RESOURCES = 701
WORDS = 70


@pytest.fixture
def fill(client):
    """A kernel with the parameters address, number of words, and value."""
    return client.function(client.module(TEXT), "fill")


def prepare(client, kernel, target, words=WORDS, value=7, threads=32):
    client.ok("cuFuncSetBlockShape", kernel, threads, 1, 1)
    client.ok("cuFuncSetSharedSize", kernel, 0)
    client.ok("cuParamSetv", kernel, 0, ctypes.byref(ctypes.c_uint64(target)), 8)
    client.ok("cuParamSeti", kernel, 8, words)
    client.ok("cuParamSeti", kernel, 12, value)
    client.ok("cuParamSetSize", kernel, 16)


def words_at(client, target, count=WORDS):
    return list((ctypes.c_uint32 * count).from_buffer_copy(client.read(target, 4 * count)))


def cleared(client):
    target = client.device(4 * WORDS)
    client.write(target, bytes(4 * WORDS))
    return target


@pytest.mark.parametrize(
    ("name", "blocks"), [("cuLaunch", 1), ("cuLaunchGrid", 2), ("cuLaunchGridAsync", 3)]
)
def test_launches(client, fill, name, blocks):
    target, stream = cleared(client), client.stream()
    prepare(client, fill, target)
    grid = () if blocks == 1 else (blocks, 1)
    client.ok(name, fill, *grid, *([stream] if "Async" in name else []))
    filled = min(WORDS, 32 * blocks)
    assert words_at(client, target) == [7] * filled + [0] * (WORDS - filled)


def test_the_grid_has_two_dimensions(client, fill):
    target = cleared(client)
    prepare(client, fill, target, threads=8)
    client.ok("cuLaunchGrid", fill, 3, 2)
    assert words_at(client, target) == [7] * 24 + [0] * (WORDS - 24)


def test_what_was_set_stays_and_can_be_changed(client, fill):
    target = cleared(client)
    prepare(client, fill, target)
    client.ok("cuLaunch", fill)
    client.ok("cuParamSeti", fill, 12, 9)
    assert words_at(client, target)[:32] == [7] * 32
    client.ok("cuLaunch", fill)
    assert words_at(client, target)[:32] == [9] * 32


def test_a_float(client, fill):
    target = cleared(client)
    prepare(client, fill, target)
    client.ok("cuParamSetf", fill, 12, 1.5)
    client.ok("cuLaunch", fill)
    assert client.read(target, 4) == bytes(ctypes.c_float(1.5))


def test_more_parameters_than_the_kernel_has(client, fill):
    prepare(client, fill, cleared(client))
    client.ok("cuParamSetSize", fill, 20)
    assert client.call("cuLaunch", fill) == LAUNCH_OUT_OF_RESOURCES
    client.ok("cuParamSetSize", fill, 16)
    client.ok("cuLaunch", fill)
    client.ok("cuCtxSynchronize")


@pytest.mark.cuda_software  # a real driver crashes
@pytest.mark.parametrize("offset", [-1, -(1 << 31)])
def test_an_offset_before_the_beginning(client, fill, offset):
    assert client.call("cuParamSeti", fill, offset, 1) == INVALID_VALUE


# Tests the documented behaviour; an H200 keeps the parameters of cuLaunchKernel instead.
@pytest.mark.cuda_software
def test_cu_launch_kernel_forgets_what_was_set(lost, software):
    kernel = lost.function(lost.kernels, "fill")
    target = cleared(lost)
    prepare(lost, kernel, target)
    lost.ok("cuLaunch", kernel)
    assert lost.launch(kernel, None, target, ctypes.c_uint32(1), ctypes.c_uint32(8)) == SUCCESS
    assert words_at(lost, target)[:2] == [8, 7]
    lost.ok("cuLaunch", kernel)
    assert lost.call("cuCtxSynchronize") == ILLEGAL_ADDRESS
    assert "0xc0c0c0c0c0c0c0c0" in software.fault_text()


def test_it_is_work_of_its_stream(client, fill):
    stream, target = client.stream(), cleared(client)
    prepare(client, fill, target)
    gate = client.gate().hold(stream)
    client.ok("cuLaunchGridAsync", fill, 3, 1, stream)
    client.ok("cuParamSeti", fill, 12, 9)
    gate.open()
    assert words_at(client, target) == [7] * WORDS
