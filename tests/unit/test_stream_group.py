"""StreamGroup: streams in turn, waits for all of them, and their end."""

import pytest

import cudadrv as cu


@pytest.fixture
def group(driver):
    group = cu.StreamGroup(3)
    yield group
    if not group.closed:
        group.synchronize()
        group.close()


def test_the_streams_take_turns(group):
    assert [group.next() for _ in range(7)] == [*group, *group, group[0]]
    assert len(group) == 3
    assert len(set(group)) == 3
    assert group[-1] is list(group)[2]
    assert repr(group) == "<StreamGroup of 3 streams>"


def test_options(driver):
    device = cu.Device(0)
    _, greatest = device.context.priority_range
    group = cu.StreamGroup(2, device=device, priority=greatest)
    assert {stream.priority for stream in group} == {greatest}
    assert {stream.device for stream in group} == {device}
    group.close()


def test_wait_and_synchronize(group, stream, buffers, gate):
    _, device = buffers
    gate.hold(stream)
    token = device.fill_async(5, stream)
    group.wait(token)
    parts = device.chunks(16)
    for part, member in zip(parts, group, strict=False):
        part.fill_async(7, member)  # would be refused if this member had not waited
    with pytest.raises(TimeoutError):
        group.synchronize(timeout=0)
    gate.open()
    group.synchronize()
    assert not device.borrowed
    assert device.to_numpy().tolist() == [7] * 48 + [5] * 16


@pytest.mark.parametrize("way", ["stream", "event", "member"])
def test_waits_for_all_kinds_of_work(group, stream, buffers, way):
    _, device = buffers
    source = group[1] if way == "member" else stream
    device.fill_async(5, source)
    group.wait(source.record() if way == "event" else source)
    for member in group:
        device.fill_async(6, member)
        group.wait(member)
    group.synchronize()


def test_without_a_wait_it_is_refused(group, stream, buffers):
    _, device = buffers
    device.fill_async(5, stream)
    for member in group:
        with pytest.raises(cu.BufferBorrowedError):
            device.fill_async(6, member)
    stream.synchronize()


def test_scope_waits_for_all(group, buffers):
    _, device = buffers
    with group.scope() as inside:
        assert inside is group
        for part in device.chunks(8):
            part.fill_async(9, group.next())
        assert device.borrowed
        assert cu.Stream.current() is None
    assert not device.borrowed


def test_scope_waits_also_after_an_exception(group, buffers):
    _, device = buffers

    def body():
        with group.scope():
            for part in device.chunks(8):
                part.fill_async(9, group.next())
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine") as caught:
        body()
    assert not device.borrowed
    assert not hasattr(caught.value, "__notes__")


def test_a_failing_wait_is_a_note(group):
    def body():
        with group.scope():
            group.close()
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine") as caught:
        body()
    assert (
        "waiting for the group failed, too: this StreamGroup is closed"
        in (caught.value.__notes__[0])
    )


def test_close(group, buffers):
    _, device = buffers
    streams = list(group)
    device.fill_async(1, group[2])
    group.close()
    group.close()
    assert group.closed
    assert all(stream.closed for stream in streams)
    assert (len(group), list(group), repr(group)) == (0, [], "<StreamGroup closed>")
    for call in (
        group.next,
        group.synchronize,
        lambda: group.wait(streams[0]),
        lambda: group.scope().__enter__(),
    ):
        with pytest.raises(ValueError, match="this StreamGroup is closed"):
            call()


def test_a_close_that_is_refused_can_be_repeated(group, buffers):
    _, device = buffers
    with device.lend(group[1]):
        with pytest.raises(cu.OwnershipError, match="buffers are lent to it"):
            group.close()
        assert not group.closed
    group[1].synchronize()
    group.close()
    assert group.closed


def test_bad_arguments(driver):
    for count in (0, -1):
        with pytest.raises(ValueError, match="at least 1 stream"):
            cu.StreamGroup(count)
    with pytest.raises(TypeError, match="count must be an integer"):
        cu.StreamGroup(1.5)
    with pytest.raises(TypeError):
        cu.StreamGroup(2, None)


@pytest.mark.cuda_software
def test_a_stream_that_cannot_be_made(driver):
    from cudadrv import testing

    before = testing.live_objects()["streams"]
    testing.fail("cuStreamCreateWithPriority", cu.CUresult.CUDA_ERROR_OUT_OF_MEMORY, nth=3)
    with pytest.raises(cu.CudaOutOfMemoryError):
        cu.StreamGroup(4)
    assert testing.live_objects()["streams"] == before
