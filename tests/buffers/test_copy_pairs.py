"""Copies between all kinds of buffers, in both directions, blocking and asynchronous."""

import numpy as np
import pytest

KINDS = ("device", "stream_ordered", "locked", "unified")

pairs = pytest.mark.parametrize(
    ("to", "of"), [(to, of) for to in KINDS for of in KINDS], ids=lambda kind: kind
)
DATA = np.arange(1000, dtype="f4")


@pairs
def test_blocking_copy(make, items_of, to, of):
    source, target = make(of, 1000, "f4", DATA), make(to, 1000, "f4")
    target.copy_from(source)
    assert not source.borrowed
    assert not target.borrowed
    assert (items_of(target) == DATA).all()
    target.copy_from(np.zeros_like(DATA))
    source.copy_to(target)
    assert (items_of(target) == DATA).all()


@pairs
def test_asynchronous_copy(make, items_of, stream, to, of):
    source, target = make(of, 1000, "f4", DATA), make(to, 1000, "f4")
    token = target.copy_from_async(source, stream)
    assert token.reads == (source,)
    assert token.writes == (target,)
    assert source.borrowed
    assert target.borrowed
    token.wait()
    assert not source.borrowed
    assert not target.borrowed
    assert (items_of(target) == DATA).all()
    back = source.copy_from_async(target, stream)
    with stream:
        again = source.copy_to_async(target)
    assert again.stream is stream
    assert again.reads == (source,)
    again.wait()
    assert back.done
    assert (items_of(target) == DATA).all()


@pairs
def test_parts_are_copied_where_they_are(make, items_of, to, of):
    source, target = make(of, 1000, "f4", DATA), make(to, 1000, "f4", np.zeros_like(DATA))
    target[10:20].copy_from(source[500:510])
    found = items_of(target)
    assert (found[10:20] == DATA[500:510]).all()
    assert found.sum() == DATA[500:510].sum()


@pytest.mark.parametrize("kind", KINDS)
def test_parts_of_one_buffer(make, items_of, kind):
    buffer = make(kind, 1000, "f4", DATA)
    buffer[:500].copy_from(buffer[500:])
    assert (items_of(buffer) == np.concatenate([DATA[500:], DATA[500:]])).all()


@pytest.mark.parametrize("kind", KINDS)
def test_overlapping_parts_are_refused(make, items_of, stream, kind):
    buffer = make(kind, 1000, "f4", DATA)
    with pytest.raises(ValueError, match="overlap"):
        buffer[:500].copy_from(buffer[499:999])
    with pytest.raises(ValueError, match="overlap"):
        buffer[1:].copy_to_async(buffer[:-1], stream)
    assert not buffer.borrowed
    assert (items_of(buffer) == DATA).all()


@pytest.mark.cuda_software
def test_the_same_range_is_nothing_to_do(make, stream, unchanged):
    buffer = make("device", 10)
    with unchanged("cuMemcpyDtoDAsync_v2", "cuMemcpyAsync", "cuEventRecord"):
        buffer[2:4].copy_from(buffer[2:4])
        token = buffer.copy_from_async(buffer, stream)
        assert token.done
    assert not buffer.borrowed


@pytest.mark.cuda_software
@pairs
def test_no_bytes_are_nothing_to_do(make, stream, unchanged, to, of):
    source, target, full = make(of, 0), make(to, 0), make(to, 8)
    with unchanged("cuMemcpyDtoDAsync_v2", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2",
                   "cuMemcpyAsync", "cuMemsetD8Async", "cuEventRecord"):  # fmt: skip
        target.copy_from(source)
        assert target.copy_from_async(source, stream).done
        assert full[3:3].copy_from_async(source, stream).done
        target.copy_from(b"")
        target.copy_to(bytearray())
        assert target.copy_from_async(b"", stream).done
        target.fill(1)
        assert target.fill_async(1, stream).done
    assert not full.borrowed
    assert target.borrows == ()


def test_other_dtype_or_size_is_refused(make, stream):
    target = make("device", 8, "f4")
    with pytest.raises(TypeError, match=r"different dtypes; .*view\('int32'\)"):
        target.copy_from(make("locked", 8, "i4"))
    with pytest.raises(TypeError, match="different dtypes"):
        target.copy_from(make("locked", 8, ">f4"))
    with pytest.raises(ValueError, match=r"has 8 items, and LockedBuffer.* 7"):
        target.copy_from_async(make("locked", 7, "f4"), stream)
    target.copy_from(make("locked", 8, "i4", np.zeros(8, "i4")).view("f4"))


def test_a_copy_needs_a_stream_or_waits(make, stream):
    target, source = make("device", 8), make("locked", 8)
    with pytest.raises(TypeError, match="copy_from_async needs a stream"):
        target.copy_from_async(source)
    with pytest.raises(TypeError, match="fill_async needs a stream"):
        target.fill_async(0)
    with pytest.raises(TypeError, match="stream must be a Stream, not int"):
        target.copy_from_async(source, 0)
    with pytest.raises(TypeError):
        target.copy_from(None)
