"""Page-locked memory whose pages the program protects while work uses it (software driver)."""

import ctypes
import mmap
import os

PROTECT = ctypes.CDLL(None).mprotect
NBYTES = 2 * mmap.PAGESIZE


def protect(address, rights):
    assert PROTECT(ctypes.c_void_p(address), ctypes.c_size_t(NBYTES), rights) == 0


def allocate(client):
    address = ctypes.c_void_p()
    client.ok("cuMemHostAlloc", ctypes.byref(address), NBYTES, 0)
    return address.value


def is_mapped_twice(client, address):
    return client.call("cudadrvSoftIsMappedTwice", ctypes.c_ulonglong(address))


def test_work_does_not_use_the_mapping_of_the_program(client, software):
    once = allocate(client)
    client.call("cudadrvSoftMapTwice", 1)
    twice = allocate(client)
    client.call("cudadrvSoftMapTwice", 0)
    once_again = allocate(client)
    found = [is_mapped_twice(client, each) for each in (once, twice, once_again)]
    assert found == [0, 1, 0]
    protect(twice, 0)
    client.ok("cuMemsetD8_v2", ctypes.c_ulonglong(twice), ctypes.c_ubyte(7), NBYTES)
    client.ok("cuCtxSynchronize")
    protect(twice, mmap.PROT_READ | mmap.PROT_WRITE)
    assert ctypes.string_at(twice, NBYTES) == bytes([7]) * NBYTES
    protect(twice, 0)
    for each in (once, twice, once_again):
        client.ok("cuMemFreeHost", ctypes.c_void_p(each))
    assert not is_mapped_twice(client, twice)


def test_a_forked_child_has_a_copy(client, software):
    client.call("cudadrvSoftMapTwice", 1)
    address = allocate(client)
    client.call("cudadrvSoftMapTwice", 0)
    ctypes.memset(address, 1, NBYTES)
    protect(address, 0)
    child = os.fork()
    if not child:
        right = ctypes.string_at(address, 1) == b"\x01"
        ctypes.memset(address, 2, NBYTES)
        os._exit(not right)
    assert os.waitpid(child, 0)[1] == 0
    protect(address, mmap.PROT_READ | mmap.PROT_WRITE)
    assert ctypes.string_at(address, 1) == b"\x01"
    client.ok("cuMemFreeHost", ctypes.c_void_p(address))
