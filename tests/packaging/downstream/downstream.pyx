"""Uses a type of cudadrv through its C declarations."""
cimport cudadrv._stream
from cudadrv._driver cimport CUstream
from cudadrv._stream cimport Stream


def stream_type():
    return Stream, cudadrv._stream.Stream


def is_stream(value):
    return isinstance(value, Stream)


def size_of_a_handle():
    return sizeof(CUstream)
