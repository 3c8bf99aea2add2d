from typing import Any, final

from cudadrv._kernel import Kernel
from cudadrv._stream import Stream
from cudadrv._token import Token

@final
class Prepared:
    @property
    def kernel(self) -> Kernel: ...
    @property
    def args(self) -> tuple[Any, ...]: ...
    @property
    def grid(self) -> tuple[int, int, int]: ...
    @property
    def block(self) -> tuple[int, int, int]: ...
    def launch(self, stream: Stream | None = None) -> Token: ...
