from typing import Literal, NamedTuple

class Borrow(NamedTuple):
    mode: Literal["read", "write", "shared"]
    stream: str
    operation: str
    site: str
    start: int
    stop: int
