from types import TracebackType
from typing import Literal, Self, SupportsIndex, final

from cudadrv._region import Region

_Action = Literal["warn", "raise"]

@final
class migration_limit:
    def __new__(cls, count: SupportsIndex, action: _Action = "raise") -> Self: ...
    @property
    def count(self) -> int: ...
    @property
    def action(self) -> _Action: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

@final
class Counts:
    def __new__(cls, nbytes: int) -> Self: ...

@final
class Migrations:
    def __new__(cls, nbytes: int) -> Self: ...
    def most(self, start: int, stop: int) -> int: ...

def count_migration(region: Region, start: int, stop: int, operation: int, site: int) -> None: ...
