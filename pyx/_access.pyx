"""Access: what a kernel does with a buffer that it is given."""

cimport cython

from cudadrv._ownership cimport OWN_READ, OWN_SHARED, OWN_WRITE
from cudadrv._region cimport Region

cdef dict WORDS = {OWN_READ: "read", OWN_WRITE: "write", OWN_SHARED: "shared"}


@cython.final
@cython.freelist(16)
cdef class Access:
    """Access(*args, **kwargs)\n--\n
    A buffer as a kernel's argument: see `read`, `write` and `shared`.

    Attributes
    ----------
    buffer : buffer
    mode : str
        "read", "write" or "shared".
    """

    def __init__(self, *args, **kwargs):
        raise TypeError("use cudadrv.read(buffer), write(buffer) or shared(buffer)")

    @property
    def buffer(self):
        """The buffer."""
        return self.region

    @property
    def mode(self):
        """What is done with it: "read", "write" or "shared"."""
        return WORDS[self.mode]

    def __repr__(self):
        return f"{WORDS[self.mode]}({self.region!r})"


cdef Access _access(object buffer, int mode):
    cdef Access access
    if not isinstance(buffer, Region):
        raise TypeError(f"{WORDS[mode]}() takes a buffer, not {type(buffer).__name__}")
    access = Access.__new__(Access)
    access.region = buffer
    access.mode = mode
    return access


def read(buffer):
    """Say that a kernel only reads a buffer: others may read it meanwhile.

    An argument of `Kernel.launch`. Raises TypeError if it is no buffer.
    """
    return _access(buffer, OWN_READ)


def write(buffer):
    """Say that a kernel reads and writes a buffer, as for a buffer without a mode.

    An argument of `Kernel.launch`. Raises TypeError if it is no buffer.
    """
    return _access(buffer, OWN_WRITE)


def shared(buffer):
    """Say that the program itself orders a kernel's use of a buffer with all others.

    Such as a flag that the host sets while the kernel waits for it. Nothing is refused but closing:
    the memory stays for as long as the kernel may use it. An argument of `Kernel.launch`. Raises
    TypeError if it is no buffer.
    """
    return _access(buffer, OWN_SHARED)
