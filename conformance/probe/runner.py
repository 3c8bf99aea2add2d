"""Runs the questions of a section in child processes. If one dies, another one continues."""

import os
import select
import signal
import time
import traceback

import machine
import sections
from client import Client
from driver import Library
from section import CURRENT, INITIALISED

MORE = 75  # exit status of a child if questions are left for a new process


def header(options):
    child, output = _forked(lambda: _tell_machine(options.library))
    with os.fdopen(output, encoding="utf-8") as lines:
        found = lines.read().splitlines()
    os.waitpid(child, 0)
    return [*found, f"date: {options.date}"]


def _tell_machine(library):
    os.write(1, "".join(f"{line}\n" for line in machine.describe(library)).encode())
    _leave(0)


def section(options, name):
    """Yields the lines with the answers of a section."""
    questions = sections.load(name).questions
    first, wanted = 0, options.question or ""
    while first < len(questions):
        if wanted not in questions[first].name:
            first += 1
            continue
        with _Child(options, name, first) as child:
            for index, answer in child.answers(options.timeout):
                first = index + 1
                if wanted in questions[index].name:
                    yield f"{name} / {questions[index].name} = {answer}"


class _Child:
    """A process that answers the questions of a section, beginning with the index `first`."""

    def __init__(self, options, name, first):
        self._asked = first
        self._id, self._output = _forked(lambda: _answer(options, name, first))
        self._status = None

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        if self._status is None:
            os.kill(self._id, signal.SIGKILL)
            self._wait()
        os.close(self._output)

    def _wait(self):
        self._status = os.waitstatus_to_exitcode(os.waitpid(self._id, 0)[1])

    def answers(self, seconds):
        """Yields pairs of an index and an answer. The last answer may tell how the process died."""
        answer = None
        for line in self._lines(seconds):
            if line is None:
                yield self._asked, _after(answer, "did not return")
                return
            index, kind, text = line.split(" ", 2)
            if answer is not None and kind == "?":
                yield self._asked, answer
            self._asked, answer = int(index), text if kind == "=" else None
        self._wait()
        died = self._status not in (0, MORE)
        death = _death(self._status)
        yield self._asked, _after(answer, death) if died or answer is None else answer

    def _lines(self, seconds):
        """Yields the lines of the output. Yields None if no line came in time."""
        stream, rest = self._output, b""
        end = time.monotonic() + seconds
        while True:
            ready, _, _ = select.select([stream], [], [], max(0, end - time.monotonic()))
            if not ready:
                yield None
                return
            block = os.read(stream, 65536)
            if not block:
                return
            *lines, rest = (rest + block).split(b"\n")
            for line in lines:
                yield line.decode()
            if lines:
                end = time.monotonic() + seconds


def _after(answer, death):
    """The answer to a question whose process died, either before its answer or in the clean-up."""
    return death if answer is None else f"{answer} (then {death})"


def _death(status):
    if status < 0:
        return f"died by {signal.Signals(-status).name}"
    return f"exited with {status}"


def _forked(function):
    """Calls the function in a forked process. Returns its id and its output's file descriptor.

    All modules are already imported in the child. Starting Python anew would take longer than most
    questions. This process never loads the driver, so the child loads it afresh.
    """
    output, its_output = os.pipe()
    child = os.fork()
    if child:
        os.close(its_output)
        return child, output
    try:
        os.close(output)
        os.dup2(its_output, 1)
        if not os.environ.get("PROBE_ERRORS"):
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = "32"
        function()
    except BaseException:
        traceback.print_exc()
    finally:
        _leave(1)


def _answer(options, name, first):
    """Answers questions until the next one needs a new process."""
    questions = sections.load(name).questions
    client = Client(Library(options.library), options.patience)
    setup = None
    for index in range(first, len(questions)):
        question = questions[index]
        if options.question and options.question not in question.name:
            continue
        if setup is not None and (question.alone or question.setup != setup):
            _leave(MORE)
        if setup is None:
            setup = question.setup
            _tell(index, "?")
            _set_up(client, setup)
        _tell(index, "?")
        answer = question.answer(client)
        _tell(index, "=", answer)
        status = client.close()
        if status != "SUCCESS":
            _tell(index, "=", f"{answer} (then {status})")
        if question.alone or status != "SUCCESS":
            _leave(MORE)
    _leave(0)


def _set_up(client, setup):
    if setup == CURRENT:
        client.start()
    elif setup == INITIALISED:
        client.initialise()


def _tell(index, kind, text=""):
    os.write(1, f"{index} {kind} {' '.join(text.split())}\n".encode())


def _leave(status):
    """Ends the process without destructors, whatever a question has left behind."""
    os._exit(status)
