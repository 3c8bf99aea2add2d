"""Dtypes of the package ml_dtypes, which NumPy's `kind` does not describe: DLPack, fills."""

import sys

import numpy as np
import pytest
from capsules import Consumer, Exported

import cudadrv as cu

CODES = {
    "bfloat16": 4, "float8_e3m4": 7, "float8_e4m3": 8, "float8_e4m3b11fnuz": 9, "float8_e4m3fn": 10,
    "float8_e4m3fnuz": 11, "float8_e5m2": 12, "float8_e5m2fnuz": 13, "float8_e8m0fnu": 14,
}  # fmt: skip


@pytest.fixture
def dtypes():
    return pytest.importorskip("ml_dtypes")


@pytest.mark.parametrize("name", CODES)
def test_exports_and_imports(make, items_of, stream, dtypes, name):
    dtype = np.dtype(getattr(dtypes, name))
    buffer = make("device", 4, dtype, np.array([0.5, 1, 2, 4], dtype))
    consumer = Consumer(buffer.__dlpack__(stream=stream.handle, max_version=(1, 1)))
    tensor = consumer.tensor
    assert (tensor.code, tensor.bits, tensor.lanes) == (CODES[name], 8 * dtype.itemsize, 1)
    consumer.end()
    theirs = Exported(
        buffer.address, code=CODES[name], bits=8 * dtype.itemsize, shape=(4,), version=(1, 1)
    )
    found = cu.from_dlpack(theirs, stream)
    assert found.dtype == dtype
    stream.synchronize()
    assert items_of(found).astype("f4").tolist() == [0.5, 1, 2, 4]


@pytest.mark.parametrize("name", ["float4_e2m1fn", "float6_e2m3fn", "int4"])
def test_what_dlpack_packs_is_refused(make, stream, dtypes, name):
    buffer = make("device", 4, getattr(dtypes, name))
    with pytest.raises(BufferError, match=f"DLPack has no name for items of dtype {name}"):
        buffer.__dlpack__(stream=stream.handle)
    assert not buffer.borrowed


@pytest.mark.parametrize("name", CODES)
def test_imports_without_the_package(make, stream, monkeypatch, name):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    bits = 16 if name == "bfloat16" else 8
    buffer = make("device", 4, f"u{bits // 8}")
    theirs = Exported(buffer.address, code=CODES[name], bits=bits, shape=(4,))
    with pytest.raises(BufferError, match=f"NumPy has no {name}; install .* as {bits}-bit integer"):
        cu.from_dlpack(theirs, stream)


def test_other_widths_have_no_dtype(make, stream, dtypes):
    buffer = make("device", 16)
    for code, bits in ((4, 8), (7, 16), (14, 4), (15, 8), (17, 4)):
        with pytest.raises(BufferError, match=f"of code {code}, {bits} bits"):
            cu.from_dlpack(Exported(buffer.address, code=code, bits=bits), stream)


KINDS = ("device", "locked")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CODES)
def test_fills(make, items_of, stream, dtypes, kind, name):
    dtype = np.dtype(getattr(dtypes, name))
    buffer = make(kind, 4, dtype)
    for value in (1, 0.5, 2.25, np.float32(0.3), np.array(1, dtype)[()]):
        buffer.fill(value)
        expected = np.full(4, np.asarray(value).astype(dtype))
        assert bytes(items_of(buffer).view("u1")) == bytes(expected.view("u1"))
    for value in (1e60, -1e60, 10**400, "1", 1j):
        with pytest.raises((TypeError, ValueError)):
            buffer.fill(value)
        with pytest.raises((TypeError, ValueError)):
            buffer.fill_async(value, stream)
    with pytest.raises(TypeError, match="not of the kind"):
        buffer.fill(np.complex64(1 + 1j))
    buffer.fill(0)
    assert not any(bytes(buffer.view("u1").to_numpy()))


def test_fills_of_small_integers(make, items_of, dtypes):
    buffer = make("device", 4, dtypes.int4)
    buffer.fill(-7)
    assert items_of(buffer).astype("i1").tolist() == [-7] * 4
    for value in (8, 1.5, 100):
        with pytest.raises(ValueError, match="does not fit"):
            buffer.fill(value)
