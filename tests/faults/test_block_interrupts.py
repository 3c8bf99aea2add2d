"""Ctrl-C at each point where Python checks for signals, in a program with a `with` block.

The block must never stay in force after the interrupt. Python checks for signals after calls, at
backward jumps and at the start of functions. In these tests a trace function raises
KeyboardInterrupt instead, before each instruction after such a point.
"""

import _thread
import contextlib
import dis
import functools
import gc
import itertools
import operator
import sys
import threading

import numpy as np
import pytest
from limits import PATIENCE

import cudadrv as cu
from cudadrv._await import _Watcher

MOST = 500  # each program here has fewer instructions at which it can be interrupted
LOOKING = ("RESUME", "CALL", "CALL_FUNCTION_EX", "CALL_KW", "JUMP_BACKWARD")


@functools.cache
def interruptible(code):
    """The offsets of the instructions before which Python checks for signals."""
    each = list(dis.get_instructions(code))
    return {after.offset for before, after in itertools.pairwise(each) if before.opname in LOOKING}


def with_stream(stream, buffer):
    with stream:
        buffer.fill_async(1)


def with_scope(stream, buffer):
    with stream.scope():
        buffer.fill_async(1)


def with_scopes(stream, buffer):
    with stream.scope(), stream.scope() as inner:
        buffer.fill_async(1, inner)


def with_ordering(stream, buffer):
    with cu.ordering("wait"):
        buffer.fill_async(1, stream)


def with_loan(stream, buffer):
    with buffer.lend(stream):
        pass


def with_context(stream, buffer):
    with stream.context:
        buffer.fill_async(1, stream)


def with_device(stream, buffer):
    with stream.device:
        buffer.fill_async(1, stream)


def interrupted_at(number, call):
    """Call a function, and interrupt it before the nth instruction that can be interrupted.

    Returns whether the function ran at least n of these instructions.
    """
    left = number

    def trace(frame, event, argument):
        nonlocal left
        frame.f_trace_opcodes = True
        if event == "opcode" and frame.f_lasti in interruptible(frame.f_code):
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(None)
    return left <= 0


@pytest.mark.parametrize(
    "program",
    [with_stream, with_scope, with_scopes, with_ordering, with_loan, with_context, with_device],
)
def test_no_block_stays_in_force(stream, other, program):
    buffer = cu.DeviceBuffer(16)
    interrupted_at(0, lambda: None)  # Python 3.12 does not trace instructions in its first trace
    for number in range(1, MOST):
        met = interrupted_at(number, lambda: program(stream, buffer))
        with pytest.raises(TypeError, match="needs a stream"):
            buffer.fill_async(0)
        stream.synchronize()
        assert not buffer.borrowed, number
        buffer.fill_async(1, stream)
        with pytest.raises(cu.BufferBorrowedError):
            buffer.fill_async(2, other)
        stream.synchronize()
        if not met:
            break
    assert 5 < number < MOST - 1


def test_a_pipeline_runs_again(driver):
    """Ctrl-C at each point of a run ends it, and leaves no buffer of the pipeline borrowed."""
    items = np.arange(40, dtype="u1")
    interrupted_at(0, lambda: None)  # Python 3.12 does not trace instructions in its first trace
    with cu.Pipeline(20, buffers=1) as pipeline:
        pipeline.run(items)  # makes the objects that later runs use again
        for number in range(1, MOST):
            met = interrupted_at(number, lambda: pipeline.run(items))
            assert pipeline.run(items).items == 40, number
            assert not any(source.borrowed for source in pipeline._sources), number
            if not met:
                break
    assert 50 < number < MOST - 1


class Watched:
    """Work that is complete, and its future. `settled` is set when the future is settled."""

    def __init__(self):
        self.settled = threading.Event()

    def _is_complete(self):
        return True

    def done(self):
        return False

    def get_loop(self):
        return self

    def call_soon_threadsafe(self, *call):
        self.settled.set()


def test_the_watching_thread_goes_on(driver):
    """Ctrl-C at each point of an ``await`` leaves no lock that the watching thread needs."""
    for number in range(1, MOST):
        watcher, watched = _Watcher(), Watched()
        met = interrupted_at(number, lambda watcher=watcher: watcher.add((Watched(), Watched())))
        watcher.add((watched, watched))
        assert watched.settled.wait(PATIENCE), number
        if not met:
            break
    assert 5 < number < MOST - 1


BLOCKS = {
    "stream": lambda stream, buffer: stream,
    "scope": lambda stream, buffer: stream.scope(),
    "ordering": lambda stream, buffer: cu.ordering("wait"),
    "context": lambda stream, buffer: stream.context,
    "device": lambda stream, buffer: stream.device,
    "loan": lambda stream, buffer: buffer.lend(stream),
    "view": lambda stream, buffer: buffer.write(),
}


def enter_with_a_signal(block):
    """Enter and leave a block.

    Ctrl-C comes in `__enter__`, and Python notices it after that call.
    """

    class Block:
        # This class is built so that no Python code, which would notice the signal, runs in
        # `__enter__`.
        calls = map(operator.call, [_thread.interrupt_main, block.__enter__])
        __enter__ = staticmethod(functools.partial(list, calls))
        __exit__ = staticmethod(block.__exit__)

    with contextlib.suppress(KeyboardInterrupt), Block():
        raise AssertionError("was not interrupted")


@pytest.mark.parametrize("kind", BLOCKS)
def test_a_signal_that_comes_during_enter(stream, other, kind):
    """Ctrl-C in `__enter__` leaves no block in force.

    From Python 3.14 on, KeyboardInterrupt is raised without a call of `__exit__`.
    """
    buffer, before = cu.LockedBuffer.zeros(16), cu.Event().context
    enter_with_a_signal(BLOCKS[kind](stream, buffer))
    gc.collect()  # collects the block's object, which ends its view
    assert cu.Event().context is before
    with pytest.raises(TypeError, match="needs a stream"):
        buffer.fill_async(0)
    buffer.fill_async(1, stream)
    with pytest.raises(cu.BufferBorrowedError):
        buffer.fill_async(2, other)
    stream.synchronize()
    assert not buffer.borrowed


def test_a_signal_that_comes_while_a_loan_is_taken_back(stream, other):
    buffer = cu.LockedBuffer.zeros(16)
    loan = buffer.lend(stream)
    with loan:
        enter_with_a_signal(loan.back())
        with pytest.raises(cu.BufferExportedError, match="it is lent to"):
            buffer.fill_async(2, other)
    buffer.fill_async(2, stream)
    stream.synchronize()
