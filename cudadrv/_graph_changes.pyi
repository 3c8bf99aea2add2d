from collections.abc import Callable, Iterable
from typing import Any, Never, Self, SupportsIndex, final

from cudadrv._buffer import Buffer, _Item
from cudadrv._capture import GraphNode
from cudadrv._graph import ExecutableGraph
from cudadrv._kernel import _Sizes
from cudadrv._node import NodeChange

def update_executable(executable: ExecutableGraph, graph: object) -> None: ...
def node_of(executable: ExecutableGraph, node: GraphNode | SupportsIndex) -> ExecutableNode: ...

@final
class Next: ...

@final
class Switch(NodeChange): ...

@final
class ExecutableNode:
    enabled: bool
    def __new__(cls, never: Never, /, *args: Never, **kwargs: Never) -> Self: ...
    @property
    def node(self) -> GraphNode: ...
    def set(
        self,
        *args: Any,
        grid: _Sizes | None = None,
        block: _Sizes | None = None,
        shared_bytes: int | None = None,
        borrows: Iterable[Any] | None = None,
        source: Buffer | None = None,
        target: Buffer | None = None,
        value: _Item | None = None,
        function: Callable[..., Any] | None = None,
    ) -> None: ...
