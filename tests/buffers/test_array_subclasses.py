"""Subclasses of ndarray: copies do not rely on their methods, and masks are not lost."""

import numpy as np
import pytest

import cudadrv as cu

# One schedule suffices: the results do not depend on when GPU work runs.
pytestmark = pytest.mark.parametrize("cuda_schedule", ["lazy"], indirect=True)

COUNT = np.arange(8, dtype="i4")


class Flags:
    writeable = c_contiguous = True


class OtherMethods(np.ndarray):
    """A subclass that overrides all methods which a copy could call, with wrong results."""

    def reshape(self, *shape, **options):
        return np.zeros(1, "u1")

    def view(self, *arguments, **options):
        return np.zeros(1, "u1")

    def astype(self, *arguments, **options):
        return np.zeros(1, "u1")

    def tobytes(self, *arguments):
        return b"x"

    def ravel(self, *arguments):
        return np.zeros(1, "u1")

    def __array__(self, *arguments, **options):
        return np.zeros(1, "u1")

    def __len__(self):
        return 10**6

    def __getitem__(self, key):
        return np.zeros(1, "u1")

    def __array_finalize__(self, other):
        pass


class OtherSize(OtherMethods):
    size = nbytes = 10**6
    shape = (10**6,)


class OtherFlags(OtherMethods):
    flags = Flags()


SUBCLASSES = [OtherMethods, OtherSize, OtherFlags, np.recarray]
subclasses = pytest.mark.parametrize("subclass", SUBCLASSES)
kinds = pytest.mark.parametrize("kind", ["device", "locked", "unified"])


def lying(subclass, array):
    return np.ndarray.view(array, subclass)


@kinds
@subclasses
def test_copies_in(make, items_of, stream, kind, subclass):
    expected = COUNT.tolist()
    for source in (COUNT, np.repeat(COUNT, 2)[::2]):
        liar = lying(subclass, source)
        buffer = make(kind, 8, "i4", np.zeros(8, "i4"))
        buffer.copy_from(liar)
        assert items_of(buffer).tolist() == expected
        buffer = make(kind, 8, "i4", np.zeros(8, "i4"))
        buffer.copy_from(liar, stream=stream)
        assert items_of(buffer).tolist() == expected
        buffer = make(kind, 8, "i4", np.zeros(8, "i4"))
        buffer.copy_from_async(liar, stream).wait()
        assert items_of(buffer).tolist() == expected
        if kind != "device":
            buffer[:] = 0
            buffer[:] = liar
            assert buffer.to_numpy().tolist() == expected
            buffer[2:4] = lying(subclass, np.array([7, 9]))
            assert buffer.to_numpy()[2:4].tolist() == [7, 9]


@kinds
@subclasses
def test_copies_out(make, stream, kind, subclass):
    buffer = make(kind, 8, "i4", COUNT)
    for options in ({}, {"stream": stream}):
        target = np.zeros(8, "i4")
        buffer.copy_to(lying(subclass, target), **options)
        assert target.tolist() == COUNT.tolist()
    strided, fixed = np.zeros(16, "i4")[::2], np.zeros(8, "i4")
    fixed.flags.writeable = False
    for target, words in ((strided, "C-contiguous"), (fixed, "read-only")):
        with pytest.raises(ValueError, match=words):
            buffer.copy_to(lying(subclass, target))
        assert not target.any()


@kinds
@subclasses
def test_too_few_items_are_refused(make, items_of, stream, kind, subclass):
    buffer = make(kind, 10**6, "i4", np.ones(10**6, "i4"))
    liar = lying(subclass, COUNT.copy())
    with pytest.raises(ValueError, match="has 8; copy between parts"):
        buffer.copy_from(liar)
    with pytest.raises(ValueError, match="has 8; copy between parts"):
        buffer.copy_from_async(liar, stream)
    with pytest.raises(ValueError, match="has 8; copy between parts"):
        buffer.copy_to(liar)
    if kind != "device":
        with pytest.raises(ValueError, match="broadcast"):
            buffer[:] = liar
    assert (items_of(buffer) == 1).all()


@subclasses
def test_a_buffer_from_an_array(stream, driver, subclass):
    for cls in (cu.DeviceBuffer, cu.LockedBuffer, cu.UnifiedBuffer):
        buffer = cls.from_array(lying(subclass, COUNT))
        target = np.zeros(8, "i4")
        buffer.copy_to(target)
        assert target.tolist() == COUNT.tolist()


@kinds
@subclasses
def test_a_fill(make, items_of, stream, kind, subclass):
    buffer = make(kind, 8, "i4")
    buffer.fill(lying(subclass, np.array(5)))
    assert set(items_of(buffer)) == {5}
    buffer.fill_async(lying(subclass, np.array(6)), stream).wait()
    assert set(items_of(buffer)) == {6}


@kinds
def test_masked_arrays_are_refused(make, items_of, stream, kind):
    buffer = make(kind, 8, "i4", COUNT)
    masked = np.ma.masked_array(COUNT + 1, mask=COUNT % 2)
    uses = [
        lambda: buffer.copy_from(masked),
        lambda: buffer.copy_from(masked, stream=stream),
        lambda: buffer.copy_from_async(masked, stream),
        lambda: buffer.copy_to(masked),
        lambda: type(buffer).from_array(masked),
        lambda: buffer.fill(np.ma.masked_array(3, mask=True)),
        lambda: buffer.fill_async(np.ma.masked, stream),
    ]
    if kind != "device":
        uses.append(lambda: buffer.__setitem__(slice(None), masked))
        uses.append(lambda: buffer.__setitem__(0, np.ma.masked))
    for use in uses:
        with pytest.raises(TypeError, match=r"array\.filled\(value\)"):
            use()
    assert items_of(buffer).tolist() == COUNT.tolist()
    assert masked.data.tolist() == (COUNT + 1).tolist()
    buffer.copy_from(masked.filled(-1))
    assert items_of(buffer).tolist() == [1, -1, 3, -1, 5, -1, 7, -1]
    buffer.copy_from(masked.data)
    assert items_of(buffer).tolist() == (COUNT + 1).tolist()
