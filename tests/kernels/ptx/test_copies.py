"""cp.async and cp.async.bulk: copies between global and shared memory, and waits for them."""

import numpy as np
import pytest

import cudadrv as cu

from .running import run

RANDOM = np.random.default_rng(18)
DECLARED = ".shared .align 16 .b8 tile[4096]; .shared .align 8 .b64 bar;"
# Computes addresses of this thread's bytes: %rd3 in the result, %rd4 in the input, %r2 in the tile.
PLACES = """mul.wide.u32 %rd5, %r1, {bytes}; add.u64 %rd3, %rd1, %rd5; add.u64 %rd4, %rd2, %rd5;
mov.u32 %r3, tile; mad.lo.u32 %r2, %r1, {bytes}, %r3;"""
BACK = """mov.u32 %r4, 0; mov.u64 %rd6, %rd3; mov.u32 %r5, %r2;
back: ld.shared.u32 %r6, [%r5]; st.global.u32 [%rd6], %r6; add.u32 %r5, %r5, 4;
add.u64 %rd6, %rd6, 4; add.u32 %r4, %r4, 4; setp.lt.u32 %p1, %r4, {bytes}; @%p1 bra back;"""


def copied(copy: str, size: int, **options) -> tuple[np.ndarray, np.ndarray]:
    """The input of 64 threads, and what they read back after the instructions `copy`."""
    given = RANDOM.integers(0, 256, (64, size), "u1")
    body = PLACES.format(bytes=size) + copy + BACK.format(bytes=size)
    result = np.zeros((64, size), "u1")
    options = {"capability": 80, "declared": DECLARED, **options}
    return given, run(body, given, result, threads=64, **options)


WAITS = ["cp.async.commit_group; cp.async.wait_group 0;", "cp.async.wait_all;"]


@pytest.mark.parametrize("wait", WAITS)
@pytest.mark.parametrize("level, size", [("ca", 4), ("ca", 8), ("ca", 16), ("cg", 16)])
def test_whole_copies(level, size, wait):
    given, found = copied(f"cp.async.{level}.shared.global [%r2], [%rd4], {size}; {wait}", size)
    assert (found == given).all()


@pytest.mark.parametrize("hints", ["shared::cta.global.L2::128B", "shared.global.L2::64B"])
def test_hints_and_offsets(hints):
    copy = f"""add.u32 %r7, %r2, 32; add.u64 %rd7, %rd4, 64;
    cp.async.ca.{hints} [%r7+-32], [%rd7+-64], 8; {WAITS[1]}"""
    given, found = copied(copy, 8)
    assert (found == given).all()


@pytest.mark.parametrize("size", [4, 8, 16])
def test_what_is_not_read_becomes_zero(size):
    """Thread i reads i % (size + 1) bytes. The source address need not be valid beyond these."""
    copy = f"""rem.u32 %r8, %r1, {size + 1}; setp.eq.u32 %p2, %r8, 0; @%p2 mov.u64 %rd4, 0;
    cp.async.ca.shared.global [%r2], [%rd4], {size}, %r8; {WAITS[0]}"""
    given, found = copied(copy, size)
    wanted = given.copy()
    for thread in range(64):
        wanted[thread, thread % (size + 1) :] = 0
    assert (found == wanted).all()


def test_a_predicate_says_what_is_ignored():
    copy = f"""and.b32 %r8, %r1, 1; setp.eq.u32 %p2, %r8, 1;
    cp.async.ca.shared.global [%r2], [%rd4], 8, %p2; {WAITS[0]}"""
    given, found = copied(copy, 8, version="8.7")
    given[1::2] = 0
    assert (found == given).all()


WAIT = "wait: mbarrier.try_wait.parity.shared.b64 %p7, [bar], 0; @!%p7 bra wait;"
INIT = "setp.eq.u32 %p6, %r1, 0; @%p6 mbarrier.init.shared.b64 [bar], {}; bar.sync 0;"


@pytest.mark.parametrize("own", [True, False])
def test_an_mbarrier_learns_of_copies(own):
    """With .noinc, the arrivals of copies are among the expected arrivals.

    Without .noinc, they come in addition to the expected arrivals.
    """
    arrive = "cp.async.mbarrier.arrive.noinc.shared.b64 [bar];"
    if not own:
        arrive = "cp.async.mbarrier.arrive.shared::cta.b64 [bar];"
        arrive += "mbarrier.arrive.shared.b64 %rd10, [bar];"
    wait = WAIT.replace("try", "try" if own else "test")
    copy = f"{INIT.format(64)} cp.async.ca.shared.global [%r2], [%rd4], 16; {arrive} {wait}"
    given, found = copied(copy, 16, capability=90)
    assert (found == given).all()


@pytest.mark.parametrize("space", ["shared::cluster", "shared::cta"])
@pytest.mark.parametrize("size", [16, 48])
def test_bulk_copies_to_shared_memory(space, size):
    """One thread copies everything, and all threads wait for its bytes."""
    all_bytes = 64 * size
    copy = f"""{INIT.format(1)} @!%p6 bra wait;
    mbarrier.arrive.expect_tx.shared.b64 %rd10, [bar], {all_bytes};
    cp.async.bulk.{space}.global.mbarrier::complete_tx::bytes [tile], [%rd2], {all_bytes}, [bar];
    {WAIT}"""
    version = "8.0" if space == "shared::cluster" else "8.6"
    given, found = copied(copy, size, capability=90, version=version)
    assert (found == given).all()


def test_bulk_copies_of_many_threads():
    """Each thread copies its own bytes.

    A copy may complete before the mbarrier expects its bytes.
    """
    copy = f"""{INIT.format(64)} mov.u32 %r8, 32;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%rd4], %r8, [bar];
    mbarrier.arrive.expect_tx.shared.b64 %rd10, [bar], %r8; {WAIT}"""
    given, found = copied(copy, 32, capability=90)
    assert (found == given).all()


@pytest.mark.parametrize("read", ["", ".read"])
def test_bulk_copies_to_global_memory(read):
    size = 32
    given = RANDOM.integers(0, 256, (64, size), "u1")
    body = f"""{PLACES.format(bytes=size)}
    ld.global.v4.u32 {{%r10, %r11, %r12, %r13}}, [%rd4];
    st.shared.v4.u32 [%r2], {{%r10, %r11, %r12, %r13}};
    ld.global.v4.u32 {{%r10, %r11, %r12, %r13}}, [%rd4+16];
    st.shared.v4.u32 [%r2+16], {{%r10, %r11, %r12, %r13}};
    fence.proxy.async.shared::cta; bar.sync 0; setp.eq.u32 %p1, %r1, 0; @!%p1 bra end;
    cp.async.bulk.global.shared::cta.bulk_group [%rd1], [tile], {64 * size};
    cp.async.bulk.commit_group; cp.async.bulk.wait_group{read} 0; end:"""
    result = np.zeros_like(given)
    options = {"threads": 64, "capability": 90, "declared": DECLARED}
    assert (run(body, given, result, **options) == given).all()


def test_a_bulk_copy_of_nothing():
    copy = f"""{INIT.format(64)} mov.u32 %r8, 16; @%p6 mov.u32 %r8, 0;
    mbarrier.arrive.expect_tx.shared.b64 %rd10, [bar], %r8;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%rd4], %r8, [bar];
    {WAIT} @%p6 st.shared.v4.u32 [%r2], {{0, 0, 0, 0}};"""
    given, found = copied(copy, 16, capability=90)
    given[0] = 0
    assert (found == given).all()


def test_bulk_copies_within_shared_memory():
    """One thread copies twice, in two phases. The other threads wait for it at the end.

    compute-sanitizer reports the second copy ("Access to 0xc00 is not located in remote CTA"),
    because its target is in the block's own memory. PTX allows that: addresses in .shared::cta are
    addresses in .shared::cluster, too.
    """
    copy = f"""{INIT.format(1)} @!%p6 bra end;
    mbarrier.arrive.expect_tx.shared.b64 %rd10, [bar], 1024;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [%rd2], 1024, [bar];
    first: mbarrier.try_wait.parity.shared.b64 %p7, [bar], 0; @!%p7 bra first;
    mbarrier.arrive.expect_tx.shared.b64 %rd10, [bar], 1024;
    cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [tile+2048], [tile],
    1024, [bar];
    second: mbarrier.try_wait.parity.shared.b64 %p7, [bar], 1; @!%p7 bra second;
    end: bar.sync 0; add.u32 %r2, %r2, 2048;"""
    given, found = copied(copy, 16, capability=90, directives=".reqnctapercluster 1, 1, 1")
    assert (found == given).all()


# Types of reductions in bulk: how NumPy reads them.
NUMPY = {"u32": "u4", "s32": "i4", "u64": "u8", "s64": "i8", "b32": "u4", "b64": "u8"}
NUMPY |= {"f16": "f2", "noftz.f16": "f2", "f32": "f4", "f64": "f8"}
REDUCTIONS = {
    "add": (np.add, ["u32", "s32", "u64", "f32", "f64", "noftz.f16"]),
    "min": (np.minimum, ["u32", "s32", "u64", "s64", "f16"]),
    "max": (np.maximum, ["u32", "s32", "u64", "s64", "f16"]),
    "and": (np.bitwise_and, ["b32", "b64"]),
    "or": (np.bitwise_or, ["b32", "b64"]),
    "xor": (np.bitwise_xor, ["b32", "b64"]),
    "inc": (lambda a, b: np.where(a >= b, 0, a + 1), ["u32"]),
    "dec": (lambda a, b: np.where((a == 0) | (a > b), b, a - 1), ["u32"]),
}


@pytest.mark.parametrize(
    ("operation", "kind"),
    [(name, kind) for name, (_, kinds) in REDUCTIONS.items() for kind in kinds],
)
def test_reductions_in_bulk(operation, kind):
    """Two blocks update the same bytes; the result is the same in every order of the blocks."""
    dtype = NUMPY[kind]
    given, old = (RANDOM.integers(0, 100, 512 // np.dtype(dtype).itemsize) for _ in range(2))
    given, old = given.astype(dtype), old.astype(dtype)
    body = f"""{PLACES.format(bytes=16)}
    ld.global.v4.u32 {{%r10, %r11, %r12, %r13}}, [%rd4];
    st.shared.v4.u32 [%r2], {{%r10, %r11, %r12, %r13}};
    fence.proxy.async.shared::cta; bar.sync 0; setp.eq.u32 %p1, %r1, 0; @!%p1 bra end;
    cp.reduce.async.bulk.global.shared::cta.bulk_group.{operation}.{kind} [%rd1], [tile], 512;
    cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; end:"""
    options = {"threads": 32, "blocks": 2, "capability": 90, "declared": DECLARED}
    function = REDUCTIONS[operation][0]
    wanted = function(function(old, given), given).astype(dtype)
    assert (run(body, given, old, **options) == wanted).all()


@pytest.mark.cuda_software
@pytest.mark.parametrize("text", ["add.f16", "add.s64", "min.f32", "and.u32", "add.f16x2"])
def test_what_is_no_reduction(text):
    body = f"cp.reduce.async.bulk.global.shared::cta.bulk_group.{text} [%rd1], [tile], 16;"
    with pytest.raises(cu.CudaError, match=r"cp\.reduce"):
        run(body, np.zeros(1), np.zeros(1), capability=90, declared=DECLARED)
