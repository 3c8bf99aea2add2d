"""Runs programs of the tests in processes of their own."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

from fork_server import ForkServer
from limits import PATIENCE

ROOT = Path(__file__).resolve().parents[1]
OPTIONS = ["-W", "error"]  # of Python


class Script:
    """Runs programs in new processes, for tests after which a process is unusable."""

    def __init__(self, server: ForkServer | None) -> None:
        self._server = server

    def run(self, program: str, **changes: str) -> subprocess.CompletedProcess[str]:
        program = textwrap.dedent(program)
        environment = {**os.environ, "PYTHONPATH": str(ROOT), **changes}
        if (
            changes.get("CUDADRV_DRIVER", "cuda") != "cuda"
            and "CUDA_VISIBLE_DEVICES" not in changes
        ):
            environment.pop("CUDA_VISIBLE_DEVICES", None)  # it names GPUs
        if self._server and self._server.can_run(environment):
            return self._server.run(program, environment, PATIENCE)
        return subprocess.run(
            [sys.executable, *OPTIONS, "-c", program],
            env=environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )

    def quiet(self, program: str, **environment: str) -> str:
        """Run a program that must succeed and write nothing to stderr. Returns its output."""
        done = self.run(program, **environment)
        assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
        return done.stdout

    def refused_after_fork(self, head: str, calls: str, last: str, parent: str) -> None:
        """Check that each of `calls` raises ForkedError in a child that is forked after `head`.

        `calls` are separated by "|". After them, the child runs `last`. `parent` checks how it
        ended.
        """
        each = [call.strip() for line in calls.strip().splitlines() for call in line.split("|")]
        self.quiet(
            head
            + f"""
    child = os.fork()
    if child == 0:
        missed = []
        for call in {each!r}:
            try:
                eval(call)
            except cu.ForkedError:
                continue
            except BaseException as error:
                missed.append((call, repr(error)))
            else:
                missed.append((call, "nothing"))
        {last}
        for miss in missed:
            print(*miss, file=sys.stderr)
        sys.stderr.flush()
        os._exit(bool(missed))
    {parent}
"""
        )
