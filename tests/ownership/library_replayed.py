"""Random programs in several threads, whose decisions are replayed by the oracle.

    make referee-library REPLAY=1 ARGS="--threads 4"

The programs make only calls that replay.py knows: operations, host access, loans, records, waits
and synchronizations; buffers and streams come and go. There are no graphs and no memory of other
libraries (but see library_shared.py). The library must be a build with recorded.h, which REPLAY
makes.
"""

import ctypes
import faulthandler
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "threads"))

import numpy as np
import replay
from library_threads import Worker
from pair import Disagreement
from rows import World
from session import WORK

import cudadrv as cu
from cudadrv import _engine, testing

PARTS = 3  # number of parts of each buffer
CLOSABLE = 3  # buffers of each kind that the program may close
STEPS = 30  # number of steps of each thread
INVALID_VALUE = 1  # CUDA_ERROR_INVALID_VALUE
FAILING = [*WORK, "cuLaunchKernelEx", "cuEventRecord", "cuStreamWaitEvent"]
SECONDS = 120  # a program that takes longer hangs, even on a busy machine
ROOM = 1_000_000  # calls that a record can have
REFUSALS = (cu.OwnershipError, ValueError)  # a ValueError: the buffer is closed


class ReplayedProgram:
    """A program of several threads."""

    def __init__(self, seed: str, policy: str, threads: int) -> None:
        self.policy = policy
        self.randoms = [Random(f"{seed}.{index}") for index in range(threads)]
        self.w = World()
        self.streams = [*self.w.streams, cu.Stream(), cu.Stream.legacy()]
        self.events = [stream.record() for stream in self.w.streams]
        kinds = (cu.DeviceBuffer, cu.LockedBuffer, cu.UnifiedBuffer)
        self.parts = [part for kind in kinds for part in kind.zeros(16 * PARTS).chunks(16)]
        self.managed = [part for part in self.parts if isinstance(part, cu.UnifiedBuffer)]
        self.closable = [kind.zeros(16) for kind in kinds for _ in range(CLOSABLE)]
        self.tokens = [part.fill_async(0, self.w.stream) for part in self.parts]
        self.software = cu.driver_info().is_software
        self.calls = Counter[str]()
        self.steps = (
            [self.fill] * 6
            + [self.copy] * 4
            + [self.copy_box, self.copy_batch] * 2
            + [self.launch, self.call_function] * 2
            + [self.read] * 3
            + [self.view] * 2
            + [self.lend] * 2
            + [self.record, self.wait] * 2
            + [self.synchronize] * 2
            + [self.ask, self.close, self.replace_stream]
            + [self.discard, self.prefetch, self.make] * 2
            + [self.fail] * self.software
        )

    def run(self) -> None:
        """Run all threads to their ends."""
        start = threading.Barrier(len(self.randoms))
        workers = [Worker() for _ in self.randoms]
        for random, worker in zip(self.randoms, workers, strict=True):
            worker.start(lambda random=random: self.run_thread(random, start))
        failures = []
        for worker in workers:
            try:
                worker.finish()
            except Exception as error:
                failures.append(error)
        for worker in workers:  # the last one may be the only other thread
            worker.end()
        if failures:
            raise failures[0]

    def run_thread(self, random: Random, start: threading.Barrier) -> None:
        start.wait()
        with cu.ordering(self.policy):
            for _ in range(STEPS):
                try:
                    random.choice(self.steps)(random)
                    self.calls["accepted"] += 1
                except REFUSALS:
                    self.calls["refused"] += 1
                except cu.CudaError as error:
                    if error.status != INVALID_VALUE:
                        raise
                    self.calls["failed"] += 1

    # ---- calls ----

    def some(self, random: Random) -> Any:
        return random.choice(self.parts if random.random() < 0.8 else self.closable)

    def some_box(self, random: Random, columns: int) -> Any:
        """A box of 16 items: so many columns of 4."""
        first = random.randint(0, 4 - columns)
        return self.some(random).reshape(4, 4)[:, first : first + columns]

    def some_bytes(self, random: Random) -> Any:
        if random.random() < 0.3:
            return self.some_box(random, random.randint(1, 3))
        return self.some(random)

    def stream(self, random: Random) -> cu.Stream:
        return random.choice(self.streams)

    def fill(self, random: Random) -> None:
        token = self.some_bytes(random).fill_async(random.randrange(9), self.stream(random))
        self.tokens[random.randrange(len(self.tokens))] = token

    def copy_box(self, random: Random) -> None:
        columns = random.randint(1, 3)
        target, source = self.some_box(random, columns), self.some_box(random, columns)
        target.copy_from_async(source, self.stream(random))

    def copy_batch(self, random: Random) -> None:
        pairs: list[tuple[Any, Any]] = []
        for _ in range(random.randint(1, 4)):
            columns = random.randint(1, 3)
            if random.random() < 0.5:
                pairs.append((self.some(random), self.some(random)))
            else:
                pairs.append((self.some_box(random, columns), self.some_box(random, columns)))
        token = cu.copy_batch(pairs, self.stream(random))
        self.tokens[random.randrange(len(self.tokens))] = token

    def copy(self, random: Random) -> None:
        self.some(random).copy_from_async(self.some(random), self.stream(random))

    def launch(self, random: Random) -> None:
        self.w.kernel.launch(1, 1, self.some(random).view("f4"), stream=self.stream(random))

    def call_function(self, random: Random) -> None:
        buffer = self.some_bytes(random)
        if not isinstance(buffer, cu.DeviceBuffer):
            given = buffer if random.random() < 0.5 else cu.read(buffer)
            self.stream(random).call(np.sum, given)

    def read(self, random: Random) -> None:
        self.some(random).to_numpy()

    def view(self, random: Random) -> None:
        buffer = self.some_bytes(random)
        if not isinstance(buffer, cu.DeviceBuffer):
            with buffer.read() if random.random() < 0.5 else buffer.write():
                self.some(random).fill_async(1, self.stream(random))

    def lend(self, random: Random) -> None:
        with self.some_bytes(random).lend(self.stream(random)):
            self.some(random).fill_async(1, self.stream(random))

    def record(self, random: Random) -> None:
        self.stream(random).record(random.choice(self.events))

    def wait(self, random: Random) -> None:
        works = (*self.events, *self.tokens, *self.streams)
        self.stream(random).wait(random.choice(works))

    def synchronize(self, random: Random) -> None:
        calls = (
            self.stream(random).synchronize,
            random.choice(self.events).synchronize,
            random.choice(self.tokens).wait,
            self.w.device.synchronize,
        )
        random.choice(calls)()

    def ask(self, random: Random) -> None:
        calls = (
            lambda: self.some(random).borrowed,
            lambda: random.choice(self.tokens).done,
            lambda: random.choice(self.events).done,
            lambda: self.stream(random).done,
        )
        random.choice(calls)()

    def close(self, random: Random) -> None:
        random.choice(self.closable).close()

    def make(self, random: Random) -> None:
        """Make a buffer, often in memory of the pool, and drop another one."""
        kind = random.choice((cu.DeviceBuffer, cu.LockedBuffer, cu.UnifiedBuffer))
        made = kind(16, **({"stream": self.stream(random)} if random.random() < 0.5 else {}))
        self.closable[random.randrange(len(self.closable))] = made

    def discard(self, random: Random) -> None:
        random.choice(self.managed).discard(self.stream(random))

    def prefetch(self, random: Random) -> None:
        place = random.choice((self.w.device, "host"))
        random.choice(self.managed).prefetch(place, self.stream(random))

    def replace_stream(self, random: Random) -> None:
        self.streams[3].close()
        self.streams[3] = cu.Stream()

    def fail(self, random: Random) -> None:
        """Let the next call of a driver function fail, in whichever thread."""
        testing.fail(random.choice(FAILING), INVALID_VALUE)

    def end(self) -> None:
        """Close everything, and look for races."""
        if self.software:
            testing.configure("fault=none")
        self.w.device.synchronize()
        for thing in (*self.closable, self.streams[3]):
            thing.close()
        self.w.end()
        if self.software:
            races = testing.races()
            testing.forget_races()
            if races and self.policy != "unchecked":
                raise Disagreement("; ".join(races))


def run(seed: str, policy: str, threads: int) -> tuple[int, Counter[str]]:
    """Run one program. Returns its number of calls and the answers, or raises Disagreement."""
    faulthandler.dump_traceback_later(SECONDS, exit=True)
    program = ReplayedProgram(seed, policy, threads)
    program.w.device.synchronize()
    try:
        record = recorded(program.run)
        program.end()
        answers = replay.replay(record)
    except Disagreement as error:
        raise Disagreement(
            f"program {seed!r}, policy {policy}, {threads} threads: {error}"
        ) from None
    faulthandler.cancel_dump_traceback_later()
    return program.calls.total(), answers + program.calls


def recorded(call: Callable[[], Any]) -> Any:
    """Make a call, while all threads are idle before and after it. Returns the record of it."""
    library = ctypes.CDLL(_engine.__file__)
    with tempfile.NamedTemporaryFile() as file:
        library.recorded_begin_log(ctypes.c_uint64(ROOM))
        call()
        library.recorded_write(file.name.encode())
        return replay.read(Path(file.name))
