"""Limits of contexts, and blocks that a profiler records."""

import sys
import types
from pathlib import Path

import pytest

import cudadrv as cu

NAMES = ("printf_bytes", "heap_bytes", "stack_bytes", "persisting_bytes")


@pytest.fixture
def context(driver):
    """A context in which no kernel has run yet."""
    return cu.Context.create(cu.Device(0))


def test_limits_are_read_and_set(context):
    limits = context.limits
    before = {name: getattr(limits, name) for name in NAMES}
    assert all(isinstance(value, int) for value in before.values())
    for name in NAMES[:3]:
        setattr(limits, name, 2 * before[name])
        assert getattr(limits, name) == 2 * before[name]
        assert getattr(context.limits, name) == 2 * before[name]
        setattr(limits, name, before[name])
    most = context.device.attribute("max_persisting_l2_cache_size")
    limits.persisting_bytes = most
    assert limits.persisting_bytes == most
    limits.persisting_bytes = 0
    assert limits.persisting_bytes == 0
    assert cu.Device(0).context.limits.stack_bytes == before["stack_bytes"]
    assert "limits of" in repr(limits)


def test_other_values_are_refused(context):
    limits = context.limits
    for name in NAMES:
        with pytest.raises(ValueError, match=f"{name} is -1, and must be a number of bytes"):
            setattr(limits, name, -1)
        with pytest.raises(ValueError, match=name):
            setattr(limits, name, 1 << 70)
        with pytest.raises(TypeError):
            setattr(limits, name, "1")
    with pytest.raises(ValueError, match=r"persisting_bytes is .*, and <Device 0.*> has at most"):
        limits.persisting_bytes = 1 << 40
    with pytest.raises(cu.CudaError, match=r"(?s)stack_bytes of .* cannot be .*too large"):
        limits.stack_bytes = 1 << 40
    with pytest.raises(TypeError, match=r"use context\.limits"):
        cu.ContextLimits()


def test_unfinished_work_refuses_a_change(context, gate):
    with context:
        stream = cu.Stream(name="busy")
        buffer = cu.DeviceBuffer(100)
    buffer.fill_async(1, stream)
    for name in NAMES:
        with pytest.raises(cu.OwnershipError, match=rf"cannot set {name} of .*\n.*fill_async on"):
            setattr(context.limits, name, 0)
    context.synchronize()
    context.limits.stack_bytes = 2048


def test_the_profiler(driver, stream):
    buffer = cu.DeviceBuffer(100)
    block = cu.capture_profiler()
    for _ in range(2):
        with block as entered:
            assert entered is block
            buffer.fill_async(1, stream).wait()
    with block, pytest.raises(RuntimeError, match="entered already"):
        block.__enter__()
    with pytest.raises(RuntimeError, match="not entered"):
        block.__exit__(None, None, None)
    with pytest.raises(ZeroDivisionError), cu.capture_profiler(device=cu.Device(0)):
        1 / 0  # noqa: B018
    assert "capture_profiler" in repr(block)
    with pytest.raises(TypeError):
        cu.capture_profiler(device="gpu")


class Ranges(types.ModuleType):
    """A module in place of nvtx, which notes the ranges."""

    def __init__(self):
        super().__init__("nvtx")
        self.done, self.open = [], []

    def push_range(self, message, *, domain):
        assert domain == "cudadrv"
        self.open.append(message)

    def pop_range(self, *, domain):
        self.done.append(self.open.pop())


@pytest.fixture
def ranges(monkeypatch):
    module = Ranges()
    monkeypatch.setitem(sys.modules, "nvtx", module)
    return module


def line(_):
    """The place of the call, as messages have it."""
    return f"{Path(__file__).name}:{sys._getframe(1).f_lineno}"


def test_operations_are_ranges(driver, stream, other, ranges):
    one, two = cu.DeviceBuffer(100, name="one"), cu.LockedBuffer(100)
    one.fill_async(1, stream)
    with cu.capture_profiler():
        fills = line(one.fill_async(2, stream))
        with cu.capture_profiler():
            two.copy_from_async(one, stream)
        stream.synchronize()
        graph = cu.Graph()
        with graph.capture(stream):
            one.fill_async(3, stream)
        graph.instantiate().launch(stream)
        with pytest.raises(cu.BufferBorrowedError):
            one.fill_async(3, other)
    one.fill_async(3, stream).wait()
    assert ranges.open == []
    names = [name.partition(" at ")[0] for name in ranges.done]
    assert names[:2] == ["fill_async", "copy_from_async"]
    assert ranges.done[0].endswith(f"{fills}")
    assert "launch of graph" in " ".join(names)
    assert names[-1] == "fill_async"
    count = len(ranges.done)
    assert count == 5


def test_without_nvtx(driver, stream, monkeypatch):
    monkeypatch.setitem(sys.modules, "nvtx", None)
    with cu.capture_profiler():
        cu.DeviceBuffer(4).fill_async(1, stream).wait()


@pytest.mark.cuda_software
def test_the_driver_is_told(driver):
    from cudadrv import testing

    for call in ("cuProfilerStart", "cuProfilerStop"):
        testing.configure(f"fault={call}:1:1")
        try:
            with pytest.raises(cu.CudaError, match=call), cu.capture_profiler():
                pass
        finally:
            testing.configure("fault=none")
