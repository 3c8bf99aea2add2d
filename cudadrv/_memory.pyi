from typing import NamedTuple, final

@final
class Memory: ...

class LiveBuffer(NamedTuple):
    kind: str
    label: str
    nbytes: int
    device: int
    site: str

def live_buffers() -> list[LiveBuffer]: ...
def memory_report() -> str: ...
