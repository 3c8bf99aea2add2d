"""``python -m cudadrv explore``: a command under every order of its asynchronous work."""

import argparse
import ctypes
import json
import os
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from cudadrv._environment import OBSERVED, SOFTWARE
from cudadrv._explore import (
    MOST_RUNS,
    MOST_SECONDS,
    Explored,
    FirstRunInterrupted,
    NotRepeatableError,
    Ran,
    Search,
    Step,
    Verdict,
    declared,
    most_milliseconds,
    script_of,
    steps_of,
)
from cudadrv._explore_picture import picture_of
from cudadrv._explore_process import Processes, TooSlowError
from cudadrv._explore_text import failure_as_json, told_of
from cudadrv._library import software_path
from cudadrv._run import (
    Place,
    RunError,
    opened,
    parsed,
    prepared,
    spawn_and_wait,
    write_json,
)
from cudadrv._run_report import as_text, problems, read

PROGRAM = f"python -m {__package__} explore"
FAILED, NO_RUN, INTERRUPTED_BY_USER = 1, 3, 130  # exit statuses
MEMORY = "/dev/shm"
ADDOPTS = "PYTEST_ADDOPTS"  # the variable with options for pytest


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        usage=f"{PROGRAM} [OPTIONS] [--] COMMAND [ARGS...]",
        description="Run COMMAND on the software driver under every order of its asynchronous work"
        " that it permits, up to equivalence. If COMMAND is pytest, each test is explored on its"
        " own. Another command has failed if its exit status is not 0, or if there was a data race,"
        " a hazard in a kernel, or an error in a kernel.",
        epilog="Exit status 0: nothing has failed in any order (the text says whether these were"
        " all), 1: there is an order that fails, 2: bad options, 130: Ctrl-C. With pytest: that"
        " of pytest.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--max", type=int, default=MOST_RUNS, metavar="N", help="most orders (default: 10000)"
    )
    parser.add_argument(
        "--seconds", type=float, default=MOST_SECONDS, metavar="S", help="most time (default: 60)"
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        metavar="N",
        help="of the random orders that are tried if there are more than --max",
    )
    parser.add_argument(
        "--json",
        metavar="FILE",
        help="write what was found to FILE, as JSON; with pytest: for each test",
    )
    parser.add_argument(
        "--svg",
        metavar="FILE",
        help="write a picture of a run that fails to FILE, if there is one; with pytest: the folder"
        " for a picture of each test that fails",
    )
    return parser


def explore_command(arguments: Sequence[str]) -> int:
    """Explore a command as the arguments say, and return the exit status."""
    parser = make_parser()
    options, command = parsed(parser, arguments)
    if options.max < 1 or not options.seconds > 0:
        parser.error("--max and --seconds must be more than 0")
    if options.seed < 0:
        parser.error(f"--seed is {options.seed}, and must not be negative")
    try:
        if _is_pytest(command):
            return _explore_tests(command, options)
        with opened(options.json) as file, opened(options.svg, "--svg") as drawing:
            explored = _explore_program(command, options)
            if file:
                write_json(file, _as_json(command, explored))
            if drawing:
                drawing.truncate()
                drawing.write(picture_of(explored))
    except (RunError, NotRepeatableError) as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return getattr(error, "status", FAILED)
    except FirstRunInterrupted as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return INTERRUPTED_BY_USER
    _tell(explored, command)
    if explored.interrupted:
        return INTERRUPTED_BY_USER
    return FAILED if explored.failure else 0


def _is_pytest(command: Sequence[str]) -> bool:
    words = [Path(word).name for word in command[:3]]
    return words[0] in ("pytest", "py.test") or words[1:] == ["-m", "pytest"]


def _explore_tests(command: Sequence[str], options: argparse.Namespace) -> int:
    """Let the pytest plugin explore each test."""
    ours = f"--cuda-schedule=explore --cuda-explore={options.max},{options.seconds}"
    if options.seed:
        ours += f" --cuda-seed={options.seed}"
    if options.svg:
        ours += f" --cuda-svg={shlex.quote(os.path.abspath(options.svg))}"
    if options.json:
        ours += f" --cuda-json={shlex.quote(os.path.abspath(options.json))}"
    environment = dict(os.environ)
    environment[ADDOPTS] = f"{environment.get(ADDOPTS, '')} {ours}".strip()
    return spawn_and_wait(command, environment)


class RunTooSlowError(RunError):
    """A run did not end in time, so another one would not."""


class Result(NamedTuple):
    """What a command did: its exit status, its output, and what the driver has reported."""

    status: int
    output: str
    reported: list[str]

    @property
    def verdict(self) -> Verdict:
        if self.status:
            return Verdict.FAILED
        return Verdict.RACED if self.reported else Verdict.PASSED


class Programs:
    """Runs a command once for each order, as a process of its own."""

    def __init__(self, command: Sequence[str], place: Place, folder: Path, seconds: float) -> None:
        self.driver = declared(ctypes.CDLL(software_path()))
        self.name, self.place, self.folder = command[0], place, folder
        self.command = command
        self.reports = folder / "reports"
        self.reports.mkdir()
        self.seconds = seconds
        self.processes = Processes(command, self._environment(), folder, seconds)
        self.count = 0
        self.last: Ran[Result] | None = None

    def _environment(self) -> dict[str, str]:
        settings = [
            item
            for item in self.place.environment[SOFTWARE.name].split(",")
            if item.partition("=")[0] not in ("report", "schedule", "script")
        ]
        settings.insert(0, f"milliseconds={most_milliseconds(self.seconds)}")
        return {
            **self.place.environment,
            SOFTWARE.name: ",".join(
                [*settings, f"report={self.reports}", f"explore={self.folder}"]
            ),
            OBSERVED: str(self.folder / "observed"),
            "PYTHONHASHSEED": "0",  # the order of sets must be the same in each run
        }

    def start(self) -> None:
        self.driver.cudadrvSoftExploreStart(0)
        (self.folder / "observed").unlink(missing_ok=True)

    def run(self, script: str | None, seed: int, keeps_steps: bool) -> Ran[Result]:
        self.count += 1
        for name in ("process", "others", "run", "wait"):
            (self.folder / name).unlink(missing_ok=True)
        for report in self.reports.iterdir():
            report.unlink()
        plan = self.driver.cudadrvSoftExplorePlan(script and script.encode(), seed)
        (self.folder / "plan").write_bytes(plan)
        result = self._result(plan)
        try:
            text = (self.folder / "run").read_bytes()
        except FileNotFoundError:
            raise RunError(
                f"{self.name} has called no CUDA function, or was ended in a way that runs no"
                f" exit handlers (exit status {result.status}):\n{result.output}",
                NO_RUN,
            ) from None
        keeps_steps |= result.verdict != Verdict.PASSED
        made = steps_of(self.driver.cudadrvSoftExploreRead(text)) if keeps_steps else []
        self.last = Ran(result, made, json.loads(self.driver.cudadrvSoftExploreLearn(text)))
        return self.last

    def wait(self) -> str:
        try:
            return (self.folder / "wait").read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return ""

    def _result(self, plan: bytes) -> Result:
        try:
            ended = self.processes.run()
        except TooSlowError:
            script = script_of(list(map(int, plan.split()[1 : 1 + int(plan.split()[0])])))
            wait = self.wait() or "does it wait for something that no order brings?"
            raise RunTooSlowError(
                f"the command did not end within {self.seconds:g} s"
                f" (--seconds): {wait}\n{_again(script, self.command)}",
                FAILED,
            ) from None
        processes = read(self.reports)
        found = as_text(processes, "explore") if problems(processes) else []
        return Result(ended.status, os.fsdecode(ended.output), list(found))

    def confirms(self, explored: Explored[Result]) -> bool:
        """Whether a new process does the same as the children of one process did.

        What the command has done before its first call, such as making a file or drawing a random
        number, all children have in common.
        """
        failure = explored.failure
        assert self.last is not None
        if failure is None and not explored.complete:
            return True
        script = self.last.ended["script"] if failure is None else failure.script
        former = self.run(script, 0, keeps_steps=True) if failure is None else failure
        self.processes.starts_anew()
        again = self.run(script, 0, keeps_steps=True)
        same_steps = list(map(_outline, again.steps)) == list(map(_outline, former.steps))
        return same_steps and again.value.verdict == former.value.verdict


def _outline(step: Step) -> tuple[int, list[int], str]:
    return step.actor, step.options, step.name


def _explore_program(command: Sequence[str], options: argparse.Namespace) -> Explored[Result]:
    with prepared("", command) as place, _folder_for_runs() as folder:
        runner = Programs(command, place, folder, options.seconds)
        start = time.monotonic()
        try:
            explored = _explored(runner, options)
        finally:
            runner.processes.starts_anew()
        seconds = time.monotonic() - start
        print(f"cudadrv explore: {runner.count} runs in {seconds:.1f} s", file=sys.stderr)
        return explored


@contextmanager
def _folder_for_runs() -> Iterator[Path]:
    """Make a folder in memory, if there is one: each run makes some files."""
    memory = MEMORY if os.access(MEMORY, os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="cudadrv-explore-", dir=memory))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _explored(runner: Programs, options: argparse.Namespace) -> Explored[Result]:
    def explored() -> Explored[Result]:
        search = Search(
            runner, lambda result: result.verdict, options.max, options.seconds, options.seed
        )
        return search.explore(warms_up=False)

    try:
        found = explored()
        if found.interrupted or not runner.processes.forks or runner.confirms(found):
            return found
    except RunTooSlowError:
        raise
    except (NotRepeatableError, RunError):
        if not runner.processes.forks:
            raise
    runner.processes.starts_anew()
    return explored()


def _tell(explored: Explored[Result], command: Sequence[str]) -> None:
    """Print the output of the first run, or of one that failed, and what was found."""
    failure = explored.failure
    result = explored.value if failure is None else failure.value
    sys.stdout.write(result.output)
    sys.stdout.flush()
    print("==== cudadrv explore: software driver (not a GPU) ".ljust(80, "="), file=sys.stderr)
    print(explored.summary(), file=sys.stderr)
    if failure is None:
        return
    reported = result.reported if failure.verdict == Verdict.RACED else []
    for line in (*reported, told_of(failure), _again(failure.script, command)):
        print(line, file=sys.stderr)


def _again(script: str, command: Sequence[str]) -> str:
    return (
        f"again: CUDADRV_SOFTWARE=schedule=replay,script={script}"
        f" python -m cudadrv run -- {shlex.join(command)}"
    )


def _as_json(command: Sequence[str], explored: Explored[Result]) -> dict[str, Any]:
    failure = explored.failure
    return {
        "command": list(command),
        "schedules": explored.runs,
        "complete": explored.complete,
        "limits": list(explored.limits),
        "failure": failure
        and {
            **failure_as_json(failure),
            "exit_status": failure.value.status,
            "output": failure.value.output,
            "reported": failure.value.reported,
        },
    }
