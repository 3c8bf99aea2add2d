"""Another library for tests: its memory, its kernel, and its arrays (other_library.c)."""

import ctypes
import gc

import extensions

import cudadrv as cu

ADD = """
.version 6.4
.target sm_75
.address_size 64
.visible .entry add(.param .u64 x, .param .u64 y) {
    .reg .b32 %a, %b, %i; .reg .b64 %x, %y, %o;
    ld.param.u64 %x, [x];
    ld.param.u64 %y, [y];
    mov.u32 %i, %tid.x;
    mul.wide.u32 %o, %i, 4;
    add.u64 %x, %x, %o;
    add.u64 %y, %y, %o;
    ld.global.u32 %a, [%x];
    ld.global.u32 %b, [%y];
    add.u32 %b, %a, %b;
    st.global.u32 [%y], %b;
    ret;
}
"""


class Library:
    """Memory of another library: allocations of which cudadrv does not know."""

    def __init__(self):
        self.driver = ctypes.CDLL(cu.driver_info().path)
        self.address = self.allocate()
        self.more = []

    def allocate(self, nbytes=1 << 16):
        address = ctypes.c_uint64()
        with cu.Device(0):
            assert self.driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(nbytes)) == 0
        return address.value

    def end(self):
        cu.Device(0).synchronize()
        gc.collect()
        cu.reap()
        with cu.Device(0):
            assert self.driver.cuMemFree_v2(ctypes.c_uint64(self.address)) == 0


def compiled():
    """The compiled module of other_library.c: arrays with the C exchange API of DLPack."""
    return extensions.compiled("other_library")
