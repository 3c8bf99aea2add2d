"""A network whose branches run on the streams of a group, in three styles, and are then joined."""

from pathlib import Path

import numpy as np

import cudadrv as cu

SIZE, TILE, GATES = 32, 16, ("input", "forget", "output", "cell")
kernels = Path(__file__).parents[1] / "kernels"
matmul = cu.Module.from_file(kernels / "matmul.ptx")["matmul"]
saxpy = cu.Module.from_file(kernels / "saxpy.ptx")["saxpy"]
random = np.random.default_rng(0)


def matrix(name: str) -> cu.DeviceBuffer:
    numbers = random.integers(-4, 5, SIZE * SIZE).astype("f4")
    return cu.DeviceBuffer.from_array(numbers, name=name)


class Handler:
    """The operations of a network. Each takes `stream`; None is the current one."""

    def dot(self, a, b, out, *, stream=None):
        grid = (SIZE // TILE, SIZE // TILE)
        sizes = (SIZE, SIZE, SIZE)
        matmul.launch(grid, (TILE, TILE), cu.read(a), cu.read(b), out, *sizes, stream=stream)

    def add(self, x, out, *, stream=None):
        saxpy.launch(-(-x.count // 256), 256, 1.0, cu.read(x), out, x.count, stream=stream)


handler, group = Handler(), cu.StreamGroup(len(GATES))
x, weights = matrix("x"), [matrix(f"weights of {gate}") for gate in GATES]
branches = [cu.DeviceBuffer(SIZE * SIZE, "f4", name=f"{gate} gate") for gate in GATES]
total = cu.DeviceBuffer(SIZE * SIZE, "f4", name="total")
expected = sum(x.to_numpy().reshape(SIZE, SIZE) @ w.to_numpy().reshape(SIZE, SIZE) for w in weights)

for style in ("argument", "bound", "with"):
    total.fill(0)
    for stream, weight, branch in zip(group, weights, branches, strict=True):
        if style == "argument":  # a stream for each call
            handler.dot(x, weight, branch, stream=stream)
        elif style == "bound":  # a wrapper that knows its stream
            stream.bind(handler).dot(x, weight, branch)
        else:  # a block that has a current stream
            with stream:
                handler.dot(x, weight, branch)
    # Joining branches without a wait is refused, whatever the style.
    try:
        handler.add(branches[1], total, stream=group[0])
    except cu.BufferBorrowedError as error:
        print(f"{style}: {str(error).splitlines()[0]}")
    for stream, branch in zip(group, branches, strict=True):
        group[0].wait(stream)
        handler.add(branch, total, stream=group[0])
    group.synchronize()
    assert np.array_equal(total.to_numpy().reshape(SIZE, SIZE), expected), style
