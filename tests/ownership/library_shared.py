"""Random programs in several threads, which share all objects: `library.py --threads 4`.

The other random programs make one call at a time, so that the oracle knows each answer. Here
several threads make calls at once, and several answers are right. The program checks that each call
does what it says or is refused; that the host reads what the accepted writes leave in some order of
the calls; and that at the end everything can be closed, nothing leaks and no race was seen.
"""

import faulthandler
import gc
import itertools
import sys
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "threads"))

from library_threads import Worker
from pair import Disagreement
from rows import KINDS, MOVES, REFUSED_ALONE, World, close, finish, is_refusal, rows_of

import cudadrv as cu
from cudadrv._leftovers import Leftovers, clean_device, settle

THINGS = 6  # shared objects of random kinds
PARTS = 4  # number of registers in each buffer
STEPS = 60  # number of steps of each thread
SECONDS = 120  # a program that takes longer hangs, even on a busy machine
# The default pools and contexts are shared by all tests, and creating a context takes long.
LEFT_OUT = {"created context", "memory pool", "memory pools"}


class Register:
    """A part of a buffer, which is always written as a whole. Times of calls are numbers."""

    def __init__(self, part: Any, writes: dict[int, tuple[int, int]] | None = None) -> None:
        self.part = part
        # When the accepted write of each value began and ended. Zeros are written at first.
        self.writes = writes or {0: (0, 0)}

    def check(self, values: set[int], begin: int, end: int) -> None:
        """Raise if a read between two times cannot have seen these values."""
        if len(values) != 1:
            raise Disagreement(f"one read saw parts of several writes: {values}")
        (value,) = values
        if value not in self.writes or self.writes[value][0] > end:
            raise Disagreement(f"a read saw {value}, which nobody had written")
        ended = self.writes[value][1]
        for other, (began, done) in self.writes.copy().items():  # no other thread runs meanwhile
            if ended < began and done < begin:
                raise Disagreement(f"a read saw {value}, although {other} was written after it")


class SharedProgram:
    """A program of several threads."""

    def __init__(self, seed: str, policy: str, threads: int) -> None:
        self.policy, self.threads = policy, threads
        self.randoms = [Random(f"{seed}.{index}") for index in range(threads + 1)]
        self.w, self.clock = World(), itertools.count(1)
        self.values = itertools.count(1)
        random = self.randoms[threads]
        self.registers = []
        for kind in (cu.DeviceBuffer, cu.LockedBuffer, cu.UnifiedBuffer):
            parts = kind.zeros(16 * PARTS, "u4").chunks(16)
            self.registers += [Register(part) for part in parts]
        self.w.device.synchronize()
        self.leftovers = Leftovers(self.w.device)
        kinds = sorted(KINDS.keys() - LEFT_OUT)
        self.kinds = [random.choice(kinds) for _ in range(THINGS)]
        self.rows = [list(rows_of(kind).items()) for kind in self.kinds]
        self.made: list[list[Any]] = []
        self.things = [self.made_of(kind) for kind in self.kinds]
        self.calls = [0] * threads
        self.refused = 0

    def run(self) -> int:
        """Run all threads to their ends. Returns the number of calls."""
        start = threading.Barrier(self.threads)
        workers = [Worker() for _ in range(self.threads)]
        for index, worker in enumerate(workers):
            worker.start(lambda index=index: self.run_thread(index, start))
        failures = []
        for worker in workers:
            try:
                worker.finish()
            except Exception as error:
                failures.append(error)
            worker.end()
        if failures:
            raise failures[0]
        self.end()
        return sum(self.calls)

    def run_thread(self, index: int, start: threading.Barrier) -> None:
        random = self.randoms[index]
        start.wait()
        with cu.ordering(self.policy):
            for _ in range(STEPS):
                self.calls[index] += 1
                if random.random() < 0.5:
                    self.use_register(random)
                else:
                    self.use_thing(random)

    def use_register(self, random: Random) -> None:
        register, stream = random.choice(self.registers), random.choice(self.w.streams)
        value, begin = next(self.values), next(self.clock)
        try:
            if random.random() < 0.6:
                register.writes[value] = begin, sys.maxsize  # from now on, others may read it
                if isinstance(register.part, cu.HostBuffer) and random.random() < 0.3:
                    stream.call(lambda array: array.fill(value), register.part)
                else:
                    register.part.fill_async(value, stream)
                register.writes[value] = begin, next(self.clock)
            else:
                items = set(register.part.to_numpy().tolist())
                register.check(items, begin, next(self.clock))
        except cu.OwnershipError:
            self.refused += 1
            register.writes.pop(value, None)
        if random.random() < 0.2:
            with suppress(cu.CaptureError):  # another thread may capture the stream
                stream.synchronize()

    def use_thing(self, random: Random) -> None:
        number = random.randrange(THINGS)
        if random.random() < 0.1:
            with suppress(cu.OwnershipError):  # another object has the same memory
                self.things[number] = self.made_of(self.kinds[number])
        things = self.things[number]
        row, call = random.choice(self.rows[number])
        try:
            result = call(things[0], self.w)
            if row in MOVES:
                things[0] = result
        except Exception as error:
            self.refused += 1
            if not (is_refusal(row, error) or isinstance(error, REFUSED_ALONE)):
                raise Disagreement(f"{row} of {self.kinds[number]} raised {error!r}") from error

    def made_of(self, kind: str) -> list[Any]:
        """Make an object. A former object of this number stays, because threads may use it."""
        things = list(KINDS[kind].make(self.w))
        self.made.append(things)
        return things

    def end(self) -> None:
        """Close everything, check the registers, and look for what is left."""
        self.things.clear()
        for things in self.made:
            finish(things)
        while self.made:
            close(self.made.pop(), self.w)
        settle(self.w.device)
        now = next(self.clock)
        while self.registers:
            register = self.registers.pop()
            register.check(set(register.part.to_numpy().tolist()), now, now)
        gc.collect()
        wrong = self.leftovers.leaks() + self.leftovers.races()
        if wrong:
            raise Disagreement("; ".join(wrong))
        self.w.end()


def begin() -> None:
    """Prepare this process for the first program."""
    clean_device("schedule=lazy,seed=1", pools=True)
    sys.setswitchinterval(1e-6)


def run(seed: str, policy: str, threads: int) -> tuple[int, Counter[str]]:
    """Run one program. Returns its number of calls and the answers, or raises Disagreement."""
    faulthandler.dump_traceback_later(SECONDS, exit=True)
    program = SharedProgram(seed, policy, threads)
    try:
        calls = program.run()
    except Exception as error:
        about = f"{threads} threads that share {', '.join(program.kinds)}"
        raise Disagreement(f"program {seed!r}, policy {policy}, {about}:\n  {error}") from error
    faulthandler.cancel_dump_traceback_later()
    return calls, Counter(accepted=calls - program.refused, refused=program.refused)
