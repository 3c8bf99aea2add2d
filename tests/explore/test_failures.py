"""Each kind of failure, in an order that is not the first: with its report, and its script.

Also tests that cannot be repeated, kernels without an end, and waits that never end.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest
from limits import PATIENCE

from tests.explore.driver_calls import DRIVER_CALLS
from tests.explore.race import RACE

pytest_plugins = ["pytester"]
# The processes that the tests start choose their schedules.
pytestmark = pytest.mark.parametrize("cuda_schedule", ["lazy"], indirect=True)

EXPLORE = "--cuda-schedule=explore"
# In the first order, `both((1, 2))` returns 2.
PTX = '''
KERNELS = cu.Module(""".version 7.8
.target sm_90
.address_size 64
.visible .entry stores(.param .u64 at)
{
    .reg .b64 %rd1;
    ld.param.u64 %rd1, [at];
    st.global.u32 [%rd1], 1;
    ret;
}
.visible .entry mixes(.param .u64 at)
{
    .reg .b64 %rd1; .reg .b32 %r1;
    ld.param.u64 %rd1, [at]; mov.u32 %r1, %tid.x;
    st.global.u32 [%rd1], %r1;
    ret;
}
.visible .entry loops()
{
    again: bra again;
}
""")
'''
FAILURES = {
    "leak": (
        "kept = []\n"
        "@pytest.mark.cuda_allow('races')\n"
        "def test_it(cuda_checked):\n"
        "    if both((1, 2)) == 1:\n"
        "        kept.append(cu.DeviceBuffer(8, name='forgotten'))\n",
        "leaked: *forgotten*",
    ),
    "fault": (
        PTX + "@pytest.mark.cuda_allow('races')\n"
        "def test_it(cuda_checked):\n"
        "    address = 64 if both((1, 2)) == 1 else None\n"
        "    stream = cu.Stream()\n"
        "    if address:\n"
        "        KERNELS['stores'].launch(1, 1, np.uint64(address), stream=stream).wait()\n",
        "*kernel 'stores'*",
    ),
    "hazard": (
        PTX + "@pytest.mark.cuda_checks('race')\n"
        "@pytest.mark.cuda_allow('races')\n"
        "def test_it(cuda_checked):\n"
        "    with cu.DeviceBuffer.zeros(1, 'u4') as buffer, cu.Stream() as stream:\n"
        "        threads = 2 if both((1, 2)) == 1 else 1\n"
        "        KERNELS['mixes'].launch(1, threads, buffer, stream=stream).wait()\n",
        "*kernel 'mixes'*",
    ),
    "exception": (
        "@pytest.mark.cuda_allow('races')\ndef test_it(cuda_checked):\n    {2: 0}[both((1, 2))]\n",
        "*KeyError: *1*",
    ),
}


def output(result):
    return str(result.stdout)


def script_in(result):
    return re.search(r"--cuda-script=(\S+)", output(result))[1]


@pytest.mark.parametrize("kind", FAILURES)
def test_a_failure_in_another_order(run, kind):
    text, words = FAILURES[kind]
    result = run(text, EXPLORE)
    assert result.parseoutcomes().get("failed", 0) + result.parseoutcomes().get("errors", 0) == 1
    result.stdout.fnmatch_lines([words])
    result.stdout.fnmatch_lines(["*cudadrv: 2 schedules*"])
    script = script_in(result)
    assert script != "x"
    again = run(text, "--cuda-schedule=replay", f"--cuda-script={script}")
    assert again.ret == pytest.ExitCode.TESTS_FAILED
    again.stdout.fnmatch_lines([words])
    run(text, "--cuda-schedule=replay", "--cuda-script=x").assert_outcomes(passed=1)


def test_what_comes_after_a_fault(run):
    """The software driver is reset, and the next test is explored."""
    text, _ = FAILURES["fault"]
    result = run(text + "def test_next(cuda_checked):\n    both((1, 1))\n", EXPLORE)
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*2 schedules: complete; the results are right, but there is a*"])


# ---- tests that cannot be repeated ----

NOT_REPEATABLE = {
    # The order of a set depends on the hashes of its items. For most classes these are addresses.
    "hash order": """
import itertools
numbers = itertools.count()

class Job:
    def __init__(self, value):
        self.value, self.hash = value, (value + (next(numbers) >= 4)) % 8
    def __hash__(self):
        return self.hash

@pytest.mark.cuda_allow("races")
def test_it(cuda_checked):
    stream = cu.Stream()
    buffers = [cu.DeviceBuffer.zeros(4, "u1") for _ in range(2)]
    for job in {Job(6), Job(7)}:
        if job.value == 6:
            buffers[0].fill_async(6, stream)
        else:
            buffers[1].copy_from_async(buffers[0], stream)
    stream.synchronize()
    both((1, 2))
""",
    "time": """
import time
start = time.monotonic()

@pytest.mark.cuda_allow("races")
def test_it(cuda_checked):
    stream, buffer = cu.Stream(), cu.DeviceBuffer.zeros(4, "u1")
    for _ in range(int((time.monotonic() - start) / 1e-4)):
        buffer.fill_async(6, stream)
    stream.synchronize()
    buffer.copy_to(np.empty(4, "u1"))
    both((1, 2))
""",
    "a file": """
import pathlib

@pytest.mark.cuda_allow("races")
def test_it(cuda_checked):
    stream, buffer = cu.Stream(), cu.DeviceBuffer.zeros(4, "u1")
    with open("left behind", "a+") as file:
        file.write("x")
    for _ in range(len(pathlib.Path("left behind").read_text())):
        buffer.fill_async(6, stream)
    stream.synchronize()
    buffer.copy_to(np.empty(4, "u1"))
    both((1, 2))
""",
}


FIRST_CALL = {
    "hash order": "fill_async(6",
    "time": "synchronize()",
    "a file": "synchronize()",
}


@pytest.mark.parametrize("cause", NOT_REPEATABLE)
def test_the_first_call_that_differs(run, pytester, cause):
    """The message names both calls, each with its line."""
    result = run(NOT_REPEATABLE[cause], EXPLORE)
    result.assert_outcomes(failed=1)
    told = re.search(
        r"cannot be repeated: step \d+ was ([\w ]+?) .*?(\w+\.py:\d+), and is (.*?) in a run with",
        output(result),
    )
    assert told, output(result)
    lines = (pytester.path / told[2].partition(":")[0]).read_text().splitlines()
    assert FIRST_CALL[cause] in lines[int(told[2].partition(":")[2]) - 1]
    assert re.search(r"\w+\.py:\d+", told[3]), output(result)


SET_OF_TEXTS = """
@pytest.mark.cuda_allow("races")
def test_it(cuda_checked):
    values = [{"a": 1, "b": 2, "c": 3, "d": 4}[text] for text in {"a", "b", "c", "d"}]
    assert both(values[:2]) == values[1]
"""


def test_the_order_of_a_set_of_texts(run, monkeypatch):
    """It is the same in all runs of a process. The line that repeats a run names the seed."""
    monkeypatch.setenv("PYTHONHASHSEED", "3")
    result = run(SET_OF_TEXTS, EXPLORE)
    result.assert_outcomes(failed=1)
    assert "again: PYTHONHASHSEED=3 pytest" in output(result)
    monkeypatch.setenv("PYTHONHASHSEED", "random")
    assert "again: pytest" in output(run(SET_OF_TEXTS, EXPLORE))


# ---- kernels without an end ----

ENDLESS = (
    PTX
    + """
@pytest.mark.cuda_allow("races")
def test_it(cuda_checked):
    if both((1, 2)) == {value}:
        stream = cu.Stream()
        KERNELS["loops"].launch(1, 1, stream=stream)
        stream.synchronize()
"""
)


@pytest.mark.parametrize("value", [1, 2], ids=["in another order", "in the first order"])
def test_a_kernel_without_an_end(run, value):
    """It is stopped. The message names the kernel and the line of its launch."""
    text = ENDLESS.replace("{value}", str(value))
    start = time.monotonic()
    result = run(text, EXPLORE, "--cuda-explore=1000,2")
    assert time.monotonic() - start < PATIENCE / 2
    result.assert_outcomes(failed=1)
    line = 1 + (RACE + text).strip().splitlines().index(
        '        KERNELS["loops"].launch(1, 1, stream=stream)'
    )
    result.stdout.fnmatch_lines([f"*kernel 'loops' did not end within 1000 ms*:{line}*"])
    script = script_in(result)
    again = run(text, "--cuda-schedule=replay", f"--cuda-script={script}", "--cuda-explore=1000,2")
    again.assert_outcomes(failed=1)
    again.stdout.fnmatch_lines(["*kernel 'loops' did not end within 1000 ms*"])


# ---- processes ----

CHILD = """
import subprocess
import sys

@pytest.mark.cuda_allow("races")
def test_it(cuda_checked):
    subprocess.run([sys.executable, "-c", "{code}"], check=True)
"""


@pytest.mark.parametrize("calls", [True, False])
def test_processes_of_a_test(run, calls):
    """What they do is not explored, if they call the driver."""
    code = "import cudadrv; cudadrv.Device(0).name" if calls else "import cudadrv"
    result = run(CHILD.replace("{code}", code), EXPLORE)
    result.assert_outcomes(passed=1)
    words = "1 schedule: not complete: several processes call the driver" if calls else "1 complete"
    result.stdout.fnmatch_lines([f"*{words}*"])


# ---- JSON ----

SEVERAL = """
@pytest.mark.cuda_allow("races")
def test_fails(cuda_checked):
    assert both((1, 2)) == 2

@pytest.mark.cuda_allow("races")
def test_passes(cuda_checked):
    both((1, 2))

def test_is_not_complete(cuda_checked):
    events = cu.Event(timing=True), cu.Event(timing=True)
    with cu.Stream() as stream:
        for event in events:
            stream.record(event)
        events[1].synchronize()
        events[1].elapsed_ms(events[0])
"""


@pytest.mark.parametrize("workers", [[], ["-n", "2"]], ids=["one process", "xdist"])
def test_json(run, pytester, workers):
    if workers:
        pytest.importorskip("xdist")
    result = run(SEVERAL, EXPLORE, "--cuda-json=found.json", *workers)
    result.assert_outcomes(failed=1, passed=2)
    tests = json.loads((pytester.path / "found.json").read_text())["tests"]
    found = {test["test"].partition("::test_")[2].partition("[")[0]: test for test in tests}
    assert found.keys() == {"fails", "passes", "is_not_complete"}
    failed = found["fails"]
    assert (failed["schedules"], failed["complete"]) == (2, True)
    assert failed["failure"]["script"] == script_in(result)
    first, second = (failed["failure"]["steps"][at] for at in failed["failure"]["missing"])
    assert {"one", "other"} == {re.search(r"Stream '(\w+)'", s["what"])[1] for s in (first, second)}
    assert "nothing orders" in failed["failure"]["told"]
    assert found["passes"]["failure"] is None
    assert found["passes"]["complete"]
    (limit,) = found["is_not_complete"]["limits"]
    assert limit.startswith("the program reads the time between events")


def test_a_json_file_that_cannot_be_made(run):
    result = run("def test(cuda_device): pass", "--cuda-json=/dev/null/found.json")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--cuda-json (or cuda_json) /dev/null/found.json: Not a*"])


# ---- waits that never end, and Ctrl-C ----

WAITS = """
import ctypes

def wait_for(value, where):
    driver = ctypes.CDLL(cu.driver_info().path)
    stream = cu.Stream(name="waits")
    call = driver.cuStreamWaitValue32_v2
    call(ctypes.c_void_p(stream.handle), ctypes.c_uint64(where), value, 1)
    stream.synchronize()
"""


@pytest.mark.parametrize("memory", ["DeviceBuffer", "LockedBuffer"])
def test_a_wait_that_never_ends(run, memory):
    """In the only order. Another thread could write memory of the host, which the message says."""
    text = f"""
def test_it(cuda_device):
    with cu.{memory}.zeros(1, "u4") as flag:
        wait_for(1, flag.address)
"""
    result = run(WAITS + text, EXPLORE)
    result.assert_outcomes(failed=1)
    told = output(result)
    assert "1 schedule: all fail" in told
    assert re.search(r"deadlock: .*value: cu\w+ at \S+\.py:\d+ waits for cuStreamWaitValue32", told)
    assert ("If another thread does so" in told) == (memory == "LockedBuffer")


CALLS = {
    "a free": "driver.cuMemFree_v2(made)",
    "a copy": "driver.cuMemcpyHtoDAsync_v2(made, text, ctypes.c_size_t(4), waiting)",
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("written", ["before", "after"])
def test_a_call_that_may_wait(run, call, written):
    """The call goes on in all orders, and waits in one more run: for ever if the write is later."""
    text = f"""
import ctypes

def test_it(cuda_device):
    driver, text = ctypes.CDLL(cu.driver_info().path), b"text"
    streams = cu.Stream(), cu.Stream()
    waiting, other = (ctypes.c_void_p(stream.handle) for stream in streams)
    made = ctypes.c_uint64()
    assert driver.cuMemAlloc_v2(ctypes.byref(made), ctypes.c_size_t(64)) == 0
    with cu.DeviceBuffer.zeros(1, "u4") as flag:
        value = ctypes.c_uint64(flag.address), 1, 0
        if "{written}" == "before":
            driver.cuStreamWriteValue32_v2(other, *value)
        driver.cuStreamWaitValue32_v2(waiting, *value)
        assert {call} == 0
        if "{written}" == "after":
            driver.cuStreamWriteValue32_v2(other, *value)
        for stream in streams:
            stream.synchronize()
"""
    result = run(text, EXPLORE)
    if written == "before":
        result.assert_outcomes(passed=1)
        return
    result.assert_outcomes(failed=1, errors=1)  # the context is lost
    told = output(result)
    assert "deadlock: the host waits for work that waits for a value in memory" in told
    assert "complete; none fails, unless calls wait that may also go on" in told
    assert re.search(r"--cuda-script=s\b", told)
    again = run(text, "--cuda-schedule=replay", "--cuda-script=s")
    again.assert_outcomes(failed=1, errors=1)
    assert "assert 702 == 0" in output(again)


def test_an_interrupt_of_the_first_run(run):
    """Nothing was explored; the summary names the wait."""
    text = """
import signal
import threading

@pytest.mark.cuda_allow("races", "unfinished", "leaks")
def test_it(cuda_device):
    import ctypes
    driver = ctypes.CDLL(cu.driver_info().path)
    flag = cu.DeviceBuffer.zeros(1, "u4")
    stream = cu.Stream(name="waits")
    driver.cuStreamWaitValue32_v2(
        ctypes.c_void_p(stream.handle), ctypes.c_uint64(flag.address), 1, 1)
    threading.Timer(0.5, lambda: signal.pthread_kill(threading.main_thread().ident, 2)).start()
    stream.synchronize()
"""
    result = run(text, EXPLORE)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(["*::test_it*: no schedule has ended: it was interrupted*"])


PROGRAM = f"""
import ctypes, sys
{DRIVER_CALLS}stream = made("cuStreamCreate", 1)
"""


def start(tmp_path, code, *options):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM + code)
    names = ("CUDADRV", "PYTEST")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(names)}
    return subprocess.Popen(
        [sys.executable, "-m", "cudadrv", "explore", *options, "--", sys.executable, "program.py"],
        env={**environment, "PYTHONPATH": str(os.path.realpath("."))},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


BLOCKED = """
import threading
function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: threading.Event().wait())
call("cuLaunchHostFunc", stream, function, None)
call("cuStreamSynchronize", stream)
"""


def test_a_program_in_which_no_run_ends(tmp_path):
    """The message names the call that waits, its line, what it waits for, and the script."""
    with start(tmp_path, BLOCKED, "--seconds=6") as command:
        _, errors = command.communicate(timeout=PATIENCE)
    line = 1 + PROGRAM.splitlines().index("    status = getattr(driver, name)(*arguments)")
    assert command.returncode == 1
    assert "the command did not end within 6 s (--seconds): " in errors
    assert (
        f"cuStreamSynchronize at program.py:{line} waits for cuLaunchHostFunc on stream" in errors
    )
    assert f"queued at program.py:{line} (the function has not returned)" in errors
    assert "script=x python -m cudadrv run" in errors


def test_an_interrupt_of_the_first_run_of_a_program(tmp_path):
    with start(tmp_path, BLOCKED) as command:
        time.sleep(6)
        command.send_signal(signal.SIGINT)
        _, errors = command.communicate(timeout=PATIENCE)
    assert command.returncode == 130
    assert "Traceback" not in errors
    assert "no schedule has ended: it was interrupted while cuStreamSynchronize at " in errors
