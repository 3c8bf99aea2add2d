"""Threads that make some of a program's calls, one thread at a time."""

import threading
from queue import SimpleQueue


class Worker:
    """A thread that runs the functions it is given."""

    def __init__(self):
        self.given, self.done = SimpleQueue(), SimpleQueue()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        while (function := self.given.get()) is not None:
            error = None
            try:
                function()
            except BaseException as raised:
                error = raised
            function = None
            self.done.put(error)
            error = None

    def start(self, function):
        self.given.put(function)

    def finish(self):
        error = self.done.get()
        if error is not None:
            raise error

    def do(self, function):
        self.start(function)
        self.finish()

    def end(self):
        self.given.put(None)
        self.thread.join()
