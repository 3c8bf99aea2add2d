"""Copies between devices, and access of a device to the memory of another one.

Tests run on the software driver and, unless they are marked, on two GPUs.
"""

import pytest

software = pytest.mark.cuda_software
# A kernel in which one thread adds the items one after the other.
KERNEL = '''
PTX = """
.version 6.4
.target sm_75
.address_size 64
.visible .entry add(.param .u64 out, .param .u64 a, .param .u32 count)
{
    .reg .pred %done;
    .reg .u32 %left, %x, %y;
    .reg .u64 %out, %a;
    ld.param.u64 %out, [out];
    ld.param.u64 %a, [a];
    ld.param.u32 %left, [count];
LOOP:
    setp.eq.u32 %done, %left, 0;
    @%done ret;
    ld.global.u32 %x, [%out];
    ld.global.u32 %y, [%a];
    add.u32 %x, %x, %y;
    st.global.u32 [%out], %x;
    add.u64 %out, %out, 4;
    add.u64 %a, %a, 4;
    sub.u32 %left, %left, 1;
    bra LOOP;
}
"""
with zero:
    add = cu.Module(PTX)["add"]
'''
BUFFERS = """
items = np.arange(1024, dtype="u4")
a = cu.DeviceBuffer.from_array(items, device=zero, name="a")
b = cu.DeviceBuffer.zeros(1024, "u4", device=one, name="b")
"""


# ---- copies ----


def test_copies_on_a_stream_of_either(pair):
    pair(
        BUFFERS
        + """
created = cu.Stream(device=zero, blocking=True)
streams = [near, far, created]
for device in (zero, one):
    streams += [cu.Stream.legacy(device=device), cu.Stream.per_thread(device=device)]
for stream in streams:
    b.fill(0)
    token = b.copy_from_async(a, stream)
    assert (token.stream, token.reads, token.writes) == (stream, (a,), (b,))
    assert a.borrowed and b.borrowed
    token.wait()
    assert not a.borrowed and not b.borrowed
    assert (b.to_numpy() == items).all()
    b[:512].copy_to_async(a[512:], stream).wait()   # and back
    assert (a.to_numpy()[512:] == items[:512]).all()
    a.copy_from(items)
""",
    )


def test_blocking_copies(pair):
    pair(
        BUFFERS
        + """
b.copy_from(a)
assert (b.to_numpy() == items).all()
b.fill(7)
b[10:20].copy_to(a[20:30])
assert a.to_numpy()[20:30].tolist() == [7] * 10
a.copy_from(b, stream=near)
a[:4].copy_from(b[:4], stream=far)
with near:
    b.copy_from(a)
assert not a.borrowed and not b.borrowed
assert (a.to_numpy() == 7).all()
""",
    )


def test_sizes_and_kinds_of_memory(pair):
    pair(
        """
bytes_ = np.random.default_rng(1).integers(0, 256, (3 << 20) + 5, dtype="u1")
locked, managed = cu.LockedBuffer.from_array(bytes_), cu.UnifiedBuffer(bytes_.size)
plain = [cu.DeviceBuffer(bytes_.size, device=device) for device in (zero, one)]
ordered = [cu.DeviceBuffer(bytes_.size, stream=stream) for stream in (near, far)]
pools = [cu.DriverPool("device", device) for device in (zero, one)]
of_pools = []
for pool, stream in zip(pools, (near, far)):
    with pool:
        of_pools.append(cu.DeviceBuffer(bytes_.size, stream=stream))
near.synchronize()
far.synchronize()
for here in (plain[0], ordered[0], of_pools[0]):
    for there in (plain[1], ordered[1], of_pools[1]):
        for stream in (near, far):
            here.copy_from(locked)
            there.copy_from_async(here, stream).wait()
            here.fill(0)
            here[5:].copy_from_async(there[:-5], stream).wait()
            assert (here.to_numpy()[5:] == bytes_[:-5]).all()
            for size in (0, 1, 3, 4097):
                here[:size].copy_from_async(there[7:7 + size], stream).wait()
                assert (here.to_numpy()[:size] == bytes_[7:7 + size]).all()
managed.copy_from_async(plain[1], far).wait()
managed.copy_to_async(plain[0], near).wait()
assert (plain[0].to_numpy() == bytes_).all()
""",
    )


def test_order_is_checked_on_both_devices(pair):
    pair(
        BUFFERS
        + """
a.fill_async(1, near)
words = "it is being written by fill_async on Stream"
message = refused(cu.BufferBorrowedError, words, lambda: b.copy_from_async(a, far))
assert "cannot read DeviceBuffer 'a'[0:1024] (uint32) by copy_from_async" in message
far.wait(near)
b.copy_from_async(a, far)
words = "it is being read by copy_from_async on Stream"
refused(cu.BufferBorrowedError, words, lambda: a.fill_async(2, near))
third = cu.Stream(device=one)
refused(cu.BufferBorrowedError, "written by copy_from_async", lambda: b.fill_async(2, third))
refused(cu.BufferBorrowedError, "cannot close", a.close)
a[:0].fill_async(2, near)
cu.DeviceBuffer(1024, "u4", device=zero).copy_from_async(a, near)   # allowed: both read
near.wait(far)
a.fill_async(2, near)
one.synchronize()                   # the copy is complete; the last fill may not be
assert (b.to_numpy() == 1).all()
refused(cu.BufferBorrowedError, "fill_async", lambda: a.to_numpy())
zero.synchronize()
assert (a.to_numpy() == 2).all()
with cu.ordering("wait"):
    a.fill_async(3, near)
    b.copy_from_async(a, far)
    a.fill_async(4, near)
    assert (b.to_numpy() == 3).all() and (a.to_numpy() == 4).all()
""",
    )


def test_disjoint_parts_go_both_ways_at_once(pair):
    pair(
        BUFFERS
        + """
for turn in range(20):
    b[:512].copy_from_async(a[:512], near)
    a[512:].copy_from_async(b[512:], far)
    near.synchronize()
    far.synchronize()
assert (b.to_numpy()[:512] == items[:512]).all()
assert (a.to_numpy()[512:] == 0).all()
""",
    )


def test_the_current_stream_is_the_innermost_of_either_device(pair):
    pair(
        BUFFERS
        + """
refused(TypeError, "copy_from_async needs a stream", lambda: b.copy_from_async(a))
for outer, inner in ((near, far), (far, near)):
    with outer, inner:
        assert b.copy_from_async(a).stream is inner
        assert a.copy_to_async(b).stream is inner
    inner.synchronize()
    with outer:
        assert b.copy_from_async(a).stream is outer
    outer.synchronize()
""",
    )


def test_to_another_device(pair):
    pair(
        BUFFERS
        + """
grid = a.reshape(32, 32)
for stream in (None, near, far):
    made = grid.to(one, **({} if stream is None else {"stream": stream}))
    assert (made.device, made.shape, made.name) == (one, (32, 32), "a")
    assert made.borrowed is (stream is not None)
    one.synchronize()
    zero.synchronize()
    assert (made.to_numpy().ravel() == items).all()
    assert (made.to(zero).to_numpy().ravel() == items).all()
""",
    )


def test_created_contexts(pair):
    pair(
        BUFFERS
        + """
for device in (zero, one):
    context = cu.Context.create(device)
    with context:
        stream, mine = cu.Stream(), cu.DeviceBuffer(1024, "u4")
    for theirs, other in ((a, near), (b, far)):
        for on in (stream, other):
            theirs.copy_from(items)
            mine.copy_from_async(theirs, on).wait()
            theirs.fill(0)
            theirs.copy_from_async(mine, on).wait()
            assert (theirs.to_numpy() == items).all()
    refused(ValueError, "to another context", lambda: mine.fill_async(0, near))
    refused(ValueError, "to another context", lambda: mine.fill_async(0, far))
    context.synchronize()
    del stream, mine, on, context, other, theirs
    gc.collect()
""",
    )


def test_what_does_not_fit_is_refused_before_the_driver(pair):
    pair(
        BUFFERS
        + """
third = cu.Context.create(zero)
with third:
    stream = cu.Stream()
refused(ValueError, "to another context; use a stream of", lambda: b.copy_from_async(a, stream))
refused(ValueError, "has 1024 items, and DeviceBuffer", lambda: b.copy_from_async(a[1:], near))
refused(TypeError, "different dtypes", lambda: b.copy_from_async(a.view("f4"), near))
refused(TypeError, "stream must be a Stream", lambda: b.copy_from_async(a, 3))
refused(ValueError, "to <Context primary, device 0>", lambda: a.copy_from_async(items, far))
refused(ValueError, "another context; use a stream of the buffer's context", lambda: a.lend(far))
near.close()
refused(ValueError, "is closed", lambda: b.copy_from_async(a, near))
a.close()
refused(cu.BufferClosedError, "was closed", lambda: b.copy_from_async(a, far))
refused(cu.BufferClosedError, "was closed", lambda: a.copy_from(b))
assert not b.borrowed
""",
    )


@software
def test_one_call_of_the_driver(machine):
    """A copy calls cuMemcpyPeerAsync once, with or without access. One of 0 bytes makes no call."""
    machine(
        "devices=2",
        BUFFERS
        + """
def calls():
    return [testing.calls("cuMemcpyPeerAsync"), testing.calls("cuMemcpyDtoDAsync_v2")]

before = calls()
b.copy_from_async(a, near).wait()
b[:0].copy_from_async(a[:0], near).wait()
zero.enable_access(one)
b.copy_from(a)
assert calls() == [before[0] + 2, before[1]]
""",
    )


def test_memory_outlives_the_copy(pair):
    pair(
        BUFFERS
        + """
for turn in range(50):
    for options in ({}, {"pooled": False}, {"stream": near}):
        source = cu.DeviceBuffer(1024, "u4", **({"device": zero} | options))
        source.fill_async(turn, near)
        target = cu.DeviceBuffer(1024, "u4", device=one, pooled=turn % 2 == 0)
        far.wait(near)
        target.copy_from_async(source, far)
        del source                  # its memory must not be used again before the copy
        cu.DeviceBuffer(1024, "u4", device=zero).fill_async(999, near)
        b.copy_from_async(target, far)
        del target
        far.synchronize()
        assert (b.to_numpy() == turn).all(), turn
near.synchronize()
cu.reap()
""",
    )


@software
def test_memory_dies_behind_a_copy_of_the_other_device(machine):
    machine(
        "devices=2",
        BUFFERS
        + """
flag = hold(far)
source = cu.DeviceBuffer(1024, "u4", device=zero, pooled=False)
before = testing.live_objects()["device"]
b.copy_from_async(source, far)
refused(cu.BufferBorrowedError, "being read by copy_from_async", source.close)
del source
gc.collect()
cu.DeviceBuffer(1, device=zero)
assert testing.live_objects()["device"] >= before
flag[0] = 1
cu.reap()
assert testing.live_objects()["device"] < before
""",
    )


# ---- access ----


def test_who_can_have_access(pair):
    pair(
        """
assert zero.can_access(zero) and zero.can_access(one) and one.can_access(zero)
link = zero.link_to(one)
assert link == (True, link.performance_rank, link.native_atomics)
assert link.performance_rank >= 0 and isinstance(link.native_atomics, bool)
refused(ValueError, "has no link to itself", lambda: zero.link_to(cu.Device(0)))
for call in (zero.can_access, zero.enable_access, zero.disable_access, zero.link_to):
    for wrong in (None, 1, "1", zero.context):
        refused(TypeError, "", lambda: call(wrong))
for call in (zero.context.enable_access, zero.context.disable_access):
    for wrong in (None, one, 0):
        refused(TypeError, "", lambda: call(wrong))
assert zero.peers == () and zero.context.peers == ()
""",
    )


def test_access_is_one_way_and_can_be_enabled_twice(pair):
    pair(
        """
zero.enable_access(one)
zero.enable_access(one)
zero.enable_access(zero)            # it always has this access
assert (zero.peers, one.peers) == ((one,), ())
assert zero.context.peers == (one.context,)
one.enable_access(zero)
zero.disable_access(one)
zero.disable_access(one)
assert (zero.peers, one.peers) == ((), (zero,))
refused(ValueError, "always has access to its own memory", lambda: zero.disable_access(zero))
other = cu.Context.create(zero)
words = "the driver gives access between devices only"
refused(ValueError, words, lambda: other.enable_access(zero.context))
zero.context.disable_access(other)
other.enable_access(one.context)
assert other.peers == (one.context,) and zero.peers == ()
one.context.enable_access(other)
assert set(one.context.peers) == {zero.context, other} and one.peers == (zero,)
del other
gc.collect()
assert one.context.peers == (zero.context,)
""",
    )


ADVICE = "or give access: cudadrv.Device(0).enable_access(cudadrv.Device(1))"


def test_kernels_on_memory_of_the_other_device(pair):
    pair(
        BUFFERS
        + KERNEL
        + f"""
words = "{ADVICE}"
launch = lambda *buffers: add.launch(1, 1, *buffers, 1024, stream=near)
for buffers in ((a, cu.read(b)), (b, a), (a, cu.shared(b))):
    refused(ValueError, words, lambda: launch(*buffers))
refused(ValueError, words, lambda: add.launch(1, 1, a, a, 1024, borrows=[b], stream=near))
refused(ValueError, words, lambda: add.prepare(1, 1, b, a, 1024).launch(near))
refused(ValueError, words, lambda: b.fill_async(0, near))
assert not a.borrowed and not b.borrowed

zero.enable_access(one)
b.fill_async(5, far)
message = refused(cu.BufferBorrowedError, "written by fill_async", lambda: launch(a, cu.read(b)))
assert "argument 1 (a, .u64) DeviceBuffer 'b'[0:1024]" in message, message
near.wait(far)
launch(a, cu.read(b))
b.copy_to_async(cu.DeviceBuffer(1024, "u4", device=one), far)       # allowed: both read
refused(cu.BufferBorrowedError, "read by launch of add", lambda: b.fill_async(1, far))
far.wait(near)
b.fill_async(1, far)
near.wait(far)
launch(b, cu.read(a))
token = add.prepare(1, 1, b, cu.read(a), 1024).launch(near)
assert token.writes == (b,)
near.synchronize()
assert (b.to_numpy() == 1 + 2 * (items + 5)).all()
b[:512].fill_async(8, near).wait()
b[512:].fill(9, stream=near)
assert set(b.to_numpy()) == {{8, 9}}
zero.disable_access(one)
refused(ValueError, words, lambda: launch(a, b))
refused(ValueError, words, lambda: b.fill_async(0, near))
""",
    )


def test_a_variable_of_a_module_of_the_other_device(pair):
    pair(
        BUFFERS
        + """
with one:
    module = cu.Module(".version 6.4\\n.target sm_75\\n.address_size 64\\n"
                       ".visible .global .align 4 .b8 kept[16];")
kept = module.global_("kept", "u4")
kept.fill(3)
zero.enable_access(one)
refused(ValueError, "no access to this memory", lambda: kept.fill_async(0, near))
kept.copy_to_async(a[:4], near)
near.synchronize()
assert (a[:4].to_numpy() == 3).all()
""",
    )


def test_stream_ordered_memory_and_pools(pair):
    pair(
        BUFFERS
        + KERNEL
        + f"""
ordered = cu.DeviceBuffer(1024, "u4", stream=far, name="ordered")
pool = cu.DriverPool("device", one)
with pool:
    of_pool = cu.DeviceBuffer(1024, "u4", stream=far)
for buffer in (ordered, of_pool):
    buffer.fill_async(2, far)
near.wait(far)
launch = lambda *buffers: add.launch(1, 1, *buffers, 1024, stream=near)
refused(ValueError, "{ADVICE}", lambda: launch(ordered, a))
words = "or let its DriverPool give access: pool.allow_access(cudadrv.Device(0))"
refused(ValueError, words, lambda: launch(of_pool, a))
zero.enable_access(one)
launch(ordered, cu.read(a))
refused(ValueError, words, lambda: launch(of_pool, a))
pool.allow_access(zero)
launch(of_pool, cu.read(a))
of_pool[:1].fill_async(7, near)
for end in (lambda: pool.allow_access(zero, None), lambda: zero.disable_access(one)):
    found = refused(cu.OwnershipError, "cannot end the access of", end)
    assert "work of <Context primary, device 0> is not known to be complete: fill_async" in found
    assert "Release it with: device.synchronize()" in found
assert pool.access(zero) == "readwrite" and zero.peers == (one,)
zero.synchronize()
assert (ordered.to_numpy() == items + 2).all()
assert of_pool.to_numpy().tolist() == [7, *(items + 2)[1:]]
zero.disable_access(one)
launch(of_pool, cu.read(a))         # allowed by the access of the pool
zero.synchronize()
pool.allow_access(zero, None)
pool.allow_access(zero, None)
for buffer in (ordered, of_pool):
    refused(ValueError, "to another context", lambda: launch(buffer, a))
""",
    )


def test_access_of_the_default_pool_is_that_of_the_device(pair):
    """Access to the default pool ends when the last context of the device loses its access."""
    pair(
        """
ordered = cu.DeviceBuffer(16, stream=far)
other = cu.Context.create(zero)
with other:
    third = cu.Stream()
far.synchronize()
zero.enable_access(one)
other.enable_access(one.context)
ordered.fill_async(1, near).wait()
ordered.fill_async(1, third)
zero.synchronize()
zero.disable_access(one)
ordered.fill_async(2, third)
found = refused(cu.OwnershipError, "cannot end", lambda: other.disable_access(one.context))
assert "Release it with: context.synchronize()" in found
other.synchronize()
ordered.fill_async(2, near)         # the pool lets the whole device use its memory
refused(cu.OwnershipError, "cannot end", lambda: other.disable_access(one.context))
near.synchronize()
other.disable_access(one.context)
refused(ValueError, "to another context", lambda: ordered.fill_async(1, near))
refused(ValueError, "to another context", lambda: ordered.fill_async(1, third))
del other, third
""",
    )


def test_access_that_another_library_gave(pair):
    pair(
        BUFFERS
        + KERNEL
        + """
driver = ctypes.CDLL(cu.driver_info().path)
with zero:
    assert driver.cuCtxEnablePeerAccess(ctypes.c_void_p(one.context.handle), 0) == 0
assert zero.peers == ()
add.launch(1, 1, a, cu.read(b), 1024, stream=near)
near.synchronize()
zero.disable_access(one)            # ends only access that cudadrv has given
add.launch(1, 1, a, cu.read(b), 1024, stream=near)
near.synchronize()
zero.enable_access(one)
assert zero.peers == (one,)
zero.disable_access(one)
refused(ValueError, "to another context", lambda: add.launch(1, 1, a, b, 8, stream=near))
""",
    )


def test_access_does_not_end_under_unfinished_work(pair):
    pair(
        BUFFERS
        + KERNEL
        + """
zero.enable_access(one)
end = lambda: zero.disable_access(one)
token = add.launch(1, 1, a, cu.read(b), 1024, stream=near)
found = refused(cu.OwnershipError, "cannot end the access of <Context primary, device 0>", end)
assert "to the memory of <Context primary, device 1>" in found
assert "launch of add on Stream" in found and "queued at <string>:" in found
assert zero.peers == (one,)
one.synchronize()
refused(cu.OwnershipError, "launch of add", end)
near.close()                        # a closed stream counts, too
refused(cu.OwnershipError, "launch of add", end)
token.wait()
end()
assert zero.peers == ()
""",
    )


def test_a_thread_that_ends_access_while_others_launch(pair):
    """No kernel runs without access: either the launch is refused, or ending the access is."""
    pair(
        BUFFERS
        + KERNEL
        + """
import sys
import threading
import time

sys.setswitchinterval(1e-5)
counts = {"launched": 0, "refused": 0, "ended": 0, "kept": 0}
stop = False

def launch():
    with cu.Stream(device=zero).scope() as stream:
        out = cu.DeviceBuffer.zeros(8, "u4", device=zero)
        while not stop:
            try:
                add.launch(1, 1, out, cu.read(b), 8, stream=stream).wait()
                counts["launched"] += 1
            except ValueError as error:
                assert "another context" in str(error), error
                counts["refused"] += 1

threads = [threading.Thread(target=launch) for _ in range(2)]
zero.enable_access(one)
for thread in threads:
    thread.start()
turn = 0
while turn < 150 or not (counts["launched"] and counts["ended"]):
    turn += 1
    time.sleep(0.0005 * (turn % 3))
    try:
        zero.disable_access(one)
        counts["ended"] += 1
        zero.enable_access(one)
    except cu.OwnershipError:
        counts["kept"] += 1
stop = True
for thread in threads:
    thread.join()
zero.synchronize()
assert counts["launched"] and counts["ended"]
""",
    )


@software
def test_devices_that_cannot_have_access(machine):
    """Copies also work between devices that cannot have access."""
    machine(
        "devices=2",
        BUFFERS
        + """
for name in ("cuCtxEnablePeerAccess", "cuMemPoolSetAccess"):
    testing.fail(name, 217)
    words = f"{name}: CUDA_ERROR_PEER_ACCESS_UNSUPPORTED"
    refused(cu.CudaError, words, lambda: zero.enable_access(one))
assert zero.peers == ()
refused(ValueError, "give access", lambda: b.fill_async(0, near))   # no access remained
testing.fail("cuMemcpyPeerAsync", 1)
with zero:
    words = "cuMemcpyPeerAsync: CUDA_ERROR_INVALID_VALUE"
    refused(cu.CudaError, words, lambda: b.copy_from(a, stream=near))
assert not a.borrowed and not b.borrowed
zero.enable_access(one)
testing.fail("cuCtxDisablePeerAccess", 1)
words = "cuCtxDisablePeerAccess: CUDA_ERROR_INVALID_VALUE"
refused(cu.CudaError, words, lambda: zero.disable_access(one))
assert zero.peers == (one,)
zero.disable_access(one)
b.copy_from(a)
""",
    )


@software
def test_a_lost_device(machine):
    """Memory of a lost context cannot be copied any more. The other device still works."""
    machine(
        "devices=2",
        BUFFERS
        + """
zero.enable_access(one)
with one:
    testing.fail("cuMemsetD32Async", 700)
    refused(cu.ContextLostError, "cuMemsetD32Async", lambda: b.fill_async(0, far))
for stream in (near, far):
    refused(cu.ContextLostError, "", lambda: a.copy_from_async(b, stream))
refused(cu.ContextLostError, "", lambda: zero.enable_access(one))
refused(cu.ContextLostError, "", lambda: zero.disable_access(one))
a.fill_async(3, near)
assert (a.to_numpy(stream=near) == 3).all()
b.close()
""",
        tail="\nnear.synchronize()\nassert not testing.races()\n",
    )


@software
def test_a_copy_finds_that_the_other_device_is_lost(machine):
    """If a copy fails because one of its two contexts is lost, the other one stays usable."""
    machine(
        "devices=2,kernel_faults=record",
        BUFFERS
        + KERNEL.replace("with zero", "with one")
        + """
nothing = ctypes.c_uint64(8)        # an illegal address
add.launch(1, 1, nothing, nothing, 1, stream=far)
driver = ctypes.CDLL(cu.driver_info().path)
with one:
    driver.cuCtxSynchronize()       # the library does not learn of the error
found = refused(cu.ContextLostError, "cuMemcpyPeerAsync: CUDA", lambda: b.copy_from_async(a, near))
assert "launch of add on Stream" in found
a.fill_async(3, near)
assert (a.to_numpy(stream=near) == 3).all()
refused(cu.ContextLostError, "lost by an earlier error", lambda: b.fill_async(0, far))
""",
        tail="\nnear.synchronize()\nassert not testing.races()\n",
    )


@software
def test_a_forked_child_is_refused(script, driver, monkeypatch):
    monkeypatch.setenv("CUDADRV_SOFTWARE", "devices=2")
    script.refused_after_fork(
        """
    import os, sys
    import cudadrv as cu
    zero, one = cu.Device(0), cu.Device(1)
    near = cu.Stream(device=zero)
    a, b = cu.DeviceBuffer(8, device=zero), cu.DeviceBuffer(8, device=one)
    zero.enable_access(one)
""",
        """a.copy_from(b) | a.copy_from_async(b, near) | b.fill_async(0, near) | a.to(one)
           zero.enable_access(one) | zero.disable_access(one) | one.enable_access(zero)
           zero.context.enable_access(one.context) | one.context.disable_access(zero.context)
           zero.can_access(one) | zero.link_to(one)""",
        "",
        "assert os.waitpid(child, 0)[1] == 0",
    )
