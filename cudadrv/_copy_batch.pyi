from collections.abc import Iterable

from cudadrv._buffer import Buffer
from cudadrv._stream import _AnyStream
from cudadrv._token import Token

def copy_batch(
    pairs: Iterable[tuple[Buffer, Buffer]], stream: _AnyStream | None = None
) -> Token: ...
