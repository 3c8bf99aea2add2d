"""Functions that run in new threads, and threads that wait."""

import _thread
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import cudadrv as cu


def started(function: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """Start a thread. Returns it, and a list that gets the function's result or exception."""
    answers: list[Any] = []

    def run() -> None:
        try:
            answers.append(function())
        except Exception as error:
            answers.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, answers


def until_it_waits(thread: threading.Thread) -> None:
    """Return when a thread is blocked: it sleeps although it could have the GIL.

    A thread that could run is not asleep, however busy the machine is. A real driver waits in a
    loop and does not sleep, so on a GPU this function only waits for a short time.
    """
    if not cu.driver_info().is_software:
        time.sleep(0.2)
        return
    asleep = 0
    while asleep < 5:
        time.sleep(0.01)
        asleep = asleep + 1 if _sleeps(thread) else 0


def _sleeps(thread: threading.Thread) -> bool:
    try:
        stat = Path(f"/proc/self/task/{thread.native_id}/stat").read_text()
    except OSError:  # the thread has ended
        return True
    return stat.rpartition(")")[2].split()[0] == "S"


@contextmanager
def interrupted(ready: Callable[[], bool] = lambda: True) -> Iterator[None]:
    """Interrupt the block as Ctrl-C does, when it waits and `ready()` is true.

    Expects the exception.
    """
    main, over = threading.main_thread(), threading.Event()

    def interrupt() -> None:
        while not ready() and not over.wait(0.001):
            pass
        until_it_waits(main)
        if not over.is_set():
            _thread.interrupt_main()

    thread = threading.Thread(target=interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012 (it may come in start)
            thread.start()
            yield
    finally:
        over.set()
        thread.join()
