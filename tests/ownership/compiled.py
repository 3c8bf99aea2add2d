"""Compiles the C programs of the tests of the engine."""

import os
import shlex
import subprocess
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def compiled(source: Path, target: Path, *flags: str, include: Path = ROOT / "include") -> str:
    """Compile a program. Returns what the compiler reports as errors, or ""."""
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    usual = ["-std=gnu11", "-O1", "-g", "-Wall", "-Werror", "-pthread", f"-I{include}"]
    command = [*compiler, *usual, *flags, str(source), "-o", str(target)]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stderr if done.returncode else ""
