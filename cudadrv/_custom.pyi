from typing import final

@final
class Use: ...

@final
class Operation:
    def __new__(cls, name: str, /) -> Operation: ...
