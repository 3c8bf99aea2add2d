"""Ctrl-C comes before each bytecode of the small programs: see cases.py.

A case is the number of the bytecode from the program's beginning. A function that the bytecode
calls, such as a blocking copy, meets the signal.
"""

import ctypes
import os
import shlex
import signal
import subprocess
import sysconfig
import tempfile
from pathlib import Path

import cases

SOURCE = Path(__file__).with_name("interrupter.c")


def compiled():
    """Compile and load interrupter.c."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "interrupter.so"
        compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
        include = f"-I{sysconfig.get_path('include')}"
        flags = ["-O1", "-Wall", "-Werror", "-shared", "-fPIC", include]
        subprocess.run([*compiler, *flags, str(SOURCE), "-o", str(target)], check=True)
        return ctypes.PyDLL(str(target))


interrupter = compiled()


class Interrupted:
    """A context manager in which the signal comes before one bytecode. With 0 it never comes."""

    def __init__(self, number):
        self.number = number

    def __enter__(self):
        interrupter.begin_count(ctypes.c_long(self.number))

    def __exit__(self, *exception):
        self.passed = interrupter.end_count()


def run(name, number, left, show=False):
    """Run a program in which Ctrl-C comes before one bytecode."""

    def run():
        signal.signal(signal.SIGINT, signal.default_int_handler)
        return cases.meet(name, Interrupted(int(number)), is_expected, left, show)

    return cases.in_a_child(run)


def is_expected(error):
    return isinstance(error, KeyboardInterrupt | None)


def count_of(name):
    """The number of bytecodes that a program runs."""

    def run():
        cases.begin()
        around = Interrupted(0)
        assert cases.run_program(name, around).is_success()
        return around.passed

    return cases.in_a_child(run)


if __name__ == "__main__":
    cases.main(run, cases.by_number(run, count_of, first=1, sample=12))
