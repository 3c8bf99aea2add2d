"""Value: numbers and structures as the bytes of a kernel's parameter."""

import ctypes
import operator
from struct import pack as pack_number

import numpy as np

from cpython.float cimport PyFloat_AS_DOUBLE, PyFloat_CheckExact
from cpython.long cimport PyLong_CheckExact
from libc.math cimport isinf
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy

from cudadrv._likely cimport unlikely
from cudadrv._ordinary cimport plain_array
from cudadrv._signature cimport Parameter, Signature


cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object number, int *overflow) except? -1
    unsigned long long PyLong_AsUnsignedLongLong(object number) except? -1

_SimpleCType = ctypes.c_int.__mro__[1]
_CData = _SimpleCType.__mro__[1]
cdef dict FLOATS = {2: "<e", 4: "<f", 8: "<d"}


cdef int put_value(
    Signature signature, Py_ssize_t index, object value, unsigned char *place
) except -1:
    """Write a value of the signature's parameter `index`, or raise TypeError or ValueError."""
    cdef Parameter *parameter = &signature.parameters[index]
    cdef double number
    cdef float single
    if PyLong_CheckExact(value) and parameter.kind in (b"u", b"s", b"b") and parameter.nbytes <= 8:
        return _put_integer(signature, index, value, place)
    if PyFloat_CheckExact(value) and parameter.kind == b"f":
        number = PyFloat_AS_DOUBLE(value)
        if parameter.nbytes == 8:
            memcpy(place, &number, 8)
            return 0
        if parameter.nbytes == 4:
            single = <float>number
            if isinf(single) and not isinf(number):
                _refuse_range(signature, index, value)
            memcpy(place, &single, 4)
            return 0
    data = _converted(signature, index, value, parameter)
    memcpy(place, <const char *>data, parameter.nbytes)
    return 0


cdef int _put_integer(
    Signature signature, Py_ssize_t index, object value, unsigned char *place
) except -1:
    """Any integer that fits, signed or not: PTX has the same type for both of C."""
    cdef Parameter *parameter = &signature.parameters[index]
    cdef int bits = 8 * parameter.nbytes
    cdef int overflow = 0
    cdef uint64_t large = 0
    cdef int64_t number = PyLong_AsLongLongAndOverflow(value, &overflow)
    if unlikely(overflow > 0) and bits == 64 and parameter.kind != b"s":
        try:
            large = PyLong_AsUnsignedLongLong(value)
        except OverflowError:
            _refuse_range(signature, index, value)
        memcpy(place, &large, 8)
        return 0
    if unlikely(overflow or (bits < 64 and (
            number < -(<int64_t>1 << (bits - 1))
            or number >= <int64_t>1 << (bits - 1 if parameter.kind == b"s" else bits)))):
        _refuse_range(signature, index, value)
    memcpy(place, &number, parameter.nbytes)  # little-endian, as every host of CUDA
    return 0


cdef bytes _converted(
    Signature signature, Py_ssize_t index, object value, Parameter *parameter
):
    """The bytes of what is not simply a Python number of the parameter's kind."""
    if isinstance(value, (np.generic, np.ndarray, _CData)):
        return bytes_of_value(signature, index, value)
    if parameter.kind == 0:
        refuse_argument(signature, index, value, "its type is not known here, so give it one: pass"
                                                 " numpy.int32(...), a ctypes value or a buffer")
    if parameter.kind == b"f" and isinstance(value, (int, float)):
        return _float(signature, index, value, parameter.nbytes)
    if parameter.kind in (b"u", b"s", b"b") and parameter.nbytes <= 8 \
            and not isinstance(value, float) and hasattr(value, "__index__"):
        data = bytearray(8)
        _put_integer(signature, index, operator.index(value), data)
        return bytes(data)
    refuse_argument(signature, index, value, _advice(value, parameter))


cdef bytes _float(Signature signature, Py_ssize_t index, object value, int nbytes):
    """A number as a float; an integer only if it is exactly that."""
    code = FLOATS.get(nbytes)
    if code is None:
        refuse_argument(signature, index, value, "pass a NumPy or ctypes value of that size")
    data = b""
    try:
        data = pack_number(code, float(value))
    except OverflowError:
        _refuse_range(signature, index, value)
    if isinstance(value, int) and int(np.frombuffer(data, code)[0]) != value:
        raise ValueError(f"{signature.called(index)} of {signature.kernel} is {value!r}, and no"
                         f" float of {nbytes} bytes is exactly that; pass float(...) to round it")
    return data


cdef bytes bytes_of_value(Signature signature, Py_ssize_t index, object value):
    """The bytes of a NumPy scalar, a 0-dimensional array or a ctypes value, if its type fits."""
    cdef Parameter *parameter = NULL
    if not isinstance(value, (np.generic, np.ndarray, _CData)):
        refuse_argument(signature, index, value, "nothing is known of the parameters of this kernel"
                                                 ", so pass NumPy or ctypes values, or buffers")
    if isinstance(value, _CData):
        kind, data = _ctype_kind(value), bytes(memoryview(value))
    else:
        if isinstance(value, np.ndarray):
            value = plain_array(value)
        if value.shape or value.dtype.hasobject:
            refuse_argument(signature, index, value, _advice(value, NULL))
        if not value.dtype.isnative:
            refuse_argument(signature, index, value, "the device has the other byte order; convert"
                                                     " it: value.astype(dtype.newbyteorder('='))")
        kind, data = value.dtype.kind, value.tobytes()
    if signature.count < 0:
        return data
    parameter = &signature.parameters[index]
    if len(data) != parameter.nbytes:
        refuse_argument(signature, index, value,
                        f"it has {len(data)} bytes, and the parameter {parameter.nbytes}")
    if not (parameter.kind in (0, b"b", b"S") or kind == "f" and parameter.kind == b"f"
            or kind in "iub" and parameter.kind in (b"u", b"s")):
        refuse_argument(signature, index, value, "that is another kind of number")
    return data


cdef str _ctype_kind(object value):
    """As NumPy's kinds."""
    if not isinstance(value, _SimpleCType):
        return "u" if isinstance(value, ctypes._Pointer) else "V"
    return "f" if value._type_ in "fdg" else "u"


cdef str _advice(object value, Parameter *parameter):
    """What to pass instead of something of another type."""
    if isinstance(value, np.ndarray):
        return "the device cannot see the memory of an array; copy it to a buffer and pass that:" \
               " DeviceBuffer.from_array(array)"
    if parameter is not NULL and parameter.kind == b"S":
        return "pass a NumPy structured scalar (array[i], or numpy.void) or a ctypes structure" \
               f" of {parameter.nbytes} bytes"
    if isinstance(value, (int, float)):
        return "pass a number of the declared kind"
    return "pass a buffer, a number, or a NumPy or ctypes value"


cdef int refuse_argument(Signature signature, Py_ssize_t index, object value, str why) except -1:
    raise TypeError(f"{signature.called(index)} of {signature.kernel} cannot be {_shown(value)}:"
                    f" {why}")


cdef int _refuse_range(Signature signature, Py_ssize_t index, object value) except -1:
    raise ValueError(f"{signature.called(index)} of {signature.kernel} cannot be {_shown(value)}:"
                     " it does not fit")


cdef str _shown(object value):
    """A value and its type, on one short line."""
    if isinstance(value, np.generic):
        return f"numpy.{type(value).__name__}({str(value)[:60]})"
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape} and dtype {value.dtype}"
    text = repr(value).split("\n")[0]
    return f"{text[:60]}{'...' if len(text) > 60 else ''} ({type(value).__name__})"
