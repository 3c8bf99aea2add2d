from typing import Any

from cudadrv._buffer import Buffer
from cudadrv._stream import _AnyStream

def from_dlpack(array: Any, stream: _AnyStream | None = None) -> Buffer: ...
def from_cuda_array(array: Any, stream: _AnyStream | None = None) -> Buffer: ...
