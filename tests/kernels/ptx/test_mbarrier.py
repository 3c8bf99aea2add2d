"""mbarrier: arrivals of threads and of copies; the ends of phases."""

import numpy as np
import pytest

from .running import WORD, run

DECLARED = ".shared .align 8 .b64 bar; .shared .align 16 .b32 data[1024];"
INIT = """setp.eq.u32 %p1, %r1, 0; @%p1 mbarrier.init.shared.b64 [bar], {count};
@%p1 fence.mbarrier_init.release.cluster; bar.sync 0;"""
WAIT = "{name}: mbarrier.try_wait{parity}.shared.b64 %p7, [bar], {state}; @!%p7 bra {name};"


def words(body: str, count: int, threads: int, before: str = "", **options) -> list[int]:
    options = {"capability": 90, "declared": DECLARED, **options}
    whole = INIT.format(count=count) + WORD + body
    zeros = np.zeros(threads, "u4")
    return run(whole, zeros, zeros, threads=threads, before=before, **options).tolist()


@pytest.mark.parametrize("threads", [32, 33, 256])
def test_what_was_written_before_the_arrival_is_there(threads):
    """In three phases, each thread reads what its neighbour wrote before the neighbour arrived."""
    exchange = ""
    for phase in range(3):
        wait = WAIT.format(name=f"wait{phase}", parity="", state="%rd10")
        exchange += f"""mul.lo.u32 %r2, %r1, 4; mov.u32 %r3, data; add.u32 %r2, %r2, %r3;
        add.u32 %r4, %r1, {phase * 100}; st.shared.u32 [%r2], %r4;
        mbarrier.arrive.shared.b64 %rd10, [bar]; {wait}
        add.u32 %r5, %r1, 1; rem.u32 %r5, %r5, {threads}; mul.lo.u32 %r5, %r5, 4;
        add.u32 %r5, %r5, %r3; ld.shared.u32 %r6, [%r5]; add.u32 %r7, %r7, %r6; bar.sync 0;"""
    body = f"mov.u32 %r7, 0; {exchange} st.global.u32 [%rd3], %r7;"
    wanted = [3 * ((i + 1) % threads) + 300 for i in range(threads)]
    assert words(body, threads, threads) == wanted


def test_parities_of_phases():
    """Until the first phase ends, parity 1 means the phase before it, which counts as complete."""
    test = "mbarrier.test_wait.parity.shared.b64 %p{0}, [bar], {1}; selp.u32 %r{0}, 1, 0, %p{0};"
    body = f"""{test.format(2, 0)} {test.format(3, 1)} mbarrier.arrive.shared.b64 %rd10, [bar];
    {test.format(4, 0)} {test.format(5, 1)} mbarrier.test_wait.shared.b64 %p6, [bar], %rd10;
    selp.u32 %r6, 1, 0, %p6; shl.b32 %r3, %r3, 1; shl.b32 %r4, %r4, 2; shl.b32 %r5, %r5, 3;
    shl.b32 %r6, %r6, 4; or.b32 %r2, %r2, %r3; or.b32 %r2, %r2, %r4; or.b32 %r2, %r2, %r5;
    or.b32 %r2, %r2, %r6; st.global.u32 [%rd3], %r2;"""
    assert words(body, 1, 1) == [0b10110]


def test_several_arrivals_at_once_and_one_that_completes_nothing():
    body = """mbarrier.arrive.noComplete.shared.b64 %rd10, [bar], 2;
    mbarrier.test_wait.shared.b64 %p2, [bar], %rd10; selp.u32 %r2, 1, 0, %p2;
    mbarrier.arrive.shared.b64 %rd11, [bar], 3;
    mbarrier.test_wait.shared.b64 %p3, [bar], %rd11; selp.u32 %r3, 2, 0, %p3;
    mbarrier.pending_count.b64 %r4, %rd10; or.b32 %r2, %r2, %r3;
    st.global.u32 [%rd3], %r2; mbarrier.inval.shared.b64 [bar];"""
    assert words(body, 5, 1) == [2]


def test_who_drops_out_is_not_waited_for():
    """The phase does not wait for threads that have dropped out.

    Of 64 threads, the threads of the second warp take part in the first phase only.
    """
    first = WAIT.format(name="first", parity=".parity", state="0")
    second = WAIT.format(name="second", parity=".parity", state="1")
    body = f"""setp.ge.u32 %p2, %r1, 32; mov.u32 %r2, 1;
    @%p2 mbarrier.arrive_drop.shared.b64 %rd10, [bar]; @%p2 bra end;
    mbarrier.arrive.shared.b64 %rd10, [bar]; {first} mov.u32 %r2, 2;
    mbarrier.arrive.shared.b64 %rd10, [bar]; {second} mov.u32 %r2, 3;
    end: st.global.u32 [%rd3], %r2;"""
    assert words(body, 64, 64) == [3] * 32 + [1] * 32


def test_lanes_of_a_warp_wait_for_another_lane():
    """Lanes wait for another lane of their warp: lane 31 arrives long after the others wait."""
    wait = WAIT.format(name="wait", parity=".parity", state="0")
    body = f"""mov.u32 %r2, 0; setp.ne.u32 %p2, %r1, 31; @%p2 bra wait;
    work: add.u32 %r2, %r2, 1; setp.lt.u32 %p3, %r2, 3000; @%p3 bra work;
    st.shared.u32 [data], %r2; mbarrier.arrive.shared.b64 %rd10, [bar];
    {wait} ld.shared.u32 %r2, [data]; st.global.u32 [%rd3], %r2;"""
    assert words(body, 1, 32) == [3000] * 32


def test_generic_addresses_and_offsets():
    body = """mov.u64 %rd4, bar; cvta.shared.u64 %rd4, %rd4; sub.u64 %rd4, %rd4, 8;
    mbarrier.arrive.b64 %rd10, [%rd4+8]; mbarrier.test_wait.b64 %p2, [%rd4+8], %rd10;
    selp.u32 %r2, 1, 0, %p2; st.global.u32 [%rd3], %r2;"""
    assert words(body, 1, 1) == [1]


def test_bytes_hold_the_phase_up():
    """A phase ends only when all expected bytes have come.

    `expect_tx` and `complete_tx` may come in either order.
    """
    test = "mbarrier.test_wait.parity.shared.b64 %p2, [bar], {}; selp.u32 %r{}, 1, 0, %p2;"
    body = f"""mbarrier.arrive.expect_tx.shared.b64 %rd10, [bar], 64; {test.format(0, 2)}
    mbarrier.complete_tx.relaxed.cta.shared.b64 [bar], 48; {test.format(0, 3)}
    mbarrier.complete_tx.relaxed.cta.shared.b64 [bar], 16; {test.format(0, 4)}
    mbarrier.complete_tx.relaxed.cta.shared.b64 [bar], 32;
    mbarrier.expect_tx.relaxed.cta.shared.b64 [bar], 32; {test.format(1, 5)}
    mbarrier.arrive.shared.b64 %rd10, [bar]; {test.format(1, 6)}
    shl.b32 %r3, %r3, 1; shl.b32 %r4, %r4, 2; shl.b32 %r5, %r5, 3; shl.b32 %r6, %r6, 4;
    or.b32 %r2, %r2, %r3; or.b32 %r2, %r2, %r4; or.b32 %r2, %r2, %r5; or.b32 %r2, %r2, %r6;
    st.global.u32 [%rd3], %r2;"""
    assert words(body, 1, 1) == [0b10100]
