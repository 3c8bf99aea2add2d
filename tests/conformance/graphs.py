"""Graphs for tests: what is captured, its executable graph, and random programs to capture."""

import contextlib
import ctypes


class Graph:
    """What the streams captured in the block. It can be launched when the block has ended."""

    def __init__(self, client, stream, mode=2):
        self._client, self._stream = client, stream
        client.ok("cuStreamBeginCapture_v2", stream, mode)

    def end(self):
        graph = ctypes.c_void_p()
        self._client.ok("cuStreamEndCapture", self._stream, ctypes.byref(graph))
        self.handle = graph.value
        self._client._undo.append(("cuGraphDestroy", self.handle))

    def exec(self, flags=0):
        handle = ctypes.c_void_p()
        found = ctypes.byref(handle)
        self._client.ok("cuGraphInstantiateWithFlags", found, self.handle, ctypes.c_uint64(flags))
        self._client._undo.append(("cuGraphExecDestroy", handle.value))
        return handle.value

    def nodes(self):
        count = ctypes.c_size_t()
        self._client.ok("cuGraphGetNodes", self.handle, None, ctypes.byref(count))
        array = (ctypes.c_void_p * count.value)()
        if count.value:
            self._client.ok("cuGraphGetNodes", self.handle, array, ctypes.byref(count))
        return list(array)


@contextlib.contextmanager
def captured(client, stream):
    graph = Graph(client, stream)
    yield graph
    graph.end()


def forked(program, stream, sides):
    """The side streams take part in the capture of the stream."""
    event = program.record(stream)
    for side in sides:
        program.wait(side, event)


def joined(program, stream, sides):
    for side in sides:
        program.order(side, stream)


class RandomWork:
    """Random fills and copies of a few buffers on a few streams. Conflicting work is ordered by
    events, so a program that issues it has no races, and one result.
    """

    BUFFERS, STREAMS, BYTES = 5, 3, 64

    def __init__(self, random, count):
        self.steps = []
        for _ in range(count):
            stream, target = random.randrange(self.STREAMS), random.randrange(self.BUFFERS)
            source = random.randrange(self.BUFFERS)
            copies = source != target and random.random() < 0.6
            self.steps.append((stream, target, source if copies else None, random.randrange(256)))

    def issue(self, program, streams, buffers, forgotten=None):
        """Submits the steps; the order before the step `forgotten` is left out."""
        last = {}  # of each buffer: the streams that have used it, and whether they wrote it
        for number, (stream, target, source, value) in enumerate(self.steps):
            needed = set(last.get(target, {}))
            if source is not None:
                needed |= {s for s, wrote in last.get(source, {}).items() if wrote}
            if number != forgotten:
                for other in needed - {stream}:
                    program.order(streams[other], streams[stream])
            if source is None:
                program.ok("cuMemsetD8Async", buffers[target], value, self.BYTES, streams[stream])
            else:
                program.move(buffers[target], buffers[source], streams[stream], self.BYTES)
                last.setdefault(source, {}).setdefault(stream, False)
            last[target] = {stream: True}

    def contents(self, program, buffers):
        return [program.read(buffer, self.BYTES) for buffer in buffers]
