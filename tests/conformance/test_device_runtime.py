"""libcudadevrt.a, NVIDIA's device functions, as an input of a link: the barrier of a grid."""

import ctypes
import struct
import sys
from pathlib import Path

import pytest

from .kernels import HEAD

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from cuda_header import HeaderError, find_cuda_header

PTX, LIBRARY = 1, 4  # values of CUjitInputType
INVALID_IMAGE = 200
BLOCKS, THREADS, ROUNDS = 5, 64, 3

# Each thread adds 1 to the count of a round, waits for all threads, and adds the count to its sum.
ROUND = (
    HEAD
    + b"""
.extern .func (.param .b64 handle) cudaCGGetIntrinsicHandle (.param .b32 scope);
.extern .func (.param .b32 status) %s (.param .b64 handle, .param .b32 flags);
.visible .entry rounds(.param .u64 counts, .param .u64 sums, .param .u32 number)
{
    .reg .pred %%p<2>;
    .reg .b32 %%r<12>;
    .reg .b64 %%rd<8>;
    ld.param.u64 %%rd1, [counts];
    ld.param.u64 %%rd2, [sums];
    ld.param.u32 %%r1, [number];
    mov.u32 %%r2, %%ctaid.x;
    mov.u32 %%r3, %%ntid.x;
    mov.u32 %%r4, %%tid.x;
    mad.lo.u32 %%r4, %%r2, %%r3, %%r4;
    mul.wide.u32 %%rd3, %%r4, 4;
    add.u64 %%rd2, %%rd2, %%rd3;
    mov.u32 %%r5, 0;
    {
        .param .b32 scope;
        st.param.b32 [scope], 1;
        .param .b64 handle;
        call (handle), cudaCGGetIntrinsicHandle, (scope);
        ld.param.b64 %%rd4, [handle];
    }
again:
    atom.global.add.u32 %%r6, [%%rd1], 1;
    {
        .param .b64 handle;
        .param .b32 flags;
        .param .b32 status;
        st.param.b64 [handle], %%rd4;
        st.param.b32 [flags], 0;
        call (status), %s, (handle, flags);
        ld.param.b32 %%r7, [status];
    }
    add.u32 %%r5, %%r5, %%r7;
    ld.volatile.global.u32 %%r6, [%%rd1];
    add.u32 %%r5, %%r5, %%r6;
    add.u64 %%rd1, %%rd1, 4;
    sub.u32 %%r1, %%r1, 1;
    setp.ne.u32 %%p1, %%r1, 0;
    @%%p1 bra again;
    st.global.u32 [%%rd2], %%r5;
    ret;
}
"""
)


def text_of(barrier: bytes) -> bytes:
    return ROUND % (barrier, barrier)


@pytest.fixture
def library():
    """The path of libcudadevrt.a."""
    try:
        home = find_cuda_header().folder.resolve().parent
    except HeaderError as error:
        pytest.skip(str(error))
    for folder in ("lib", "lib64"):
        if (path := home / folder / "libcudadevrt.a").is_file():
            return bytes(path)
    pytest.skip(f"there is no libcudadevrt.a in {home}")


def add_file(client, link, library):
    return client.call("cuLinkAddFile_v2", link, LIBRARY, library, 0, None, None)


def add_data(client, link, library):
    content = Path(library.decode()).read_bytes()
    return client.call(
        "cuLinkAddData_v2", link, LIBRARY, content, len(content), library, 0, None, None
    )


def linked(client, text, add):
    """Link a PTX text with the input that `add(link)` adds. Returns the status and the image."""
    link, image, size = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_size_t()
    client.ok("cuLinkCreate_v2", 0, None, None, ctypes.byref(link))
    client.ok("cuLinkAddData_v2", link, PTX, text, len(text) + 1, b"text", 0, None, None)
    add(link)
    status = client.call("cuLinkComplete", link, ctypes.byref(image), ctypes.byref(size))
    content = None if status else ctypes.string_at(image, size.value)
    client.ok("cuLinkDestroy", link)
    return status, content


@pytest.mark.parametrize("barrier", [b"cudaCGSynchronize", b"cudaCGSynchronizeGrid"])
@pytest.mark.parametrize("add", [add_file, add_data])
def test_blocks_wait_for_each_other(client, library, barrier, add):
    status, image = linked(client, text_of(barrier), lambda link: add(client, link, library))
    assert status == 0
    function = client.function(client.module(image), "rounds")
    every = BLOCKS * THREADS
    counts, sums = client.device(4 * ROUNDS), client.device(4 * every)
    client.write(counts, bytes(4 * ROUNDS))
    cells = ctypes.c_uint64(counts), ctypes.c_uint64(sums), ctypes.c_uint32(ROUNDS)
    arguments = (ctypes.c_void_p * 3)(*map(ctypes.addressof, cells))
    client.ok(
        "cuLaunchCooperativeKernel", function, BLOCKS, 1, 1, THREADS, 1, 1, 0, None, arguments
    )
    found = client.read(sums, 4 * every)
    assert found == struct.pack("<I", ROUNDS * every) * every


def test_the_library_twice(client, library):
    """If the library is added twice, its functions are defined twice.

    A real driver refuses the second input, and the software driver refuses the link.
    """
    added = []

    def add(link):
        added.extend(add_data(client, link, library) for _ in range(2))

    status, _ = linked(client, text_of(b"cudaCGSynchronize"), add)
    assert status != 0
    assert added[0] == 0
    if client.lib.software:
        assert added[1] == 0


def test_a_text_that_nothing_completes(client):
    """Without the library, the link says which function is missing."""
    status, _ = linked(client, text_of(b"cudaCGSynchronize"), lambda link: None)
    assert status != 0


@pytest.mark.cuda_software
def test_another_library(client):
    other = b"!<arch>\nsomething.o/   0           0     0     644     4         `\nABCD"

    def add(link):
        status = client.call(
            "cuLinkAddData_v2", link, LIBRARY, other, len(other), b"lib", 0, None, None
        )
        assert status == INVALID_IMAGE

    linked(client, text_of(b"cudaCGSynchronize"), add)
