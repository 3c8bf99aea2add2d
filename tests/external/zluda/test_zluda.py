"""Runs the kernels of ZLUDA's tests of PTX, and compares the results with those that it expects.

$SUITE_SOURCE is a checkout of ZLUDA. Its tests are lines of Rust such as

    test_ptx!(add, [1u64], [2u64]);

of which each names a file of PTX, the items that the kernel reads, and the items that it writes.
"""

import math
import os
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import cudadrv as cu

FOLDER = Path(os.environ["SUITE_SOURCE"], "ptx/src/test/spirv_run")
TYPE = r"(?:[iu](?:8|16|32|64)|f(?:32|64)|usize)"
NUMBER = r"-?(?:0x[0-9a-fA-F_]+|0b[01_]+|[0-9][0-9_]*\.?[0-9]*(?:e-?[0-9]+)?)"
THREADS = 64  # number of threads in tests of warps
DYNAMIC_BYTES = 1024  # size of the dynamic shared memory


class Number:
    """A numeric type of Rust. Its limits have two spellings: `MAX`, and `max_value()`."""

    def __init__(self, dtype):
        self.dtype = np.dtype(dtype)
        info = np.finfo(self.dtype) if self.dtype.kind == "f" else np.iinfo(self.dtype)
        self.MAX, self.MIN = self(info.max), self(info.min)
        self.max_value, self.min_value = lambda: self.MAX, lambda: self.MIN
        if self.dtype.kind == "f":
            self.NAN, self.INFINITY, self.NEG_INFINITY = self("nan"), self("inf"), self("-inf")
            self.EPSILON, self.MIN_POSITIVE = self(info.eps), self(info.smallest_normal)
            self.consts = SimpleNamespace(PI=self(math.pi), E=self(math.e))

    def __call__(self, value):
        if isinstance(value, int) and self.dtype.kind == "u":
            value &= (1 << 8 * self.dtype.itemsize) - 1
        return self.dtype.type(value)

    def from_bits(self, bits):
        return np.array(bits, f"u{self.dtype.itemsize}").view(self.dtype)[()]

    def from_f32(self, value):
        return self(value)

    from_f64 = from_f32


def to_bits(value):
    return np.array(value).view(f"u{value.itemsize}")[()]


NUMBERS = {f"{kind}{8 * size}": f"{kind}{size}" for kind in "iu" for size in (1, 2, 4, 8)}
NUMBERS |= {"f16": "f2", "f32": "f4", "f64": "f8", "usize": "u8"}
NAMES = {name: Number(dtype) for name, dtype in NUMBERS.items()}
NAMES |= {"half": SimpleNamespace(f16=NAMES["f16"]), "to_bits": to_bits}


def items_of(text):
    """The items of an array of Rust. Those without a type have the type of the others."""
    text = re.sub(r"\bstd::", "", text).replace("::", ".")
    text = re.sub(r"([\w.]+)\.to_bits\(\)", r"to_bits(\1)", text)
    text = re.sub(
        rf"(?<![\w.])({NUMBER})_?({TYPE})?\b",
        lambda found: f"{found[2] or ''}({found[1].replace('_', '')})",
        text,
    )
    text = re.sub(rf"(\w+\([^()]*\)|\w+) as ({TYPE})", r"\2(int(\1))", text)
    found = list(eval(text, {"__builtins__": {"int": int}}, NAMES))
    types = {type(each) for each in found if isinstance(each, np.generic)}
    if len(types) > 1:
        raise ValueError(f"items of several types: {text}")
    plain = np.float64 if any(isinstance(each, float) for each in found) else np.int32
    dtype = np.dtype(types.pop() if types else plain)
    number = next(each for each in NAMES.values() if getattr(each, "dtype", None) == dtype)
    return np.array([number(each) for each in found], dtype)


def cases():
    """For each test of Rust its name, the items before and after, and the number of threads."""
    text = re.sub(r"//.*", "", (FOLDER / "mod.rs").read_text(encoding="utf-8"))
    for kind, arguments in re.findall(r"^test_ptx(\w*)!\(([^;]*)\);", text, re.MULTILINE):
        name, *arrays = re.split(r",\s*(?=\[)", arguments.strip().rstrip(","))
        if kind in ("", "_with_32") and len(arrays) == 2:
            yield pytest.param(*(name, *arrays, 1), id=name)
        elif kind == "_warp":
            yield pytest.param(*(name, None, *arrays, THREADS), id=name)


@pytest.mark.parametrize(("name", "before", "after", "threads"), list(cases()))
def test_value(name, before, after, threads):
    after = items_of(after)
    module = cu.Module((FOLDER / f"{name}.ptx").read_bytes())
    with cu.Stream() as stream:
        output = cu.DeviceBuffer.zeros(after.size, after.dtype)
        buffers = (
            [output] if before is None else [cu.DeviceBuffer.from_array(items_of(before)), output]
        )
        module[name].launch(1, threads, *buffers, shared_bytes=DYNAMIC_BYTES, stream=stream)
        found = output.to_numpy(stream=stream)
    assert found.tobytes() == after.tobytes(), f"{found}, and expected {after}"
