from typing import SupportsIndex, final

import numpy.typing as npt

from cudadrv._device import Device
from cudadrv._host_buffer import HostBuffer

@final
class UnifiedBuffer(HostBuffer):
    def __init__(
        self,
        count: SupportsIndex,
        dtype: npt.DTypeLike = "u1",
        *,
        device: Device | None = None,
        name: str | None = None,
        pooled: bool = True,
    ) -> None: ...
