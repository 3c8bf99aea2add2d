"""Programs with two devices whose orders are explored: graphs that copy between them."""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [
    pytest.mark.cuda_software,
    pytest.mark.parametrize("cuda_schedule", ["lazy"], indirect=True),
]

PROGRAM = """
import cudadrv as cu
from tests.explore.calls import run_all

zero, one = cu.Device(0), cu.Device(1)
near, far, third = cu.Stream(device=zero), cu.Stream(device=one), cu.Stream(device=one)
a, c = (cu.DeviceBuffer.zeros(4, device=zero) for _ in range(2))
b, d = (cu.DeviceBuffer.zeros(4, device=one) for _ in range(2))
graph = cu.Graph()
with cu.ordering("unchecked"):
    BUILD
step = graph.instantiate()

def program():
    with cu.ordering("unchecked"):
        for number, buffer in enumerate((a, b, c, d)):
            buffer.fill(number + 1)
        step.launch(far)
        BESIDE
        for stream in (near, far, third):
            stream.synchronize()
        return tuple(int(buffer.to_numpy()[0]) for buffer in (a, b, c, d))

every = run_all(program, everything=True, most=100_000)
found = run_all(program)
assert found.limits == () and found.results == every.results and found.orders == every.orders
assert found.runs == len(every.orders)
assert (found.runs, found.results) == EXPECTED, (found.runs, found.results)
"""

FIRST = "graph.add_copy(b, a)"
CASES = {
    "ordered": (f"graph.add_copy(c, b, after=[{FIRST}])", "", (1, {(1, 1, 1, 4)})),
    "not ordered": (f"{FIRST}; graph.add_copy(c, b)", "", (2, {(1, 1, 1, 4), (1, 1, 2, 4)})),
    "independent": (f"{FIRST}; graph.add_copy(c, d)", "", (1, {(1, 1, 4, 4)})),
    "beside its source": (FIRST, "a.fill_async(9, near)", (2, {(9, 1, 3, 4), (9, 9, 3, 4)})),
    "beside its target": (FIRST, "b.fill_async(9, third)", (2, {(1, 9, 3, 4), (1, 1, 3, 4)})),
    "beside other memory": (FIRST, "c.copy_from_async(d, near)", (1, {(1, 1, 4, 4)})),
}


@pytest.mark.parametrize("case", CASES)
def test_copies_of_a_graph(driver, script, monkeypatch, case):
    """Copies that no edge orders come in each order, and only copies of the same memory."""
    build, beside, expected = CASES[case]
    program = PROGRAM.replace("BUILD", build).replace("BESIDE", beside or "pass")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    script.quiet(
        program.replace("EXPECTED", repr(expected)),
        CUDADRV_SOFTWARE="schedule=lazy,devices=2",
    )
