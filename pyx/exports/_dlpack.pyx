"""DLPack: capsules in both directions, versioned and unversioned, and the C exchange API.

State that outlives a call: the exports that their consumers have ended (a list without a lock, in
dlpack.h); the table of the C exchange API, written once.
"""

import operator

import numpy as np

cimport cython
from cpython.pycapsule cimport (
    PyCapsule_GetPointer, PyCapsule_IsValid, PyCapsule_New, PyCapsule_SetName,
)
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport free

cdef extern from "cudadrv/dlpack.h" nogil:
    enum:
        DL_INT
        DL_UINT
        DL_FLOAT
        DL_BFLOAT
        DL_BOOL
        DL_FLOAT8
        DL_MAJOR
    ctypedef struct dl_managed:
        dl_tensor tensor
        void (*deleter)(dl_managed *)
    ctypedef struct dl_export:
        dl_managed managed
        dl_versioned versioned
        void *keeper
        dl_export *next
    dl_export *dl_new_export(
        bint versioned, uint64_t flags, int32_t ndim, const int64_t *shape,
        const int64_t *strides, void *keeper)
    dl_tensor *dl_tensor_of(dl_export *export, bint versioned)
    dl_export *dl_take_ended()
    int *dl_attention
    void dl_end(dl_export *export)

cdef enum:
    EXCHANGE_MINOR = 3      # DLPack 1.3 is the first version whose exchange API is a capsule

cdef const char *PLAIN = "dltensor"
cdef const char *VERSIONED = "dltensor_versioned"
cdef const char *USED_PLAIN = "used_dltensor"
cdef const char *USED_VERSIONED = "used_dltensor_versioned"
cdef const char *EXCHANGE = "dlpack_exchange_api"

# Kinds of NumPy's dtypes by DLPack's codes, and the reverse.
cdef dict KINDS = {<int>DL_INT: "i", <int>DL_UINT: "u", <int>DL_FLOAT: "f", <int>DL_COMPLEX: "c",
                   <int>DL_BOOL: "b"}
cdef dict CODES = {"i": <int>DL_INT, "u": <int>DL_UINT, "f": <int>DL_FLOAT, "c": <int>DL_COMPLEX,
                   "b": <int>DL_BOOL}
# Names of the dtypes of ml_dtypes by DLPack's codes, and the reverse. Floats of 8 bits have their
# codes since DLPack 1.1, in this order. Smaller ones are left out: DLPack packs them into bytes.
cdef tuple FORMS = (
    "e3m4", "e4m3", "e4m3b11fnuz", "e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0fnu")
cdef dict NAMES = {<int>DL_FLOAT8 + i: f"float8_{FORMS[i]}" for i in range(len(FORMS))}
NAMES[<int>DL_BFLOAT] = "bfloat16"
cdef dict CODES_OF_NAMES = {name: code for code, name in NAMES.items()}


cdef tuple pair_of_ints(object value, str name):
    """Return two ints: a device or a version of DLPack. Raises TypeError for anything else."""
    if type(value) is tuple and len(<tuple>value) == 2 and type(value[0]) is int \
            and type(value[1]) is int:
        return <tuple>value
    try:
        first, second = value
        return operator.index(first), operator.index(second)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be two ints, as DLPack has it, not {value!r}") from None


# ---- exports of cudadrv ----

cdef object _described = None   # the dtype that was last passed to dlpack_dtype
cdef dl_dtype _description      # what dlpack_dtype returned for `_described`


cdef dl_dtype dlpack_dtype(object dtype) except *:
    """Return a dtype in DLPack's form. Raises BufferError if DLPack cannot describe it."""
    global _described, _description
    if dtype is not _described:
        _description = _describe(dtype)
        _described = dtype
    return _description


cdef dl_dtype _describe(object dtype) except *:
    code = CODES.get(dtype.kind)
    if dtype.isbuiltin == 2:  # registered by another package: `kind` does not describe it
        code = CODES_OF_NAMES.get(dtype.name)
    if code is None or not dtype.isnative or (dtype.kind in "fc" and dtype.itemsize > 16):
        raise BufferError(f"DLPack has no name for items of dtype {dtype}; export them as others:"
                          " buffer.view('u1')")
    return dl_dtype(code, 8 * dtype.itemsize, 1)


cdef int check_array(object dtype, tuple shape) except -1:
    """Raise BufferError for an array that a capsule cannot describe. For `shape` see `_new_export`.
    """
    dlpack_dtype(dtype)
    if shape is not None and len(shape) > DL_MOST_DIMENSIONS:
        raise BufferError(f"the array has {len(shape)} dimensions, and a DLPack capsule has at most"
                          f" {DL_MOST_DIMENSIONS}; reshape it: buffer.reshape(-1)")
    return 0


cdef object export_capsule(
    object keeper, void *data, dl_device device, object dtype, size_t count, tuple shape,
    tuple strides, bint versioned, uint64_t flags
):
    """Make a capsule of an array. After its consumer has ended the export, `keeper_of_ended`
    returns `keeper`. The caller has called `check_array`.
    """
    cdef dl_export *made = _new_export(
        keeper, data, device, dtype, count, shape, strides, versioned, flags)
    try:
        return PyCapsule_New(
            <void *>made, VERSIONED if versioned else PLAIN, <void (*)(object) noexcept>_end_unused)
    except BaseException:
        Py_DECREF(keeper)
        free(made)
        raise


cdef dl_versioned *export_tensor(
    object keeper, void *data, dl_device device, object dtype, size_t count, tuple shape,
    tuple strides, uint64_t flags
) except NULL:
    """Like `export_capsule`, but return the tensor itself, for a consumer in C."""
    return &_new_export(keeper, data, device, dtype, count, shape, strides, True, flags).versioned


cdef dl_export *_new_export(
    object keeper, void *data, dl_device device, object dtype, size_t count, tuple shape,
    tuple strides, bint versioned, uint64_t flags
) except NULL:
    """Make an export. It owns a reference to `keeper`, which `keeper_of_ended` drops.

    If `shape` is None, the array has one dimension with `count` items. The strides are counted in
    items; None means those of C.
    """
    cdef int64_t[2 * DL_MOST_DIMENSIONS] sizes
    cdef Py_ssize_t ndim = 1 if shape is None else len(shape)
    cdef dl_export *made
    cdef dl_tensor *tensor
    cdef dl_dtype item = dlpack_dtype(dtype)
    cdef uint64_t step = 1  # wraps for huge shapes without items, whose strides nobody uses
    cdef Py_ssize_t i
    for i in range(ndim - 1, -1, -1):
        sizes[i] = <int64_t>count if shape is None else shape[i]
        sizes[ndim + i] = <int64_t>step if strides is None else strides[i]
        step *= <uint64_t>sizes[i]
    made = dl_new_export(versioned, flags, <int32_t>ndim, sizes, &sizes[ndim], <void *>keeper)
    if made is NULL:
        raise MemoryError()
    tensor = dl_tensor_of(made, versioned)
    tensor.data, tensor.device, tensor.dtype = data, device, item
    Py_INCREF(keeper)
    return made


cdef void _end_unused(object capsule) noexcept:
    """The destructor of capsules: if nobody has consumed the capsule, end the export."""
    cdef const char *name = VERSIONED if PyCapsule_IsValid(capsule, VERSIONED) else PLAIN
    if PyCapsule_IsValid(capsule, name):
        dl_end(<dl_export *>PyCapsule_GetPointer(capsule, name))


cdef void call_on_end(int *attention) noexcept:
    """Register the flag that is set whenever a consumer ends an export."""
    global dl_attention
    dl_attention = attention


cdef object keeper_of_ended():
    """Return the keeper of an export that has ended, or None. Returns each keeper once.

    Allocates nothing, so that no export is lost when memory is short.
    """
    cdef dl_export *ended = dl_take_ended()
    if ended is NULL:
        return None
    keeper = <object>ended.keeper
    Py_DECREF(keeper)
    free(ended)
    return keeper


cdef dl_exchange our_exchange  # `_exchange` sets its functions
our_exchange.major, our_exchange.minor, our_exchange.older = <int>DL_MAJOR, EXCHANGE_MINOR, NULL
cdef object exchange_capsule = PyCapsule_New(&our_exchange, EXCHANGE, NULL)


# ---- tensors of other libraries ----

@cython.final
cdef class Tensor:
    """A tensor of another library that cudadrv owns. Its deleter is called when this object dies.
    """

    def __dealloc__(self):
        if self.managed is NULL:
            return
        if self.versioned:
            if (<dl_versioned *>self.managed).deleter is not NULL:
                (<dl_versioned *>self.managed).deleter(<dl_versioned *>self.managed)
        elif (<dl_managed *>self.managed).deleter is not NULL:
            (<dl_managed *>self.managed).deleter(<dl_managed *>self.managed)


cdef Tensor take_tensor(object capsule):
    """Consume a capsule. Raises TypeError for anything else, BufferError for one that was used."""
    cdef Tensor taken = Tensor.__new__(Tensor)
    if PyCapsule_IsValid(capsule, VERSIONED):
        managed = <dl_versioned *>PyCapsule_GetPointer(capsule, VERSIONED)
        PyCapsule_SetName(capsule, USED_VERSIONED)
        return own_tensor(managed)
    elif PyCapsule_IsValid(capsule, PLAIN):
        taken.managed = PyCapsule_GetPointer(capsule, PLAIN)
        PyCapsule_SetName(capsule, USED_PLAIN)
        taken.tensor = &(<dl_managed *>taken.managed).tensor
    elif PyCapsule_IsValid(capsule, USED_PLAIN) or PyCapsule_IsValid(capsule, USED_VERSIONED):
        raise BufferError("this DLPack capsule was consumed already; ask its exporter for a new"
                          " one")
    else:
        raise TypeError(f"__dlpack__ must return a DLPack capsule, and returned {capsule!r}")
    return taken


cdef Tensor own_tensor(dl_versioned *managed):
    """Take over a tensor. Raises BufferError if its version of DLPack is not supported."""
    cdef Tensor taken = Tensor.__new__(Tensor)
    taken.managed = managed
    taken.versioned = True
    if managed.major != DL_MAJOR:
        raise BufferError(f"the tensor is of DLPack {managed.major}, and {DL_MAJOR}.x is supported")
    taken.readonly = managed.flags & DL_READ_ONLY != 0
    taken.tensor = &managed.tensor
    return taken


cdef dl_exchange *exchange_of(object kind) except? NULL:
    """Return the functions that a type of arrays offers to C, or NULL if it offers none."""
    cdef dl_exchange *api
    capsule = getattr(kind, "__dlpack_c_exchange_api__", None)
    if capsule is None or not PyCapsule_IsValid(capsule, EXCHANGE):
        return NULL
    api = <dl_exchange *>PyCapsule_GetPointer(capsule, EXCHANGE)
    while api is not NULL and api.major != DL_MAJOR:
        api = api.older
    return api


cdef Tensor take_exchanged(dl_exchange *api, object array):
    """Return the tensor of an array. The caller orders its work after the owner's."""
    cdef dl_versioned *managed = NULL
    api.managed_from_object(<void *>array, &managed)
    return own_tensor(managed)


cdef object dtype_of(dl_dtype given):
    """Return the NumPy dtype of DLPack items. Raises BufferError if there is none."""
    kind = KINDS.get(given.code)
    name = NAMES.get(given.code)
    if name is not None and given.lanes == 1 \
            and given.bits == (16 if given.code == DL_BFLOAT else 8):
        return _extension_dtype(name, given.bits)
    if kind is not None and given.lanes == 1 and given.bits % 8 == 0 and given.bits:
        try:
            return np.dtype(f"{kind}{given.bits // 8}")
        except TypeError:
            pass
    raise BufferError(f"NumPy has no dtype for DLPack items of code {given.code}, {given.bits} bits"
                      f" and {given.lanes} lanes; view the array as integers first")


cdef object _extension_dtype(str name, int bits):
    """Return the dtype of ml_dtypes with this name. Raises BufferError if there is none."""
    try:
        import ml_dtypes
        return np.dtype(getattr(ml_dtypes, name))
    except (ImportError, AttributeError):
        raise BufferError(f"NumPy has no {name}; install ml_dtypes, or view the array as {bits}-bit"
                          " integers first") from None


cdef tuple shape_of_tensor(dl_tensor *tensor):
    """Return the shape of a tensor. Raises BufferError if it is not a possible shape."""
    cdef int32_t i
    if not 0 <= tensor.ndim <= DL_MOST_DIMENSIONS or (tensor.ndim and tensor.shape is NULL):
        raise BufferError(f"an array cannot have {tensor.ndim} dimensions")
    shape = []
    for i in range(tensor.ndim):
        if tensor.shape[i] < 0:
            raise BufferError(f"an array cannot have {tensor.shape[i]} items in a direction")
        shape.append(tensor.shape[i])
    return tuple(shape)


cdef bint is_contiguous(dl_tensor *tensor) noexcept:
    """Whether the items of a tensor are contiguous, in C order."""
    cdef uint64_t step = 1  # overflows only for arrays that are larger than any memory
    cdef int32_t i
    if tensor.strides is NULL:
        return True
    for i in range(tensor.ndim):
        if tensor.shape[i] == 0:
            return True
    for i in range(tensor.ndim - 1, -1, -1):
        if tensor.shape[i] != 1 and <uint64_t>tensor.strides[i] != step:
            return False
        step *= <uint64_t>tensor.shape[i]
    return True
