"""Runs the questions of a section in child processes, and goes on after those that die."""

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import sections
from client import Client
from driver import Library
from section import CURRENT, INITIALISED

MORE = 75  # a child's exit status: it wants a fresh process for the next question


def header(options):
    found = subprocess.run(_command(options, ""), capture_output=True, text=True)
    return [*found.stdout.splitlines(), f"date: {options.date}"]


def section(options, name):
    """The lines of a section's answers."""
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


def _command(options, name, first=0):
    command = [sys.executable, "-W", "ignore", str(Path(__file__).with_name("__main__.py"))]
    command += ["--library", options.library, "--patience", str(options.patience)]
    command += ["--child", name, "--first", str(first)]
    return command + (["--question", options.question] if options.question else [])


class _Child:
    """A process that answers questions of a section from the first one given."""

    def __init__(self, options, name, first):
        environment = {**os.environ, "CUDA_DEVICE_MAX_CONNECTIONS": "32"}
        self._asked = first
        self._process = subprocess.Popen(
            _command(options, name, first),
            stdout=subprocess.PIPE,
            stderr=None if os.environ.get("PROBE_ERRORS") else subprocess.DEVNULL,
            env=environment,
        )

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()

    def answers(self, seconds):
        """(index, answer) pairs; the last one may say how the process died."""
        answer = None
        for line in self._lines(seconds):
            if line is None:
                yield self._asked, _after(answer, "did not return")
                return
            index, kind, text = line.split(" ", 2)
            if answer is not None and kind == "?":
                yield self._asked, answer
            self._asked, answer = int(index), text if kind == "=" else None
        status = self._process.wait()
        died = status not in (0, MORE)
        yield self._asked, _after(answer, _death(status)) if died or answer is None else answer

    def _lines(self, seconds):
        """Lines of its output; None when none came for too long."""
        stream, rest = self._process.stdout.fileno(), b""
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
    """The answer of a question that was answered, if it was, and whose cleaning up went wrong."""
    return death if answer is None else f"{answer} (then {death})"


def _death(status):
    if status < 0:
        return f"died by {signal.Signals(-status).name}"
    return f"exited with {status}"


def child(options):
    """Answers questions until one wants another process."""
    questions = sections.load(options.child).questions
    client = Client(Library(options.library), options.patience)
    setup = None
    for index in range(options.first, len(questions)):
        question = questions[index]
        if options.question and options.question not in question.name:
            continue
        if setup is not None and (question.alone or question.setup != setup):
            return _leave(MORE)
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
            return _leave(MORE)
    return _leave(0)


def _set_up(client, setup):
    if setup == CURRENT:
        client.start()
    elif setup == INITIALISED:
        client.initialise()


def _tell(index, kind, text=""):
    os.write(1, f"{index} {kind} {' '.join(text.split())}\n".encode())


def _leave(status):
    """Ends at once: what a question left behind must not matter."""
    os._exit(status)
