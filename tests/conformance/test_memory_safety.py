"""Calls that must not crash: on memory that does not exist, or is freed while it is used."""

import ctypes
import mmap

from .client import INVALID_VALUE


def test_memory_that_is_not_mapped_cannot_be_registered(client):
    pages = mmap.mmap(-1, 4 * mmap.PAGESIZE)
    address = ctypes.addressof(view := ctypes.c_char.from_buffer(pages))
    del view
    pages.close()
    assert client.call("cuMemHostRegister_v2", address, 4 * mmap.PAGESIZE, 0) == INVALID_VALUE


def test_registration_ends_where_the_mapping_does(client):
    # No process has a mapping of 64 TiB.
    buffer = ctypes.create_string_buffer(4096)
    assert client.call("cuMemHostRegister_v2", buffer, 1 << 46, 0) != 0


def test_memory_that_cannot_be_written_is_registered_for_reading(client):
    pages = mmap.mmap(-1, mmap.PAGESIZE)
    address = ctypes.addressof(view := ctypes.c_char.from_buffer(pages))
    protect = ctypes.CDLL(None).mprotect
    assert protect(ctypes.c_void_p(address), ctypes.c_size_t(mmap.PAGESIZE), mmap.PROT_READ) == 0
    register = "cuMemHostRegister_v2", address, mmap.PAGESIZE
    assert client.call(*register, 0) == INVALID_VALUE
    client.ok(*register, 8)
    client.ok("cuMemHostUnregister", address)
    del view
    pages.close()


def test_memory_of_a_destroyed_context_under_work_of_another(client, software):
    """Work in one context uses page-locked memory of another context, which is destroyed.

    On a GPU, such an access faults. The software driver gives the work memory that nobody else
    sees.
    """
    other = ctypes.c_void_p()
    memory = ctypes.c_void_p()
    client.ok("cuCtxCreate_v2", ctypes.byref(other), 0, 0)
    client.ok("cuMemHostAlloc", ctypes.byref(memory), 1 << 20, 0)
    client.ok("cuCtxSetCurrent", software.primary)
    stream = client.stream()
    gate = client.gate().hold(stream)
    client.ok("cuMemsetD8Async", memory.value, 1, 1 << 20, stream)
    client.ok("cuStreamWriteValue32_v2", stream, memory.value, 5, 0)
    client.ok("cuCtxDestroy_v2", other)
    gate.open()
    client.ok("cuStreamSynchronize", stream)
