"""A forked child of a process that has used the driver: it refuses every call and ends quietly."""

import pytest

HEAD = """
    import gc, os, sys
    import cudadrv as cu
    stream, event, timed = cu.Stream(), cu.Event(), cu.Event(timing=True)
    stream.record(event)
    stream.record(timed)
    locked, device = cu.LockedBuffer.zeros(16), cu.DeviceBuffer(16)
    token = locked.fill_async(1, stream)
    context = stream.context

    def end(child):
        "Nothing of the child's may have gone wrong."
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        stream.synchronize()
        assert locked[0] == 1
        assert status == 0, status
"""

# What a program may call in the child.
CALLS = """
    cu.driver_info() | cu.Device(0) | cu.Device.count() | cu.Device.name.__get__(stream.device)
    stream.device.attribute("warp_size") | stream.device.synchronize() | stream.device.total_memory
    context.synchronize() | context.priority_range | context.__enter__()
    cu.Context.create(stream.device) | cu.Stream() | cu.Stream.legacy() | cu.Stream.per_thread()
    cu.Stream.from_handle(2) | stream.synchronize() | stream.done | stream.record() | stream.handle
    stream.record(event) | stream.wait(event) | stream.wait(token) | stream.wait(stream)
    stream.close() | stream.__enter__() | cu.Event() | event.synchronize() | event.done
    event.close() | timed.elapsed_ms(timed) | token.done | token.wait() | cu.DeviceBuffer(4)
    cu.LockedBuffer(4) | cu.UnifiedBuffer(4) | locked.fill_async(1, stream) | locked.fill(1)
    device.fill(1) | device.copy_from(locked) | locked.copy_to(device) | locked[0]
    locked.close() | device.close() | cu.reap()
"""


def test_every_call_is_refused(script):
    calls = [call.strip() for line in CALLS.strip().splitlines() for call in line.split("|")]
    script.quiet(
        HEAD
        + f"""
    child = os.fork()
    if child == 0:
        missed = []
        for call in {calls!r}:
            try:
                eval(call)
            except cu.ForkedError:
                continue
            except BaseException as error:
                missed.append((call, repr(error)))
            else:
                missed.append((call, "nothing"))
        for miss in missed:
            print(*miss)
        sys.stdout.flush()
        os._exit(bool(missed))
    end(child)
    """
    )


@pytest.mark.parametrize("ending", ["os._exit(0)", "sys.exit(0)", "pass"])
def test_destructors_are_quiet(script, ending):
    script.quiet(
        HEAD
        + f"""
    child = os.fork()
    if child == 0:
        del stream, event, timed, locked, device, token
        gc.collect()
        {ending}
    else:
        end(child)
    """
    )


def test_blocks_are_left_quietly(script):
    script.quiet(
        HEAD
        + """
    with stream.device, stream:
        child = os.fork()
        if child == 0:
            sys.exit(0)
    end(child)
    """
    )


def test_what_needs_no_driver_still_answers(script):
    script.quiet(
        HEAD
        + """
    child = os.fork()
    if child == 0:
        print(repr(stream), repr(event), repr(context), repr(stream.device), stream.closed)
        os._exit(0)
    end(child)
    """
    )


def test_a_fork_while_threads_work(script):
    """No lock of theirs is taken for ever in the child."""
    script.quiet(
        HEAD
        + """
    import threading
    stop = []
    def work():
        mine, buffer = cu.Stream(), cu.LockedBuffer.zeros(16)
        while not stop:
            mine.wait(buffer.fill_async(1, mine))
            mine.record().synchronize()
    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads: thread.start()
    for _ in range(20):
        child = os.fork()
        if child == 0:
            del stream, event, timed, locked, device, token
            gc.collect()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    stop.append(True)
    for thread in threads: thread.join()
    """
    )
