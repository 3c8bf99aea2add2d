"""Place: where managed memory and memory of the driver's pools is: a device, or the host."""

from cudadrv._device cimport Device
from cudadrv._driver cimport (
    CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, CU_DEVICE_CPU, CU_MEM_LOCATION_TYPE_DEVICE,
    CUmemLocation, CUmemLocationType,
)


cdef CUmemLocation place_of(object place) except *:
    """Return the CUmemLocation of a place. Raises if managed memory cannot be there."""
    cdef CUmemLocation location
    check_place(place)
    if isinstance(place, Device):
        check_concurrent(<Device>place, "the place")
        location.type = CU_MEM_LOCATION_TYPE_DEVICE
        location.id = (<Device>place).raw
        return location
    _, colon, node = place.partition(":")
    location.type = <CUmemLocationType><int>(NUMA_NODE if colon else HOST)
    location.id = int(node) if colon else CU_DEVICE_CPU
    return location


cdef int check_place(object place) except -1:
    """Raise TypeError or ValueError unless the argument names a place."""
    if isinstance(place, Device):
        return 0
    if not isinstance(place, str):
        raise TypeError(f"a place is a Device, 'host' or 'host:N', and not {place!r}")
    host, colon, node = place.partition(":")
    if host != "host" or (colon and not (node.isascii() and node.isdigit() and len(node) < 10)):
        raise ValueError(f"a place is a Device, 'host' or 'host:N' with the number of a NUMA node,"
                         f" and not {place!r}")
    return 0


cdef bint is_concurrent(Device device) except -1:
    return device.attribute_value(CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS) != 0


cdef int check_concurrent(Device device, str what) except -1:
    if not is_concurrent(device):
        raise ValueError(f"{what} is {device!r}, whose concurrent_managed_access is 0: the driver"
                         " moves all managed memory to such a device when work is queued, and"
                         " takes no prefetches, discards or advice for it")
    return 0
