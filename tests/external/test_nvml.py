"""nvidia-ml-py: the devices through NVML."""

import pynvml
import pytest


@pytest.fixture
def nvml(library):
    pynvml.nvmlInit()
    yield pynvml
    pynvml.nvmlShutdown()


def test_devices(nvml, library):
    assert nvml.nvmlDeviceGetCount() == 2
    assert nvml.nvmlSystemGetCudaDriverVersion() == 13000
    for index in range(2):
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        assert nvml.nvmlDeviceGetName(handle) == "cudadrv software device (not a GPU)"
        assert nvml.nvmlDeviceGetIndex(handle) == index
        uuid, pci = nvml.nvmlDeviceGetUUID(handle), nvml.nvmlDeviceGetPciInfo(handle)
        for same in (
            nvml.nvmlDeviceGetHandleByUUID(uuid),
            nvml.nvmlDeviceGetHandleByUUID(uuid.removeprefix("GPU-")),  # as in cuda.core
            nvml.nvmlDeviceGetHandleByPciBusId(pci.busId),
        ):
            assert nvml.nvmlDeviceGetIndex(same) == index
        assert (pci.domain, pci.bus, pci.device) == (0, index + 1, 0)
        assert nvml.nvmlDeviceGetCudaComputeCapability(handle) == (9, 0)
        assert nvml.nvmlDeviceGetPowerUsage(handle) == 70000
        assert nvml.nvmlDeviceGetUtilizationRates(handle).gpu == 0


def test_memory(nvml, library, device):
    from cuda.bindings import driver

    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    before = nvml.nvmlDeviceGetMemoryInfo(handle)
    assert before.total == 64 << 20
    status, address = driver.cuMemAlloc(1 << 20)
    assert status == 0
    after = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
    assert after.used == before.used + (1 << 20) == after.total - after.free
    driver.cuMemFree(address)


def test_what_is_not_supported(nvml):
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    for call in (
        lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
        lambda: nvml.nvmlDeviceGetFanSpeed(handle),
        lambda: nvml.nvmlDeviceGetMigMode(handle),
        lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle),
    ):
        with pytest.raises(nvml.NVMLError_NotSupported):
            call()
    with pytest.raises(nvml.NVMLError_InvalidArgument):
        nvml.nvmlDeviceGetHandleByIndex(2)


def test_cuda_bindings_finds_it(library):
    from cuda.bindings import nvml

    nvml.init_v2()
    one, two = (nvml.device_get_handle_by_index_v2(index) for index in range(2))
    assert nvml.device_get_architecture(one) == nvml.DeviceArch.HOPPER
    uuid = nvml.device_get_uuid(two).encode()
    assert nvml.device_get_handle_by_uuidv(nvml.UUIDType.ASCII, uuid) == two
    [value] = nvml.device_get_field_values(one, [nvml.FieldId.DEV_NVLINK_LINK_COUNT])
    assert value.nvml_return == nvml.Return.ERROR_NOT_SUPPORTED
    way = nvml.GpuP2PCapsIndex.P2P_CAPS_INDEX_WRITE
    assert nvml.device_get_p2p_status(one, two, way) == nvml.GpuP2PStatus.P2P_STATUS_OK
    branch = nvml.system_get_driver_version().partition(".")[0]
    assert nvml.system_get_driver_branch() == f"r{branch}_00"
    nvml.shutdown()


def test_cuda_core_finds_it():
    from cuda.core import system

    assert system.get_num_devices() == 2
