"""``python -m cudadrv info``: prints driver, devices and settings, for bug reports."""

import platform
import sys
from collections.abc import Iterator

import numpy as np

import cudadrv as cu
from cudadrv import _environment
from cudadrv._driver import header_version, missing_functions

MOST_DEVICES = 64  # a bound, in case a driver returns a wrong count
ATTRIBUTES = (
    "multiprocessor_count",
    "async_engine_count",
    "unified_addressing",
    "managed_memory",
    "concurrent_managed_access",
    "memory_pools_supported",
    "integrated",
)


def print_info() -> int:
    """Print the report. Returns the exit status, which is 1 if there is no usable driver."""
    print_rows(
        [
            ("cudadrv", f"{cu.__version__}, compiled with cuda.h {version(header_version())}"),
            ("Python", f"{platform.python_version()}, {sys.executable}"),
            ("NumPy", np.__version__),
            ("System", f"{platform.system()} {platform.machine()}"),
        ]
    )
    print("\nEnvironment")
    print_rows(_environment.report(), "  ")
    print()
    try:
        info = cu.driver_info()
        print_rows(driver(info))
        count = cu.Device.count()
        for ordinal in range(min(count, MOST_DEVICES)):
            print(f"\nDevice {ordinal}")
            print_rows(device(cu.Device(ordinal)), "  ")
        if count > MOST_DEVICES:
            print(f"\nDevices {MOST_DEVICES} to {count - 1} are not shown")
    except (cu.CudaError, ValueError) as error:
        print(f"Driver  none that is usable: {type(error).__name__}: {error}")
        return 1
    return 0


def print_rows(rows: list[tuple[str, str]], indent: str = "") -> None:
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{indent}{name:{width}}  {value}")


def version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def driver(info: cu.DriverInfo) -> list[tuple[str, str]]:
    missing = missing_functions()
    return [
        ("Driver", f"{info.name}{', not a GPU' if info.is_software else ''}"),
        ("Path", info.path),
        ("CUDA", f"{info.version[0]}.{info.version[1]}"),
        ("Lacks", ", ".join(missing) if missing else "no function that cudadrv uses"),
    ]


def device(found: cu.Device) -> list[tuple[str, str]]:
    major, minor = found.compute_capability
    return [
        ("name", found.name),
        ("uuid", str(found.uuid)),
        ("compute_capability", f"{major}.{minor}"),
        ("total_memory", f"{found.total_memory} bytes, {found.total_memory / 2**30:.1f} GiB"),
        *attributes(found),
    ]


def attributes(found: cu.Device) -> Iterator[tuple[str, str]]:
    for name in ATTRIBUTES:
        try:
            yield name, str(found.attribute(name))
        except cu.CudaError as error:  # the driver is too old for this attribute
            yield name, f"not known ({error.status.name})"
