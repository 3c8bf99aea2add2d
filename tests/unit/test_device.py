"""Device: ordinals, properties, and ``with device:``."""

import uuid

import pytest

import cudadrv as cu

pytestmark = pytest.mark.usefixtures("driver")


@pytest.mark.parametrize("ordinal", [-1, 1 << 40, cu.Device.count])
def test_an_ordinal_that_is_not_there(ordinal):
    wanted = ordinal() if callable(ordinal) else ordinal
    with pytest.raises(
        ValueError, match=f"there is no device {wanted}: this machine has .* from 0"
    ):
        cu.Device(wanted)


@pytest.mark.parametrize("ordinal", ["0", 0.0])
def test_an_ordinal_is_an_integer(ordinal):
    with pytest.raises(TypeError):
        cu.Device(ordinal)


def test_devices_are_their_ordinals():
    assert cu.Device(0) == cu.Device()
    assert hash(cu.Device(0)) == hash(cu.Device())
    assert cu.Device(0) != 0
    assert cu.Device(0).ordinal == 0
    assert cu.Device(0).context is cu.Device(0).context


def test_what_it_says_of_itself():
    device = cu.Device(0)
    major, minor = device.compute_capability
    assert major >= 3
    assert minor == device.attribute("compute_capability_minor")
    assert device.total_memory > 1 << 20
    assert isinstance(device.uuid, uuid.UUID)
    assert device.uuid == cu.Device(0).uuid
    assert device.name
    assert device.name in repr(device)


def test_attributes_go_by_their_name_in_the_header():
    device = cu.Device(0)
    assert device.attribute("warp_size") == 32
    assert device.attribute("CU_DEVICE_ATTRIBUTE_WARP_SIZE") == 32


def test_a_near_match_is_named():
    with pytest.raises(
        ValueError, match=r"no device attribute 'warpsize'.*did you mean 'warp_size'"
    ):
        cu.Device(0).attribute("warpsize")
    with pytest.raises(TypeError):
        cu.Device(0).attribute(10)


def test_unknown_attributes_make_no_call(driver, unchanged):
    if driver == "cuda":
        pytest.skip("counts calls")
    device = cu.Device(0)
    with unchanged("cuDeviceGetAttribute"), pytest.raises(ValueError):
        device.attribute("size_of_warp")


@pytest.mark.parametrize("make", [cu.Stream, cu.Event])
def test_device_arguments_are_devices(make):
    assert make(device=cu.Device(0)).context is cu.Device(0).context
    with pytest.raises(TypeError, match=r"a Device, not int; for example cudadrv\.Device\(0\)"):
        make(device=0)


def test_all_devices():
    devices = cu.Device.all()
    assert len(devices) == cu.Device.count()
    assert [device.ordinal for device in devices] == list(range(len(devices)))


def test_the_current_device():
    assert cu.Device.current() == cu.Device() == cu.Device(0)
    for device in cu.Device.all():
        with device:
            assert cu.Device.current() == cu.Device() == cu.Device(None) == device
            with cu.Device(0).context:
                assert cu.Device.current() == cu.Device(0)
            assert cu.Device() == device
    assert cu.Device() == cu.Device(0)


def test_the_current_device_needs_no_context(script):
    script.quiet(
        """
import cudadrv as cu
from cudadrv._engine import books
assert cu.Device.current() == cu.Device.all()[0]
assert books()["contexts"] == 0
"""
    )


def test_memory_info(unpooled):
    device = cu.Device(0)
    for _ in range(5):  # other processes may free memory of the GPU in the meantime
        before, total = device.memory_info()
        assert 0 < before <= total <= device.total_memory
        kept = cu.DeviceBuffer(512 << 20, pooled=False)
        free, same = device.memory_info()
        kept.close()
        assert same == total
        if free <= before - (256 << 20):
            return
    raise AssertionError(f"{before} bytes were free, and then {free}")


def test_where_it_is():
    found = {device.pci_bus_id for device in cu.Device.all()}
    assert len(found) == cu.Device.count()
    for name in found:
        domain, bus, rest = name.split(":")
        slot, function = rest.split(".")
        for part in (domain, bus, slot, function):
            int(part, 16)
