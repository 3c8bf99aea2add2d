"""Value: one argument that is no buffer, as the bytes of its parameter."""

from cudadrv._signature cimport Signature


cdef int put_value(
    Signature signature, Py_ssize_t index, object value, unsigned char *place) except -1
cdef bytes bytes_of_value(Signature signature, Py_ssize_t index, object value)
cdef int refuse_argument(Signature signature, Py_ssize_t index, object value, str why) except -1
