"""Running functions in new threads."""

import threading
from collections.abc import Callable
from typing import Any


def started(function: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """Start a thread. The list gets what the function returns or raises."""
    answers: list[Any] = []

    def run() -> None:
        try:
            answers.append(function())
        except Exception as error:
            answers.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, answers
