"""A sticky error: the context is lost, and cudadrv makes no more driver calls in it.

The programs run in processes of their own, because a lost context cannot be restored.
"""

import pytest
from schedules import one_schedule

pytestmark = [pytest.mark.cuda_software, one_schedule]

# A fill is unfinished and another one is known to be complete. Then `lose` makes the context lost.
HEAD = """
    import gc
    import cudadrv as cu
    from cudadrv import testing
    testing.configure("schedule=lazy")
    stream, event, timed = cu.Stream(), cu.Event(), cu.Event(timing=True)
    stream.record(event)
    stream.record(timed)
    locked, device = cu.LockedBuffer.zeros(16, name="l"), cu.DeviceBuffer(16)
    locked.fill_async(1, stream).wait()
    token = device.fill_async(1, stream)
    context = stream.context

    def lose(status=700):
        testing.configure(f"fault=cuStreamQuery:1:{status}")
        try:
            stream.synchronize()
        except cu.ContextLostError as error:
            return error
        raise AssertionError("not lost")
"""


@pytest.mark.parametrize("status", [214, 700, 702, 710, 714, 715, 716, 717, 718, 719, 709])
def test_these_are_sticky(script, status):
    script.quiet(
        HEAD
        + f"""
    error = lose({status})
    assert error.status == {status} and error.call == "cuStreamQuery", error
    """
    )


def test_a_free_that_finds_out_marks_the_context(script):
    """A free is the first call that fails after the loss. It warns once and names the suspects.

    Later calls free nothing.
    """
    script.quiet(
        HEAD
        + """
    import warnings
    token.wait()
    del token, device, locked
    buffers = [cu.DeviceBuffer(1 << 20) for _ in range(8)]
    for buffer in buffers:
        buffer.fill_async(1, stream)
    stream.synchronize()
    kept = cu.DeviceBuffer(16)
    del buffer, buffers
    kept.fill_async(2, stream)
    testing.configure("schedule=eager")
    testing.configure("fault=cuMemFree_v2:1:719")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        while not said:
            context.pools.device.trim()
    (said,) = said
    assert said.category is cu.CudaWarning, said
    assert "cuMemFree: CUDA_ERROR_LAUNCH_FAILED (719)" in str(said.message), said
    assert "fill_async on Stream 1" in str(said.message), said
    frees = testing.calls("cuMemFree_v2")
    try:
        cu.DeviceBuffer(8)
        raise AssertionError("not refused")
    except cu.ContextLostError as error:
        assert "lost by an earlier error" in str(error), error
    del kept, event, timed
    gc.collect()
    assert testing.calls("cuMemFree_v2") == frees == 1
    """
    )


@pytest.mark.parametrize("function", ["cuStreamDestroy_v2", "cuEventDestroy_v2", "cuMemFreeAsync"])
def test_destructors_that_find_out_mark_the_context(script, function):
    """A destructor makes the first failing call and warns. The next one makes no driver call."""
    script.quiet(
        HEAD
        + f"""
    import warnings
    stream.context.pools.device.limit_bytes = 0
    others = [cu.Stream(), cu.Stream()]
    events = [cu.Event(), cu.Event()]
    ordered = [cu.DeviceBuffer(8, stream=stream), cu.DeviceBuffer(8, stream=stream)]
    kind = dict(cuStreamDestroy_v2=others, cuEventDestroy_v2=events, cuMemFreeAsync=ordered)
    before = testing.calls("{function}")
    testing.configure("fault={function}:1:719")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        kind["{function}"].clear()
        try:
            cu.reap()
        except cu.ContextLostError:
            pass
    (said,) = said
    assert "LAUNCH_FAILED (719)" in str(said.message), said
    assert "fill_async on Stream 1" in str(said.message), said
    others.clear(), events.clear(), ordered.clear()
    assert testing.calls("{function}") == before + 1
    """
    )


@pytest.mark.parametrize(
    "call",
    [
        "cu.Stream.from_handle(theirs)",
        "cu.from_cuda_array(array, stream)",
        "pool.trim()",
        "pool.stats",
        "cu.Device(0).can_access(cu.Device(1))",
    ],
)
def test_each_call_that_finds_out_marks_the_context(script, call):
    """A sticky status loses the context, also if the call that returned it names no context."""
    script.quiet(
        HEAD
        + f"""
    import ctypes
    driver, theirs = ctypes.CDLL(cu.driver_info().path), ctypes.c_void_p()
    with cu.Device(0):
        assert driver.cuStreamCreate(ctypes.byref(theirs), 1) == 0
    theirs = theirs.value

    class array:
        __cuda_array_interface__ = dict(
            shape=(4,), typestr="|u1", data=(device.address, False), version=3, stream=theirs)

    token.wait()
    array = array()
    pool, call = cu.DriverPool(), {call!r}
    symbols = "cuStreamIsCapturing cuStreamGetCtx_v2 cuStreamGetCtx cuStreamGetId cuStreamGetFlags"
    symbols += " cuMemPoolTrimTo cuMemPoolGetAttribute cuDeviceCanAccessPeer"
    for symbol in symbols.split():
        testing.configure(f"fault={{symbol}}:1:700")
        try:
            eval(call)
        except cu.ContextLostError as error:
            assert error.status == 700, error
            break
        except cu.CudaError as error:
            raise AssertionError(f"{{symbol}}: {{error!r}}")
    else:
        raise AssertionError("no call failed")
    try:
        stream.synchronize()
        raise AssertionError("not lost")
    except cu.ContextLostError:
        pass
    """,
        CUDADRV_SOFTWARE="devices=2",
    )


@pytest.mark.parametrize("function", ["cuEventCreate", "cuEventRecord"])
@pytest.mark.parametrize("used", [True, False])
def test_a_reap_that_finds_out_names_the_call(script, function, used):
    """`reap` records events: for the users of dropped memory, or for all work."""
    script.quiet(
        HEAD
        + f"""
    buffer = cu.DeviceBuffer(1 << 20, pooled=False)
    if {used}:
        buffer.fill_async(1, stream)
    del buffer
    testing.configure("fault={function}:1:719")
    try:
        cu.reap()
        raise AssertionError("not lost")
    except cu.ContextLostError as error:
        assert error.call == "{function}", error
        assert any("fill_async on Stream 1" in each for each in error.suspects), error
    """
    )


@pytest.mark.parametrize("nth", [1, 2])
def test_a_reap_that_finds_out_by_waiting_for_everything_says_so(script, nth):
    """No event can stand for the work of another thread's default stream."""
    script.quiet(
        HEAD
        + f"""
    import threading
    buffer, both = cu.DeviceBuffer(1 << 20, pooled=False), threading.Barrier(2)

    def work():
        buffer.fill_async(1, cu.Stream.per_thread())
        both.wait()
        both.wait()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    both.wait()
    del buffer
    testing.configure("fault=cuCtxSynchronize:{nth}:719")
    try:
        cu.reap()
        raise AssertionError("not lost")
    except cu.ContextLostError as error:
        assert error.call == "cuCtxSynchronize", error
    both.wait()
    thread.join()
    """
    )


def test_a_close_with_an_array_is_refused(script):
    """The array stays readable, so the buffer with its memory cannot be closed."""
    script.quiet(
        HEAD
        + """
    import numpy as np
    array = np.from_dlpack(locked)
    lose()
    try:
        locked.close()
        raise AssertionError("not refused")
    except cu.BufferExportedError:
        assert list(array) == [1] * 16
    del array
    locked.close()
    """
    )


def test_a_destructor_that_cannot_enter_the_context_is_tried_again(script):
    """What a destructor could not destroy is destroyed later, without a warning."""
    script.quiet(
        HEAD
        + """
    import warnings
    warnings.simplefilter("error")
    other = cu.Context.create(cu.Device(0))
    token.wait()
    context.pools.device.limit_bytes = 0
    del token

    def graph():
        made = cu.Graph()
        made.add_fill(device, 1)
        return made

    def executable():
        with graph() as made:
            return made.instantiate()

    kinds = dict(events=cu.Event, graphs=graph, executables=executable,
                 device=lambda: cu.DeviceBuffer(1 << 20, pooled=False))

    def alive():
        found = dict(testing.live_objects())
        found["graphs"] = -testing.calls("cuGraphDestroy")
        found["executables"] = -testing.calls("cuGraphExecDestroy")
        return found

    for kind, make in kinds.items():
        for call in ("cuCtxGetCurrent", "cuCtxPushCurrent_v2"):
            gc.collect()
            cu.reap()
            thing = make()
            before = alive()[kind]
            with other:
                testing.fail(call, 1)
                del thing
                gc.collect()
                testing.configure("fault=none")
            cu.reap()
            assert alive()[kind] == before - 1, (kind, call)
    other.synchronize()
    """
    )


def test_others_are_not(script):
    script.quiet(
        HEAD
        + """
    testing.configure("fault=cuStreamQuery:1:800")
    try:
        stream.synchronize()
    except cu.ContextLostError:
        raise
    except cu.CudaError:
        pass
    stream.synchronize()
    """
    )


def test_the_suspects_are_what_was_not_known_to_be_complete(script):
    script.quiet(
        HEAD
        + """
    error = lose()
    (suspect,) = error.suspects
    assert suspect.startswith("fill_async on Stream"), suspect
    assert "queued at <string>:" in suspect, suspect
    assert suspect in str(error)
    """
    )


def test_long_queues_name_the_last_and_count_the_others(script):
    script.quiet(
        HEAD
        + """
    for _ in range(99):
        device.fill_async(1, stream)
    error = lose()
    assert len(error.suspects) == 32
    assert "(and 68 before those listed)" in error.suspects[0], error.suspects[0]
    """
    )


CALLS = """
    context.synchronize() | context.priority_range | context.__enter__() | cu.Stream()
    cu.Stream.legacy() | cu.Stream.per_thread() | cu.Stream.from_handle(stream_handle)
    stream.synchronize() | stream.done | stream.record() | stream.record(event) | stream.handle
    stream.wait(event) | stream.wait(token) | stream.wait(stream) | stream.__enter__()
    cu.Event() | event.synchronize() | event.done | timed.elapsed_ms(timed)
    token.done | token.wait() | cu.DeviceBuffer(4) | cu.LockedBuffer(4)
    device.fill_async(1, stream) | device.fill(1)
"""


def test_every_call_is_refused_and_none_reaches_the_driver(script):
    calls = [call.strip() for line in CALLS.strip().splitlines() for call in line.split("|")]
    script.quiet(
        HEAD
        + f"""
    stream_handle = int(stream)
    lose()
    bad = []
    for call in {calls!r}:
        before = testing.calls()
        try:
            eval(call)
        except cu.ContextLostError:
            pass
        except BaseException as error:
            bad.append((call, repr(error)))
        else:
            bad.append((call, "nothing"))
        # Functions of the module may ask the driver which device is meant: no context is used.
        if testing.calls() != before and not call.startswith("cu."):
            bad.append((call, "called the driver"))
    assert not bad, bad
    """
    )


def test_closing_and_dying_are_quiet_and_make_no_call(script):
    script.quiet(
        HEAD
        + """
    own = cu.Context.create(cu.Device(0))
    lose()
    before = testing.calls()
    stream.close()
    event.close()
    locked.close()
    assert stream.closed and event.closed
    del stream, event, timed, locked, device, token
    gc.collect()
    assert testing.calls() == before
    """
    )


def test_buffers_whose_loans_were_imported_here_close(script):
    """An import was dropped with unfinished work, and keeps the loan until that work is over."""
    script.quiet(
        HEAD
        + """
    lent = []
    for kind in (cu.DeviceBuffer, cu.LockedBuffer, cu.UnifiedBuffer):
        buffer = kind(16)
        loan = buffer.lend(stream, device="cuda")
        found = cu.from_dlpack(loan, stream)
        found.fill_async(3, stream)
        del found, loan
        lent.append(buffer)
    del token, buffer
    lose()
    for buffer in lent:
        buffer.close()
    """
    )


def test_blocks_are_left_quietly(script):
    script.quiet(
        HEAD
        + """
    with context, stream:
        lose()
    """
    )


def test_page_locked_memory_stays_readable(script):
    script.quiet(
        HEAD
        + """
    lose()
    assert locked.to_numpy().tolist() == [1] * 16
    """
    )


def test_exit_is_quiet(script):
    script.quiet(HEAD + "    lose()\n")


def test_streams_that_died_before(script):
    """Streams were dropped before the context was lost.

    cudadrv does not wait for their work any more, and the process ends quietly.
    """
    script.quiet(
        HEAD
        + """
    own = cu.Context.create(cu.Device(0))
    with own:
        theirs = cu.Stream()
    dying = cu.Stream()
    device.close() if not device.borrowed else None
    cu.LockedBuffer.zeros(16).fill_async(1, dying)
    del dying
    lose()
    gc.collect()
    """
    )


def test_an_operation_that_the_driver_refused_is_no_suspect(script):
    """An operation that the driver refused is not among the suspects.

    cudadrv keeps the last 32 operations. The refused operation had replaced the oldest one of them,
    which is a suspect again after the refusal.
    """
    script.quiet(
        HEAD
        + """
    for _ in range(40):
        device.fill_async(1, stream)
    testing.configure("fault=cuMemcpyHtoDAsync_v2:1:800")
    try:
        device.copy_from_async(bytes(16), stream)
    except cu.CudaError:
        pass
    else:
        raise AssertionError("not refused")
    error = lose()
    assert len(error.suspects) == 32
    assert all(suspect.startswith("fill_async on") for suspect in error.suspects), error.suspects
    """
    )


def test_another_device_goes_on(script):
    """A second device continues to work after a context of the first one is lost.

    No work of the lost context is unfinished any more. Work of the other context still is.
    """
    script.quiet(
        HEAD
        + """
    far = cu.Stream(device=cu.Device(1))
    there = cu.DeviceBuffer(16, device=cu.Device(1))
    locked.fill_async(2, stream)
    error = lose()
    assert [each.split(",")[0] for each in error.suspects] == [
        f"fill_async on {repr(stream)[1:9]}"] * 2, error.suspects
    assert locked.to_numpy().shape == (16,)
    there.copy_from_async(locked, far)
    there.fill_async(3, far).wait()
    locked.copy_from_async(there, far)
    for call in (locked.to_numpy, locked.close):
        try:
            call()
        except cu.BufferBorrowedError:
            continue
        raise AssertionError("the other device writes it")
    far.synchronize()
    assert locked.to_numpy().tolist() == [3] * 16
    for call in (lambda: far.wait(event), lambda: far.wait(stream), lambda: far.wait(token)):
        try:
            call()
        except cu.ContextLostError:
            continue
        raise AssertionError("nothing waits for a lost context")
    cu.Device(1).synchronize()
    cu.reap()
    locked.close()
    """,
        CUDADRV_SOFTWARE="devices=2",
    )
