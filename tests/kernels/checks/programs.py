"""Runs short PTX texts under the checks inside kernels."""

import numpy as np

import cudadrv as cu
from cudadrv import testing

# %r1 is the index of the thread, %r2 that of the block; %r3 and %rd3 are the addresses of the
# thread's words in `tile` and in the buffer, %r4 and %rd4 those of the words behind them.
TEXT = """.version 8.0
.target sm_90
.address_size 64
.visible .global .align 16 .u32 word[4];
{before}
.visible .entry k(.param .u64 out)
{{
    .reg .pred %p<8>; .reg .b32 %r<32>; .reg .b64 %rd<16>;
    .shared .align 128 .b8 tile[2048]; .shared .align 8 .b64 bar;
    ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x;
    mov.u32 %r9, tile; mad.lo.u32 %r3, %r1, 4, %r9; add.u32 %r4, %r3, 4;
    mul.wide.u32 %rd2, %r1, 4; add.u64 %rd3, %rd1, %rd2; add.u64 %rd4, %rd3, 4;
    {body}
    done: ret;
}}
"""


ARRIVE, WAIT = "barrier.cluster.arrive;", "barrier.cluster.wait;"
ALIGNED = "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;"
MOST = 10_000_000  # instructions: a kernel that spins by mistake ends soon


def run(
    body: str,
    *,
    blocks: int = 1,
    threads: int = 64,
    before: str = "",
    target: str = "sm_90",
    checks: str = "race",
    cluster: int = 0,
):
    """Run a kernel and return the hazards, also the benign ones."""
    text = TEXT.format(body=body, before=before).replace("sm_90", target)
    if cluster:
        text = text.replace("u64 out)", f"u64 out) .reqnctapercluster {cluster}, 1, 1")
    with testing.configured(f"checks={checks},instructions={MOST}"):
        testing.forget_hazards()
        out = cu.DeviceBuffer.zeros(4096, np.uint32, name="out")
        module = cu.Module(text)
        with module, cu.Stream(name="s") as stream:
            module["k"].launch(blocks, threads, out, stream=stream)
            stream.synchronize()
        return testing.hazards(benign=True)


def fails(body: str, **options):
    """Run a kernel that fails, and return the hazards and the text of the fault."""
    try:
        run(body, **options)
    except cu.CudaError:
        found, fault = testing.hazards(), testing.kernel_fault()
        testing.reset_device()
        return found, fault
    raise AssertionError("the kernel has not failed")


def run_in_a_graph(body: str, checks: str, schedule: str, launches: int = 1):
    """Run a kernel in a graph and return the hazards."""
    out = cu.DeviceBuffer.zeros(4096, np.uint32, name="out")
    with (
        testing.configured(f"checks={checks},schedule={schedule}"),
        cu.Module(TEXT.format(body=body, before="")) as module,
        cu.Stream() as stream,
    ):
        with cu.Graph() as graph:
            graph.add_launch(module["k"], 1, 64, out)
            with graph.instantiate() as executable:
                for _ in range(launches):
                    executable.launch(stream)
                stream.synchronize()
        return testing.hazards()


def modes(hazards):
    """The modes of both accesses of each hazard, sorted; with "same" if the hazard is benign."""
    return sorted(
        " ".join(sorted((hazard.first.mode, hazard.second.mode)) + ["same"] * hazard.benign)
        for hazard in hazards
    )
