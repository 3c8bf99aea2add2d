"""Kernels as work of streams: when they run, what waits for them, and how they end."""

import ctypes
import struct
import threading

import pytest
from limits import PATIENCE

from .client import INVALID_VALUE, NOT_READY, SUCCESS, Flag, blocks, poll
from .kernels import HEAD, TEXT, entry

LAUNCH_OUT_OF_RESOURCES = 701


def u32(value):
    return ctypes.c_uint32(value)


@pytest.fixture
def module(client):
    return client.module(TEXT)


@pytest.fixture
def kernel(client, module):
    return lambda name: client.function(module, name)


def test_saxpy(client, kernel):
    n = 1000
    x, y = client.device(4 * n), client.device(4 * n)
    client.write(x, struct.pack(f"{n}f", *range(n)))
    client.write(y, struct.pack(f"{n}f", *[1.0] * n))
    arguments = u32(n), ctypes.c_float(2), x, y
    assert client.launch(kernel("saxpy"), client.stream(), *arguments, grid=8, block=128) == 0
    assert struct.unpack(f"{n}f", client.read(y, 4 * n)) == tuple(2.0 * i + 1 for i in range(n))


@pytest.mark.parametrize("kind", ["device", "host", "managed"])
def test_kernels_reach_all_kinds_of_memory(client, kernel, kind):
    target = getattr(client, kind)(16)
    client.ok("cuMemsetD8_v2", target, 0, 16)
    assert client.launch(kernel("fill"), None, target, u32(3), u32(7), block=4) == 0
    assert client.read(target, 16) == bytes([7, 0, 0, 0]) * 3 + bytes(4)


def test_memory_freed_in_stream_order_is_there_before_its_free(client, kernel):
    stream, memory, target = client.stream(), ctypes.c_uint64(), client.device(16)
    client.ok("cuMemAllocAsync", ctypes.byref(memory), 16, stream)
    assert client.launch(kernel("fill"), stream, memory.value, u32(4), u32(7), block=4) == 0
    assert client.launch(kernel("move"), stream, target, memory.value, u32(4), block=4) == 0
    client.ok("cuMemFreeAsync", memory.value, stream)
    assert client.read(target, 16) == bytes([7, 0, 0, 0]) * 4


def test_parameters_are_taken_at_the_launch(client, kernel):
    stream, target, value = client.stream(), client.device(4), u32(7)
    gate = client.gate().hold(stream)
    assert client.launch(kernel("fill"), stream, target, u32(1), value) == 0
    value.value = 8
    gate.open()
    assert client.read(target, 4) == bytes([7, 0, 0, 0])


def test_all_parameters_in_one_block(client, kernel):
    target = client.device(16)
    block = ctypes.create_string_buffer(struct.pack("QII", target, 4, 7))
    size = ctypes.c_size_t(16)
    addresses = ctypes.addressof(block), 2, ctypes.addressof(size), 0
    extra = (ctypes.c_void_p * 5)(1, *addresses)
    sizes = (1, 1, 1, 4, 1, 1, 0)
    client.ok("cuLaunchKernel", kernel("fill"), *sizes, None, None, extra)
    assert client.read(target, 16) == bytes([7, 0, 0, 0]) * 4
    size.value = 17
    status = client.call("cuLaunchKernel", kernel("fill"), *sizes, None, None, extra)
    assert status == LAUNCH_OUT_OF_RESOURCES


@pytest.mark.parametrize(("grid", "block"), [(0, 1), (1, 0), (1, 1025), (1 << 31, 1)])
def test_impossible_sizes_are_refused(client, kernel, grid, block):
    arguments = client.device(4), u32(1), u32(7)
    status = client.launch(kernel("fill"), None, *arguments, grid=grid, block=block)
    assert status == INVALID_VALUE


def test_shared_memory_beyond_what_was_allowed_is_refused(client, kernel):
    big = kernel("big")
    limit = ctypes.c_int()
    client.ok("cuFuncGetAttribute", ctypes.byref(limit), 8, big)
    assert client.launch(big, None, 0, shared=limit.value) == SUCCESS
    assert client.launch(big, None, 0, shared=limit.value + 1) == INVALID_VALUE
    client.ok("cuFuncSetAttribute", big, 8, 100000)
    assert client.launch(big, None, 0, shared=100000) == SUCCESS
    assert client.launch(big, None, 0, shared=100001) == INVALID_VALUE


def test_a_query_comes_back_while_a_kernel_spins_for_the_host(client, kernel):
    stream, flag = client.stream(), client.host(4)
    assert client.launch(kernel("spin"), stream, flag) == 0
    assert [client.call("cuStreamQuery", stream) for _ in range(20)] == [NOT_READY] * 20
    ctypes.c_uint32.from_address(flag).value = 1
    assert poll(lambda: client.call("cuStreamQuery", stream)) == SUCCESS


def test_a_synchronization_lets_other_threads_end_it(client, kernel, lib):
    stream, other, flag = client.stream(), client.stream(), client.device(4)
    client.ok("cuMemsetD32_v2", flag, 0, 1)
    client.ok("cuCtxSynchronize")
    assert client.launch(kernel("spin"), stream, flag) == 0
    done = []

    def wait():
        lib.ok("cuCtxSetCurrent", lib.primary)
        done.append(lib("cuStreamSynchronize", stream))

    thread = threading.Thread(target=wait)
    thread.start()
    thread.join(0.05)
    assert thread.is_alive()
    client.ok("cuMemsetD32Async", flag, 1, 1, other)
    client.ok("cuStreamSynchronize", other)
    thread.join(PATIENCE)
    assert done == [SUCCESS]


def test_kernels_that_wait_for_each_other_meet(client, kernel):
    flags = client.device(8)
    client.ok("cuMemsetD32_v2", flags, 0, 2)
    client.ok("cuCtxSynchronize")
    streams = client.stream(), client.stream()
    assert client.launch(kernel("meet"), streams[0], flags, flags + 4) == 0
    assert client.launch(kernel("meet"), streams[1], flags + 4, flags) == 0
    client.ok("cuStreamSynchronize", streams[0])
    client.ok("cuStreamSynchronize", streams[1])


def test_more_spinning_kernels_than_workers(client, kernel):
    flag, streams = client.device(4), [client.stream() for _ in range(7)]
    spin, fill = kernel("spin"), kernel("fill")  # looking a kernel up can wait for running kernels
    client.ok("cuMemsetD32_v2", flag, 0, 1)
    client.ok("cuCtxSynchronize")
    for stream in streams[:6]:
        assert client.launch(spin, stream, flag) == 0
    assert client.launch(fill, streams[6], flag, u32(1), u32(1)) == 0
    for stream in streams:
        client.ok("cuStreamSynchronize", stream)


def test_captured_launches_do_not_run(client, kernel):
    stream, target, graph = client.stream(), client.device(4), ctypes.c_void_p()
    client.write(target, bytes(4))
    client.ok("cuStreamBeginCapture_v2", stream, 0)
    assert client.launch(kernel("fill"), stream, target, u32(1), u32(7)) == 0
    client.ok("cuStreamEndCapture", stream, ctypes.byref(graph))
    client.ok("cuGraphDestroy", graph)
    assert client.read(target, 4) == bytes(4)


def test_unloading_waits_for_the_kernel(client, kernel, module):
    stream, flag = client.stream(), client.host(4)
    assert client.launch(kernel("spin"), stream, flag) == 0
    # On the software driver this call runs the kernel, so its thread never sleeps.
    assert blocks(client, Flag(flag), "cuModuleUnload", module, busy=0.3)
    client.forget("cuModuleUnload", module)


@pytest.mark.cuda_software
def test_the_random_schedule_replays(client, kernel, software):
    def run():
        software.configure("schedule=random,seed=9")
        target, streams = client.device(4 * 64), [client.stream() for _ in range(3)]
        client.ok("cuMemsetD32_v2", target, 0, 64)
        # The fills race on purpose; the seed decides which is the last.
        for i, stream in enumerate(streams):
            client.launch(kernel("fill"), stream, target, u32(64), u32(i + 1), grid=16, block=4)
        return client.read(target, 4 * 64)

    assert len({run() for _ in range(3)}) == 1
    software.forget_races()


def many_registers(count, directives=b""):
    """A kernel that names many registers, but needs few at a time."""
    lines = [b"ld.param.u64 %rd1, [at];", b".reg .b64 %%many<%d>;" % count]
    for i in range(count):
        lines.append(b"add.s64 %%many%d, %%rd1, %d;" % (i, i))
        lines.append(b"st.global.u64 [%%rd1], %%many%d;" % i)
    return HEAD + entry(b"many", b".param .u64 at", b"\n".join(lines), directives)


@pytest.mark.parametrize("most", [None, 33, 224, 384, 576, 1000])
def test_the_largest_block_fits_on_a_multiprocessor(client, most):
    """A launch of the largest block never fails, so the occupancy is at least one block."""
    directives = b".maxntid %d, 1, 1" % most if most else b""
    kernel = client.function(client.module(many_registers(300, directives)), "many")
    threads, blocks = ctypes.c_int(), ctypes.c_int()
    client.ok("cuFuncGetAttribute", ctypes.byref(threads), 0, kernel)
    arguments = kernel, threads.value, 0
    client.ok("cuOccupancyMaxActiveBlocksPerMultiprocessor", ctypes.byref(blocks), *arguments)
    assert blocks.value >= 1


@pytest.mark.parametrize("name, count", [("saxpy", 4), ("fill", 3)])
def test_number_of_parameters(client, name, count):
    client.require("cuFuncGetParamCount")
    found, library, kernel = ctypes.c_size_t(), ctypes.c_void_p(), ctypes.c_void_p()
    function = client.function(client.module(TEXT), name)
    client.ok("cuFuncGetParamCount", function, ctypes.byref(found))
    assert found.value == count
    options = None, None, 0, None, None, 0
    client.ok("cuLibraryLoadData", ctypes.byref(library), TEXT, *options)
    client._undo.append(("cuLibraryUnload", library.value))
    client.ok("cuLibraryGetKernel", ctypes.byref(kernel), library, name.encode())
    client.ok("cuKernelGetParamCount", kernel, ctypes.byref(found))
    assert found.value == count
    for call in ("cuFuncGetParamCount", "cuKernelGetParamCount"):
        assert client.call(call, None, ctypes.byref(found)) == INVALID_VALUE
        assert client.call(call, function, None) == INVALID_VALUE
