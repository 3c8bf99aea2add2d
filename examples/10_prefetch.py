"""Managed memory with prefetches and advice: layers of weights move before they are used."""

import numpy as np

import cudadrv as cu

LAYERS, SIZE = 6, 1 << 16

device, stream = cu.Device(0), cu.Stream(name="compute")
mover = cu.Stream(name="mover")
weights = cu.UnifiedBuffer(LAYERS * SIZE, "f4", name="weights")
layers = weights.chunks(SIZE)
state = cu.DeviceBuffer.zeros(SIZE, "f4", name="state")

# Kernels only read the weights, so the driver may keep a copy on the device and one on the host.
# A loop over single items of managed memory would be slow; here it would be an error.
with cu.scalar_access(False), weights.write() as array:
    array[:] = np.repeat(np.arange(LAYERS, dtype="f4"), SIZE)
concurrent = device.attribute("concurrent_managed_access")
if concurrent:  # other devices take neither advice nor prefetches
    weights.advise(read_mostly=True, preferred="host")


def prefetch(layer: int) -> None:
    """Move the pages of a layer while the one before it is in use. Conflicts with nothing."""
    if concurrent and layer < LAYERS:
        layers[layer].prefetch(device, mover)


prefetch(0)
for number, layer in enumerate(layers):
    prefetch(number + 1)
    state.copy_from_async(layer, stream)  # stands for the kernels of the layer

# The host may read the weights meanwhile: reading does not conflict with reading.
print(f"mean weight {weights.to_numpy().mean():.2f}")
stream.synchronize()
mover.synchronize()

assert state.to_numpy()[0] == LAYERS - 1
if concurrent:
    advice = layers[-1].advice
    assert advice.read_mostly
    assert advice.last_prefetch == device
    print(f"the last layer went to {advice.last_prefetch}")
