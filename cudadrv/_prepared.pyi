from collections.abc import Iterable
from typing import Any, Never, final

from cudadrv._kernel import Kernel
from cudadrv._stream import Stream
from cudadrv._token import Token

@final
class Prepared:
    def __init__(self, never: Never, /) -> None: ...
    @property
    def kernel(self) -> Kernel: ...
    @property
    def args(self) -> tuple[Any, ...]: ...
    @property
    def grid(self) -> tuple[int, int, int]: ...
    @property
    def block(self) -> tuple[int, int, int]: ...
    def launch(self, stream: Stream | None = None) -> Token: ...

def prepared(
    kernel: Kernel,
    grid: Any,
    block: Any,
    args: tuple[Any, ...],
    shared_bytes: int,
    borrows: Iterable[Any],
    cooperative: bool,
    cluster: Any,
) -> Prepared: ...
