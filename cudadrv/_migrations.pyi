from types import TracebackType
from typing import Literal, Self, SupportsIndex, final

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
class Counts: ...

@final
class Migrations: ...
