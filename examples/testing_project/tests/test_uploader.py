"""Every test runs under each schedule, and fails if it leaks or races: see pyproject.toml."""

import time

import numpy as np
import pytest
import reversing
from uploader import CarelessUploader, Uploader, arrived, arrived_careless

import cudadrv as cu
from cudadrv import testing

CHUNK = 256


@pytest.fixture
def array():
    return np.arange(4 * CHUNK + 10, dtype="f4")


def items(buffer):
    found = np.empty(buffer.count, buffer.dtype)
    buffer.copy_to(found)
    return found


@pytest.fixture
def target(array):
    return cu.DeviceBuffer(array.size, "f4", name="target")


@pytest.fixture
def uploader():
    uploader = Uploader(CHUNK)
    yield uploader
    uploader.close()


def test_all_items_arrive(uploader, target, array):
    uploader.upload(target, array)
    uploader.stream.synchronize()
    assert np.array_equal(items(target), array)


def test_the_array_is_free_at_once(uploader, target, array):
    sent = array.copy()
    uploader.upload(target, sent)
    sent[:] = 0
    uploader.stream.synchronize()
    assert np.array_equal(items(target), array)


def test_chunks_are_counted(uploader, target, array):
    assert arrived(uploader.upload(target, array)) == 5


# ---- bugs that a GPU seldom shows ----


@pytest.mark.cuda_software
@pytest.mark.xfail(strict=True, reason="refills a half that the device still reads")
def test_race(target, array):
    """The race is found under every schedule, whether or not the items happen to be right."""
    uploader = CarelessUploader(CHUNK)
    uploader.upload(target, array)
    uploader.close()


@pytest.mark.cuda_software
@pytest.mark.xfail(strict=True, reason="counts what is done by now")
@pytest.mark.parametrize("cuda_schedule", ["lazy"], indirect=True)
def test_too_early(uploader, target, array):
    """There is no race, but the answer comes too early: under `lazy`, every time."""
    assert arrived_careless(uploader.upload(target, array)) == 5


# ---- kernels ----


@pytest.mark.cuda_checks("race")
def test_items_are_reversed():
    found, expected = reversed_by(reversing.correct())
    assert np.array_equal(found, expected)


@pytest.mark.cuda_software
@pytest.mark.xfail(strict=True, reason="a barrier is missing")
@pytest.mark.cuda_checks("race")
def test_race_in_a_kernel():
    """The race is found whether or not the items happen to be right."""
    reversed_by(reversing.careless())


@pytest.mark.cuda_software
@pytest.mark.xfail(strict=True, reason="a barrier is in a branch")
@pytest.mark.cuda_checks("sync")
def test_divergent_kernel():
    """Half of each warp goes on without the barrier."""
    reversed_by(reversing.divergent())


@pytest.mark.cuda_software
@pytest.mark.xfail(strict=True, reason="nobody writes the last item")
@pytest.mark.cuda_checks("init")
def test_uninitialized_value():
    """The first item of each block is what shared memory contained before."""
    reversed_by(reversing.incomplete())


def reversed_by(module):
    given = np.arange(256, dtype="u4")
    buffer = cu.DeviceBuffer.from_array(given, name="items")
    with module, cu.Stream() as stream:
        reversing.reverse(module, buffer, stream).wait()
    return items(buffer).reshape(4, 64), given.reshape(4, 64)[:, ::-1]


# ---- what is hard to make happen ----


@pytest.mark.cuda_software
def test_no_memory_for_the_second_half():
    """The first half and the stream are given back; otherwise the test would find a leak."""
    testing.fail("cuMemHostAlloc", cu.CUresult.CUDA_ERROR_OPERATING_SYSTEM, nth=2)
    with pytest.raises(cu.CudaError, match="OPERATING_SYSTEM"):
        Uploader(CHUNK)


# ---- what only a GPU can tell ----


@pytest.mark.cuda_gpu
def test_it_is_fast():
    array = np.zeros(1 << 26, dtype="f4")
    uploader, target = Uploader(1 << 22), cu.DeviceBuffer(array.size, "f4")
    started = time.perf_counter()
    arrived(uploader.upload(target, array))
    assert array.nbytes / (time.perf_counter() - started) > 1e9
    uploader.close()
    target.close()
