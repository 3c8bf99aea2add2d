from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Literal, Never, Self, SupportsIndex, final

import numpy.typing as npt

from cudadrv._arguments import Access, AccessWindow
from cudadrv._arrays import Array
from cudadrv._buffer import Buffer
from cudadrv._buffers import HostBuffer, LockedBuffer
from cudadrv._capture import Capture, GraphNode
from cudadrv._conditions import Condition
from cudadrv._graph_changes import ExecutableNode
from cudadrv._kernel import Kernel, _Sizes
from cudadrv._names import Parts
from cudadrv._node import Builder
from cudadrv._signal import Signal
from cudadrv._stream import _AnyStream
from cudadrv._token import Token

@final
class NodeNames(Parts): ...

@final
class Accesses: ...

@final
class Uses: ...

@final
class Graph(Builder):
    def __init__(self, *, name: str | None = None) -> None: ...
    @property
    def name(self) -> str | None: ...
    @property
    def closed(self) -> bool: ...
    @property
    def nodes(self) -> tuple[GraphNode, ...]: ...
    @property
    def edges(self) -> tuple[tuple[GraphNode, GraphNode], ...]: ...
    def to_dot(self) -> str: ...
    def to_svg(self) -> str: ...
    def _repr_svg_(self) -> str | None: ...
    def capture(
        self, stream: _AnyStream | None = None, *, after: Iterable[GraphNode] | None = None
    ) -> Capture: ...
    def constant(self, array: npt.ArrayLike, *, name: str | None = None) -> LockedBuffer: ...
    def add_copy(
        self,
        destination: Buffer | Array,
        source: Buffer | Array,
        *,
        after: Iterable[GraphNode] = (),
    ) -> GraphNode: ...
    def add_fill(
        self, buffer: Buffer, value: Any, *, after: Iterable[GraphNode] = ()
    ) -> GraphNode: ...
    def add_launch(
        self,
        kernel: Kernel,
        grid: _Sizes,
        block: _Sizes,
        *args: Any,
        shared_bytes: int = 0,
        borrows: Iterable[Any] = (),
        cooperative: bool = False,
        cluster: _Sizes | None = None,
        priority: SupportsIndex | None = None,
        domain: Literal["default", "remote"] | None = None,
        window: AccessWindow | None = None,
        after: Iterable[GraphNode] = (),
    ) -> GraphNode: ...
    def add_call(
        self,
        function: Callable[..., Any],
        *buffers: HostBuffer | Access,
        after: Iterable[GraphNode] = (),
    ) -> GraphNode: ...
    def add_set(
        self, signal: Signal, value: SupportsIndex, *, after: Iterable[GraphNode] = ()
    ) -> GraphNode: ...
    def add_wait(
        self, signal: Signal, value: SupportsIndex, *, after: Iterable[GraphNode] = ()
    ) -> GraphNode: ...
    def add_graph(self, child: Graph, *, after: Iterable[GraphNode] = ()) -> GraphNode: ...
    def condition(self, default: SupportsIndex | None = None) -> Condition: ...
    def add_if(
        self,
        condition: Condition,
        *,
        bodies: SupportsIndex = 1,
        after: Iterable[GraphNode] = (),
    ) -> tuple[Any, ...]: ...
    def add_while(
        self, condition: Condition, *, after: Iterable[GraphNode] = ()
    ) -> tuple[GraphNode, Graph]: ...
    def add_switch(
        self,
        condition: Condition,
        bodies: SupportsIndex,
        *,
        after: Iterable[GraphNode] = (),
    ) -> tuple[Any, ...]: ...
    def instantiate(self) -> ExecutableGraph: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

@final
class ExecutableGraph:
    def __new__(cls, never: Never, /, *args: Never, **kwargs: Never) -> Self: ...
    @property
    def closed(self) -> bool: ...
    @property
    def nodes(self) -> tuple[GraphNode, ...]: ...
    def launch(self, stream: _AnyStream | None = None) -> Token: ...
    def upload(self, stream: _AnyStream | None = None) -> Token: ...
    def update(self, graph: Graph) -> None: ...
    def __getitem__(self, node: GraphNode | SupportsIndex, /) -> ExecutableNode: ...
    def __len__(self) -> int: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...
