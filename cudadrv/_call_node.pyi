from typing import final

from cudadrv._node import NodeChange

@final
class CallChange(NodeChange): ...
