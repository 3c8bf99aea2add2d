"""Runs small programs in which one mishap happens, and reports what is wrong afterwards.

Each case has a process of its own: a fork of a process that has imported everything and has never
used the driver. So a case starts within milliseconds in the state of a new process.

The kinds of mishaps are in driver_faults.py, memory_faults.py and interrupts.py:

    python tests/faults/driver_faults.py sample kernels events  # without names: all programs
    python tests/faults/driver_faults.py all kernels
    python tests/faults/driver_faults.py cuLaunchKernelEx:2:719 kernels  # one case, with traceback

The output is a line of JSON for each case with errors, and the number of cases of each program.
"""

import ctypes
import gc
import hashlib  # noqa: F401
import json
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from collections import Counter
from contextlib import nullcontext, suppress
from contextvars import ContextVar
from types import SimpleNamespace

import numpy as np
from small_programs import PROGRAMS

import cudadrv as cu

# These modules (and hashlib) are usually imported on first use, which is not tested here.
from cudadrv import (
    _await,  # noqa: F401
    _bound,  # noqa: F401
    _environment,  # noqa: F401
    _kernel,  # noqa: F401
    _library,
    testing,
)
from cudadrv._errors import STICKY

# `capture_profiler` imports it. If memory runs out in an import that does not find its module,
# Python 3.11 may raise "SystemError: error return without exception set".
sys.modules["nvtx"] = SimpleNamespace(push_range=print, pop_range=print)

SECONDS = 120  # a case that takes longer counts as hanging, even on a busy machine
# Little memory: one program fills it in each case.
SETTINGS = "schedule=lazy,seed=1,kernel_faults=record,devices=2,memory=64MiB"
os.environ.setdefault("CUDADRV_DRIVER", "software")
# Set, because Python 3.11 may raise "SystemError: returned NULL without setting an exception" if
# memory runs out while it finds that a variable is not set.
os.environ.setdefault("CUDADRV_TRACE", "")
# With more threads, the order of driver calls would vary.
os.environ.setdefault("CUDADRV_COPY_THREADS", "1")

# The library is loaded once, before the cases fork, because loading is slow. No function of the
# driver is called yet.
DRIVER = ctypes.CDLL(_library.software_path())
DRIVER.cudadrvSoftCalls.restype = ctypes.c_ulonglong

gc.collect()
gc.freeze()  # excludes the present objects from garbage collections and from gc.get_objects()

OURS = (cu.Stream, cu.Event, cu.Buffer, cu.Context, cu.Module)


class Answer:
    """The outcome of a program in which a mishap happened."""

    def __init__(self):
        self.error = None  # the exception that the program raised
        self.unraised = []  # warnings, and exceptions in destructors and threads

    def __str__(self):
        return f"raised {self.error!r}, said {self.unraised}"

    def is_success(self):
        return self.error is None and not self.unraised


def begin(fault="none"):
    """Prepare this process before it first uses the driver.

    Returns the software driver's library.
    """
    ContextVar("any").set(1)  # Python 3.11 crashes if it has no memory for the first ContextVar
    settings = f"{SETTINGS},fault={fault}"
    assert not DRIVER.cudadrvSoftConfigure(settings.encode()), settings
    return DRIVER


def run_program(name, around, show=False):
    """Run a program inside a context manager. Returns its outcome."""
    answer = Answer()
    sys.unraisablehook = lambda found: answer.unraised.append(str(found.exc_value))
    threading.excepthook = lambda found: answer.unraised.append(str(found.exc_value))
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            with around:
                PROGRAMS[name]()
        except BaseException as error:
            answer.error = error
    answer.unraised += [str(each.message) for each in warned]
    if show and answer.error is not None:
        traceback.print_exception(answer.error)
    return answer


def usual(name, more=dict):
    """The leftovers of a program that runs without a mishap, and the result of `more` after it."""

    def run():
        begin()
        answer = run_program(name, nullcontext())
        assert answer.is_success(), answer
        found = more()
        assert not still_in_force() + unsound()
        return {"left": leftovers(), **found}

    return in_a_child(run)


# ---- afterwards ----


def things_of(error):
    """The cudadrv objects to which the frames of an exception still refer."""
    found = []
    while error is not None:
        for frame, _ in traceback.walk_tb(error.__traceback__):
            found += [each for each in frame.f_locals.values() if isinstance(each, OURS)]
        error = error.__context__
    return found


def contexts():
    return [each for each in gc.get_objects() if isinstance(each, cu.Context)]


def is_lost():
    """Whether any context is lost; the primary one of device 0 may not exist before this call."""
    return not is_sound(cu.Device(0)) or bool(lost_contexts())


def lost_contexts():
    return [context for context in contexts() if not is_sound(context)]


def is_sound(thing):
    try:
        thing.synchronize()
    except cu.CudaError as error:
        if is_sticky(error):
            return False
        raise
    return True


def is_sticky(error):
    return isinstance(error, cu.CudaError) and error.status in STICKY


def synchronize_all():
    for context in contexts():
        with suppress(cu.ContextLostError):
            context.synchronize()


def borrowed_still(error):
    """Buffers that are still borrowed after all work is complete."""
    synchronize_all()
    buffers = [each for each in things_of(error) if isinstance(each, cu.Buffer)]
    return [f"borrowed: {each.explain()}" for each in buffers if not each.closed and each.borrowed]


def still_in_force():
    """Streams, contexts and policies that are still in force after their blocks have ended."""
    wrong = []
    try:
        cu.DeviceBuffer(8).fill_async(1)
    except TypeError:
        pass
    else:
        wrong.append("a stream is still the current one")
    if cu.Event().context is not cu.Device(0).context:
        wrong.append("a context is still the current one")
    buffer, stream, other = cu.DeviceBuffer(8), cu.Stream(), cu.Stream()
    buffer.fill_async(1, stream)
    try:
        buffer.fill_async(2, other)
    except cu.BufferBorrowedError:
        pass
    else:
        wrong.append("a policy is still in force")
    stream.synchronize()
    return wrong


def unsound():
    """Errors of a correct program that runs after the mishap."""
    stream, other = cu.Stream(), cu.Stream()
    data = np.arange(5000, dtype="u4")
    device = cu.DeviceBuffer.from_array(data)
    ordered = cu.DeviceBuffer(5000, "u4", stream=stream)
    locked = cu.LockedBuffer(5000, "u4")
    ordered.copy_from_async(device, stream)
    other.wait(stream)
    locked.copy_from_async(ordered, other).wait()
    wrong = [] if (locked.to_numpy() == data).all() else ["a later program copied other data"]
    ordered.fill_async(1, stream)
    stream.synchronize()
    for each in (device, ordered, locked, stream, other):
        each.close()
    return wrong


def unlike_lost(error):
    """Errors in the state after a loss.

    Each use of a lost context must raise ContextLostError, and closing must be quiet. Other
    contexts must work.
    """
    wrong = [] if not is_sound(cu.Device(0)) else still_in_force() + unsound()
    uses = (cu.Stream, lambda: cu.DeviceBuffer(8), lambda: cu.LockedBuffer(8), cu.Event)
    lost = lost_contexts()  # this makes each lost context known to cudadrv
    for context in lost:
        for use in uses:
            try:
                with context:
                    use()
            except BaseException as other:
                if not is_sticky(other):
                    wrong.append(f"a lost context: {other!r}")
            else:
                wrong.append("a lost context goes on")
    things = [
        each
        for each in things_of(error)
        if not isinstance(each, cu.Context)
        and "default stream" not in repr(each).lower()
        and any(each.context is context for context in lost)
    ]
    # A pool belongs to no context. It is destroyed when the last reference to it ends.
    pools = [each for each in gc.get_objects() if isinstance(each, cu.DriverPool)]
    while error is not None:  # a buffer cannot be closed while the program has an array of it
        error.__traceback__ = None
        error = error.__context__
    gc.collect()
    cu.reap()  # dropped memory of contexts that are not lost
    before = testing.calls()
    for thing in things:
        try:
            thing.close()
        except BaseException as other:
            if not (isinstance(other, ValueError) and "is a part" in str(other)):
                wrong.append(f"closing {thing!r} of a lost context: {other!r}")
    if testing.calls() != before:
        wrong.append("closing called the driver")
    del pools
    return wrong


def leftovers():
    """The driver's and the library's live objects after everything was released, as a Counter."""
    gc.collect()
    synchronize_all()
    cu.reap()
    testing.drain()
    counted = Counter(testing.live_objects())
    counted["buffers"] = len(cu.live_buffers())
    return counted


def left_wrongly(usual, excused):
    """What is left, without the usual leftovers and without one object of each excused kind."""
    more = leftovers() - Counter(usual)
    return [
        f"{count} {kind} too many"
        for kind, count in more.items()
        if count > 1 or kind not in excused
    ]


def wrong_afterwards(answer, usual, excused=()):
    """Errors in the state after a program. Drops the program's exception.

    `usual` is what the program leaves behind without a mishap.
    """
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        testing.configure("fault=none")
        testing.drain()
        if is_lost():
            wrong = unlike_lost(answer.error)
            answer.error = None
            gc.collect()
        else:
            wrong = borrowed_still(answer.error) + still_in_force() + unsound()
            answer.error = None
            left, tries = left_wrongly(usual, excused), 20
            while left and tries:  # a thread of the library may still hold references for a moment
                time.sleep(0.1)
                left, tries = left_wrongly(usual, excused), tries - 1
            wrong += left
        wrong += [f"race: {race}" for race in testing.races()]
    return wrong + [f"warned afterwards: {each.message}" for each in warned]


def meet(name, around, is_expected, left, show):
    """Run a program inside a context manager that causes a mishap. Returns the errors."""
    begin()
    answer = run_program(name, around, show)
    said = [f"{answer.error!r}", *answer.unraised]
    wrong = [] if is_expected(answer.error) else [f"raised {answer.error!r}"]
    return {"wrong": wrong + wrong_afterwards(answer, left), "said": said}


# ---- processes ----


def in_a_child(function):
    """Run a function in a fork of this process.

    Returns the function's result, which JSON must be able to represent, or how the process ended.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        # The signal has no handler, so it ends the process.
        signal.setitimer(signal.ITIMER_REAL, SECONDS)
        try:
            os.close(reading)
            with os.fdopen(writing, "w") as out:
                json.dump(function(), out)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as into:
        text = into.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code == 0:
        return json.loads(text)
    return {
        "wrong": [
            "hangs"
            if code == -signal.SIGALRM
            else signal.Signals(-code).name
            if code < 0
            else f"ended with {code}"
        ]
    }


def by_number(run, count_of, first, sample):
    """Return a function that yields the numbered cases of a program: all, or about `sample`."""

    def cases_of(name, thorough):
        if name == "awaiting":  # after a mishap, Python's asyncio may wait for ever
            return
        left, count = usual(name)["left"], count_of(name)
        step = 1 if thorough else max(1, count // sample)
        for number in range(first, count, step):
            yield number, run(name, number, left)

    return cases_of


def main(run, cases_of):
    """Run cases of some programs, as the command line says."""
    which, *names = sys.argv[1:]
    if which not in ("sample", "all"):
        left = usual(names[0])["left"]
        print(json.dumps(run(names[0], which, left, show=True), indent=1))
        return
    for name in names or PROGRAMS:
        count = 0
        for case, result in cases_of(name, which == "all"):
            count += 1
            if result["wrong"]:
                print(json.dumps({"program": name, "case": case, **result}), flush=True)
        print(f"{name}: {count} cases", flush=True)
