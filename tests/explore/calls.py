"""Small programs of driver calls, which tests run in every order."""

import ctypes
import json
import random
from itertools import combinations
from typing import NamedTuple

import cudadrv as cu
from cudadrv import testing
from cudadrv._explore import Step, _library, steps
from cudadrv._explore_text import conflict

BUFFERS, STREAMS, EVENTS = 3, 3, 2
NON_BLOCKING, NO_TIMING = 1, 2
NOT_READY = 600
BYTES = 4


class Found(NamedTuple):
    """What all runs of a program have shown.

    ``runs`` is how many there were, ``results`` what the program has seen in them, and ``orders``
    the orders of their conflicting steps.
    """

    runs: int
    results: set
    orders: set
    limits: tuple
    redundant: int


class Calls:
    """A program: a list of calls such as ``("fill", stream, buffer, value)``."""

    def __init__(self, calls):
        self.calls = calls
        self.driver = ctypes.CDLL(cu.driver_info().path)

    def __call__(self):
        """Run the program once, and return what it sees: answers, and bytes at the end."""
        with cu.Device(0):
            self.streams = [self._make("cuStreamCreate", NON_BLOCKING) for _ in range(STREAMS)]
            self.events = [self._make("cuEventCreate", NO_TIMING) for _ in range(EVENTS)]
            self.buffers = [ctypes.c_uint64() for _ in range(BUFFERS)]
            for buffer in self.buffers:
                self._call("cuMemAlloc_v2", ctypes.byref(buffer), BYTES)
            seen = [self._do(*call) for call in self.calls]
            for stream in self.streams:
                self._call("cuStreamSynchronize", stream)
            bytes_ = (ctypes.c_ubyte * BYTES)()
            for buffer in self.buffers:
                self._call("cuMemcpyDtoH_v2", bytes_, buffer, BYTES)
                seen.append(bytes_[0])
                self._call("cuMemFree_v2", buffer)
            for event in self.events:
                self._call("cuEventDestroy_v2", event)
            for stream in self.streams:
                self._call("cuStreamDestroy_v2", stream)
        return tuple(answer for answer in seen if answer is not None)

    def _make(self, function, flags):
        handle = ctypes.c_void_p()
        self._call(function, ctypes.byref(handle), flags)
        return handle

    def _call(self, function, *arguments):
        status = getattr(self.driver, function)(*arguments)
        assert status in (0, NOT_READY), f"{function}: {status}"
        return status == 0

    def _do(self, kind, *arguments):
        if kind == "fill":
            stream, buffer, value = arguments
            self._call(
                *("cuMemsetD8Async", self.buffers[buffer], value, BYTES, self.streams[stream])
            )
        elif kind == "copy":
            stream, target, source = arguments
            self._call(
                *("cuMemcpyDtoDAsync_v2", self.buffers[target], self.buffers[source], BYTES),
                self.streams[stream],
            )
        elif kind == "record":
            self._call("cuEventRecord", self.events[arguments[0]], self.streams[arguments[1]])
        elif kind == "wait":
            stream, event = arguments
            self._call("cuStreamWaitEvent", self.streams[stream], self.events[event], 0)
        elif kind == "synchronize":
            self._call("cuStreamSynchronize", self.streams[arguments[0]])
        elif kind == "await":
            self._call("cuEventSynchronize", self.events[arguments[0]])
        elif kind == "ask":
            return self._call("cuStreamQuery", self.streams[arguments[0]])
        elif kind == "ask event":
            return self._call("cuEventQuery", self.events[arguments[0]])
        else:
            raise ValueError(kind)
        return None


def order_of(made: list[Step]) -> frozenset:
    """Return the order of all pairs of conflicting steps. Equivalent runs have the same."""
    counts, names = {}, []
    for step in made:
        name = step.actor, step.name
        counts[name] = counts.get(name, 0) + 1
        names.append((*name, counts[name]))
    return frozenset(
        (names[one], names[other])
        for one, other in combinations(range(len(made)), 2)
        if conflict(made[one], made[other])
    )


def run_all(program, *, everything=False, most=5000):
    """Run a program in all orders, or with `everything` in all that are equivalent, too."""
    driver = _library()
    driver.cudadrvSoftExploreStart(0)
    driver.cudadrvSoftExploreBegin(None, 0)
    program()  # what the first run of all makes is not made again
    driver.cudadrvSoftExploreEnd()
    driver.cudadrvSoftExploreStart(int(everything))
    results, orders, count = set(), set(), 0
    try:
        while True:
            driver.cudadrvSoftExploreBegin(None, 0)
            result = program()
            results.add(result)
            orders.add(order_of(steps()))
            count += 1
            ended = json.loads(driver.cudadrvSoftExploreEnd())
            assert not ended["misfit"], ended["misfit"]
            if not ended["more"]:
                break
            assert count < most, "too many orders"
    finally:
        driver.cudadrvSoftExploreStop()
        testing.configure("schedule=lazy,seed=1")
    return Found(ended["runs"], results, orders, tuple(ended["limits"]), ended["redundant"])


def random_program(seed, operations):
    """Return random calls: up to this number of operations, on 3 streams, with 2 events."""
    draw = random.Random(seed)
    calls = []
    for number in range(operations):
        stream, buffer = draw.randrange(STREAMS), draw.randrange(BUFFERS)
        if draw.random() < 0.5:
            calls.append(("fill", stream, buffer, number + 1))
        else:
            calls.append(("copy", stream, buffer, draw.randrange(BUFFERS)))
        for _ in range(draw.randrange(3)):
            stream, event = draw.randrange(STREAMS), draw.randrange(EVENTS)
            kinds = ["record", "wait", "record", "wait", "synchronize", "await", "ask", "ask event"]
            kind = draw.choice(kinds)
            arguments = {
                "record": (event, stream),
                "wait": (stream, event),
                "await": (event,),
                "ask event": (event,),
            }
            calls.append((kind, *arguments.get(kind, (stream,))))
    return calls


def ordered_program(seed):
    """Return random calls with one order only: events order each pair that conflicts."""
    draw = random.Random(seed)
    calls, marks = [], 0
    writer, readers = [None] * BUFFERS, [set() for _ in range(BUFFERS)]

    def order_after(stream, others):
        nonlocal marks
        for other in sorted(others - {stream, None}, key=str):
            event, marks = marks % EVENTS, marks + 1
            calls.extend([("record", event, other), ("wait", stream, event)])

    for number in range(draw.randrange(3, 7)):
        stream, target = draw.randrange(STREAMS), draw.randrange(BUFFERS)
        order_after(stream, {writer[target], *readers[target]})
        if draw.random() < 0.5:
            calls.append(("fill", stream, target, number + 1))
        else:
            source = draw.choice([buffer for buffer in range(BUFFERS) if buffer != target])
            order_after(stream, {writer[source]})
            calls.append(("copy", stream, target, source))
            readers[source].add(stream)
        writer[target], readers[target] = stream, set()
    return calls


def without_waits(calls):
    """For each wait, yield the calls without this wait."""
    for at, call in enumerate(calls):
        if call[0] == "wait":
            yield calls[:at] + calls[at + 1 :]
