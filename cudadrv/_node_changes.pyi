from typing import final

from typing_extensions import disjoint_base

@disjoint_base
class NodeChange: ...

@final
class LaunchChange(NodeChange): ...

@final
class CopyChange(NodeChange): ...

@final
class FillChange(NodeChange): ...

@final
class Switch(NodeChange): ...
