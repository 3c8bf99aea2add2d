"""Another process, which evaluates expressions of a test."""

import contextlib
import faulthandler
import os
import pickle
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]  # the folder from which cudadrv is imported if it is not installed


class Other:
    """Another process. ``other("expression", name=value)`` is the value of the expression there.

    Names keep their values: ``other("x := 1")``. Values are pickled.
    """

    def __init__(self, schedule, **environment):
        if schedule == "explore":  # this process is explored, and the other one is not
            schedule = "lazy"
        software = {} if schedule == "cuda" else {"CUDADRV_SOFTWARE": f"schedule={schedule}"}
        self.process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": str(ROOT)} | software | environment,
        )
        self.pid = self.process.pid

    def send(self, expression, **values):
        pickle.dump((expression, values), self.process.stdin)
        self.process.stdin.flush()

    def answer(self):
        kind, value = pickle.load(self.process.stdout)
        if kind == "error":
            raise value
        return value

    def __call__(self, expression, **values):
        self.send(expression, **values)
        return self.answer()

    def kill(self):
        self.process.kill()
        self.end()

    def end(self):
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        status = self.process.wait()
        self.process.stdout.close()
        return status


def serve():
    import numpy as np

    import cudadrv as cu

    faulthandler.enable()
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # the program's output must not go to the pipe of the answers
    names = {"cu": cu, "np": np, "os": os, "later": []}
    while True:
        try:
            expression, values = pickle.load(sys.stdin.buffer)
        except EOFError:
            break
        try:
            names |= values
            answer = "value", eval(f"({expression})", names)
            data = pickle.dumps(answer)
        except Exception as error:
            if isinstance(error, TypeError) and "pickle" in str(error):
                answer = "value", None
            else:
                error.__traceback__ = None
                answer = "error", error
            data = pickle.dumps(answer)
        answers.write(data)
        answers.flush()
        del answer
    with contextlib.suppress(cu.OwnershipError):  # raised by a wait that would never end
        # Wait, because the end of a process ends its unfinished work.
        for device in cu.Device.all():
            device.synchronize()


if __name__ == "__main__":
    serve()
