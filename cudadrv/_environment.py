"""Environment variables: what each one sets, and how its value is read and checked.

Other modules of this package read no variable by its name, except that `_compilers` and
`_compile_inputs` read those of nvcc and of the shell. The pytest plugin, which must not import
cudadrv, and the software driver, which does not depend on cudadrv, name their variables themselves;
a test compares these names. Variables are read when they are needed, never by an import. An empty
value counts as none.
"""

import os
from collections.abc import Mapping
from typing import NamedTuple


class Variable(NamedTuple):
    """A variable of cudadrv: a row of the table in docs/api/environment.md."""

    name: str
    sets: str
    read: str


DRIVER = Variable(
    "CUDADRV_DRIVER",
    "which driver is used: `auto`, `cuda`, `software` or a path"
    " ([how](../driver.md#how-it-is-found))",
    "at the first use of the driver",
)
SOFTWARE = Variable(
    "CUDADRV_SOFTWARE",
    "the [settings of the software driver](../software-driver.md#settings)",
    "when that driver is loaded",
)
COPY_THREADS = Variable(
    "CUDADRV_COPY_THREADS",
    "how many threads copy a large array to or from a device or page-locked memory"
    " ([performance](../performance.md))",
    "at the first such copy",
)
MEMORY = Variable(
    "CUDADRV_MEMORY",
    "which kind of buffer `cudadrv.empty`, `zeros` and `from_array` make: `device` (the default),"
    " `locked` or `unified` ([which when](../managed.md))",
    "when one of them first needs it",
)
CACHE_DIR = Variable(
    "CUDADRV_CACHE_DIR",
    "where `cudadrv.toolkit` keeps PTX that it compiled; `off`: nowhere"
    " ([the cache](../toolkit.md#the-cache))",
    "at each compilation",
)
REQUIRE_GPU = Variable(
    "CUDADRV_REQUIRE_GPU",
    "`1`: under pytest, tests that need a GPU fail where there is none"
    " ([options](../testing.md#options))",
    "when pytest starts",
)
TRACE = Variable(
    "CUDADRV_TRACE",
    "the file to which the process writes a [trace](../tracing.md)",
    "at the first use of the driver",
)
GUARD = Variable(
    "CUDADRV_GUARD",
    "`1`: the process [guards the pages](../guard.md) of page-locked buffers; `0`: it does not (the"
    " default)",
    "at the first use of the driver",
)
VARIABLES = (DRIVER, SOFTWARE, COPY_THREADS, MEMORY, CACHE_DIR, REQUIRE_GPU, TRACE, GUARD)

# The libcuda.so.1 that a run of pytest, or `python -m cudadrv run`, has made for its processes.
LIBCUDA = "PYTEST_CUDADRV_LIBCUDA"
# The file with the values that a program has observed in its first schedule, which
# `python -m cudadrv explore` sets for the program.
OBSERVED = "PYTEST_CUDADRV_OBSERVED"

# Variables of CUDA and the system: where a toolkit is, where libraries are searched for, and which
# devices a driver may show.
TOOLKITS = ("CUDA_HOME", "CUDA_PATH")
LIBRARIES = "LD_LIBRARY_PATH"
VISIBLE = "CUDA_VISIBLE_DEVICES"

# The variables that `python -m cudadrv info` prints. It prints the first group even if not set.
ALWAYS_SHOWN = (DRIVER.name, SOFTWARE.name)
SHOWN = (
    *(variable.name for variable in VARIABLES if variable.name not in ALWAYS_SHOWN),
    *(VISIBLE, "CUDA_DEVICE_ORDER", "CUDA_LAUNCH_BLOCKING", *TOOLKITS, LIBRARIES),
)


def report(environ: Mapping[str, str] = os.environ) -> list[tuple[str, str]]:
    """Return names and values for `python -m cudadrv info`."""
    rows = [(name, environ.get(name, "not set")) for name in ALWAYS_SHOWN]
    rows += [(name, environ[name]) for name in SHOWN if name in environ]
    for name in sorted(environ):
        if name.startswith("CUDADRV_") and name not in (*ALWAYS_SHOWN, *SHOWN):
            rows.append((name, f"{environ[name]} (cudadrv reads no variable of this name)"))
    return rows


def driver() -> str:
    """Return which driver is wanted: "auto", "cuda", "software" or a path."""
    choice = os.environ.get(DRIVER.name) or "auto"
    if choice in ("auto", "cuda", "software") or os.sep in choice:
        return choice
    raise ValueError(
        f"{DRIVER.name}={choice!r} is not one of 'auto', 'cuda', 'software', or the path of a "
        f"libcuda.so.1 (with at least one {os.sep!r} in it)"
    )


def software_settings() -> str:
    """Return the settings of the software driver, which checks them."""
    return os.environ.get(SOFTWARE.name, "")


def trace_file() -> str:
    """Return the file to which the process writes a trace, or ""."""
    return os.environ.get(TRACE.name, "")


def is_guarded() -> bool:
    """Return whether the process guards pages from the first use of the driver on."""
    wanted = os.environ.get(GUARD.name) or "0"
    if wanted not in ("0", "1"):
        raise ValueError(f"{GUARD.name} is {wanted!r}; it must be 0 or 1")
    return wanted == "1"


def observed() -> str | None:
    return os.environ.get(OBSERVED)


def visible_devices() -> str | None:
    return os.environ.get(VISIBLE)


def copy_threads(most: int) -> int | None:
    """Return how many threads shall copy, or None if that is not set."""
    wanted = os.environ.get(COPY_THREADS.name)
    if not wanted:
        return None
    try:
        count = int(wanted)
    except ValueError:
        count = 0
    if not 1 <= count <= most:
        raise ValueError(
            f"{COPY_THREADS.name} is {wanted!r}; it must be a number of threads from 1 to {most}"
        )
    return count


def memory_kind() -> str:
    """Return the kind of buffer. `class_of_kind` checks it, as it checks arguments."""
    return os.environ.get(MEMORY.name) or "device"


def cache_choice(environ: Mapping[str, str]) -> str | None:
    return environ.get(CACHE_DIR.name) or None


def caches(environ: Mapping[str, str]) -> str:
    """Return the folder in which programs keep caches (the XDG specification), or ""."""
    return environ.get("XDG_CACHE_HOME", "")


def library_folders() -> list[str]:
    """Return the folders in which the loader searches for libraries first."""
    return [folder for folder in os.environ.get(LIBRARIES, "").split(":") if folder]


def toolkits(environ: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the variables that name a CUDA toolkit and are set, with their values."""
    return [(name, environ[name]) for name in TOOLKITS if environ.get(name)]
