from typing_extensions import disjoint_base

from cudadrv._capture import Receiver

class Builder(Receiver): ...

@disjoint_base
class NodeChange: ...
