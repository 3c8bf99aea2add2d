"""What `cuda_device` and `cuda_checked` do before a test, and what they find after it."""

import pytest

from cudadrv._library import software_path

RACE = """
def race(wait=False):
    source, target = cu.LockedBuffer.zeros(64, name="source"), cu.DeviceBuffer(64)
    with cu.Stream() as stream, cu.ordering("unchecked"):
        target.copy_from_async(source, stream)
        if wait:
            stream.synchronize()
        source[:] = 1
        stream.synchronize()
"""
WRITE_AND_READ = (
    "*race on LockedBuffer 'source' (page-locked memory 0x*, 64 bytes): the host wrote there, and"
    " copy_from_async on Stream *, queued at test_*.py:7 (cuMemcpyHtoDAsync_v2), reads*"
)


def test_a_leak_fails_with_its_name_and_line(run):
    text = """
kept = []

def test_leak(cuda_checked):
    kept.append(cu.DeviceBuffer(8, name="forgotten"))
    kept.extend([cu.Stream(name="spare"), cu.Stream()])

def test_next(cuda_checked):
    pass

def test_unchecked(cuda_device):
    kept.append(cu.DeviceBuffer(8))
"""
    result = run(text, "--cuda-schedule=lazy")
    result.assert_outcomes(passed=3, errors=1)
    result.stdout.fnmatch_lines(
        [
            "leaked: DeviceBuffer 'forgotten', 8 bytes of device memory, made at *.py:7",
            "leaked: Stream 'spare', made at *.py:8",
            "leaked: Stream, made at *.py:8",
            "again: pytest *::test_leak?lazy?' --cuda-driver=software --cuda-schedule=lazy"
            " --cuda-seed=1",
        ]
    )


def test_every_kind_of_memory_is_named(run):
    text = """
kept = []

def test_leak(cuda_checked):
    kept.append(stream := cu.Stream())
    kept.append(cu.DeviceBuffer(8, name="a", stream=stream))
    kept.extend([cu.LockedBuffer(8, name="b"), cu.UnifiedBuffer(8, name="c"), stream.record()])
    kept.extend(cu.DeviceBuffer(8, name="d") for _ in range(3))
"""
    result = run(text, "--cuda-schedule=eager")
    leaks = [line for line in result.outlines if line.startswith("leaked: ")]
    expected = ["3 times DeviceBuffer 'd'", "'c'", "'b'", "'a'", "Stream,", "Event,"]
    assert len(leaks) == len(expected), leaks
    assert all(word in line for word, line in zip(expected, leaks, strict=True)), leaks


def test_objects_of_others_are_counted(run):
    text = """
import ctypes
kept = []

def test_leak(cuda_checked):
    kept.append(cu.Context.create(cuda_checked))
    library = ctypes.CDLL(cu.driver_info().path)
    stream = ctypes.c_void_p()
    with cuda_checked:
        assert library.cuStreamCreate(ctypes.byref(stream), 1) == 0
"""
    result = run(text, "--cuda-schedule=eager")
    result.stdout.fnmatch_lines_random(
        ["leaked: Context, made at *.py:8", "leaked: 1 stream of others"]
    )


CACHED = """
from functools import cache

PTX = ".version 8.0\\n.target sm_80\\n.address_size 64\\n.visible .entry k() { trap; }"

@cache
def kernels(device):
    return cu.Module(PTX, device=device, name="kernels")
"""


def test_a_module_in_a_cache_is_no_leak(run):
    text = (
        CACHED
        + """
def test_one(cuda_checked):
    assert "k" in kernels(cuda_checked)

def test_faults(cuda_checked):
    kernels(cuda_checked)["k"].launch(1, 1, stream=cu.Stream()).wait()

def test_later(cuda_checked):
    assert "k" in kernels(cuda_checked)
"""
    )
    run(text).assert_outcomes(passed=6, failed=3)


def test_a_module_that_is_loaded_twice_is_a_leak(run):
    text = (
        CACHED
        + """
kept = []

def test_leak(cuda_checked):
    for _ in range(2):
        kept.append(kernels.__wrapped__(cuda_checked))
    kept.append(cu.Module(PTX))
"""
    )
    result = run(text, "--cuda-schedule=lazy")
    leaks = [line for line in result.outlines if line.startswith("leaked: ")]
    assert len(leaks) == 1, leaks
    result.stdout.fnmatch_lines(["leaked: Module 'kernels', made at *.py:10"])


def test_memory_of_others_is_counted(run):
    text = """
import ctypes

def test_leak(cuda_checked):
    library = ctypes.CDLL(cu.driver_info().path)
    address = ctypes.c_uint64()
    with cuda_checked:
        assert library.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(64)) == 0
"""
    result = run(text, "--cuda-schedule=eager")
    result.stdout.fnmatch_lines(["leaked: 1 pieces of device memory that no buffer holds"])


def test_what_fixtures_hold_is_theirs(run):
    text = """
@pytest.fixture(scope="module")
def pool():
    return cu.DeviceBuffer(64)

@pytest.fixture
def before():
    return cu.DeviceBuffer(64), cu.Stream()

@pytest.fixture
def after(cuda_checked):
    buffer, stream = cu.DeviceBuffer(64), cu.Stream()
    token = buffer.fill_async(0, stream)
    return token, stream.record(), buffer

def test(before, cuda_checked, after, pool):
    before[0].fill_async(1, before[1])

def test_cycle(cuda_checked):
    cycle = [cu.DeviceBuffer(64)]
    cycle.append(cycle)
"""
    run(text).assert_outcomes(passed=6)


def test_what_fixtures_have_made_is_not_waited_for(run):
    """The plugin does not wait after a test for work of fixtures that are still set up.

    In many projects such waits would take most of the time.
    """
    text = """
@pytest.fixture
def buffer():
    return cu.DeviceBuffer(8)

@pytest.fixture
def patient(monkeypatch):
    monkeypatch.setattr("cudadrv._leftovers.time.sleep", lambda seconds: pytest.fail("it waits"))

def test(patient, cuda_checked, buffer):
    pass
"""
    run(text).assert_outcomes(passed=3)


def test_a_failed_test_is_not_accused_of_leaks(run):
    text = """
def test_fails(cuda_checked):
    buffer = cu.DeviceBuffer(8)
    assert 0

@pytest.mark.xfail
def test_fails_as_expected(cuda_checked):
    buffer = cu.DeviceBuffer(8)
    assert 0

def test_next(cuda_checked):
    pass
"""
    result = run(text, "--cuda-schedule=random")
    result.assert_outcomes(passed=1, failed=1, xfailed=1)


@pytest.mark.parametrize("schedule", ["eager", "lazy", "random"])
def test_a_race_fails_the_test(run, schedule):
    text = RACE + (
        "def test_race(cuda_checked): race()\n"
        "def test_next(cuda_checked): race(wait=True)\n"
        "def test_unchecked(cuda_device): race()\n"
        "def test_last(cuda_checked): pass\n"
    )
    result = run(text, f"--cuda-schedule={schedule}")
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(
        [WRITE_AND_READ, f"again: pytest *::test_race?{schedule}?' *=software *={schedule} *=1"]
    )


def test_a_race_of_work_that_is_still_queued(run):
    text = """
def test_race(cuda_checked):
    buffer = cu.DeviceBuffer(64)
    one, two = cu.Stream(), cu.Stream()
    with cu.ordering("unchecked"):
        buffer.fill_async(1, one)
        buffer.fill_async(2, two)
"""
    result = run(text)
    result.assert_outcomes(failed=3)
    sides = [f"fill_async on Stream *, queued at *.py:{at} (cuMemsetD8Async), *" for at in (9, 8)]
    result.stdout.fnmatch_lines([f"race on DeviceBuffer (*): {sides[0]}, and {sides[1]}: *"])


def test_a_race_while_fixtures_end(run):
    text = (
        RACE
        + """
@pytest.fixture
def late(cuda_checked):
    yield
    race()

def test(late):
    pass
"""
    )
    result = run(text, "--cuda-schedule=lazy")
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines([WRITE_AND_READ])


def test_a_race_is_told_to_a_test_that_fails_otherwise(run):
    result = run(RACE + "def test(cuda_checked):\n    race()\n    assert 0, 'other'\n")
    result.assert_outcomes(failed=3)
    result.stdout.fnmatch_lines(["*AssertionError: other*", WRITE_AND_READ, "again: *"])


def test_every_test_of_a_project_can_be_checked(run):
    text = RACE + "def test(): race()\nclass TestAll:\n    def test(self): race()\n"
    run(text, ini="usefixtures = cuda_checked").assert_outcomes(failed=6)


def test_unittest_is_checked_too(run):
    text = RACE + (
        "import unittest\n"
        "@pytest.mark.usefixtures('cuda_checked')\n"
        "class TestRace(unittest.TestCase):\n"
        "    def test(self): race()\n"
    )
    run(text).assert_outcomes(failed=1)


def test_the_state_at_the_start_is_the_same(run):
    """Each test starts with the same state of the driver, whatever the test before has changed."""
    text = """
from cudadrv import testing

ends = []

def test_spoils(cuda_device):
    stream, buffer = cu.Stream(), cu.DeviceBuffer(64)
    buffer.fill_async(1, stream)
    testing.configure("schedule=lazy,seed=99,races=off,memory=1MiB,instructions=9,threads=3")
    testing.configure("checks=race,hazards=off")
    testing.fail("cuMemAlloc_v2", 2)
    ends.append((stream, buffer))

def test_starts_clean(cuda_device, cuda_schedule):
    assert testing.pending() == 0
    assert testing.settings() == {
        "schedule": cuda_schedule, "seed": "1", "devices": "1", "memory": str(1 << 30),
        "concurrent_managed": "1", "races": "record", "instructions": "4000000000",
        "kernel_faults": "print", "threads": "auto", "free_waits": "schedule", "driver": "13.0",
        "capability": "9.0", "shared_rounding": "1", "checks": "off", "hazards": "record",
        "benign": "0", "milliseconds": "0",
    }
    cu.DeviceBuffer(8)
"""
    run(text).assert_outcomes(passed=6)


def test_a_seed_repeats_what_a_test_did(run, pytester):
    text = """
from cudadrv import testing

def work():
    streams = [cu.Stream() for _ in range(4)]
    buffers = [cu.LockedBuffer.zeros(8) for _ in streams]
    order = []
    for _ in range(5):
        for buffer, stream in zip(buffers, streams):
            with cu.ordering("wait"):
                buffer.fill_async(1, stream)
            order.append(testing.pending())
    return order

def test_one(cuda_checked):
    print("ran", work())

def test_other(cuda_checked):
    print("ran", work())
"""

    def orders(*options):
        lines = run(text, "-s", "--cuda-schedule=random", *options).outlines
        return [line.partition("ran ")[2] for line in lines if "ran " in line]

    one, other = orders("--cuda-seed=5")
    assert one == other
    assert orders("--cuda-seed=5", "-k", "other") == [one]
    assert orders("--cuda-seed=6") != [one, one]


LOSE = """
from cudadrv import testing

def lose():
    testing.fail("cuStreamSynchronize", 700)
    testing.fail("cuStreamQuery", 700)
    cu.Stream().synchronize()
"""


def test_a_lost_device_fails_one_test(run):
    text = LOSE + (
        "def test_loses(cuda_checked):\n    buffer = cu.LockedBuffer(8)\n    lose()\n"
        "def test_next(cuda_checked): cu.DeviceBuffer(8).fill(0)\n"
    )
    result = run(text)
    result.assert_outcomes(passed=3, failed=3)
    result.stdout.fnmatch_lines(
        [
            "The device was lost. The software driver is reset for the next test; a GPU would *",
            "*= cudadrv: lost devices =*",
            "  *::test_loses?eager?",
        ]
    )


def test_a_test_that_means_to_lose_the_device_passes(run):
    text = LOSE + (
        "def test_loses(cuda_checked):\n"
        "    buffer = cu.DeviceBuffer(8)\n"
        "    with pytest.raises(cu.ContextLostError): lose()\n"
        "def test_next(cuda_checked): cu.DeviceBuffer(8).fill(0)\n"
    )
    result = run(text)
    result.assert_outcomes(passed=6)
    result.stdout.fnmatch_lines(["*= cudadrv: lost devices =*", "  *::test_loses?random?"])


KERNEL = """
PTX = '''
.version 8.0
.target sm_80
.address_size 64
.file 1 "scale.cu"
.visible .entry scale(.param .u64 p)
{
    .reg .b64 %rd<2>;
    .reg .b32 %r<2>;
    .loc 1 12 5
    ld.param.u64 %rd1, [p];
    mov.u32 %r1, 7;
    .loc 1 13 9
    st.global.u32 [%rd1+64], %r1;
    ret;
}
'''

def launch():
    with cu.ordering("strict"):
        module = cu.Module(PTX)
        buffer, stream = cu.DeviceBuffer(64), cu.Stream()
        module["scale"].launch(1, 1, buffer, stream=stream)
        return stream
"""
FAULT = "kernel 'scale', scale.cu:13 (PTX line *): st.global.u32: write of 4 bytes at *"


def test_a_fault_of_a_kernel_is_in_the_report_of_its_test(run):
    text = KERNEL + (
        "def test_fault(cuda_checked): launch().synchronize()\n"
        "def test_next(cuda_checked): cu.DeviceBuffer(8).fill(0)\n"
    )
    result = run(text, "--cuda-no-pools")
    result.assert_outcomes(passed=3, failed=3)
    result.stdout.fnmatch_lines(["*- cudadrv -*", FAULT, "The device was lost.*", "again: *"])


def test_a_fault_that_a_test_has_not_noticed_is_an_error_of_that_test(run):
    text = KERNEL + (
        "def test_fault(cuda_device): launch()\n"
        "def test_next(cuda_checked): cu.DeviceBuffer(8).fill(0)\n"
    )
    result = run(text, "--cuda-schedule=lazy", "--cuda-no-pools")
    result.assert_outcomes(passed=2, errors=1, warnings=0)
    result.stdout.fnmatch_lines(["*at teardown of test_fault?lazy?*", "*- cudadrv -*", FAULT])


def test_an_overrun_inside_of_pooled_memory_is_found_without_pools(run):
    """Without pools, an access past the end of a buffer is a fault.

    The block of a pool is larger than the buffer, so with pools nobody notices.
    """
    text = KERNEL + (
        "def test_fault(cuda_device):\n"
        "    cu.DeviceBuffer(512).fill(0)\n"
        "    launch().synchronize()\n"
    )
    run(text, "--cuda-schedule=lazy").assert_outcomes(passed=1)
    result = run(text, "--cuda-schedule=lazy", ini="cuda_no_pools = true")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([FAULT])


UNFINISHED = """
def test_leaves(cuda_checked):
    buffer = cu.LockedBuffer(8)
    buffer.fill_async(1, cu.Stream())

def test_waits(cuda_checked):
    stream = cu.Stream()
    cu.LockedBuffer(8).fill_async(1, stream)
    cu.DeviceBuffer(8, stream=stream)
    stream.synchronize()
    cu.DeviceBuffer(8, stream=stream)

@pytest.mark.cuda_allow("unfinished")
def test_means_it(cuda_checked):
    cu.LockedBuffer(8).fill_async(1, cu.Stream())

def test_fails(cuda_checked):
    cu.LockedBuffer(8).fill_async(1, cu.Stream())
    assert 0
"""


def test_work_that_nobody_waited_for_is_warned_of_at_its_line(run):
    result = run(UNFINISHED, "-W", "default::pytest_cudadrv.UnfinishedWorkWarning")
    result.assert_outcomes(passed=9, failed=3, warnings=3)
    result.stdout.fnmatch_lines(
        [
            "*test_leaves?eager?",
            "*.py:6: UnfinishedWorkWarning: fill_async on Stream *, queued at *.py:6, was not"
            " waited for when the test ended: *",
        ]
    )


def test_work_that_nobody_waited_for_can_be_a_failure(run):
    result = run(UNFINISHED, "-W", "error::pytest_cudadrv.UnfinishedWorkWarning")
    result.assert_outcomes(passed=6, failed=6)


@pytest.mark.parametrize("named_by", ["option", "path", "setting"])
def test_a_conftest_that_uses_the_driver_gets_the_chosen_one(run, pytester, monkeypatch, named_by):
    """conftest.py uses a device when it is imported, which is before pytest is configured."""
    pytester.makeconftest("import cudadrv as cu\ncu.Device.count()")
    text = "def test(cuda_device): assert cu.driver_info().is_software"
    if named_by != "setting":
        monkeypatch.setenv("CUDADRV_DRIVER", "/no/libcuda.so.1")
        path = software_path()
        result = run(text, f"--cuda-driver={path if named_by == 'path' else 'software'}")
    else:  # without a name, the system's driver comes first
        pytester.makeconftest("import os\nassert 'CUDADRV_DRIVER' in os.environ")
        result = run(text, ini="cuda_driver = software")
    result.assert_outcomes(passed=3)


@pytest.mark.parametrize("options", [["--cuda-schedule=lazy"], ["--cuda-seed=7"]])
@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_conftest_and_the_tests_use_one_driver(run, pytester, options, workers):
    """What cudadrv has initialized is initialized for a client of libcuda.so.1, too."""
    pytester.makeconftest(
        "import ctypes\nimport cudadrv as cu\ncu.Device(0)\n"
        "cuda = ctypes.CDLL('libcuda.so.1')\n"
        "assert cuda.cuDeviceGetCount(ctypes.byref(ctypes.c_int())) == 0"
    )
    result = run("def test(cuda_device): pass", *options, "-n", workers)
    assert result.ret == 0


def test_the_line_that_repeats_a_test_works_where_pytest_was_called(
    run, run_pytest, pytester, monkeypatch
):
    run("")  # sets the root directory of pytest
    folder = pytester.mkdir("deeper")
    (folder / "test_deep.py").write_text("def test_fails(cuda_device):\n    assert 0\n")
    monkeypatch.chdir(folder)
    result = run_pytest("-p", "pytest_cudadrv", "--cuda-schedule=lazy")
    result.stdout.fnmatch_lines(["again: pytest 'test_deep.py::test_fails?lazy?' *"])
