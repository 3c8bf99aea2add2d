"""`Buffer.to` with several devices, and with devices without concurrent managed access."""

import pytest

pytestmark = pytest.mark.cuda_software


def test_without_concurrent_access_nothing_is_prefetched_and_all_is_handed_over(machine):
    machine(
        "concurrent_managed=0",
        """
device, stream, other = cu.Device(0), cu.Stream(), cu.Stream()
shared = cu.UnifiedBuffer.from_array(np.arange(8), name="shared")
target = cu.DeviceBuffer(8, "i8")
before = testing.calls("cuMemPrefetchAsync")

assert shared.to(device, stream=stream) is shared
words = "being written by to on Stream"
refused(cu.BufferBorrowedError, words, lambda: shared[0])
refused(cu.BufferBorrowedError, words, lambda: target.copy_from_async(shared, other))
target.copy_from_async(shared, stream)
assert shared.to("host", stream=stream) is shared
stream.synchronize()
assert shared[7] == 7
assert shared.to(device).to("host") is shared
with shared.read():
    refused(cu.BufferExportedError, "a host view of it", lambda: shared.to(device, stream=stream))
refused(ValueError, "concurrent_managed_access is 0", lambda: shared.to("host:0"))
refused(TypeError, "a place is", lambda: shared.to(0))
for kind in ("device", "unified"):
    made = shared.to(device, kind=kind, copy=True, stream=stream)
    stream.synchronize()
    assert made.to("host", kind="locked").to_numpy()[3] == 3
empty = cu.UnifiedBuffer(0)
assert empty.to(device, stream=stream) is empty
assert testing.calls("cuMemPrefetchAsync") == before
""",
    )


def test_to_another_device(machine):
    machine(
        "devices=2",
        """
items = np.arange(4096, dtype="i4").reshape(64, 64)
source = cu.DeviceBuffer.from_array(items, device=zero, name="items")
assert source.to(zero) is source
there = source.to(one)
assert (there.device, there.shape, there.name) == (one, (64, 64), "items")
assert np.array_equal(there.to_numpy(), items)

for stream in (near, far):
    source.fill_async(5, near)
    far.wait(near)
    made = source.to(one, stream=stream)
    refused(cu.BufferBorrowedError, "being written by to on", lambda: made.to_numpy())
    made.copy_to_async(there, far) if stream is far else far.wait(near)
    stream.synchronize()
    assert (made.to_numpy() == 5).all()
    near.synchronize()
    assert made.to(zero).device == zero

refused(ValueError, "to another context", lambda: source.to("host", stream=far))
shared = cu.UnifiedBuffer.from_array(items, device=zero)
for place in (one, zero, "host"):
    assert shared.to(place) is shared
assert shared.to(one, stream=near) is shared
near.synchronize()
locked = shared.to("host", kind="locked")
assert locked.to(one).device == one
assert locked.to(one, stream=far).device == one
far.synchronize()
refused(ValueError, "to another context", lambda: locked.to(one, stream=near))
""",
    )


def test_to_another_device_is_refused_while_somebody_writes(machine):
    machine(
        "devices=2",
        """
source = cu.DeviceBuffer.zeros(4096, device=zero)
source.fill_async(5, near)
for options in ({}, {"stream": far}):
    refused(cu.BufferBorrowedError, "cannot read", lambda: source.to(one, **options))
with cu.ordering("wait"):
    assert (source.to(one).to_numpy() == 5).all()
    assert (source.to(one, stream=far).to_numpy() == 5).all()
far.synchronize()
near.synchronize()
""",
    )
