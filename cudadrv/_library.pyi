from typing import Final

from cudadrv._records import DriverInfo

SYSTEM_LIBRARY: Final[str]
USE_SOFTWARE: Final[str]

def driver_info() -> DriverInfo: ...
def software_path() -> str: ...
def open_now() -> None: ...
