"""libnvidia-ml.so.1: what programs without cudadrv see of the devices through NVML."""

import ctypes
import re
from pathlib import Path

import pytest

from cudadrv._libcuda import lay_out

ROOT = Path(__file__).resolve().parents[2]
UNINITIALIZED, INVALID, NOT_SUPPORTED, NOT_FOUND, INSUFFICIENT_SIZE, NO_DRIVER = 1, 2, 3, 6, 7, 9
NAME = "cudadrv software device (not a GPU)"

NVML = """
nvml = ctypes.CDLL("libnvidia-ml.so.1")

def ask(name, *arguments, kind=ctypes.c_uint):
    value = kind()
    status = getattr(nvml, name)(*arguments, ctypes.byref(value))
    return status or value.value

def ask_text(name, *arguments, size=96):
    text = ctypes.create_string_buffer(size)
    return getattr(nvml, name)(*arguments, text, size) or text.value.decode()

def device(index):
    return ctypes.c_void_p(ask("nvmlDeviceGetHandleByIndex_v2", index, kind=ctypes.c_void_p))

class Memory(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]

def used(handle):
    memory = Memory()
    assert nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)) == 0
    assert memory.free == memory.total - memory.used
    return memory.used
"""


@pytest.fixture
def program(python):
    def program(text, *options, **changes):
        done = python(f"{NVML}\n{text}", *options, **changes)
        assert done.status == 0, done.err
        return done

    return program


def test_devices(program):
    text = """
print(ask("nvmlDeviceGetCount_v2"))
assert nvml.nvmlInit_v2() == 0
print(ask("nvmlDeviceGetCount_v2"), ask("nvmlSystemGetCudaDriverVersion_v2"))
for index in range(2):
    print(ask_text("nvmlDeviceGetName", device(index)), ask("nvmlDeviceGetIndex", device(index)))
print(ask("nvmlDeviceGetHandleByIndex_v2", 2, kind=ctypes.c_void_p))
print(ask_text("nvmlDeviceGetName", device(0), size=5))
print(ask("nvmlDeviceGetPowerUsage", device(0)), ask("nvmlDeviceGetTemperature", device(0), 0))
print(ask("nvmlDeviceGetIndex", ctypes.c_void_p(64)), nvml.nvmlDeviceGetIndex(device(0), None))
assert nvml.nvmlShutdown() == 0
print(ask("nvmlDeviceGetCount_v2"), ask("nvmlDeviceGetTemperature"), nvml.nvmlShutdown())
"""
    done = program(text, "--devices", "2", "--driver", "13.2")
    assert done.out.splitlines() == [
        f"{UNINITIALIZED}",
        "2 13020",
        f"{NAME} 0",
        f"{NAME} 1",
        f"{INVALID}",
        f"{INSUFFICIENT_SIZE}",
        f"70000 {NOT_SUPPORTED}",
        f"{INVALID} {INVALID}",
        f"{UNINITIALIZED} {UNINITIALIZED} {UNINITIALIZED}",
    ]


def test_it_counts_all_devices_and_tells_which_is_which(program):
    """NVML counts all devices, and finds a device of the driver by its UUID or PCI address.

    CUDA_VISIBLE_DEVICES affects only the driver.
    """
    text = """
assert (nvml.nvmlInit_v2(), cuda.cuInit(0)) == (0, 0)
address = ctypes.create_string_buffer(20)
call("cuDeviceGetPCIBusId", address, 20, 0)
by_address = ask("nvmlDeviceGetHandleByPciBusId_v2", address, kind=ctypes.c_void_p)
uuid = (ctypes.c_ubyte * 16)()
call("cuDeviceGetUuid_v2", uuid, 0)
digits = bytes(uuid).hex()
name = "GPU-" + "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
by_uuid = ask("nvmlDeviceGetHandleByUUID", name.encode(), kind=ctypes.c_void_p)
assert by_address == by_uuid == device(1).value
unknown = ask("nvmlDeviceGetHandleByUUID", b"GPU-0", kind=ctypes.c_void_p)
print(unknown, ask("nvmlDeviceGetCount_v2"))
"""
    done = program(text, "--devices", "3", CUDA_VISIBLE_DEVICES="1")
    assert done.out == f"{NOT_FOUND} 3\n"


def test_structures_of_both_sizes(program):
    """Both PCI structures work: the structure of nvmlDeviceGetPciInfo_v2 is shorter than the later
    one.
    """
    text = """
assert nvml.nvmlInit_v2() == 0
for name, size in (("nvmlDeviceGetPciInfo_v2", 52), ("nvmlDeviceGetPciInfo_v3", 68)):
    room = ctypes.create_string_buffer(b"?" * 80, 80)
    assert getattr(nvml, name)(device(0), room) == 0
    assert room.raw[size:] == b"?" * (80 - size) and b"?" not in room.raw[:size]
    bus = int.from_bytes(room.raw[20:24], "little")
    print(room.raw[:16].rstrip(b"\\0").decode() == f"0000:{bus:02X}:00.0")
"""
    assert program(text).out == "True\nTrue\n"


def test_uuids_as_text_and_as_bytes(program):
    text = """
class Uuid(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint), ("type", ctypes.c_uint), ("value", ctypes.c_char * 44)]

def find(kind, value, version=0x1000034):
    uuid = Uuid(version, kind)
    ctypes.memmove(ctypes.addressof(uuid) + 8, value, len(value))
    return ask("nvmlDeviceGetHandleByUUIDV", ctypes.byref(uuid), kind=ctypes.c_void_p)

nvml.nvmlInit_v2()
name = ask_text("nvmlDeviceGetUUID", device(1))
digits = bytes.fromhex(name[4:].replace("-", ""))
assert find(1, name.encode()) == find(2, digits) == device(1).value
print(find(1, b"GPU-0"), find(2, b"\\0" * 16), find(3, digits), find(1, b"", 1))
"""
    mismatch = 25
    expected = f"{NOT_FOUND} {NOT_FOUND} {INVALID} {mismatch}\n"
    assert program(text, "--devices=2").out == expected


def test_what_follows_from_devices_in_software(program):
    text = """
import os
nvml.nvmlInit_v2()
one, two = device(0), device(1)
names = "Architecture", "ComputeMode", "VirtualizationMode", "MaxMigDeviceCount"
print(*[ask("nvmlDeviceGet" + name, one) for name in names], ask("nvmlUnitGetCount"))
print(*[ask("nvmlDeviceGetP2PStatus", one, two, way) for way in range(6)])
print(ask("nvmlDeviceGetP2PStatus", one, one, 0), nvml.nvmlDeviceSetComputeMode(one, 2))
words = (ctypes.c_ulong * 64)()
for name, scope in (("", ()), ("WithinScope", (0,))):
    assert getattr(nvml, "nvmlDeviceGetCpuAffinity" + name)(one, 64, words, *scope) == 0
    print(sum(word.bit_count() for word in words) == os.cpu_count())
name = ctypes.create_string_buffer(7)
print(nvml.nvmlSystemGetProcessName(os.getpid(), name, 7), len(name.value))
print(nvml.nvmlSystemGetProcessName(2 ** 31 - 1, name, 7))
"""
    done = program(text, "--devices=2")
    hopper, no_permission, no_nvlink = 9, 4, 5
    assert done.out.splitlines() == [
        f"{hopper} 0 0 0 0",
        f"0 0 {no_nvlink} 0 0 {INVALID}",
        f"{INVALID} {no_permission}",
        "True",
        "True",
        "0 6",
        f"{NOT_FOUND}",
    ]


def test_fields_have_a_status_each(program):
    text = """
class Field(ctypes.Structure):
    _fields_ = [
        ("field", ctypes.c_uint), ("scope", ctypes.c_uint), ("times", ctypes.c_longlong * 2),
        ("type", ctypes.c_int), ("status", ctypes.c_int), ("value", ctypes.c_longlong),
    ]

nvml.nvmlInit_v2()
fields = (Field * 2)(Field(91), Field(1))
print(nvml.nvmlDeviceGetFieldValues(device(0), 2, fields), [field.status for field in fields])
print(nvml.nvmlDeviceGetFieldValues(device(0), 0, fields))
"""
    out = f"0 [{NOT_SUPPORTED}, {NOT_SUPPORTED}]\n{INVALID}\n"
    assert program(text).out == out


def test_branch_of_the_driver(program):
    text = """
class Branch(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint), ("branch", ctypes.c_char * 80)]

nvml.nvmlInit_v2()
branch = Branch(0x1000054)
assert nvml.nvmlSystemGetDriverBranch(ctypes.byref(branch), 80) == 0
print(branch.branch.decode())
print(nvml.nvmlSystemGetDriverBranch(ctypes.byref(branch), 2))
print(nvml.nvmlSystemGetDriverBranch(ctypes.byref(Branch(1)), 80))
"""
    assert program(text, "--driver=13.0").out == f"r580_00\n{INSUFFICIENT_SIZE}\n25\n"


@pytest.mark.parametrize(
    ("driver", "branch"),
    [("12.0", 525), ("12.6", 560), ("12.9", 575), ("13.0", 580), ("13.5", 610)],
)
def test_versions_read_like_those_of_drivers(program, driver, branch):
    """Programs refuse old drivers by their version numbers. CUDA 12.0 came with driver 525."""
    text = """
print(ask_text("nvmlSystemGetDriverVersion"))
nvml.nvmlInit_v2()
print(ask_text("nvmlSystemGetDriverVersion"), ask_text("nvmlSystemGetNVMLVersion"))
print(ask_text("nvmlSystemGetDriverVersion", size=3))
"""
    version = f"{branch}.00.00"
    told = f"{UNINITIALIZED}\n{version} {driver[:2]}.{version}\n{INSUFFICIENT_SIZE}\n"
    assert program(text, f"--driver={driver}").out == told


def test_memory_and_utilization(program):
    text = """
class Rates(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]

def rates():
    found = Rates()
    assert nvml.nvmlDeviceGetUtilizationRates(device(0), ctypes.byref(found)) == 0
    return found.gpu, found.memory

nvml.nvmlInit_v2()
print(used(device(0)), rates())
initialise()
memory = allocate(256 << 20)
print(used(device(0)) >> 20, used(device(1)), rates())
call("cuMemsetD8Async", memory, 1, ctypes.c_size_t(1024), stream())
print(rates())
call("cuCtxSynchronize")
print(rates())
"""
    done = program(text, "--devices=2", "--schedule=lazy", "--memory=1GiB")
    assert done.out.splitlines() == ["0 (0, 0)", "256 0 (0, 25)", "(100, 25)", "(0, 25)"]


def test_it_does_not_forbid_forked_children(program):
    """A child that was forked after nvmlInit can use the driver.

    Programs call NVML before a fork, because NVML does not initialise CUDA.
    """
    text = """
import os
nvml.nvmlInit_v2()
assert used(device(0)) == 0
if child := os.fork():
    print(os.waitpid(child, 0)[1])
else:
    initialise()
    os._exit(used(device(0)))
initialise()
if child := os.fork():
    print(os.waitpid(child, 0)[1])
else:
    os._exit(used(device(0)))
"""
    assert program(text).out == "0\n0\n"


def test_every_name_is_exported(program):
    text = (ROOT / "softdriver" / "nvml_names.def").read_text("utf-8")
    names = re.findall(r"^NVML_NAME\((\w+)\)$", text, re.MULTILINE)
    assert len(names) > 300
    call = f"print({{getattr(nvml, name)(0, 0, 0) for name in {names}}})"
    assert program(f"nvml.nvmlInit_v2()\n{call}").out == f"{{{NOT_SUPPORTED}}}\n"


def test_without_a_driver_beside_it(tmp_path):
    lay_out(tmp_path)
    (tmp_path / "libcuda.so.1").unlink()
    nvml = ctypes.CDLL(str(tmp_path / "libnvidia-ml.so.1"))
    assert nvml.nvmlInit_v2() == NO_DRIVER


def test_another_nvml_is_left_alone(tmp_path):
    (tmp_path / "libnvidia-ml.so.1").write_bytes(b"somebody's")
    with pytest.raises(FileExistsError, match=r"libnvidia-ml\.so\.1 exists and is another library"):
        lay_out(tmp_path)
