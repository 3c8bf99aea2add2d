"""The other process of test_core.py. A module, because a spawned process has to import it."""

import numpy as np
from cuda.core import Device, LegacyPinnedMemoryResource

PATIENCE = 120  # seconds


def invert(pool, queue):
    """Invert the bytes of a buffer that comes from a queue. The buffer finds its pool by itself."""
    device = Device(0)
    device.set_current()
    stream = device.create_stream()
    buffer = queue.get(timeout=PATIENCE)
    assert buffer.is_mapped
    host = LegacyPinnedMemoryResource().allocate(buffer.size, stream=stream)
    buffer.copy_to(host, stream=stream)
    stream.sync()
    np.from_dlpack(host).view("u1")[:] ^= 255
    buffer.copy_from(host, stream=stream)
    stream.sync()
    buffer.close(stream)
