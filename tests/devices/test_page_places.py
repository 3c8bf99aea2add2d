"""What `cudadrv.testing` shows about page faults and places of unified buffers."""

import pytest

import cudadrv as cu
from cudadrv import testing

pytestmark = pytest.mark.cuda_software

BLOCK = 65536


def fill(buffer, value):
    stream = cu.Stream()
    buffer.fill_async(value, stream)
    stream.synchronize()


@pytest.fixture
def blocks():
    """A buffer of two blocks, with an address that is a multiple of the block size."""
    whole = cu.UnifiedBuffer(3 * BLOCK)
    before = -whole.address % BLOCK
    return whole[before : before + 2 * BLOCK]


def test_a_loop_that_moves_a_page_400_times(blocks):
    part = blocks[:4096]
    fill(part, 0)
    before, beside = testing.page_faults(part), testing.page_faults(blocks[BLOCK:])
    for step in range(200):
        assert part.to_numpy()[0] == step
        fill(part, step + 1)
    after = testing.page_faults(part)
    assert (after.host - before.host, after.device - before.device) == (200, 200)
    assert testing.page_faults(blocks[BLOCK:]) == beside


def test_places_of_parts(blocks):
    blocks.fill(1)
    assert testing.page_places(blocks) == ["host"] * 32
    fill(blocks[BLOCK:], 2)
    assert testing.page_places(blocks) == ["host"] * 16 + [0] * 16
    assert testing.page_places(blocks[BLOCK - 1 : BLOCK + 1]) == ["host", 0]


@pytest.mark.parametrize("kind", [cu.DeviceBuffer, cu.LockedBuffer])
@pytest.mark.parametrize("function", [testing.page_faults, testing.page_places])
def test_other_buffers_have_no_pages(kind, function):
    with pytest.raises(ValueError, match=f"a {kind.__name__} is not managed memory"):
        function(kind(64))


def test_closed_buffer():
    buffer = cu.UnifiedBuffer(64)
    buffer.close()
    with pytest.raises(cu.BufferClosedError):
        testing.page_faults(buffer)
