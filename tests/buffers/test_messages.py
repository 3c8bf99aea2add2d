"""Messages suggest what to do, even if the user has no object for a stream. Reports are short."""

import re
import signal
import threading

import pytest

import cudadrv as cu


def refusal(call) -> str:
    with pytest.raises(cu.BufferBorrowedError) as caught:
        call()
    return str(caught.value)


@pytest.fixture
def interrupted(stream, gate):
    """A buffer with an unfinished blocking fill, which Ctrl-C has interrupted.

    The fill is on an internal stream.
    """

    def ring(*_):
        raise KeyboardInterrupt

    buffer = cu.DeviceBuffer(16, name="left")
    gate.hold(stream)
    buffer.fill_async(1, stream)
    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    with cu.ordering("wait"), pytest.raises(KeyboardInterrupt):
        buffer.fill(2)
    signal.signal(signal.SIGALRM, before)
    return buffer


@pytest.mark.parametrize(
    "way", [cu.Device.synchronize, lambda device: device.context.synchronize()]
)
def test_the_librarys_own_stream(interrupted, gate, other, way):
    ours = "by fill on a stream of the library's own, queued at"
    wait = "context.synchronize() or device.synchronize()."
    message = refusal(lambda: interrupted.fill_async(3, other))
    assert ours in message
    assert message.endswith(f"Order it with: a wait of the host,\n  {wait}")
    message = refusal(interrupted.close)
    assert ours in message
    assert f"  Release it with: {wait}" in message
    assert ours in interrupted.explain()
    assert interrupted.explain().endswith(f"Release it with: {wait}")
    assert repr(interrupted).endswith("written by a stream of the library's own>")
    gate.open()
    way(cu.Device(0))
    interrupted.fill_async(3, other)


@pytest.mark.parametrize("way", ["token", "wait", "device"])
def test_a_closed_stream(stream, other, gate, way):
    buffer = cu.DeviceBuffer(16)
    gate.hold(stream)
    token = buffer.fill_async(1, stream)
    stream.close()
    message = refusal(lambda: buffer.fill_async(2, other))
    assert " (closed or dropped), queued at" in message
    assert message.endswith(
        f"Order it with: stream_{repr(other).split()[1][:-1]}.wait(token) before it, or on the host"
        " with\n"
        "  token.wait(), context.synchronize() or device.synchronize()."
    )
    gate.open()
    if way == "wait":
        other.wait(token)
    else:
        {"token": token.wait, "device": cu.Device(0).synchronize}[way]()
    buffer.fill_async(2, other)


def test_the_default_stream_of_another_thread(other):
    buffer, done = cu.DeviceBuffer(16), threading.Event()
    events = []

    def work():
        mine = cu.Stream.per_thread()
        buffer.fill_async(1, mine)
        events.append(mine.record())
        done.wait()

    thread = threading.Thread(target=work)
    thread.start()
    while not events:
        thread.join(0.001)
    message = refusal(lambda: buffer.fill_async(2, other))
    done.set()
    thread.join()
    assert "written by fill_async on per-thread default Stream " in message
    assert ".wait(event) before it, for an event that its own thread recorded" in message
    other.wait(events[0])
    buffer.fill_async(2, other)


def test_reports_are_short_and_count_the_rest(stream, gate):
    buffer = cu.DeviceBuffer(1000)
    gate.hold(stream)
    for part in buffer.chunks(1):
        part.fill_async(1, stream)
    lines = buffer.explain().splitlines()
    assert len(lines) == 23
    assert lines[-2] == "  and 980 more; buffer.borrows lists all of them"
    assert re.fullmatch(
        r"Release it with: stream_\d+\.synchronize\(\) or token\.wait\(\)\.", lines[-1]
    )
    assert len(buffer.borrows) == 1000
    assert repr(buffer).endswith(" and 999 more>")


def test_memory_report_counts_the_lines_that_it_leaves_out(driver):
    kept = []
    program = "\n".join(f"kept.append(cu.LockedBuffer({100 + line}))" for line in range(25))
    exec(program, {"kept": kept, "cu": cu})
    lines = cu.memory_report().partition("\nPools keep")[0].splitlines()
    assert lines[0] == f"Live buffers hold {sum(range(100, 125))} bytes:"
    assert len(lines) == 22
    assert lines[-1] == f"  {sum(range(100, 105))} bytes made at 5 other lines"
    kept.clear()


def test_what_was_moved_is_not_called_closed(driver):
    buffer = cu.DeviceBuffer(4, name="b")
    taken = buffer.take()
    address = taken.into_raw()
    for moved in (buffer, taken):
        assert repr(moved) == "<DeviceBuffer 'b' moved>"
        assert "was moved at" in moved.explain()
        assert "test_messages.py:" in moved.explain()
    back = cu.DeviceBuffer.from_raw(address, 4)
    back.close()
    assert repr(back) == "<DeviceBuffer closed>"
    assert back.explain() == "DeviceBuffer[0:4] (uint8) is closed."


def test_giving_away_names_no_way_that_does_not_give_away(stream):
    buffer = cu.DeviceBuffer(4)
    buffer.fill_async(1, stream)
    assert "drop the last reference" in refusal(buffer.close)
    assert "drop the last reference" not in refusal(buffer.into_raw)


def test_stream_ordered_memory_is_closed_and_not_written(stream, other):
    buffer = cu.DeviceBuffer(4, stream=stream, name="b")
    name = repr(other).split(",")[0][1:]
    message = refusal(lambda: buffer.close(other))
    assert message.startswith(f"cannot close DeviceBuffer 'b' on {name}:\n  it is being written")


def test_use_after_close_names_the_line(driver):
    buffer = cu.DeviceBuffer(4, name="b")
    part = buffer[:2]
    buffer.close()
    for closed in (buffer, part):
        with pytest.raises(cu.BufferClosedError, match=r"was closed at .*_messages\.py:\d+;"):
            closed.fill(1)


@pytest.mark.cuda_software
def test_what_to_do_about_times_that_are_not_there_yet(stream, gate):
    start, end = stream.record(cu.Event(timing=True)), cu.Event(timing=True)
    gate.hold(stream)
    stream.record(end)
    with pytest.raises(cu.CudaError, match=r"first, end\.synchronize\(\)") as caught:
        end.elapsed_ms(start)
    assert caught.value.status is cu.CUresult.CUDA_ERROR_NOT_READY
    gate.open()
    end.synchronize()
    assert end.elapsed_ms(start) >= 0


def test_buffers_can_be_printed_until_the_end(script):
    """The repr of a buffer works until the interpreter ends.

    NumPy cannot print a dtype after its modules are gone.
    """
    printed = script.quiet(
        """
    import builtins, sys
    import cudadrv as cu

    class Last:
        def __init__(self):
            self.buffer, self.print = cu.LockedBuffer(3, "f4", name="b"), print

        def __del__(self):
            self.print(self.buffer, self.buffer.explain())

    builtins.kept = Last()
    """
    )
    assert printed.startswith("<LockedBuffer 'b' 3 x ")
    assert "is free" in printed
