from typing import final

from cudadrv._node import NodeChange

@final
class NumberChange(NodeChange): ...

@final
class Turn: ...
