"""cudadrv: the CUDA driver API with ownership.

cudadrv records which work uses which buffer. A copy or a launch that is not ordered after
conflicting work raises an exception, before the driver is called.

Importing cudadrv loads no driver and uses no device. It enables the GIL of a free-threaded Python.
"""

import sys
from typing import TYPE_CHECKING

from cudadrv import _finder  # isort: skip  # finds the modules that are imported below
from cudadrv._buffer import Buffer, reap
from cudadrv._buffers import (
    DeviceBuffer,
    HostBuffer,
    LockedBuffer,
    UnifiedBuffer,
    scalar_access,
)
from cudadrv._copy_batch import copy_batch
from cudadrv._device import Context, Device
from cudadrv._errors import (
    BufferBorrowedError,
    BufferClosedError,
    BufferExportedError,
    CaptureError,
    ContentsDiscardedError,
    ContextLostError,
    CudaError,
    CudaImageError,
    CudaNotFoundError,
    CudaOutOfMemoryError,
    CudaWarning,
    DriverNotFoundError,
    EventNotRecordedError,
    ForkedError,
    HostFunctionError,
    MigrationError,
    OwnershipError,
    SignalError,
    show_as,
)
from cudadrv._event import Event
from cudadrv._library import driver_info
from cudadrv._managed import discard_batch, prefetch_batch
from cudadrv._memory import live_buffers, memory_report
from cudadrv._ordering import ordering
from cudadrv._pool import MemoryPool, MemoryPools
from cudadrv._site import skip_file_prefixes
from cudadrv._stream import Stream
from cudadrv._token import Token

if TYPE_CHECKING:
    from cudadrv._arguments import Access, AccessWindow, access_window, read, shared, write
    from cudadrv._arrays import Array
    from cudadrv._capture import GraphNode
    from cudadrv._conditions import Condition
    from cudadrv._driver_pool import DriverPool
    from cudadrv._exchange import from_cuda_array, from_dlpack
    from cudadrv._graph import ExecutableGraph, Graph
    from cudadrv._graph_changes import ExecutableNode
    from cudadrv._group import StreamGroup
    from cudadrv._guarding import guard
    from cudadrv._joined import JoinedCapture, joins_capture
    from cudadrv._kernel import Kernel, Prepared
    from cudadrv._kernel_attributes import KernelAttributes
    from cudadrv._kinds import empty, from_array, memory, zeros
    from cudadrv._limits import ContextLimits, capture_profiler
    from cudadrv._migrations import migration_limit
    from cudadrv._module import Module
    from cudadrv._offload import In, InOut, Out, ResultToken, offload
    from cudadrv._opening import open
    from cudadrv._pipeline import Pipeline, PipelineReport
    from cudadrv._ptx import Parameter
    from cudadrv._records import (
        Advice,
        Borrow,
        DriverInfo,
        DriverPoolStats,
        Link,
        LiveBuffer,
        PoolStats,
    )
    from cudadrv._sharing import Receipt, Ticket
    from cudadrv._signal import Signal
    from cudadrv._status import CUresult
    from cudadrv._textures import Surface, Texture
    from cudadrv._tracing import profile, trace
else:  # imported on first use: importing them here would make `import cudadrv` 50 % slower

    def __getattr__(name):
        module = _finder.module_of(name)
        if module is None:
            how = _finder.HINTS.get(name, "")
            raise AttributeError(
                f"module {__name__!r} has no attribute {name!r}{how and '; '}{how}"
            )
        from importlib import import_module

        found = getattr(import_module(f"{__name__}.{module}"), name)
        globals()[name] = found
        return found

    def __dir__():
        return sorted({*__all__, *(name for name in globals() if name[:1] != "_")})


if not getattr(sys, "_is_gil_enabled", lambda: True)():
    raise ImportError(
        "cudadrv guards its state by the GIL, and this interpreter was told to do without"
        " (PYTHON_GIL=0 or -X gil=0). Leave that out: importing cudadrv then enables the GIL"
    )

__version__ = "0.1.0"

__all__ = [
    "Access",
    "AccessWindow",
    "Advice",
    "Array",
    "Borrow",
    "Buffer",
    "BufferBorrowedError",
    "BufferClosedError",
    "BufferExportedError",
    "CUresult",
    "CaptureError",
    "Condition",
    "ContentsDiscardedError",
    "Context",
    "ContextLimits",
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
    "DriverPool",
    "DriverPoolStats",
    "Event",
    "EventNotRecordedError",
    "ExecutableGraph",
    "ExecutableNode",
    "ForkedError",
    "Graph",
    "GraphNode",
    "HostBuffer",
    "HostFunctionError",
    "In",
    "InOut",
    "JoinedCapture",
    "Kernel",
    "KernelAttributes",
    "Link",
    "LiveBuffer",
    "LockedBuffer",
    "MemoryPool",
    "MemoryPools",
    "MigrationError",
    "Module",
    "Out",
    "OwnershipError",
    "Parameter",
    "Pipeline",
    "PipelineReport",
    "PoolStats",
    "Prepared",
    "Receipt",
    "ResultToken",
    "Signal",
    "SignalError",
    "Stream",
    "StreamGroup",
    "Surface",
    "Texture",
    "Ticket",
    "Token",
    "UnifiedBuffer",
    "__version__",
    "access_window",
    "capture_profiler",
    "copy_batch",
    "discard_batch",
    "driver_info",
    "empty",
    "from_array",
    "from_cuda_array",
    "from_dlpack",
    "get_include",
    "guard",
    "joins_capture",
    "live_buffers",
    "memory",
    "memory_report",
    "migration_limit",
    "offload",
    "open",
    "ordering",
    "prefetch_batch",
    "profile",
    "read",
    "reap",
    "scalar_access",
    "shared",
    "skip_file_prefixes",
    "trace",
    "write",
    "zeros",
]


def get_include() -> str:
    """Return the folder of cudadrv's C headers, for extension modules that ``cimport`` it."""
    from pathlib import Path

    package = Path(__file__).resolve().parent
    installed = package / "include"
    return str(installed if installed.is_dir() else package.parent / "include")


# Messages and pickles name the package, not its modules. `_finder` does this for later imports.
show_as(
    sys.modules[__name__],
    " ".join(name for name in __all__ if name in globals() and name != "__version__"),
    __name__,
)

del show_as, sys, TYPE_CHECKING  # so that they do not appear as attributes of cudadrv
