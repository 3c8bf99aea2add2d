"""What tests run in threads of their own."""

import threading
from collections.abc import Callable
from typing import Any


def started(function: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """Start a thread; the list gets what the function gives or raises."""
    answers: list[Any] = []

    def run() -> None:
        try:
            answers.append(function())
        except Exception as error:
            answers.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, answers
