from collections.abc import Iterable
from typing import TypeAlias

from cudadrv._buffers import UnifiedBuffer
from cudadrv._device import Device
from cudadrv._stream import _AnyStream
from cudadrv._token import Token

_Place: TypeAlias = Device | str  # "host" or "host:N"

def discard_batch(buffers: Iterable[UnifiedBuffer], stream: _AnyStream | None = None) -> Token: ...
def prefetch_batch(
    pairs: Iterable[tuple[UnifiedBuffer, _Place]], stream: _AnyStream | None = None
) -> Token: ...
