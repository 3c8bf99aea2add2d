"""Describes the machine and the driver that are asked."""

import ctypes
import platform
import re
from pathlib import Path


def describe(library):
    """Yields ``name: value`` lines. Needs a process of its own, because it calls cuInit."""
    lib = ctypes.CDLL(library)
    number, count, name = ctypes.c_int(), ctypes.c_int(), ctypes.create_string_buffer(256)
    if lib.cuInit(0) == 0 and lib.cuDeviceGetName(name, 256, 0) == 0:
        yield f"gpu: {name.value.decode()}"
    lib.cuDeviceGetCount(ctypes.byref(count))
    yield f"devices: {count.value}"
    software = hasattr(lib, "cudadrvSoftVersion")
    yield f"driver: {'software' if software else _driver_version()}"
    lib.cuDriverGetVersion(ctypes.byref(number))
    yield f"cuda: {number.value // 1000}.{number.value % 1000 // 10}"
    yield f"machine: {platform.system()} {platform.machine()}"


def _driver_version():
    try:
        text = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8")
    except OSError:
        return "unknown"
    found = re.search(r"\b\d+\.\d+(\.\d+)?\b", text)
    return found[0] if found else "unknown"
