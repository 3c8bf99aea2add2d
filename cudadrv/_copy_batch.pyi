from collections.abc import Iterable
from typing import Any, Literal

from cudadrv._buffer import Buffer
from cudadrv._stream import _AnyStream
from cudadrv._token import Token

def copy_batch(
    pairs: Iterable[tuple[Buffer, Buffer | Any]],
    stream: _AnyStream | None = None,
    *,
    source_access: Literal["stream", "during call"] = "stream",
) -> Token: ...
