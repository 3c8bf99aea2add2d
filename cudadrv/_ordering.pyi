from types import TracebackType
from typing import Final, Literal, Self, TypeAlias, final

@final
class Entry: ...

@final
class Nesting:
    def __new__(cls, name: str) -> Self: ...

_Policy: TypeAlias = Literal["strict", "wait", "unchecked"]

POLICIES: Final[dict[str, int]]

@final
class ordering:
    def __new__(cls, policy: _Policy) -> Self: ...
    @property
    def policy(self) -> _Policy: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...
