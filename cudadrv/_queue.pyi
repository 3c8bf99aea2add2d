from typing import Never

from typing_extensions import disjoint_base

from cudadrv._context import Context

@disjoint_base
class Queue:
    def __init__(self, never: Never, /) -> None: ...
    @property
    def context(self) -> Context: ...
    @property
    def priority(self) -> int: ...
    @property
    def closed(self) -> bool: ...
