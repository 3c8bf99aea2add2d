"""Runs something in every order of its asynchronous work, on the software driver.

The driver finds the orders (softdriver/explore). This module has the loop that runs them, and
describes a run that failed.
"""

import ctypes
import gc
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from cudadrv import testing
from cudadrv._buffer import reap
from cudadrv._observe import observations

Value = TypeVar("Value")

HOST_LINES = 2  # a bit of cudadrvSoftExploreStart
STRONGEST = 2**32 - 1  # the first choice of a script that lets calls wait wherever they may
MOST_RUNS = 10_000
MOST_SECONDS = 60.0
LEAST_RUNS = 10  # a failure is made shorter only if there is time for so many runs
MOST_REPLAYS = 200  # how many runs may be spent on making the script of a failure shorter
TOO_MANY_RUNS = "there are more than {} orders"
TOO_LONG = "it took more than {:g} s"
INTERRUPTED = "it was interrupted"


class NotRepeatableError(RuntimeError):
    """A test did something else in a second run with the same choices."""


class FirstRunInterrupted(KeyboardInterrupt):
    """Ctrl-C, before any run has ended. Its text says what the host waited for."""


class Step(NamedTuple):
    """One step of a run: an operation, or the host that goes on after it looked at the device.

    ``actor`` is 0 for the host, or the number of the stream; ``name`` the driver function, and
    ``what`` the operation in the words of its program, with its line; ``after`` the indices of
    earlier steps that the program has ordered before; ``reads`` and ``writes`` ranges of addresses.
    """

    actor: int
    options: list[int]
    name: str
    what: str
    stream: str
    after: list[int]
    reads: list[tuple[int, int]]
    writes: list[tuple[int, int]]


class Verdict(IntEnum):
    """How a run went. FAILED is higher than RACED: every run may report the race, but a wrong
    result shows the failing order.
    """

    PASSED = 0
    RACED = 1
    FAILED = 2


@dataclass(frozen=True)
class Failure(Generic[Value]):
    """A run that failed: its script, its return value, its steps, and the steps of a run that
    passed.

    ``verdict`` is RACED if there was a data race, and the result was right in all runs. ``cause``
    is what the driver says about the run: a wait that never ends, or nothing. ``always`` is true if
    no run has passed.
    """

    script: str
    value: Value
    steps: list[Step]
    passing: list[Step] | None
    verdict: Verdict = Verdict.FAILED
    cause: str = ""
    always: bool = False


@dataclass(frozen=True)
class Explored(Generic[Value]):
    """What exploring has found.

    ``runs`` is the number of orders that ran, up to equivalence, and ``limits`` says why there may
    be others; if it is empty, these were all. ``value`` is what the first run returned.
    """

    runs: int
    limits: tuple[str, ...]
    value: Value
    failure: Failure[Value] | None

    @property
    def interrupted(self) -> bool:
        return any(limit.startswith(INTERRUPTED) for limit in self.limits)

    @property
    def complete(self) -> bool:
        return not self.limits

    def summary(self) -> str:
        orders = f"{self.runs} schedule{'s' if self.runs != 1 else ''}"
        limits = ": complete" if self.complete else ": not complete: " + self.why()
        if self.failure is None:
            return orders + limits
        if self.failure.verdict == Verdict.RACED:
            return f"{orders}{limits}; the results are right, but there is a data race or a hazard"
        if self.failure.script.startswith("s"):
            return f"{orders}{limits}; none fails, unless calls wait that may also go on"
        if not self.failure.always:
            return orders + ", and one of them fails"
        return orders + (": all fail" if self.complete else f"{limits}; all that ran fail")

    def why(self) -> str:
        return "; ".join(self.limits)


def _library() -> ctypes.CDLL:
    return declared(testing._library())


def declared(library: ctypes.CDLL) -> ctypes.CDLL:
    """Declare the functions for exploring (softdriver/api/explore.h)."""
    library.cudadrvSoftExploreBegin.argtypes = [ctypes.c_char_p, ctypes.c_ulonglong]
    library.cudadrvSoftExploreEnd.restype = ctypes.c_char_p
    library.cudadrvSoftRun.restype = ctypes.c_char_p
    library.cudadrvSoftExplorePlan.argtypes = [ctypes.c_char_p, ctypes.c_ulonglong]
    library.cudadrvSoftExplorePlan.restype = ctypes.c_char_p
    library.cudadrvSoftExploreLearn.argtypes = [ctypes.c_char_p]
    library.cudadrvSoftExploreLearn.restype = ctypes.c_char_p
    library.cudadrvSoftExploreRead.argtypes = [ctypes.c_char_p]
    library.cudadrvSoftExploreRead.restype = ctypes.c_char_p
    return library


def steps() -> list[Step]:
    """Return the steps of the run so far, under ``schedule=replay``."""
    return steps_of(_library().cudadrvSoftRun())


def steps_of(record: bytes) -> list[Step]:
    return [Step(**step) for step in json.loads(record)["steps"]]


@dataclass(frozen=True)
class Ran(Generic[Value]):
    """A finished run: what it returned, its steps if asked for, and the driver's answer."""

    value: Value
    steps: list[Step]
    ended: dict[str, Any]


class Runner(Protocol[Value]):
    """What runs a program once."""

    def start(self) -> None: ...

    def run(self, script: str | None, seed: int, keeps_steps: bool) -> Ran[Value]:
        """Run with the search's plan, with a script, or with random choices from a seed."""

    def wait(self) -> str:
        """Return what the host waits for in the present run while nothing can run, or ""."""


class InProcess(Generic[Value]):
    """Calls a function."""

    def __init__(
        self, function: Callable[[], Value], judge: Callable[[Value], Verdict], *, lines: bool
    ) -> None:
        self.driver = _library()
        self.function, self.judge, self.lines = function, judge, lines

    def start(self) -> None:
        observations.start()
        self.driver.cudadrvSoftExploreStart(HOST_LINES if self.lines else 0)

    def run(self, script: str | None, seed: int, keeps_steps: bool) -> Ran[Value]:
        gc.collect(0)  # also frees cycles that the last run has dropped
        reap()
        observations.next_run()
        self.driver.cudadrvSoftExploreBegin(script and script.encode(), seed)
        value = self.function()
        made = steps() if keeps_steps or self.judge(value) else []
        return Ran(value, made, json.loads(self.driver.cudadrvSoftExploreEnd()))

    def wait(self) -> str:
        return str(json.loads(self.driver.cudadrvSoftRun())["wait"])


class Search(Generic[Value]):
    """One exploration."""

    def __init__(
        self,
        runner: Runner[Value],
        judge: Callable[[Value], Verdict],
        most_runs: int,
        seconds: float,
        seed: int = 0,
    ) -> None:
        self.runner, self.judge = runner, judge
        self.seed = seed  # of the last run with random choices
        self.raced: Ran[Value] | None = None  # the first run with a data race
        self.failing: Ran[Value] | None = None  # the last run that has failed
        self.found: dict[str, Any] = {}  # what the driver has said after the last planned run
        self.most_runs = most_runs
        self.seconds = seconds
        self.deadline = time.monotonic() + seconds
        self.took = 0.0  # how long the last run took
        self.waits_less = False  # whether a call has gone on where a driver may wait
        self.limits: set[str] = set()

    def explore(self, *, warms_up: bool) -> Explored[Value]:
        """Run in all orders. With `warms_up`, a run may make things for all later runs.

        If Ctrl-C interrupts this, returns what was found until then.
        """
        first = None
        try:
            self.runner.start()
            first = self.run()
            return self.explored_from(first, warms_up)
        except KeyboardInterrupt:
            wait = self.runner.wait()
            interrupted = INTERRUPTED + (f" while {wait}" if wait else "")
            if first is None:
                raise FirstRunInterrupted(f"no schedule has ended: {interrupted}") from None
            self.limits.add(interrupted)
            failure = None if self.failing is None else failure_in(self.failing)
            return self.explored(first.value, self.found or first.ended, failure)

    def explored_from(self, first: Ran[Value], warms_up: bool) -> Explored[Value]:
        if warms_up and first.ended["more"] and not self.has_failed(first):
            # Such as the fixtures of a module, and cached code.
            self.runner.start()
            first = self.run()
        if self.has_failed(first):
            return self.explored_after_failure(first)
        last = first
        while not self.has_failed(last) and last.ended["more"] and self.goes_on(last.ended):
            last = self.run()
            self.refuse_misfit(last.ended)
        found = last.ended
        while not self.has_failed(last) and self.limits and self.has_time():
            self.seed += 1
            last = self.run(seed=self.seed)
        if not self.has_failed(last) and self.waits_less and self.has_time():
            last = self.run(script_of([STRONGEST]))  # a call that waits may wait for ever
        return self.explored(first.value, found, self.failure_of(last))

    def run(
        self, script: str | None = None, *, seed: int = 0, keeps_steps: bool = False
    ) -> Ran[Value]:
        start = time.monotonic()
        ran = self.runner.run(script, seed, keeps_steps)
        self.took = time.monotonic() - start
        self.waits_less |= ran.ended["waits_less"]
        if script is None and not seed:
            self.found = ran.ended
        if self.has_failed(ran):
            self.failing = ran
        if self.raced is None and self.judge(ran.value) == Verdict.RACED:
            self.raced = ran
        return ran

    def has_failed(self, ran: Ran[Value]) -> bool:
        return self.judge(ran.value) == Verdict.FAILED or bool(ran.ended["failure"])

    def failure_of(self, last: Ran[Value]) -> Failure[Value] | None:
        if self.has_failed(last):
            return self.shortened(last)
        if self.raced is None:
            return None
        script, value, made = self.raced.ended["script"], self.raced.value, self.raced.steps
        return Failure(script, value, made, None, Verdict.RACED)

    def explored_after_failure(self, first: Ran[Value]) -> Explored[Value]:
        """The first run has failed: look for one that passes, which shows what matters."""
        last = first
        while self.has_failed(last) and last.ended["more"] and self.goes_on(last.ended):
            last = self.run(keeps_steps=True)
            self.refuse_misfit(last.ended)
        passing = None if self.has_failed(last) else last.steps
        failure = failure_in(first, passing, "x", always=passing is None)
        return self.explored(first.value, last.ended, failure)

    def explored(
        self, value: Value, ended: dict[str, Any], failure: Failure[Value] | None
    ) -> Explored[Value]:
        limits = tuple(sorted(self.limits | set(ended["limits"])))
        return Explored(ended["runs"], limits, value, failure)

    def goes_on(self, ended: Any) -> bool:
        if ended["runs"] >= self.most_runs:
            self.limits.add(TOO_MANY_RUNS.format(self.most_runs))
        elif not self.has_time():
            self.limits.add(TOO_LONG.format(self.seconds))
        return not self.limits

    def has_time(self) -> bool:
        return time.monotonic() < self.deadline

    def refuse_misfit(self, ended: Any) -> None:
        if ended["misfit"]:
            raise NotRepeatableError(
                f"the test cannot be repeated: {ended['misfit']}. What it does must depend only on"
                " its choices: not on the time, on random numbers, on other threads or on the order"
                " of sets"
            )

    def is_quick(self) -> bool:
        """Whether there is time for more runs: not if a kernel was ended because it took long."""
        return self.took * LEAST_RUNS < self.seconds

    def shortened(self, failing: Ran[Value]) -> Failure[Value]:
        """Drop choices from a failing run until no choice can be dropped."""
        choices, passing = choices_of(failing.ended["script"]), None
        position, replays = len(choices), 0
        self.deadline = time.monotonic() + self.seconds
        while position and replays < MOST_REPLAYS and self.has_time() and self.is_quick():
            position -= 1
            if not choices[position]:
                continue
            without = choices[:position]
            for attempt in (without, [*without, 0, *choices[position + 1 :]]):
                replays += 1
                tried = self.run(script_of(attempt), keeps_steps=True)
                if self.has_failed(tried):
                    failing, choices = tried, choices_of(tried.ended["script"])
                    position = min(position, len(choices))
                    break
                passing = tried.steps
        if not self.is_quick():
            return failure_in(failing, passing, script_of(choices))
        named = self.run(script_of(choices), keeps_steps=True)  # has the lines of the host's steps
        return failure_in(named if self.has_failed(named) else failing, passing, script_of(choices))


def failure_in(
    ran: Ran[Value],
    passing: list[Step] | None = None,
    script: str | None = None,
    *,
    always: bool = False,
) -> Failure[Value]:
    script = ran.ended["script"] if script is None else script
    cause = ran.ended["failure"]
    return Failure(script, ran.value, ran.steps, passing, cause=cause, always=always)


def most_milliseconds(seconds: float) -> int:
    """Return how long a kernel may run: an endless one leaves time to find a run that passes."""
    return max(1, round(seconds * 1000 / 2))


def choices_of(script: str) -> list[int]:
    """Convert a script such as ``x3:2-1`` to choices: 0, 0, 0, 2, 1."""
    choices = [STRONGEST] if script[0] == "s" else []
    for item in filter(None, script[1:].split("-")):
        firsts, _, choice = item.rpartition(":")
        choices += [0] * int(firsts or 0) + [int(choice)]
    return choices


def script_of(choices: list[int]) -> str:
    """Convert choices to a script. Choices of the first option at the end are left out."""
    items, firsts, start = [], 0, "x"
    if choices[:1] == [STRONGEST]:
        start, choices = "s", choices[1:]
    for choice in choices:
        if choice:
            items.append(f"{firsts}:{choice}" if firsts else f"{choice}")
            firsts = 0
        else:
            firsts += 1
    return start + "-".join(items)


@contextmanager
def _without_collection() -> Iterator[None]:
    """Turn automatic garbage collection off: it would free memory at another time in each run."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def explore(
    run: Callable[[], Value],
    judge: Callable[[Value], Verdict],
    *,
    most_runs: int = MOST_RUNS,
    seconds: float = MOST_SECONDS,
    saves: bool = True,
    seed: int = 0,
    lines: bool = False,
) -> Explored[Value]:
    """Call ``run`` under every order of the asynchronous work that it queues, up to equivalence.

    Stops at the first call that has failed. ``run`` must wait for its work, and must
    do the same in each call, apart from what depends on the order. Raises NotRepeatableError if it
    does not. Each run begins with the present bytes of all memory, or, unless ``saves``, with those
    that the first run saves. ``seed`` is the seed of the random orders that run after ``most_runs``
    planned ones. With ``lines``, messages about a program that is not repeatable name the lines of
    the host's steps, too, which costs some microseconds for each step.
    """
    former = testing.settings()
    testing.configure(f"milliseconds={most_milliseconds(seconds)}")
    runner = InProcess(run, judge, lines=lines)
    if saves:
        runner.driver.cudadrvSoftExploreSave()
    try:
        with _without_collection():
            return Search(runner, judge, most_runs, seconds, seed).explore(warms_up=True)
    finally:
        observations.stop()
        runner.driver.cudadrvSoftExploreStop()
        testing.configure(
            f"schedule={former['schedule']},script={former.get('script', 'x')}"
            f",milliseconds={former['milliseconds']}"
        )
