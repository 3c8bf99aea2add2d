"""Device: what a GPU is. What runs on it belongs to its context."""

cimport cython

from cudadrv._driver cimport (
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
    CUdevice_attribute, CUuuid, bind_driver, cudadrv_table, cuDeviceGet, cuDeviceGetAttribute,
    cuDeviceGetCount, cuDeviceGetName, cuDeviceGetUuid, cuDeviceTotalMem,
)
from cudadrv._errors cimport check
from cudadrv._library cimport ensure_driver

from cudadrv._errors import integer

bind_driver(&cudadrv_table)


@cython.final
cdef class Device:
    """Device(ordinal=0)\n--\n
    A device, by ordinal.

    Two objects of the same ordinal are equal. Making one loads the driver on first use, and makes
    no context.

    Parameters
    ----------
    ordinal : int, optional
        From 0 to ``Device.count() - 1``.

    Raises
    ------
    ValueError
        There is no such device.
    DriverNotFoundError
        There is no usable driver.

    Driver functions: cuInit, cuDeviceGet.
    """

    def __cinit__(self, ordinal=0):
        cdef int index
        ensure_driver()
        wanted = integer(ordinal, "ordinal")
        count = Device.count()
        if not 0 <= wanted < count:
            raise ValueError(
                f"there is no device {wanted}: this machine has {count}, numbered from 0")
        self.ordinal = index = wanted
        with nogil:
            check(cuDeviceGet(&self.raw, index))

    @property
    def ordinal(self):
        """Its number, from 0."""
        return self.ordinal

    @staticmethod
    def count():
        """The number of devices (cuDeviceGetCount)."""
        cdef int count = 0
        ensure_driver()
        with nogil:
            check(cuDeviceGetCount(&count))
        return count

    @property
    def name(self):
        """The device's name (cuDeviceGetName)."""
        cdef char[256] name
        with nogil:
            check(cuDeviceGetName(name, sizeof(name), self.raw))
        return name.decode(errors="replace")

    @property
    def uuid(self):
        """The device's identity across processes, as `uuid.UUID` (cuDeviceGetUuid)."""
        from uuid import UUID
        cdef CUuuid found
        with nogil:
            check(cuDeviceGetUuid(&found, self.raw))
        return UUID(bytes=found.bytes[:16])

    @property
    def compute_capability(self):
        """``(major, minor)`` (cuDeviceGetAttribute)."""
        return (self.attribute_value(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
                self.attribute_value(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR))

    @property
    def total_memory(self):
        """Memory of the device in bytes (cuDeviceTotalMem)."""
        cdef size_t nbytes = 0
        with nogil:
            check(cuDeviceTotalMem(&nbytes, self.raw))
        return nbytes

    def attribute(self, str name not None):
        """Look up an attribute by its name in cuda.h.

        Parameters
        ----------
        name : str
            Such as ``"multiprocessor_count"``: the name without ``CU_DEVICE_ATTRIBUTE_``, in any
            case.

        Returns
        -------
        int

        Raises
        ------
        ValueError
            There is no such attribute; the message names the nearest ones.
        CudaError
            The driver does not know it.

        Driver function: cuDeviceGetAttribute.
        """
        from cudadrv._attributes import DEVICE_ATTRIBUTES
        number = DEVICE_ATTRIBUTES.get(name.lower().removeprefix("cu_device_attribute_"))
        if number is None:
            import difflib
            near = difflib.get_close_matches(name.lower(), DEVICE_ATTRIBUTES, n=3)
            hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
            raise ValueError(f"there is no device attribute {name!r}{hint}")
        return self.attribute_value(number)

    cdef int attribute_value(self, int attribute) except? -1:
        cdef int value = 0
        with nogil:
            check(cuDeviceGetAttribute(&value, <CUdevice_attribute>attribute, self.raw))
        return value

    @property
    def context(self):
        """The device's primary context, retained on first use and kept until the process ends."""
        from cudadrv._context import primary_context
        return primary_context(self)

    def synchronize(self):
        """Wait for all work of the primary context. See `Context.synchronize`."""
        self.context.synchronize()

    def __enter__(self):
        """Make the primary context current for this thread, and the device the default one."""
        self.context.__enter__()
        return self

    def __exit__(self, kind, exception, traceback):
        """Make the context current that was so before the block."""
        self.context.__exit__(kind, exception, traceback)

    def __eq__(self, other):
        return isinstance(other, Device) and (<Device>other).ordinal == self.ordinal

    def __hash__(self):
        return hash((Device, self.ordinal))

    def __repr__(self):
        name = "" if cudadrv_table.forked else f" {self.name!r}"  # a forked child cannot ask
        return f"<Device {self.ordinal}{name}>"
