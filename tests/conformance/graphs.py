"""Graphs for tests: captured graphs with their executables, and random programs to capture."""

import contextlib
import ctypes

from .client import SUCCESS

IF, WHILE, SWITCH = 0, 1, 2


class Graph:
    """The graph that the block's streams have captured. It can be launched after the block."""

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


def new_graph(client):
    return client._make("cuGraphDestroy", ctypes.c_void_p, "cuGraphCreate", 0)


def instantiated(client, graph):
    """Instantiate a graph. Returns the status and the executable graph."""
    step = ctypes.c_void_p()
    found = ctypes.byref(step)
    status = client.call("cuGraphInstantiateWithFlags", found, graph, ctypes.c_uint64(0))
    if status == SUCCESS:
        client._undo.append(("cuGraphExecDestroy", step.value))
    return status, step.value


class Conditional(ctypes.Structure):
    """A CUgraphNodeParams of a conditional node."""

    _fields_ = [
        ("type", ctypes.c_int),
        ("reserved", ctypes.c_int * 3),
        ("handle", ctypes.c_uint64),
        ("kind", ctypes.c_int),
        ("count", ctypes.c_uint),
        ("graphs", ctypes.POINTER(ctypes.c_void_p)),
        ("context", ctypes.c_void_p),
        ("rest", ctypes.c_uint64 * 26),
    ]


def new_condition(client, graph, value):
    """Returns the handle of a condition that has this value at the beginning of each launch."""
    handle = ctypes.c_uint64()
    found = ctypes.byref(handle)
    client.ok("cuGraphConditionalHandleCreate", found, graph, client.lib.primary, value, 1)
    return handle.value


def conditional(client, graph, kind, count, value=0, after=(), handle=None):
    """Add a conditional node.

    Without a `handle`, the node gets a new condition with this value. Returns the node, its
    body graphs, and the handle of its condition.
    """
    node = ctypes.c_void_p()
    handle = handle or new_condition(client, graph, value)
    params = Conditional(13, (0, 0, 0), handle, kind, count, None, client.lib.primary)
    before = (ctypes.c_void_p * max(1, len(after)))(*after)
    client.ok(
        "cuGraphAddNode_v2", ctypes.byref(node), graph, before, None, len(after),
        ctypes.byref(params),
    )  # fmt: skip
    return node.value, [params.graphs[i] for i in range(count)], handle


@contextlib.contextmanager
def inside(client, body, stream):
    """Capture into the body graph of a conditional node."""
    client.ok("cuStreamBeginCaptureToGraph", stream, body, None, None, 0, 2)
    yield
    client.ok("cuStreamEndCapture", stream, ctypes.byref(ctypes.c_void_p()))


def forked(program, stream, sides):
    """Let the side streams join the capture of the stream."""
    event = program.record(stream)
    for side in sides:
        program.wait(side, event)


def joined(program, stream, sides):
    for side in sides:
        program.order(side, stream)


class RandomWork:
    """Random fills and copies of a few buffers on a few streams.

    Events order conflicting work. With all events, a program has no race and only one possible
    result.
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
        """Queue the steps, without the events that order `forgotten` after earlier steps."""
        last = {}  # for each buffer: the streams that have used it, and whether they wrote it
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
