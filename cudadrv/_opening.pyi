from cudadrv._buffers import DeviceBuffer, LockedBuffer
from cudadrv._sharing import Ticket
from cudadrv._stream import Stream

def open(ticket: Ticket, stream: Stream | None = None) -> DeviceBuffer | LockedBuffer: ...
