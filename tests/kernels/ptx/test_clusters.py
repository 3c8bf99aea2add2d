"""mapa and getctarank: addresses in shared memory of the blocks of a cluster."""

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
