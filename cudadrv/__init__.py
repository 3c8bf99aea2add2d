"""cudadrv: the CUDA driver API with ownership.

cudadrv records which work uses which buffer. A copy or a launch that is not ordered after
conflicting work raises an exception, before the driver is called.

Importing cudadrv loads no driver and uses no device. It enables the GIL of a free-threaded Python.
"""

import sys
from typing import TYPE_CHECKING

from cudadrv._buffer import Borrow, Buffer, reap
from cudadrv._buffers import DeviceBuffer, HostBuffer, LockedBuffer, UnifiedBuffer
from cudadrv._device import Context, Device
from cudadrv._errors import (
    BufferBorrowedError,
    BufferClosedError,
    BufferExportedError,
    ContextLostError,
    CudaError,
    CudaImageError,
    CudaNotFoundError,
    CudaOutOfMemoryError,
    CudaWarning,
    DriverNotFoundError,
    EventNotRecordedError,
    ForkedError,
    OwnershipError,
)
from cudadrv._event import Event
from cudadrv._library import DriverInfo, driver_info
from cudadrv._memory import LiveBuffer, live_buffers, memory_report
from cudadrv._ordering import ordering
from cudadrv._pool import MemoryPool, MemoryPools, PoolStats
from cudadrv._site import skip_file_prefixes
from cudadrv._status import CUresult
from cudadrv._stream import Stream
from cudadrv._token import Token

if TYPE_CHECKING:
    from cudadrv._arguments import Access, read, shared, write
    from cudadrv._exchange import from_cuda_array, from_dlpack
    from cudadrv._kernel import Kernel, Prepared
    from cudadrv._kernel_attributes import KernelAttributes
    from cudadrv._module import Module
    from cudadrv._ptx import Parameter
else:  # imported on first use: importing them here would make `import cudadrv` 50 % slower
    _LAUNCH = {
        "Access": "_arguments",
        "from_cuda_array": "_exchange",
        "from_dlpack": "_exchange",
        "Kernel": "_kernel",
        "KernelAttributes": "_kernel_attributes",
        "Module": "_module",
        "Parameter": "_ptx",
        "Prepared": "_kernel",
        "read": "_arguments",
        "shared": "_arguments",
        "write": "_arguments",
    }

    def __getattr__(name):
        if name not in _LAUNCH:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        found = getattr(import_module(f"{__name__}.{_LAUNCH[name]}"), name)
        globals()[name] = found
        return found

    def __dir__():
        return sorted({*__all__, *(name for name in globals() if name[:1] != "_")})


if not getattr(sys, "_is_gil_enabled", lambda: True)():
    raise ImportError(
        "cudadrv keeps its books under the GIL, and this interpreter was told to do without"
        " (PYTHON_GIL=0 or -X gil=0). Leave that out: importing cudadrv then enables the GIL"
    )

del sys, TYPE_CHECKING  # so that they do not appear as attributes of cudadrv

__version__ = "0.1.0"

__all__ = [
    "Access",
    "Borrow",
    "Buffer",
    "BufferBorrowedError",
    "BufferClosedError",
    "BufferExportedError",
    "CUresult",
    "Context",
    "ContextLostError",
    "CudaError",
    "CudaImageError",
    "CudaNotFoundError",
    "CudaOutOfMemoryError",
    "CudaWarning",
    "Device",
    "DeviceBuffer",
    "DriverInfo",
    "DriverNotFoundError",
    "Event",
    "EventNotRecordedError",
    "ForkedError",
    "HostBuffer",
    "Kernel",
    "KernelAttributes",
    "LiveBuffer",
    "LockedBuffer",
    "MemoryPool",
    "MemoryPools",
    "Module",
    "OwnershipError",
    "Parameter",
    "PoolStats",
    "Prepared",
    "Stream",
    "Token",
    "UnifiedBuffer",
    "__version__",
    "driver_info",
    "from_cuda_array",
    "from_dlpack",
    "get_include",
    "live_buffers",
    "memory_report",
    "ordering",
    "read",
    "reap",
    "shared",
    "skip_file_prefixes",
    "write",
]


def get_include() -> str:
    """Return the folder of cudadrv's C headers, for extension modules that ``cimport`` it."""
    from pathlib import Path

    package = Path(__file__).resolve().parent
    installed = package / "include"
    return str(installed if installed.is_dir() else package.parent / "include")
