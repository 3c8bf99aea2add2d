"""Streams, events and contexts of two devices."""

import pytest

pytestmark = pytest.mark.cuda_software


def test_records_stay_in_a_context_and_waits_cross(machine):
    machine(
        "devices=2",
        """
a, b = cu.DeviceBuffer(8, device=zero), cu.DeviceBuffer(8, device=one)
locked = cu.LockedBuffer.zeros(8)
event = cu.Event(device=one)
refused(ValueError, "of another context", lambda: near.record(event))
refused(cu.EventNotRecordedError, "never recorded", lambda: near.wait(event))

def write():
    return locked.copy_from_async(b, far)

def read():
    near.synchronize()
    a.copy_from_async(locked, near)

for wait in (
    lambda token: near.wait(far.record(event)),
    lambda token: near.wait(far),
    lambda token: near.wait(token),
    lambda token: token.wait(),
    lambda token: far.record().synchronize(),
    lambda token: one.synchronize(),
):
    far.wait(near)
    token = write()
    refused(cu.BufferBorrowedError, "written by copy_from_async", read)
    wait(token)
    read()
""",
    )


def test_waits_are_transitive_across_devices(machine):
    machine(
        "devices=2",
        """
locked, a = cu.LockedBuffer.zeros(8), cu.DeviceBuffer(8, device=zero)
again = cu.Stream(device=zero)
a.copy_from_async(locked, near)
far.wait(near)
refused(cu.BufferBorrowedError, "written by", lambda: a.fill_async(0, again))
again.wait(far)
a.fill_async(0, again)
far.synchronize()                   # covers the work for which `far` has waited
locked[0] = 1
""",
    )


def test_default_streams_order_their_own_device(machine):
    machine(
        "devices=2",
        """
locked = cu.LockedBuffer.zeros(8)
blocking = cu.Stream(blocking=True, device=zero)
assert cu.Stream.legacy(device=one) is not cu.Stream.legacy(device=zero)
assert cu.Stream.per_thread(device=one) is not cu.Stream.per_thread(device=zero)
locked.fill_async(1, blocking)
for stream in (cu.Stream.legacy(device=one), cu.Stream.per_thread(device=one)):
    refused(cu.BufferBorrowedError, "written by", lambda: locked.fill_async(2, stream))
locked.fill_async(2, cu.Stream.legacy(device=zero))
""",
    )


def test_synchronizing_one_device_says_nothing_of_the_other(machine):
    machine(
        "devices=2",
        """
locked, b = cu.LockedBuffer.zeros(8), cu.DeviceBuffer(8, device=one)
b.copy_from_async(locked, far)
for everything in (zero, zero.context, near):
    everything.synchronize()
    assert b.borrowed and locked.borrowed
one.context.synchronize()
assert not b.borrowed and not locked.borrowed
""",
    )


def test_synchronizing_a_device_tells_what_its_dead_streams_had_waited_for(machine):
    machine(
        "devices=2",
        """
import threading

locked, b = cu.LockedBuffer.zeros(8), cu.DeviceBuffer(8, device=one)
a = cu.DeviceBuffer.zeros(8, device=zero)

def wait_and_die(**options):
    cu.Stream(device=one, **options).wait(near)

def work_and_die():
    stream = cu.Stream(device=one)
    stream.wait(near)
    b.fill_async(1, stream)

def in_a_thread():
    thread = threading.Thread(target=lambda: cu.Stream.per_thread(device=one).wait(near))
    thread.start()
    thread.join()

for die in (wait_and_die, lambda: wait_and_die(blocking=True), work_and_die, in_a_thread):
    locked.copy_from_async(a, near)
    die()
    gc.collect()
    refused(cu.BufferBorrowedError, "Stream 1", lambda: locked[0])
    one.synchronize()
    locked[0] = 1
""",
    )


def test_wait_inserts_what_is_missing_between_devices(machine):
    machine(
        "devices=2",
        """
a, b = cu.DeviceBuffer(8, device=zero), cu.DeviceBuffer(8, device=one)
locked = cu.LockedBuffer.zeros(8)
with cu.ordering("wait"):
    a.fill_async(3, near)
    waits = testing.calls("cuStreamWaitEvent")
    locked.copy_from_async(a, near)
    assert testing.calls("cuStreamWaitEvent") == waits
    b.copy_from_async(locked, far)
    assert testing.calls("cuStreamWaitEvent") == waits + 1
    assert locked[0] == 3           # a host access waits for the writer
    assert locked.borrowed          # the reader on the other device does not matter
    locked[0] = 4
    assert not locked.borrowed
    found = bytearray(8)
    b.copy_to(found)
    assert found == bytes([3] * 8)
b.fill_async(1, far)
locked.copy_from_async(b, far)
refused(cu.BufferBorrowedError, "written by", lambda: a.copy_from_async(locked, near))
""",
    )


def test_the_current_device_is_one_of_each_thread(machine):
    machine(
        "devices=2",
        """
import threading

def devices():
    made = (cu.Stream(), cu.DeviceBuffer(1), cu.LockedBuffer(1), cu.UnifiedBuffer(1),
            cu.Stream.legacy(), cu.Stream.per_thread())
    return {each.device for each in made}

with one:
    assert devices() == {one}
    with zero:
        assert devices() == {zero}
    found = []
    thread = threading.Thread(target=lambda: found.append(devices()))
    thread.start()
    thread.join()
    assert found == [{zero}]
    assert cu.LockedBuffer(1, device=zero).device == zero
assert devices() == {zero}

a, b = cu.DeviceBuffer(8, device=zero), cu.DeviceBuffer(8, device=one)
with near, far:                     # one current stream for each context
    a.fill_async(1)
    b.fill_async(1)
    assert a.borrows[0].stream == "Stream 1" and b.borrows[0].stream == "Stream 2"
with far:
    refused(TypeError, "needs a stream", lambda: a.fill_async(0))
""",
    )


def test_a_lost_device_is_the_end_of_its_own_work_only(machine):
    machine(
        "devices=2",
        """
a, b = cu.DeviceBuffer.zeros(8, device=zero), cu.DeviceBuffer(8, device=one)
shared, managed = cu.LockedBuffer.zeros(8), cu.UnifiedBuffer.zeros(8, device=zero)
mine, theirs = cu.LockedBuffer.zeros(8), cu.LockedBuffer.zeros(8, device=one)
token = b.copy_from_async(shared, far)
managed.copy_from_async(theirs, far)
mine.copy_from_async(a, near)
far.wait(near)
refused(cu.BufferBorrowedError, "Stream 2", lambda: managed[0])
testing.configure("fault=cuStreamQuery:1:700")
refused(cu.ContextLostError, "copy_from_async on Stream 2", far.synchronize)

# Its own work counts as complete, also in memory of the other device, which still works.
assert not shared.borrowed and not managed.borrowed
assert shared[0] == 0 and managed.to_numpy().size == 8
shared[:] = 5
a.copy_from_async(managed, near)
# Work for which it had waited is not known to be complete, and neither is new work.
refused(cu.BufferBorrowedError, "Stream 1", lambda: mine[0])
theirs[0] = 1
theirs.copy_from_async(a, near)
refused(cu.BufferBorrowedError, "Stream 1", lambda: theirs[0])
near.synchronize()
theirs[0] = mine[0]
shared.close()
managed.close()

for call in (token.wait, lambda: near.wait(far), lambda: near.wait(token), one.synchronize,
             lambda: b.fill_async(0, far), lambda: cu.Stream(device=one)):
    refused(cu.ContextLostError, "", call)
assert "complete" not in repr(token)
b.close()
theirs.close()
zero.synchronize()
""",
        tail="assert not testing.races(), testing.races()",
    )


def test_a_handle_of_a_lost_device_loses_no_other(machine):
    machine(
        "devices=2",
        """
buffer, handle = cu.DeviceBuffer(64, device=one), far.handle
buffer.fill(0)
testing.configure("fault=operation:1:700")
buffer.fill_async(1, far)
refused(cu.ContextLostError, "700", one.synchronize)
refused(cu.CudaError, "700", lambda: cu.Stream.from_handle(handle))
cu.DeviceBuffer(4, device=zero).fill(1, stream=near)
near.synchronize()
""",
        tail="",
    )
