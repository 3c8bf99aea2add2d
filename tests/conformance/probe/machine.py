"""Which machine and driver answered."""

import ctypes
import platform
import re
from pathlib import Path


def describe(library):
    """Prints ``name: value`` lines; run in a process of its own, because it initialises."""
    lib = ctypes.CDLL(library)
    number, count, name = ctypes.c_int(), ctypes.c_int(), ctypes.create_string_buffer(256)
    if lib.cuInit(0) == 0 and lib.cuDeviceGetName(name, 256, 0) == 0:
        print("gpu:", name.value.decode())
    lib.cuDeviceGetCount(ctypes.byref(count))
    print("devices:", count.value)
    print("driver:", _driver_version() if not hasattr(lib, "cudadrvSoftVersion") else "software")
    lib.cuDriverGetVersion(ctypes.byref(number))
    print("cuda:", f"{number.value // 1000}.{number.value % 1000 // 10}")
    print("machine:", platform.system(), platform.machine())
    return 0


def _driver_version():
    try:
        text = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8")
    except OSError:
        return "unknown"
    found = re.search(r"\b\d+\.\d+(\.\d+)?\b", text)
    return found[0] if found else "unknown"
