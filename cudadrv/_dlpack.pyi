from typing import final

@final
class Tensor:
    @property
    def readonly(self) -> bool: ...
