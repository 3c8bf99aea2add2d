"""Runs something in every order of its asynchronous work, on the software driver.

The driver finds the orders (softdriver/explore). Here are the loop around it, and what is told of a
run that failed.
"""

import ctypes
import gc
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, NamedTuple, TypeVar

from cudadrv import testing
from cudadrv._observe import observations

Value = TypeVar("Value")

MOST_RUNS = 10_000
MOST_SECONDS = 60.0
MOST_REPLAYS = 200  # to make the script of a failure shorter
TOO_MANY_RUNS = "there are more than {} orders"
TOO_LONG = "it took more than {:g} s"


class NotRepeatableError(RuntimeError):
    """A test did something else in a run with the same choices."""


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


class Failure(NamedTuple, Generic[Value]):
    """A run that failed: its script, what it returned, its steps, and those of one that passed."""

    script: str
    value: Value
    steps: list[Step]
    passing: list[Step] | None


class Explored(NamedTuple, Generic[Value]):
    """What exploring has found.

    ``runs`` is the number of orders that ran, up to equivalence, and ``limits`` says why there may
    be others; if it is empty, these were all. ``value`` is what the first run returned.
    """

    runs: int
    limits: tuple[str, ...]
    value: Value
    failure: Failure[Value] | None

    @property
    def complete(self) -> bool:
        return not self.limits

    def summary(self) -> str:
        orders = f"{self.runs} schedule{'s' if self.runs != 1 else ''}"
        if self.failure is not None:
            if self.failure.passing is None:
                return f"{orders}: " + ("all fail" if self.complete else "all of them fail")
            return f"{orders}, and one of them fails"
        return orders + (": complete" if self.complete else ": not complete: " + self.why())

    def why(self) -> str:
        return "; ".join(self.limits)


def _library() -> ctypes.CDLL:
    library = testing._library()
    library.cudadrvSoftExploreBegin.argtypes = [ctypes.c_char_p, ctypes.c_ulonglong]
    library.cudadrvSoftExploreEnd.restype = ctypes.c_char_p
    library.cudadrvSoftRun.restype = ctypes.c_char_p
    return library


def steps() -> list[Step]:
    """Return the steps of the run so far, under ``schedule=replay``."""
    record = json.loads(_library().cudadrvSoftRun())
    return [Step(**step) for step in record["steps"]]


class _Search(Generic[Value]):
    """One exploration. `run` runs the program once, `has_failed` judges what it returned."""

    def __init__(
        self,
        run: Callable[[], Value],
        has_failed: Callable[[Value], bool],
        most_runs: int,
        seconds: float,
    ) -> None:
        self.driver = _library()
        self.run, self.has_failed = run, has_failed
        self.most_runs = most_runs
        self.seconds = seconds
        self.deadline = time.monotonic() + seconds
        self.count = 0
        self.limits: set[str] = set()

    def once(
        self, script: str | None = None, seed: int = 0, *, keeps_steps: bool = False
    ) -> tuple[Value, list[Step] | None, Any]:
        """Run once. Returns the value, the steps if they are needed, and what the driver says."""
        observations.next_run()
        self.driver.cudadrvSoftExploreBegin(script and script.encode(), seed)
        value = self.run()
        failed = self.has_failed(value)
        made = steps() if failed or keeps_steps else None
        return value, made, json.loads(self.driver.cudadrvSoftExploreEnd())

    def explore(self) -> Explored[Value]:
        self.start()
        first, made, ended = self.once()
        if not self.has_failed(first) and not ended["more"]:
            return self.explored(first, ended)
        if not self.has_failed(first):
            # What the first run has made for later ones, such as fixtures of modules and cached
            # code, is there from now on.
            self.start()
            first, made, ended = self.once()
        if self.has_failed(first):
            return self.explored_after_failure(first, made or [], ended)
        value = first
        while not self.has_failed(value) and ended["more"] and self.goes_on(ended):
            value, made, ended = self.once()
            self.refuse_misfit(ended)
        seed = 0
        while not self.has_failed(value) and self.limits and self.has_time():
            seed += 1
            value, made, random = self.once(seed=seed)
            ended = ended | {"script": random["script"]}
        if not self.has_failed(value):
            return self.explored(first, ended)
        return self.explored(first, ended, self.shortened(value, ended["script"], made or []))

    def explored_after_failure(
        self, first: Value, failing: list[Step], ended: Any
    ) -> Explored[Value]:
        """The first run has failed: look for one that passes, which shows what matters."""
        value, passing = first, None
        while self.has_failed(value) and ended["more"] and self.goes_on(ended):
            value, passing, ended = self.once(keeps_steps=True)
            self.refuse_misfit(ended)
        if self.has_failed(value):
            passing = None
        return self.explored(first, ended, Failure("x", first, failing, passing))

    def start(self) -> None:
        observations.start()
        self.driver.cudadrvSoftExploreStart(0)

    def explored(
        self, value: Value, ended: Any, failure: Failure[Value] | None = None
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

    def shortened(self, value: Value, script: str, made: list[Step]) -> Failure[Value]:
        """Drop choices from a failing run until no choice can be dropped."""
        best, passing = choices_of(script), None
        position, replays = len(best), 0
        while position and replays < MOST_REPLAYS:
            position -= 1
            if not best[position]:
                continue
            for attempt in ([*best[:position]], [*best[:position], 0, *best[position + 1 :]]):
                replays += 1
                tried, those, ended = self.once(script_of(attempt), keeps_steps=True)
                if self.has_failed(tried):
                    value, made, script = tried, those or [], ended["script"]
                    best = choices_of(script)
                    position = min(position, len(best))
                    break
                passing = those
        return Failure(script_of(best), value, made, passing)


def choices_of(script: str) -> list[int]:
    """Convert a script such as ``x3:2-1`` to choices: 0, 0, 0, 2, 1."""
    choices: list[int] = []
    for item in filter(None, script[1:].split("-")):
        firsts, _, choice = item.rpartition(":")
        choices += [0] * int(firsts or 0) + [int(choice)]
    return choices


def script_of(choices: list[int]) -> str:
    """Convert choices to a script. Choices of the first option at the end are left out."""
    items, firsts = [], 0
    for choice in choices:
        if choice:
            items.append(f"{firsts}:{choice}" if firsts else f"{choice}")
            firsts = 0
        else:
            firsts += 1
    return "x" + "-".join(items)


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
    has_failed: Callable[[Value], bool],
    *,
    most_runs: int = MOST_RUNS,
    seconds: float = MOST_SECONDS,
) -> Explored[Value]:
    """Call ``run`` under every order of the asynchronous work that it queues, up to equivalence.

    Stops at the first call whose result ``has_failed``. ``run`` must wait for its work, and must
    do the same in each call, apart from what depends on the order. Raises NotRepeatableError if it
    does not.
    """
    former = testing.settings()
    search = _Search(run, has_failed, most_runs, seconds)
    try:
        with _without_collection():
            return search.explore()
    finally:
        observations.stop()
        search.driver.cudadrvSoftExploreStop()
        testing.configure(f"schedule={former['schedule']},script={former.get('script', 'x')}")
