from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from cudadrv._buffers import UnifiedBuffer
from cudadrv._device import Device
from cudadrv._stream import _AnyStream
from cudadrv._token import Token

_Place: TypeAlias = Device | str  # "host" or "host:N"

class Advice(NamedTuple):
    read_mostly: bool
    preferred: Device | str | None
    accessed_by: frozenset[Device | str]
    last_prefetch: Device | str | None

def prefetch_batch(
    pairs: Iterable[tuple[UnifiedBuffer, _Place]], stream: _AnyStream | None = None
) -> Token: ...
