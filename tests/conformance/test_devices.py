"""Devices: attributes, properties, and their addresses on the PCI bus."""

import ctypes

import pytest

from .client import INVALID_DEVICE, INVALID_VALUE, SUCCESS

NO_DEVICE = 99
NEWEST_ATTRIBUTE = 147  # the newest attribute of CUDA 13.0


def attribute(client, number, device=0):
    value = ctypes.c_int(-7)
    return client.call("cuDeviceGetAttribute", ctypes.byref(value), number, device), value.value


def test_every_attribute_answers(client):
    version = ctypes.c_int()
    client.ok("cuDriverGetVersion", ctypes.byref(version))
    if version.value < 13000:
        pytest.skip("an older driver knows fewer")
    numbers = range(1, NEWEST_ATTRIBUTE + 1)
    assert [n for n in numbers if attribute(client, n)[0] != SUCCESS] == []
    assert [n for n in numbers if attribute(client, n)[1] == -7] == []


@pytest.mark.parametrize("number", [0, -1, 100000])
def test_unknown_attribute(client, number):
    assert attribute(client, number)[0] == INVALID_VALUE


def test_attribute_of_no_device(client):
    assert attribute(client, 1, NO_DEVICE)[0] == INVALID_DEVICE
    assert client.call("cuDeviceGetAttribute", None, 1, 0) == INVALID_VALUE


def test_properties_are_attributes(client):
    properties = (ctypes.c_int * 14)()
    client.ok("cuDeviceGetProperties", properties, 0)
    numbers = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]
    assert list(properties) == [attribute(client, number)[1] for number in numbers]
    assert client.call("cuDeviceGetProperties", None, 0) == INVALID_VALUE
    assert client.call("cuDeviceGetProperties", properties, NO_DEVICE) == INVALID_DEVICE


def test_compute_capability(client):
    major, minor = ctypes.c_int(), ctypes.c_int()
    client.ok("cuDeviceComputeCapability", ctypes.byref(major), ctypes.byref(minor), 0)
    assert (major.value, minor.value) == (attribute(client, 75)[1], attribute(client, 76)[1])


def bus_identifier(client, size=32):
    text = ctypes.create_string_buffer(b"?" * 32, 32)
    client.ok("cuDeviceGetPCIBusId", text, size, 0)
    return text.value.decode()


def test_bus_identifier(client):
    text = bus_identifier(client)
    domain, bus, place = text.split(":")
    place, function = place.split(".")
    found = [attribute(client, number)[1] for number in (50, 33, 34)]
    assert [int(domain, 16), int(bus, 16), int(place, 16)] == found
    assert function == "0"
    for spelling in (text, text.lower(), text.removesuffix(".0")):
        device = ctypes.c_int(-1)
        client.ok("cuDeviceGetByPCIBusId", ctypes.byref(device), spelling.encode())
        assert device.value == 0


def test_bus_identifier_errors(client):
    text, device = ctypes.create_string_buffer(32), ctypes.c_int()
    assert client.call("cuDeviceGetPCIBusId", None, 32, 0) == INVALID_VALUE
    assert client.call("cuDeviceGetPCIBusId", text, 32, NO_DEVICE) == INVALID_DEVICE
    assert client.call("cuDeviceGetByPCIBusId", None, b"0000:01:00.0") == INVALID_VALUE
    assert client.call("cuDeviceGetByPCIBusId", ctypes.byref(device), None) == INVALID_VALUE
    nowhere = client.call("cuDeviceGetByPCIBusId", ctypes.byref(device), b"0000:fe:1f.0")
    assert nowhere == INVALID_DEVICE


def test_linear_texture_width(client):
    width = ctypes.c_size_t()
    client.ok("cuDeviceGetTexture1DLinearMaxWidth", ctypes.byref(width), 0x20, 1, 0)
    assert width.value >= 1 << 20


def test_affinity_support(client):
    supported = ctypes.c_int(-1)
    client.ok("cuDeviceGetExecAffinitySupport", ctypes.byref(supported), 0, 0)
    assert supported.value in (0, 1)
    client.ok("cuDeviceGetExecAffinitySupport", ctypes.byref(supported), 99, 0)
    assert supported.value == 0
