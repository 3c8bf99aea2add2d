"""Finds the Cython modules, and the modules of public names that are imported on first use.

All Cython modules are in one shared library, because loading many takes longer. Public names get
`cudadrv` as their module, so that messages and pickles do not contain the names of internal
modules. `cudadrv` imports this module before all others.
"""

import sys
from collections.abc import Sequence
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    ExtensionFileLoader,
    ModuleSpec,
    SourceFileLoader,
)
from types import ModuleType

LIBRARY = "_compiled" + EXTENSION_SUFFIXES[0]
NAMES = frozenset(
    """
    _arguments _array_copy _array_memory _array_staging _arrays _box _box_copy _buffer
    _buffers _call_node _capture _closing _conditions _copy _copy_batch _copy_node _custom
    _device _dlpack _driver _driver_pool _engine _errors _event _exchange _fill _fill_node
    _foreign _graph _graph_changes _growing _guard _host_function _in_place _joined _kernel _kinds
    _launch_node _library _limits _loan _managed _memory _memory_kinds _migrations _module
    _names _node _offload _opening _operation _ordering _peers _place _pool _refusal _region
    _release _segment _sharing _signal _signal_node _site _staging _stream _textures _token
    _trace _virtual _waits
    """.split()  # noqa: SIM905
)

# The Cython modules that are initialized, by their full names. They find each other here, which
# takes less time than an import (pyx/library.c).
INITIALIZED: dict[str, ModuleType] = {}

# What to use instead of names that `cudadrv` does not have, but other libraries have.
HINTS = {
    **{name: f"import cudadrv.{name} first" for name in ("dask", "testing", "toolkit")},
    "synchronize": "use stream.synchronize(), or Device().synchronize() for all streams",
    "array": "use from_array(array)",
    "asarray": "use from_array(array)",
    "to_device": "use from_array(array)",
    "empty_like": "use empty(array.shape, array.dtype)",
    "zeros_like": "use zeros(array.shape, array.dtype)",
    "pinned": "use LockedBuffer: page-locked (pinned) memory",
    "pinned_array": "use LockedBuffer: page-locked (pinned) memory",
    "managed_array": "use UnifiedBuffer: managed memory",
    "compile": "use cudadrv.toolkit.compile(source)",
}

# The modules that `cudadrv` imports on first use, and the public names that they define.
LATER = {
    "_arguments": "Access AccessWindow access_window read shared write",
    "_arrays": "Array",
    "_capture": "GraphNode",
    "_conditions": "Condition",
    "_driver_pool": "DriverPool",
    "_exchange": "from_cuda_array from_dlpack",
    "_graph": "ExecutableGraph Graph",
    "_graph_changes": "ExecutableNode",
    "_group": "StreamGroup",
    "_guarding": "guard",
    "_joined": "JoinedCapture joins_capture",
    "_kernel": "Kernel Prepared",
    "_kernel_attributes": "KernelAttributes",
    "_kinds": "empty from_array memory zeros",
    "_limits": "ContextLimits capture_profiler",
    "_migrations": "migration_limit",
    "_module": "Module",
    "_offload": "In InOut Out ResultToken offload",
    "_opening": "open",
    "_pipeline": "Pipeline PipelineReport",
    "_ptx": "Parameter",
    "_records": "Advice Borrow DriverInfo DriverPoolStats Link LiveBuffer PoolStats",
    "_sharing": "Receipt Ticket",
    "_signal": "Signal",
    "_status": "CUresult",
    "_textures": "Surface Texture",
    "_tracing": "profile trace",
}


def module_of(name: str) -> str | None:
    """Return the module that defines a public name, if it is imported on first use."""
    # A generator that ends because there is no memory left would print a warning.
    for module, names in LATER.items():
        if name in names.split():
            return module
    return None


def show_as_public(module: ModuleType) -> None:
    """Let the names of a module that is imported later say that the package defines them."""
    if names := LATER.get(module.__name__.removeprefix("cudadrv.")):
        from cudadrv._errors import show_as

        show_as(module, names, "cudadrv")


class Loader(ExtensionFileLoader):
    """Loads a module of the shared library."""

    def exec_module(self, module: ModuleType) -> None:
        """Run the module.

        If memory runs out while the module looks for functions of other modules, Cython raises an
        ImportError that says that the functions do not exist. This becomes a MemoryError.
        """
        try:
            super().exec_module(module)
        except ImportError as error:
            if "does not export expected C" in str(error):
                raise MemoryError from None
            raise
        show_as_public(module)
        INITIALIZED[self.name] = module


class PythonLoader(SourceFileLoader):
    """Loads a module that is written in Python and defines public names."""

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        show_as_public(module)


class Finder:
    """A meta path finder, as `sys.meta_path` has them."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, module = name.rpartition(".")
        if package != __package__ or not path:
            return None
        if module in NAMES:
            file = f"{path[0]}/{LIBRARY}"
            spec = ModuleSpec(name, Loader(name, file), origin=file)
        elif module in LATER:
            file = f"{path[0]}/{module}.py"
            spec = ModuleSpec(name, PythonLoader(name, file), origin=file)
        else:
            return None
        spec.has_location = True
        return spec


# Before the finders that look for files: they would look for each module in the folder first.
sys.meta_path.insert(0, Finder)
