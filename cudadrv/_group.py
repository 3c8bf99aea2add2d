"""StreamGroup: several streams, used in turn."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self, SupportsIndex

from cudadrv._device import Device, raise_failures_of_functions
from cudadrv._errors import integer
from cudadrv._event import Event
from cudadrv._stream import Stream
from cudadrv._token import Token

if TYPE_CHECKING:
    from cudadrv._stream import _AnyStream


class StreamGroup:
    """Several streams of one device, over which work is spread.

    The streams are plain `Stream` objects: ``for stream in group``, ``group[0]`` and ``len(group)``
    reach them.

    Parameters
    ----------
    count
        How many streams; at least 1.
    device
        The device of the streams; default: the current context.
    priority
        The priority of each stream: see `Stream`.

    Raises
    ------
    TypeError, ValueError
        An argument is not valid.
    CudaError
        A driver call failed.

    Driver function: cuStreamCreateWithPriority for each stream.
    """

    __slots__ = ("__weakref__", "_streams", "_turn")

    def __init__(
        self, count: SupportsIndex, *, device: Device | None = None, priority: int = 0
    ) -> None:
        number = integer(count, "count")
        if number < 1:
            raise ValueError(f"a group needs at least 1 stream, not {number}")
        self._streams: list[Stream] = []
        self._turn = 0
        try:
            for _ in range(number):
                self._streams.append(Stream(device=device, priority=priority))
        except BaseException:
            self.close()
            raise

    def next(self) -> Stream:
        """Return the stream whose turn it is. The streams take turns, from the first one on.

        Raises ValueError if the group is closed.
        """
        self._usable()
        stream = self._streams[self._turn % len(self._streams)]
        self._turn += 1
        return stream

    @contextmanager
    def scope(self) -> Iterator[Self]:
        """``with group.scope() as group:`` waits for all work of the group at the end of the block.

        What the block queued on the streams is complete after the block, even if an exception ended
        the block; if waiting then fails, a note is added to that exception. No stream becomes the
        current one. Raises what `synchronize` raises.
        """
        self._usable()
        try:
            yield self
        except BaseException as error:
            try:
                self._finish(None)
            except Exception as failure:
                error.add_note(f"cudadrv: waiting for the group failed, too: {failure}")
            raise
        self.synchronize()

    def wait(self, work: "Event | Token | _AnyStream") -> None:
        """Let all streams of the group wait for work, without blocking the host.

        ``work`` is as for `Stream.wait`. If it is a stream of the group, only the other streams
        wait. Raises what `Stream.wait` raises, and ValueError if the group is closed.
        """
        self._usable()
        if isinstance(work, Stream) and work not in self._streams:
            work = work.record()  # one event for all streams of the group
        for stream in self._streams:
            if stream is not work:
                stream.wait(work)

    def synchronize(self, *, timeout: float | None = None) -> None:
        """Block until all work of all streams is complete. Signals such as Ctrl-C interrupt it.

        ``timeout`` is as for `Stream.synchronize`, and applies to each stream in turn. Raises what
        `Stream.synchronize` raises, and ValueError if the group is closed.
        """
        self._finish(timeout)
        raise_failures_of_functions()

    def _finish(self, timeout: float | None) -> None:
        self._usable()
        for stream in self._streams:
            stream._finish(timeout=timeout)

    @property
    def closed(self) -> bool:
        """Whether the group was closed."""
        return not self._streams

    def close(self) -> None:
        """Close all streams. Does not wait for their work. Closing twice does nothing.

        Raises what `Stream.close` raises. In that case the group stays open, and can be closed
        again.
        """
        for stream in self._streams:
            stream.close()
        self._streams = []

    def __iter__(self) -> Iterator[Stream]:
        """The streams, from the first one on."""
        return iter(tuple(self._streams))

    def __len__(self) -> int:
        """The number of streams; 0 if the group is closed."""
        return len(self._streams)

    def __getitem__(self, index: SupportsIndex) -> Stream:
        """One of the streams, by number."""
        return self._streams[index]

    def __repr__(self) -> str:
        return f"<StreamGroup {f'of {len(self)} streams' if self._streams else 'closed'}>"

    def _usable(self) -> None:
        if not self._streams:
            raise ValueError("this StreamGroup is closed")
