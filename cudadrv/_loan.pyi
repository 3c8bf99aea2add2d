from types import TracebackType
from typing import Any, Never, Self, final

from typing_extensions import CapsuleType

from cudadrv._capture import Lending
from cudadrv._stream import Stream

@final
class Lent(Lending): ...

@final
class Loan:
    @property
    def stream(self) -> Stream | None: ...
    @property
    def readonly(self) -> bool: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    def __new__(cls, never: Never, /, *args: Never, **kwargs: Never) -> Self: ...
    def __enter__(self) -> int: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...
    def back(self) -> Back: ...
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
    def __cuda_array_interface__(self) -> dict[str, Any]: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class Back:
    def __new__(cls, never: Never, /, *args: Never, **kwargs: Never) -> Self: ...
    def __enter__(self) -> None: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...
