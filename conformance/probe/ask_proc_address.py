"""cuGetProcAddress: which exported function it returns for each name at several versions."""

import ctypes
from pathlib import Path

from section import NOTHING, Section

section = Section("proc_address", setup=NOTHING)
question = section.question

NAMES = Path(__file__).with_name("names.txt").read_text(encoding="utf-8").split()
RESULTS = {0: "", 1: "not found", 2: "version too low"}
SUFFIXES = ["", *(f"_v{n}" for n in range(2, 8))]
SUFFIXES = [base + variant for base in SUFFIXES for variant in ("", "_ptsz", "_ptds")]


def _look_up(p, name, version, flags=0):
    """The name of the exported function that is found, or why none is found."""
    address, result = ctypes.c_void_p(), ctypes.c_int(-1)
    refs = ctypes.byref(address), ctypes.byref(result)
    status = p("cuGetProcAddress_v2", name.encode(), refs[0], version, flags, refs[1])
    if status != "SUCCESS" or not address.value:
        reason = RESULTS.get(result.value, f"result {result.value}")
        return ", ".join(filter(None, (status, reason, "an address" if address.value else "")))
    for suffix in SUFFIXES:
        if p.library.address(name + suffix) == address.value:
            return name + suffix
    return "a function that is not exported"


def _every(p, name, flags=0):
    found = {}
    for version in (4000, 10000, 11000, 11040, 12000, 12080, 13000):
        found.setdefault(_look_up(p, name, version, flags), version)
    return ", ".join(
        answer.removeprefix("SUCCESS, ") + f" from {version}" for answer, version in found.items()
    )


for name in NAMES:
    section.ask(name, lambda p, name=name: _every(p, name))

for name in NAMES:
    if name.startswith(("cuMemcpy", "cuMemset", "cuStream", "cuEventRecord", "cuLaunch", "cuMemP")):
        section.ask(f"{name}, per-thread", lambda p, name=name: _every(p, name, 2))

for name in NAMES:
    section.ask(f"{name} is exported", lambda p, name=name: _exported(p, name))


def _exported(p, name):
    return [suffix or "plain" for suffix in SUFFIXES if p.library.has(name + suffix)]


section.calls("""
    null name | cuGetProcAddress_v2 0, out, 12000, 0, p.cell()
    null address | cuGetProcAddress_v2 b"cuInit", 0, 12000, 0, p.cell()
    null result | cuGetProcAddress_v2 b"cuInit", out, 12000, 0, 0
    null name, null address | cuGetProcAddress_v2 0, 0, 12000, 0, 0
    empty name | cuGetProcAddress_v2 b"", out, 12000, 0, p.cell()
    unknown name | cuGetProcAddress_v2 b"cuNoSuchFunction", out, 12000, 0, p.cell()
    unknown name, null result | cuGetProcAddress_v2 b"cuNoSuchFunction", out, 12000, 0, 0
    version too low, null result | cuGetProcAddress_v2 b"cuMemAlloc", out, 1000, 0, 0
    not of CUDA | cuGetProcAddress_v2 b"printf", out, 12000, 0, p.cell()
    lower case | cuGetProcAddress_v2 b"cuinit", out, 12000, 0, p.cell()
    flags 4 | cuGetProcAddress_v2 b"cuInit", out, 12000, 4, p.cell()
    flags 3 | cuGetProcAddress_v2 b"cuInit", out, 12000, 3, p.cell()
    flags -1 | cuGetProcAddress_v2 b"cuInit", out, 12000, -1, p.cell()
    unknown name, flags 4 | cuGetProcAddress_v2 b"cuNoSuchFunction", out, 12000, 4, p.cell()
    first version | cuGetProcAddress b"cuInit", out, 12000, 0
    first version, unknown name | cuGetProcAddress b"cuNoSuchFunction", out, 12000, 0
    first version, version too low | cuGetProcAddress b"cuMemAlloc", out, 1000, 0
    first version, null | cuGetProcAddress 0, out, 12000, 0
    first version, flags 4 | cuGetProcAddress b"cuInit", out, 12000, 4
    export table null | cuGetExportTable out, 0
""")

for name in ("cuMemAlloc", "cuMemcpyHtoDAsync", "cuStreamQuery", "cuGetProcAddress", "cuInit"):
    for version in (0, -1, 1000, 2000, 3000, 3020, 12999, 13000, 13010, 14000, 99999):
        section.ask(f"{name} at version {version}", lambda p, n=name, v=version: _look_up(p, n, v))
    for flags in (1, 2, 3, 4):
        section.ask(
            f"{name} with flags {flags}", lambda p, n=name, f=flags: _look_up(p, n, 12000, f)
        )

for name in (
    "cuMemAlloc_v2", "cuMemcpyHtoD_v2_ptds", "cuStreamQuery_ptsz", "cuStreamBeginCapture_v2",
    "cuGetProcAddress_v2", "cuNoSuchFunction", "", "cuDeviceGetUuid_v2", "cuCtxCreate_v4",
):  # fmt: skip
    section.ask(f"suffixed name {name!r}", lambda p, name=name: _look_up(p, name, 13000))


@question("what a failure writes")
def _(p):
    address, result = ctypes.c_void_p(77), ctypes.c_int(77)
    refs = ctypes.byref(address), ctypes.byref(result)
    found = []
    for name, version, flags in ((b"cuNoSuchFunction", 12000, 0), (b"cuInit", 12000, 4)):
        address.value = result.value = 77
        found.append(p("cuGetProcAddress_v2", name, refs[0], version, flags, refs[1]))
        found.append("null" if not address.value else address.value)
        found.append(result.value)
    return found


@question("what is found can be called")
def _(p):
    address = ctypes.c_void_p()
    p("cuGetProcAddress_v2", b"cuDriverGetVersion", ctypes.byref(address), 12000, 0, 0)
    version = ctypes.c_int()
    function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(address.value)
    return p.library.name(function(ctypes.addressof(version))), version.value
