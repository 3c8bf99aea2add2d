# No names for Python.
from types import TracebackType
from typing import Never, final

from cudadrv._stream import Stream

@final
class Loan:
    @property
    def stream(self) -> Stream: ...
    @property
    def readonly(self) -> bool: ...
    def __init__(self, never: Never, /) -> None: ...
    def __enter__(self) -> int: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...
