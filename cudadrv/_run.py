"""``python -m cudadrv run``: a command, with its children, on the software driver."""

import argparse
import ctypes
import errno
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, TextIO

from cudadrv._environment import DRIVER, LIBCUDA, SOFTWARE, TRACE, software_settings
from cudadrv._libcuda import lay_out, variables
from cudadrv._library import software_path
from cudadrv._run_report import as_json, as_text, problems, read

PROGRAM = f"python -m {__package__} run"
USAGE, CANNOT_EXECUTE, NOT_FOUND = 2, 126, 127  # exit statuses, as of env and timeout
SIGNALLED = 128  # plus the number of the signal, as in shells
FORWARDED = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2")
FROM_KEYS = ("SIGINT", "SIGQUIT")  # a terminal sends these to all processes in its foreground
# Python ignores these signals. The command must not ignore them, or `run -- yes | head` would not
# end.
PYTHON_IGNORES = ("SIGPIPE", "SIGXFSZ")

# The options that are settings of the software driver.
SETTINGS = {
    "schedule": ("NAME", "when work runs: eager, lazy or random"),
    "seed": ("N", "seed of all random choices"),
    "races": ("MODE", "data races: record (for the report), print, abort or off"),
    "checks": ("NAMES", "checks inside kernels: off (the default), all, or some of race+init+sync"),
    "hazards": ("MODE", "what these checks find: record, print, abort or off"),
    "devices": ("N", "number of devices, 0 to 16"),
    "driver": ("VERSION", "version of CUDA that the driver reports, such as 13.5"),
    "capability": ("X.Y", "compute capability of the devices: 9.0 or 10.0"),
    "memory": ("SIZE", "memory of each device, such as 256MiB"),
}
NEWEST = "driver=13.5"  # accepts the PTX of the newest compilers


class RunError(Exception):
    """The command was not started. ``status`` is the exit status."""

    def __init__(self, text: str, status: int = USAGE) -> None:
        super().__init__(text)
        self.status = status


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        usage=f"{PROGRAM} [OPTIONS] [--] COMMAND [ARGS...]",
        description="Run COMMAND with the software driver as libcuda.so.1, for it and all processes"
        " that it starts. At the end print to stderr what the driver has found: calls that are not"
        " supported, images that cannot run, errors in kernels, data races, hazards in kernels, and"
        " what was alive at the end.",
        epilog="CUDADRV_SOFTWARE may have other settings; options take precedence. The exit status"
        " is that of COMMAND, or 128+N if signal N ended it; 2: bad options, 126: COMMAND cannot be"
        " executed, 127: not found.",
        allow_abbrev=False,
    )
    for name, (metavar, text) in SETTINGS.items():
        parser.add_argument(f"--{name}", metavar=metavar, help=text)
    parser.add_argument("--json", metavar="FILE", help="write the whole report to FILE, as JSON")
    parser.add_argument(
        "--trace",
        metavar="FILE",
        help="let the first process that uses cudadrv write a trace for Perfetto to FILE",
    )
    parser.add_argument(
        "--error-exitcode",
        type=int,
        default=0,
        metavar="N",
        help="exit status if COMMAND succeeds, and kernel faults, data races, hazards in kernels or"
        " calls after a fork were found (default: 0)",
    )
    return parser


def split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split into options and command. The command begins after ``--``, or with the first word."""
    index = 0
    while index < len(arguments) and arguments[index].startswith("-"):
        option = arguments[index]
        if option == "--":
            return list(arguments[:index]), list(arguments[index + 1 :])
        # All options except these take a value.
        index += 1 if "=" in option or option in ("-h", "--help") else 2
    return list(arguments[:index]), list(arguments[index:])


def parsed(
    parser: argparse.ArgumentParser, arguments: Sequence[str]
) -> tuple[argparse.Namespace, list[str]]:
    """Return the options, and the command behind them."""
    given, command = split(arguments)
    options, unknown = parser.parse_known_args(given)
    if unknown:
        parser.error(f"unknown option {unknown[0]}: options of COMMAND come after it, or after --")
    if not command:
        parser.error("a COMMAND is needed: [OPTIONS] -- COMMAND [ARGS...]")
    return options, command


def run_command(arguments: Sequence[str]) -> int:
    """Run a command as the arguments say, report, and return the exit status."""
    options, command = parsed(make_parser(), arguments)
    try:
        settings = checked_settings(options)
        with (
            opened(options.json) as file,
            opened(options.trace, "--trace") as trace,
            prepared(settings, command) as place,
        ):
            if trace is not None:
                if trace.seekable():
                    trace.truncate(0)
                place.environment[TRACE.name] = os.path.abspath(options.trace)
            status = spawn_and_wait(command, place.environment)
            if trace is not None and trace.seekable() and os.fstat(trace.fileno()).st_size == 0:
                print(
                    f"{PROGRAM}: no process has used cudadrv, so {options.trace} is empty",
                    file=sys.stderr,
                )
            return report(place, file, command, settings, status, options)
    except RunError as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return error.status


def checked_settings(options: argparse.Namespace) -> str:
    """Return the settings of the environment and of the options; the options take precedence."""
    given = {name: getattr(options, name) for name in SETTINGS}
    given = {name: value for name, value in given.items() if value is not None}
    for name, value in given.items():
        if "," in value:
            raise RunError(f"--{name} {value!r}: a value has no comma")
    before = [
        item
        for item in software_settings().split(",")
        if item and item.partition("=")[0] not in {"report", *given}
    ]
    settings = ",".join([*before, *(f"{name}={value}" for name, value in given.items())])
    driver = ctypes.CDLL(software_path())
    driver.cudadrvSoftError.restype = ctypes.c_char_p
    if driver.cudadrvSoftConfigure(os.fsencode(settings)):
        raise RunError(os.fsdecode(driver.cudadrvSoftError()))
    return settings


@contextmanager
def opened(name: str | None, option: str = "--json") -> Iterator[TextIO | None]:
    """Open the file of an option before the command runs, which may take hours."""
    if name is None:
        yield None
        return
    try:
        # The file is emptied later, because the command may fail to start.
        file = os.fdopen(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666), "w")
    except OSError as error:
        raise RunError(f"{option} {name}: {error.strerror}") from None
    with file:
        yield file


class Place(NamedTuple):
    """The folder for reports, and an environment that names this folder and the driver."""

    reports: Path
    environment: dict[str, str]


@contextmanager
def prepared(settings: str, command: Sequence[str]) -> Iterator[Place]:
    """Make a folder with libcuda.so.1 for a command, and one for reports."""
    try:
        folder = Path(tempfile.mkdtemp(prefix="cudadrv-run-"))
    except OSError as error:
        raise RunError(f"no folder for temporary files: {error}") from None
    try:
        yield place_in(folder, settings, command)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def place_in(folder: Path, settings: str, command: Sequence[str]) -> Place:
    if set(str(folder)) & set(",:;"):
        raise RunError(
            f"{folder}: LD_LIBRARY_PATH and CUDADRV_SOFTWARE cannot name it; set TMPDIR to a folder"
            " without ',', ':' and ';' in its name"
        )
    library = lay_out(folder / "lib", command)
    reports = folder_for_reports(folder)
    items = settings.split(",") if settings else []
    if not any(item.startswith("driver=") for item in items):
        items.append(NEWEST)
    return Place(reports, environment(library, ",".join([*items, f"report={reports}"])))


def folder_for_reports(folder: Path) -> Path:
    """Make a folder for reports: in ``folder``, or in the folder of the run that started this
    process.

    The outer run then also reports what this run has found.
    """
    for item in software_settings().split(","):
        name, _, outer = item.partition("=")
        if name == "report" and os.access(outer, os.W_OK):
            folder = Path(outer)
    return Path(tempfile.mkdtemp(prefix="reports-", dir=folder))


def environment(library: Path, settings: str) -> dict[str, str]:
    return {
        **os.environ,
        **variables(library, os.environ),
        DRIVER.name: str(library),
        SOFTWARE.name: settings,
        LIBCUDA: str(library),  # the pytest plugin uses this library and makes none
    }


def spawn_and_wait(command: Sequence[str], environment: dict[str, str]) -> int:
    """Run a command and return its exit status. Signals to this process are forwarded."""
    child: int | None = None
    waiting: list[int] = []

    def forward(number: int, frame: FrameType | None) -> None:
        if signal.Signals(number).name in FROM_KEYS and in_foreground():
            return  # the terminal has sent it to the command, too
        if child is None:
            waiting.append(number)
        else:
            os.kill(child, number)

    with handling(forward):
        child = spawn(command, environment)
        for number in waiting:
            os.kill(child, number)
        # WNOWAIT keeps the process number in use, so that no signal goes to another process.
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code if code >= 0 else SIGNALLED - code


@contextmanager
def handling(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handle the signals that are forwarded, except those that nohup or a shell ignores."""
    numbers = [getattr(signal, name) for name in FORWARDED]
    former = {number: signal.getsignal(number) for number in numbers}
    changed = [number for number in numbers if former[number] != signal.SIG_IGN]
    for number in changed:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number in changed:
            signal.signal(number, former[number])


def in_foreground() -> bool:
    """Return whether this process is in the foreground of a terminal."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def spawn(command: Sequence[str], environment: dict[str, str]) -> int:
    defaults = [getattr(signal, name) for name in PYTHON_IGNORES]
    try:
        return os.posix_spawnp(command[0], list(command), environment, setsigdef=defaults)
    except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: an empty name
        why = "there is no such file"
        if shutil.which(command[0]):
            why = "the interpreter that its first line names was not found"
        raise RunError(f"cannot run {command[0]!r}: {why}", NOT_FOUND) from None
    except OSError as error:
        why = str(error.strerror)
        if error.errno == errno.ENOEXEC:
            why += " (a script needs a first line such as #!/bin/sh)"
        raise RunError(f"cannot run {command[0]!r}: {why}", CANNOT_EXECUTE) from None


def report(
    place: Place,
    file: TextIO | None,
    command: Sequence[str],
    settings: str,
    status: int,
    options: argparse.Namespace,
) -> int:
    """Print the report, write it as JSON, and return the exit status."""
    processes = read(place.reports)
    title = "cudadrv run: software driver (not a GPU)"
    print(f"==== {title} ".ljust(80, "="), file=sys.stderr)
    for line in as_text(processes, settings or "default settings"):
        print(line, file=sys.stderr)
    about: dict[str, Any] = {"command": command, "settings": settings, "exit_status": status}
    if file:
        try:
            write_json(file, as_json(processes, **about))
        except OSError as error:
            print(f"cudadrv run: --json {options.json}: {error.strerror}", file=sys.stderr)
            return status or 1
    return status or (options.error_exitcode if problems(processes) else 0)


def write_json(file: TextIO, content: dict[str, Any]) -> None:
    if file.seekable():
        file.truncate(0)
    json.dump(content, file, indent=1)
    file.write("\n")
    file.flush()
