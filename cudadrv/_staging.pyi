# No names for Python.
from typing import final

@final
class Stage: ...

def plan(**changes: int) -> dict[str, int]: ...
