from typing import Literal, NamedTuple

class Borrow(NamedTuple):
    mode: Literal["read", "write", "shared", "use"]
    stream: str
    operation: str
    site: str
    start: int
    stop: int
