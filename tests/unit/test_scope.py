"""``stream.scope()``: all work is complete at the end of the block, however it ends."""

import pytest

import cudadrv as cu


def test_the_work_of_the_block_is_complete_after_it(stream, buffers):
    host, device = buffers
    with stream.scope() as inside:
        assert inside is stream
        device.copy_from_async(host)
        device.fill_async(3, inside)
        device.copy_to_async(host)
    assert not host.borrowed
    assert host.to_numpy().tolist() == [3] * 64


def test_a_dropped_token_in_a_scope_is_safe(stream, buffers):
    """A token is dropped in a scope: after the scope its copy is complete, nothing is borrowed."""
    host, device = buffers

    def body():
        with stream.scope():
            device.copy_from_async(host)
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        body()
    host[:] = 0
    assert not device.borrowed


def test_scopes_nest(stream, other, buffers):
    host, device = buffers
    with stream.scope():
        device.copy_from_async(host)
        with other.scope():
            with pytest.raises(cu.BufferBorrowedError):
                device.fill_async(1)
            other.wait(stream)
            assert device.fill_async(1).stream is other
        assert device[:4].fill_async(2).stream is stream


def test_the_current_stream_is_as_before_when_waiting_fails(stream, buffers):
    inner = cu.Stream()
    with stream:
        with pytest.raises(ValueError, match="is closed"):
            close_inside(inner)
        assert buffers[1].fill_async(1).stream is stream


def close_inside(stream):
    with stream.scope():
        stream.close()


def test_an_exception_on_its_way_is_kept(driver):
    stream = cu.Stream()

    def body():
        with stream.scope():
            stream.close()
            raise KeyError("mine")

    with pytest.raises(KeyError) as caught:
        body()
    assert "may be unfinished" in caught.value.__notes__[0]


def test_a_closed_stream_has_no_scope(driver):
    stream = cu.Stream()
    stream.close()
    with pytest.raises(ValueError, match="is closed"):
        stream.scope()


def test_repr(stream):
    assert repr(stream.scope()) == f"<Scope of {stream!r}>"
