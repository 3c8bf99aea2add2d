"""Extension modules in C that only tests use: tests/NAME.c."""

import functools
import importlib.util
import os
import shlex
import subprocess
import sysconfig
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
INCLUDE = HERE.parent / "include"


@functools.cache
def compiled(name):
    """The module that is compiled from tests/NAME.c."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / f"{name}.so"
        compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
        flags = ["-O2", "-Wall", "-Wno-unused-function", "-Werror", "-shared", "-fPIC"]
        folders = [f"-I{sysconfig.get_path('include')}", f"-I{INCLUDE}"]
        command = [*compiler, *flags, *folders, str(HERE / f"{name}.c"), "-o", str(target)]
        subprocess.run(command, check=True)
        found = importlib.util.spec_from_file_location(name, target)
        module = importlib.util.module_from_spec(found)
        found.loader.exec_module(module)
        return module
