from typing import Any, final

from cudadrv._buffer import Buffer
from cudadrv._stream import _AnyStream

def from_dlpack(
    array: Any, stream: _AnyStream | None = None, *, ordered: bool = False
) -> Buffer: ...
def from_cuda_array(
    array: Any, stream: _AnyStream | None = None, *, ordered: bool = False
) -> Buffer: ...

@final
class Argument: ...

@final
class Held: ...
