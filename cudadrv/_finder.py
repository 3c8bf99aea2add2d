"""Finds the Cython modules. All are in one shared library, because loading many takes longer.

`cudadrv` imports this module before all others.
"""

import sys
from collections.abc import Sequence
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec
from types import ModuleType

LIBRARY = "_compiled" + EXTENSION_SUFFIXES[0]
NAMES = frozenset(
    """
    _arguments _buffer _buffers _capture _closing _copy _custom _device _dlpack _driver
    _driver_pool _engine _errors _event _exchange _graph _graph_changes _graph_nodes _growing
    _joined _kernel _kinds _library _loan _managed _memory _migrations _module _names
    _node_changes _offload _opening _operation _ordering _peers _pool _refusal _region _release
    _segment _sharing _site _staging _stream _token _virtual
    """.split()  # noqa: SIM905
)


class Loader(ExtensionFileLoader):
    """Loads a module of the shared library."""

    def exec_module(self, module: ModuleType) -> None:
        """Run the module.

        If memory runs out while the module looks for functions of other modules, Cython raises an
        ImportError, which says that they do not exist.
        """
        try:
            super().exec_module(module)
        except ImportError as error:
            if "does not export expected C" in str(error):
                raise MemoryError from None
            raise


class Finder:
    """A meta path finder, as `sys.meta_path` has them."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, module = name.rpartition(".")
        if package != __package__ or module not in NAMES or not path:
            return None
        file = f"{path[0]}/{LIBRARY}"
        spec = ModuleSpec(name, Loader(name, file), origin=file)
        spec.has_location = True
        return spec


# Before the finders that look for files: they would look for each module in the folder first.
sys.meta_path.insert(0, Finder)
