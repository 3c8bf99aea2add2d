"""Another library that uses DLPack: a consumer of capsules, and an exporter."""

import ctypes

Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class Managed(ctypes.Structure):
    _fields_ = [("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class Versioned(ctypes.Structure):
    _fields_ = [
        ("version", ctypes.c_uint32 * 2),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", Tensor),
    ]


api = ctypes.pythonapi
api.PyCapsule_GetPointer.restype = ctypes.c_void_p
api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
api.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
api.PyCapsule_New.restype = ctypes.py_object
api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
api.PyCapsule_IsValid.argtypes = [ctypes.py_object, ctypes.c_char_p]
NAMES = {False: b"dltensor", True: b"dltensor_versioned"}


class Consumer:
    """A library that takes a capsule. `end` ends the export, as do the other methods."""

    def __init__(self, capsule):
        self.versioned = bool(api.PyCapsule_IsValid(capsule, NAMES[True]))
        name = NAMES[self.versioned]
        self.pointer = api.PyCapsule_GetPointer(capsule, name)
        self.used = b"used_" + name  # must stay alive, because CPython keeps a pointer to it
        api.PyCapsule_SetName(capsule, self.used)
        self.capsule = capsule
        kind = Versioned if self.versioned else Managed
        self.managed = ctypes.cast(self.pointer, ctypes.POINTER(kind)).contents
        self.tensor = self.managed.tensor

    @property
    def shape(self):
        return tuple(self.tensor.shape[: self.tensor.ndim])

    @property
    def strides(self):
        return tuple(self.tensor.strides[: self.tensor.ndim])

    def end(self):
        Deleter(self.managed.deleter)(self.pointer)

    def end_as_the_process_ends(self):
        """End the export at the exit of the process, when Python has ended.

        C++ libraries end their global variables in this way.
        """
        at_exit = ctypes.CDLL(None)["__cxa_atexit"]
        at_exit.argtypes = [ctypes.c_void_p] * 3
        assert at_exit(self.managed.deleter, self.pointer, None) == 0

    def end_without_the_gil(self):
        """End the export in a thread that Python does not know, as a thread of a library would."""
        thread, end = ctypes.c_ulong(), self.managed.deleter
        process = ctypes.CDLL(None)
        process.pthread_create.argtypes = [ctypes.c_void_p] * 4
        assert process.pthread_create(ctypes.byref(thread), None, end, self.pointer) == 0
        assert process.pthread_join(thread, None) == 0


class Exported:
    """An array of another library: 16 bytes at an address, with fields changed by `changes`.

    `says` is its ``__dlpack_device__``. `ended` counts the calls of its deleter.
    """

    def __init__(self, address, *, says=(2, 0), versioned=True, name=None, **changes):
        self.says, self.ended = says, 0
        self.name = NAMES[versioned] if name is None else name
        self.deleter = Deleter(self.end)
        self.managed = (Versioned if versioned else Managed)()
        self.managed.deleter = ctypes.cast(self.deleter, ctypes.c_void_p)
        tensor = self.managed.tensor
        tensor.data, tensor.device[:] = address, (2, 0)
        tensor.code, tensor.bits, tensor.lanes = 1, 8, 1
        self.numbers = []  # keeps the arrays to which the struct points
        changes = {"shape": (16,), "version": (1, 0), **changes}
        if not versioned:
            del changes["version"]
        tensor.ndim = len(changes["shape"])  # `changes` may also replace this
        for field, value in changes.items():
            if field in ("shape", "strides"):
                self.numbers.append((ctypes.c_int64 * len(value))(*value))
                setattr(tensor, field, self.numbers[-1])
            elif field == "version":
                self.managed.version[:] = value
            elif field == "flags":
                self.managed.flags = value
            else:
                setattr(tensor, field, value)

    def end(self, _):
        self.ended += 1

    def __dlpack_device__(self):
        return self.says() if callable(self.says) else self.says

    def __dlpack__(self, **options):
        return api.PyCapsule_New(ctypes.addressof(self.managed), self.name, None)


made = {}  # the memory behind the addresses in capsules that have not ended


@Deleter
def _end(pointer):
    del made[pointer]


def new_capsule(address, device, shape, itemsize, readonly=False, owner=None):
    """Make a capsule of version 1 over unsigned integers. Until its end, it keeps `owner` alive."""
    sizes = (ctypes.c_int64 * len(shape))(*shape)
    tensor = Tensor(address, device, len(shape), 1, 8 * itemsize, 1, sizes, None, 0)
    managed = Versioned((1, 0), None, ctypes.cast(_end, ctypes.c_void_p), readonly, tensor)
    made[ctypes.addressof(managed)] = managed, sizes, owner
    return api.PyCapsule_New(ctypes.addressof(managed), NAMES[True], None)
