from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Literal, Never, Self, SupportsIndex, Unpack, final, overload

import numpy.typing as npt
from _typeshed import ReadableBuffer
from typing_extensions import disjoint_base

from cudadrv._buffer import Buffer, _Options
from cudadrv._device import Device
from cudadrv._managed import _Place
from cudadrv._records import Advice
from cudadrv._region import _Index, _Slice
from cudadrv._stream import _AnyStream
from cudadrv._token import Token

@final
class scalar_access:
    def __new__(cls, allowed: bool) -> Self: ...
    @property
    def allowed(self) -> bool: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

@disjoint_base
class HostBuffer(Buffer):
    @property
    def scalar_access(self) -> bool: ...
    @scalar_access.setter
    def scalar_access(self, value: bool) -> None: ...
    @overload
    def __getitem__(self, key: _Slice, /) -> Self: ...
    @overload
    def __getitem__(self, key: _Index, /) -> Any: ...
    def __setitem__(self, key: _Slice | _Index, value: npt.ArrayLike, /) -> None: ...
    def __delitem__(self, key: Never, /) -> None: ...
    def to_numpy(self) -> npt.NDArray[Any]: ...
    def read(self) -> HostView: ...
    def write(self) -> HostView: ...
    def readonly(self) -> ReadOnly: ...
    def __array__(
        self, dtype: npt.DTypeLike | None = None, copy: bool | None = None
    ) -> npt.NDArray[Any]: ...
    def __bytes__(self) -> bytes: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class ReadOnly:
    def __new__(cls, buffer: HostBuffer) -> Self: ...
    def __array__(
        self, dtype: npt.DTypeLike | None = None, copy: bool | None = None
    ) -> npt.NDArray[Any]: ...
    def __bytes__(self) -> bytes: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class Borrowed:
    def __new__(cls, buffer: HostBuffer, shared: bool) -> Self: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class HostView:
    def __new__(cls, never: Never, /, *args: Never, **kwargs: Never) -> Self: ...
    def __enter__(self) -> npt.NDArray[Any]: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

def host_view(buffer: HostBuffer, shared: bool) -> HostView: ...

class _LockedOptions(_Options, total=False):
    write_combined: bool
    shareable: bool

@final
class LockedBuffer(HostBuffer):
    def __init__(
        self,
        count: SupportsIndex,
        dtype: npt.DTypeLike = "u1",
        *,
        stream: _AnyStream | None = None,
        write_combined: bool = False,
        device: Device | None = None,
        name: str | None = None,
        pooled: bool = True,
        shareable: bool = False,
    ) -> None: ...
    @classmethod
    def from_array(
        cls,
        array: npt.ArrayLike,
        *,
        stream: _AnyStream | None = None,
        **options: Unpack[_LockedOptions],
    ) -> Self: ...
    @classmethod
    def zeros(
        cls,
        count: SupportsIndex,
        dtype: npt.DTypeLike = "u1",
        *,
        stream: _AnyStream | None = None,
        **options: Unpack[_LockedOptions],
    ) -> Self: ...
    @classmethod
    def from_memory(
        cls,
        array: npt.NDArray[Any] | ReadableBuffer,
        *,
        device: Device | None = None,
        name: str | None = None,
    ) -> Self: ...

@final
class UnifiedBuffer(HostBuffer):
    def __init__(
        self,
        count: SupportsIndex,
        dtype: npt.DTypeLike = "u1",
        *,
        stream: _AnyStream | None = None,
        device: Device | None = None,
        name: str | None = None,
        pooled: bool = True,
    ) -> None: ...
    @property
    def migrations(self) -> int: ...
    def prefetch(self, place: _Place, stream: _AnyStream | None = None) -> Token: ...
    def discard(self, stream: _AnyStream | None = None) -> Token: ...
    def discard_and_prefetch(self, place: _Place, stream: _AnyStream | None = None) -> Token: ...
    def attach(
        self, to: _AnyStream | Literal["global", "host"], stream: _AnyStream | None = None
    ) -> Token: ...
    def advise(
        self,
        *,
        read_mostly: bool | None = None,
        preferred: _Place | Literal[False] | None = None,
        accessed_by: Iterable[_Place] | None = None,
    ) -> None: ...
    @property
    def advice(self) -> Advice: ...

@final
class DeviceBuffer(Buffer):
    def __init__(
        self,
        count: SupportsIndex,
        dtype: npt.DTypeLike = "u1",
        *,
        stream: _AnyStream | None = None,
        device: Device | None = None,
        name: str | None = None,
        pooled: bool = True,
        capacity: SupportsIndex | None = None,
        accessible_by: Device | Iterable[Device] | None = None,
    ) -> None: ...
    @classmethod
    def pitched(
        cls,
        shape: tuple[SupportsIndex, ...] | list[SupportsIndex],
        dtype: npt.DTypeLike = "u1",
        *,
        stream: _AnyStream | None = None,
        device: Device | None = None,
        name: str | None = None,
        pooled: bool = True,
    ) -> Self: ...
    @property
    def capacity(self) -> int: ...
    @property
    def accessible_by(self) -> tuple[Device, ...]: ...
    def grow(self, count: SupportsIndex) -> None: ...
    def shrink(self, count: SupportsIndex) -> None: ...
    def to_numpy(self, *, stream: _AnyStream | None = None) -> npt.NDArray[Any]: ...
    # Both methods raise. They return `object` and not NoReturn, so that type checkers refuse loops
    # and conversions.
    def __iter__(self) -> Iterator[Self]: ...
    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> object: ...

def count_migration(
    buffer: HostBuffer, start: int, stop: int, operation: int, site: int
) -> None: ...
