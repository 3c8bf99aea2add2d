"""Advice about managed memory: what the driver is told, its effects, and when pages lose it."""

import pytest

import cudadrv as cu

BLOCK = 65536
NONE = cu.Advice(False, None, frozenset(), None)
software = pytest.mark.cuda_software


@pytest.fixture
def device(driver):
    device = cu.Device(0)
    if not device.attribute("concurrent_managed_access"):
        pytest.skip("this device takes no advice")
    return device


@pytest.fixture
def managed(device):
    return cu.UnifiedBuffer.zeros(4 * BLOCK, name="managed", pooled=False)


def test_each_advice_can_be_read_back(managed, device):
    assert managed.advice == NONE
    managed.advise(read_mostly=True)
    assert managed.advice == NONE._replace(read_mostly=True)
    managed.advise(preferred=device)
    assert managed.advice == NONE._replace(read_mostly=True, preferred=device)
    managed.advise(preferred="host", read_mostly=False)
    assert managed.advice == NONE._replace(preferred="host")
    managed.advise(accessed_by=[device, "host", device])
    assert managed.advice == NONE._replace(preferred="host", accessed_by={device, "host"})
    managed.advise(preferred=False, accessed_by={"host"})
    assert managed.advice == NONE._replace(accessed_by={"host"})
    managed.advise(accessed_by=())
    assert managed.advice == NONE


def test_none_changes_nothing(managed, device, unchanged):
    managed.advise(read_mostly=True, preferred=device, accessed_by={device})
    with unchanged("cuMemAdvise", "cuMemAdvise_v2"):
        managed.advise()
        managed.advise(read_mostly=None, preferred=None, accessed_by=None)
    assert managed.advice == cu.Advice(True, device, frozenset({device}), None)


def test_it_is_for_a_part(managed):
    first, second = managed.split_at(2 * BLOCK)
    first.advise(read_mostly=True)
    assert (first.advice.read_mostly, second.advice.read_mostly) == (True, False)
    assert not managed.advice.read_mostly  # the property is true only if all pages have the advice


def test_it_is_in_the_way_of_nobody(managed, stream, gate):
    gate.hold(stream)
    managed.fill_async(1, stream)
    managed.advise(read_mostly=True)
    assert managed.advice.read_mostly
    gate.open()
    stream.synchronize()


@software
def test_read_mostly_faults_once_for_each_reader(device, stream):
    from cudadrv import testing

    for read_mostly, expected in ((False, (3, 3)), (True, (0, 1))):
        buffer = cu.UnifiedBuffer.zeros(BLOCK, pooled=False)
        buffer.advise(read_mostly=read_mostly)
        target = cu.DeviceBuffer(BLOCK)
        for _ in range(3):
            target.copy_from_async(buffer, stream)
            stream.synchronize()
            assert buffer.to_numpy().sum() == 0
        assert tuple(testing.page_faults(buffer)) == expected


@software
def test_preferred_and_accessed_by_keep_pages_where_they_are(device, stream):
    from cudadrv import testing

    for advice in ({"preferred": "host"}, {"accessed_by": {device}}):
        buffer = cu.UnifiedBuffer.zeros(BLOCK, pooled=False)
        buffer.advise(**advice)
        buffer.fill_async(1, stream)
        stream.synchronize()
        assert set(testing.page_places(buffer)) == {"host"}


def test_the_next_buffer_of_the_pool_does_not_inherit_it(device):
    cu.reap()
    pool = device.context.pools.unified
    for end in (cu.UnifiedBuffer.close, lambda buffer: None):
        buffer = cu.UnifiedBuffer(4 * BLOCK)
        buffer[:BLOCK].advise(read_mostly=True, preferred="host")
        assert pool.stats.used_bytes == 0
        end(buffer)
        del buffer
        assert pool.stats.cached_bytes == 0
        assert cu.UnifiedBuffer(4 * BLOCK).advice == NONE
        cu.reap()


def test_advised_memory_outlives_its_work(stream, device, gate):
    """Advised memory does not go back to its pool.

    It is released when its work is complete.
    """
    gate.hold(stream)
    buffer = cu.UnifiedBuffer(BLOCK)
    buffer.fill_async(1, stream)
    buffer.advise(read_mostly=True)
    del buffer
    gate.open()
    stream.synchronize()


def test_an_empty_buffer_has_none(device, unchanged):
    empty = cu.UnifiedBuffer(0)
    with unchanged("cuMemAdvise", "cuMemRangeGetAttribute"):
        empty.advise(read_mostly=True, preferred=device, accessed_by={"host"})
        assert empty.advice == NONE


def test_bad_advice(managed, device, unchanged):
    with unchanged("cuMemAdvise"):
        for options in (
            {"read_mostly": 1},
            {"read_mostly": "yes"},
            {"preferred": True},
            {"preferred": 0},
            {"accessed_by": device},
            {"accessed_by": "host"},
            {"accessed_by": 3},
            {"accessed_by": [0]},
        ):
            with pytest.raises(TypeError):
                managed.advise(**options)
        for options in (
            {"preferred": "host:0"},
            {"preferred": "moon"},
            {"accessed_by": ["host", "host:0"]},
            {"accessed_by": ["moon"], "read_mostly": True},
        ):
            with pytest.raises(ValueError, match="host"):
                managed.advise(**options)
        with pytest.raises(TypeError):
            managed.advise(True)
    assert managed.advice == NONE
    managed.close()
    with pytest.raises(cu.BufferClosedError):
        managed.advise(read_mostly=True)
    with pytest.raises(cu.BufferClosedError):
        managed.advice  # noqa: B018


@software
def test_a_failing_call(managed):
    from cudadrv import testing

    testing.fail("cuMemAdvise", cu.CUresult.CUDA_ERROR_INVALID_VALUE, nth=2)
    with pytest.raises(cu.CudaError, match="cuMemAdvise"):
        managed.advise(read_mostly=True, preferred="host")
    assert managed.advice == NONE._replace(read_mostly=True)
    testing.fail("cuMemRangeGetAttribute", cu.CUresult.CUDA_ERROR_INVALID_VALUE)
    with pytest.raises(cu.CudaError, match="cuMemRangeGetAttribute"):
        managed.advice  # noqa: B018
    managed.close()
