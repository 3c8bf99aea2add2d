"""Calls that run in a second thread while the first thread is at a driver call.

A driver that is compiled here (interposed.c) stands between cudadrv and the real driver, and stops
a thread at its nth moment: before or after one of its driver calls. At such a
moment the thread may hold no lock of an object. So the second call comes to its end, or waits for a
lock that the first call releases.
"""

import ctypes
import gc
import os
import shlex
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
SOURCE = Path(__file__).with_name("interposed.c")


def interposed(driver: str, folder: Path) -> Path:
    """Compile the driver that stands before `driver`, the path of a libcuda.so.1."""
    sys.path.insert(0, str(ROOT))
    from cuda_header import find_cuda_header

    target = folder / "interposed.so"
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    flags = ["-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-pthread", f"-I{ROOT / 'include'}"]
    flags += [f"-I{find_cuda_header().folder}", f'-DDRIVER="{driver}"']
    # Linked to the driver, so that the driver's other functions can be found in it, too. The linker
    # looks for the software driver by its SONAME.
    (folder / "cudadrv-libcuda.so.1").symlink_to(driver)
    link = ["-Wl,--no-as-needed", driver, f"-Wl,-rpath,{folder}"]
    subprocess.run([*compiler, *flags, str(SOURCE), *link, "-o", str(target)], check=True)
    return target


def outcome(call: Callable[[], Any]) -> Any:
    """Return a call's result or its exception."""
    try:
        return call()
    except Exception as error:
        return error


class Second:
    """A second thread, which runs one call after the other."""

    def __init__(self) -> None:
        self._begin, self._ended = threading.Semaphore(0), threading.Semaphore(0)
        self._call: Callable[[], Any] | None = None
        self._result: Any = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            self._begin.acquire()
            if self._call is None:
                return
            self._result = outcome(self._call)
            self._ended.release()

    def start(self, call: Callable[[], Any]) -> None:
        self._call, self._result = call, None
        self._begin.release()

    def end(self) -> Any:
        """Wait for the call, and return its result or its exception."""
        self._ended.acquire()
        result, self._call, self._result = self._result, None, None
        return result

    def close(self) -> None:
        self._call = None
        self._begin.release()
        self._thread.join()


class Window(NamedTuple):
    """One moment of a call at which another call ran."""

    place: str  # the driver function; "" if the call had ended
    first: Any  # the result of the call, or its exception
    second: Any


class Moments:
    """Runs calls at the moments of other calls."""

    def __init__(self, second: Second) -> None:
        self.library = ctypes.CDLL(os.environ["CUDADRV_DRIVER"])
        self.library.wait_for_moment.restype = ctypes.c_char_p
        self.second = second
        # A program makes thousands of collections, which would visit everything imported so far.
        gc.collect()
        gc.freeze()

    def pause(self) -> None:
        """Let the other thread run, if this is the moment."""
        self.library.pause_here()

    def run(
        self, number: int, of_collections: bool, first: Callable[[], Any], second: Callable[[], Any]
    ) -> Window:
        """Run `second` at the nth moment of `first`, or after it if there is no such moment.

        The moments are driver calls, or collections of garbage, where finalizers and other threads
        run, too. From Python 3.12 on, there are collections only between Python's instructions.
        """
        place = ""

        def at_moment() -> Any:
            nonlocal place
            place = self.library.wait_for_moment().decode()
            try:
                return second()
            finally:
                self.library.end_moment()

        with _collections(self.library.at_collection) if of_collections else nullcontext():
            self.library.watch_from_here(ctypes.c_long(number), of_collections)
            self.second.start(at_moment)
            result = outcome(first)
            self.library.watch_no_more()
        answer = self.second.end()
        return Window(place, result, answer)

    def each(self, case: Callable[[], "Case"], step: int = 1) -> int:
        """Run two calls at every nth moment of each other. Returns the number of moments."""
        ways = [(swap, kind) for swap in (False, True) for kind in (False, True)]
        return sum(self._each(case, swap, kind, step) for swap, kind in ways)

    def _each(self, case: Callable[[], "Case"], swap: bool, of_collections: bool, step: int) -> int:
        passed = 0
        while self.at(1 + passed * step, case, swap=swap, of_collections=of_collections):
            passed += 1
        return passed

    def at(
        self, number: int, case: Callable[[], "Case"], *, swap: bool, of_collections: bool
    ) -> str:
        """Run two calls at one moment. Returns the place; "" if there is no such moment."""
        calls = case()
        first, second = (calls.second, calls.first) if swap else (calls.first, calls.second)
        window = self.run(number, of_collections, first, second)
        results = (window.second, window.first) if swap else (window.first, window.second)
        name = "first" if swap else "second"
        where = f"the {name} call ran at moment {number} of the other one, at {window.place}"
        checked(calls, *results, where if window.place else f"the {name} call ran after the other")
        return window.place

    def together(self, case: Callable[[], "Case"], random: Random) -> None:
        """Run two calls at once."""
        start, calls = threading.Barrier(2), case()
        spins = random.randrange(SPINS), random.randrange(SPINS)

        def at_start(call: Callable[[], Any], count: int) -> Any:
            start.wait()
            for _ in range(count):
                pass
            return call()

        self.second.start(lambda: at_start(calls.second, spins[1]))
        first = outcome(lambda: at_start(calls.first, spins[0]))
        checked(calls, first, self.second.end(), "both calls ran at once")


@contextmanager
def _collections(call: Callable[[], None]) -> Iterator[None]:
    """Call a function at each collection of garbage, and collect at every second allocation."""

    def at_start(phase: str, _info: dict[str, int]) -> None:
        if phase == "start":
            call()

    before = gc.get_threshold()
    gc.collect(0)  # starts the count of allocations anew
    gc.callbacks.append(at_start)
    gc.set_threshold(1)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(at_start)


SPINS = 300  # so that either thread may begin first


class Case(NamedTuple):
    """Two calls, and a function that checks their outcomes and the state after them."""

    first: Callable[[], Any]
    second: Callable[[], Any]
    check: Callable[[Any, Any], None]


def checked(calls: Case, first: Any, second: Any, where: str) -> None:
    try:
        calls.check(first, second)
    except BaseException as error:
        error.add_note(f"{where}: {first!r} and {second!r}")
        raise
