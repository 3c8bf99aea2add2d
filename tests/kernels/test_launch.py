"""Launches: results and borrows."""

import ctypes
import functools
import gc
import weakref

import numpy as np
import pytest
from results import array_of

import cudadrv as cu

BUFFERS = [cu.DeviceBuffer, cu.LockedBuffer, cu.UnifiedBuffer]


@pytest.mark.parametrize("cls", BUFFERS)
def test_all_kinds_of_buffers(saxpy, stream, cls):
    x, y = cls.from_array(np.arange(300, dtype="f4")), cls.from_array(np.ones(300, dtype="f4"))
    token = saxpy.launch(3, 128, 2.0, cu.read(x), y, 300, stream=stream)
    assert (token.reads, token.writes, token.stream) == ((x,), (y,), stream)
    token.wait()
    assert np.array_equal(array_of(y), 2 * np.arange(300, dtype="f4") + 1)


def test_parts_are_borrowed_by_range(saxpy, vectors, stream, other):
    x, y = vectors
    left, right = y.split_at(500)
    saxpy.launch(4, 128, 2.0, cu.read(x[:500]), left, 500, stream=stream)
    saxpy.launch(4, 128, 3.0, cu.read(x[500:]), right, 500, stream=other)
    with pytest.raises(cu.BufferBorrowedError):
        y[400:600].fill_async(0, other)
    stream.synchronize()
    other.synchronize()
    factors = np.repeat(np.array([2, 3], "f4"), 500)
    assert np.array_equal(array_of(y), factors * np.arange(1000, dtype="f4") + 1)


def test_a_bare_buffer_is_written(saxpy, vectors, stream, other):
    x, y = vectors
    saxpy.launch(1, 32, 1.0, x, y, 32, stream=stream)
    array = cu.LockedBuffer(1000, "f4")
    with pytest.raises(cu.BufferBorrowedError, match=r"by launch of saxpy on Stream \d+, "):
        array.copy_from_async(x, other)
    stream.synchronize()


MODES = {"read": cu.read, "write": cu.write, "shared": cu.shared, "bare": lambda buffer: buffer}


@pytest.mark.parametrize("first", MODES)
@pytest.mark.parametrize("second", MODES)
def test_a_token_tells_what_is_read_and_written(saxpy, stream, first, second):
    """A token has the buffers that its launch reads and writes.

    Launches have two or three buffers, and some have one of them twice.
    """
    x, y, z = (cu.DeviceBuffer.zeros(32, "f4") for _ in range(3))
    given = MODES[first](x), MODES[second](y)

    def expected(*modes):
        named = list(zip(modes, (x, y, z), strict=False))
        return [
            tuple(buffer for mode, buffer in named if mode in wanted)
            for wanted in (("read",), ("write", "bare"))
        ]

    for more, modes in (
        ({}, (first, second)),
        ({"borrows": ()}, (first, second)),
        ({"borrows": [cu.read(z)]}, (first, second, "read")),
        ({"borrows": [z], "shared_bytes": 0}, (first, second, "write")),
    ):
        token = saxpy.launch(1, 32, 2.0, *given, 32, stream=stream, **more)
        assert [token.reads, token.writes] == expected(*modes)
    token = saxpy.prepare(1, 32, 2.0, *given, 32).launch(stream)
    assert [token.reads, token.writes] == expected(first, second)
    token = x.fill_async(1, stream)  # may reuse the object of a dropped token
    assert (token.reads, token.writes) == ((), (x,))


def test_a_token_keeps_its_buffers(saxpy, stream):
    x, y = cu.DeviceBuffer.zeros(32, "f4"), cu.DeviceBuffer.zeros(32, "f4")
    alive = [weakref.ref(x), weakref.ref(y)]
    token = saxpy.launch(1, 32, 2.0, cu.read(x), y, 32, stream=stream)
    del x, y
    gc.collect()
    assert all(reference() is not None for reference in alive)
    token.wait()
    del token
    gc.collect()
    assert [reference() for reference in alive] == [None, None]


def test_ways_to_call(saxpy, stream):
    """Calls with all forms of arguments.

    Some forms use a function of cudadrv's own, and others Cython's handling of arguments.
    """
    x, y = cu.DeviceBuffer.zeros(32, "f4"), cu.DeviceBuffer.zeros(32, "f4")
    arguments = 1, 32, 2.0, cu.read(x), y, 32
    keyword = {"".join(["str", "eam"]): stream}
    for launch in (
        lambda: saxpy.launch(*arguments, stream=stream),
        lambda: saxpy.launch(*arguments, **keyword),
        lambda: saxpy.launch(*arguments, stream=stream, shared_bytes=0, cluster=None),
        lambda: cu.Kernel.launch(saxpy, *arguments, stream=stream),
        lambda: saxpy.launch.__call__(*arguments, stream=stream),
        lambda: functools.partial(saxpy.launch, stream=stream)(*arguments),
    ):
        token = launch()
        assert (token.reads, token.writes, token.stream) == ((x,), (y,), stream)
        assert token.site.startswith("tests/kernels/test_launch.py:")
    with stream:
        assert saxpy.launch(*arguments).stream is stream
    for wrong, words in (
        (lambda: saxpy.launch(*arguments), "stream"),
        (lambda: saxpy.launch(stream=stream), "at least 2"),
        (lambda: saxpy.launch(1, stream=stream), "at least 2"),
        (lambda: saxpy.launch(1, 32, stream=stream), "takes 4 arguments, not 0"),
        (
            lambda: saxpy.launch(1, 32, 2, x, y, 1, stream, stream=stream),
            r"takes 4 arguments, not 5: .*\. Argument 4 is <Stream .*>: pass it as stream=$",
        ),
        (
            lambda: saxpy.launch(1, 32, (2, x, y, 1), stream=stream),
            r"takes 4 arguments, not 1: .*\. Unpack the tuple: \*arguments$",
        ),
        (lambda: saxpy.launch(*arguments, stream=stream, nonsense=1), "nonsense"),
        (lambda: saxpy.launch(*arguments, grid=1, stream=stream), "grid"),
        (lambda: cu.Kernel.launch(), "launch"),
        (lambda: cu.Kernel.launch(stream, *arguments, stream=stream), "descriptor .launch. for"),
        (lambda: cu.Kernel.launch(None), "descriptor .launch. for"),
    ):
        with pytest.raises(TypeError, match=words):
            wrong()
    stream.synchronize()


def test_reads_share(saxpy, vectors, stream, other):
    x, y = vectors
    z = cu.DeviceBuffer.zeros(1000, "f4")
    saxpy.launch(1, 32, 1.0, cu.read(x), y, 32, stream=stream)
    saxpy.launch(1, 32, 1.0, cu.read(x), z, 32, stream=other)
    assert {borrow.mode for borrow in x.borrows} == {"read"}
    assert len(x.borrows) == 2
    stream.synchronize()
    other.synchronize()


def test_a_refusal_names_kernel_and_argument(saxpy, vectors, stream, other, request):
    x, y = vectors
    saxpy.launch(1, 32, 1.0, cu.read(x), y, 32, stream=stream)
    with pytest.raises(cu.BufferBorrowedError) as caught:
        saxpy.launch(1, 32, 1.0, cu.read(x), y, 32, stream=other)
    text = str(caught.value)
    assert text.startswith(
        "cannot write argument 2 (y, .u64) DeviceBuffer 'y'[0:1000] (float32) by"
        " launch of saxpy on Stream "
    )
    assert "it is being written by launch of saxpy on Stream " in text
    assert "test_launch.py:" in text
    stream.synchronize()
    assert np.array_equal(array_of(y)[:32], np.arange(32) + 1), "the second one was not queued"


def test_a_host_view_excludes_a_launch(saxpy, stream):
    x, y = cu.LockedBuffer.zeros(64, "f4"), cu.LockedBuffer.zeros(64, "f4")
    with (
        x.read(),
        y.read(),
        pytest.raises(cu.BufferExportedError, match=r"argument 2 \(y, \.u64\)"),
    ):
        saxpy.launch(1, 32, 1.0, cu.read(x), y, 32, stream=stream)
    with x.read():
        saxpy.launch(1, 32, 1.0, cu.read(x), y, 32, stream=stream)
    stream.synchronize()


def test_the_same_memory_several_times(module, stream, other):
    """Overlapping arguments of one launch do not conflict with each other."""
    a = cu.DeviceBuffer.from_array(np.arange(96, dtype="u4"), name="a")
    add = module["add_into"]
    add.launch(1, 64, a[:64], cu.read(a), cu.read(a[32:96]), 64, stream=stream)
    with pytest.raises(cu.BufferBorrowedError):
        add.launch(1, 4, a[60:64], a[70:74], a[80:84], 4, stream=other)
    reading = cu.LockedBuffer(16, "u4")
    reading.copy_from_async(a[70:86], other)  # allowed: the launch only reads these items
    stream.synchronize()
    other.synchronize()
    expected = np.arange(96)
    expected[:32] += np.arange(32, 64)
    expected[32:64] += np.arange(64, 96)
    assert np.array_equal(array_of(a)[32:], expected[32:])


def test_borrows_declares_what_pointers_reach(module, stream, other):
    numbers = cu.DeviceBuffer(16, "u4", name="numbers")
    pointer = cu.LockedBuffer.from_array(np.array([numbers.address], "u8"))
    module["follow"].launch(1, 16, cu.read(pointer), borrows=[numbers], stream=stream)
    with pytest.raises(cu.BufferBorrowedError):
        numbers.fill_async(0, other)
    with pytest.raises(
        cu.BufferBorrowedError, match=r"cannot write borrows\[0\] DeviceBuffer 'num"
    ):
        module["follow"].launch(1, 16, cu.read(pointer), borrows=[numbers], stream=other)
    stream.synchronize()
    assert np.array_equal(array_of(numbers), np.arange(16))


@pytest.mark.cuda_allow("races")
def test_shared_excludes_nothing_but_closing(module, stream):
    flag, out = cu.LockedBuffer.zeros(1, "u4"), cu.DeviceBuffer(1, "u4")
    token = module["spin"].launch(1, 1, cu.shared(flag), out, stream=stream)
    assert (token.reads, token.writes) == ((), (out,))
    flag[0] = 7
    with pytest.raises(cu.BufferBorrowedError, match="it is being used by launch of spin"):
        flag.close()
    token.wait()
    assert array_of(out)[0] == 7
    flag.close()


def test_the_policy_wait_orders_launches(saxpy, vectors, stream, other):
    x, y = vectors
    saxpy.launch(8, 128, 2.0, cu.read(x), y, 1000, stream=stream)
    with cu.ordering("wait"):
        saxpy.launch(8, 128, 2.0, cu.read(x), y, 1000, stream=other)
    other.synchronize()
    assert np.array_equal(array_of(y), 4 * np.arange(1000, dtype="f4") + 1)


def test_which_stream(saxpy, vectors, stream):
    x, y = vectors
    args = 8, 128, 2.0, cu.read(x), y, 1000
    with pytest.raises(TypeError, match="launch of saxpy needs a stream"):
        saxpy.launch(*args)
    with pytest.raises(TypeError, match=r"needs a stream: .*Argument 4 is <Stream .*: pass it as"):
        saxpy.launch(*args, stream)
    with pytest.raises(TypeError, match=r"needs a stream: .*Unpack the tuple: \*arguments"):
        saxpy.launch(8, 128, args[2:])
    with pytest.raises(TypeError, match="stream must be a Stream"):
        saxpy.launch(*args, stream=3)
    with stream:
        assert saxpy.launch(*args).stream is stream
        assert saxpy.prepare(*args).launch().stream is stream
    assert stream.bind(saxpy).launch(*args).stream is stream
    stream.synchronize()


@pytest.mark.cuda_software
def test_another_context(saxpy, vectors, stream):
    x, y = vectors
    context = cu.Context.create(cu.Device(0))
    with context:
        foreign, far = cu.Stream(), cu.DeviceBuffer(8, "f4")
    with pytest.raises(ValueError, match=r"belongs to .* and .* to another context"):
        saxpy.launch(1, 1, 1.0, cu.read(x), y, 1, stream=foreign)
    with pytest.raises(ValueError, match=r"belongs to .* to another context"):
        saxpy.launch(1, 1, 1.0, cu.read(far), y, 1, stream=stream)


def test_shapes(module, saxpy, vectors, stream):
    x, y = vectors
    args = 2.0, cu.read(x), y, 1000
    for grid, block in (((4, 1, 1), (256,)), (np.int64(4), (256, 1)), ((4,), 256)):
        saxpy.launch(grid, block, *args, stream=stream)
    for grid, block, match in (
        (0, 1, "grid is 0, and must be at least 1"),
        (1, (1, -1), r"block is \(1, -1\), and must be at least 1"),
        (1, 2000, r"at most 1024 in x \(max_block_dim_x\)"),
        ((1, 70000), 1, r"at most 65535 in y \(max_grid_dim_y\)"),
        (1 << 80, 1, "max_grid_dim_x"),
        (1, (32, 64), r"2048 threads, and saxpy takes at most 1024 \(max_threads_per_block\)"),
    ):
        with pytest.raises(ValueError, match=match):
            saxpy.launch(grid, block, *args, stream=stream)
    for wrong in (1.5, (), (1, 1, 1, 1), "1", None, [1]):
        with pytest.raises(TypeError, match="grid must be an int or a tuple of up to three"):
            saxpy.launch(wrong, 1, *args, stream=stream)
    stream.synchronize()


def test_shared_memory(module, stream):
    reverse = module["reverse"]
    x = cu.DeviceBuffer.from_array(np.arange(64, dtype="u4"))
    reverse.launch(1, 64, x, stream=stream, shared_bytes=256)
    stream.synchronize()
    assert np.array_equal(array_of(x), np.arange(64)[::-1])
    most = reverse.max_dynamic_shared_bytes
    with pytest.raises(ValueError, match=r"max_dynamic_shared_bytes = ... raises that"):
        reverse.launch(1, 64, x, stream=stream, shared_bytes=most + 1)
    with pytest.raises(ValueError, match="must not be negative"):
        reverse.launch(1, 64, x, stream=stream, shared_bytes=-1)
    with pytest.raises(ValueError, match="max_dynamic_shared_bytes is 1073741824"):
        reverse.max_dynamic_shared_bytes = 1 << 30
    reverse.max_dynamic_shared_bytes = most + 1024
    assert module["reverse"].max_dynamic_shared_bytes == most + 1024
    bytes_, threads = most + 1, 64
    for _ in range(2):
        reverse.launch(1, threads, x, stream=stream, shared_bytes=bytes_)
    stream.synchronize()
    reverse.max_dynamic_shared_bytes = most
    with pytest.raises(ValueError, match=r"max_dynamic_shared_bytes = ... raises that"):
        reverse.launch(1, threads, x, stream=stream, shared_bytes=bytes_)


class Growing:
    """A number whose value differs at each conversion."""

    def __init__(self, *numbers):
        self.numbers = iter(numbers)

    def __index__(self):
        return next(self.numbers)


@pytest.mark.parametrize("shape", [lambda size: size, lambda size: (size, 1)])
def test_a_size_is_asked_again_where_it_can_change(saxpy, vectors, stream, shape):
    x, y = vectors
    size = shape(Growing(4, 2000, 4))
    saxpy.launch(4, size, 2.0, cu.read(x), y, 1000, stream=stream)
    with pytest.raises(ValueError, match="max_block_dim_x"):
        saxpy.launch(4, size, 2.0, cu.read(x), y, 1000, stream=stream)
    saxpy.launch(4, size, 2.0, cu.read(x), y, 1000, stream=stream)
    stream.synchronize()


def test_each_launch_has_its_own_shape(module, stream):
    """The shape of a kernel's last launch is cached, and must not be used for another shape."""
    reverse = module["reverse"]
    x = cu.DeviceBuffer.from_array(np.arange(64, dtype="u4"))
    expected = np.arange(64)
    for threads in (64, 32, 64, 64, 16, 16):
        reverse.launch(1, threads, x, stream=stream, shared_bytes=256)
        expected[:threads] = expected[:threads][::-1]
    with pytest.raises(TypeError, match="grid must be an int"):
        module["saxpy"].launch(None, None, stream=stream, shared_bytes=None)
    stream.synchronize()
    assert np.array_equal(array_of(x), expected)


def test_cooperative_launches_where_there_are_any(saxpy, vectors, stream):
    x, y = vectors
    args = 2.0, cu.read(x), y, 1000
    if not saxpy.module.device.attribute("cooperative_launch"):
        with pytest.raises(ValueError, match="does not support cooperative launches"):
            saxpy.launch(1, 128, *args, stream=stream, cooperative=True)
        return
    saxpy.launch(1, 128, *args, stream=stream, cooperative=True)
    with pytest.raises(ValueError, match="run at once, as a cooperative launch needs"):
        saxpy.launch(1 << 20, 1024, *args, stream=stream, cooperative=True)
    stream.synchronize()


def test_clusters_where_there_are_any(saxpy, vectors, stream):
    x, y = vectors
    args = 2.0, cu.read(x), y, 1000
    if not saxpy.module.device.attribute("cluster_launch"):
        with pytest.raises(ValueError, match=r"clusters of blocks .its attribute cluster_la"):
            saxpy.launch(8, 128, *args, stream=stream, cluster=2)
        return
    saxpy.launch(8, 128, *args, stream=stream, cluster=2)
    with pytest.raises(ValueError, match="cannot be cut into clusters of"):
        saxpy.launch(7, 128, *args, stream=stream, cluster=2)
    stream.synchronize()
    assert np.array_equal(array_of(y), 2 * np.arange(1000, dtype="f4") + 1)


def test_many_arguments(driver, stream):
    """More arguments than fit into the launch's buffer on the stack."""
    names = [f"p{i}" for i in range(40)]
    declared = ", ".join(f".param .u64 {name}" for name in names)
    body = "".join(
        f"ld.param.u64 a, [{name}]; cvta.to.global.u64 a, a; st.global.u32 [a], {i};"
        for i, name in enumerate(names)
    )
    module = cu.Module(
        f".version 6.4\n.target sm_75\n.address_size 64\n"
        f".entry many({declared}) {{ .reg .u64 a; {body} ret; }}"
    )
    whole = cu.DeviceBuffer.zeros(40, "u4")
    parts = whole.chunks(1)
    token = module["many"].launch(1, 1, *parts, stream=stream)
    assert token.writes == tuple(parts)
    module["many"].prepare(1, 1, *parts).launch(stream)
    stream.synchronize()
    assert np.array_equal(array_of(whole), np.arange(40))


@pytest.mark.cuda_software
def test_a_launch_that_the_driver_refuses_borrows_nothing(saxpy, vectors, stream, other):
    from cudadrv import testing

    x, y = vectors
    testing.fail("cuLaunchKernelEx", 701)
    with pytest.raises(cu.CudaError, match="cuLaunchKernelEx: CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"):
        saxpy.launch(1, 1, 2.0, cu.read(x), y, 1, stream=stream)
    assert not x.borrowed
    assert not y.borrowed
    saxpy.module.close()


def test_prepared(saxpy, vectors, stream, other):
    x, y = vectors
    ready = saxpy.prepare((8, 1), 128, 2.0, cu.read(x), y, 1000)
    assert not y.borrowed
    for _ in range(3):
        token = ready.launch(stream)
        assert (token.reads, token.writes) == ((x,), (y,))
    with pytest.raises(cu.BufferBorrowedError, match=r"cannot write argument 2 \(y"):
        ready.launch(other)
    stream.synchronize()
    assert np.array_equal(array_of(y), 6 * np.arange(1000, dtype="f4") + 1)
    assert (ready.kernel, ready.grid, ready.block) == (saxpy, (8, 1, 1), (128, 1, 1))
    assert repr(ready) == "<Prepared launch of saxpy, grid (8, 1, 1), block (128, 1, 1)>"
    y.close()
    with pytest.raises(cu.BufferClosedError):
        ready.launch(stream)
    with pytest.raises(TypeError, match="takes 4 arguments, not 1"):
        saxpy.prepare(1, 1, 2.0)


def test_raw_addresses(saxpy, vectors, stream):
    """Raw addresses as arguments are passed unchanged, and nothing is borrowed."""
    x, y = vectors
    token = saxpy.launch(8, 128, 2.0, x.address, ctypes.c_void_p(y.address), 1000, stream=stream)
    assert (token.reads, token.writes) == ((), ())
    token.wait()
    assert np.array_equal(array_of(y), 2 * np.arange(1000, dtype="f4") + 1)


def test_operations_are_reported_by_the_kernels_name(module, vectors, stream):
    x, _ = vectors
    module["scaled"].launch(1, 1, x, stream=stream)
    assert "write by launch of scaled on Stream" in x.explain()
    assert x.borrows[0].operation == "launch of scaled"
    stream.synchronize()


# ---- what a refusal advises ----

BOTH = "If both kernels only read it: cudadrv.read(buffer) in both launches."
THIS = "If this kernel only reads it: cudadrv.read(buffer)."


def advice(launch):
    with pytest.raises(cu.BufferBorrowedError) as caught:
        launch()
    line = str(caught.value).split("\n")[-1]
    return line.removeprefix("  A bare buffer counts as written. ") if "bare" in line else None


def test_a_refused_launch_tells_of_read(saxpy, vectors, stream, other):
    """A refused launch advises `cu.read` if the conflict is about an argument without a mode.

    The kernel may only read such an argument.
    """
    x, y = vectors
    z = cu.DeviceBuffer.from_array(np.ones(1000, dtype="f4"), name="z")
    saxpy.launch(8, 128, 2.0, x, y, 1000, stream=stream)
    assert advice(lambda: saxpy.launch(8, 128, 2.0, x, z, 1000, stream=other)) == BOTH
    ready = saxpy.prepare(8, 128, 2.0, x, z, 1000)
    assert advice(lambda: ready.launch(other)) == BOTH
    assert advice(lambda: saxpy.launch(8, 128, 2.0, cu.write(x), z, 1000, stream=other)) is None
    assert advice(lambda: saxpy.launch(8, 128, 2.0, cu.read(x), z, 1000, stream=other)) is None
    assert advice(
        lambda: saxpy.launch(8, 128, 2.0, z.address, z, 1000, stream=other, borrows=[x])
    ) == BOTH  # fmt: skip
    stream.synchronize()
    x.copy_to_async(cu.LockedBuffer(1000, "f4"), stream)
    assert advice(lambda: saxpy.launch(8, 128, 2.0, x, z, 1000, stream=other)) == THIS
    stream.synchronize()
    x.fill_async(0, stream)
    assert advice(lambda: saxpy.launch(8, 128, 2.0, x, z, 1000, stream=other)) is None
    stream.synchronize()
    saxpy.launch(8, 128, 2.0, cu.read(x), y, 1000, stream=stream)
    saxpy.launch(8, 128, 2.0, cu.read(x), z, 1000, stream=other)
    stream.synchronize()
    other.synchronize()
