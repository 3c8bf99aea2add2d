"""Where a benchmark ran: device, driver, Python and the versions of the bindings found there."""

import datetime
import json
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import cudadrv as cu

PACKAGES = {
    "cudadrv": "cudadrv",
    "cuda.core": "cuda-core",
    "CuPy": "cupy-cuda13x",
    "cuda.bindings": "cuda-bindings",
    "PyCUDA": "pycuda",
    "PyTorch": "torch",
    "numba-cuda": "numba-cuda",
}


def about():
    """The head of every file of results; the figures follow under "rows"."""
    info, device = cu.driver_info(), cu.Device(0)
    versions = {}
    for name, package in PACKAGES.items():
        try:
            versions[name] = version(package)
        except PackageNotFoundError:
            if name == "cudadrv":
                versions[name] = cu.__version__
    return {
        "date": datetime.date.today().isoformat(),
        "device": device.name,
        "cuda": ".".join(map(str, info.version)),
        "software": info.is_software,
        "python": platform.python_version(),
        "cpus": len(os.sched_getaffinity(0)),
        "versions": versions,
    }


def write(path, rows, machine=None):
    """Rows of figures with their head, as JSON."""
    Path(path).write_text(json.dumps({**(machine or about()), "rows": rows}, indent=1) + "\n")
