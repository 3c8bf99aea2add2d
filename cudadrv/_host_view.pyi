from types import TracebackType
from typing import Any, Never, final

import numpy.typing as npt

from cudadrv._host_buffer import HostBuffer

@final
class HostView:
    def __init__(self, never: Never, /) -> None: ...
    def __enter__(self) -> npt.NDArray[Any]: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

def host_view(buffer: HostBuffer, shared: bool) -> HostView: ...
