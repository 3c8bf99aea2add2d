from types import TracebackType
from typing import Never, Self, final

from typing_extensions import disjoint_base

from cudadrv._buffer import Buffer
from cudadrv._event import Captured
from cudadrv._stream import Capturing, Stream

@final
class Holdings: ...

@final
class GraphNode:
    def __init__(self, never: Never, /) -> None: ...
    @property
    def operation(self) -> str: ...
    @property
    def site(self) -> str: ...
    @property
    def stream(self) -> Stream: ...
    @property
    def reads(self) -> tuple[Buffer, ...]: ...
    @property
    def writes(self) -> tuple[Buffer, ...]: ...

@final
class Point(Captured): ...

@disjoint_base
class Receiver: ...

@final
class Capture(Capturing):
    def __init__(self, never: Never, /) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...
