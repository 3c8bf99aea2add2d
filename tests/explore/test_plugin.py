"""`--cuda-schedule=explore` and `replay` of the pytest plugin, and `python -m cudadrv explore`."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest
from limits import PATIENCE

from tests.explore.race import RACE

ROOT = Path(__file__).resolve().parents[2]
pytest_plugins = ["pytester"]
# The processes that the tests start choose their schedules.
pytestmark = pytest.mark.parametrize("cuda_schedule", ["lazy"], indirect=True)


def test_a_wrong_result_is_found_and_told(run):
    result = run(
        "@pytest.mark.cuda_allow('races')\n"
        "def test_both(cuda_checked):\n    assert both((1, 2)) == 2\n",
        "--cuda-schedule=explore",
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*cudadrv: 2 schedules, and one of them fails*",
            "nothing orders",
            "  fill_async on Stream 'one', queued at *",
            "before",
            "  fill_async on Stream 'other', queued at *",
            "  Stream 'one' *",
            "again: pytest *--cuda-schedule=replay --cuda-script=x*",
        ]
    )


def test_a_picture_of_each_test_that_fails(run, pytester):
    text = """
@pytest.mark.parametrize("first", [1, 2])
@pytest.mark.cuda_allow("races")
def test_both(cuda_checked, first):
    assert both((first, 2)) == 2
"""
    result = run(text, "--cuda-schedule=explore", "--cuda-svg=pictures/new")
    result.assert_outcomes(failed=1, passed=1)
    (file,) = (pytester.path / "pictures" / "new").iterdir()
    assert re.fullmatch(r"test_.*\.py_test_both_explore-1.*\.svg", file.name)
    result.stdout.fnmatch_lines([f"picture: {file}"])
    assert "the order that is missing" in file.read_text()


def test_the_script_repeats_the_failure(run):
    text = (
        "@pytest.mark.cuda_allow('races')\n"
        "def test_both(cuda_checked):\n    assert both((1, 2)) == 2\n"
    )
    first = run(text, "--cuda-schedule=explore")
    script = re.search(r"--cuda-script=(\S+)", str(first.stdout))[1]
    run(text, "--cuda-schedule=replay", f"--cuda-script={script}").assert_outcomes(failed=1)
    run(text, "--cuda-schedule=replay", "--cuda-script=x").assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("x900:1", "the script has 901 choices, and the run came to *"),
        ("x9", "choice 1 of the script is option 9, and there are only *"),
    ],
)
def test_a_script_that_does_not_fit(run, script, words):
    text = "@pytest.mark.cuda_allow('races')\ndef test_both(cuda_checked):\n    both((1, 2))\n"
    result = run(text, "--cuda-schedule=replay", f"--cuda-script={script}")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"the script does not fit this test: {words}"])


def test_a_race_fails_a_test_with_right_results(run):
    result = run("def test_both(cuda_checked):\n    both((1, 1))\n", "--cuda-schedule=explore")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*the results are right, but there is a data race*"])


def test_one_schedule_is_complete(run):
    result = run(
        "def test_fill(cuda_checked):\n"
        "    buffer = cu.DeviceBuffer.zeros(4)\n"
        "    buffer.fill_async(1, cu.Stream()).wait()\n"
        "def test_nothing():\n    pass\n",
        "--cuda-schedule=explore",
    )
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["2 tests ran under 2 schedules; 2 complete"])


def test_default_streams(run):
    """A wait for the context makes no other thread call the driver."""
    text = """
@pytest.mark.parametrize("kind", ["per_thread", "legacy"])
def test_fill(cuda_checked, kind):
    stream = getattr(cu.Stream, kind)()
    with cu.DeviceBuffer.zeros(4) as buffer:
        buffer.fill_async(1, stream)
        cu.Device(0).context.synchronize()
"""
    result = run(text, "--cuda-schedule=explore")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["2 tests ran under 2 schedules; 2 complete"])


def test_the_order_in_which_a_device_waits_for_streams(run):
    """It is the same in each run, although the streams are other objects at other addresses."""
    text = """
@pytest.mark.cuda_allow("races")
def test_both(cuda_checked):
    work = cu.DeviceBuffer(64)
    streams = [cu.Stream() for _ in range(5)]
    with cu.ordering("unchecked"):
        for stream in streams:
            work.fill_async(1, stream)
    cu.Device(0).synchronize()
"""
    result = run(text, "--cuda-schedule=explore")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["1 tests ran under 120 schedules; 1 complete"])


def test_waits_with_a_timeout_are_waits(run):
    text = """
def test_waits(cuda_checked):
    stream = cu.Stream()
    buffer = cu.LockedBuffer.zeros(16)
    buffer.fill_async(1, stream).wait(timeout=30)
    buffer.fill_async(2, stream)
    stream.synchronize(timeout=30)
    buffer.fill_async(3, stream)
    stream.record().synchronize(timeout=30)
    assert buffer[0] == 3
"""
    result = run(text, "--cuda-schedule=explore")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["1 tests ran under 1 schedules; 1 complete"])


def test_without_the_race_check(run):
    """Queries have right answers, and the result is not complete."""
    text = """
from cudadrv import testing

def test_fill(cuda_checked):
    with testing.configured("races=off"):
        stream = cu.Stream()
        buffer = cu.LockedBuffer.zeros(16)
        buffer.fill_async(1, stream)
        stream.synchronize()
        assert buffer[0] == 1
"""
    result = run(text, "--cuda-schedule=explore")
    result.assert_outcomes(passed=1)
    limit = "the race check is off (races=off), which says what may run in another order"
    result.stdout.fnmatch_lines([f"*not complete: *{limit}*"])


def test_fixtures_of_modules_are_made_once(run):
    text = """
made = []

@pytest.fixture(scope="module")
def buffer():
    made.append(1)
    with cu.DeviceBuffer.zeros(4, "u1") as buffer:
        yield buffer

@pytest.mark.cuda_allow("races", "leaks")
def test_both(buffer, cuda_checked):
    found = np.empty(4, "u1")
    buffer.copy_to(found)
    assert found[0] == 0, "the bytes of the first run are back in each run"
    buffer.fill(9)
    both((1, 2))

def test_after():
    assert made == [1]
"""
    run(text, "--cuda-schedule=explore").assert_outcomes(passed=2)


def test_a_test_that_cannot_be_repeated(run):
    text = """
import itertools
calls = itertools.count()

@pytest.mark.cuda_allow("races")
def test_both(cuda_checked):
    both((1, 2))
    if next(calls) == 2:
        stream = cu.Stream()
        cu.DeviceBuffer(4).fill_async(3, stream).wait()

@pytest.mark.cuda_allow("races")
def test_grows(cuda_checked):
    stream = cu.Stream()
    for number in range(next(calls)):
        cu.DeviceBuffer(4).fill_async(3, stream).wait()
    both((1, 2))
"""
    result = run(text, "--cuda-schedule=explore", "-k", "grows")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*the test cannot be repeated: step * was *, queued at *.py:*,"
            " and is *, queued at *.py:* in a run with the same choices*"
        ]
    )


OTHERWISE = {
    "other memory": """
    stream = cu.Stream(name="first")
    buffers = [cu.DeviceBuffer.zeros(4, "u1") for _ in range(2)]
    buffers[next(runs) > 1].fill_async(6, stream)
    stream.synchronize()
    both((1, 2))
""",
    "another call": """
    stream = cu.Stream(name="first")
    buffer = cu.DeviceBuffer.zeros(4, "u1")
    if next(runs) > 1:
        buffer.fill_async(6, stream)
    else:
        buffer.view("u4").fill_async(6, stream)
    stream.synchronize()
    both((1, 2))
""",
    "more work beside it": """
    streams = [cu.Stream(name=name) for name in ("first", "second", "third")]
    buffers = [cu.DeviceBuffer(4) for _ in range(2)]
    with cu.ordering("unchecked"):
        for stream in streams[:2]:
            buffers[0].fill_async(6, stream)
        if next(runs) > 1:
            buffers[1].fill_async(6, streams[2])
    for stream in streams:
        stream.synchronize()
""",
}


@pytest.mark.parametrize("what", OTHERWISE)
def test_a_run_that_differs(run, what):
    text = (
        "import itertools\nruns = itertools.count()\n@pytest.mark.cuda_allow('races')\n"
        "def test_it(cuda_checked):"
    )
    result = run(text + OTHERWISE[what], "--cuda-schedule=explore")
    result.assert_outcomes(failed=1)
    told = re.search(r"cannot be repeated: step \d+ was fill_async.*", str(result.stdout))
    assert told, str(result.stdout)
    same = "and is the same with other memory, or beside other work, in a run with"
    assert (same in told[0]) == (what != "another call")


def test_a_test_that_ends_earlier(run):
    text = """
import itertools
calls = itertools.count()

@pytest.mark.cuda_allow("races")
def test_both(cuda_checked):
    if next(calls) < 2:
        both((1, 2))
"""
    result = run(text, "--cuda-schedule=explore")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*the test cannot be repeated: step * was fill on *, queued at *.py:*, and is the host*"]
    )


def test_several_threads(run):
    """Their calls cannot be repeated, which is no failure of the test."""
    text = """
import threading

def work():
    stream = cu.Stream()
    for _ in range(20):
        token = cu.DeviceBuffer(4).fill_async(1, stream)
        while not token.done:
            pass

@pytest.mark.cuda_allow("races")
def test_both(cuda_checked):
    both((1, 2))
    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    both((1, 2))
    for thread in threads:
        thread.join()
"""
    result = run(text, "--cuda-schedule=explore", "--cuda-explore=20,20")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*not complete: *several threads call the driver*"])


def test_hypothesis(run):
    """Its tests run under random, and the summary says so."""
    text = """
from hypothesis import HealthCheck, given, settings, strategies
from cudadrv import testing

schedules = set()

@settings(max_examples=3, suppress_health_check=list(HealthCheck), deadline=None)
@given(value=strategies.integers(0, 9))
def test_given(cuda_checked, value):
    schedules.add(testing.settings()["schedule"])
    cu.DeviceBuffer.zeros(4, "u1").fill(value)

def test_schedules(cuda_checked):
    assert schedules == {"random"}
"""
    result = run(text, "--cuda-schedule=explore")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["1 test of Hypothesis ran under the schedule random: which exam*"])


def test_a_value_that_differs(run):
    text = """
from cudadrv import testing

@pytest.mark.cuda_allow("races")
def test_both(cuda_checked):
    testing.observe(both((1, 2)))
"""
    result = run(text, "--cuda-schedule=explore")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*the value that was observed is *1*first schedule it was *2*"])
    run(text, "--cuda-schedule=lazy").assert_outcomes(passed=1)


def test_an_expected_failure(run):
    text = """
@pytest.mark.cuda_explore
@pytest.mark.cuda_allow("races")
@pytest.mark.xfail(strict=True)
def test_both(cuda_checked):
    assert both((1, 2)) == 2
"""
    run(text).assert_outcomes(xfailed=1)


def test_limits(run):
    text = """
@pytest.mark.cuda_allow("races")
def test_both(cuda_checked):
    for _ in range(4):
        both((1, 2))
"""
    result = run(text, "--cuda-schedule=explore", "--cuda-explore=3,0.5")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*test_both*: 3 schedules: not complete: *more than 3 orders*"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--cuda-explore=0,5", "--cuda-schedule=explore"], "*'0,5'; must be a number of sched*"),
        (["--cuda-schedule=explore,lazy"], "*must be all, some of*"),
        (["--cuda-script=x1"], "*belong together*"),
        (["--cuda-svg=/dev/null/pictures"], "*--cuda-svg (or cuda_svg) /dev/null/pictures: Not a*"),
        (["--cuda-schedule=replay"], "*belong together*"),
        (["--cuda-schedule=explore", "--cuda-driver=cuda"], "*explore needs the software driver*"),
    ],
)
def test_usage(run, options, words):
    result = run("def test(cuda_device): pass", *options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([words])


# ---- programs ----

PROGRAM = RACE + "import sys\nsys.exit(0 if both((1, 2)) == 2 else 5)\n"


def explore(tmp_path, code, *options):
    program = tmp_path / "program.py"
    program.write_text(code)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for name in ("CUDADRV_DRIVER", "CUDADRV_SOFTWARE", "PYTEST_CUDADRV_LIBCUDA"):
        environment.pop(name, None)
    command = [sys.executable, "-m", "cudadrv", "explore", *options]
    return subprocess.run(
        [*command, "--", sys.executable, str(program)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


def test_a_program(tmp_path):
    done = explore(tmp_path, PROGRAM, "--json", str(tmp_path / "found.json"))
    assert done.returncode == 1, done.stderr
    assert "2 schedules, and one of them fails" in done.stderr
    assert "fill_async on Stream 'one', queued at" in done.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["failure"]["exit_status"] == 5
    assert found["complete"]
    # The line that repeats it does so.
    script = found["failure"]["script"]
    for text, status in ((script, 5), ("x", 0)):
        again = subprocess.run(
            *([[sys.executable, "-m", "cudadrv", "run", "--", sys.executable, "program.py"]]),
            cwd=tmp_path,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "CUDADRV_SOFTWARE": f"schedule=replay,script={text}",
            },
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert again.returncode == status, again.stderr


def test_a_program_that_is_right(tmp_path):
    code = RACE + (
        "buffer = cu.DeviceBuffer.zeros(4)\nbuffer.fill_async(1, cu.Stream()).wait()\nprint('ok')\n"
    )
    done = explore(tmp_path, code)
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr
    assert "1 schedule: complete" in done.stderr


def test_a_program_that_never_calls(tmp_path):
    done = explore(tmp_path, "print('nothing')")
    assert done.returncode == 3
    assert "has called no CUDA function" in done.stderr


def test_the_picture_of_a_failure(tmp_path):
    done = explore(tmp_path, PROGRAM, "--svg", str(tmp_path / "found.svg"))
    assert done.returncode == 1, done.stderr
    root = ElementTree.fromstring((tmp_path / "found.svg").read_text())
    texts = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts[0] == "2 schedules, and one of them fails"
    assert {"host", "Stream 'one'", "Stream 'other'"} <= set(texts)
    assert sum("fill_async on Stream" in text for text in texts) == 2
    assert texts[-1].endswith("the order that is missing")


def test_more_orders_than_the_bound_are_drawn(tmp_path):
    code = RACE + "import sys\nsys.exit(bool(both((1, 2)) * 10 + both((1, 2)) == 11))\n"
    for seed in range(3):
        done = explore(tmp_path, code, "--max=1", f"--seed={seed * 100}", "--seconds=30")
        assert done.returncode == 1, done.stderr
        assert "1 schedule, and one of them fails" in done.stderr


def test_an_interrupt_reports_what_was_explored(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        RACE + "from pathlib import Path\nfor _ in range(6):\n    both((1, 2))\n"
        "with open('runs', 'a') as file:\n    file.write('.')\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("CUDADRV_DRIVER", None)
    with subprocess.Popen(
        [sys.executable, "-m", "cudadrv", "explore", "--", sys.executable, str(program)],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as command:
        deadline = time.monotonic() + PATIENCE
        runs = tmp_path / "runs"
        while not runs.exists() or len(runs.read_text()) < 3:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        command.send_signal(signal.SIGINT)
        _, errors = command.communicate(timeout=PATIENCE)
    assert command.returncode == 130, errors
    assert re.search(r"\d+ schedules: not complete: it was interrupted", errors), errors
    assert "Traceback" not in errors


DEADLOCK = """
import ctypes
import cudadrv as cu
driver = ctypes.CDLL(cu.driver_info().path)
one, other = cu.Stream(name="one"), cu.Stream(name="other")
flag = cu.DeviceBuffer.zeros(1, "u4", name="flag")
with cu.ordering("unchecked"):
    flag.fill_async(1, other)
    driver.cuStreamWaitValue32_v2(ctypes.c_void_p(one.handle), ctypes.c_uint64(flag.address), 1, 1)
    flag.fill_async({value}, one)
    {more}
one.synchronize()
other.synchronize()
"""


def test_a_wait_that_never_ends(tmp_path):
    """In one order, the flag is cleared before the other stream has seen it."""
    more = "flag.fill_async(0, other)"
    done = explore(tmp_path, DEADLOCK.format(value=2, more=more))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "deadlock: the host waits for work that waits for a value in memory" in done.stderr
    assert "and one of them fails" in done.stderr
    done = explore(tmp_path, DEADLOCK.format(value=2, more="pass"))
    assert done.returncode in (0, 1)
    assert "deadlock" not in done.stderr


def test_a_wait_that_never_ends_in_the_first_order(tmp_path):
    """The search goes on: the wait is over if it comes before the write."""
    code = """
import ctypes
import cudadrv as cu
driver = ctypes.CDLL(cu.driver_info().path)
one, other = cu.Stream(name="one"), cu.Stream(name="other")
flag = cu.DeviceBuffer.zeros(1, "u4", name="flag")
with cu.ordering("unchecked"):
    driver.cuStreamWaitValue32_v2(ctypes.c_void_p(one.handle), ctypes.c_uint64(flag.address), 0, 1)
    driver.cuStreamWriteValue32_v2(
        ctypes.c_void_p(other.handle), ctypes.c_uint64(flag.address), 1, 0)
other.synchronize()
one.synchronize()
"""
    done = explore(tmp_path, code)
    assert done.returncode == 1
    assert "deadlock: the host waits for work that waits for a value in memory" in done.stderr
    assert "2 schedules, and one of them fails" in done.stderr, done.stderr


@pytest.mark.parametrize("option", ["--max=0", "--seconds=0", "--much=1", "--seed=-1"])
def test_bad_options(tmp_path, option):
    done = explore(tmp_path, "pass", option)
    assert done.returncode == 2
    assert "usage: python -m cudadrv explore" in done.stderr


def test_an_interrupt_in_pytest(run, pytester):
    text = """
import os
import signal

runs = []

@pytest.mark.cuda_allow("races")
def test_both(cuda_checked):
    runs.append(1)
    if len(runs) == 4:
        os.kill(os.getpid(), signal.SIGINT)
    for _ in range(4):
        both((1, 2))
"""
    result = run(text, "--cuda-schedule=explore")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(["*::test_both*: 2 schedules: not complete: it was interrupted*"])


def test_pytest_as_the_command(tmp_path):
    test = tmp_path / "test_it.py"
    test.write_text(
        RACE
        + "@pytest.mark.cuda_allow('races')\ndef test_both(cuda_checked):\n"
        + "    assert both((1, 2)) == 2\n"
    )
    done = subprocess.run(
        [
            *(sys.executable, "-m", "cudadrv", "explore", "--svg", "my pictures"),
            *("--", sys.executable, "-m", "pytest"),
            *("-p", "no:benchmark", "-p", "no:cacheprovider", "-p", "pytest_cudadrv", str(test)),
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 1
    assert "2 schedules, and one of them fails" in done.stdout, done.stdout + done.stderr
    assert len(list((tmp_path / "my pictures").iterdir())) == 1
