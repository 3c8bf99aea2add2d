from types import TracebackType
from typing import Literal, Self, SupportsIndex, TypeAlias, final

import numpy.typing as npt

from cudadrv._buffers import DeviceBuffer, LockedBuffer, UnifiedBuffer
from cudadrv._device import Device
from cudadrv._stream import _AnyStream

_Kind: TypeAlias = Literal["device", "locked", "unified"]
_Shape: TypeAlias = SupportsIndex | tuple[SupportsIndex, ...] | list[SupportsIndex]
_Made: TypeAlias = DeviceBuffer | LockedBuffer | UnifiedBuffer

@final
class memory:
    def __new__(cls, kind: _Kind) -> Self: ...
    @property
    def kind(self) -> _Kind: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

def empty(
    shape: _Shape,
    dtype: npt.DTypeLike = "u1",
    *,
    kind: _Kind | None = None,
    stream: _AnyStream | None = None,
    device: Device | None = None,
    name: str | None = None,
    pooled: bool = True,
) -> _Made: ...
def zeros(
    shape: _Shape,
    dtype: npt.DTypeLike = "u1",
    *,
    kind: _Kind | None = None,
    stream: _AnyStream | None = None,
    device: Device | None = None,
    name: str | None = None,
    pooled: bool = True,
) -> _Made: ...
def from_array(
    array: npt.ArrayLike,
    *,
    kind: _Kind | None = None,
    stream: _AnyStream | None = None,
    device: Device | None = None,
    name: str | None = None,
    pooled: bool = True,
) -> _Made: ...
