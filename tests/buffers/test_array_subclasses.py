"""Subclasses of ndarray: nothing relies on their attributes, and masks are not lost."""

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


class OtherDtype(OtherMethods):
    dtype = np.dtype("u1")
    itemsize = ndim = 1
    base = None
    T = flat = data = property(lambda self: np.zeros(1, "u1"))

    def setflags(self, *arguments, **options):
        pass


class NoAttributes(np.ndarray):
    """A subclass that fails whenever an attribute is looked up in an array."""

    def __getattribute__(self, name):
        if name == "__class__":  # isinstance looks it up
            return NoAttributes
        raise ZeroDivisionError(name)


SUBCLASSES = [OtherMethods, OtherSize, OtherFlags, OtherDtype, NoAttributes, np.recarray]
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


@subclasses
def test_offload(stream, subclass):
    x, y, z = COUNT.copy(), np.zeros((2, 4), "i4"), COUNT.copy()
    given = [lying(subclass, each) for each in (x, y, z)]
    with cu.offload(given[0], out=given[1], inout=given[2], stream=stream) as (dx, dy, dz):
        assert [each.shape for each in (dx, dy, dz)] == [(8,), (2, 4), (8,)]
        assert [each.dtype for each in (dx, dy, dz)] == [np.dtype("i4")] * 3
        assert not any(is_writable(each) for each in given)
        dy.copy_from_async(dx.reshape(2, 4), stream)
        dz.fill_async(7, stream)
    assert all(is_writable(each) for each in given)
    assert y.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert z.tolist() == [7] * 8


def is_writable(array):
    return np.ndarray.flags.__get__(array).writeable


@subclasses
def test_views_that_are_offloaded(stream, subclass):
    """A view can be made writable again although its base is a subclass that says otherwise."""
    base = lying(subclass, COUNT.copy())
    view = np.ndarray.__getitem__(base, slice(2, 6))
    with cu.offload(inout=[view], stream=stream) as (buffer,):
        assert not is_writable(view)
        buffer.fill_async(9, stream)
    assert is_writable(view)
    assert np.asarray(base).tolist() == [0, 1, 9, 9, 9, 9, 6, 7]


@subclasses
def test_offload_refuses(stream, subclass):
    fixed, strided = COUNT.copy(), np.zeros(16, "i4")[::2]
    fixed.flags.writeable = False
    for array, words in ((fixed, "is read-only"), (strided, "is not C-contiguous")):
        liar = lying(subclass, array)
        text = rf"out array 0, of shape \(8,\) and dtype int32, {words}"
        with pytest.raises(ValueError, match=text), cu.offload(out=[liar], stream=stream):
            pass
    whole = lying(subclass, COUNT.copy())
    with cu.offload(inout=[whole], stream=stream):
        part = np.ndarray.__getitem__(whole, slice(2, 4))
        with pytest.raises(cu.OwnershipError, match="shares memory"), cu.offload(out=[part]):
            pass


@subclasses
def test_in_and_out_show_what_the_array_is(subclass):
    assert repr(cu.In(lying(subclass, COUNT))) == "In(array of shape (8,), int32)"


@subclasses
def test_a_constant_of_a_graph(stream, subclass):
    graph = cu.Graph()
    with graph.capture(stream):
        constant = graph.constant(lying(subclass, COUNT.reshape(2, 4)))
    assert (constant.shape, constant.dtype) == ((2, 4), np.dtype("i4"))
    assert constant.to_numpy().tolist() == COUNT.reshape(2, 4).tolist()


@subclasses
def test_from_array_of_any_kind(driver, subclass):
    for kind in ("device", "locked", "unified"):
        buffer = cu.from_array(lying(subclass, COUNT.reshape(2, 4)), kind=kind)
        assert buffer.to_numpy().tolist() == COUNT.reshape(2, 4).tolist()


@pytest.mark.parametrize("form", ["whole", "chunks"])
@subclasses
def test_a_source_of_a_pipeline(driver, subclass, form):
    array = np.arange(100, dtype="i4")
    chunks = [lying(subclass, array[at : at + 16]) for at in range(0, 100, 16)]
    found = []
    with cu.Pipeline(16, "i4") as pipeline:
        source = lying(subclass, array) if form == "whole" else iter(chunks)
        pipeline.run(source, consume=lambda index, result: found.extend(result.tolist()))
    assert found == array.tolist()


def test_a_field_called_mask_is_no_mask(driver):
    dtype = np.dtype([("mask", "i4")])
    source = np.rec.array(np.arange(8, dtype="i4").view(dtype))
    found = []
    with cu.Pipeline(8, dtype) as pipeline:
        pipeline.run(source, consume=lambda index, result: found.extend(result["mask"]))
    assert found == list(range(8))


class Proxy:
    """Claims to be an ndarray, as proxies of other libraries do. Each use makes a new array."""

    __class__ = np.ndarray

    def __array__(self, *arguments, **options):
        return np.zeros(8, "i4")

    def __getattr__(self, name):
        return getattr(np.zeros(8, "i4"), name)


def test_what_only_claims_to_be_an_array(make, stream):
    """A `Proxy` is refused: results would be lost in the array that its `__array__` returns."""
    buffer = make("locked", 8, "i4", COUNT)
    uses = [
        lambda: buffer.copy_to(Proxy()),
        lambda: buffer.copy_from(Proxy()),
        lambda: cu.Out(Proxy()),
        lambda: cu.offload(Proxy()),
        lambda: cu.offload(out=Proxy()),
        lambda: cu.offload(inout=[Proxy()]),
    ]
    for use in uses:
        with pytest.raises(TypeError, match=r"Proxy.*numpy\.asarray\(\.\.\."):
            use()
    buffer[:] = Proxy()  # NumPy converts the assigned object, and copies nothing back
    assert buffer.to_numpy().tolist() == [0] * 8


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
