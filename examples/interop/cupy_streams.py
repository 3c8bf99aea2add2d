"""CuPy computes on our memory, on our streams."""

import cupy
import numpy as np

import cudadrv as cu

COUNT = 1 << 16
numbers = np.random.default_rng(0).normal(size=COUNT).astype("f4")
host = cu.LockedBuffer.from_array(numbers, name="host")
back = cu.LockedBuffer(COUNT, "f4", name="back")
signal = cu.DeviceBuffer(COUNT, "f4", name="signal")
copies, stream = cu.Stream(), cu.Stream()

signal.copy_from_async(host, copies)
with cupy.cuda.ExternalStream(stream.handle):  # our stream, as CuPy's current one
    # CuPy gets our memory: it is lent to `stream`, which waits for the copy.
    array = cupy.from_dlpack(signal)
    array -= array.mean()
    smooth = (array[:-2] + array[1:-1] + array[2:]) / 3
    try:
        signal.fill_async(0, copies)
    except cu.BufferExportedError as error:
        print("\n".join(str(error).splitlines()[:2]))
    del array  # the end of the loan

    # CuPy's memory as our buffer. It lives until the copy is done, whatever happens to `smooth`.
    found = cu.from_dlpack(smooth, stream)
    back[1:-1].copy_from_async(found, stream)
    del smooth, found

# On another stream, our memory is used in order with what CuPy did to it.
copies.wait(stream)
signal.copy_to_async(host, copies)
copies.synchronize()
stream.synchronize()

centered = numbers - numbers.mean()
smoothed = np.convolve(centered, np.full(3, 1 / 3, "f4"), mode="valid")
assert np.allclose(host.to_numpy(), centered, atol=1e-4)
assert np.allclose(back.to_numpy()[1:-1], smoothed, atol=1e-4)
print(f"deviation {host.to_numpy().std():.3f}, smoothed {back.to_numpy()[1:-1].std():.3f}")
