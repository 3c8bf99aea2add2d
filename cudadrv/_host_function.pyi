from collections.abc import Callable
from typing import Any, Self, final

from cudadrv._arguments import Access
from cudadrv._buffers import HostBuffer
from cudadrv._device import Context
from cudadrv._stream import Stream
from cudadrv._token import Token

@final
class Words:
    def __new__(cls, context: Context) -> Self: ...

@final
class Call: ...

@final
class NodeCall: ...

@final
class Launched: ...

@final
class Launches: ...

@final
class Failure: ...

def warm_up(context: Context) -> None: ...
def keep_thread() -> None: ...
def call_function(
    stream: Stream, function: Callable[..., Any], buffers: tuple[HostBuffer | Access, ...]
) -> Token: ...
