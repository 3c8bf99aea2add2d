from typing import Final, NamedTuple

SYSTEM_LIBRARY: Final[str]
USE_SOFTWARE: Final[str]

class DriverInfo(NamedTuple):
    name: str
    path: str
    version: tuple[int, int]
    is_software: bool

def driver_info() -> DriverInfo: ...
def software_path() -> str: ...
