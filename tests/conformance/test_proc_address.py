"""cuGetProcAddress: names, versions, per-thread variants."""

import ctypes

import pytest

FOUND, NOT_FOUND, TOO_OLD = 0, 1, 2
PER_THREAD = 2


def look_up(client, name, version=12000, flags=0):
    address, result = ctypes.c_void_p(), ctypes.c_int(-1)
    status = client.call(
        "cuGetProcAddress_v2", name, ctypes.byref(address), version, flags, ctypes.byref(result)
    )
    return status, address.value, result.value


@pytest.mark.parametrize(
    "name, version, expected",
    [
        (b"cuNoSuchFunction", 12000, NOT_FOUND),
        (b"cuMemAlloc", 1000, TOO_OLD),
        (b"cuMemAlloc_v2", 12000, NOT_FOUND),
    ],
)
def test_not_found(client, name, version, expected):
    assert look_up(client, name, version) == (0, None, expected)


def test_version_of_the_future(client):
    number = ctypes.c_int()
    client.ok("cuDriverGetVersion", ctypes.byref(number))
    status, address, _ = look_up(client, b"cuMemAlloc", number.value + 10)
    assert (status, address) == (1, None)


@pytest.mark.cuda_software
@pytest.mark.parametrize(
    "name, version, flags, symbol",
    [
        (b"cuMemAlloc", 12000, 0, "cuMemAlloc_v2"),
        (b"cuMemPrefetchAsync", 12000, 0, "cuMemPrefetchAsync"),
        (b"cuMemPrefetchAsync", 12020, 0, "cuMemPrefetchAsync_v2"),
        (b"cuStreamQuery", 12000, 0, "cuStreamQuery"),
        (b"cuStreamQuery", 12000, PER_THREAD, "cuStreamQuery_ptsz"),
        (b"cuMemcpyHtoD", 12000, PER_THREAD, "cuMemcpyHtoD_v2_ptds"),
        (b"cuEventQuery", 12000, PER_THREAD, "cuEventQuery"),
    ],
)
def test_found(software, client, name, version, flags, symbol):
    function = getattr(ctypes.CDLL(software.path), symbol)
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert look_up(client, name, version, flags) == (0, address, FOUND)
