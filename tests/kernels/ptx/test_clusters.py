"""mapa, getctarank and barrier.cluster: the blocks of a cluster and their shared memory."""

import numpy as np
import pytest

from .running import run

ONE = {"capability": 90, "directives": ".reqnctapercluster 1, 1, 1"}
DECLARED = ".shared .align 16 .b32 tile[32];"
PLACE = "mul.wide.u32 %rd5, %r1, 4; add.u64 %rd3, %rd1, %rd5; cvt.u32.u64 %r5, %rd5;"

# Ways to use mapa. Each thread maps the address of its word, and writes its index there. They
# differ in the operands of mapa.
WAYS = {
    "register": """mov.u32 %r3, tile; add.u32 %r3, %r3, %r5;
    mapa.shared::cluster.u32 %r4, %r3, %r6; st.shared::cluster.u32 [%r4], %r1;""",
    "variable": """mapa.shared::cluster.u32 %r4, tile, 0; add.u32 %r4, %r4, %r5;
    st.shared::cluster.u32 [%r4], %r1;""",
    "wide": """mov.u64 %rd7, tile; add.u64 %rd7, %rd7, %rd5;
    mapa.shared::cluster.u64 %rd8, %rd7, %r6; st.shared::cluster.u32 [%rd8], %r1;""",
    "generic": """mov.u64 %rd7, tile; cvta.shared.u64 %rd7, %rd7; add.u64 %rd7, %rd7, %rd5;
    mapa.u64 %rd8, %rd7, %r6; st.u32 [%rd8], %r1;""",
}


@pytest.mark.parametrize("way", WAYS)
def test_the_memory_of_a_cluster_of_one_block(way):
    body = f"""{PLACE} mov.u32 %r6, %cluster_ctarank; {WAYS[way]} bar.sync 0;
    mov.u32 %r3, tile; add.u32 %r3, %r3, %r5; ld.shared.u32 %r7, [%r3];
    st.global.u32 [%rd3], %r7;"""
    found = run(body, np.zeros(1, "u4"), np.zeros(32, "u4"), declared=DECLARED, **ONE)
    assert (found == np.arange(32)).all()


def test_atomics_at_mapped_addresses():
    body = f"""{PLACE} mov.u32 %r3, tile; st.shared.u32 [%r3], 0; bar.sync 0;
    mapa.shared::cluster.u32 %r4, %r3, 0; atom.shared::cluster.add.u32 %r7, [%r4], 1;
    bar.sync 0; ld.shared::cluster.u32 %r7, [%r4]; st.global.u32 [%rd3], %r7;"""
    found = run(body, np.zeros(1, "u4"), np.zeros(32, "u4"), declared=DECLARED, **ONE)
    assert (found == 32).all()


def test_the_block_of_an_address():
    body = f"""{PLACE} mov.u32 %r3, tile; getctarank.shared::cluster.u32 %r4, %r3;
    mov.u64 %rd7, tile; cvta.shared.u64 %rd7, %rd7; getctarank.u64 %r6, %rd7;
    add.u32 %r4, %r4, %r6; add.u32 %r4, %r4, 7; st.global.u32 [%rd3], %r4;"""
    found = run(body, np.zeros(1, "u4"), np.zeros(32, "u4"), declared=DECLARED, **ONE)
    assert (found == 7).all()


@pytest.mark.parametrize("space", ["shared::cluster", "shared::cta"])
def test_which_addresses_are_in_shared_memory(space):
    body = f"""{PLACE} cvta.{space}.u64 %rd7, tile; isspacep.{space} %p1, %rd7;
    isspacep.{space} %p2, %rd2; selp.u32 %r3, 1, 0, %p1; selp.u32 %r4, 2, 0, %p2;
    or.b32 %r3, %r3, %r4; st.global.u32 [%rd3], %r3;"""
    found = run(body, np.zeros(1, "u4"), np.zeros(32, "u4"), declared=DECLARED, **ONE)
    assert (found == 1).all()


# ---- barrier.cluster ----

# In each round, each thread stores its number plus that of the round, and then reads the word of
# the same thread in the next block of the cluster. %r10 is the block, %r11 the first block of the
# cluster (in launches of one dimension), %r12 the sum of what has been read.
ROUNDS = """mov.u32 %r10, %ctaid.x; mov.u32 %r4, %cluster_ctarank; sub.u32 %r11, %r10, %r4;
add.u32 %r4, %r4, 1; mov.u32 %r5, %cluster_nctarank; rem.u32 %r4, %r4, %r5;
add.u32 %r11, %r11, %r4; mov.u32 %r6, %ntid.x; mad.lo.u32 %r7, %r10, %r6, %r1;
mad.lo.u32 %r8, %r11, %r6, %r1; mul.wide.u32 %rd3, %r7, 4; add.u64 %rd3, %rd1, %rd3;
mul.wide.u32 %rd4, %r8, 4; add.u64 %rd4, %rd1, %rd4; mov.u32 %r12, 0; mov.u32 %r13, 0;
again: add.u32 %r14, %r7, %r13; st.global.u32 [%rd3], %r14; {barrier}
ld.global.u32 %r15, [%rd4]; add.u32 %r12, %r12, %r15; {barrier}
add.u32 %r13, %r13, 1; setp.lt.u32 %p1, %r13, 5; @%p1 bra again; st.global.u32 [%rd3], %r12;"""
BARRIERS = {
    "plain": "barrier.cluster.arrive; barrier.cluster.wait;",
    "aligned": "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;",
    "relaxed": "fence.acq_rel.cluster; barrier.cluster.arrive.relaxed; barrier.cluster.wait;",
}


def summed(blocks, threads, cluster):
    """The result of ROUNDS."""
    words = np.arange(blocks * threads, dtype="u4").reshape(blocks // cluster, cluster, threads)
    return (np.roll(words, -1, axis=1) * 5 + 10).reshape(-1)


@pytest.mark.parametrize("barrier", BARRIERS)
@pytest.mark.parametrize(
    ("blocks", "threads", "cluster"),
    [(1, 64, 1), (2, 32, 2), (8, 96, 8), (12, 40, 4), (3000, 32, 2), (16, 1024, 8)],
)
def test_blocks_of_a_cluster_wait_for_each_other(barrier, blocks, threads, cluster):
    found = run(
        ROUNDS.format(barrier=BARRIERS[barrier]),
        np.zeros(1, "u4"),
        np.zeros(blocks * threads, "u4"),
        blocks=blocks,
        threads=threads,
        capability=90,
        directives=f".reqnctapercluster {cluster}, 1, 1",
    )
    assert (found == summed(blocks, threads, cluster)).all()


def test_clusters_of_two_dimensions():
    """Each block adds up the ranks of its cluster, which is a square of a grid of 6 x 4 blocks."""
    body = """mov.u32 %r4, %clusterid.x; mov.u32 %r5, %clusterid.y; mad.lo.u32 %r4, %r5, 3, %r4;
    mul.wide.u32 %rd3, %r4, 4; add.u64 %rd3, %rd1, %rd3; mov.u32 %r6, %cluster_ctarank;
    add.u32 %r6, %r6, 1; setp.eq.u32 %p1, %r1, 0; @%p1 atom.global.add.u32 %r7, [%rd3], %r6;
    barrier.cluster.arrive; barrier.cluster.wait;
    ld.relaxed.gpu.global.u32 %r7, [%rd3]; setp.ne.u32 %p2, %r7, 10; @%p2 trap;"""
    found = run(
        body,
        np.zeros(1, "u4"),
        np.zeros(6, "u4"),
        blocks=(6, 4),
        capability=90,
        directives=".reqnctapercluster 2, 2, 1",
    )
    assert (found == 10).all()


def test_threads_that_have_ended_are_not_waited_for():
    """Half of the threads of each block, and all of the last one."""
    body = """mov.u32 %r4, %ctaid.x; setp.eq.u32 %p1, %r4, 3; @%p1 bra done;
    setp.ge.u32 %p1, %r1, 16; @%p1 bra done; barrier.cluster.arrive; barrier.cluster.wait;
    atom.global.add.u32 %r7, [%rd1], 1; done:"""
    found = run(
        body,
        np.zeros(1, "u4"),
        np.zeros(1, "u4"),
        blocks=4,
        capability=90,
        directives=".reqnctapercluster 4, 1, 1",
    )
    assert found[0] == 3 * 16


def test_a_wait_after_other_work():
    """Between arrival and wait, a thread may do what does not depend on the others."""
    found = run(
        ROUNDS.format(
            barrier="""barrier.cluster.arrive; mov.u32 %r20, 0;
            more{n}: add.u32 %r20, %r20, 1; setp.lt.u32 %p2, %r20, %r7; @%p2 bra more{n};
            barrier.cluster.wait;"""
        )
        .replace("more{n}", "more_a", 2)
        .replace("more{n}", "more_b"),
        np.zeros(1, "u4"),
        np.zeros(4 * 32, "u4"),
        blocks=4,
        capability=90,
        directives=".reqnctapercluster 4, 1, 1",
    )
    assert (found == summed(4, 32, 4)).all()
