from types import TracebackType
from typing import (
    Any,
    ClassVar,
    Literal,
    Never,
    Self,
    SupportsIndex,
    TypeAlias,
    TypedDict,
    Unpack,
    overload,
)

import numpy as np
import numpy.typing as npt
from _typeshed import ReadableBuffer, WriteableBuffer
from typing_extensions import CapsuleType

from cudadrv._buffers import DeviceBuffer, LockedBuffer, UnifiedBuffer
from cudadrv._device import Device
from cudadrv._loan import Loan
from cudadrv._managed import _Place
from cudadrv._records import Borrow
from cudadrv._region import Region
from cudadrv._sharing import Receipt, Ticket
from cudadrv._stream import _AnyStream
from cudadrv._token import Token

def reap() -> None: ...

class ExchangeTable:
    def __get__(self, instance: object, owner: type | None = None, /) -> CapsuleType: ...

# NumPy arrays are listed, because type checkers do not know before Python 3.12 that arrays have the
# buffer protocol.
_Source: TypeAlias = Buffer | npt.NDArray[Any] | ReadableBuffer
_Target: TypeAlias = Buffer | npt.NDArray[Any] | WriteableBuffer
_Item: TypeAlias = complex | str | bytes | np.generic | tuple[Any, ...]

class _Options(TypedDict, total=False):
    device: Device | None
    name: str | None
    pooled: bool

class Buffer(Region):
    def __init__(self, never: Never, /) -> None: ...
    @classmethod
    def from_array(
        cls, array: npt.ArrayLike, *, stream: _AnyStream | None = None, **options: Unpack[_Options]
    ) -> Self: ...
    @classmethod
    def zeros(
        cls,
        count: SupportsIndex,
        dtype: npt.DTypeLike = "u1",
        *,
        stream: _AnyStream | None = None,
        **options: Unpack[_Options],
    ) -> Self: ...
    @classmethod
    def from_raw(
        cls,
        address: SupportsIndex,
        count: SupportsIndex,
        dtype: npt.DTypeLike = "u1",
        *,
        device: Device | None = None,
        name: str | None = None,
    ) -> Self: ...
    @classmethod
    def from_address(
        cls,
        address: SupportsIndex,
        count: SupportsIndex,
        dtype: npt.DTypeLike = "u1",
        *,
        owner: object = None,
        device: Device | None = None,
        name: str | None = None,
    ) -> Self: ...
    @property
    def stream_ordered(self) -> bool: ...
    def copy_from(self, source: _Source, *, stream: _AnyStream | None = None) -> None: ...
    def copy_to(self, target: _Target, *, stream: _AnyStream | None = None) -> None: ...
    def copy_from_async(self, source: _Source, stream: _AnyStream | None = None) -> Token: ...
    def copy_to_async(self, target: Buffer, stream: _AnyStream | None = None) -> Token: ...
    def fill(self, value: _Item, *, stream: _AnyStream | None = None) -> None: ...
    def fill_async(self, value: _Item, stream: _AnyStream | None = None) -> Token: ...
    @overload
    def to(
        self,
        place: _Place,
        *,
        copy: bool = False,
        kind: Literal["device"],
        stream: _AnyStream | None = None,
    ) -> DeviceBuffer: ...
    @overload
    def to(
        self,
        place: _Place,
        *,
        copy: bool = False,
        kind: Literal["locked"],
        stream: _AnyStream | None = None,
    ) -> LockedBuffer: ...
    @overload
    def to(
        self,
        place: _Place,
        *,
        copy: bool = False,
        kind: Literal["unified"],
        stream: _AnyStream | None = None,
    ) -> UnifiedBuffer: ...
    @overload
    def to(
        self,
        place: _Place,
        *,
        copy: bool = False,
        kind: Literal["device", "locked", "unified"] | None = None,
        stream: _AnyStream | None = None,
    ) -> DeviceBuffer | LockedBuffer | UnifiedBuffer: ...
    @property
    def borrowed(self) -> bool: ...
    @property
    def borrows(self) -> tuple[Borrow, ...]: ...
    def explain(self) -> str: ...
    def close(self, stream: _AnyStream | None = None) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...
    def take(self) -> Self: ...
    def into_raw(self) -> int: ...
    def lend(
        self,
        stream: _AnyStream | None = ...,
        *,
        shape: tuple[SupportsIndex, ...] | None = None,
        strides: tuple[SupportsIndex, ...] | None = None,
        readonly: bool = False,
        device: Literal["cpu", "cuda"] | None = None,
    ) -> Loan: ...
    def give_back(self, stream: _AnyStream = ...) -> Receipt | None: ...
    def share(self, stream: _AnyStream = ...) -> Ticket: ...
    def accept(self, receipt: Receipt | None = None, stream: _AnyStream | None = None) -> None: ...
    __dlpack_c_exchange_api__: ClassVar[CapsuleType]
    def __dlpack_device__(self) -> tuple[int, int]: ...
    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> CapsuleType: ...
    @property
    def __cuda_array_interface__(self) -> Never: ...
