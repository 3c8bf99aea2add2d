"""Boxes of two devices: parts whose rows have gaps between them."""

import pytest

pytestmark = pytest.mark.cuda_software

IMAGES = """
numbers = np.arange(96, dtype="u4").reshape(8, 12)
here = cu.DeviceBuffer.from_array(numbers, device=zero, name="here")
there = cu.DeviceBuffer.zeros(96, "u4", device=one, name="there").reshape(8, 12)
expected = np.zeros_like(numbers)
zero.synchronize(), one.synchronize()
"""


@pytest.mark.parametrize("settings", ["devices=2", "devices=2,schedule=lazy"])
def test_copies_between_devices(machine, settings):
    machine(
        settings,
        IMAGES
        + """
there[:, 2:5].copy_from_async(here[:, 7:10], far).wait()
there[2:4, 6:8].copy_from(here[4:6, :2])
expected[:, 2:5], expected[2:4, 6:8] = numbers[:, 7:10], numbers[4:6, :2]
assert (there.to_numpy(stream=far) == expected).all()
far.synchronize()
volume, other = here.flat.reshape(2, 4, 12), there.flat.reshape(2, 4, 12)
there.fill(0)
other[:, 1:3, 3:6].copy_from_async(volume[:, :2, 9:], far).wait()
found = other.to_numpy(stream=far)
assert (found[:, 1:3, 3:6] == numbers.reshape(2, 4, 12)[:, :2, 9:]).all()
assert found.sum() == found[:, 1:3, 3:6].sum()
assert testing.calls("cuMemcpy3DPeerAsync") == 3
""",
    )


def test_both_sides_are_borrowed_by_their_rows(machine):
    machine(
        "devices=2,schedule=lazy",
        IMAGES
        + """
flag = hold(far)
there[:, :6].copy_from_async(here[:, 6:], far)
here[:, :6].fill_async(1, near)     # no byte is in both
there[:, 6:].fill_async(1, other := cu.Stream(device=one))
said = refused(cu.BufferBorrowedError, "is being read by copy_from_async on Stream",
               lambda: here[7, 11:].fill_async(1, near))
assert "DeviceBuffer 'here'[7, 11:12] (uint32)" in said, said
refused(cu.BufferBorrowedError, "is being written by copy_from_async", lambda: there[0].fill(2))
flag[0] = 1
far.synchronize(), near.synchronize(), other.synchronize()
expected[:, :6], expected[:, 6:] = numbers[:, 6:], 1
assert (there.to_numpy(stream=far) == expected).all()
""",
    )


def test_a_lost_context_loses_the_copy(machine):
    machine(
        "devices=2,schedule=lazy",
        IMAGES
        + """
token = there[:, :6].copy_from_async(here[:, 6:], far)
testing.configure("fault=cuStreamQuery:1:700")
refused(cu.ContextLostError, "", far.synchronize)
for call in (
    token.wait,
    lambda: there[:, 8:].fill_async(1, far),
    lambda: here[:, :2].copy_from_async(there[:, 2:4], near),
    lambda: there[:, :2].copy_from_async(here[:, 2:4], far),
):
    refused(cu.ContextLostError, "", call)
""",
        tail="",
    )
