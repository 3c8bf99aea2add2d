"""``with stream.scope():`` a block at whose end all work of the stream is complete."""

from types import TracebackType

from cudadrv._stream import Stream


class Scope:
    """A stream for the length of a `with` block: see `Stream.scope`."""

    __slots__ = ("_stream",)

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def __enter__(self) -> Stream:
        """Make the stream the current one of its context."""
        return self._stream.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Wait for the work of the stream, and end the block."""
        try:
            self._stream.synchronize()
        except Exception as error:
            if exception is None:
                raise
            exception.add_note(f"cudadrv: the work of {self._stream!r} may be unfinished: {error}")
        finally:
            self._stream.__exit__(kind, exception, traceback)

    def __repr__(self) -> str:
        return f"<Scope of {self._stream!r}>"
