"""Launch: a kernel is queued, with what it borrows."""

from cudadrv._arguments cimport Packed
from cudadrv._function cimport Function
from cudadrv._shape cimport Shape
from cudadrv._stream cimport Stream
from cudadrv._token cimport Token


cdef Token launch_packed(
    Function function, Shape *shape, Packed *packed, Stream stream, object reads, object writes)
cdef tuple borrows_of_launch(object borrows)
