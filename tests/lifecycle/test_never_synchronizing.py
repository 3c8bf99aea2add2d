"""Programs that never synchronize need no more memory after a million operations than at first."""

import importlib.util
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from limits import PATIENCE
from schedules import one_schedule

import cudadrv as cu

ROOT = Path(__file__).resolve().parents[2]
BENCHMARK = ROOT / "benchmarks" / "unsynchronized.py"
STEPS = 20_000
ROOM = 128  # KiB; 8 bytes for each step

# These tests are about memory that goes back to the driver.
pytestmark = pytest.mark.usefixtures("unpooled")


def programs() -> list[str]:
    spec = importlib.util.spec_from_file_location("unsynchronized", BENCHMARK)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return list(module.PROGRAMS)


@pytest.mark.cuda_software
@one_schedule
@pytest.mark.parametrize("program", programs())
def test_state_does_not_grow(program, cuda_schedule):
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "CUDADRV_DRIVER": "software",
        "CUDADRV_SOFTWARE": "schedule=lazy,races=off",
    }
    done = subprocess.run(
        [sys.executable, str(BENCHMARK), f"--steps={STEPS}", program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert (done.returncode, done.stderr) == (0, "")
    grown = int(re.search(r"([+-][\d,]+) KiB", done.stdout)[1].replace(",", ""))
    assert grown < ROOM, done.stdout
    assert all(int(count) < 300 for count in re.findall(r"(\d+) [a-z]", done.stdout)), done.stdout


def calls_of(function) -> int:
    """Number of driver calls that a function makes."""
    from cudadrv import testing

    before = testing.calls()
    function()
    return testing.calls() - before


def drop(count, stream, owner):
    """Drop buffers with unfinished work. cudadrv must keep the memory until that work ends."""
    for _ in range(count):
        cu.DeviceBuffer(8).fill_async(0, stream)
        cu.DeviceBuffer.from_address(owner.address, 8, owner=owner).fill_async(0, stream)


@pytest.mark.cuda_software
def test_an_allocation_costs_the_same_however_much_waits(stream, gate):
    owner = cu.DeviceBuffer(8)
    gate.hold(stream)
    drop(20, stream, owner)
    few = max(calls_of(lambda: cu.DeviceBuffer(8)) for _ in range(10))
    drop(500, stream, owner)
    assert max(calls_of(lambda: cu.DeviceBuffer(8)) for _ in range(10)) <= few
    gate.open()
    stream.synchronize()


@pytest.mark.cuda_software
def test_what_waits_is_freed_when_the_device_is_idle(stream, other, gate):
    """All dropped memory is freed when the device is idle.

    Memory whose work is complete is freed earlier: it does not wait for the rest.
    """
    from cudadrv import testing

    owner = cu.DeviceBuffer(8)
    before = testing.live_objects()
    gate.hold(stream)
    drop(50, stream, owner)
    for _ in range(20):
        cu.DeviceBuffer(8, stream=other).fill_async(0, other)
        assert testing.live_objects()["async"] <= before["async"] + 2
    assert testing.live_objects()["device"] == before["device"] + 50
    gate.open()
    stream.synchronize()
    other.synchronize()
    cu.reap()
    now = testing.live_objects()
    assert [now[kind] - before[kind] for kind in ("device", "async")] == [0, 0]


@pytest.mark.cuda_software
def test_a_copy_of_a_snapshot_costs_the_same_however_many_are_under_way(stream, gate):
    buffer = cu.DeviceBuffer(8)
    gate.hold(stream)

    def copy():
        buffer.copy_from_async(bytes(8), stream)

    for _ in range(20):
        copy()
    few = max(calls_of(copy) for _ in range(10))
    for _ in range(100):
        copy()
    assert max(calls_of(copy) for _ in range(10)) <= few
    gate.open()
    stream.synchronize()


@pytest.mark.cuda_software
@pytest.mark.parametrize("opened", ["soon", "never"])
def test_an_allocation_waits_when_very_much_waits(stream, gate, opened):
    """An allocation waits for the device if much dropped memory is kept.

    It gives up after a time, because the device may be waiting for this thread.
    """
    from cudadrv import testing

    before = testing.live_objects()["device"]
    gate.hold(stream)
    # An allocation waits if 4096 dropped buffers are queued. The latest one is not queued yet.
    for _ in range(4097):
        cu.DeviceBuffer(8).fill_async(0, stream)
    assert testing.live_objects()["device"] == before + 4097
    timer = threading.Timer(0.02 if opened == "soon" else 30, gate.open)
    timer.start()
    cu.DeviceBuffer(8)
    left = testing.live_objects()["device"] - before
    timer.cancel()
    timer.join()
    gate.open()
    stream.synchronize()
    assert left <= 1 if opened == "soon" else left == 4098
