import os
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Self, final

import numpy.typing as npt
from _typeshed import ReadableBuffer

from cudadrv._buffer import Buffer
from cudadrv._device import Context, Device
from cudadrv._kernel import Kernel

@final
class Module:
    def __init__(
        self,
        image: str | ReadableBuffer,
        *,
        device: Device | None = None,
        name: str | None = None,
        max_registers: int | None = None,
        optimization_level: int | None = None,
        target: tuple[int, int] | None = None,
        lineinfo: bool = False,
        debug_info: bool = False,
        verbose: bool = False,
    ) -> None: ...
    @classmethod
    def link(
        cls,
        images: Iterable[str | ReadableBuffer | os.PathLike[str]],
        *,
        device: Device | None = None,
        name: str | None = None,
        max_registers: int | None = None,
        optimization_level: int | None = None,
        target: tuple[int, int] | None = None,
        lineinfo: bool = False,
        debug_info: bool = False,
        verbose: bool = False,
    ) -> Self: ...
    @classmethod
    def from_file(cls, path: str | os.PathLike[str], **options: Any) -> Self: ...
    @property
    def context(self) -> Context: ...
    @property
    def device(self) -> Device: ...
    @property
    def name(self) -> str: ...
    @property
    def handle(self) -> int: ...
    @property
    def log(self) -> str: ...
    @property
    def closed(self) -> bool: ...
    def __getitem__(self, name: str, /) -> Kernel: ...
    def __contains__(self, name: object, /) -> bool: ...
    def __iter__(self) -> Iterator[str]: ...
    def global_(self, name: str, dtype: npt.DTypeLike = "u1") -> Buffer: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

def function_of(module: Module, name: str) -> int: ...
def birth_of_module(module: Module) -> int: ...
def loaded_code(module: Module) -> tuple[int, int, bytes]: ...
