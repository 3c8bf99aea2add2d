"""The steps of a program that offload NumPy arrays to a device for a block."""

from dataclasses import dataclass
from typing import Any

from oracle import OK
from session import WAITED, Stream
from session_arrays import ArraySession
from session_buffers import Buffer, Memory, stream_option
from session_peers import DEFAULT

import cudadrv as cu


@dataclass(eq=False)
class Offload:
    """A `with offload` block. Its buffers are in the order of its arrays."""

    real: Any
    arrays: list
    stream: Stream | None
    buffers: list


class OffloadSession(ArraySession):
    def begin_offload(self, arrays, stream, place):
        """Enter a block. Arrays that are not only for results are copied. Returns the block."""
        groups = {way: [x.items for x in arrays if x.way == way] for way in ("out", "in and out")}
        inputs = [each.items for each in arrays if each.way == "in"]
        options = {"out": groups["out"], "inout": groups["in and out"], **stream_option(stream)}
        real = self.new(place, cu.offload, *inputs, **options)
        stream = self.current(stream, place)
        answer = OK if stream is None else self._usable(stream)
        made = self.call("offload", answer, lambda: self.new(place, real.__enter__))
        if answer != OK:
            return None
        arrays = sorted(arrays, key=lambda each: ("in", "out", "in and out").index(each.way))
        pairs = zip(made, arrays, strict=True)
        buffers = [self._offloaded(*pair, stream, place) for pair in pairs]
        for array, buffer in zip(arrays, buffers, strict=True):
            if array.way != "out":
                on = place.internal if stream is None else stream.model
                self.oracle.synchronize(self.issue(on, [(buffer, "write")], lambda buffer: None))
                buffer.bytes[:] = array.items
            self._compare_array(array, array.before, False)
        return Offload(real, arrays, stream, buffers)

    def _offloaded(self, real, array, stream, place):
        """The buffer for an array of a block."""
        memory = Memory(self.oracle.open_memory(array.nbytes, False), "device", place, stream)
        buffer = Buffer(real, memory, 0, array.nbytes, part=False)
        if stream is not None:
            memory.pool, use = DEFAULT, buffer.use("write")
            self.oracle.issue(stream.model, [use], next(self.sites), passive=True)
        return buffer

    def end_offload(self, block, raises):
        """Leave a block: it copies the results to their arrays, unless an exception ends it."""
        answer, home = (OK, False) if raises else self._judge_end_of_offload(block)
        results = [
            buffer.bytes.copy() if home and array.way != "in" else array.before
            for array, buffer in zip(block.arrays, block.buffers, strict=True)
        ]
        if home:
            answer = self._close_all(block.buffers)
        error = KeyError() if raises else None
        leave = lambda: block.real.__exit__(error and KeyError, error, None)  # noqa: E731
        self.call("end of offload", answer, leave, unchanged=False)
        for array, expected in zip(block.arrays, results, strict=True):
            self._compare_array(array, expected, True)

    def _judge_end_of_offload(self, block):
        """The outcome of copying the results back, and whether the arrays then have the results."""
        node = None
        for array, buffer in zip(block.arrays, block.buffers, strict=True):
            if array.way != "in":
                stream = block.stream or self.internal(buffer.memory.place)
                answer, on, _ = self._judge(stream, [(buffer, "read")], True)
                if answer not in (OK, WAITED):
                    return answer, False
                node = self.issue(on, [(buffer, "read")], lambda buffer: None)
        if block.stream is not None:
            answer = self._runs(block.stream)
            if answer != OK:
                return answer, False
            self._synchronized(block.stream)
        elif node is not None:
            self.oracle.synchronize(node)
        return OK, True

    def _close_all(self, buffers):
        """Close all buffers that can be closed. Returns the first refusal, or OK."""
        answers = [self._judge_close(buffer, None) for buffer in buffers]
        return next((answer for answer in answers if answer != OK), OK)
