from typing import Any

from cudadrv._buffer import Buffer
from cudadrv._stream import Stream

def from_dlpack(array: Any, stream: Stream | None = None) -> Buffer: ...
def from_cuda_array(array: Any, stream: Stream | None = None) -> Buffer: ...
