"""Attributes of launches: priority, memory synchronization domain, a window of the L2 cache."""

import ctypes
import gc

import numpy as np
import pytest

import cudadrv as cu

WINDOW, COOPERATIVE, PRIORITY, DOMAIN = 1, 2, 8, 10


class Library:
    """Another library, which captures a stream and reads the attributes of the nodes."""

    def __init__(self, stream):
        self.driver, self.stream = ctypes.CDLL(cu.driver_info().path), stream
        self.graph = ctypes.c_void_p()

    def call(self, name, *arguments):
        with self.stream.device:
            status = getattr(self.driver, name)(*arguments)
        assert status == 0, f"{name}: {status}"

    def __enter__(self):
        self.call("cuStreamBeginCapture_v2", ctypes.c_void_p(self.stream.handle), 2)
        return self

    def __exit__(self, *_):
        self.call(
            "cuStreamEndCapture", ctypes.c_void_p(self.stream.handle), ctypes.byref(self.graph)
        )

    def attribute(self, number):
        """Return the bytes of an attribute of the graph's only node."""
        node, count = ctypes.c_void_p(), ctypes.c_size_t(1)
        self.call("cuGraphGetNodes", self.graph, ctypes.byref(node), ctypes.byref(count))
        assert count.value == 1
        value = ctypes.create_string_buffer(64)
        self.call("cuGraphKernelNodeGetAttribute", node, number, value)
        return value.raw

    def close(self):
        self.call("cuGraphDestroy", self.graph)
        self.kept.close()


@pytest.fixture
def launched(world, module):
    """Capture a launch with these options, and return its node's attributes."""
    made = []

    def launch(**options):
        library = Library(world.main)
        with library, cu.joins_capture(world.main) as library.kept:
            module["saxpy"].launch(
                1, 16, 2.0, cu.read(world.work), world.out, 16, stream=world.main, **options
            )
        made.append(library)
        return library.attribute

    yield launch
    for library in made:
        library.close()


def number(raw):
    return int.from_bytes(raw[:4], "little", signed=True)


def test_priority(world, launched):
    greatest, least = world.main.context.priority_range
    for priority in (greatest, least):
        assert number(launched(priority=priority)(PRIORITY)) == priority
    assert number(launched(priority=np.int64(greatest))(PRIORITY)) == greatest


def test_domain(launched):
    assert number(launched(domain="remote")(DOMAIN)) == 1
    assert number(launched(domain="default")(DOMAIN)) == 0


@pytest.mark.parametrize("ratio", [0, 0.5, 1])
def test_window(world, launched, ratio):
    part = world.out[4:12]
    raw = launched(window=cu.access_window(part, hit_ratio=ratio))(WINDOW)
    address, nbytes = np.frombuffer(raw, "u8", 2)
    assert (address, nbytes) == (part.address, part.nbytes)
    assert np.frombuffer(raw, "f4", 1, 16) == ratio
    assert np.frombuffer(raw, "i4", 2, 20).tolist() == [2, 1]  # hits persist, misses stream


def test_all_of_them_together(world, launched):
    greatest, _ = world.main.context.priority_range
    window = cu.access_window(world.out)
    cluster = 1 if world.out.device.attribute("cluster_launch") else None
    found = launched(
        priority=greatest, domain="remote", window=window, cooperative=True, cluster=cluster
    )
    assert number(found(PRIORITY)) == greatest
    assert number(found(DOMAIN)) == number(found(COOPERATIVE)) == 1
    assert np.frombuffer(found(WINDOW), "u8", 1) == world.out.address


def test_the_results_are_the_same(world, module):
    world.work.copy_from(np.arange(16, dtype="f4"))
    saxpy, window = module["saxpy"], cu.access_window(world.out)
    args = (2.0, cu.read(world.work), world.out, 16)
    ready = saxpy.prepare(1, 16, *args, window=window, priority=0, domain="remote")
    saxpy.launch(1, 16, *args, stream=world.main, window=window, priority=0)
    saxpy.launch(1, 16, *args, stream=world.main, domain="default")
    del window
    gc.collect()
    ready.launch(world.main)
    step = cu.Graph()
    node = step.add_launch(
        saxpy, 1, 16, *args, window=cu.access_window(world.work), domain="remote", priority=0
    )
    step = step.instantiate()
    step.launch(world.main).wait()
    step[node].set(3.0, cu.read(world.work), world.out, 16)
    step.launch(world.main).wait()
    assert list(world.out.to_numpy()) == [11.0 * i for i in range(16)]


def test_the_next_launch_has_none_of_them(world, module, launched):
    launched(priority=world.main.context.priority_range[0], domain="remote")
    plain = launched()
    assert number(plain(DOMAIN)) == 0


def test_a_window_keeps_its_buffer_open(world, module, gate):
    other = cu.DeviceBuffer(1000, name="other")
    gate.hold(world.main)
    token = module["saxpy"].launch(
        1, 16, 2.0, cu.read(world.work), world.out, 16, stream=world.main,
        window=cu.access_window(other),
    )  # fmt: skip
    with pytest.raises(cu.BufferBorrowedError, match="cannot close DeviceBuffer 'other'"):
        other.close()
    other[:10].fill_async(1, world.side)  # it is not written, and nothing has to be ordered
    gate.open()
    token.wait()
    world.side.synchronize()
    other.close()


def test_what_is_refused(world, module, unchanged):
    kernel, args = module["saxpy"], (2.0, cu.read(world.work), world.out, 16)
    greatest, least = world.main.context.priority_range
    refused = [
        ({"priority": greatest - 1}, ValueError, rf"has priorities from {greatest} \(the greatest"),
        ({"priority": least + 1}, ValueError, "priority is"),
        ({"priority": 10**20}, ValueError, "priority is"),
        ({"priority": "high"}, TypeError, "integer"),
        ({"domain": "near"}, ValueError, "domain is 'near', and must be 'default' or 'remote'"),
        ({"domain": 1}, ValueError, "domain is 1"),
        ({"window": world.out}, TypeError, r"window takes cudadrv\.access_window\(buffer\), not D"),
    ]
    graph = cu.Graph()
    for options, error, text in refused:
        for launch in (
            lambda **given: kernel.launch(1, 16, *args, stream=world.main, **given),
            lambda **given: kernel.prepare(1, 16, *args, **given),
            lambda **given: graph.add_launch(kernel, 1, 16, *args, **given),
        ):
            with pytest.raises(error, match=text):
                launch(**options)
    assert graph.nodes == ()
    assert not world.out.borrowed
    closed = cu.DeviceBuffer(8)
    window = cu.access_window(closed)
    closed.close()
    with pytest.raises(cu.BufferClosedError):
        kernel.launch(1, 16, *args, stream=world.main, window=window)
    with pytest.raises(cu.BufferClosedError):
        cu.access_window(closed)


def test_windows(world):
    window = cu.access_window(world.out[2:], hit_ratio=0.25)
    assert (window.buffer.count, window.hit_ratio) == (14, 0.25)
    assert "hit_ratio=0.25" in repr(window)
    for ratio in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match=r"hit_ratio is .*, and must be from 0 to 1"):
            cu.access_window(world.out, hit_ratio=ratio)
    with pytest.raises(TypeError, match="access_window takes a buffer, not ndarray"):
        cu.access_window(np.zeros(3))
    with pytest.raises(TypeError, match=r"use cudadrv\.access_window\(buffer\)"):
        cu.AccessWindow()
    most = world.out.device.attribute("max_access_policy_window_size")
    large = cu.UnifiedBuffer(most + 1)  # its pages are made when they are used
    with pytest.raises(ValueError, match=f"has {most + 1} bytes, and a window .* at most {most}"):
        cu.access_window(large)
    cu.access_window(large[:most])
