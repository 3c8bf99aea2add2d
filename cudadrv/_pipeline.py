"""Pipeline: chunks of data that go through a device, several of them at a time."""

import os
import stat
import time
from collections import deque
from collections.abc import Callable, Iterator
from io import BufferedReader, FileIO
from itertools import count as counting
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self, SupportsIndex

import numpy as np

from cudadrv._buffer import Buffer
from cudadrv._buffers import DeviceBuffer, HostBuffer, LockedBuffer
from cudadrv._device import Device, raise_failures_of_functions
from cudadrv._errors import ContextLostError, integer
from cudadrv._event import Event
from cudadrv._region import plain_array
from cudadrv._site import skip_file_prefixes
from cudadrv._staging import Filling, Turn
from cudadrv._stream import Stream

if TYPE_CHECKING:
    import numpy.typing as npt

    _Compute = Callable[[Stream, DeviceBuffer, Any], object]
    _OnArray = Callable[[int, npt.NDArray[Any]], object]


skip_file_prefixes(__file__)  # messages name the line that calls `run`


# The device's stages, in the order in which a chunk goes through them. Each has a stream.
COPY_IN, COMPUTE, COPY_OUT = STAGES = range(3)

# If the host does nothing but queue, up to this many chunks for each `_Lane` are queued at a time.
AHEAD = 4

# One in this many chunks is timed, so that the events for times cost little. On an H200, a pipeline
# that timed every chunk of 8 MiB reached 0.96 of the speed of simultaneous copies in both
# directions; a loop written by hand, without times, reached 0.998.
TIMED = 8


class PipelineReport(NamedTuple):
    """What a run of a `Pipeline` did, and how long it took.

    ``chunks`` and ``items`` are the numbers of chunks and items of the source. ``elapsed_s`` is the
    time from the first chunk to the last result, in seconds. The other members are the seconds in
    which each stage was busy, without the time in which it waited for its turn. ``filling_s``: the
    host copied or read the source to page-locked memory, and ran ``prepare``. ``copying_in_s``,
    ``computing_s`` and ``copying_out_s``: the stages of the device, estimated from every eighth
    chunk. ``consuming_s``: the host ran ``consume``.
    """

    chunks: int
    items: int
    elapsed_s: float
    filling_s: float
    copying_in_s: float
    computing_s: float
    copying_out_s: float
    consuming_s: float

    @property
    def overlap(self) -> float:
        """How many stages were busy at a time, on average; 1 if they ran one after the other."""
        busy = self.filling_s + self.consuming_s
        busy += self.copying_in_s + self.computing_s + self.copying_out_s
        return busy / self.elapsed_s


class _Marks:
    """Events at the end of each stage of a chunk. If the chunk is timed, also at the beginning."""

    def __init__(self, device: Device | None, timed: bool) -> None:
        self.begun = [Event(timing=True, device=device) for _ in STAGES] if timed else []
        self.ended = [Event(timing=timed, device=device) for _ in STAGES]

    def seconds(self) -> list[float]:
        """How long each stage took, without its wait for its turn."""
        pairs = zip(self.begun, self.ended, strict=True)
        return [ended.elapsed_ms(begun) / 1e3 for begun, ended in pairs]

    def close(self) -> None:
        for events in (self.begun, self.ended):
            for event in events:
                event.close()


class _Lane:
    """The buffers of a chunk. Chunks with the same buffers run one after the other."""

    def __init__(
        self, device: Device | None, input: DeviceBuffer, output: DeviceBuffer | None
    ) -> None:
        self.device = device
        self.input = input
        self.output = output
        self._result: LockedBuffer | None = None

    @property
    def result(self) -> LockedBuffer:
        """The page-locked buffer for the result, made when it is first needed."""
        if self._result is None:
            assert self.output is not None
            self._result = LockedBuffer(
                self.output.count, self.output.dtype, device=self.device, name="result"
            )
        return self._result

    def close(self) -> None:
        for buffer in (self.input, self.output, self._result):
            if buffer is not None:
                buffer.close()


class _Pending(NamedTuple):
    """A chunk that is queued, and whose result was not delivered yet."""

    number: int
    items: int
    marks: _Marks
    result: HostBuffer | None


class Pipeline:
    """Chunks of a source that go to the device, through kernels, and back, several at a time.

    Each stage has a stream: copies in, kernels, copies out. The chunks use several sets of buffers
    in turn. So the device copies one chunk in, computes another and copies a third one out, while
    the host fills and reads others. The buffers are borrowed and checked like all others.
    ``with pipeline:`` closes it at the end of the block.

    Parameters
    ----------
    chunk
        Items of a chunk; the last chunk of a source may have fewer.
    dtype
        The dtype of the source.
    compute
        ``compute(stream, input, output)`` queues the kernels of a chunk on the stream, which is the
        same one for all chunks: kernels of different chunks may use the same memory. ``input`` and
        ``output`` are parts of buffers, with the items of this chunk; without ``output_dtype`` and
        ``in_place`` there are no results, and ``output`` is None. Default: the chunks are only
        copied.
    output_dtype
        The dtype of the results, which the kernels write into a buffer of their own.
    output_count
        Items of each result. Default: as many as the chunk has.
    in_place
        Whether the kernels write the results over the input: ``output`` is ``input``. Not for
        kernels of which one thread reads what another thread writes, such as neighbours.
    buffers
        How many sets of buffers there are, and so how many chunks can be in progress.
    device
        Default: the current context.

    Raises
    ------
    TypeError, ValueError
        An argument is not valid.
    CudaError
        A driver call failed.
    """

    __slots__ = (
        *("__weakref__", "_chunk", "_compute", "_device", "_dtype", "_in_place", "_lanes"),
        *("_marks", "_output_count", "_output_dtype", "_sources", "_streams", "_turn"),
    )

    def __init__(
        self,
        chunk: SupportsIndex,
        dtype: "npt.DTypeLike" = "u1",
        *,
        compute: "_Compute | None" = None,
        output_dtype: "npt.DTypeLike | None" = None,
        output_count: SupportsIndex | None = None,
        in_place: bool = False,
        buffers: SupportsIndex = 3,
        device: Device | None = None,
    ) -> None:
        self._chunk = _positive(chunk, "chunk")
        self._dtype = np.dtype(dtype)
        self._compute = compute
        self._output_dtype = None if output_dtype is None else np.dtype(output_dtype)
        self._output_count: int | None = None
        if in_place and output_dtype is not None:
            raise TypeError("in_place=True needs no output_dtype: the results are in the input")
        self._in_place = in_place or compute is None
        if output_count is not None:
            if output_dtype is None:
                raise TypeError("output_count needs output_dtype, the dtype of the results")
            self._output_count = _positive(output_count, "output_count")
        self._turn = Turn("this Pipeline")
        self._device = device
        self._lanes = [self._lane() for _ in range(_positive(buffers, "buffers"))]
        self._streams = (Stream(device=device), Stream(device=device), Stream(device=device))
        self._marks: list[_Marks] = []
        # The page-locked buffers for the inputs. There is one more than there are lanes: one is
        # filled while the device may use all others.
        self._sources: list[LockedBuffer] = []

    def _lane(self) -> _Lane:
        given = DeviceBuffer(self._chunk, self._dtype, device=self._device, name="input")
        if self._in_place:
            return _Lane(self._device, given, given)
        if self._output_dtype is None:
            return _Lane(self._device, given, None)
        count = self._chunk if self._output_count is None else self._output_count
        taken = DeviceBuffer(count, self._output_dtype, device=self._device, name="output")
        return _Lane(self._device, given, taken)

    @property
    def streams(self) -> tuple[Stream, ...]:
        """The three streams: of the copies in, of the kernels, and of the copies out."""
        return self._streams

    def run(
        self,
        source: object,
        *,
        into: HostBuffer | None = None,
        prepare: "_OnArray | None" = None,
        consume: "_OnArray | None" = None,
        progress: Callable[[int], object] | None = None,
    ) -> PipelineReport:
        """Send a source through the pipeline. Blocks until all results have arrived.

        An exception, such as KeyboardInterrupt, ends the run: it is raised when the queued work is
        complete, and then every buffer and the pipeline can be used again. If waiting for this work
        fails, too, a note is added to the exception.

        Parameters
        ----------
        source
            An array or another object with the buffer protocol, whose items are taken in C order.
            A file opened in binary mode, which is read from its position on. An iterable of arrays,
            each of which is a chunk of up to ``chunk`` items. A LockedBuffer or UnifiedBuffer,
            which the device copies from directly unless there is ``prepare``.
        into
            A LockedBuffer or UnifiedBuffer that gets the results, one after the other.
        prepare
            ``prepare(index, array)`` may change the items of a chunk before they are copied.
        consume
            ``consume(index, array)`` gets each result, in the order of the chunks. The array is
            empty after the call.
        progress
            ``progress(items)`` is called after each chunk, with the number of items done so far.

        Raises
        ------
        TypeError, ValueError
            The source has another dtype; a chunk of an iterator is too large or empty; a file ends
            within an item; ``into`` is too small; the pipeline is closed.
        RuntimeError
            The pipeline is running already.
        BufferBorrowedError, BufferExportedError, BufferClosedError
            See docs/errors.md.

        Also raises what the functions and the source raise, and CudaError if a driver call fails.
        """
        with self._turn:
            if consume is not None or into is not None:
                self._check_results("consume=" if into is None else "into=")
            if into is not None:
                self._check_target(into)
            try:
                for stream in self._streams:  # an interrupted run may not have waited for its work
                    stream._finish()
                feed = self._feed(source, prepare)
                filled = not isinstance(feed, _Parts)
                run = _Run(self, filled, into, consume, progress)
                report = run.through(feed)
            except BaseException as error:
                self._settle(error)
                raise
        return report

    def __repr__(self) -> str:
        """The number of its buffers, and the size and dtype of a chunk."""
        if self.closed:
            return "<Pipeline closed>"
        return f"<Pipeline of {len(self._lanes)} buffers of {self._chunk} x {self._dtype}>"

    @property
    def closed(self) -> bool:
        """Whether the pipeline was closed."""
        return self._turn.closed

    def close(self) -> None:
        """Wait for the work of the pipeline, and close its streams and buffers.

        Closing twice does nothing, and so does closing after the context was lost. Raises what
        `Stream.synchronize` and `Buffer.close` raise, and RuntimeError during a run.
        """
        self._turn.close()
        found: ContextLostError | None = None
        for stream in self._streams:
            if not stream.closed:
                try:
                    stream._finish()
                except ContextLostError as error:  # nothing is in use any more; raised at the end
                    found = error if error.call != "cudadrv" else found
                stream.close()
        self._close_buffers()
        if found is not None:
            raise found
        raise_failures_of_functions()

    def _close_buffers(self) -> None:
        for lane in self._lanes:
            lane.close()
        for marks in self._marks:
            marks.close()
        for source in self._sources:
            source.close()

    def __enter__(self) -> Self:
        """``with pipeline:`` closes it at the end of the block."""
        self._turn.refuse_closed()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the pipeline.

        If closing fails while an exception propagates, a note is added to that exception.
        """
        try:
            self.close()
        except Exception as error:
            if exception is None:
                raise
            exception.add_note(f"cudadrv: leaving the block did not close the pipeline: {error}")

    def _check_results(self, what: str) -> None:
        if self._output_dtype is None and not self._in_place:
            raise TypeError(
                f"{what} needs results, and compute has no output to write them to: make the"
                " Pipeline with output_dtype=, or with in_place=True if the kernels write over"
                " their input"
            )

    def _check_target(self, into: object) -> None:
        if not isinstance(into, HostBuffer):
            raise TypeError(
                f"into= takes a LockedBuffer or a UnifiedBuffer, and not a {type(into).__name__}"
            )
        dtype = self._dtype if self._output_dtype is None else self._output_dtype
        if into.dtype != dtype:
            raise TypeError(f"the results have dtype {dtype}, and into= has {into.dtype}")

    def _settle(self, error: BaseException) -> None:
        """Wait for all work after an error, so that every buffer can be used again."""
        for stream in self._streams:
            try:
                stream._finish()
            except Exception as failure:
                error.add_note(f"cudadrv: waiting for the pipeline failed, too: {failure}")

    # ---- sources ----

    def _feed(self, source: object, prepare: "_OnArray | None") -> "_Feed":
        """Return the object that brings one chunk after the other into page-locked memory."""
        if isinstance(source, HostBuffer):
            if source.dtype != self._dtype:
                raise TypeError(f"the source has dtype {source.dtype}, and chunks {self._dtype}")
            if prepare is None:
                return _Parts(source, self._chunk)
            return _Fills(self._room(), _copies_of(source, self._chunk), prepare)
        if isinstance(source, Buffer):
            raise TypeError(
                "a source is on the host: an array, a file, an iterator or a LockedBuffer,"
                f" and not a {type(source).__name__}"
            )
        if isinstance(source, np.ndarray):
            return _FillsOfArray(self, _checked(source, self._dtype), prepare)
        if hasattr(source, "readinto"):
            if _is_regular(source):
                return _FillsOfFile(self, source, prepare)
            return _Fills(self._room(), _reads_of(source), prepare)
        try:
            view = memoryview(source)  # type: ignore[arg-type]
        except TypeError:
            chunks: Iterator[object] = iter(source)  # type: ignore[call-overload]
            return _Fills(self._room(), _items_of(chunks, self._dtype), prepare)
        return _FillsOfArray(self, np.frombuffer(view, self._dtype), prepare)

    def _room(self) -> list[LockedBuffer]:
        while len(self._sources) <= len(self._lanes):
            self._sources.append(
                LockedBuffer(self._chunk, self._dtype, device=self._device, name="source")
            )
        return self._sources


# Brings chunk number `index` into a buffer. Returns the number of its items, or 0 at the end of the
# source.
_Fill = Callable[[int, LockedBuffer], int]


class _Parts:
    """The chunks of a page-locked or managed buffer, which the device copies from directly."""

    seconds = 0.0

    def __init__(self, source: HostBuffer, chunk: int) -> None:
        self.source = source
        self.chunk = chunk

    def chunk_of(self, index: int) -> HostBuffer | None:
        """Return the memory of chunk number `index`, or None at the end of the source."""
        part = self.source[index * self.chunk : (index + 1) * self.chunk]
        return part if part.count else None


class _Fills:
    """Chunks that a function brings into page-locked memory, one at a time."""

    def __init__(self, room: list[LockedBuffer], fill: _Fill, prepare: "_OnArray | None") -> None:
        self.room = room
        self.fill = fill
        self.prepare = prepare
        self.seconds = 0.0  # the time that filling has taken

    def chunk_of(self, index: int) -> HostBuffer | None:
        before = time.perf_counter()
        target = self.room[index % len(self.room)]
        items = self.fill(index, target)
        part = _prepared(target[:items], index, self.prepare) if items else None
        self.seconds += time.perf_counter() - before
        return part


class _Ahead:
    """Chunks that threads bring into page-locked memory while other chunks are computed."""

    def __init__(self, pipeline: Pipeline, prepare: "_OnArray | None") -> None:
        self.room = pipeline._room()
        self.turn = pipeline._turn  # its filling borrows the buffer that is being filled
        self.prepare = prepare
        self.seconds = 0.0

    def chunk_of(self, index: int) -> HostBuffer | None:
        if index == 0:
            self.begin(0)
        filling = self.turn.filling
        if filling is None:
            return None
        nbytes, seconds = filling.end()
        self.turn.filling = None
        self.seconds += seconds
        target = self.room[index % len(self.room)]
        items = self.ended(nbytes, target)
        if not items:
            return None
        part = target[:items]
        if items == target.count:
            self.begin(index + 1)
        before = time.perf_counter()
        _prepared(part, index, self.prepare)
        self.seconds += time.perf_counter() - before
        return part

    def fill(self, target: LockedBuffer, source: "npt.NDArray[Any] | int", offset: int = 0) -> None:
        """Begin to fill a buffer."""
        given = source if isinstance(source, int) else source.data
        self.turn.filling = Filling(target, given, offset)

    def begin(self, index: int) -> None:
        """Begin to fill the buffer of a chunk, if the source has such a chunk."""
        raise NotImplementedError

    def ended(self, nbytes: int, target: LockedBuffer) -> int:
        """Return how many items are in `target`, of which `nbytes` bytes were filled."""
        raise NotImplementedError


class _FillsOfArray(_Ahead):
    """Chunks of an array with one dimension."""

    def __init__(
        self, pipeline: Pipeline, source: "npt.NDArray[Any]", prepare: "_OnArray | None"
    ) -> None:
        super().__init__(pipeline, prepare)
        self.source = source

    def begin(self, index: int) -> None:
        target = self.room[index % len(self.room)]
        given = self.source[index * target.count : (index + 1) * target.count]
        if given.size:
            given = np.ascontiguousarray(given)
            self.fill(target[: given.size], given.view("u1"))

    def ended(self, nbytes: int, target: LockedBuffer) -> int:
        return nbytes // target.itemsize


class _FillsOfFile(_Ahead):
    """Chunks of a regular file, which threads read in parts."""

    def __init__(self, pipeline: Pipeline, source: Any, prepare: "_OnArray | None") -> None:
        super().__init__(pipeline, prepare)
        self.source = source
        self.start = source.tell()

    def begin(self, index: int) -> None:
        target = self.room[index % len(self.room)]
        self.fill(target, self.source.fileno(), self.start + index * target.nbytes)

    def ended(self, nbytes: int, target: LockedBuffer) -> int:
        self.source.seek(nbytes, os.SEEK_CUR)  # the position as if the file had been read in order
        return _whole_items(nbytes, target.itemsize)


_Feed = _Parts | _Fills | _Ahead


def _prepared(part: HostBuffer, index: int, prepare: "_OnArray | None") -> HostBuffer:
    if prepare is not None:
        with part.write() as array:
            prepare(index, array)
    return part


class _Run:
    """The state of one run of a `Pipeline`."""

    def __init__(
        self,
        pipeline: Pipeline,
        filled: bool,
        into: HostBuffer | None,
        consume: "_OnArray | None",
        progress: Callable[[int], object] | None,
    ) -> None:
        self.lanes = pipeline._lanes
        self.streams = pipeline._streams
        self.compute = pipeline._compute
        self.output_count = pipeline._output_count
        self.into = into
        self.consume = consume
        self.progress = progress
        # Whether the host has to wait for a chunk before it queues the next one with the same
        # buffers. If the host itself does not use these buffers, waits between the streams suffice.
        self.in_step = filled or consume is not None or progress is not None
        most = len(self.lanes) * (1 if self.in_step else AHEAD)
        # Chunk number `index` has the marks `index % len(self.marks)`. There are enough marks that
        # no two queued chunks share them. The first of each `TIMED` marks has times.
        self.most = most
        while len(pipeline._marks) < max(most + 1, TIMED) or len(pipeline._marks) % TIMED:
            timed = len(pipeline._marks) % TIMED == 0
            pipeline._marks.append(_Marks(pipeline._device, timed))
        self.marks = pipeline._marks
        self.on_way: deque[_Pending] = deque()
        self.used = 0  # items of `into` that have been given to chunks
        self.done = 0  # items whose results were delivered
        self.consuming = 0.0
        self.busy = [0.0 for _ in STAGES]  # seconds of each stage, for the chunks that are timed
        self.timed = 0  # items of the chunks that are timed

    def through(self, feed: _Feed) -> PipelineReport:
        start = time.perf_counter()
        for index in counting():
            if len(self.on_way) == self.most:
                self.finish()
            part = feed.chunk_of(index)
            if part is None:
                break
            self.queue(self.lanes[index % len(self.lanes)], index, part)
        while self.on_way:
            self.finish()
        seconds = time.perf_counter() - start
        whole = self.done / self.timed if self.timed else 0.0
        # No generator: without memory, Python 3.11 leaks the arguments of a function with cells.
        copying_in, computing, copying_out = map(whole.__mul__, self.busy)
        return PipelineReport(
            *(index, self.done, seconds, feed.seconds),
            *(copying_in, computing, copying_out, self.consuming),
        )

    def queue(self, lane: _Lane, index: int, part: HostBuffer) -> None:
        """Queue all work of a chunk, each stage on its stream."""
        work = lane.input[: part.count]
        output = self.output(lane, work)
        result = None if output is None else self.target(lane, output.count)
        copying_in, computing, copying_out = self.streams
        marks = self.marks[index % len(self.marks)]
        if not self.in_step and index >= len(self.lanes):  # another chunk had the same buffers
            former = self.marks[(index - len(self.lanes)) % len(self.marks)].ended
            copying_in.wait(former[COPY_OUT if output is work else COMPUTE])
            computing.wait(former[COPY_OUT])

        if marks.begun:
            copying_in.record(marks.begun[COPY_IN])
        work.copy_from_async(part, copying_in)
        copying_in.record(marks.ended[COPY_IN])

        computing.wait(marks.ended[COPY_IN])
        if marks.begun:
            computing.record(marks.begun[COMPUTE])
        if self.compute is not None:
            self.compute(computing, work, output)
        computing.record(marks.ended[COMPUTE])

        copying_out.wait(marks.ended[COMPUTE])
        if marks.begun:
            copying_out.record(marks.begun[COPY_OUT])
        if output is not None and result is not None:
            output.copy_to_async(result, copying_out)
        copying_out.record(marks.ended[COPY_OUT])
        self.on_way.append(_Pending(index, part.count, marks, result))

    def output(self, lane: _Lane, work: DeviceBuffer) -> DeviceBuffer | None:
        """Return where the kernels of a chunk write its result; None if there are no results."""
        if lane.output is lane.input:
            return work
        if lane.output is None or self.output_count is not None:
            return lane.output
        return lane.output[: work.count]

    def target(self, lane: _Lane, items: int) -> HostBuffer:
        """Return the memory that a result is copied to."""
        if self.into is None:
            return lane.result[:items]
        start, self.used = self.used, self.used + items
        if self.used > self.into.count:
            raise ValueError(f"into= has {self.into.count} items, and the results have more")
        return self.into[start : self.used]

    def finish(self) -> None:
        """Wait for the oldest chunk that is queued, and deliver its result."""
        pending = self.on_way.popleft()
        pending.marks.ended[COPY_OUT].synchronize()
        if pending.marks.begun:
            self.timed += pending.items
            for stage, seconds in enumerate(pending.marks.seconds()):
                self.busy[stage] += seconds
        if self.consume is not None and pending.result is not None:
            before = time.perf_counter()
            with pending.result.read() as array:
                self.consume(pending.number, array)
            self.consuming += time.perf_counter() - before
        self.done += pending.items
        if self.progress is not None:
            self.progress(self.done)


def _positive(value: SupportsIndex, name: str) -> int:
    number: int = integer(value, name)
    if number < 1:
        raise ValueError(f"{name} must be at least 1, and is {number}")
    return number


def _checked(given: object, dtype: "np.dtype[Any]") -> "npt.NDArray[Any]":
    """Return an array of the source with one dimension. Raises if its items do not fit."""
    array = plain_array(given)
    if array.dtype != dtype:
        raise TypeError(
            f"the source has dtype {array.dtype}, and the chunks {dtype}; nothing is converted"
        )
    return array.reshape(-1)


def _copies_of(source: HostBuffer, chunk: int) -> _Fill:
    def fill(index: int, target: LockedBuffer) -> int:
        with source[index * chunk : (index + 1) * chunk].read() as given:
            return _copied(given, target)

    return fill


def _copied(given: "npt.NDArray[Any]", target: LockedBuffer) -> int:
    """Copy an array to the beginning of a buffer, by several threads. Returns its size."""
    target[: given.size].copy_from(given)
    return given.size


def _items_of(source: Iterator[object], dtype: "np.dtype[Any]") -> _Fill:
    def fill(index: int, target: LockedBuffer) -> int:
        try:
            found = next(source)
        except StopIteration:
            return 0
        given = _checked(found, dtype)
        if not 0 < given.size <= target.count:
            raise ValueError(
                f"chunk {index} of the source has {given.size} items, and must have from 1 to"
                f" {target.count}"
            )
        return _copied(given, target)

    return fill


def _reads_of(source: Any) -> _Fill:
    def fill(index: int, target: LockedBuffer) -> int:
        with target.write() as array:
            return read(array.view("u1"), array.itemsize)

    def read(room: "npt.NDArray[Any]", itemsize: int) -> int:
        done = 0
        while done < room.size:
            got = source.readinto(room[done:])
            if got is None:
                raise ValueError("the file does not block, and has no data now")
            if not 0 <= got <= room.size - done:
                raise ValueError(
                    f"the file says that it has read {got} bytes, and there was room for"
                    f" {room.size - done}"
                )
            if not got:
                break
            done += got
        return _whole_items(done, itemsize)

    return fill


def _whole_items(nbytes: int, itemsize: int) -> int:
    items, rest = divmod(nbytes, itemsize)
    if rest:
        raise ValueError(f"the file ends within an item: {rest} bytes are left over")
    return items


def _is_regular(source: object) -> bool:
    """Whether threads that read a file by its descriptor get the same bytes as `readinto`."""
    if type(source) is not FileIO and type(source) is not BufferedReader:
        return False
    if type(source) is BufferedReader and type(source.raw) is not FileIO:
        return False
    return source.readable() and stat.S_ISREG(os.fstat(source.fileno()).st_mode)
