from collections.abc import Iterable
from typing import Any, Literal, Never, Self, SupportsIndex, TypeAlias, final

from cudadrv._arguments import AccessWindow
from cudadrv._kernel_attributes import CACHES as CACHES
from cudadrv._kernel_attributes import KernelAttributes
from cudadrv._module import Module
from cudadrv._ptx import Parameter
from cudadrv._stream import _AnyStream
from cudadrv._token import Token

_Sizes: TypeAlias = int | tuple[int] | tuple[int, int] | tuple[int, int, int]

@final
class Kernel:
    def __new__(cls, never: Never, /, *args: Never, **kwargs: Never) -> Self: ...
    @property
    def module(self) -> Module: ...
    @property
    def name(self) -> str: ...
    @property
    def handle(self) -> int: ...
    @property
    def parameters(self) -> tuple[Parameter, ...] | None: ...
    def launch(
        self,
        grid: _Sizes,
        block: _Sizes,
        *args: Any,
        stream: _AnyStream | None = None,
        shared_bytes: int = 0,
        borrows: Iterable[Any] = (),
        cooperative: bool = False,
        cluster: _Sizes | None = None,
        priority: SupportsIndex | None = None,
        domain: Literal["default", "remote"] | None = None,
        window: AccessWindow | None = None,
        early: bool = False,
    ) -> Token: ...
    def prepare(
        self,
        grid: _Sizes,
        block: _Sizes,
        *args: Any,
        shared_bytes: int = 0,
        borrows: Iterable[Any] = (),
        cooperative: bool = False,
        cluster: _Sizes | None = None,
        priority: SupportsIndex | None = None,
        domain: Literal["default", "remote"] | None = None,
        window: AccessWindow | None = None,
        early: bool = False,
    ) -> Prepared: ...
    @property
    def max_threads_per_block(self) -> int: ...
    @property
    def attributes(self) -> KernelAttributes: ...
    def occupancy(self, block: _Sizes, shared_bytes: int = 0) -> int: ...
    # The first item is a tuple for kernels that require a block of several dimensions.
    def suggest_block(self, *, shared_bytes: int = 0, limit: int = 0) -> tuple[int | Any, int]: ...
    max_dynamic_shared_bytes: int
    preferred_shared_carveout: int
    def prefer_cache(self, preference: str) -> None: ...

def kernel_of(module: Module, name: str) -> Kernel: ...

@final
class Prepared:
    def __new__(cls, never: Never, /, *args: Never, **kwargs: Never) -> Self: ...
    @property
    def kernel(self) -> Kernel: ...
    @property
    def args(self) -> tuple[Any, ...]: ...
    @property
    def grid(self) -> tuple[int, int, int]: ...
    @property
    def block(self) -> tuple[int, int, int]: ...
    def launch(self, stream: _AnyStream | None = None) -> Token: ...

def renew_kernel(kernel: Kernel) -> None: ...
