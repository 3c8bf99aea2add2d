"""atom and red of vectors."""

import numpy as np
import pytest

from .running import run

pytestmark = pytest.mark.parametrize("cuda_schedule", ["eager"], indirect=True)
PLACE = "and.b32 %r2, %r1, 1; mul.wide.u32 %rd3, %r2, 16; add.u64 %rd3, %rd1, %rd3;"


def bf16(values) -> np.ndarray:
    return (np.asarray(values, "f4").view("u4") >> 16).astype("u2")


def bits(kind: str, values) -> np.ndarray:
    return bf16(values) if kind == "bf16" else np.asarray(values, "f2").view("u2")


@pytest.mark.parametrize("count", [2, 4])
def test_sums_of_floats(count):
    """96 threads add to two vectors. Sums of small integers are exact in any order."""
    items = ", ".join(f"%f{i}" for i in range(1, count + 1))
    values = "".join(
        f"add.u32 %r3, %r1, {i}; cvt.rn.f32.u32 %f{i}, %r3;" for i in range(1, count + 1)
    )
    body = f"{PLACE} {values} red.relaxed.gpu.global.add.v{count}.f32 [%rd3], {{{items}}};"
    found = run(body, np.zeros(1), np.zeros((2, 4), "f4"), threads=96, capability=90, version="8.1")
    for half in (0, 1):
        total = sum(range(half, 96, 2))
        wanted = [total + 48 * i for i in range(1, count + 1)] + [0] * (4 - count)
        assert found[half].tolist() == wanted


def test_what_atom_returns():
    """The results of atom may overwrite the registers of its operands."""
    body = """mov.f32 %f1, 0f3F800000; mov.f32 %f2, 0f40000000;
    atom.global.add.v2.f32 {%f2, %f1}, [%rd1], {%f1, %f2};
    mul.wide.u32 %rd3, %r1, 8; add.u64 %rd3, %rd1, %rd3; st.global.v2.f32 [%rd3+8], {%f2, %f1};"""
    found = run(body, np.zeros(1), np.zeros((33, 2), "f4"), capability=90, version="8.1")
    assert found[0].tolist() == [32, 64]
    assert sorted(found[1:].tolist()) == [[n, 2 * n] for n in range(32)]


@pytest.mark.parametrize("count", [2, 4, 8])
@pytest.mark.parametrize("name", ["add", "min", "max"])
@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_halves(kind, name, count):
    """Threads 0 and 1 update one vector each. Subnormal numbers are not flushed."""
    before = bits(kind, [[1, -2, 0.5, 3, -1, 8, 2.0**-133, 7], [2, 2, -4, 4, 0.25, -0.0, 1, 5]])
    given = bits(kind, [[4, -3, 0.25, 3, 5, -8, 2.0**-133, 1], [1, 3, -5, 6, 0.5, 0.0, 0, 9]])
    operands = ", ".join(f"%h{i}" for i in range(1, count + 1))
    loads = "".join(f"ld.global.b16 %h{i}, [%rd4+{2 * i - 2}];" for i in range(1, count + 1))
    body = f"""{PLACE} mul.wide.u32 %rd4, %r2, 16; add.u64 %rd4, %rd2, %rd4; {loads}
    red.global.{name}.noftz.v{count}.{kind} [%rd3], {{{operands}}};"""
    found = run(body, given, before, threads=2, capability=90, version="8.1")

    def wide(array) -> np.ndarray:
        if kind == "bf16":
            return (array.astype("u4") << 16).view("f4")
        return array.view("f2").astype("f4")

    operation = {"add": np.add, "min": np.minimum, "max": np.maximum}[name]
    wanted = bits(kind, operation(wide(before), wide(given)))
    wanted[:, count:] = before[:, count:]
    assert wide(found).tolist() == wide(wanted).tolist()


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("kind", ["f16x2", "bf16x2"])
def test_pairs(kind, count):
    before = bits(kind[:-2], [1, 2, 3, 4, 5, 6, 7, 8])
    given = bits(kind[:-2], [3, -1, 4, -1, 5, -9, 2, -6])
    operands = ", ".join(f"%r{i}" for i in range(11, 11 + count))
    loads = "".join(f"ld.global.b32 %r{11 + i}, [%rd2+{4 * i}];" for i in range(count))
    body = f"""{loads} red.global.max.noftz.v{count}.{kind} [%rd1], {{{operands}}};"""
    found = run(body, given, before, threads=1, capability=90, version="8.1")
    wanted = bits(kind[:-2], [3, 2, 4, 4, 5, 6, 7, 8])
    assert found.tolist() == wanted.tolist()
