"""Where a benchmark ran: device, driver, Python and the versions of installed bindings."""

import datetime
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import cudadrv as cu

PACKAGES = {
    "cudadrv": ["cudadrv"],
    "cuda.core": ["cuda-core"],
    "CuPy": ["cupy-cuda13x", "cupy-cuda12x", "cupy"],
    "cuda.bindings": ["cuda-bindings"],
    "PyCUDA": ["pycuda"],
    "PyTorch": ["torch"],
    "numba-cuda": ["numba-cuda"],
}
LIBRARY = "libcuda.so.1"  # the name that other bindings load


def about():
    """Return the head of a file of results. The figures follow under "rows"."""
    info, device = cu.driver_info(), cu.Device(0)
    return {
        "date": datetime.date.today().isoformat(),
        "device": device.name,
        "driver": driver_version(),
        "cuda": ".".join(map(str, info.version)),
        "software": info.is_software,
        "python": platform.python_version(),
        "processor": processor(),
        "cpus": len(os.sched_getaffinity(0)),
        "versions": versions(),
    }


def versions():
    """Return the versions of installed packages. cudadrv may run from its sources."""
    found = {"cudadrv": cu.__version__}
    for name, packages in PACKAGES.items():
        for package in packages:
            with suppress(PackageNotFoundError):
                found[name] = version(package)
    return found


def driver_version():
    """Return the driver's version, such as 580.159.04, which only the name of its file tells."""
    found = re.search(r"/libcuda\.so\.([\d.]{4,})$", Path("/proc/self/maps").read_text(), re.M)
    return found[1] if found else None


def processor():
    found = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.M)
    return found[1].strip() if found else platform.machine()


def write(path, rows, machine=None):
    """Write rows of figures with their head, as JSON."""
    Path(path).write_text(json.dumps({**(machine or about()), "rows": rows}, indent=1) + "\n")


def share_software_driver():
    """On the software driver, run this script again so that other bindings load the same one.

    Other bindings search for the driver's file in LD_LIBRARY_PATH as it was when the process
    started. Queued work then runs when the host waits for it, because threads that run it at once
    would take processor time from the timed calls.
    """
    info = cu.driver_info()
    if not info.is_software or Path(info.path).name == LIBRARY:
        return
    with tempfile.TemporaryDirectory() as folder:
        made = [sys.executable, "-m", "cudadrv", "libcuda", folder]
        subprocess.run(made, check=True, stdout=subprocess.DEVNULL)
        before = os.environ.get("LD_LIBRARY_PATH")
        environment = {
            "CUDADRV_SOFTWARE": "schedule=lazy,races=off",
            **os.environ,
            "CUDADRV_DRIVER": f"{folder}/{LIBRARY}",
            "LD_LIBRARY_PATH": f"{folder}:{before}" if before else folder,
        }
        again = subprocess.run([sys.executable, *sys.argv], env=environment)
    sys.exit(again.returncode)
