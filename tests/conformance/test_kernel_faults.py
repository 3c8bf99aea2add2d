"""Kernels that fail: the sticky error, and the text that describes the fault."""

import ctypes
import os
import subprocess
import sys

import pytest
from limits import PATIENCE

from .client import ILLEGAL_ADDRESS, SUCCESS, Flag, blocks
from .kernels import TEXT

pytestmark = pytest.mark.cuda_software

LAUNCH_TIMEOUT, ILLEGAL_INSTRUCTION, MISALIGNED, LAUNCH_FAILED = 702, 715, 716, 719


def fault(client, name, *arguments, **sizes):
    """Launch a kernel. Returns the status of the context after the kernel has run."""
    function = client.function(client.kernels, name)
    assert client.launch(function, client.stream(), *arguments, **sizes) == SUCCESS
    return client.call("cuCtxSynchronize")


def u32(value):
    return ctypes.c_uint32(value)


def test_beyond_the_end_of_an_allocation(lost, software):
    target = lost.device(4096)
    assert fault(lost, "fill", target + 4096 + 8, u32(1), u32(7)) == ILLEGAL_ADDRESS
    text = software.fault_text()
    assert "fill" in text
    assert "line " in text
    assert f"8 bytes beyond the end of the 4096 bytes at {target:#x}" in text
    assert "cuMemAlloc_v2" in text
    assert lost.call("cuMemAlloc_v2", ctypes.byref(ctypes.c_uint64()), 4) == ILLEGAL_ADDRESS


def test_one_byte_too_many(lost, software):
    target = lost.device(4098)
    assert fault(lost, "fill", target + 4096, u32(1), u32(7)) == ILLEGAL_ADDRESS
    assert f"4096 bytes into the 4098 bytes at {target:#x}" in software.fault_text()


def test_freed_memory(lost, software):
    target = lost.device(4096)
    lost.forget("cuMemFree_v2", target)
    lost.ok("cuMemFree_v2", target)
    assert fault(lost, "fill", target + 16, u32(1), u32(7)) == ILLEGAL_ADDRESS
    text = software.fault_text()
    assert f"16 bytes into the 4096 bytes at {target:#x}" in text
    assert "cuMemFree_v2 freed" in text


def test_memory_freed_in_an_earlier_streams_order(lost, software):
    stream, memory = lost.stream(), ctypes.c_uint64()
    lost.ok("cuMemAllocAsync", ctypes.byref(memory), 4096, stream)
    lost.ok("cuMemFreeAsync", memory.value, stream)
    lost.ok("cuStreamSynchronize", stream)
    assert fault(lost, "fill", memory.value, u32(1), u32(7)) == ILLEGAL_ADDRESS
    assert "cuMemFreeAsync freed" in software.fault_text()


def test_nowhere(lost, software):
    assert fault(lost, "fill", 64, u32(1), u32(7)) == ILLEGAL_ADDRESS
    assert "not near any memory" in software.fault_text()


def test_the_programs_own_memory(lost):
    buffer = ctypes.create_string_buffer(64)
    assert fault(lost, "fill", ctypes.addressof(buffer), u32(1), u32(7)) == ILLEGAL_ADDRESS
    assert buffer.raw == bytes(64)


def test_not_aligned(lost):
    assert fault(lost, "fill", lost.device(64) + 1, u32(1), u32(7)) == MISALIGNED


def test_constants_cannot_be_written(lost):
    table, _ = lost.variable(lost.kernels, "table")
    assert fault(lost, "write_table") == ILLEGAL_ADDRESS
    assert table


def test_trap(lost, software):
    assert fault(lost, "stop") == LAUNCH_FAILED
    assert "stop" in software.fault_text()


# Copies within shared memory by instructions that GPUs accept only in launches with clusters.
WITHIN = """.version 8.0
.target sm_90
.address_size 64
.visible .entry copy() {directives}
{{
    .shared .align 16 .b8 tile[64];
    .shared .align 8 .b64 bar;
    mbarrier.init.shared.b64 [bar], 1;
    cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [tile+32], [tile], 16,
    [bar];
    ret;
}}
"""


@pytest.mark.parametrize(
    ("directives", "status"),
    [("", ILLEGAL_INSTRUCTION), (".reqnctapercluster 1, 1, 1", SUCCESS)],
)
def test_a_bulk_copy_within_shared_memory_needs_a_cluster(lost, software, directives, status):
    lost.kernels = lost.module(WITHIN.format(directives=directives).encode())
    assert fault(lost, "copy") == status
    if status:
        assert "without clusters" in software.fault_text()


# The first of two blocks asks for an address in the second block's shared memory.
OTHER_BLOCK = b""".version 8.0
.target sm_90
.address_size 64
.visible .entry other() .reqnctapercluster 2, 1, 1
{
    .reg .b32 %r<2>;
    .shared .align 4 .b32 word;
    mapa.shared::cluster.u32 %r1, word, 1;
    ret;
}
"""


def test_a_block_reaches_only_its_own_shared_memory(lost, software):
    lost.kernels = lost.module(OTHER_BLOCK)
    assert fault(lost, "other", grid=2) == ILLEGAL_INSTRUCTION
    assert "cannot reach" in software.fault_text()


# A kernel that has 64 bytes of local memory, and allocates more on the stack of each thread.
STACK = b""".version 8.0
.target sm_75
.address_size 64
.visible .entry stack(.param .u64 bytes)
{
    .reg .b64 %rd<3>;
    .local .align 8 .b8 own[64];
    ld.param.u64 %rd1, [bytes];
    alloca.u64 %rd2, %rd1;
    st.local.u64 [%rd2], %rd1;
    st.local.u64 [own+56], %rd1;
    ret;
}
"""


def test_the_stack_is_as_large_as_the_limit(lost, software):
    lost.kernels, limit = lost.module(STACK), ctypes.c_size_t()
    lost.ok("cuCtxGetLimit", ctypes.byref(limit), 0)
    assert fault(lost, "stack", limit.value) == SUCCESS
    lost.ok("cuCtxSetLimit", 0, 4096)
    assert fault(lost, "stack", 4096) == SUCCESS
    assert fault(lost, "stack", 4104) == ILLEGAL_ADDRESS
    assert "the stack overflows: 4104 bytes are wanted after 64" in software.fault_text()
    assert "CU_LIMIT_STACK_SIZE" in software.fault_text()


def test_a_kernel_without_an_end_is_ended(lost, software):
    software.configure("instructions=100000")
    assert fault(lost, "forever") == LAUNCH_TIMEOUT
    assert "100000" in software.fault_text()


def test_a_kernel_that_takes_too_long_is_ended(lost, software):
    software.configure("milliseconds=200")
    try:
        assert fault(lost, "forever") == LAUNCH_TIMEOUT
        assert "kernel 'forever' did not end within 200 ms" in software.fault_text()
    finally:
        software.configure("milliseconds=0")


def test_what_is_behind_a_fault_does_not_run(lost):
    stream, target = lost.stream(), lost.host(16)
    stop = lost.function(lost.kernels, "stop")
    assert lost.launch(stop, stream) == SUCCESS
    lost.call("cuMemsetD8Async", target, 1, 16, stream)
    assert lost.call("cuStreamSynchronize", stream) == LAUNCH_FAILED
    assert ctypes.string_at(target, 16) == bytes(16)


def test_a_reset_ends_a_kernel_without_an_end(lost, software):
    for _ in range(3):
        function = lost.function(lost.kernels, "forever")
        assert lost.launch(function, lost.stream()) == SUCCESS
    assert software.pending() == 3
    software("cudadrvSoftReset")
    assert software.pending() == 0
    assert software.count("modules") == 0


def test_a_fault_ends_a_kernel_without_an_end_beside_it(lost):
    forever, stop = (lost.function(lost.kernels, name) for name in ("forever", "stop"))
    streams = lost.stream(), lost.stream()
    assert lost.launch(forever, streams[0]) == SUCCESS
    assert lost.launch(stop, streams[1]) == SUCCESS
    assert lost.call("cuStreamSynchronize", streams[1]) == LAUNCH_FAILED
    assert lost.call("cuStreamSynchronize", streams[0]) == LAUNCH_FAILED


def test_destroying_a_context_waits_for_its_kernel(lost):
    context, function, module = (ctypes.c_void_p() for _ in range(3))
    flag = lost.host(4)
    lost.ok("cuCtxCreate_v2", ctypes.byref(context), 0, 0)
    lost.ok("cuModuleLoadData", ctypes.byref(module), TEXT)
    lost.ok("cuModuleGetFunction", ctypes.byref(function), module, b"spin")
    assert lost.launch(function, None, flag) == SUCCESS
    # On the software driver this call runs the kernel, so its thread never sleeps.
    assert blocks(lost, Flag(flag), "cuCtxDestroy_v2", context, busy=0.3)


PROGRAM = """
import ctypes, sys
sys.path.insert(0, {root!r})
from tests.conformance.client import Client, Library
from tests.conformance.kernels import TEXT

lib = Library({path!r})
lib.ok("cuInit", 0)
context = ctypes.c_void_p()
lib.ok("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
lib.primary = context.value
client = Client(lib).__enter__()
module = client.module(TEXT)
{body}
"""


def run(software, schedule, body):
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    program = PROGRAM.format(root=root, path=software.path, body=body)
    environment = {**os.environ, "CUDADRV_SOFTWARE": f"schedule={schedule}"}
    command = [sys.executable, "-c", program]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=PATIENCE
    )


def test_a_process_ends_quietly_while_a_kernel_runs(software, schedule):
    done = run(
        software,
        schedule,
        'client.launch(client.function(module, "forever"), client.stream())\n'
        'lib("cuStreamQuery", client.stream())',
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_text_is_printed_once(software, schedule):
    body = 'client.launch(client.function(module, "stop"), None)\n'
    body += 'lib("cuCtxSynchronize")\nlib("cuCtxSynchronize")'
    done = run(software, schedule, body)
    assert done.returncode == 0
    assert done.stderr.count("stop") == 1
