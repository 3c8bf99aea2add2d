"""Work that has not run when a run ends: in another order it runs before other work."""

import ctypes

import pytest

import cudadrv as cu
from cudadrv import testing
from cudadrv._explore import Verdict, explore
from tests.explore.calls import Calls
from tests.explore.test_host_uses import explored

pytestmark = [
    pytest.mark.cuda_software,
    pytest.mark.parametrize("cuda_schedule", ["lazy"], indirect=True),
]

KERNEL = '''
TEXT = b""".version 7.8
.target sm_75
.address_size 64
.visible .entry stores(.param .u64 at)
{
    .reg .b64 %rd1;
    ld.param.u64 %rd1, [at]; st.global.u8 [%rd1], 9;
    ret;
}
"""
kernel = address("cuModuleGetFunction", address("cuModuleLoadData", TEXT), b"stores")
def launch(memory):
    cells = (ctypes.c_void_p * 1)(ctypes.addressof(memory))
    call("cuLaunchKernel", kernel, 1, 1, 1, 1, 1, 1, 0, stream, cells, None)
'''
VALUES = """
flag, eight = address("cuMemAlloc_v2", ctypes.c_size_t(8)), ctypes.c_size_t(8)
fill(flag, 0, 8)
wait()
def wait_for(value):
    call("cuStreamWaitValue64_v2", stream, flag, ctypes.c_uint64(value), 1)
def write(value):
    call("cuStreamWriteValue64_v2", other, flag, ctypes.c_uint64(value), 0)
"""
FUNCTION = """
seen = []
function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: seen.append(1))
"""
LOOKS = "copy(host, device, 4, other)\nwait(other)\nassert view[0] == 7\n"
LEFT = {
    "a fill": f"fill(device, 9, 4)\n{LOOKS}",
    "a kernel": f"{KERNEL}launch(device)\n{LOOKS}",
    "work behind a value that is gone": (
        f"{VALUES}write(1)\nwait_for(0)\nfill(device, 9, 4)\n{LOOKS}"
    ),
    "a kernel behind a value that is gone": (
        f"{KERNEL}{VALUES}write(1)\nwait_for(0)\nlaunch(device)\n{LOOKS}"
    ),
    "a host function": (
        f"{FUNCTION}call('cuLaunchHostFunc', stream, function, None)\n"
        "fill(device, 9, 4, other)\nwait(other)\nassert not seen\n"
    ),
    "what a query asks for": "fill(device, 9, 4)\nassert call('cuStreamQuery', stream) == 600\n",
}


@pytest.mark.parametrize("case", LEFT)
def test_what_comes_before_other_work(tmp_path, case):
    done = explored(tmp_path, LEFT[case])
    assert done.returncode == 1
    assert "schedules, and one of them fails" in done.stderr, done.stderr


@pytest.mark.parametrize(
    "code",
    [
        f"later = ctypes.c_uint64(device.value + 8)\nfill(later, 9, 4)\n{LOOKS}",
        f"{KERNEL}launch(device)\n",
        f"{VALUES}write(1)\nwait(other)\nwait_for(2)\nfill(device, 9, 4)\n{LOOKS}",
    ],
    ids=["a fill", "a kernel", "work behind a value that never comes"],
)
def test_what_changes_nothing(tmp_path, code):
    assert "1 schedule: complete" in explored(tmp_path, code).stderr


def test_what_a_function_leaves_behind(cuda_device):
    """The stream waits for a value that is gone, unless it is the first."""
    seen = set()

    def program():
        testing.reset_device()  # without the work that the last run has left behind
        driver, found = Calls([]), (ctypes.c_ubyte * 1)()
        with cu.Device(0):
            one, other = (driver._make("cuStreamCreate", 1) for _ in range(2))
            flag, byte = ctypes.c_uint64(), ctypes.c_uint64()
            for memory in (flag, byte):
                driver._call("cuMemAlloc_v2", ctypes.byref(memory), 8)
                driver._call("cuMemsetD8_v2", memory, 0, 8)
            driver._call("cuCtxSynchronize")
            driver._call("cuStreamWriteValue64_v2", other, flag, ctypes.c_uint64(1), 0)
            driver._call("cuStreamWaitValue64_v2", one, flag, ctypes.c_uint64(0), 1)
            driver._call("cuMemsetD8Async", byte, 9, 1, one)
            driver._call("cuMemcpyDtoHAsync_v2", found, byte, ctypes.c_size_t(1), other)
            driver._call("cuStreamSynchronize", other)
        seen.add(found[0])

    try:
        assert explore(program, lambda _: Verdict.PASSED, saves=False).complete
        assert seen == {0, 9}
    finally:
        testing.reset_device()  # or the fixture waits for the work that is left
