"""Every public method of every class against every other one on the same object, in two threads.

    make pairs ARGS="--kinds device stream --rounds 20 --moments some"

A call also runs while an object on which its own object depends is closed. Each call has to do what
it says or be refused. Then the object can be closed, nothing leaks, the race detector is silent,
and nothing hangs. The second call also runs at the driver calls of the first one (windows.py). Each
kind of object has a process of its own, so that a crash belongs to one pair. A failure names its
pair, which `--kinds` and `--pair` repeat.
"""

import argparse
import faulthandler
import itertools
import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from rows import KINDS, MOVES, REFUSED_ALONE, World, close, is_refusal, rows_of
from windows import Case, Moments, Second, interposed, outcome

import cudadrv as cu
from cudadrv import testing
from cudadrv._leftovers import Leftovers, clean_device

SECONDS = 120  # a pair that takes longer hangs, even on a busy machine
MOMENTS = 6  # a call runs at a random one of the first 6 moments


# ---- in the child process ----


class Pairs:
    """The pairs of one kind of object."""

    def __init__(self, kind: str) -> None:
        self.kind = KINDS[kind]
        self.rows = rows_of(kind)
        self.moments = Moments(Second())
        self.software = cu.driver_info().is_software
        self.said: list[str] = []  # warnings, and exceptions of destructors and threads
        sys.unraisablehook = lambda found: self.said.append(repr(found.exc_value))
        self.begin()
        self.owners = self.owners_of(self.kind.make(self.w))
        self.rows |= {row: lambda owner, w: owner.close() for row in self.owners}
        self.alone = {row: self.try_alone(row) for row in self.rows}
        self.begin()

    def begin(self) -> None:
        """Make a new world. Leftovers of an earlier world do not count."""
        self.w = World()
        self.w.pause = self.moments.pause
        self.leftovers = Leftovers(self.w.device)
        self.said.clear()
        if self.software:
            testing.forget_races()

    def owners_of(self, made: tuple[Any, ...]) -> dict[str, int]:
        """Return the rows that close an object on which the shared object depends, with the index
        of that object.
        """
        things = list(made)
        close(things[:], self.w)
        return {
            f"{type(thing).__name__}.close of its own": index
            for index, thing in enumerate(things)
            if index and not callable(thing)
        }

    def try_alone(self, row: str) -> Exception | None:
        """Make a call alone. Returns its refusal, or None."""
        things = list(self.kind.make(self.w))
        found = outcome(lambda: (self.call(row, things), None)[1])
        try:
            if isinstance(found, Exception) and not (
                isinstance(found, REFUSED_ALONE) or is_refusal(row, found)
            ):
                raise found
            close(things, self.w)
        except Exception as error:
            error.add_note(f"{row} alone: {found!r}")
            raise
        return found

    def call(self, row: str, things: list[Any]) -> Any:
        return self.rows[row](things[self.owners.get(row, 0)], self.w)

    def case(self, rows: tuple[str, str]) -> Case:
        things, kept = list(self.kind.make(self.w)), []
        first, second = (
            # The results live until both calls have ended.
            lambda row=row: kept.append((row, self.call(row, things)))
            for row in rows
        )

        def check(*results: Any) -> None:
            for row, found in zip(rows, results, strict=True):
                self.check_refusal(row, found)
            things[:1] = [found for row, found in kept if row in MOVES] or things[:1]
            kept.clear()
            close(things, self.w)

        return Case(first, second, check)

    def check_refusal(self, row: str, found: Any) -> None:
        """Raise what a call has raised, unless it is a refusal that the call may raise."""
        if found is None:
            return
        if not is_refusal(row, found) and type(found) is not type(self.alone[row]):
            raise AssertionError(f"{row} raised {found!r}") from found
        # The exception's frames refer to the object, which then could not be closed.
        found.__traceback__ = found.__context__ = found.__cause__ = None

    def run(self, rows: tuple[str, str], rounds: int, moments: str, seed: int) -> list[str]:
        """Run a pair. Returns what is wrong."""
        random = Random(f"{seed} {rows}")
        try:
            for number in range(rounds):
                self.schedule(("lazy", "random")[number % 2], number)
                self.moments.together(lambda: self.case(rows), random)
            if moments == "all":
                self.moments.each(lambda: self.case(rows))
            elif moments == "some":
                number = random.randint(1, MOMENTS)
                swap, kind = random.random() < 0.5, random.random() < 0.2
                self.moments.at(number, lambda: self.case(rows), swap=swap, of_collections=kind)
            wrong = self.leftovers.leaks()
        except Exception as error:
            wrong = [f"{error!r}", *getattr(error, "__notes__", [])]
        wrong += self.said + self.leftovers.races()
        if wrong:
            self.begin()
        return wrong

    def schedule(self, name: str, seed: int) -> None:
        if self.software:
            testing.configure(f"schedule={name},seed={seed}")


def pairs_of(rows: Any) -> list[tuple[str, str]]:
    return list(itertools.combinations_with_replacement(rows, 2))


def child(options: argparse.Namespace) -> None:
    """Run pairs from the nth one on, and print a line of JSON before each and for each failure."""
    faulthandler.enable()
    warnings.simplefilter("error")
    # Some pairs close the graph of a capture that never begins.
    warnings.filterwarnings("ignore", "graph .* was not captured: ", cu.CudaWarning)
    clean_device("schedule=lazy,seed=1", pools=True)
    if options.alone:
        for kind in options.kinds:
            done = [row for row, found in Pairs(kind).alone.items() if found is None]
            say({"kind": kind, "done": done})
        return
    pairs = Pairs(options.kinds[0])
    sys.setswitchinterval(1e-6)
    chosen = pairs_of(pairs.rows)[options.begin :: options.step]
    for index, rows in enumerate(chosen):
        if options.pair and options.pair not in (" ".join(rows), " ".join(rows[::-1])):
            continue
        faulthandler.dump_traceback_later(SECONDS, exit=True)
        say({"begun": options.begin + index * options.step, "rows": rows})
        wrong = pairs.run(rows, options.rounds, options.moments, options.seed)
        if wrong:
            say({"pair": rows, "wrong": wrong})
    sys.stdout.flush()
    os._exit(0)  # threads that failed pairs have left may never end


def say(line: dict[str, Any]) -> None:
    os.write(1, (json.dumps(line) + "\n").encode())


# ---- in the parent ----


def run_child(driver: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {"CUDADRV_SOFTWARE": "devices=2", **os.environ, "CUDADRV_DRIVER": str(driver)}
    # The package that this process has imported, which may be compiled with a sanitizer.
    environment["PYTHONPATH"] = str(Path(cu.__file__).parents[1])
    command = [sys.executable, __file__, "--child", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def failures(
    kind: str, driver: Path, arguments: Iterable[str] = (), step: int = 1
) -> Iterator[str]:
    """Run the pairs of a kind in child processes. Yields a text for each pair with a failure.

    After a crash, another child goes on with the next pair.
    """
    begin = 0
    while True:
        where = ["--kinds", kind, "--begin", str(begin), "--step", str(step)]
        child = run_child(driver, *where, *arguments)
        said = [json.loads(line) for line in child.stdout.splitlines()]
        for line in said:
            if "pair" in line:
                yield "\n  ".join([f"{kind}: {' '.join(line['pair'])}", *line["wrong"]])
        if child.returncode == 0:
            return
        begun = [line for line in said if "begun" in line]
        if not begun:
            yield f"{kind}: ended with {child.returncode} before the first pair\n{child.stderr}"
            return
        how = "hangs" if "Timeout" in child.stderr else f"ended with {child.returncode}"
        yield f"{kind}: {' '.join(begun[-1]['rows'])}\n  {how}\n{stack_of(child.stderr)}"
        begin = begun[-1]["begun"] + step


def stack_of(text: str) -> str:
    """The stacks that faulthandler or a sanitizer has printed, in the end of a child's stderr."""
    lines = [line for line in text.splitlines() if "Extension modules" not in line]
    first = [number for number, line in enumerate(lines) if "ERROR: AddressSanitizer" in line]
    return "\n".join(lines[first[0] :][:60] if first else lines[-40:])


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), help="kinds of objects")
    parser.add_argument("--rounds", type=int, default=200, help="how often a pair runs at once")
    parser.add_argument("--moments", choices=["none", "some", "all"], default="all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pair", default="", help="only this one, such as 'Token.done Token.wait'")
    parser.add_argument("--step", type=int, default=1, help="every nth pair only")
    for hidden in ("--child", "--alone"):
        parser.add_argument(hidden, action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--begin", type=int, default=0, help=argparse.SUPPRESS)
    return parser.parse_args()


def main(options: argparse.Namespace) -> int:
    os.environ.setdefault("CUDADRV_DRIVER", "software")
    arguments = []
    for name in ("rounds", "moments", "seed", "pair"):
        arguments += [f"--{name}", str(getattr(options, name))]
    count = 0
    with tempfile.TemporaryDirectory() as folder:
        driver = interposed(cu.driver_info().path, Path(folder))
        for kind in options.kinds:
            for failure in failures(kind, driver, arguments, options.step):
                print(failure, end="\n\n", flush=True)
                count += 1
    print(f"{count} pairs failed")
    return 1 if count else 0


if __name__ == "__main__":
    options = parsed()
    sys.exit(child(options) if options.child else main(options))
