from typing import Any, Never, Self

from typing_extensions import disjoint_base

from cudadrv._graph import Graph

@disjoint_base
class Condition(int):
    @property
    def graph(self) -> Graph | None: ...
    def __new__(cls, never: Never, /, *args: Any, **kwargs: Any) -> Self: ...
