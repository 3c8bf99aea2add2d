"""Exchange: arrays of other libraries as buffers."""

from cudadrv._region cimport Region
from cudadrv._stream cimport Stream


cdef bint is_foreign_array(object value) except -1
cdef Region import_argument(object array, Stream stream, list used)
cdef int hold_arguments(list used) except -1
