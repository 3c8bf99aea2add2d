"""Devices: ordinals, names, identifiers, primary contexts."""

import ctypes

from driver import INT, OUT
from section import INITIALISED, Section

section = Section("devices", setup=INITIALISED)
question = section.question

section.calls("""
    count null | cuDeviceGetCount 0
    device 0 | cuDeviceGet out, 0
    device -1 | cuDeviceGet out, -1
    device 99 | cuDeviceGet out, 99
    device null | cuDeviceGet 0, 0
    device null of 99 | cuDeviceGet 0, 99
    name null | cuDeviceGetName 0, 100, 0
    name of 99 | cuDeviceGetName out, 8, 99
    name null of 99 | cuDeviceGetName 0, 8, 99
    name length 0 | cuDeviceGetName out, 0, 0
    name length -1 | cuDeviceGetName out, -1, 0
    memory null | cuDeviceTotalMem_v2 0, 0
    memory of 99 | cuDeviceTotalMem_v2 out, 99
    memory null of 99 | cuDeviceTotalMem_v2 0, 99
    attribute null | cuDeviceGetAttribute 0, 1, 0
    attribute 0 | cuDeviceGetAttribute out, 0, 0
    attribute -1 | cuDeviceGetAttribute out, -1, 0
    attribute 10000 | cuDeviceGetAttribute out, 10000, 0
    attribute of 99 | cuDeviceGetAttribute out, 1, 99
    attribute 0 of 99 | cuDeviceGetAttribute out, 0, 99
    attribute null of 99 | cuDeviceGetAttribute 0, 1, 99
    uuid null | cuDeviceGetUuid 0, 0
    uuid null, second version | cuDeviceGetUuid_v2 0, 0
    uuid of 99 | cuDeviceGetUuid_v2 p.pageable(), 99
    luid | cuDeviceGetLuid p.cell(), p.cell(), 0
    capability null | cuDeviceComputeCapability 0, 0, 0
    capability of 99 | cuDeviceComputeCapability out, p.cell(), 99
    properties null | cuDeviceGetProperties 0, 0
    bus id null | cuDeviceGetPCIBusId 0, 20, 0
    bus id of 99 | cuDeviceGetPCIBusId out, 20, 99
    by bus id null | cuDeviceGetByPCIBusId out, 0
    by bus id, null out | cuDeviceGetByPCIBusId 0, b"0000:00:00.0"
    by bus id nonsense | cuDeviceGetByPCIBusId out, b"nonsense"
    by bus id empty | cuDeviceGetByPCIBusId out, b""
    by bus id absent | cuDeviceGetByPCIBusId out, b"ffff:fe:1f.7"
    exec affinity null | cuDeviceGetExecAffinitySupport 0, 0, 0
    exec affinity of 99 | cuDeviceGetExecAffinitySupport out, 0, 99
    exec affinity kind 9 | cuDeviceGetExecAffinitySupport out, 9, 0
    primary retain null | cuDevicePrimaryCtxRetain 0, 0
    primary retain of 99 | cuDevicePrimaryCtxRetain out, 99
    primary retain null of 99 | cuDevicePrimaryCtxRetain 0, 99
    primary state of 99 | cuDevicePrimaryCtxGetState 99, out, p.cell()
    primary state null flags | cuDevicePrimaryCtxGetState 0, 0, out
    primary state null active | cuDevicePrimaryCtxGetState 0, out, 0
    primary state nulls | cuDevicePrimaryCtxGetState 0, 0, 0
    primary release never retained | cuDevicePrimaryCtxRelease_v2 0
    primary release of 99 | cuDevicePrimaryCtxRelease_v2 99
    primary reset never retained | cuDevicePrimaryCtxReset_v2 0
    primary reset of 99 | cuDevicePrimaryCtxReset_v2 99
    primary flags of 99 | cuDevicePrimaryCtxSetFlags_v2 99, 0
    primary flags 1 and 2 | cuDevicePrimaryCtxSetFlags_v2 0, 3
    primary flags 3 | cuDevicePrimaryCtxSetFlags_v2 0, 0x100
    primary flags all | cuDevicePrimaryCtxSetFlags_v2 0, -1
    flush writes without context | cuFlushGPUDirectRDMAWrites 0, 100
""")


@question("compute capability is that of the attributes")
def _(p):
    found = p.get("cuDeviceComputeCapability", INT, INT, 0)
    return found == tuple(p.get("cuDeviceGetAttribute", INT, n, 0) for n in (75, 76))


@question("name cut at 5")
def _(p):
    text = ctypes.create_string_buffer(b"x" * 300, 300)
    status = p("cuDeviceGetName", text, 5, 0)
    return status, len(text.value), text.raw[5:6]


@question("name length 1")
def _(p):
    text = ctypes.create_string_buffer(b"xyz", 300)
    return p("cuDeviceGetName", text, 1, 0), text.value


@question("name is filled with zeros")
def _(p):
    text = ctypes.create_string_buffer(b"x" * 300, 300)
    p("cuDeviceGetName", text, 300, 0)
    return text.raw[len(text.value) :].strip(b"\0") == b""


def _uuid(p, function):
    text = ctypes.create_string_buffer(16)
    return p(function, text, 0), text.raw


@question("uuids of both versions are the same")
def _(p):
    return _uuid(p, "cuDeviceGetUuid") == _uuid(p, "cuDeviceGetUuid_v2")


@question("uuid is not zero")
def _(p):
    return _uuid(p, "cuDeviceGetUuid_v2")[1] != bytes(16)


def _bus_id(p, length=20):
    text = ctypes.create_string_buffer(b"x" * 32, 32)
    return p("cuDeviceGetPCIBusId", text, length, 0), text.value.decode()


@question("bus id leads back")
def _(p):
    status, text = _bus_id(p)
    return status, p.get("cuDeviceGetByPCIBusId", INT, text.encode())


@question("bus id shape")
def _(p):
    return "".join("d" if c in "0123456789abcdefABCDEF" else c for c in _bus_id(p)[1])


@question("bus id is that of the attributes")
def _(p):
    numbers = [p.get("cuDeviceGetAttribute", INT, n, 0) for n in (50, 33, 34)]
    return _bus_id(p)[1].lower() == "{:04x}:{:02x}:{:02x}.0".format(*numbers)


for length in (0, 1, 5, 12, 13, 14):
    section.ask(
        f"bus id in {length}",
        lambda p, length=length: (
            (found := _bus_id(p, length))[0],
            len(found[1]) if found[1][:1] != "x" else "untouched",
        ),
    )


@question("by bus id without domain")
def _(p):
    return p("cuDeviceGetByPCIBusId", p.cell(), _bus_id(p)[1][5:].encode())


@question("by bus id in upper and lower case")
def _(p):
    text = _bus_id(p)[1]
    return [p("cuDeviceGetByPCIBusId", p.cell(), t.encode()) for t in (text.upper(), text.lower())]


@question("by bus id without function")
def _(p):
    return p("cuDeviceGetByPCIBusId", p.cell(), _bus_id(p)[1][:-2].encode())


@question("exec affinity support")
def _(p):
    return p.get("cuDeviceGetExecAffinitySupport", INT, 0, 0)


@question("total memory is what a context sees", setup="current")
def _(p):
    return p.get("cuDeviceTotalMem_v2", OUT, 0) == p.get("cuMemGetInfo_v2", OUT, OUT)[1]
