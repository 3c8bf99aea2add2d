"""``timeout=`` of all waits: after a TimeoutError, nothing has changed."""

import threading
import time

import pytest
from in_threads import interrupted
from limits import PATIENCE

import cudadrv as cu
from cudadrv._engine import books

SHORT = 0.02


def token(stream, buffer):
    found = buffer.fill_async(1, stream)
    return lambda **options: found.wait(**options)


def event(stream, buffer):
    buffer.fill_async(1, stream)
    return stream.record().synchronize


def whole_stream(stream, buffer):
    buffer.fill_async(1, stream)
    return stream.synchronize


WAITS = {"token": token, "event": event, "stream": whole_stream}


@pytest.fixture
def buffer(driver):
    buffer = cu.LockedBuffer.zeros(16)
    yield buffer
    cu.Device(0).synchronize()
    buffer.close()


@pytest.fixture(params=WAITS)
def wait(request, stream, buffer, gate):
    """A wait for work behind a closed gate."""
    gate.hold(stream)
    return WAITS[request.param](stream, buffer)


def test_it_runs_out_and_nothing_has_changed(wait, stream, other, buffer, gate):
    before = books()
    for timeout in (0, SHORT, 1e-9):
        begin = time.monotonic()
        with pytest.raises(TimeoutError, match="is not complete after"):
            wait(timeout=timeout)
        assert timeout <= time.monotonic() - begin < PATIENCE
    assert books() == before
    assert buffer.borrowed
    with pytest.raises(cu.BufferBorrowedError):
        buffer.fill_async(2, other)
    with pytest.raises(cu.BufferBorrowedError):
        buffer[0]
    buffer.fill_async(3, stream)
    gate.open()
    wait(timeout=PATIENCE)
    stream.synchronize(timeout=PATIENCE)
    assert buffer[0] == 3


def test_a_wait_that_is_long_enough_is_one_without(wait, buffer, gate):
    timer = threading.Timer(SHORT, gate.open)
    timer.start()
    wait(timeout=PATIENCE)
    assert not buffer.borrowed
    timer.join()


@pytest.mark.parametrize("timeout", [None, float("inf"), 1e300, 10**400, 10**12, PATIENCE])
def test_as_long_as_it_takes(wait, buffer, gate, timeout):
    timer = threading.Timer(SHORT, gate.open)
    timer.start()
    wait(timeout=timeout)
    assert not buffer.borrowed
    timer.join()


@pytest.mark.parametrize(
    ("timeout", "error"),
    [
        (-1, ValueError),
        (-1e-9, ValueError),
        (-float("inf"), ValueError),
        (float("nan"), ValueError),
        (-(10**400), ValueError),
        ("1", TypeError),
        (1j, TypeError),
        ([], TypeError),
    ],
)
def test_what_is_no_time(wait, unchanged, timeout, error):
    with unchanged("cuEventQuery", "cuStreamQuery"), pytest.raises(error, match="timeout"):
        wait(timeout=timeout)


@pytest.mark.parametrize("name", WAITS)
def test_zero_is_enough_for_what_is_complete(stream, buffer, name):
    wait = WAITS[name](stream, buffer)
    cu.Stream().record().synchronize()
    cu.Device(0).synchronize()
    wait(timeout=0)
    assert not buffer.borrowed


def test_the_message_says_what_is_not_complete(stream, buffer, gate):
    gate.hold(stream)
    work = buffer.fill_async(1, stream)
    named = cu.Event(name="ready")
    stream.record(named)
    for wait, words in [
        (work.wait, rf"fill_async on Stream \d+, queued at .*{__name__.split('.')[-1]}.py:\d+, is"),
        (named.synchronize, "the work before Event 'ready' is not complete after 0 s"),
        (stream.record().synchronize, "the work before the event is not complete"),
        (stream.synchronize, r"the work of Stream \d+ is not complete"),
    ]:
        with pytest.raises(TimeoutError, match=words):
            wait(timeout=0)


def test_ctrl_c_interrupts_it(wait, buffer):
    with interrupted():
        wait(timeout=PATIENCE)
    assert buffer.borrowed


def test_a_handler_that_returns_does_not_end_it(wait, buffer, gate):
    """The timeout counts from the call, even if signal handlers interrupt the wait."""
    import signal

    seen = []
    former = signal.signal(signal.SIGALRM, lambda *_: seen.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
    try:
        begin = time.monotonic()
        with pytest.raises(TimeoutError):
            wait(timeout=0.1)
        assert 0.1 <= time.monotonic() - begin < PATIENCE
        assert seen
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)


def test_others_wait_on(stream, buffer, gate):
    """A timeout in one thread does not end the wait of another thread."""
    gate.hold(stream)
    work = buffer.fill_async(1, stream)
    waited = []
    thread = threading.Thread(target=lambda: waited.append(work.wait(timeout=PATIENCE)))
    thread.start()
    with pytest.raises(TimeoutError):
        work.wait(timeout=SHORT)
    assert not waited
    gate.open()
    thread.join()
    assert waited == [None]


def test_waits_that_run_out_leave_nothing(stream, buffer, gate, unchanged):
    """Waits that time out reuse one event."""
    gate.hold(stream)
    work = buffer.fill_async(1, stream)
    with pytest.raises(TimeoutError):
        work.wait(timeout=0)
    with unchanged("cuEventCreate"):
        for _ in range(10):
            with pytest.raises(TimeoutError):
                work.wait(timeout=0)
    for _ in range(300):
        with pytest.raises(TimeoutError):
            stream.synchronize(timeout=0)
