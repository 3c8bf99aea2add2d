"""checks=race: the barrier of a cluster."""

import pytest

import cudadrv as cu
from cudadrv import testing, toolkit

from .programs import ALIGNED, ARRIVE, WAIT, run

pytestmark = [
    pytest.mark.cuda_software,
    pytest.mark.parametrize("cuda_schedule", ["eager"], indirect=True),
    pytest.mark.cuda_allow("hazards"),
]

RELAXED = "barrier.cluster.arrive.relaxed;"
# The first block of the launch writes, the last one reads.
ENDS = "setp.ne.u32 %p1, %r2, 0; mov.u32 %r5, %nctaid.x; sub.u32 %r5, %r5, 1; "
ENDS += "setp.ne.u32 %p2, %r2, %r5;"
WRITE, READ = "@!%p1 st.global.u32 [%rd3], %r1;", "@!%p2 ld.global.u32 %r6, [%rd4];"
ORDERS = {
    "nothing": (f"{WRITE} {READ}", True),
    "the barrier": (f"{WRITE} {ARRIVE} {WAIT} {READ}", False),
    "the barrier, aligned": (f"{WRITE} {ALIGNED} {READ}", False),
    "the barrier of the block": (f"{WRITE} bar.sync 0; {READ}", True),
    "a relaxed arrival": (f"{WRITE} {RELAXED} {WAIT} {READ}", True),
    "a fence, and a relaxed arrival": (
        f"{WRITE} fence.acq_rel.cluster; {RELAXED} {WAIT} {READ}", False),
    "a fence of the block, and a relaxed arrival": (
        f"{WRITE} fence.acq_rel.cta; {RELAXED} {WAIT} {READ}", True),
    "a write behind the arrival": (f"{ARRIVE} {WRITE} {WAIT} {READ}", True),
    "a read before the wait": (f"{WRITE} {ARRIVE} {READ} {WAIT}", True),
    "two phases": (f"{ARRIVE} {WAIT} {WRITE} {ARRIVE} {WAIT} {READ}", False),
    "the next phase": (f"{WRITE} {RELAXED} {WAIT} {ARRIVE} {WAIT} {READ}", False),
    "what another block has learned": (
        f"setp.ne.u32 %p3, %r2, 1; {WRITE} {ARRIVE} {WAIT} @!%p3 st.global.u32 [%rd4], %r1;"
        f" {ARRIVE} {WAIT} {READ}", False),
    "an arrival of a warp that waits late": (
        f"{WRITE} {ARRIVE} setp.ge.u32 %p3, %r1, 32; mov.u32 %r7, 0;"
        "more: @%p3 add.u32 %r7, %r7, 1; setp.lt.and.u32 %p4, %r7, 9999, %p3; @%p4 bra more;"
        f" {WAIT} {READ}", False),
}  # fmt: skip


@pytest.mark.parametrize("case", ORDERS)
@pytest.mark.parametrize(("blocks", "threads"), [(2, 64), (4, 40)])
def test_what_orders_blocks_of_a_cluster(cuda_device, case, blocks, threads):
    body, races = ORDERS[case]
    if "another block" in case:
        blocks = 4
    found = run(f"{ENDS} {body}", blocks=blocks, threads=threads, cluster=blocks)
    assert bool(found) == races, [hazard.text for hazard in found]


@pytest.mark.parametrize(("blocks", "cluster"), [(2, 1), (4, 2), (32, 4)])
def test_it_orders_nothing_between_clusters(cuda_device, blocks, cluster):
    (hazard,) = run(f"{ENDS} {WRITE} {ALIGNED} {READ}", blocks=blocks, cluster=cluster)
    assert (hazard.first.block[0], hazard.second.block[0]) == (0, blocks - 1)


def test_clusters_one_after_the_other(cuda_device):
    """What a cluster has ordered says nothing about a later one."""
    body = f"""and.b32 %r5, %r2, 1; setp.ne.u32 %p1, %r5, 0; mul.wide.u32 %rd5, %r2, 0;
        {{arrive}} {WAIT} @!%p1 st.global.u32 [%rd3], %r2; {{arrive}} {WAIT}
        @%p1 ld.global.u32 %r6, [%rd3];"""
    own = "shr.u32 %r7, %r2, 1; mul.wide.u32 %rd6, %r7, 256; add.u64 %rd3, %rd3, %rd6;"
    for arrive, races in ((ARRIVE, False), (RELAXED, True)):
        found = run(own + body.format(arrive=arrive), blocks=64, threads=64, cluster=2)
        assert bool(found) == races


SOURCE = """
#include <cooperative_groups.h>
extern "C" __global__ void __cluster_dims__(2) exchange(int *out) {
    auto cluster = cooperative_groups::this_cluster();
    int own = blockIdx.x * blockDim.x + threadIdx.x;
    for (int round = 0; round < 3; round++) {
        out[own] = round + cluster.block_rank();
        cluster.sync();
        int neighbour = out[own ^ blockDim.x];
        cluster.sync();
        out[own] = neighbour;
    }
}
"""


def test_cooperative_groups(cuda_device):
    """It is silent, and without one of the barriers it is not."""
    for leave_out in (None, 0, 1):
        parts = SOURCE.split("cluster.sync();")
        if leave_out is not None:
            parts[leave_out : leave_out + 2] = [parts[leave_out] + parts[leave_out + 1]]
        try:
            text = toolkit.compile(
                "cluster.sync();".join(parts),
                arch="compute_90",
                name="exchange.cu",
                compiler="nvcc",
            )
        except (toolkit.CompilerNotFoundError, toolkit.PTXVersionError) as error:
            pytest.skip(str(error))
        testing.forget_hazards()
        with testing.configured("checks=all"), cu.Module(text) as module, cu.Stream() as stream:
            out = cu.DeviceBuffer.zeros(8 * 64, "i4", name="out")
            module["exchange"].launch(8, 64, out, stream=stream)
            stream.synchronize()
        kinds = {hazard.kind for hazard in testing.hazards()}
        assert kinds == (set() if leave_out is None else {"race"})
