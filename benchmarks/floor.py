"""The floor of calls.py: bare driver calls, compiled on demand, from C and from Python."""

import ctypes
import os
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

HERE = Path(__file__).resolve().parent


class Things(ctypes.Structure):
    """The arguments of the calls, as in floor.c."""

    _fields_ = [
        ("device", ctypes.c_uint64),
        ("other", ctypes.c_uint64),
        ("host", ctypes.c_void_p),
        ("nbytes", ctypes.c_size_t),
        ("large", ctypes.c_size_t),
        ("many", ctypes.c_uint64),
        ("many_host", ctypes.c_void_p),
        ("pitch", ctypes.c_size_t),
        ("stream", ctypes.c_void_p),
        ("event", ctypes.c_void_p),
        ("kernel", ctypes.c_void_p),
        ("graph", ctypes.c_void_p),
        ("template", ctypes.c_void_p),
        ("node", ctypes.c_void_p),
    ]


def compiled():
    """Compile floor.c; return it as a library and as a Python module."""
    sys.path.insert(0, str(HERE.parent))
    from cuda_header import find_cuda_header

    target = Path(tempfile.mkdtemp(), "floor.so")
    include = find_cuda_header().folder
    command = [*shlex.split(os.environ.get("CC", "cc")), "-O2", "-shared", "-fPIC", f"-I{include}"]
    command.append(f"-I{sysconfig.get_path('include')}")
    subprocess.run([*command, HERE / "floor.c", "-o", target, "-ldl"], check=True)
    library = ctypes.CDLL(str(target))
    library.floor_call.restype = ctypes.c_double
    library.floor_call.argtypes = [ctypes.c_char_p, ctypes.POINTER(Things), ctypes.c_int]
    library.floor_load.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p]
    buffers = ctypes.POINTER(ctypes.c_uint64)
    library.floor_graph.argtypes = [ctypes.POINTER(Things), ctypes.c_int, buffers, ctypes.c_int]
    loader = ExtensionFileLoader("floor", str(target))
    module = module_from_spec(spec_from_loader("floor", loader))
    loader.exec_module(module)
    return library, module


class Floor:
    """Times the rows of calls.py in C, in the current context."""

    def __init__(self, driver, image, kernel):
        self.library, self.module = compiled()
        if not self.library.floor_open(driver.encode()):
            sys.exit(f"{driver} cannot be opened")
        self.things = Things()
        loaded = ctypes.c_void_p()
        if self.library.floor_load(image, kernel.encode(), ctypes.byref(loaded)) == 0:
            self.things.kernel = loaded.value

    def for_python(self, row, things=None):
        """Return a Python function that makes the call of a row and ignores its arguments, or None.

        `self` and `things` must stay alive as long as the function.
        """
        if row.startswith("launch") and not self.things.kernel:
            return None
        return self.module.bare(row, ctypes.addressof(things or self.things))

    def graph(self, launches, addresses):
        """Return `Things` with a graph that launches the kernel on one buffer after the other."""
        made = Things.from_buffer_copy(self.things)
        buffers = (ctypes.c_uint64 * len(addresses))(*addresses)
        status = self.library.floor_graph(ctypes.byref(made), launches, buffers, len(addresses))
        if status:
            raise RuntimeError(f"making a graph: CUDA error {status}")
        return made

    def timed(self, row, calls, things=None):
        """Return the nanoseconds of a call; None if the driver refuses it."""
        if row.startswith("launch") and not self.things.kernel:
            return None
        of = ctypes.byref(things or self.things)
        taken = self.library.floor_call(row.encode(), of, calls)
        return taken if taken >= 0 else None
