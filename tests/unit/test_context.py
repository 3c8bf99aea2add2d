"""Context: the primary context, created contexts, and ``with context:``."""

import ctypes
import gc
import inspect
import textwrap
import threading
import weakref

import pytest
from in_threads import started

import cudadrv as cu


def current() -> int | None:
    context = ctypes.c_void_p()
    ctypes.CDLL(cu.driver_info().path).cuCtxGetCurrent(ctypes.byref(context))
    return context.value


def new_context() -> cu.Context:
    return cu.Context.create(cu.Device(0))


def test_contexts_come_from_devices(driver):
    with pytest.raises(TypeError, match=r"Context\.create"):
        cu.Context()
    assert cu.Device(0).context.primary


def test_priorities(driver):
    greatest, least = cu.Device(0).context.priority_range
    assert greatest <= 0 <= least or greatest <= least == 0


def test_making_one_leaves_the_current_one(driver):
    before = current()
    cu.Context.create(cu.Device(0))
    assert current() == before


def test_with_makes_it_current_and_the_default(driver):
    context = new_context()
    before = current()
    with context:
        inside = current()
        assert inside not in (before, None)
        assert cu.Stream().context is context
        assert cu.Event().context is context
        with cu.Device(0):
            assert current() != inside
            assert cu.Stream().context is cu.Device(0).context
        assert current() == inside
    assert current() == before
    assert cu.Stream().context is cu.Device(0).context


def test_blocks_end_in_reverse_order(driver):
    context = new_context()
    before = current()
    device = cu.Device(0)
    context.__enter__()
    device.__enter__()
    with pytest.raises(RuntimeError, match="reverse order"):
        context.__exit__(None, None, None)
    device.__exit__(None, None, None)
    context.__exit__(None, None, None)
    with pytest.raises(RuntimeError, match="reverse order"):
        context.__exit__(None, None, None)
    assert current() == before


def test_it_lives_as_long_as_what_is_in_it(driver):
    context = new_context()
    with context:
        stream = cu.Stream()
        event = stream.record()
    alive = weakref.ref(context)
    del context, stream
    assert alive() is not None
    event.synchronize()
    del event
    assert alive() is None


def test_its_default_stream_does_not_keep_it_alive(driver):
    own = new_context()
    with own:
        assert cu.Stream.legacy() is cu.Stream.legacy()
    alive = weakref.ref(own)
    del own
    gc.collect()
    assert alive() is None


def test_objects_of_two_contexts_do_not_mix(driver):
    context = new_context()
    with context:
        event = cu.Event()
    with pytest.raises(ValueError, match="of another context"):
        cu.Stream().record(event)


def test_waits_cross_contexts(driver):
    context = new_context()
    with context:
        theirs = cu.Stream()
    mine = cu.Stream()
    mine.wait(theirs)
    theirs.wait(mine.record())
    mine.synchronize()
    theirs.synchronize()


def test_synchronize_makes_all_its_work_known(stream, other, gate):
    buffers = [cu.LockedBuffer.zeros(16) for _ in range(2)]
    for each, buffer in zip((stream, other), buffers, strict=True):
        gate.hold(each)
        buffer.fill_async(1, each)
    gate.open()
    stream.close()
    cu.Device(0).synchronize()
    assert not any(buffer.borrowed for buffer in buffers)


def test_synchronize_covers_streams_that_died(driver):
    buffer = cu.LockedBuffer.zeros(16)
    buffer.fill_async(1, cu.Stream())
    gc.collect()
    cu.Device(0).synchronize()
    assert not buffer.borrowed


class Elsewhere:
    """Streams of a created context that wait for work of the primary context and then end."""

    def __init__(self, stream, gate):
        self.context = new_context()
        self.buffer = cu.LockedBuffer.zeros(16)
        gate.hold(stream)
        self.buffer.fill_async(1, stream)
        self.event = stream.record()
        with self.context:
            self.own = cu.LockedBuffer.zeros(16)

    def stream(self, **options):
        with self.context:
            return cu.Stream(**options)

    def lives(self):
        self.kept = self.stream()
        self.kept.wait(self.event)

    def dies(self):
        self.stream().wait(self.event)

    def is_closed(self):
        stream = self.stream()
        stream.wait(self.event)
        stream.close()

    def dies_with_work(self):
        stream = self.stream()
        stream.wait(self.event)
        self.own.fill_async(1, stream)

    def dies_after_known_work(self):
        stream = self.stream()
        self.own.fill_async(1, stream)
        stream.synchronize()
        stream.wait(self.event)

    def is_blocking_and_dies(self):
        self.stream(blocking=True).wait(self.event)

    def is_a_threads_that_ends(self):
        started(self._wait_per_thread)[0].join()

    def is_a_threads_that_ends_with_work(self):
        started(lambda: self.own.fill_async(1, self._wait_per_thread()))[0].join()

    def _wait_per_thread(self):
        with self.context:
            stream = cu.Stream.per_thread()
            stream.wait(self.event)
            return stream


@pytest.mark.parametrize(
    "ends", [name for name in vars(Elsewhere) if name[:2] in ("li", "di", "is")]
)
def test_synchronize_covers_what_its_streams_had_waited_for_elsewhere(stream, gate, ends):
    """Synchronizing a context also covers work of other contexts that its streams waited for.

    It makes no difference how a stream has ended, or whether its object is still alive.
    """
    elsewhere = Elsewhere(stream, gate)
    getattr(elsewhere, ends)()
    gc.collect()
    gate.open()
    with pytest.raises(cu.BufferBorrowedError, match="written by fill_async"):
        elsewhere.buffer[0]
    elsewhere.context.synchronize()
    assert elsewhere.buffer[0] == 1
    elsewhere.buffer.close()


def test_synchronize_covers_what_a_stream_of_another_thread_had_waited_for(stream, gate):
    elsewhere = Elsewhere(stream, gate)
    waits, ends = threading.Event(), threading.Event()

    def other_thread():
        elsewhere._wait_per_thread()
        waits.set()
        ends.wait()

    thread, _ = started(other_thread)
    waits.wait()
    gate.open()
    elsewhere.context.synchronize()
    ends.set()
    thread.join()
    assert elsewhere.buffer[0] == 1


def test_synchronize_covers_no_wait_that_comes_later(stream, gate):
    elsewhere = Elsewhere(stream, gate)
    gate.open()
    elsewhere.context.synchronize()
    elsewhere.dies()
    assert elsewhere.buffer.borrowed


def test_ordering_of_a_context_is_a_policy(driver):
    context = new_context()
    assert context.ordering is None
    context.ordering = "wait"
    assert context.ordering == "wait"
    context.ordering = None
    with pytest.raises(ValueError, match="'strict', 'wait', 'unchecked'"):
        context.ordering = "never"
    with pytest.raises(TypeError):
        context.ordering = ["wait"]


@pytest.mark.cuda_software
def test_a_context_that_dies_with_unfinished_work_is_left_and_says_so(script):
    """A context that is dropped with unfinished work is not destroyed, and a warning says so.

    Destroying it would block in a destructor.
    """
    script.quiet("""
        import gc, warnings
        import cudadrv as cu
        from cudadrv import testing
        testing.configure("schedule=lazy")
        context = cu.Context.create(cu.Device(0))
        buffer = cu.LockedBuffer.zeros(16)
        with context:
            stream = cu.Stream()
            buffer.fill_async(1, stream)
            stream.close()
        del stream
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            del context
            gc.collect()
        assert [each.category for each in said] == [cu.CudaWarning], said
        assert "unfinished work" in str(said[0].message)
    """)


def test_one_that_the_garbage_collector_ends_leaves_memory_to_be_freed(stream):
    """A created context that the garbage collector ends leaves memory, which is freed later.

    The page-locked memory keeps the context in the driver until then. Other contexts are not
    disturbed.
    """

    def use():
        context = new_context()
        with context:
            # This copy goes through a stage, which the context keeps.
            cu.DeviceBuffer(16).copy_from(bytes(16))
            cu.DeviceBuffer(16).fill(1)
        context.synchronize()
        return weakref.ref(context)

    context = use()
    gc.collect()
    assert context() is None
    stream.context.synchronize()
    cu.reap()


@pytest.mark.parametrize("cuda_schedule", ["eager"], indirect=True)
def test_one_that_the_garbage_collector_ends_with_its_buffers(script):
    """The garbage collector may end a context and its buffers in any order.

    The program overwrites freed memory, so that its use is noticed.
    """
    script.quiet(
        """
    import gc
    import cudadrv as cu

    def leave_a_cycle(count):
        with cu.Context.create(cu.Device(0)):
            cu.DeviceBuffer(16)
            cycle = [cu.DeviceBuffer(1000) for _ in range(count)]
            cycle.append(cycle)

    gc.disable()
    for count in range(1, 50, 4):
        leave_a_cycle(count)
        gc.collect()
    """,
        PYTHONMALLOC="debug",
    )


def used_by_the_pool() -> int:
    """Number of allocated bytes in the device's default memory pool."""
    library = ctypes.CDLL(cu.driver_info().path)
    pool = ctypes.c_void_p()
    used = ctypes.c_uint64()
    assert library.cuDeviceGetDefaultMemPool(ctypes.byref(pool), 0) == 0
    assert library.cuMemPoolGetAttribute(pool, 7, ctypes.byref(used)) == 0
    return used.value


def test_its_pooled_stream_ordered_memory_ends_with_it(script):
    """Stream-ordered memory in a context's pool is freed with the context.

    The driver would keep it for the device, and nobody could free it any more.
    """
    script.quiet(
        f"""
    import ctypes
    import gc
    import cudadrv as cu
{textwrap.indent(inspect.getsource(used_by_the_pool), "    ")}
    cu.Device(0).synchronize()
    before = used_by_the_pool()
    context = cu.Context.create(cu.Device(0))
    with context:
        stream = cu.Stream()
        cu.DeviceBuffer(1 << 20, stream=stream).close()
        cu.DeviceBuffer(1 << 20, stream=stream).close(stream)
        context.synchronize()
    assert used_by_the_pool() > before
    del context, stream
    gc.collect()
    assert used_by_the_pool() == before
    """
    )
