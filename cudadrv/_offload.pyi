from collections.abc import Generator
from types import TracebackType
from typing import Any, Never, Self, TypeAlias, final

import numpy.typing as npt

from cudadrv._buffer import Buffer
from cudadrv._buffers import DeviceBuffer
from cudadrv._device import Device
from cudadrv._stream import Stream, _AnyStream
from cudadrv._token import Token

_Array: TypeAlias = npt.NDArray[Any]
_Arrays: TypeAlias = _Array | list[_Array] | tuple[_Array, ...]

@final
class ArrayArgument:
    def __new__(cls, never: Never, /, *args: Never, **kwargs: Never) -> Self: ...
    @property
    def array(self) -> npt.NDArray[Any]: ...

def In(array: npt.NDArray[Any]) -> ArrayArgument: ...
def Out(array: npt.NDArray[Any]) -> ArrayArgument: ...
def InOut(array: npt.NDArray[Any]) -> ArrayArgument: ...

@final
class Capture: ...

@final
class offload:
    def __init__(
        self,
        *arrays: npt.NDArray[Any],
        out: _Arrays = (),
        inout: _Arrays = (),
        stream: _AnyStream | None = None,
        device: Device | None = None,
    ) -> None: ...
    def __enter__(self) -> tuple[DeviceBuffer, ...]: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

@final
class ResultToken:
    def __new__(cls, never: Never, /, *args: Never, **kwargs: Never) -> Self: ...
    @property
    def stream(self) -> Stream: ...
    @property
    def token(self) -> Token: ...
    @property
    def reads(self) -> tuple[Buffer, ...]: ...
    @property
    def writes(self) -> tuple[Buffer, ...]: ...
    @property
    def site(self) -> str: ...
    @property
    def done(self) -> bool: ...
    def wait(self, *, timeout: float | None = None) -> None: ...
    def synchronize(self, *, timeout: float | None = None) -> None: ...
    def __await__(self) -> Generator[Any]: ...
