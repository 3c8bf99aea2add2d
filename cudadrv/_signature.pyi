from typing import final

from cudadrv._ptx import Parameter

@final
class Signature:
    @property
    def kernel(self) -> str: ...
    @property
    def listed(self) -> tuple[Parameter, ...] | None: ...
