from typing import final

from _typeshed import ReadableBuffer

from cudadrv._buffers import HostBuffer

@final
class Stage: ...

@final
class Filling:
    def __init__(
        self, target: HostBuffer, source: ReadableBuffer | int, offset: int = 0
    ) -> None: ...
    def end(self) -> tuple[int, float]: ...
    def cancel(self) -> None: ...

def plan(**changes: int) -> dict[str, int]: ...
