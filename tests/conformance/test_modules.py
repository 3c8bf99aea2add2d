"""Modules, libraries and links: what the conformance probe does not ask, or cannot show."""

import base64
import ctypes
import struct

import pytest

from .client import INVALID_HANDLE, INVALID_VALUE
from .kernels import COUNT, FILL, HEAD, TEXT, VARIABLES

NOT_FOUND = 500
INVALID_IMAGE, INVALID_PTX = 200, 218
ERROR_LOG, ERROR_LOG_SIZE = 5, 6

WRONG = HEAD + b".visible .entry k()\n{\n    .reg .b32 %r<2>;\n    frobnicate.u32 %r0, %r1;\n}\n"


def test_kernels_are_found_by_name(client):
    module = client.module(TEXT)
    one, other = client.function(module, "fill"), client.function(module, "saxpy")
    assert one != other
    assert client.function(module, "fill") == one
    found = ctypes.c_void_p()
    assert client.call("cuModuleGetFunction", ctypes.byref(found), module, b"Fill") == NOT_FOUND


# extern "C" __global__ void twice(unsigned *x) { x[threadIdx.x] *= 2; }
# as nvcc 13.0 -fatbin -gencode=arch=compute_75,code=compute_75 compresses it: with Zstandard.
COMPRESSED = base64.b64decode(
    """
    UO1VugEAEABIAQAAAAAAAAEAAQFQAAAA+AAAAAAAAADyAAAAQAAAAAAACQBLAAAAAAAAAAAAAAARgAAAAAAAAAAAAA
    AAAAAAcwEAAAAAAABIAAAAAAAAAAAAAAAAAAAAKLUv/WBzAEUHAEJNKiJQaZwDGFnRT3l+LEmLReJ2LGamhiprbvBt
    k3d+TlWdKZ4FAP/Cv7Hfd4nwm6RSXAH8KhKplF0WVGb2XWrh5tZQJ0HfA+UWj1SJpFMEfZXimBO5R6OoLE6LryKRKu
    F3sPu/CMOB35GLWcQ6vCOVxdF8+ukVLnCkaRYjaULsMQN9QC9aIybCi4zWbOc02BaTndBgA2E/ZqY3DDQQzNjPY1GP
    KEEyogZfT/oZKEACIiiMDxAgS6vpAXBkMMvNOzijpKa84GQBxLEBcfcAH/LYD2nv2XiLLKfsEEA0NRaUBexvEqqAih
    AAAAAAAAA=
    """
)


def test_a_fatbin_as_nvcc_compresses_it(client):
    values = client.device(16)
    client.write(values, struct.pack("4I", 1, 2, 3, 4))
    function = client.function(client.module(COMPRESSED), "twice")
    assert client.launch(function, None, ctypes.c_uint64(values), block=4) == 0
    client.ok("cuCtxSynchronize")
    assert struct.unpack("4I", client.read(values, 16)) == (2, 4, 6, 8)


def test_a_compressed_fatbin_that_is_damaged(software):
    module = ctypes.c_void_p()
    for place in range(96, 338):  # from the magic number of the Zstandard frame to its last byte
        damaged = COMPRESSED[:place] + bytes([COMPRESSED[place] ^ 0x55]) + COMPRESSED[place + 1 :]
        status = software("cuModuleLoadData", ctypes.byref(module), damaged)
        assert status in (0, INVALID_IMAGE, INVALID_PTX)  # the frame may contain another text now
        if status == 0:
            software.ok("cuModuleUnload", module)


def test_variables_have_their_first_values_and_are_copied_to(client):
    module = client.module(TEXT)
    address, size = client.variable(module, "counter")
    assert size == 4
    assert client.read(address, 4) == (5).to_bytes(4, "little")
    table, size = client.variable(module, "table")
    assert size == 16
    assert client.read(table, 16) == b"".join(i.to_bytes(4, "little") for i in (1, 2, 3, 4))
    client.write(address, b"abcd")
    assert client.read(address, 4) == b"abcd"


def test_a_managed_variable_is_the_hosts_too(client):
    module = client.module(TEXT)
    address, _ = client.variable(module, "common")
    word = ctypes.c_uint32.from_address(address)
    assert word.value == 9
    word.value = 10
    assert client.read(address, 4) == (10).to_bytes(4, "little")


def test_variables_are_no_allocations_of_the_program(client):
    module = client.module(TEXT)
    address, _ = client.variable(module, "counter")
    assert client.call("cuMemFree_v2", address) == INVALID_VALUE
    client.forget("cuModuleUnload", module)
    client.ok("cuModuleUnload", module)
    assert client.call("cuMemsetD8_v2", address, 1, 4) == INVALID_VALUE


def test_each_module_has_its_own_variables(client):
    one, other = client.module(TEXT), client.module(TEXT)
    assert client.launch(client.function(one, "count"), None, block=32) == 0
    values = [client.read(client.variable(module, "counter")[0], 4) for module in (one, other)]
    assert values == [(37).to_bytes(4, "little"), (5).to_bytes(4, "little")]


def test_the_error_log_names_line_and_opcode(client):
    log = ctypes.create_string_buffer(4096)
    names = (ctypes.c_int * 2)(ERROR_LOG, ERROR_LOG_SIZE)
    values = (ctypes.c_void_p * 2)(ctypes.addressof(log), 4096)
    module = ctypes.c_void_p()
    arguments = ctypes.byref(module), WRONG, 2, names, values
    assert client.call("cuModuleLoadDataEx", *arguments) == INVALID_PTX
    assert b"line 7" in log.value
    assert b"frobnicate" in log.value
    assert values[1] == len(log.value)


@pytest.mark.cuda_software
def test_modules_go_with_their_context(client, software):
    context = ctypes.c_void_p()
    client.ok("cuCtxCreate_v2", ctypes.byref(context), 0, 0)
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    client.ok("cuModuleLoadData", ctypes.byref(module), TEXT)
    client.ok("cuModuleGetFunction", ctypes.byref(function), module, b"fill")
    client.ok("cuCtxDestroy_v2", context)
    client.ok("cuCtxSetCurrent", software.primary)
    assert client.call("cuModuleUnload", module) == INVALID_HANDLE
    assert client.launch(function, None, 0, ctypes.c_uint32(0), ctypes.c_uint32(0)) != 0
    assert software.count("modules") == 0


def load_library(client, text):
    library = ctypes.c_void_p()
    client.ok("cuLibraryLoadData", ctypes.byref(library), text, *[None] * 5, 0)
    return library


def test_a_librarys_kernel_is_launched_like_a_function(client):
    library, kernel = load_library(client, HEAD + FILL), ctypes.c_void_p()
    client.ok("cuLibraryGetKernel", ctypes.byref(kernel), library, b"fill")
    target = client.device(16)
    assert client.launch(kernel, None, target, ctypes.c_uint32(4), ctypes.c_uint32(7), block=4) == 0
    assert client.read(target, 16) == bytes([7, 0, 0, 0]) * 4
    client.ok("cuLibraryUnload", library)


def test_a_library_cannot_be_unloaded_twice(client, software):
    """The second cuLibraryUnload is refused. A real driver crashes."""
    library = load_library(client, HEAD + FILL)
    client.ok("cuLibraryUnload", library)
    assert client.call("cuLibraryUnload", library) == INVALID_HANDLE


def test_a_library_is_loaded_into_each_context(client, lib):
    library = load_library(client, HEAD + VARIABLES + COUNT)
    addresses, context = [], ctypes.c_void_p()
    for _ in range(2):
        address, size = ctypes.c_uint64(), ctypes.c_size_t()
        places = ctypes.byref(address), ctypes.byref(size)
        client.ok("cuLibraryGetGlobal", *places, library, b"counter")
        addresses.append(address.value)
        if not context:
            client.ok("cuCtxCreate_v2", ctypes.byref(context), 0, 0)
    assert addresses[0] != addresses[1]
    client.ok("cuCtxDestroy_v2", context)
    client.ok("cuCtxSetCurrent", lib.primary)
    client.ok("cuLibraryUnload", library)


FAR = (
    HEAD
    + b"""
.visible .global .align 4 .u32 far_number = 11;
.visible .func (.param .b32 result) far(.param .b32 given)
{
    .reg .b32 %r<3>;
    ld.param.b32 %r1, [given];
    add.u32 %r2, %r1, 100;
    st.param.b32 [result], %r2;
    ret;
}
"""
)
NEAR = (
    HEAD
    + b"""
.extern .global .align 4 .u32 far_number;
.extern .func (.param .b32 result) far(.param .b32 given);
.visible .entry near(.param .u64 at)
{
    .reg .b32 %r<3>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [at];
    ld.global.u32 %r1, [far_number];
    {
        .param .b32 given;
        st.param.b32 [given], %r1;
        .param .b32 result;
        call (result), far, (given);
        ld.param.b32 %r2, [result];
    }
    st.global.u32 [%rd1], %r2;
    ret;
}
"""
)


CALLER = (
    HEAD
    + b"""
.extern .func far();
.visible .entry near()
{
    call far;
    ret;
}
"""
)


@pytest.mark.parametrize("texts", [(NEAR, FAR), (FAR, NEAR)], ids=["near first", "far first"])
def test_a_link_joins_texts_by_their_names(client, texts):
    link, image, size = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_size_t()
    client.ok("cuLinkCreate_v2", 0, None, None, ctypes.byref(link))
    for text in texts:
        client.ok("cuLinkAddData_v2", link, 1, text, len(text) + 1, b"text", 0, None, None)
    client.ok("cuLinkComplete", link, ctypes.byref(image), ctypes.byref(size))
    content = ctypes.string_at(image, size.value)
    client.ok("cuLinkDestroy", link)
    module, target = client.module(content), client.device(4)
    assert client.launch(client.function(module, "near"), None, target) == 0
    assert client.read(target, 4) == (111).to_bytes(4, "little")


def test_a_link_names_the_function_that_is_missing(client):
    """The error log names the function, and the input that calls it.

    Programs show these words, so they are the same as in NVIDIA's linker. Which error
    cuLinkComplete returns is not tested, because a driver may even return none.
    """
    log, error_log, its_size = ctypes.create_string_buffer(1000), 5, 6
    options = (ctypes.c_int * 2)(error_log, its_size)
    values = (ctypes.c_void_p * 2)(ctypes.addressof(log), len(log))
    link, image, size = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_size_t()
    client.ok("cuLinkCreate_v2", 2, options, values, ctypes.byref(link))
    client.ok("cuLinkAddData_v2", link, 1, CALLER, len(CALLER) + 1, b"a text", 0, None, None)
    client.call("cuLinkComplete", link, ctypes.byref(image), ctypes.byref(size))
    client.ok("cuLinkDestroy", link)
    assert log.value.rstrip() == b"error   : Undefined reference to 'far' in 'a text'"
