"""``stream.bind(thing)``: a wrapper that calls an object's methods on one stream."""

from functools import lru_cache, partial
from inspect import Parameter, signature
from typing import Any

from cudadrv._stream import Stream


class Bound:
    """A wrapper that calls the methods of an object on a stream: see `Stream.bind`."""

    __slots__ = ("_stream", "_thing")

    def __init__(self, stream: Stream, thing: object) -> None:
        self._stream = stream
        self._thing = thing

    def __getattr__(self, name: str) -> Any:
        if name in self.__slots__:  # copy and pickle ask for attributes before the slots are set
            raise AttributeError(name)
        found = getattr(self._thing, name)
        # A partial has no Python frame, so messages name the line of the caller.
        return partial(found, stream=self._stream) if _takes_stream(found) else found

    def __dir__(self) -> list[str]:
        return dir(self._thing)

    def __repr__(self) -> str:
        return f"<{self._thing!r} on {self._stream!r}>"


def _takes_stream(found: Any) -> bool:
    """Whether an attribute can be called with ``stream=``."""
    if not callable(found):
        return False
    method = getattr(found, "__func__", None)
    return _names_stream(found) if method is None else _method_names_stream(method)


def _names_stream(function: Any) -> bool:
    try:
        parameters = signature(function).parameters.values()
    except (TypeError, ValueError):  # the function has no signature
        return False
    return any(
        parameter.kind is Parameter.VAR_KEYWORD or parameter.name == "stream"
        for parameter in parameters
    )


# Cached, because determining a signature takes microseconds.
_method_names_stream = lru_cache(maxsize=1024)(_names_stream)
