"""pytest plugin of cudadrv: tests of CUDA code, with or without a GPU. See docs/testing.md.

It is a module beside the package, so that pytest can load it without importing cudadrv. In a
project that does not use cudadrv, it costs nothing and changes nothing.
"""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
import warnings
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import pytest

if TYPE_CHECKING:
    import argparse

    from cudadrv import Device
    from cudadrv._leftovers import Leftovers

SCHEDULES = ("eager", "lazy", "random")
# These two run alone: a test runs either under every schedule, or under the schedule of a script.
RANDOM = SCHEDULES[-1]
EXPLORE, REPLAY = "explore", "replay"
NAMED = ("software", "cuda", "auto")  # the drivers that have a name instead of a path
REAL = "cuda"  # the "schedule" of a real driver
DRIVER = "CUDADRV_DRIVER"
# The variable with the path of the libcuda.so.1 that a run of pytest has made, for the processes
# that it starts.
LIBCUDA = "PYTEST_CUDADRV_LIBCUDA"
SETTINGS = "CUDADRV_SOFTWARE"
GUARD = "CUDADRV_GUARD"
# The variables that this plugin changes.
ENVIRONMENT = (DRIVER, LIBCUDA, SETTINGS, GUARD, "LD_LIBRARY_PATH", "LD_PRELOAD")
MARKERS = {
    "cuda_gpu": "needs a real GPU; skipped on the software driver",
    "cuda_software": "needs the software driver; skipped on a real one",
    "cuda_checks(names)": 'the checks inside kernels for the test: "race+init", "all" or "off"',
    "cuda_allow(what, ...)": 'does "leaks", "races" or "hazards" on purpose, or leaves "unfinished"'
    " work: neither fails it, nor is it warned of",
    "cuda_explore(max, seconds)": "runs under every schedule: see --cuda-schedule=explore",
}
MARKER_NAMES = tuple(marker.partition("(")[0] for marker in MARKERS)
ALLOWED = {"leaks", "races", "hazards", "unfinished"}
CHECKS = ("race", "init", "sync")
CHECKS_TEXT = "off, all, or some of race+init+sync"
LOST = (
    "The device was lost. The software driver is reset for the next test; a GPU would be lost for"
    " the rest of the process."
)
METAVARS = {
    "driver": "software|cuda|PATH",
    "seed": "N",
    "script": "SCRIPT",
    "explore": "MAX,SECONDS",
    "svg": "FOLDER",
    "json": "FILE",
}
MOST_NAMES = 10  # how many tests that lost the device are listed


class UnfinishedWorkWarning(pytest.PytestWarning):
    """A test queued work and did not wait for it, so it has not seen its errors or results."""


class Choice(NamedTuple):
    """What the command line, the environment and the settings ask for."""

    driver: str
    schedules: tuple[str, ...]
    seed: int
    require_gpu: bool
    pools: bool
    libcuda: bool
    report: bool  # --cuda-libcuda
    isolate: bool
    guard: bool
    checks: str | None
    script: str
    limits: tuple[int, float]  # of exploring a test: schedules, and seconds
    svg: Path | None  # the folder for pictures of tests that exploring has found to fail
    json: Path | None  # the file for what exploring has found
    stated: bool  # one of the options or settings about the driver was given

    def describe(self) -> str:
        if self.driver == "software":
            schedules = ",".join(self.schedules)
            return (
                f"cudadrv: software driver, schedule={schedules} seed={self.seed}{self._guarded()}"
            )
        text = (
            f"cudadrv: driver {self.driver} (on a real one, leaked buffers are found; "
            "other leaks and races are not)"
        )
        if self.checks not in (None, "off"):
            text += f"\ncudadrv: cuda_checks={self.checks} is for the software driver only"
        return text + self._guarded()

    def _guarded(self) -> str:
        return ", guard" if self.guard else ""


CHOICE = pytest.StashKey[Choice]()
USED = pytest.StashKey[bool]()
REPORTS = pytest.StashKey[Path]()
LOST_IN = pytest.StashKey[str]()
FAULT = pytest.StashKey[str | None]()
RESET = pytest.StashKey[bool]()
SCHEDULE = pytest.StashKey[str]()
GIVEN = pytest.StashKey[int]()  # how many tests of Hypothesis are not explored
LEFTOVERS = pytest.StashKey["Leftovers"]()
FAILED = pytest.StashKey[bool]()
RACED = pytest.StashKey[bool]()
USED_EARLY = pytest.StashKey[bool]()


# ---- options ----


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("cudadrv", "cudadrv: CUDA code, with or without a GPU")
    texts = {
        "driver": "software, cuda (the system's libcuda.so.1), auto, or the path of a driver; "
        "default: CUDADRV_DRIVER, or else software",
        "schedule": "eager, lazy, random, several with commas between, or all: each test runs "
        "under each; of the software driver; default: all. explore: each test runs under every "
        "order of its asynchronous work. replay: under the order of --cuda-script",
        "script": "the choices of --cuda-schedule=replay, such as x3:2-1",
        "explore": "limits of --cuda-schedule=explore for each test: number of schedules and "
        "seconds, such as 10000,60 (the default)",
        "svg": "folder for a picture of each test that exploring has found to fail: a run, and the "
        "missing wait as an arrow",
        "json": "file for what exploring has found, for each test, as JSON",
        "seed": "a number, or random for another one in each run; of the software driver; "
        "default: 1",
        "checks": f"checks inside kernels: {CHECKS_TEXT}; of the software driver; default: off",
    }
    for name, text in texts.items():
        metavar = METAVARS.get(name, "NAME")
        group.addoption(f"--cuda-{name}", metavar=metavar, help=text)
        parser.addini(f"cuda_{name}", f"default of --cuda-{name}")
    group.addoption(
        "--cuda-libcuda",
        action="store_true",
        help="for projects that do not use cudadrv: from the start, the software driver is"
        " libcuda.so.1 for all who open that; at the end, report what it has found",
    )
    parser.addini(
        "cuda_libcuda",
        "whether the software driver is libcuda.so.1 for all who open that, in this process and in"
        " those that tests start; default: true",
        type="bool",
        default=True,
    )
    group.addoption(
        "--cuda-isolate",
        action="store_true",
        help="run each test, with its fixtures, in a process of its own: a kernel that fails, or a"
        " crash, ends one test only",
    )
    parser.addini("cuda_isolate", "as --cuda-isolate", type="bool")
    group.addoption(
        "--cuda-guard",
        action="store_true",
        help="protect pages of page-locked buffers while GPU work uses them: an access that is too"
        " early, also of C code or of a kept address, ends the process with a message",
    )
    parser.addini("cuda_guard", "as --cuda-guard", type="bool")
    group.addoption(
        "--cuda-no-pools",
        action="store_true",
        help="memory comes from the driver, in exactly the size that was asked for, so that an "
        "access behind the end of a buffer is found",
    )
    parser.addini("cuda_no_pools", "as --cuda-no-pools", type="bool")
    group.addoption(
        "--cuda-require-gpu",
        action="store_true",
        help="tests that need a GPU fail where there is none; also by CUDADRV_REQUIRE_GPU=1",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Select the driver before a conftest.py can open another one."""
    _start(early_config, early_config.known_args_namespace)


def pytest_configure(config: pytest.Config) -> None:
    for marker, text in MARKERS.items():
        config.addinivalue_line("markers", f"{marker}: {text}")
    if CHOICE not in config.stash:  # the plugin was loaded by a conftest.py that names it
        _start(config, config.option)
    if config.stash[CHOICE].guard:
        _let_guards_write(config)
    # A worker of pytest-xdist takes the seed of the main process, if that has this plugin.
    seed = getattr(config, "workerinput", {}).get("cuda_seed")
    if seed is not None:
        config.stash[CHOICE] = config.stash[CHOICE]._replace(seed=seed)


def _start(config: pytest.Config, options: argparse.Namespace) -> None:
    _restore_environment_later(config)
    choice = config.stash[CHOICE] = _choose(config, options)
    if choice.stated:
        _use(config)


def _restore_environment_later(config: pytest.Config) -> None:
    former = {name: os.environ.get(name) for name in ENVIRONMENT}

    def restore() -> None:
        for name, value in former.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    config.add_cleanup(restore)


def _let_guards_write(config: pytest.Config) -> None:
    """Let the message of a page guard go to standard error, which pytest captures during tests."""
    from cudadrv._guard import write_to

    error = os.dup(2)  # pytest does not capture it now
    write_to(error)

    def restore() -> None:
        write_to(2)
        os.close(error)

    config.add_cleanup(restore)


def _are_checks(text: object) -> bool:
    """Whether this is a value of the setting `checks`."""
    return text in ("off", "all") or (isinstance(text, str) and set(text.split("+")) <= {*CHECKS})


def _requires_gpu(options: argparse.Namespace) -> bool:
    return bool(options.cuda_require_gpu) or os.environ.get("CUDADRV_REQUIRE_GPU") == "1"


def _choose(config: pytest.Config, options: argparse.Namespace) -> Choice:
    def asked(name: str) -> str | None:
        return getattr(options, f"cuda_{name}") or config.getini(f"cuda_{name}") or None

    told = os.environ.get(DRIVER)
    if told and told == os.environ.get(LIBCUDA):  # set by the run that started this process
        told = "software"
    require = _requires_gpu(options)
    driver = (
        options.cuda_driver or told or ("cuda" if require else None) or config.getini("cuda_driver")
    )
    if driver and driver not in NAMED and os.sep not in driver:
        _refuse("driver", driver, "software, cuda, auto, or a path with a '/' in it")
    schedule = asked("schedule")
    schedules = tuple((schedule or "all").replace("all", ",".join(SCHEDULES)).split(","))
    if not set(schedules) <= set(SCHEDULES) and schedules not in ((EXPLORE,), (REPLAY,)):
        _refuse("schedule", schedule, "all, some of eager,lazy,random, or explore or replay alone")
    script = asked("script")
    if (script is not None) != (schedules == (REPLAY,)):
        raise pytest.UsageError("--cuda-schedule=replay and --cuda-script belong together")
    limits = _limits(asked("explore"))
    seed = asked("seed")
    if seed == "random":
        import secrets

        seed = str(secrets.randbelow(2**32))
    if seed and not (seed.isascii() and seed.isdigit() and int(seed) < 2**64):
        _refuse("seed", seed, "random, or a number from 0 to 2**64-1")
    checks = asked("checks")
    if checks and not _are_checks(checks):
        _refuse("checks", checks, CHECKS_TEXT)
    if options.cuda_checks not in (None, "off") and driver == "cuda":
        _refuse_checks(options.cuda_checks, driver)
    report = bool(options.cuda_libcuda)
    if report and (driver or "software") != "software":
        raise pytest.UsageError(
            f"--cuda-libcuda is about the software driver, and the driver is {driver!r}: leave out"
            f" --cuda-driver, cuda_driver and {DRIVER}"
        )
    isolate = bool(options.cuda_isolate or config.getini("cuda_isolate"))
    if isolate and getattr(options, "usepdb", False):
        raise pytest.UsageError("--cuda-isolate runs tests in other processes: --pdb cannot work")
    guard = bool(options.cuda_guard or config.getini("cuda_guard"))
    return Choice(
        driver or "software",
        tuple(dict.fromkeys(schedules)),
        int(seed or 1),
        require,
        not (options.cuda_no_pools or config.getini("cuda_no_pools")),
        report or bool(config.getini("cuda_libcuda")),
        report,
        isolate,
        guard,
        checks,
        script or "x",
        limits,
        _folder(asked("svg")),
        _file(asked("json")),
        bool(driver or schedule or seed or report or isolate or guard or checks),
    )


def _limits(text: str | None) -> tuple[int, float]:
    """Convert the limits of exploring a test."""
    most, _, seconds = (text or "10000,60").partition(",")
    try:
        limits = int(most), float(seconds or 60)
    except ValueError:
        limits = 0, 0.0
    if limits[0] < 1 or not limits[1] > 0:
        _refuse("explore", text, "a number of schedules from 1, and of seconds, such as 10000,60")
    return limits


def _folder(name: str | None) -> Path | None:
    """Make the folder for pictures, before the tests run."""
    if name is None:
        return None
    try:
        Path(name).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise pytest.UsageError(f"--cuda-svg (or cuda_svg) {name}: {error.strerror}") from None
    return Path(name).absolute()


def _file(name: str | None) -> Path | None:
    """Make the file for what exploring finds, before the tests run."""
    if name is None:
        return None
    try:
        Path(name).touch()
    except OSError as error:
        raise pytest.UsageError(f"--cuda-json (or cuda_json) {name}: {error.strerror}") from None
    return Path(name).absolute()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Give workers of pytest-xdist the same seed."""
    node.workerinput["cuda_seed"] = node.config.stash[CHOICE].seed


def _refuse(name: str, value: str | None, expected: str) -> NoReturn:
    raise pytest.UsageError(f"--cuda-{name} (or cuda_{name}) is {value!r}; must be {expected}")


def _refuse_checks(checks: str, driver: str) -> NoReturn:
    raise pytest.UsageError(
        f"--cuda-checks={checks} needs the software driver, and {driver} is a real one: use"
        " --cuda-driver=software, or leave out --cuda-checks"
    )


def _use(config: pytest.Config) -> None:
    """Select the driver for this process and for those that tests start."""
    if config.stash.get(USED, False):
        return
    config.stash[USED] = True
    choice = config.stash[CHOICE]
    os.environ[DRIVER] = choice.driver
    if choice.guard:
        os.environ[GUARD] = "1"
    if choice.report and not _inherits_reports():
        _ask_for_reports(config)
    if choice.driver == "software" and choice.libcuda:
        _be_libcuda(config)


def _be_libcuda(config: pytest.Config) -> None:
    """Let all code that opens libcuda.so.1 get the software driver that cudadrv uses."""
    from cudadrv._libcuda import lay_out, open_here, variables

    path = os.environ.get(LIBCUDA)
    if not path or not Path(path).exists():  # else the run that started this process made it
        folder = Path(tempfile.mkdtemp(prefix="pytest-cudadrv-"))
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
        path = str(lay_out(folder))
        os.environ.update(variables(Path(path), os.environ))
    open_here(Path(path))  # later dlopen calls of this SONAME return the same library
    os.environ[DRIVER] = os.environ[LIBCUDA] = path


def _inherits_reports() -> bool:
    """Whether this is a worker of pytest-xdist, whose findings the main process reports."""
    return "PYTEST_XDIST_WORKER" in os.environ and "report=" in os.environ.get(SETTINGS, "")


def _ask_for_reports(config: pytest.Config) -> None:
    """Make this process and those that it starts report what the software driver has found."""
    from cudadrv._run import NEWEST, folder_for_reports

    choice = config.stash[CHOICE]
    parent = Path(tempfile.mkdtemp(prefix="pytest-cudadrv-reports-"))
    config.add_cleanup(lambda: shutil.rmtree(parent, ignore_errors=True))
    reports = config.stash[REPORTS] = folder_for_reports(parent)
    ours = f"schedule={choice.schedules[0]},seed={choice.seed},report={reports}"
    os.environ[SETTINGS] = ",".join(filter(None, (NEWEST, os.environ.get(SETTINGS), ours)))


def pytest_report_header(config: pytest.Config) -> str | None:
    choice = config.stash[CHOICE]
    return choice.describe() if choice.stated else None


def pytest_report_collectionfinish(config: pytest.Config) -> str | None:
    choice = config.stash[CHOICE]
    told = choice.stated or not config.stash.get(USED, False)
    return None if told else choice.describe()


# ---- which tests, and how often ----


def _is_real(config: pytest.Config) -> bool:
    """Whether tests run on a real driver. For "auto" and paths, the driver is opened first."""
    driver = config.stash[CHOICE].driver
    if driver in ("software", "cuda"):
        return driver == "cuda"
    from cudadrv import CudaError, driver_info

    _use(config)
    try:
        info = driver_info()
    except (CudaError, ValueError) as error:
        raise pytest.UsageError(str(error)) from None
    checks = config.option.cuda_checks
    if not info.is_software and checks not in (None, "off"):
        _refuse_checks(checks, info.path)
    return not info.is_software


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "cuda_schedule" not in metafunc.fixturenames:
        return
    for mark in metafunc.definition.iter_markers("parametrize"):
        if "cuda_schedule" in str(mark.args[:1]):
            return  # the test chooses its schedules
    schedules = metafunc.config.stash[CHOICE].schedules
    if _is_real(metafunc.config):
        schedules = (REAL,)
    elif metafunc.definition.get_closest_marker("cuda_explore") and schedules != (REPLAY,):
        schedules = (EXPLORE,)
    elif metafunc.definition.get_closest_marker("cuda_gpu"):
        schedules = schedules[:1]  # the test will be skipped, and counted once
    if schedules == (EXPLORE,) and _chooses_examples(metafunc.function):
        schedules = (RANDOM,)
    metafunc.parametrize("cuda_schedule", schedules, indirect=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.stash[CHOICE].schedules[0] in (EXPLORE, REPLAY) and _is_real(config):
        raise pytest.UsageError(
            f"--cuda-schedule={config.stash[CHOICE].schedules[0]} needs the software driver: a GPU"
            " does not let anybody choose the order of its work"
        )
    used = False
    if config.stash[CHOICE].schedules == (EXPLORE,):
        config.stash[GIVEN] = sum(_chooses_examples(getattr(i, "obj", None)) for i in items)
    for item in items:
        used = used or "cuda_schedule" in getattr(item, "fixturenames", ())
        used = used or any(item.get_closest_marker(name) for name in MARKER_NAMES)
        for mark in item.iter_markers("cuda_allow"):
            if not mark.args or mark.kwargs or not ALLOWED.issuperset(mark.args):
                raise pytest.UsageError(
                    f'{item.nodeid}: cuda_allow takes "leaks", "races", "hazards", "unfinished", or'
                    f" several of them, not {mark.args}"
                )
        for mark in item.iter_markers("cuda_checks"):
            if len(mark.args) != 1 or mark.kwargs or not _are_checks(mark.args[0]):
                raise pytest.UsageError(
                    f"{item.nodeid}: cuda_checks takes one text ({CHECKS_TEXT}), not {mark.args}"
                )
    if used:
        _use(config)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    gpu, software = map(item.get_closest_marker, ("cuda_gpu", "cuda_software"))
    if not gpu and not software:
        return
    real = _is_real(item.config)
    if gpu and not real:
        words = "cuda_gpu: needs a real GPU, and this is the software driver"
        if item.config.stash[CHOICE].require_gpu:
            pytest.fail(f"{words}, which was forbidden (CUDADRV_REQUIRE_GPU)", pytrace=False)
        pytest.skip(f"{words} (--cuda-driver=cuda)")
    if software and real:
        pytest.skip("cuda_software: needs the software driver, and this is a real one")


# ---- fixtures ----


@pytest.fixture
def cuda_schedule(request: pytest.FixtureRequest) -> str:
    """The name of the schedule that this test runs under, or "cuda" on a real driver.

    To run a test under some schedules only, parametrize this fixture (``indirect=True``).
    """
    if _is_real(request.config):
        return REAL
    return str(getattr(request, "param", request.config.stash[CHOICE].schedules[0]))


@pytest.fixture
def cuda_device(request: pytest.FixtureRequest, cuda_schedule: str) -> Iterator[Device]:
    """Device 0 in a clean state: schedule and seed set; no unfinished work, faults or data races.

    If an error in the test loses the device, the software driver is reset for the next test.
    Processes that the test starts get the same driver, schedule and seed through the environment.
    """
    from cudadrv import ContextLostError, _leftovers, driver_info, testing

    config, node = request.config, request.node
    if driver_info().is_software != (cuda_schedule != REAL):
        pytest.fail(
            f"{driver_info().path} was opened before pytest had chosen "
            f"{config.stash[CHOICE].driver}: a module used the device when it was imported. "
            "Say which driver with --cuda-driver or cuda_driver.",
            pytrace=False,
        )
    seed = config.stash[CHOICE].seed
    node.stash[SCHEDULE] = cuda_schedule
    # The schedules explore and replay have been set for the whole test, with its fixtures.
    settings = f"schedule={cuda_schedule},seed={seed}" if _is_drawn(cuda_schedule) else ""
    mark = node.get_closest_marker("cuda_checks")
    if checks := mark.args[0] if mark else config.stash[CHOICE].checks:
        settings += f",checks={checks}"
    try:
        with pytest.MonkeyPatch.context() as patch:
            pools = config.stash[CHOICE].pools
            device = _leftovers.clean_device(settings, pools=pools)
            if cuda_schedule != REAL:
                others = os.environ.get(SETTINGS, "")
                patch.setenv(SETTINGS, ",".join(filter(None, (others, settings))))
                testing.configure(settings)
            yield device
            if not _leftovers.any_lost() or cuda_schedule == REAL:  # else the reset below is enough
                _leftovers.settle(device)
    except ContextLostError as error:
        if cuda_schedule == REAL:
            first = config.stash.setdefault(LOST_IN, node.nodeid)
            error.add_note(f"It was lost in {first}; nothing brings it back in this process.")
        raise
    finally:
        if cuda_schedule != REAL:
            node.stash[FAULT] = testing.kernel_fault()
            node.stash[RESET] = _leftovers.reset_if_lost()


@pytest.fixture
def cuda_checked(request: pytest.FixtureRequest, cuda_device: Device) -> Iterator[Device]:
    """Like `cuda_device`; fails the test for leaks and, on the software driver, races and hazards.

    Leaks are buffers and other objects that did not exist before, and still do after the end of the
    test and of the fixtures that were set up after this one. They are not searched for if the test
    failed, because its traceback keeps its variables alive.
    """
    from cudadrv._leftovers import Leftovers, any_lost

    node = request.node
    node.stash[FAILED] = node.stash[RACED] = False
    leftovers = node.stash[LEFTOVERS] = Leftovers(cuda_device)
    yield cuda_device
    del node.stash[LEFTOVERS]
    problems = []
    if not node.stash[FAILED]:
        problems = _findings(node, leftovers)
        if "leaks" not in _allowed(node) and not any_lost():
            problems += ["leaked: " + leak for leak in _leaks(node, leftovers)]
    if problems:
        pytest.fail("\n".join(problems), pytrace=False)


def _allowed(item: pytest.Item) -> set[str]:
    return {word for mark in item.iter_markers("cuda_allow") for word in mark.args}


def _leaks(item: pytest.Item, leftovers: Leftovers) -> list[str]:
    if not leftovers.finds_anything():
        return []
    if isinstance(item, pytest.Function):
        item.funcargs.clear()  # pytest still keeps the values of fixtures that have ended
    return leftovers.leaks()


def _findings(item: pytest.Item, leftovers: Leftovers) -> list[str]:
    """Return the data races, and what the checks inside kernels have found."""
    allowed = _allowed(item)
    races = [] if "races" in allowed else leftovers.races()
    return races if "hazards" in allowed else [*races, *leftovers.hazards()]


# ---- a process for each test ----


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Refuse modules that use the driver when they are imported."""
    report = yield
    config = collector.config
    if not config.stash[CHOICE].isolate or config.stash.get(USED_EARLY, False):
        return report
    if _driver_was_used():
        config.stash[USED_EARLY] = True
        report.outcome, report.result = "failed", []
        report.longrepr = (
            f"--cuda-isolate: {collector.nodeid or 'a conftest.py'} used the driver (cuInit) when"
            " it was imported. Tests run in forked processes, which cannot use CUDA then. Let a"
            " fixture do what the import does"
        )
    return report


def _driver_was_used() -> bool:
    from cudadrv._isolate import driver_was_used
    from cudadrv._library import software_path

    return any(map(driver_was_used, filter(None, (os.environ.get(LIBCUDA), software_path()))))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run a test in a process of its own, or under every schedule."""
    run = _run_of(item, nextitem)
    if run is None:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in run():
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _run_of(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Callable[[], list[pytest.TestReport]] | None:
    """Return the function that runs this test, if pytest's own way does not."""
    choice = item.config.stash[CHOICE]
    if choice.isolate:
        return lambda: _run_apart(item)
    if choice.schedules == (REPLAY,):
        return lambda: _replay(item, nextitem)
    mark = item.get_closest_marker("cuda_explore")
    if (mark is None and choice.schedules != (EXPLORE,)) or not _can_be_explored(item):
        return None
    return lambda: _explore(item, nextitem, mark)


def _run_apart(item: pytest.Item) -> list[pytest.TestReport]:
    from cudadrv._isolate import run_apart

    reports = run_apart(item)
    for report in reports:
        _add_findings(report)
    return reports


# ---- every schedule ----


def _is_drawn(schedule: str) -> bool:
    return schedule not in (REAL, EXPLORE, REPLAY)


def _can_be_explored(item: pytest.Item) -> bool:
    """Whether the test runs on the software driver, and chooses neither schedules nor examples."""
    if _is_real(item.config):
        return False
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    return parameters.get("cuda_schedule", EXPLORE) == EXPLORE and not _chooses_examples(
        getattr(item, "obj", None)
    )


def _chooses_examples(function: object) -> bool:
    """Whether it is a test of Hypothesis, which chooses examples by what the test did before."""
    return hasattr(function, "hypothesis")


def _explore(
    item: pytest.Item, nextitem: pytest.Item | None, mark: pytest.Mark | None
) -> list[pytest.TestReport]:
    from cudadrv._explore_pytest import explore_item

    most_runs, seconds = item.config.stash[CHOICE].limits
    asked = {} if mark is None else mark.kwargs
    _use(item.config)
    reports = explore_item(
        item,
        nextitem,
        asked.get("max", most_runs),
        asked.get("seconds", seconds),
        item.config.stash[CHOICE].seed,
        item.config.stash[CHOICE].svg,
    )
    for report in reports:
        if script := getattr(report, "cuda_script", None):
            report.sections.append(("cudadrv", _again(item, REPLAY, script)))
    return reports


def _replay(item: pytest.Item, nextitem: pytest.Item | None) -> list[pytest.TestReport]:
    from cudadrv._explore_pytest import replay_item

    _use(item.config)
    choice = item.config.stash[CHOICE]
    return replay_item(item, nextitem, choice.script, choice.limits[1])


def _add_findings(report: pytest.TestReport) -> None:
    """Add to the report of a failed test what the driver has reported about its process."""
    from cudadrv._isolate import findings

    folders = [s for s in os.environ.get(SETTINGS, "").split(",") if s.startswith("report=")]
    if not report.failed or not folders:
        return
    if found := findings(Path(folders[-1].partition("=")[2]), report.__dict__["cuda_pid"]):
        report.sections.append(("cudadrv: what the driver has found", "\n".join(found)))


# ---- results ----


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """Fail the test itself for a data race or a hazard, so that `xfail` works for it."""
    yield
    leftovers = item.stash.get(LEFTOVERS, None)
    if leftovers is None:
        return
    if found := _findings(item, leftovers):
        item.stash[RACED] = True
        pytest.fail("\n".join(found), pytrace=False)
    if "unfinished" not in _allowed(item):
        _warn_of(leftovers.unfinished())


def _warn_of(unfinished: list[tuple[str, str]]) -> None:
    """Warn of unfinished work at the line that queued it. It may be intended, so it is no error."""
    for what, place in unfinished:
        file, _, line = place.rpartition(":")
        warnings.warn_explicit(
            f"{what}, queued at {place}, was not waited for when the test ended: nobody has seen"
            " its errors or its results. Synchronize its stream, or wait for its token or an event"
            " after it",
            UnfinishedWorkWarning,
            file or place,
            int(line) if line.isdigit() else 0,
        )


def _loss(item: pytest.Item) -> list[str]:
    """Return texts that say how a failed test lost the device of the software driver, if it did."""
    from cudadrv import _leftovers, testing

    # The fixture stores the loss and the fault when it ends. Before that, they are looked up here.
    lost = item.stash.get(RESET, None)
    lost = _leftovers.any_lost() if lost is None else lost
    fault = item.stash.get(FAULT, None) or testing.kernel_fault()
    return ([fault] if fault else []) + ([LOST] if lost else [])


def _name_from_here(item: pytest.Item) -> str:
    """A test's name relative to the directory where pytest was called.

    pytest's own name for it is relative to the root directory.
    """
    _, colons, name = str(item.nodeid).partition("::")
    return os.path.relpath(item.path, item.config.invocation_params.dir) + colons + name


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.when == "teardown" and item.stash.get(RESET, False):
        report.__dict__["cuda_reset"] = True  # pytest-xdist sends this attribute, too
    if call.excinfo is None:
        return report
    if call.when == "call" and item.stash.get(RACED, False):
        report.__dict__["cuda_raced"] = True
    item.stash[FAILED] = True
    schedule = item.stash.get(SCHEDULE, REAL)
    if not report.failed or schedule == REAL:
        return report
    leftovers = item.stash.get(LEFTOVERS, None)
    # A race or a hazard may be why the test failed. If the failure is the race or the hazard
    # itself, it has been reported.
    told = call.when != "call" or item.stash.get(RACED, False)
    lines = [] if leftovers is None or told else _findings(item, leftovers)
    lines += _loss(item)
    if schedule != EXPLORE:  # else the script is not known yet
        lines.append(_again(item, schedule))
    if lines:
        report.sections.append(("cudadrv", "\n".join(lines)))
    return report


def _again(item: pytest.Item, schedule: str, script: str | None = None) -> str:
    """Return a line that runs a test once more in the same way."""
    choice = item.config.stash[CHOICE]
    hashes = os.environ.get("PYTHONHASHSEED", "")
    again = [
        *([f"PYTHONHASHSEED={hashes}"] if hashes.isdigit() else []),
        "pytest",
        _name_from_here(item),
        f"--cuda-driver={choice.driver}",
        f"--cuda-schedule={schedule}",
        *([f"--cuda-seed={choice.seed}"] if _is_drawn(schedule) else []),
        *([f"--cuda-script={script or choice.script}"] if schedule == REPLAY else []),
        *([f"--cuda-checks={choice.checks}"] if choice.checks else []),
        *(["--cuda-guard"] if choice.guard else []),
    ]
    return "again: " + shlex.join(again)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    _list_lost_devices(terminalreporter)
    if config.stash[CHOICE].guard:
        _list_unguarded(terminalreporter)
    _sum_up_schedules(terminalreporter)
    folder = config.stash.get(REPORTS, None)
    if folder is None:
        return
    from cudadrv._run_report import as_text, read

    processes = read(folder)
    choice = config.stash[CHOICE]
    if choice.isolate:
        from cudadrv._isolate import named

        reports = [report for group in terminalreporter.stats.values() for report in group]
        marked = [report for report in reports if hasattr(report, "cuda_pid")]
        tests = {report.cuda_pid: report.nodeid for report in marked}
        processes = named(processes, tests)
    terminalreporter.section("cudadrv: software driver (not a GPU)")
    for line in as_text(processes, f"schedule={choice.schedules[0]},seed={choice.seed}"):
        terminalreporter.line(line)


def _sum_up_schedules(terminalreporter: pytest.TerminalReporter) -> None:
    """Say of how many tests every schedule has run, and list the others."""
    reports = [report for group in terminalreporter.stats.values() for report in group]
    found = {r.nodeid: r.cuda_explored for r in reports if hasattr(r, "cuda_explored")}
    _write_found(terminalreporter.config.stash[CHOICE].json, found)
    if not found and not terminalreporter.config.stash.get(GIVEN, 0):
        return
    terminalreporter.section("cudadrv: schedules")
    if given := terminalreporter.config.stash.get(GIVEN, 0):
        terminalreporter.line(
            f"{given} test{'s' if given > 1 else ''} of Hypothesis ran under the schedule random:"
            " which examples Hypothesis chooses depends on the runs before"
        )
    runs = sum(each["runs"] for each in found.values())
    others = {name: each for name, each in found.items() if not each["complete"]}
    terminalreporter.line(
        f"{len(found)} tests ran under {runs} schedules; {len(found) - len(others)} complete"
    )
    for name, each in [*others.items()][:MOST_NAMES]:
        terminalreporter.line(f"  {name}: {each['summary']}")
    if len(others) > MOST_NAMES:
        terminalreporter.line(f"  and {len(others) - MOST_NAMES} more")


def _write_found(file: Path | None, found: dict[str, dict[str, Any]]) -> None:
    """Write what exploring has found to the file of --cuda-json."""
    if file is None:
        return
    import json

    tests = [
        {"test": name, "schedules": each["runs"], **{k: v for k, v in each.items() if k != "runs"}}
        for name, each in found.items()
    ]
    file.write_text(json.dumps({"tests": tests}, indent=1) + "\n", encoding="utf-8")


def _list_unguarded(terminalreporter: pytest.TerminalReporter) -> None:
    """List the buffers that could not be guarded. Workers of pytest-xdist do not report theirs."""
    from cudadrv._guard import unguarded

    if not (found := unguarded()):
        return
    terminalreporter.section("cudadrv: buffers without a page guard")
    for text in found[:MOST_NAMES]:
        terminalreporter.line(f"  {text}")
    if len(found) > MOST_NAMES:
        terminalreporter.line(f"  and {len(found) - MOST_NAMES} more")


def _list_lost_devices(terminalreporter: pytest.TerminalReporter) -> None:
    """List the tests that lost the device, including those that passed."""
    reports = [report for group in terminalreporter.stats.values() for report in group]
    names = [report.nodeid for report in reports if getattr(report, "cuda_reset", False)]
    if not names:
        return
    terminalreporter.section("cudadrv: lost devices")
    terminalreporter.line(
        "These tests lost the device, and the software driver was reset after each. On a GPU every"
        " test after the first of them would fail in the same process:"
    )
    for name in names[:MOST_NAMES]:
        terminalreporter.line(f"  {name}")
    if len(names) > MOST_NAMES:
        terminalreporter.line(f"  and {len(names) - MOST_NAMES} more")
