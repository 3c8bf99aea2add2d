"""A graph: a step of 50 small kernels, captured once and launched for each step."""

from pathlib import Path

import numpy as np

import cudadrv as cu

LAYERS, COUNT, STEPS, RATE = 25, 256, 40, 0.1

saxpy = cu.Module.from_file(Path(__file__).parent / "kernels" / "saxpy.ptx")["saxpy"]
rng = np.random.default_rng(0)
start = rng.standard_normal((2, LAYERS, COUNT)).astype("f4")
weights = [cu.DeviceBuffer.from_array(row, name=f"weights {i}") for i, row in enumerate(start[0])]
changes = [cu.DeviceBuffer.from_array(row, name=f"change {i}") for i, row in enumerate(start[1])]
main, side = cu.Stream(name="main"), cu.Stream(name="side")

# Nothing runs in the block. The layers do not depend on each other, so half of them are captured on
# another stream. That stream joins the capture by its wait, and is joined before the end.
graph = cu.Graph(name="step")
with graph.capture(main):
    side.wait(main)
    for i in range(LAYERS):
        stream = (main, side)[i % 2]
        saxpy.launch(1, COUNT, RATE, cu.read(changes[i]), weights[i], COUNT, stream=stream)
        saxpy.launch(1, COUNT, -RATE, cu.read(weights[i]), changes[i], COUNT, stream=stream)
    main.wait(side)

# A launch is one call and one operation, which borrows what its 50 kernels use.
step = graph.instantiate()
print(f"{len(graph.nodes)} kernels, launched {STEPS} times")
for _ in range(STEPS):
    token = step.launch(main)
try:
    weights[0].fill_async(0, side)
except cu.BufferBorrowedError as error:
    print("\n".join(str(error).splitlines()[:2]))
token.wait()

# The graph keeps its buffers: their names can go, and closing one is refused.
try:
    changes[0].close()
except cu.BufferBorrowedError as error:
    print("\n".join(str(error).splitlines()[:2]))

expected, change = start[0].copy(), start[1].copy()
for _ in range(STEPS):
    expected += np.float32(RATE) * change
    change -= np.float32(RATE) * expected
result = np.array([buffer.to_numpy() for buffer in weights])
assert np.allclose(result, expected, atol=1e-4)
print(f"the weights are those of NumPy; the first one is {result[0, 0]:.3f}")
