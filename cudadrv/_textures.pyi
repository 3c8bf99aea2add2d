from collections.abc import Sequence
from types import TracebackType
from typing import Literal, Never, Self, SupportsFloat, SupportsIndex, TypeAlias, final

from typing_extensions import disjoint_base

from cudadrv._arrays import Array
from cudadrv._buffer import Buffer
from cudadrv._device import Context, Device

_Address: TypeAlias = Literal["wrap", "clamp", "mirror", "border"]
_Filter: TypeAlias = Literal["point", "linear"]

@final
class ObjectRegion: ...

@disjoint_base
class Handle:
    def __init__(self, **kwargs: Never) -> None: ...
    @property
    def source(self) -> Array | Buffer: ...
    @property
    def handle(self) -> int: ...
    @property
    def name(self) -> str | None: ...
    @property
    def context(self) -> Context: ...
    @property
    def device(self) -> Device: ...
    @property
    def closed(self) -> bool: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

@final
class Texture(Handle):
    def __init__(
        self,
        source: Array | Buffer,
        *,
        address: _Address | Sequence[_Address] = "clamp",
        filter: _Filter = "point",
        normalized: bool = False,
        as_float: bool = False,
        srgb: bool = False,
        border: Sequence[SupportsFloat] = (0, 0, 0, 0),
        channels: SupportsIndex = 1,
        mipmap_filter: _Filter = "point",
        levels: tuple[float, float] | None = None,
        bias: float = 0.0,
        anisotropy: SupportsIndex = 1,
        seamless: bool = False,
        name: str | None = None,
    ) -> None: ...

@final
class Surface(Handle):
    def __init__(self, array: Array, *, name: str | None = None) -> None: ...
    @property
    def source(self) -> Array: ...
