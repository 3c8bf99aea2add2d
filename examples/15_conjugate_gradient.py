"""A solver as a graph: first with its loop on the host, then with the loop in the graph."""

from pathlib import Path

import numpy as np

import cudadrv as cu

COUNT, ENOUGH = 256, 1e-6
module = cu.Module.from_file(Path(__file__).parent / "kernels" / "conjugate_gradient.ptx")
apply, advance, decide = module["apply"], module["advance"], module["decide"]

# Solve A x = b. The matrix A has 2 on its diagonal, -1 directly above and below it, else 0.
b = cu.LockedBuffer.from_array(np.sin(np.arange(COUNT, dtype="f4")), name="b")
x, r, p, q = (cu.DeviceBuffer(COUNT, "f4", name=name) for name in "xrpq")
numbers = cu.LockedBuffer.zeros(3, "f4", name="numbers")  # r . r, p . q, the number of steps
result = cu.LockedBuffer(COUNT, "f4", name="result")
stream = cu.Stream(name="solver")


def begin(graph):  # begins with x = 0; the three nodes do not depend on each other
    return [graph.add_fill(x, 0), graph.add_copy(r, b), graph.add_copy(p, b)]


def add_step(graph, after=()):
    product = graph.add_launch(apply, 1, COUNT, cu.read(p), q, numbers, after=after)
    return graph.add_launch(advance, 1, COUNT, x, r, p, cu.read(q), numbers, after=[product])


def check(how):
    matrix = 2 * np.eye(COUNT) - np.eye(COUNT, k=1) - np.eye(COUNT, k=-1)
    expected = np.linalg.solve(matrix, b)
    assert np.allclose(result, expected, rtol=1e-2, atol=1e-2 * np.abs(expected).max())
    print(f"{how}: {numbers[2]:.0f} steps, r . r = {numbers[0]:.1e}")


# The loop on the host: it waits after each step, to look at the error.
start, step = cu.Graph(name="start"), cu.Graph(name="step")
begin(start)
add_step(step)
numbers[:] = float(np.dot(b, b)), 0, 0
start.instantiate().launch(stream)
one_step = step.instantiate()
while numbers[0] > ENOUGH and numbers[2] < 1000:
    one_step.launch(stream).wait()
    numbers[2] += 1
result.copy_from_async(x, stream).wait()
check("loop on the host")

# The loop in the graph: a kernel decides whether the body runs again. One launch, one wait.
if cu.driver_info().version >= (12, 3):
    solver = cu.Graph(name="solver")
    again = solver.condition(1)
    loop, body = solver.add_while(again, after=begin(solver))
    body.add_launch(decide, 1, 1, numbers, ENOUGH, again, after=[add_step(body)])
    solver.add_copy(result, x, after=[loop])
    numbers[:] = float(np.dot(b, b)), 0, 0
    solver.instantiate().launch(stream).wait()
    check("loop in the graph")
