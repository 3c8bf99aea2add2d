from typing_extensions import disjoint_base

from cudadrv._module import Module

@disjoint_base
class Function:
    @property
    def module(self) -> Module: ...
