"""Small correct programs, which use each feature of the library once.

Other tests let driver calls and allocations fail in them, and interrupt them anywhere. So a program
holds its objects by `with` blocks and local variables, as a user's program would, and checks its
results.
"""

import asyncio
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import numpy as np

import cudadrv as cu
from cudadrv import _attributes, _graph_picture, _peers, _processors

PTX = Path(__file__).parent.with_name("kernels") / "kernels.ptx"
CONDITIONS = (Path(__file__).parents[1] / "graphs" / "conditions.ptx").read_text()
LARGE = 600_000  # number of bytes that go through several stages
PROGRAMS = {}
# These are imported before anything fails. If memory runs out during an import, Python's compiler
# crashes, and importing a Cython module raises ImportError.
IMPORTED = cu.Advice, cu.Pipeline, cu.StreamGroup, cu.from_array, cu.from_dlpack
IMPORTED += _attributes, _processors, cu.DriverPool, cu.migration_limit, cu.Graph, cu.GraphNode
IMPORTED += cu.Signal, cu.Link, _peers, cu.Ticket, cu.open, cu.Array, cu.Texture
IMPORTED += _graph_picture, cu.ExecutableNode, cu.joins_capture, cu.from_cuda_array, cu.trace
IMPORTED += (cu.guard,)


def program(function):
    PROGRAMS[function.__name__] = function
    return function


def numbers(count, dtype="u4"):
    return np.arange(count).astype(dtype)


def items_of(buffer, stream=None):
    array = np.empty(buffer.count, buffer.dtype)
    buffer.copy_to(array, stream=stream)
    return array


@program
def devices():
    assert cu.Device.count() >= 1
    device = cu.Device(0)
    assert device.name
    assert device.uuid
    assert device.compute_capability >= (5, 0)
    assert device.total_memory > 0
    assert device.attribute("warp_size") == 32
    assert device in cu.Device.all()
    assert device.memory_info()[1] > 0
    assert device.pci_bus_id
    with device:
        assert cu.Device.current() == device
        assert device.context.priority_range[1] == 0
        device.synchronize()
    assert cu.driver_info().version >= (12, 0)


@program
def contexts():
    context = cu.Context.create(cu.Device(0))
    with context:
        stream = cu.Stream()
        buffer = cu.DeviceBuffer(16)
        token = buffer.fill_async(3, stream)
        context.synchronize()
        assert token.done
        assert set(items_of(buffer)) == {3}
        buffer.close()
        stream.close()
    context.synchronize()


@program
def streams():
    context = cu.Event().context
    plain, blocking = cu.Stream(), cu.Stream(blocking=True)
    urgent = cu.Stream(priority=context.priority_range[0])
    again = cu.Stream.from_handle(int(plain))
    assert again is plain
    buffer = cu.LockedBuffer(64)
    with plain.scope():
        buffer.fill_async(1)
    urgent.bind(buffer).fill_async(2).wait()
    with blocking:
        buffer.fill_async(3)
        blocking.synchronize()
    assert set(buffer.to_numpy()) == {3}
    while not plain.done:
        pass
    for stream in (plain, blocking, urgent):
        stream.close()


@program
def growing():
    buffer = cu.DeviceBuffer(8, capacity=4 << 20)
    address = buffer.address
    buffer.fill(1)
    buffer.grow(3 << 20)
    assert buffer.count == 3 << 20
    assert buffer.address == address
    buffer[8:].fill(2)
    items = items_of(buffer)
    assert (items[:8] == 1).all()
    assert (items[8:] == 2).all()
    buffer.shrink(8)
    assert set(items_of(buffer)) == {1}
    buffer.close()


@program
def events():
    one, two = cu.Stream(), cu.Stream()
    buffer = cu.DeviceBuffer(1000)
    start, end = cu.Event(timing=True), cu.Event(timing=True, blocking_sync=True)
    one.record(start)
    buffer.fill_async(1, one)
    one.record(end)
    two.wait(end)
    token = buffer.fill_async(2, two)
    one.wait(token)
    buffer.fill_async(3, one)
    two.wait(one)
    last = two.record()
    last.synchronize()
    end.synchronize()
    while not end.done:
        pass
    assert end.elapsed_ms(start) >= 0
    assert set(items_of(buffer)) == {3}
    end.close()


@program
def device_buffers():
    with cu.DeviceBuffer.from_array(numbers(100), name="numbers") as buffer:
        copy = cu.DeviceBuffer(100, "u4", pooled=False)
        copy.copy_from(buffer)
        buffer.fill(7)
        assert (items_of(copy) == numbers(100)).all()
        assert set(items_of(buffer)) == {7}
        assert not buffer.borrowed
        assert "free" in buffer.explain()
        copy.close()


@program
def locked_buffers():
    stream = cu.Stream()
    source = cu.LockedBuffer.from_array(numbers(100))
    combined = cu.LockedBuffer(100, "u4", write_combined=True)
    combined.copy_from(source)
    device = cu.DeviceBuffer(100, "u4")
    device.copy_from_async(combined, stream)
    source[5] = 1
    source[:5] = 2
    source.copy_from_async(device, stream)
    stream.synchronize()
    assert (source.to_numpy() == numbers(100)).all()
    assert source[7] == 7
    source.close()


@program
def unified_buffers():
    stream = cu.Stream()
    buffer = cu.UnifiedBuffer.zeros(64, "i8")
    buffer.fill_async(5, stream)
    stream.synchronize()
    buffer[1] = 6
    assert buffer.to_numpy().tolist() == [5, 6] + [5] * 62
    buffer.copy_from(numbers(64, "i8"), stream=stream)
    assert buffer[63] == 63
    buffer.close()


@program
def stream_ordered():
    one, two = cu.Stream(), cu.Stream()
    pooled = cu.DeviceBuffer(1000, stream=one)
    exact = cu.DeviceBuffer(1000, stream=one, pooled=False)
    pooled.fill_async(1, one)
    exact.copy_from_async(pooled, one)
    two.wait(one)
    exact.fill_async(2, two)
    exact.close(two)
    pooled.close()
    again = cu.DeviceBuffer(1000, stream=one)
    again.fill_async(4, one)
    del again
    two.synchronize()
    one.synchronize()


@program
def parts():
    one, two = cu.Stream(), cu.Stream()
    whole = cu.DeviceBuffer(64, "u2")
    left, right = whole.split_at(32)
    left.fill_async(1, one)
    right.fill_async(2, two)
    one.synchronize()
    two.synchronize()
    for number, part in enumerate(whole.chunks(16)):
        assert set(items_of(part)) == {1 if number < 2 else 2}
    whole[8:16].view("u1").fill(3)
    assert items_of(whole)[8] == 0x0303
    del left, right, part
    whole.close()


@program
def copies_between_buffers():
    one, two = cu.Stream(), cu.Stream()
    source, target = cu.LockedBuffer.from_array(numbers(500)), cu.LockedBuffer(500, "u4")
    first, second = cu.DeviceBuffer(500, "u4"), cu.DeviceBuffer(500, "u4")
    up = first.copy_from_async(source, one)
    second.copy_from_async(first, one)
    two.wait(one)
    down = second.copy_to_async(target, two)
    down.wait()
    up.wait()  # returns at once, unless memory ran out when `down` became known
    assert down.reads == (second,)
    assert (target.to_numpy() == numbers(500)).all()
    source.copy_from(target, stream=one)


@program
def several_devices():
    """Use two devices.

    Each call is made in the context of its object, so that cudadrv does not switch contexts.
    Otherwise cudadrv would repeat a failing call, and could not report a failure to switch back.
    """
    if cu.Device.count() < 2:
        return
    zero, one = cu.Device(0), cu.Device(1)
    with zero:
        near = cu.Stream()
        here, back = cu.DeviceBuffer.from_array(numbers(100)), cu.DeviceBuffer(100, "u4")
    with one:
        far, there = cu.Stream(), cu.DeviceBuffer(100, "u4")
        ordered = cu.DeviceBuffer(100, "u4", stream=far)
        there.copy_from_async(here, far)
        ordered.copy_from_async(there, far)
        done = far.record()
    assert zero.link_to(one).access
    with zero:
        zero.enable_access(one)
        near.wait(done)
        there.fill_async(5, near)
        ordered[:50].fill_async(6, near)
        back.copy_from_async(ordered, near)
        near.synchronize()
        assert zero.peers == (one,)
        zero.disable_access(one)
        assert items_of(back).tolist() == [6] * 50 + list(range(50, 100))
        assert set(items_of(there.to(zero, stream=near), near)) == {5}
    with one:
        far.close()
        there.close()
        ordered.close()
        done.close()


@program
def pools_of_several_devices():
    """Use pools of two devices.

    Each call is made in the context of its object, as in several_devices.
    """
    if cu.Device.count() < 2:
        return
    zero, one = cu.Device(0), cu.Device(1)
    with one:
        far = cu.Stream()
    with zero:
        near, pool = cu.Stream(), cu.DriverPool(name="mine")
        pool.allow_access(one)
        assert pool.access(one) == "readwrite"
        with pool:
            work = cu.DeviceBuffer(100, stream=near)
        done = near.record()
    with one:
        far.wait(done)
        work.fill_async(5, far)
        with suppress(cu.OwnershipError):
            pool.allow_access(one, None)
            raise AssertionError("work of the device may use the memory")
        one.synchronize()
    with zero:
        assert set(items_of(work, near)) == {5}
        pool.allow_access(one, None)
        assert pool.access(one) is None
        work.close(near)
        near.synchronize()
        pool.close()
        done.close()
    with one:
        far.close()


@program
def graphs_of_several_devices():
    """Copy between two devices in graphs.

    Each call is made in the context of its object, as in several_devices.
    """
    if cu.Device.count() < 2:
        return
    zero, one = cu.Device(0), cu.Device(1)
    with one:
        far, there, other = cu.Stream(), cu.DeviceBuffer(100, "u4"), cu.DeviceBuffer(100, "u4")
        there.fill(1)
        other.fill(2)
    with zero:
        near, pool = cu.Stream(), cu.DriverPool("device", one)
        here = cu.DeviceBuffer(100, "u4")
        graph = cu.Graph()
        with graph.capture(near):
            here.copy_from_async(there, near)
        graph.add_copy(there[:50], here[50:], after=graph.nodes)
        step = graph.instantiate()
        step.upload(near)
        step[0].set(source=other)
        step.launch(near).wait()
        assert set(items_of(here, near)) == {2}
        step.close()
        graph.close()
        pool.allow_access(zero)
        with pool, one:
            ordered = cu.DeviceBuffer(100, "u4", stream=far)
        with cu.Graph() as graph:
            graph.add_copy(here, ordered)
            with suppress(cu.OwnershipError):
                pool.allow_access(zero, None)
        pool.allow_access(zero, None)
        assert pool.access(zero) is None
        near.close()
    with one:
        there.close()
        del ordered
        far.close()


@program
def copies_of_arrays():
    stream = cu.Stream()
    buffer = cu.DeviceBuffer(1000, "u4")
    buffer.copy_from_async(numbers(1000), stream)
    assert (items_of(buffer, stream) == numbers(1000)).all()
    large = cu.DeviceBuffer(LARGE)
    large.copy_from(numbers(LARGE, "u1"), stream=stream)
    assert (items_of(large, stream) == numbers(LARGE, "u1")).all()


@program
def fills():
    stream = cu.Stream()
    for dtype in ("u1", "u2", "f4", "f8"):
        buffer = cu.DeviceBuffer(10, dtype)
        token = buffer.fill_async(9, stream)
        assert token.writes == (buffer,)
        token.wait()
        assert set(items_of(buffer)) == {9}
    buffer = cu.DeviceBuffer(10, "c16")
    buffer.fill_async(1 + 2j, stream).wait()
    assert set(items_of(buffer)) == {1 + 2j}
    buffer.view("V5").fill_async(0, stream).wait()
    assert set(items_of(buffer)) == {0}


@program
def boxes():
    stream = cu.Stream()
    numbers_of = numbers(96, "u4").reshape(4, 4, 6)
    host = cu.LockedBuffer.from_array(numbers_of)
    here, there = cu.DeviceBuffer(96, "u4").reshape(4, 4, 6), cu.DeviceBuffer(96, "u4")
    volume = there.reshape(4, 4, 6)
    here.copy_from_async(host, stream)
    there.fill_async(0, stream)
    volume[:, 0, 1:3].copy_from_async(here[:, 0, 1:3], stream)
    volume[1:3, 1:3, 2:4].copy_from_async(host[1:3, 1:3, 2:4], stream)
    volume[..., 5].fill_async(7, stream)
    volume[1:, :2, :1].fill_async(8, stream)
    wide = there.view("u8").reshape(8, 6)
    wide[6:, 1:3].fill_async((2 << 32) + 1, stream).wait()
    expected = np.zeros_like(numbers_of)
    expected[:, 0, 1:3], expected[1:3, 1:3, 2:4] = numbers_of[:, 0, 1:3], numbers_of[1:3, 1:3, 2:4]
    expected[..., 5], expected[1:, :2, :1] = 7, 8
    expected.view("u8").reshape(8, 6)[6:, 1:3] = (2 << 32) + 1
    found = np.empty_like(expected)
    volume.copy_to(found, stream=stream)
    assert (found == expected).all()
    part = np.empty((3, 2, 2), "u4")
    volume[1:, :2, :2].copy_to(part, stream=stream)
    volume[1:, 2:, :2].copy_from(part, stream=stream)
    volume[1:, 2:, :2].copy_to(found[1:, 2:, :2])
    assert (found[1:, 2:, :2] == part).all()


@program
def boxes_of_several_devices():
    """Copy a box between two devices, each call in the context of its object."""
    if cu.Device.count() < 2:
        return
    with cu.Device(0):
        near, here = cu.Stream(), cu.DeviceBuffer.from_array(numbers(24).reshape(4, 6))
        done = near.record()
    with cu.Device(1):
        far, there = cu.Stream(), cu.DeviceBuffer.zeros(24, "u4")
        far.wait(done)
        image = there.reshape(4, 6)
        image[:, 1:3].copy_from_async(here[:, 3:5], far)
        found = np.empty((4, 2), "u4")
        image[:, 1:3].copy_to(found, stream=far)
        assert (found == numbers(24).reshape(4, 6)[:, 3:5]).all()
        far.synchronize()
        far.close()
    with cu.Device(0):
        done.close()
        near.close()


@program
def memory_in_place():
    stream = cu.Stream()
    array = np.zeros(100, "f4")
    locked = cu.LockedBuffer.from_memory(array)
    locked.fill_async(3, stream).wait()
    assert array.sum() == 300
    locked.close()
    frozen = cu.LockedBuffer.from_memory(b"frozen")
    with suppress(BufferError):
        frozen.fill(0)
        raise AssertionError
    work = cu.DeviceBuffer(6)
    work.copy_from_async(frozen, stream)
    del frozen
    stream.synchronize()
    assert bytes(items_of(work)) == b"frozen"


READ = """
.version 7.5
.target sm_75
.address_size 64
.visible .entry read(.param .u64 texture, .param .u64 out)
{
    .reg .b64 %d<3>; .reg .b32 %r<8>;
    ld.param.u64 %d1, [texture]; ld.param.u64 %d2, [out];
    mov.u32 %r1, 1; mov.u32 %r2, 2;
    tex.2d.v4.u32.s32 {%r4, %r5, %r6, %r7}, [%d1, {%r1, %r2}];
    st.global.u32 [%d2], %r4;
    ret;
}
.visible .entry paint(.param .u64 surface)
{
    .reg .b64 %d<3>; .reg .b32 %r<4>;
    ld.param.u64 %d1, [surface]; mov.u32 %r1, 4; mov.u32 %r2, 2; mov.u32 %r3, 77;
    sust.b.2d.b32.trap [%d1, {%r1, %r2}], %r3;
    ret;
}
"""


@program
def textures():
    stream = cu.Stream()
    module = cu.Module(READ)
    out = cu.DeviceBuffer.zeros(1, "u4")
    image = cu.Array((4, 8), "u4", surface=True, mipmaps=2, name="image")
    level = image.level(0)
    level.copy_from_async(numbers(32), stream)
    image.level(1)[1].copy_from(numbers(4))
    with cu.Texture(level) as texture:
        module["read"].launch(1, 1, texture, out, stream=stream)
        stream.synchronize()
        assert items_of(out).tolist() == [17]
    surface = cu.Surface(level)
    module["paint"].launch(1, 1, surface, stream=stream)
    stream.synchronize()
    back = cu.LockedBuffer(8, "u4")
    level[2].copy_to(back)
    assert back[1] == 77
    pitched = cu.DeviceBuffer.pitched((4, 8), "u4")
    level.copy_to_async(pitched, stream)
    of_buffer = cu.Texture(pitched)
    module["read"].launch(1, 1, of_buffer, out, stream=stream).wait()
    assert items_of(out).tolist() == [77]
    with cu.Graph() as graph:
        with graph.capture(stream):
            level.copy_from_async(pitched, stream)
            module["read"].launch(1, 1, of_buffer, out, stream=stream)
        with graph.instantiate() as step:
            step.launch(stream).wait()
    surface.close()
    image.close()


@program
def host_views():
    stream = cu.Stream()
    buffer = cu.LockedBuffer.zeros(32, "f4")
    with buffer.write() as array:
        array[:] = 2
    with buffer.read() as array:
        assert array.sum() == 64
    view = memoryview(buffer)
    try:
        buffer.fill_async(0, stream)
    except cu.BufferExportedError:
        view.release()
    array = np.asarray(buffer.readonly())
    assert array[3] == 2
    del array
    buffer.fill_async(1, stream)
    stream.synchronize()
    assert buffer[0] == 1
    buffer.close()


@program
def lending():
    stream, other = cu.Stream(), cu.Stream()
    buffer = cu.DeviceBuffer(100)
    with buffer.lend(stream) as address:
        assert address == buffer.address
    other.wait(stream)
    with buffer.lend(other, readonly=True):
        pass
    other.synchronize()
    buffer.close()


@program
def imports():
    stream = cu.Stream()
    x, y = cu.UnifiedBuffer(64, "f4"), cu.DeviceBuffer(64, "f4")
    x.fill_async(3, stream)
    y.fill_async(1, stream)
    interface = {"shape": (64,), "typestr": "<f4", "data": (x.address, False), "version": 3}
    theirs = SimpleNamespace(__cuda_array_interface__=interface)
    with cu.Module.from_file(PTX) as module:
        saxpy = module["saxpy"]
        saxpy.launch(1, 64, 2.0, cu.read(x.lend(stream, device="cuda")), y, 64, stream=stream)
        saxpy.launch(1, 64, 2.0, cu.read(theirs), y, 64, stream=stream)
        stream.synchronize()
    assert set(items_of(y, stream)) == {13}
    found = cu.from_cuda_array(theirs, stream)
    found.fill_async(4, stream)
    found.give_back(stream)
    stream.synchronize()
    assert set(items_of(x, stream)) == {4}


@program
def loans():
    stream, other = cu.Stream(), cu.Stream()
    buffer, locked = cu.DeviceBuffer.zeros(64, "u4"), cu.LockedBuffer.zeros(64, "u4")
    loan = buffer.lend(stream)
    capsule = loan.__dlpack__(stream=stream.handle, max_version=(1, 0))
    with suppress(cu.BufferExportedError):
        buffer.fill_async(1, other)
        raise AssertionError("the buffer is lent to another stream")
    with loan.back():
        buffer.fill_async(2, stream)
    del capsule
    buffer.fill_async(3, stream)
    array = np.from_dlpack(locked)
    with suppress(cu.BufferExportedError):
        locked.fill_async(1, stream)
        raise AssertionError("the buffer is lent to NumPy")
    assert not array.any()
    del array
    locked.copy_from_async(buffer, stream)
    stream.synchronize()
    assert set(locked.to_numpy()) == {3}
    buffer.close()


class Theirs:
    """An array of another library, over memory of a buffer."""

    def __init__(self, buffer, stream):
        self.buffer, self.stream = buffer, stream

    @property
    def __cuda_array_interface__(self):
        address, stream = self.buffer.address, self.stream.handle
        shape = {"shape": (self.buffer.count,), "typestr": self.buffer.dtype.str, "version": 3}
        return {**shape, "data": (address, False), "stream": stream}


@program
def arrays_of_others():
    stream, other = cu.Stream(), cu.Stream()
    whole = cu.DeviceBuffer.zeros(64, "f4")
    given = cu.from_cuda_array(Theirs(whole, stream), stream)
    part = cu.from_cuda_array(Theirs(whole[:16], stream), stream)
    given.fill_async(3, stream)
    with suppress(cu.BufferBorrowedError):
        part.fill_async(4, other)
        raise AssertionError("the other array is being written")
    given.give_back(stream)
    part.fill_async(4, stream)
    with cu.Module.from_file(PTX) as module:
        x = cu.DeviceBuffer.from_array(numbers(64, "f4"))
        arguments = 2.0, cu.read(Theirs(x, stream)), Theirs(whole, stream), 64
        module["saxpy"].launch(1, 64, *arguments, stream=stream)
        stream.synchronize()
    part.close()
    assert (items_of(whole) == 2 * numbers(64) + np.repeat(np.array([4, 3]), [16, 48])).all()
    whole.close()


@program
def out_of_memory():
    pools, kept = cu.Event().context.pools, [cu.DeviceBuffer(1000, pooled=False)]
    pools.on_out_of_memory = lambda nbytes, context: bool(kept) and kept.clear() is None
    try:
        with suppress(cu.CudaOutOfMemoryError):
            cu.DeviceBuffer(1 << 50)
            raise AssertionError("no device has so much memory")
        growing = cu.DeviceBuffer(8, capacity=1 << 40)
        with suppress(cu.CudaOutOfMemoryError):
            growing.grow(1 << 40)
            raise AssertionError("no device has so much memory")
    finally:
        with suppress(cu.ContextLostError):
            pools.on_out_of_memory = None
    growing.fill(1)
    assert set(items_of(growing)) == {1}
    growing.close()


@program
def sharing():
    stream = cu.Stream()
    buffer = cu.DeviceBuffer(100)
    locked = cu.LockedBuffer(100, shareable=True)
    for shared in (buffer, locked):
        shared.fill_async(3, stream)
        try:
            ticket = shared.share(stream)
            assert cu.Ticket(bytes(ticket)) == ticket
            assert ticket.shape == (100,)
            with suppress(cu.OwnershipError):
                cu.open(ticket, stream)
                raise AssertionError
            shared.accept(stream=stream)
        except BaseException:
            with suppress(ValueError, cu.ContextLostError):  # ValueError: the buffer is not shared
                shared.accept(stream=stream)
            raise
        shared.fill_async(4, stream)
    stream.synchronize()
    assert set(items_of(buffer)) == {4}
    assert locked[0] == 4
    buffer.close()
    locked.close()


@program
def policies():
    one, two = cu.Stream(), cu.Stream()
    buffer, locked = cu.DeviceBuffer(100), cu.LockedBuffer(100)
    with cu.ordering("wait"):
        buffer.fill_async(1, one)
        buffer.fill_async(2, two)
        locked.copy_from_async(buffer, one)
        assert set(locked.to_numpy()) == {2}
        buffer.close()
    locked.ordering = "wait"
    locked.fill_async(5, two)
    locked[0] = 4
    try:
        locked.fill_async(6, one)
        with cu.ordering("strict"):
            locked.fill_async(7, two)
    except cu.BufferBorrowedError:
        one.synchronize()
        two.synchronize()
    assert locked[0] == 6


@program
def kernels():
    stream = cu.Stream()
    with cu.Module.from_file(PTX) as module:
        saxpy = module["saxpy"]
        assert [parameter.name for parameter in saxpy.parameters] == ["a", "x", "y", "n"]
        x, y = cu.DeviceBuffer.from_array(numbers(64, "f4")), cu.DeviceBuffer.zeros(64, "f4")
        saxpy.launch(1, 64, 2.0, cu.read(x), y, 64, stream=stream)
        ready = saxpy.prepare(1, 64, 1.0, cu.read(x), y, 64)
        ready.launch(stream)
        stream.synchronize()
        assert (items_of(y) == 3 * numbers(64, "f4")).all()
        assert saxpy.attributes.max_threads_per_block >= 64
        assert saxpy.occupancy(64) >= 1
        assert saxpy.suggest_block()[0] >= 32


@program
def linked_code():
    stream = cu.Stream()
    with cu.Module.link([PTX], name="linked") as module:
        x = cu.DeviceBuffer.from_array(numbers(64, "f4"))
        y = cu.DeviceBuffer.zeros(64, "f4")
        window = cu.access_window(y, hit_ratio=0.5)
        module["saxpy"].launch(
            1, 64, 2.0, cu.read(x), y, 64, stream=stream, window=window, priority=0, domain="remote"
        )
        stream.synchronize()
        assert (items_of(y) == 2 * numbers(64, "f4")).all()


@program
def limits():
    context = cu.Context.create(cu.Device(0))
    before = context.limits.stack_bytes
    context.limits.stack_bytes = 2 * before
    assert context.limits.stack_bytes == 2 * before
    with cu.capture_profiler():
        pass


@program
def tracing():
    stream, buffer = cu.Stream(), cu.DeviceBuffer(64)
    with cu.trace("/dev/null"):
        buffer.fill_async(1, stream)
        other = cu.LockedBuffer(64)
        other.copy_from_async(buffer, stream)
        stream.synchronize()
    assert other.to_numpy()[5] == 1


@program
def functions_in_a_guard():
    stream, buffer = cu.Stream(), cu.DeviceBuffer(8192)
    before = cu.LockedBuffer(8192)
    with cu.guard():
        other = cu.LockedBuffer(8192)
        buffer.copy_from_async(before, stream)
        buffer.fill_async(1, stream)
        buffer.copy_to_async(other, stream)
        stream.call(np.copy, other)
        stream.synchronize()
        del before
    assert other.to_numpy()[5] == 1


@program
def kernel_variables():
    stream = cu.Stream()
    module = cu.Module(PTX.read_bytes(), name="variables")
    counter = module.global_("counter", "u4")
    counter.fill(0)
    scale = module.global_("scale", "f4")
    scale.copy_from(np.array([1, 3], "f4"))
    x = cu.DeviceBuffer.from_array(numbers(32, "f4"))
    module["count"].launch(1, 32, 2, stream=stream)
    module["scaled"].launch(1, 32, x, stream=stream)
    module["set_managed"].launch(1, 1, 8, stream=stream)
    value = module.global_("flag_value", "i4")
    module["reverse"].launch(1, 32, x, stream=stream, shared_bytes=128)
    stream.synchronize()
    assert items_of(counter)[0] == 64
    assert value[0] == 8
    assert (items_of(x) == 3 * numbers(32, "f4")[::-1]).all()
    module.close()


@program
def pools():
    context = cu.Event().context
    limit = context.pools.device.limit_bytes
    address = cu.DeviceBuffer(1000).address
    buffer = cu.DeviceBuffer(1000)
    assert buffer.address == address
    buffer.close()
    cu.LockedBuffer(100).close()
    assert context.pools.device.stats.peak_bytes >= 1000
    context.pools.device.trim()
    context.pools.locked.trim(keep_bytes=10)
    context.pools.device.limit_bytes = 0
    cu.DeviceBuffer(10).close()
    context.pools.device.limit_bytes = limit
    cu.reap()
    assert "No buffer" in cu.memory_report()


@program
def addresses():
    stream = cu.Stream()
    for kind in (cu.DeviceBuffer, cu.LockedBuffer, cu.UnifiedBuffer):
        whole = kind(64)
        with kind.from_address(whole.address, 64, owner=whole) as foreign:
            foreign.fill_async(1, stream)
            stream.synchronize()
        del foreign
        address = whole.address  # Ctrl-C right after into_raw loses the address that it returns
        try:
            whole.into_raw()
            buffer = kind.from_raw(address, 16, "u4")
        except BaseException:
            # ValueError: Ctrl-C came after from_raw, and its buffer was dropped with the memory.
            with suppress(cu.ContextLostError, ValueError):
                kind.from_raw(address, 16, "u4").close()
            raise
        moved = buffer.take()
        moved.fill(2, stream=stream)
        moved.close()


@program
def giving_back():
    """An array is imported, used and given back, on one stream after the other."""
    streams, whole = (cu.Stream(), cu.Stream()), cu.DeviceBuffer(64)
    interface = {"shape": (64,), "typestr": "|u1", "data": (whole.address, False), "version": 3}
    array = SimpleNamespace(__cuda_array_interface__=interface, owner=whole)
    for number in range(4):
        stream = streams[number % 2]
        buffer = cu.from_cuda_array(array, stream)
        buffer.fill_async(number, stream)
        buffer.give_back(stream)
    buffer = cu.from_cuda_array(array, ordered=True)
    assert set(items_of(buffer, streams[1])) == {3}


@program
def awaiting():
    async def main():
        stream = cu.Stream()
        buffer = cu.DeviceBuffer(100)
        await buffer.fill_async(1, stream)
        token = buffer.fill_async(2, stream)
        await asyncio.gather(token, asyncio.sleep(0))
        assert set(items_of(buffer)) == {2}
        buffer.fill_async(3, stream)
        await stream
        buffer.fill_async(4, stream)
        await stream.record()
        async with stream.scope():
            buffer.fill_async(5)
        assert set(buffer.to_numpy()) == {5}

    asyncio.run(main())


@program
def patience():
    stream, event = cu.Stream(name="worker"), cu.Event(name="done")
    buffer = cu.DeviceBuffer(100)
    token = buffer.fill_async(1, stream)
    stream.record(event)
    for wait in (token.wait, event.synchronize, stream.synchronize):
        with suppress(TimeoutError):
            wait(timeout=0)
        wait(timeout=60)
    assert set(buffer.to_numpy(stream=stream)) == {1}


@program
def streams_of_others():
    class Theirs:
        def __init__(self, stream):
            self.stream = stream

        def __cuda_stream__(self):
            return self.stream.__cuda_stream__()

    stream, other, buffer = cu.Stream(), Theirs(cu.Stream()), cu.LockedBuffer(100)
    buffer.fill_async(1, Theirs(stream))
    other.stream.wait(Theirs(stream))
    buffer.fill_async(2, other)
    buffer.copy_to(np.empty(100, "u1"), stream=other)
    assert cu.Stream.from_object(other) is other.stream
    other.stream.synchronize()
    assert set(buffer.to_numpy()) == {2}


@program
def default_streams():
    legacy, own = cu.Stream.legacy(), cu.Stream.per_thread()
    blocking, other = cu.Stream(blocking=True), cu.Stream()
    assert cu.Stream.from_handle(1) is legacy
    buffer = cu.LockedBuffer(100)
    buffer.fill_async(1, blocking)
    buffer.fill_async(2, legacy)
    buffer.fill_async(3, own)
    other.wait(own)
    buffer.fill_async(4, other)
    other.synchronize()
    assert set(buffer.to_numpy()) == {4}


@program
def dropping():
    context = cu.Event().context
    kept = cu.DeviceBuffer(100)
    for number in range(3):
        stream = cu.Stream()
        cu.DeviceBuffer(100).fill_async(number, stream)
        cu.LockedBuffer(100).copy_from_async(cu.DeviceBuffer(100, stream=stream), stream)
        kept.fill_async(number, stream)
        stream.record()
        if number == 1:
            stream.close()
        del stream
        context.synchronize()
    cu.DeviceBuffer(3000).fill_async(1, cu.Stream())
    cu.reap()
    context.synchronize()
    assert set(items_of(kept)) == {2}


@program
def managed_places():
    device, stream = cu.Device(0), cu.Stream()
    if not device.attribute("concurrent_managed_access"):
        return
    buffer = cu.UnifiedBuffer.from_array(numbers(100), name="managed")
    buffer.prefetch(device, stream)
    cu.prefetch_batch([(buffer[:50], "host"), (buffer[50:], device)], stream).wait()
    buffer.advise(read_mostly=True, preferred="host", accessed_by={device})
    assert buffer.advice[:3] == (True, "host", {device})
    with cu.scalar_access(False), suppress(TypeError):
        buffer[0] = 7
    assert (buffer.to_numpy() == numbers(100)).all()


@program
def discards_and_attachments():
    stream, device = cu.Stream(), cu.Device(0)
    buffer = cu.UnifiedBuffer.from_array(numbers(100), name="managed")
    if device.attribute("concurrent_managed_access"):
        buffer.discard(stream)
        with suppress(cu.ContentsDiscardedError):
            buffer.copy_to_async(cu.DeviceBuffer(100, "u4"), stream)
            raise AssertionError("nobody has written that")
        buffer.copy_from_async(numbers(100), stream)
        cu.discard_batch([buffer[:10], buffer[90:]], stream)
        buffer[90:].discard_and_prefetch(device, stream).wait()
        buffer[:10], buffer[90:] = numbers(10), numbers(100)[90:]
    buffer.attach(stream).wait()
    assert (buffer.to_numpy() == numbers(100)).all()
    buffer.attach("global", stream).wait()


@program
def pools_of_the_driver():
    stream = cu.Stream()
    pool = cu.DriverPool(name="mine", release_threshold=4096)
    try:
        locked = cu.DriverPool("locked")
    except ValueError:  # the driver is older than CUDA 13.0
        return
    with pool, locked:
        work = cu.DeviceBuffer(100, stream=stream)
        frames = cu.LockedBuffer.from_array(numbers(25))
        work.copy_from_async(frames.view("u1"), stream)
        other = cu.DeviceBuffer(100)
        other.copy_from_async(work, stream)
    stream.synchronize()
    assert (items_of(other).view("u4") == numbers(25)).all()
    work.close(stream)
    del other
    with suppress(cu.OwnershipError):
        locked.close()
    frames.close()
    pool.trim()
    stream.synchronize()
    assert pool.stats.peak_used_bytes > 0
    pool.close()
    locked.close()


@program
def ping_pong():
    device, stream = cu.Device(0), cu.Stream()
    if not device.attribute("concurrent_managed_access"):
        return
    buffer = cu.UnifiedBuffer.zeros(100, name="managed")
    with cu.migration_limit(1):
        for value in range(2):
            buffer.fill_async(value, stream).wait()
            try:
                assert buffer[0] == value == 0
            except cu.MigrationError:
                assert value == 1
    assert buffer.migrations == 1
    assert buffer[0] == 1


@program
def batches():
    stream = cu.Stream()
    work, given = cu.DeviceBuffer(100, "u4"), cu.LockedBuffer.from_array(numbers(100))
    cu.copy_batch([(work[50:], given[:50]), (work[:50], given[50:])], stream).wait()
    image = cu.DeviceBuffer(100, "u4").reshape(10, 10)
    cu.copy_batch([(image[:, :5], image[:, 5:])], stream)
    image[2:4, 3:8].fill_async(5, stream)
    image[:, 9].copy_from_async(given[:10], stream)
    stream.synchronize()
    assert items_of(work).tolist() == [*range(50, 100), *range(50)]
    graph = cu.Graph()
    with graph.capture(stream):
        cu.copy_batch([(work[:50], given[:50]), (work[50:], given[50:])], stream)
    graph.instantiate().launch(stream).wait()
    assert items_of(work).tolist() == [*range(100)]
    pairs = [(work[:50], numbers(50)), (work[50:], numbers(50))]
    cu.copy_batch(pairs, stream, source_access="during call").wait()
    cu.copy_batch([(work[:10], given[:10]), (work[10:20], given[:10])], cu.Stream.legacy())
    stream.context.synchronize()
    assert items_of(work).tolist() == [*range(10), *range(10), *range(20, 50), *range(50)]
    assert items_of(image).reshape(10, 10)[:, 9].tolist() == list(range(10))


@program
def signals():
    stream, side = cu.Stream(), cu.Stream()
    frame = cu.LockedBuffer.zeros(100, "u4")
    with cu.Signal(name="ready") as ready:
        frame.fill_async(3, stream)
        token = stream.set(ready, 1)
        side.wait(ready, 1)
        frame.fill_async(4, side)
        side.set(ready, 2)
        token.wait()
        ready.wait(2)
        assert ready.value == 2
        assert frame[5] == 4
        ready.set(3)
        stream.wait(ready, 3)
        try:
            stream.wait(ready, 4)
        except cu.SignalError:
            pass
        else:
            raise AssertionError("the wait would never end")


@program
def external_signals():
    stream = cu.Stream()
    frame = cu.LockedBuffer.zeros(100, "u4")
    turn = cu.Signal(external=True)
    function, arguments = turn.__reduce__()  # pickle would hide that memory runs out
    assert function(*arguments) is turn
    try:
        stream.wait(turn, 1)
        token = frame.fill_async(3, stream)
    finally:
        turn.set(1)
    turn.wait(1)
    token.wait()
    assert frame[5] == 3
    assert turn.value == 1
    turn.close()


@program
def functions():
    stream, side = cu.Stream(), cu.Stream()
    work = cu.DeviceBuffer.from_array(numbers(100))
    host, other = cu.LockedBuffer(100, "u4"), cu.UnifiedBuffer.zeros(100, "u4")
    seen = []
    host.copy_from_async(work, stream)
    stream.call(lambda array: np.add(array, 1, out=array), host)
    token = stream.call(lambda array: seen.append(int(array.sum())), cu.read(host[10:20]))
    work.copy_from_async(host, stream)
    if cu.Device(0).attribute("concurrent_managed_access"):
        side.call(lambda array: array.fill(7), other)
    token.wait()
    stream.synchronize()
    side.synchronize()
    assert seen == [155]
    assert items_of(work).tolist() == list(range(1, 101))
    assert set(other.to_numpy()) <= {0, 7}
    try:
        stream.call(lambda array: {}[array.size], cu.read(host)).wait()
    except KeyError:
        pass
    except BaseException:
        with suppress(Exception):  # the next wait raises what the function has raised
            stream.synchronize()
        raise


def kinds_and_groups():
    group = cu.StreamGroup(2)
    with cu.memory("locked"):
        source = cu.from_array(numbers(100).reshape(4, 25)).flat
        target = cu.zeros((4, 25), "u4")
    work = cu.empty(100, "u4", kind="device")
    with group.scope():
        for start in range(0, 100, 50):
            stream, part = group.next(), slice(start, start + 50)
            work[part].copy_from_async(source[part], stream)
            target.flat[part].copy_from_async(work[part], stream)
    assert (target.to_numpy() == numbers(100).reshape(4, 25)).all()
    group.wait(cu.Stream())
    group.close()


@program
def pipelines():
    results = []

    def compute(stream, given, taken):
        taken.copy_from_async(given, stream)

    with cu.Pipeline(40, "u4", compute=compute, output_dtype="u4", buffers=2) as pipeline:
        report = pipeline.run(numbers(100), consume=lambda _, array: results.extend(array.tolist()))
        assert (report.chunks, report.items) == (3, 100)
        assert results == list(range(100))
        source, target = cu.LockedBuffer.from_array(numbers(100)), cu.UnifiedBuffer(100, "u4")
        pipeline.run(source, into=target)
        assert (target.to_numpy() == numbers(100)).all()


@program
def pipelines_run_again():
    items = numbers(60, "u1")
    with cu.Pipeline(40, buffers=1) as pipeline:
        try:
            pipeline.run(items, prepare=lambda index, array: array.fill(index))
        except BaseException:
            with suppress(cu.ContextLostError):
                assert pipeline.run(items).items == 60
            raise


@program
def other_places():
    device, stream = cu.Device(0), cu.Stream()
    shared = cu.UnifiedBuffer.from_array(numbers(100), name="shared")
    assert shared.to(device) is shared
    assert shared.to("host", stream=stream) is shared
    stream.synchronize()
    assert (shared.to_numpy() == numbers(100)).all()
    there = shared.to(device, kind="device")
    back = there.to("host", stream=stream)
    stream.synchronize()
    assert (back.to_numpy() == numbers(100)).all()


@program
def arrays_for_a_block():
    stream = cu.Stream()
    x, y, z = numbers(100), np.zeros(100, "u4"), np.ones(100, "u4")
    try:
        with cu.offload(x, out=y, inout=[z], stream=stream) as (dx, dy, dz):
            dy.copy_from_async(dx, stream)
            dz.fill_async(7, stream)
        assert (z == 7).all()
    finally:
        # Either all results were copied back, or none.
        assert (y == (x if z[0] == 7 else 0)).all()
        assert all(array.flags.writeable for array in (x, y, z))


@program
def arrays_of_a_launch():
    stream = cu.Stream()
    x, y = numbers(64, "f4"), np.ones(64, "f4")
    with cu.Module.from_file(PTX) as module:
        token = module["saxpy"].launch(1, 64, 2.0, cu.In(x), cu.InOut(y), 64, stream=stream)
        token.wait()
        assert y.tolist() == [2 * i + 1 for i in range(64)]
        assert y.flags.writeable


@program
def graphs():
    main, side = cu.Stream(), cu.Stream()
    frames, result = cu.LockedBuffer.zeros(16, "u4"), cu.LockedBuffer.zeros(16, "u4")
    work = cu.DeviceBuffer(16, "u4")
    with cu.Module.from_file(str(PTX)) as module, cu.Graph(name="step") as graph:
        with graph.capture(main):
            work.copy_from_async(frames, main)
            event = main.record()
            side.wait(event)
            work[:8].fill_async(7, side)
            token = result[8:].copy_from_async(work[8:], main)
            side.wait(token)
            with suppress(cu.BufferBorrowedError):
                result[:8].copy_from_async(work[:8], main)
            main.wait(side)
            module["count"].launch(1, 1, 1, stream=main)
            result[:8].copy_from_async(work[:8], main)
        assert len(graph.nodes) == 5
        with suppress(cu.BufferBorrowedError):
            work.close()
        with graph.instantiate() as step:
            step.upload(side)
            for number in range(2):
                frames[:] = number
                step.launch(main)
                step.launch(side).wait()
                assert list(result) == [7] * 8 + [number] * 8
    with suppress(cu.CaptureError), cu.Graph().capture(main):
        side.wait(main)
        work.fill_async(1, side)
    work.fill_async(1, main)
    main.synchronize()
    assert set(items_of(work)) == {1}


@program
def functions_in_graphs():
    main = cu.Stream()
    work = cu.DeviceBuffer.from_array(numbers(8))
    host, other = cu.LockedBuffer(8, "u4"), cu.LockedBuffer.zeros(8, "u4")
    seen = []
    inner = cu.Graph()
    with inner.capture(main):
        host.copy_from_async(work, main)
        main.call(lambda array: np.add(array, 1, out=array), host)
        work.copy_from_async(host, main)
    graph = cu.Graph()
    child = graph.add_graph(inner)
    call = graph.add_call(lambda array: seen.append(int(array[0])), cu.read(host), after=[child])
    with graph.instantiate() as step, graph.instantiate() as second:
        step.launch(main)
        second.launch(main).wait()
        assert seen == [1, 2]
        step[call].set(cu.read(other), function=lambda array: seen.append(array.size))
        step.launch(main).wait()
        assert seen == [1, 2, 8]
        step.update(graph)
        step.launch(main).wait()
        assert seen == [1, 2, 8, 4]
    graph.close()
    inner.close()
    assert items_of(work).tolist() == list(range(4, 12))
    with cu.Graph() as failing:
        failing.add_call(lambda array: {}[array.size], cu.read(host))
        with failing.instantiate() as step:
            try:
                step.launch(main).wait()
            except KeyError:
                pass
            except BaseException:
                with suppress(Exception):  # the next wait raises what the function has raised
                    main.synchronize()
                raise


@program
def signals_in_graphs():
    main, side = cu.Stream(), cu.Stream()
    frame, seen = cu.LockedBuffer.zeros(8, "u4"), cu.LockedBuffer.zeros(8, "u4")
    ready, turn = cu.Signal(name="ready"), cu.Signal(external=True)
    with cu.Graph() as graph:
        with graph.capture(main):
            main.wait(turn, 1)
            side.wait(main)
            frame.fill_async(3, main)
            main.set(ready, 1)
            side.wait(ready, 1)
            seen.copy_from_async(frame, side)
            main.wait(side)
        with graph.instantiate() as step:
            try:
                step.launch(main)
            finally:
                turn.set(1)
            turn.wait(1)
            ready.wait(1)
            step[2].set(2)
            step.launch(main)
            side.wait(ready, 2)
            frame.fill_async(4, side)
            side.synchronize()
            assert (seen[0], frame[0], ready.value) == (3, 4, 2)
    with cu.Graph() as built:
        last = built.add_set(ready, 3, after=[built.add_wait(ready, 2)])
        with built.instantiate() as step:
            step.launch(main)
            step[last].set(4)
            step.launch(main)
            ready.wait(4)
            assert ready.value == 4
    ready.close()
    turn.close()


@program
def graph_changes():
    main = cu.Stream()
    frames, result = cu.LockedBuffer.zeros(4, "f8"), cu.LockedBuffer.zeros(4, "f8")
    work, more = cu.DeviceBuffer(4, "f8"), cu.DeviceBuffer(4, "f8")
    graphs = []
    with cu.Module.from_file(str(PTX)) as module:
        for value in (1.5, 2.5):
            graph = cu.Graph()
            with graph.capture(main):
                work.fill_async(value, main)
                module["count"].launch(1, 1, 1, stream=main)
                result.copy_from_async(work, main)
            graphs.append(graph)
        with graphs[0].instantiate() as step:
            step.update(graphs[1])
            step.launch(main).wait()
            assert list(result) == [2.5] * 4
            step[0].set(value=3.5, target=more)
            step[1].set(2, grid=1)
            step[2].set(source=more, target=frames)
            step.launch(main)
            step[2].enabled = False
            step[0].set(value=4.5)
            step.launch(main).wait()
            assert (list(result), list(frames)) == ([2.5] * 4, [3.5] * 4)
            assert set(items_of(more)) == {4.5}
        for graph in graphs:
            graph.close()


@program
def built_graphs():
    main = cu.Stream()
    frames, result = cu.LockedBuffer.zeros(8, "u8"), cu.LockedBuffer.zeros(8, "u8")
    work, left = cu.DeviceBuffer(8, "u8"), cu.DeviceBuffer.zeros(2, "u4")
    with cu.Module(CONDITIONS) as module, cu.Graph(name="built") as graph:
        inner = cu.Graph(name="inner")
        load = inner.add_copy(work, frames)
        with suppress(cu.BufferBorrowedError):
            inner.add_fill(work, 1)
        with cu.ordering("wait"):
            inner.add_fill(work[:4], (1 << 32) + 2)
        with inner.capture(main, after=[load]):
            result[4:].copy_from_async(work[4:], main)
        again = graph.condition(1)
        start = graph.add_fill(left, 3)
        node, body = graph.add_while(again, after=[start])
        with suppress(cu.BufferBorrowedError):
            graph.add_fill(left, 1)
        body.add_launch(module["count_down"], 1, 1, left[:1], again, cooperative=True)
        _, deeper, other = body.add_if(body.condition(1), bodies=2)
        with deeper.capture(main):
            module["add_one"].launch(1, 1, left[1:], stream=main)
        other.add_fill(left[1:], 0)
        assert (len(body.nodes), len(deeper.nodes)) == (2, 1)
        last = graph.add_graph(inner, after=[node])
        graph.add_copy(result[:4], work[:4], after=[last])
        inner.close()
        with suppress(cu.BufferBorrowedError):
            work.close()
        with graph.instantiate() as step:
            frames[:] = range(8)
            step.launch(main).wait()
            assert list(result) == [(1 << 32) + 2] * 4 + [4, 5, 6, 7]
    assert set(items_of(left)) == {0, 6}
    work.close()


@program
def constants_of_graphs():
    main = cu.Stream()
    work = cu.DeviceBuffer(16, "u4")
    with cu.Graph() as graph:
        with graph.capture(main):
            constant = graph.constant(numbers(16))
            work.copy_from_async(constant, main)
            work[:4].copy_from_async(graph.constant(numbers(4)), main)
        with suppress(cu.BufferBorrowedError):
            constant.close()
        assert graph.to_svg().count("<rect") == 3
        assert graph.to_dot().count("->") == 1
        assert "cannot be closed before" in work.explain()
        with graph.instantiate() as step:
            step.launch(main).wait()
    constant.close()
    assert items_of(work).tolist() == list(range(16))


@program
def loans_in_captures():
    main, side = cu.Stream(), cu.Stream(blocking=True)
    work, result = cu.DeviceBuffer.zeros(16, "u4"), cu.LockedBuffer.zeros(16, "u4")
    lent = []
    with cu.Graph() as graph:
        try:
            with graph.capture(main):
                with work.lend(main):
                    work[:8].fill_async(3, main)
                    side.wait(main)
                    with suppress(cu.BufferExportedError):
                        work.fill_async(1, side)
                side.wait(main)
                loan = work.lend(side, readonly=True)
                lent.append(loan.__dlpack__(stream=side.handle, max_version=(1, 0)))
                main.wait(side)
                result.copy_from_async(work, main)
            assert len(graph.nodes) == 4
        finally:
            lent.clear()  # the loans must end after the capture

        main.wait(side)
        with graph.instantiate() as step:
            step.launch(main).wait()
    assert list(result) == [3] * 8 + [0] * 8
    work.fill_async(1, main)
    main.synchronize()
    assert set(items_of(work)) == {1}
