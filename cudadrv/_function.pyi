from cudadrv._module import Module

class Function:
    @property
    def module(self) -> Module: ...
