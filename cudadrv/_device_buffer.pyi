from typing import SupportsIndex, final

import numpy.typing as npt

from cudadrv._buffer import Buffer
from cudadrv._device import Device
from cudadrv._stream import Stream

@final
class DeviceBuffer(Buffer):
    def __init__(
        self,
        count: SupportsIndex,
        dtype: npt.DTypeLike = "u1",
        *,
        stream: Stream | None = None,
        device: Device | None = None,
        name: str | None = None,
        pooled: bool = True,
    ) -> None: ...
    # Both raise. As `object`, not NoReturn, they make type checkers refuse loops and conversions.
    def __iter__(self) -> object: ...
    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> object: ...
