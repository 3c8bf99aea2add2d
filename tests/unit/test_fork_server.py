"""A program that the fork server runs behaves as one that ``python -c`` runs."""

import signal

import pytest
from schedules import one_schedule
from scripts import Script

pytestmark = one_schedule
PROGRAMS = {
    "its own names": "print(sorted(globals()), __name__, __doc__, __builtins__)",
    "arguments": "import sys; print(sys.argv, sys.path, sys.flags, sys.warnoptions, __file__)",
    "the environment": "import os; print(os.environ['CUDADRV_POOL'], os.getcwd())",
    "an exception": "def f():\n    1 / 0\nf()",
    "an exception with a cause": "try:\n    1 / 0\nexcept ArithmeticError:\n    import nothing",
    "wrong syntax": "print(",
    "a status": "import sys; sys.stderr.write('said'); sys.exit(3)",
    "a signal": f"import os; os.kill(os.getpid(), {int(signal.SIGKILL)})",
    "Ctrl-C": "import os, signal; os.kill(os.getpid(), signal.SIGINT)",
    "standard input": "import sys; print(repr(sys.stdin.read()))",
    "the end": "import atexit, os; atexit.register(print, 'end'); keep = open(os.devnull)",
    "a child": "import os\nif os.fork(): os.wait()\nprint('twice', flush=True)",
    "a thread": "import threading\nt = threading.Thread(target=lambda: 1 / 0)\nt.start(); t.join()",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_does_the_same(script, fork_server, driver, name):
    found, expected = (
        each.run(PROGRAMS[name], CUDADRV_POOL="7") for each in (Script(fork_server), Script(None))
    )
    assert found.returncode == expected.returncode
    assert found.stdout == expected.stdout
    assert found.stderr == expected.stderr
