"""Whatever decides in the driver is in the log of a run, or forbids "complete".

softdriver/explore/choices.def has the tables. They are compared with the sources, so that a new
draw, clock, thread or order of addresses needs a row, and each row is tested.
"""

import ctypes
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from limits import PATIENCE

import cudadrv as cu
from tests.conformance.client import SharedHandle
from tests.conformance.structures import DEVICE_LOCATION, Location, MemoryProperties
from tests.explore.calls import Calls, run_all
from tests.explore.test_choices import FUNCTION, Driver
from tests.explore.test_limits import LOOP
from tests.other_process import Other
from tests.softdriver.sanitized import compiler

pytestmark = [
    pytest.mark.cuda_software,
    pytest.mark.cuda_allow("races"),
    pytest.mark.parametrize("cuda_schedule", ["lazy"], indirect=True),
]

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "softdriver"
TABLES = (SOURCES / "explore" / "choices.def").read_text(encoding="utf-8")


def rows(macro):
    """Return the arguments of each row of a table, with the parts of a text joined."""
    for row in re.findall(rf"^{macro}\((.*?)\)$", TABLES, re.MULTILINE | re.DOTALL):
        joined = re.sub(r'"\s*\n\s*"', "", row)
        yield [
            argument.strip(' "')
            for argument in re.split(r",\s*(?=(?:[^\"]*\"[^\"]*\")*[^\"]*$)", joined)
        ]


CHOICES = {name: rule for name, rule, _ in rows("SOFT_CHOICE")}
LIMITS = dict(rows("SOFT_LIMIT"))
OUTSIDE = list(rows("SOFT_OUTSIDE"))
# What decides something that is in no script. The keys are the words of the table.
PATTERNS = {
    "Time": r"Clock::now\(|clock_gettime|gettimeofday|system_clock|\btime\(nullptr",
    "Sleep": r"sleep_for|[^.>_a-z]sleep\(|nanosleep\(|wait_for\(lock|wait_until\(",
    "Thread": r"pthread_create|std::thread\b|std::async",
    "Processors": r"usable_processors|sched_getaffinity|hardware_concurrency",
    "Random": r"(?<!::)\bRandom [&*]?\w|\bRandom\(|random_device|\brand\(",
    "Hash": r"std::hash",
    "Addresses": r"(map|set)<(const )?[\w:]+ ?\*|(map|set)<(std::shared_ptr|\w+Ptr\b)",
    "Environment": r"getenv",
    "Lock": r"try_lock|try_to_lock",
}


def code_of(path):
    text = re.sub(r'"([^"\\\n]|\\.)*"', '""', path.read_text(encoding="utf-8"))
    return [line.partition("//")[0] for line in text.splitlines()]


def test_each_place_that_decides_is_in_the_table():
    found = {}
    for path in sorted([*SOURCES.rglob("*.cpp"), *SOURCES.rglob("*.h")]):
        name = str(path.relative_to(SOURCES))
        if name == "base/random.h":
            continue
        for what, pattern in PATTERNS.items():
            if lines := [line for line in code_of(path) if re.search(pattern, line)]:
                found[name, what] = len(lines)
    assert found == {(file, what): int(lines) for file, what, lines, _ in OUTSIDE}


def test_names_of_limits_in_the_table():
    named = {name for *_, why in OUTSIDE for name in re.findall(r"Limit::(\w+)", why)}
    assert named <= LIMITS.keys()
    assert {"EventTime", "KernelTime", "UserObject", "Shared"} <= named


def test_each_limit_is_set_in_one_way():
    """No text beside the table, and no row that nothing uses."""
    code = "\n".join(line for path in SOURCES.rglob("*.cpp") for line in code_of(path))
    assert set(re.findall(r"\bLimit::(\w+)", code)) == LIMITS.keys()
    assert set(re.findall(r"\bChoice::(\w+)", code)) == CHOICES.keys()


def test_each_limit_has_a_test():
    tests = "\n".join(
        path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py")
    )
    tests = re.sub(r'"\s*\n\s*f?"', "", tests)
    for name, text in LIMITS.items():
        if name != "Unlogged":  # test_a_draw_that_is_not_logged
            assert text in tests, f"no test expects the limit {name}: {text}"


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """What `choices_run.cpp` prints."""
    program = tmp_path_factory.mktemp("choices") / "run"
    sources = [SOURCES / "explore" / f"{name}.cpp" for name in ("chooser", "choices", "run")]
    sources += [SOURCES / "base" / f"{name}.cpp" for name in ("range", "script", "parse")]
    subprocess.run(
        [
            compiler(),
            "-std=c++17",
            "-O0",
            "-iquote",
            SOURCES,
            *sources,
            Path(__file__).with_name("choices_run.cpp"),
            "-o",
            program,
        ],
        check=True,
        timeout=PATIENCE,
    )
    lines = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    return {line.split("\t")[0]: line.split("\t")[1:] for line in lines.splitlines()}


@pytest.mark.parametrize("choice", CHOICES)
def test_a_draw_that_is_not_logged(drawn, choice):
    """Replay takes the first option. It says so unless this option permits all that others do."""
    limit = LIMITS["Unlogged"] if CHOICES[choice] == "Searched" else ""
    assert drawn[choice] == ["0", "1", "0", limit]


# ---- places that decide, and limits that say so ----

TIMER = """.version 7.8
.target sm_90
.address_size 64
.visible .entry reads(.param .u64 at)
{
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [at];
    mov.u64 %rd2, %globaltimer;
    st.global.u64 [%rd1], %rd2;
    ret;
}
"""


def limits_of(program):
    return run_all(program, most=20).limits


def test_the_time_between_events(cuda_device):
    def program(asks):
        def run():
            with cu.Stream() as stream:
                one, other = (cu.Event(timing=True) for _ in range(2))
                stream.record(one)
                stream.record(other)
                other.synchronize()
                if asks:
                    other.elapsed_ms(one)
                one.close()
                other.close()

        return run

    assert limits_of(program(asks=False)) == ()
    text = "the program reads the time between events, which differs in each run"
    assert limits_of(program(asks=True)) == (text,)


@pytest.mark.parametrize("register", ["%globaltimer", "%clock64"])
def test_the_time_in_a_kernel(cuda_device, register):
    """The cycles of a kernel are those of its instructions, and are the same in each run."""
    kernel = cu.Module(TIMER.replace("%globaltimer", register))["reads"]

    def run():
        with cu.Stream() as stream, cu.DeviceBuffer(1, "u8", pooled=False) as buffer:
            kernel.launch(1, 1, buffer, stream=stream).wait()

    text = "a kernel reads the time, which differs in each run"
    assert limits_of(run) == ((text,) if register == "%globaltimer" else ())


def test_the_function_of_a_user_object(cuda_device):
    """A thread of the driver calls it at any time."""
    called = threading.Event()
    function = FUNCTION(lambda _: called.set())

    def work(driver):
        called.clear()
        made = ctypes.c_void_p()
        driver._call("cuUserObjectCreate", ctypes.byref(made), None, function, 1, 1)
        driver._call("cuUserObjectRelease", made, 1)
        assert called.wait(PATIENCE)

    text = "the driver calls a function of a user object at any time"
    assert limits_of(Driver(work, buffers=1)) == (text,)


SHARED = "memory or events are shared with other processes, whose work is not explored"


@pytest.mark.parametrize("what", ["memory", "event"])
def test_what_other_processes_share(cuda_device, what):
    def work(driver):
        handle = (ctypes.c_ubyte * 64)()
        if what == "memory":
            driver._call("cuIpcGetMemHandle", handle, driver.buffers[0])
        else:
            event = driver._make("cuEventCreate", 2 | 4)
            driver._call("cuIpcGetEventHandle", handle, event)
            driver._call("cuEventDestroy_v2", event)

    assert limits_of(Driver(work, buffers=1)) == (SHARED,)


GIVES = """
import ctypes
driver = ctypes.CDLL(cu.driver_info().path)
buffer = cu.DeviceBuffer(4, "u1", pooled=False)
event, of_memory, of_event = ctypes.c_void_p(), (ctypes.c_ubyte * 64)(), (ctypes.c_ubyte * 64)()
with cu.Device(0):
    assert driver.cuEventCreate(ctypes.byref(event), 2 | 4) == 0
assert driver.cuIpcGetEventHandle(of_event, event) == 0
assert driver.cuIpcGetMemHandle(of_memory, ctypes.c_uint64(buffer.address)) == 0
"""


@pytest.mark.parametrize("what", ["memory", "event"])
def test_what_another_process_gives(cuda_device, what):
    other = Other("lazy")
    other("exec(code)", code=GIVES)
    given = SharedHandle.from_buffer_copy(other(f"bytes(of_{what})"))

    def work(driver):
        if what == "memory":
            address = ctypes.c_uint64()
            driver._call("cuIpcOpenMemHandle_v2", ctypes.byref(address), given, 1)
            driver._call("cuIpcCloseMemHandle", address)
        else:
            event = ctypes.c_void_p()
            driver._call("cuIpcOpenEventHandle", ctypes.byref(event), given)
            driver._call("cuEventDestroy_v2", event)

    assert limits_of(Driver(work, buffers=1)) == (SHARED,)
    other.end()


def test_a_wait_that_another_process_ends(cuda_device):
    """It is no deadlock, although nothing of this process can end it."""
    other = Other("lazy")
    other("exec(code)", code=GIVES)
    given = SharedHandle.from_buffer_copy(other("bytes(of_memory)"))

    def work(driver):
        address = ctypes.c_uint64()
        driver._call("cuIpcOpenMemHandle_v2", ctypes.byref(address), given, 1)
        other("buffer.fill(0)")
        other.send("[__import__('time').sleep(1.5), buffer.fill(9)]")
        driver._call("cuStreamWaitValue32_v2", driver.streams[0], address, 0x09090909, 1)
        driver._call("cuStreamSynchronize", driver.streams[0])
        other.answer()
        driver._call("cuIpcCloseMemHandle", address)

    assert set(limits_of(Driver(work, buffers=1))) == {SHARED, "a wait did not end"}
    other.end()


@pytest.mark.parametrize("gives", [True, False], ids=["given", "taken"])
def test_virtual_memory_that_processes_share(cuda_device, gives):
    driver = Calls([])
    wanted = MemoryProperties(1, 1, Location(DEVICE_LOCATION, 0))  # handles are file descriptors
    made, file = ctypes.c_uint64(), ctypes.c_int()
    size = ctypes.c_size_t(2 << 20)
    with cu.Device(0):
        driver._call("cuMemCreate", ctypes.byref(made), size, ctypes.byref(wanted), 0)
        driver._call("cuMemExportToShareableHandle", ctypes.byref(file), made, 1, 0)

    def work(driver):
        if gives:
            again = ctypes.c_int()
            driver._call("cuMemExportToShareableHandle", ctypes.byref(again), made, 1, 0)
            os.close(again.value)
        else:
            taken = ctypes.c_uint64()
            number = ctypes.c_void_p(file.value)
            driver._call("cuMemImportFromShareableHandle", ctypes.byref(taken), number, 1)
            driver._call("cuMemRelease", taken)

    assert limits_of(Driver(work, buffers=1)) == (SHARED,)
    driver._call("cuMemRelease", made)
    os.close(file.value)


LAUNCH = """
import os, sys
import numpy
import cudadrv as cu
kernel = cu.Module(sys.argv[1])["loops"]
with cu.Stream() as stream, cu.DeviceBuffer.zeros(1, "u4") as buffer:
    kernel.launch(4096, 32, buffer, numpy.uint32(50), stream=stream).wait()
print(len(os.listdir("/proc/self/task")))
"""


@pytest.mark.parametrize("schedule", ["lazy", "replay"])
def test_threads_of_a_launch(schedule):
    """Several threads would run the blocks of a launch in an order that is in no script."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("CUDADRV")}
    settings = f"schedule={schedule},threads=4"
    done = subprocess.run(
        [sys.executable, "-c", LAUNCH, LOOP],
        env={
            **environment,
            "CUDADRV_SOFTWARE": settings,
            "OPENBLAS_NUM_THREADS": "1",
            "PYTHONPATH": str(ROOT),
        },
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    assert (int(done.stdout) > 3) == (schedule == "lazy")
