from typing import Self, final

@final
class Entry: ...

@final
class Nesting:
    def __new__(cls, name: str) -> Self: ...
