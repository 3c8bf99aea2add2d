"""Opening and closing many streams leaves nothing behind."""

import gc

import pytest

import cudadrv as cu

ROUNDS = 1000


@pytest.fixture
def buffer(driver):
    buffer = cu.LockedBuffer.zeros(ROUNDS)
    yield buffer
    cu.Device(0).synchronize()
    buffer.close()


def test_idle_streams(driver):
    for _ in range(ROUNDS):
        cu.Stream().close()
    for _ in range(ROUNDS):
        cu.Stream()


@pytest.mark.cuda_software
@pytest.mark.parametrize("how", ["closed", "dropped"])
def test_streams_with_pending_work(driver, buffer, how):
    """The numbers of driver objects and engine records stay bounded though nothing ever waits."""
    from cudadrv import testing

    before = testing.live_objects()
    most = 0
    for index in range(ROUNDS):
        stream = cu.Stream()
        buffer[index : index + 1].fill_async(index % 100, stream)
        if how == "closed":
            stream.close()
        del stream
        now = testing.live_objects()
        most = max(most, now["events"] - before["events"], now["streams"] - before["streams"])
    assert most < 300
    cu.Device(0).synchronize()
    gc.collect()
    assert buffer.to_numpy().tolist() == [index % 100 for index in range(ROUNDS)]


def test_events(stream):
    for _ in range(ROUNDS):
        stream.record().synchronize()
    event = cu.Event()
    for _ in range(ROUNDS):
        stream.record(event)


def test_contexts(driver):
    # While many processes use a GPU, it takes seconds to create and destroy a context.
    for _ in range(20 if cu.driver_info().is_software else 3):
        context = cu.Context.create(cu.Device(0))
        with context:
            cu.Stream().record().synchronize()
        del context
