"""The attributes of a kernel."""

from typing import NamedTuple

CACHES = {"none": 0, "shared": 1, "l1": 2, "equal": 3}  # CUfunc_cache


class KernelAttributes(NamedTuple):
    """The attributes of a kernel: see `Kernel.attributes`. Sizes are in bytes.

    Attributes
    ----------
    max_threads_per_block
        The most threads of a block.
    shared_bytes, const_bytes, local_bytes
        Static shared memory of a block; constant memory; local memory of a thread.
    registers
        Registers of a thread.
    ptx_version, binary_version
        The virtual and the real architecture that it was compiled for, such as 75 for 7.5.
    max_dynamic_shared_bytes
        The most `shared_bytes` of a launch.
    preferred_shared_carveout
        In percent; -1 for no preference.
    """

    max_threads_per_block: int
    shared_bytes: int
    const_bytes: int
    local_bytes: int
    registers: int
    ptx_version: int
    binary_version: int
    max_dynamic_shared_bytes: int
    preferred_shared_carveout: int
