"""Random programs: the race detector is compared with an oracle that is a plain graph."""

import ctypes
import itertools
import random
import re

import pytest

from .client import LEGACY, Client

pytestmark = pytest.mark.cuda_software

PROGRAMS = 150
BYTES = 64
FILL, FILL_ROWS, MOVE = "cuMemsetD8Async", "cuMemsetD2D32Async", "cuMemcpyDtoDAsync_v2"


class Oracle:
    """Nodes: for each, the nodes ordered before it, and the bytes that it accesses."""

    def __init__(self):
        self.before = []  # for each node, all nodes that are ordered before it
        self.touched = []

    def node(self, after, touched=()):
        """Add a node. `touched` has tuples (buffer, bytes, writes, words)."""
        ordered = set(after).union(*(self.before[node] for node in after))
        self.before.append(ordered)
        self.touched.append(touched)
        return len(self.before) - 1

    def races(self):
        """The set of races. A race is the pair of the `words` of its two accesses."""
        found = set()
        for a, b in itertools.combinations(range(len(self.before)), 2):
            if a in self.before[b] or b in self.before[a]:
                continue
            for x, y in itertools.product(self.touched[a], self.touched[b]):
                if x[0] == y[0] and x[1] & y[1] and (x[2] or y[2]):
                    found.add(frozenset((x[3], y[3])))
        return found


class Walk:
    """A random program. Each step is chosen when it runs, on the driver and in the oracle."""

    def __init__(self, client, seed):
        self.client, self.random, self.oracle = client, random.Random(seed), Oracle()
        self.streams = [*(client.stream(flag) for flag in (1, 1, 1, 0, 0)), LEGACY]
        self.blocking, self.legacy = [3, 4], 5
        self.spare = len(self.streams)  # index of a stream that is never chosen
        self.streams.append(client.stream())
        self.tails = dict.fromkeys(range(len(self.streams)))
        self.events = [[client.event(), None] for _ in range(3)]
        self.buffers = [client.device(BYTES), client.device(BYTES)]
        self.host_words, self.device_words = client.host(64), client.device(64)
        client.ok("cuMemsetD8_v2", self.device_words, 0, 64)
        client.ok("cuCtxSynchronize")
        self.unwritten = []  # tuples (word, whether the host will write it, node of the wait)
        self.next_word = 0
        self.host = self.oracle.node([])

    def after(self, stream):
        """The nodes that a new operation of a stream runs after, except the host's node."""
        others = [stream]
        if stream == self.legacy:
            others += self.blocking
        elif stream in self.blocking:
            others.append(self.legacy)
        return [self.tails[other] for other in others if self.tails[other] is not None]

    def submit(self, stream, touched=(), extra=()):
        after = [self.host, *self.after(stream), *extra]
        self.tails[stream] = self.oracle.node(after, touched)
        return self.tails[stream]

    def pick(self):
        return self.random.randrange(self.spare)

    def place(self):
        start = self.random.randrange(0, BYTES, 8)
        size = self.random.choice([8, 16, 32])
        return self.random.randrange(2), start, min(size, BYTES - start)

    def stream_words(self, stream):
        handle = self.streams[stream]
        return "the legacy stream" if handle == LEGACY else f"stream {handle:#x}"

    def access(self, name, stream, place, writes, touched=None):
        buffer, start, size = place
        does = "writes" if writes else "reads"
        words = (name, self.stream_words(stream), does, self.buffers[buffer], start, start + size)
        touched = touched or range(start, start + size)
        return buffer, frozenset(touched), writes, words

    def fill(self):
        stream, place = self.pick(), self.place()
        address = self.buffers[place[0]] + place[1]
        self.client.ok(FILL, address, 1, place[2], self.streams[stream])
        self.submit(stream, [self.access(FILL, stream, place, True)])

    def fill_rows(self):
        stream, (buffer, start, _) = self.pick(), self.place()
        width, pitch = self.random.choice([(4, 8), (4, 16), (8, 16), (8, 12), (16, 20)])
        rows = 1 + (BYTES - start - width) // pitch
        if rows < 2:
            return
        address, handle = self.buffers[buffer] + start, self.streams[stream]
        self.client.ok(FILL_ROWS, address, pitch, 1, width // 4, rows, handle)
        touched = [start + row * pitch + byte for row in range(rows) for byte in range(width)]
        place = buffer, start, (rows - 1) * pitch + width
        self.submit(stream, [self.access(FILL_ROWS, stream, place, True, touched)])

    def move(self):
        stream, source, target = self.pick(), self.place(), self.place()
        size = min(source[2], target[2])
        source, target = (*source[:2], size), (*target[:2], size)
        addresses = (self.buffers[place[0]] + place[1] for place in (target, source))
        self.client.ok(MOVE, *addresses, size, self.streams[stream])
        accesses = (self.access(MOVE, stream, source, False),)
        self.submit(stream, (*accesses, self.access(MOVE, stream, target, True)))

    def record(self):
        stream, event = self.pick(), self.random.choice(self.events)
        self.client.ok("cuEventRecord", event[0], self.streams[stream])
        event[1] = self.submit(stream)

    def wait(self):
        stream, (handle, recorded) = self.pick(), self.random.choice(self.events)
        self.client.ok("cuStreamWaitEvent", self.streams[stream], handle, 0)
        if recorded is not None:
            self.submit(stream, extra=[recorded])

    def stuck(self, nodes):
        """Whether one of these nodes is behind a wait for a value that is not written yet."""
        waits = {wait for _, _, wait in self.unwritten}
        return any(node in waits or waits & self.oracle.before[node] for node in nodes)

    def learn(self, nodes, name, *arguments):
        if nodes and not self.stuck(nodes):
            self.client.ok(name, *arguments)
            self.host = self.oracle.node([self.host, *nodes])

    def synchronize(self):
        stream = self.pick()
        own = [self.tails[stream]] if self.tails[stream] is not None else []
        nodes = self.after(stream) if stream == self.legacy else own
        self.learn(nodes, "cuStreamSynchronize", self.streams[stream])

    def synchronize_event(self):
        handle, recorded = self.random.choice(self.events)
        self.learn([recorded] if recorded is not None else [], "cuEventSynchronize", handle)

    def wait_value(self):
        """Let a stream wait for a word. The host or a stream will write the word later."""
        if self.next_word < 16:
            stream, by_host = self.pick(), self.random.random() < 0.5
            word = (self.host_words if by_host else self.device_words) + 4 * self.next_word
            self.next_word += 1
            self.client.ok("cuStreamWaitValue32_v2", self.streams[stream], word, 1, 0)
            self.unwritten.append((word, by_host, self.submit(stream)))

    def write_value(self, stream=None):
        """Let a stream or the host write the word of the oldest wait.

        If the stream of the write is blocked by a wait, nothing is written.
        """
        if not self.unwritten:
            return
        stream = self.pick() if stream is None else stream
        word, by_host, wait = self.unwritten[0]
        if by_host:
            writer = self.host
            ctypes.c_uint32.from_address(word).value = 1
            # The software driver reads the word again in any call.
            self.client.ok("cuCtxSetCurrent", self.client.lib.primary)
        elif self.stuck(self.after(stream)):
            return
        else:
            self.client.ok("cuStreamWriteValue32_v2", self.streams[stream], word, 1, 0)
            writer = self.submit(stream)
        self.unwritten.pop(0)
        self.release(wait, writer)

    def release(self, wait, writer):
        """The word of `wait` was written: order `writer` before `wait` and its later nodes."""
        gained = {writer} | self.oracle.before[writer]
        for node, before in enumerate(self.oracle.before):
            if node == wait or wait in before:
                before |= gained

    def run(self, steps):
        kinds = (
            [self.fill] * 3
            + [self.fill_rows] * 2
            + [self.move] * 3
            + [self.record] * 4
            + [self.wait] * 4
        )
        kinds += [self.synchronize, self.synchronize_event]
        kinds += [self.wait_value] * 2 + [self.write_value] * 2
        for _ in range(steps):
            self.random.choice(kinds)()
        while self.unwritten:
            self.write_value(self.spare)


OPERATION = re.compile(
    r"(\w+) on (the legacy stream|stream 0x\w+) \(stream id \d+, operation \d+\) "
    r"(writes|reads) bytes (\d+) to (\d+)"
)


def reported(text):
    """The two accesses that a report names, each as the `words` of `Walk.access`."""
    address = int(re.search(r"memory (0x\w+)", text)[1], 16)
    return frozenset(
        (name, stream, does, address, int(start), int(end))
        for name, stream, does, start, end in OPERATION.findall(text)
    )


@pytest.mark.parametrize("part", range(4))
def test_the_oracle_agrees(software, schedule, part):
    verdicts = []
    for seed in range(part * PROGRAMS, (part + 1) * PROGRAMS):
        software.configure(f"schedule={schedule},seed={seed},fault=none,races=record")
        with Client(software) as client:
            client.ok("cuCtxSynchronize")
            software.forget_races()
            walk = Walk(client, seed)
            walk.run(4 + seed % 20)
            client.ok("cuCtxSynchronize")
            found, expected = {reported(text) for text in software.races()}, walk.oracle.races()
        assert found <= expected, f"seed {seed}: no race: {found - expected}"
        assert bool(found) == bool(expected), f"seed {seed}: not found: {expected}"
        verdicts.append(bool(found))
    assert PROGRAMS // 5 < sum(verdicts) < PROGRAMS - PROGRAMS // 5
    software.forget_races()
