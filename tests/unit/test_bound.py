"""``stream.bind(thing)``: methods that run on one stream."""

import copy

import pytest

import cudadrv as cu


def test_methods_run_on_the_stream(stream, buffers):
    host, device = buffers
    bound = stream.bind(device)
    assert bound.copy_from_async(host).stream is stream
    assert bound.fill_async(3).stream is stream
    bound.fill(4)
    host.copy_from(device, stream=stream)
    assert host[5] == 4


def test_a_stream_of_a_call_comes_first(stream, other, buffers):
    bound = stream.bind(buffers[1])
    assert bound.fill_async(1, stream=other).stream is other
    with pytest.raises(TypeError, match="stream"):
        bound.fill_async(1, other)


def test_messages_name_the_line_of_the_caller(stream, buffers):
    token = stream.bind(buffers[1]).fill_async(1)
    assert "test_bound.py" in token.site


def test_what_takes_no_stream_is_called_as_it_is(stream, buffers):
    bound = stream.bind(buffers[0])
    assert bound.to_numpy()[3] == 3
    assert bound.count == 64
    assert bound.closed is False
    assert [part.count for part in bound.split_at(16)] == [16, 48]
    assert "fill_async" in dir(bound)
    with pytest.raises(AttributeError, match="no_such"):
        _ = bound.no_such
    with pytest.raises(AttributeError):
        bound.ordering = "wait"


class Library:
    """An object of a user, whose methods take a stream in various ways."""

    def explicit(self, *, stream):
        return stream

    def any_options(self, **options):
        return options

    def without(self, value):
        return value

    @staticmethod
    def static(stream=None):
        return stream


def test_anything_can_be_bound(stream):
    bound = stream.bind(Library())
    assert bound.explicit() is stream
    assert bound.any_options(a=1) == {"a": 1, "stream": stream}
    assert bound.without(7) == 7
    assert bound.static() is stream
    settings = {}
    stream.bind(settings).update(a=1)  # a method without a known signature
    assert settings == {"a": 1}


def test_a_copy_is_bound_as_well(stream):
    assert copy.copy(stream.bind(Library())).explicit() is stream


def test_misuse(stream):
    with pytest.raises(TypeError):
        stream.bind(None)
    closed = cu.Stream()
    closed.close()
    with pytest.raises(ValueError, match="is closed"):
        closed.bind(Library())


def test_repr(stream, buffers):
    assert repr(stream.bind(buffers[1])) == f"<{buffers[1]!r} on {stream!r}>"
