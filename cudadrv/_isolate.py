"""``pytest --cuda-isolate``: a process for each test, so that one error ends one test only."""

import ctypes
import gc
import os
import pickle
import signal
import sys
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import pytest
from _pytest.runner import runtestprotocol

from cudadrv._run_report import Process, read_process

Warned = tuple[Warning, str, int]  # a warning with its file and line


class Result(NamedTuple):
    """What the process of a test sends to its parent before it ends."""

    reports: list[dict[str, Any]]
    warned: list[Warned]
    exit: tuple[str, int | None] | None  # the arguments of pytest.exit(), if the test called it


def driver_was_used(library: str) -> bool:
    """Return whether this process has called cuInit of a software driver.

    If so, a forked child cannot use the driver.
    """
    try:
        driver = ctypes.CDLL(library, mode=os.RTLD_NOLOAD)
        driver.cudadrvSoftCalls.restype = ctypes.c_ulonglong
    except (OSError, AttributeError):  # not loaded, or not a software driver
        return False
    return bool(driver.cudadrvSoftCalls(b"cuInit"))


def run_apart(item: pytest.Item) -> list[pytest.TestReport]:
    """Run a test with its fixtures, of all scopes, in a child of this process."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        # Python 3.12 warns of forks beside other threads, such as those of pytest-xdist. These
        # threads take no part in tests.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        os.close(reading)
        _run_here(item, writing)
    os.close(writing)
    reports = _result_of(item, child, reading)
    for report in reports:
        # pytest-xdist sends this attribute, by which the summary finds the test of a process.
        report.__dict__["cuda_pid"] = child
    return reports


def _run_here(item: pytest.Item, writing: int) -> NoReturn:
    """Run a test, write a `Result`, and end this process without running anything else."""
    status = 1
    file = open(writing, "wb")  # noqa: SIM115
    # The parent reads until nobody can write any more, so processes that the test forks must not
    # keep the file open.
    os.register_at_fork(after_in_child=file.close)
    try:
        with warnings.catch_warnings(record=True) as recorded:
            reports, left = _intercept_reports(item.config), None
            try:
                runtestprotocol(item, log=True, nextitem=None)
            except pytest.exit.Exception as error:
                left = error.msg, error.returncode
        hook = item.config.hook
        result = Result(
            [hook.pytest_report_to_serializable(config=item.config, report=r) for r in reports],
            [_portable(warning) for warning in recorded],
            left,
        )
        gc.collect()  # so that objects in cycles are not reported as alive at the end
        with file:
            pickle.dump(result, file)
        status = 0
    except KeyboardInterrupt:
        status = 128 + signal.SIGINT  # the parent has received the signal, too
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        with suppress(Exception):
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
        os._exit(status)


class _Interceptor:
    def __init__(self, reports: list[pytest.TestReport]) -> None:
        self.reports = reports

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.reports.append(report)


def _intercept_reports(config: pytest.Config) -> list[pytest.TestReport]:
    """Return a list to which all reports of this process go, and let no other plugin see them.

    Other plugins would print the reports, or send them to the main process of pytest-xdist. The
    parent does that.
    """
    reports: list[pytest.TestReport] = []
    hook = config.hook.pytest_runtest_logreport
    for implementation in hook.get_hookimpls():
        # The plugin is not unregistered, because its other hooks are needed.
        hook._remove_plugin(implementation.plugin)
    config.pluginmanager.register(_Interceptor(reports))
    return reports


def _portable(warning: warnings.WarningMessage) -> Warned:
    message = warning.message
    try:
        pickle.loads(pickle.dumps(message))
    except Exception:
        message = pytest.PytestWarning(f"{type(message).__name__}: {message}")
    assert isinstance(message, Warning)
    return message, warning.filename, warning.lineno


def _result_of(item: pytest.Item, child: int, reading: int) -> list[pytest.TestReport]:
    """Wait for the child, and return the reports of its test."""
    ended = False
    try:
        with open(reading, "rb") as file:
            content = file.read()
        status = os.waitpid(child, 0)[1]
        ended = True
    except pytest.fail.Exception as error:  # from a signal handler, such as pytest-timeout's
        return _failed(item, str(error))
    finally:  # also after Ctrl-C
        if not ended:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    try:
        result = Result(*pickle.loads(content))
    except (EOFError, pickle.UnpicklingError):
        return _failed(item, f"The process of this test {_how(status)}.")
    for message, file_name, line in result.warned:
        warnings.warn_explicit(message, type(message), file_name, line)
    if result.exit:
        pytest.exit(*result.exit)
    config = item.config
    hook = config.hook
    return [hook.pytest_report_from_serializable(config=config, data=r) for r in result.reports]


def _how(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"ended with exit status {code} before the test did"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:  # a real-time signal
        return f"was ended by signal {-code}"


def _failed(item: pytest.Item, why: str) -> list[pytest.TestReport]:
    """Make the reports of a test whose process could not make them."""
    printed: list[tuple[str, str]] = []
    capture = item.config.pluginmanager.getplugin("capturemanager")
    if capture is not None and capture.is_globally_capturing():
        for name, text in zip(("stdout", "stderr"), capture.read_global_capture(), strict=True):
            printed += [(f"Captured {name} call", text)] if text else []
    names = item.nodeid, item.location, {item.name: 1}
    return [
        pytest.TestReport(*names, "failed", why, "call", sections=printed),  # type: ignore[arg-type]
        # Some plugins count a test when it is torn down.
        pytest.TestReport(*names, "passed", None, "teardown"),  # type: ignore[arg-type]
    ]


def findings(folder: Path, pid: int) -> list[str]:
    """Return what the driver has reported about a test's process: faults, races, refused images."""
    found: list[str] = []
    for file in folder.glob(f"{pid}-*.jsonl"):
        process = read_process(file)
        if process is not None:
            found += [*process.kernel_faults, *process.data_races, *process.refused_images]
    return found


def named(processes: list[Process], tests: dict[int, str]) -> list[Process]:
    """Give the processes of tests the names of their tests."""
    return [
        process._replace(command=[tests[process.pid]]) if process.pid in tests else process
        for process in processes
    ]
