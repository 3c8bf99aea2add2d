from typing import Self, SupportsIndex, Unpack, final

import numpy.typing as npt

from cudadrv._buffer import _Options
from cudadrv._device import Device
from cudadrv._host_buffer import HostBuffer
from cudadrv._stream import Stream

class _LockedOptions(_Options, total=False):
    write_combined: bool

@final
class LockedBuffer(HostBuffer):
    def __init__(
        self,
        count: SupportsIndex,
        dtype: npt.DTypeLike = "u1",
        *,
        write_combined: bool = False,
        device: Device | None = None,
        name: str | None = None,
        pooled: bool = True,
    ) -> None: ...
    @classmethod
    def from_array(
        cls,
        array: npt.ArrayLike,
        *,
        stream: Stream | None = None,
        **options: Unpack[_LockedOptions],
    ) -> Self: ...
    @classmethod
    def zeros(
        cls,
        count: SupportsIndex,
        dtype: npt.DTypeLike = "u1",
        *,
        stream: Stream | None = None,
        **options: Unpack[_LockedOptions],
    ) -> Self: ...
