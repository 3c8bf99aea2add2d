"""checks=race: textures, which may miss what the launch has written, and surfaces."""

import ctypes

import numpy as np
import pytest

import cudadrv as cu
from cudadrv import testing

from .programs import modes

pytestmark = [
    pytest.mark.cuda_software,
    pytest.mark.parametrize("cuda_schedule", ["eager"], indirect=True),
    pytest.mark.cuda_allow("hazards"),
]

ARRAY, LINEAR = 0, 2  # CUresourcetype
UINT32 = 3  # CUarray_format
ITEMS = 64
# %rd1 is the address of the buffer, %rd3 that of the thread's word, %rd2 the texture or surface.
TEXT = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out, .param .u64 object)
{{
    .reg .pred %p<4>; .reg .b32 %r<16>; .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [out]; ld.param.u64 %rd2, [object]; mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd3, %r1, 4; add.u64 %rd3, %rd1, %rd3; xor.b32 %r2, %r1, 32; shl.b32 %r3, %r1, 2;
    shl.b32 %r4, %r2, 2;
    {body}
    ret;
}}
"""
FETCH = "tex.1d.v4.u32.s32 {%r5, %r6, %r7, %r8}, [%rd2, {%r1}];"
PUT, GET = "sust.b.1d.b32.trap [%rd2, {%r3}], {%r1};", "suld.b.1d.b32.trap {%r5}, [%rd2, {%r4}];"


class Resource(ctypes.Structure):
    """CUDA_RESOURCE_DESC; `words` is its union."""

    _fields_ = [
        ("kind", ctypes.c_int),
        ("words", ctypes.c_uint64 * 16),
        ("flags", ctypes.c_uint),
    ]


class Array(ctypes.Structure):
    """CUDA_ARRAY_DESCRIPTOR"""

    _fields_ = [
        ("width", ctypes.c_size_t),
        ("height", ctypes.c_size_t),
        ("format", ctypes.c_int),
        ("channels", ctypes.c_uint),
    ]


@pytest.fixture
def driver(cuda_device):
    with cuda_device:
        yield ctypes.CDLL(cu.driver_info().path)


def run(body, out, handle):
    testing.forget_hazards()
    with (
        testing.configured("checks=race"),
        cu.Module(TEXT.format(body=body)) as module,
        cu.Stream() as stream,
    ):
        module["k"].launch(1, ITEMS, out, handle, stream=stream)
        stream.synchronize()
    return testing.hazards(benign=True)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (FETCH, []),
        (f"{FETCH} st.global.u32 [%rd3], %r1;", []),
        (f"st.global.u32 [%rd3], %r1; {FETCH}", ["read write"]),
        (f"st.global.u32 [%rd3], %r1; bar.sync 0; {FETCH}", ["read write"]),
        (f"st.global.u32 [%rd3+256], %r1; bar.sync 0; {FETCH}", []),
    ],
)
def test_textures(driver, body, expected):
    out = cu.DeviceBuffer.zeros(2 * ITEMS, np.uint32, name="out")
    handle = ctypes.c_uint64()
    words = (out.address, UINT32 | 1 << 32, 4 * ITEMS)
    reading = ctypes.create_string_buffer(128)
    assert not driver.cuTexObjectCreate(
        ctypes.byref(handle), ctypes.byref(Resource(LINEAR, words)), reading, None
    )
    found = run(body, out, np.uint64(handle.value))
    assert not driver.cuTexObjectDestroy(handle)
    assert modes(found) == expected
    assert all("may miss what the same launch has written" in hazard.text for hazard in found)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (PUT, []),
        (GET, []),
        (f"{PUT} bar.sync 0; {GET}", ["read write"]),
        (PUT.replace("%r3", "%r4") + PUT, ["write write"]),
        ("mov.u32 %r3, 0;" + PUT, ["write write"]),
    ],
)
def test_surfaces(driver, body, expected):
    array, handle = ctypes.c_void_p(), ctypes.c_uint64()
    shape = Array(ITEMS, 0, UINT32, 1)
    assert not driver.cuArrayCreate_v2(ctypes.byref(array), ctypes.byref(shape))
    resource = Resource(ARRAY, (array.value,))
    assert not driver.cuSurfObjectCreate(ctypes.byref(handle), ctypes.byref(resource))
    found = run(body, cu.DeviceBuffer.zeros(1, np.uint32), np.uint64(handle.value))
    assert not driver.cuSurfObjectDestroy(handle)
    assert not driver.cuArrayDestroy(array)
    assert modes(found) == expected
