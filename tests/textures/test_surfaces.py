"""Surfaces: what kernels store and load, and what launches borrow."""

import gc

import numpy as np
import pytest
from readers import launch, loads, places, rows, run, stores

import cudadrv as cu

SHAPES = {
    "1d": ((13,), {}),
    "2d": ((6, 13), {}),
    "3d": ((4, 6, 13), {}),
    "a1d": ((5, 13), {"layered": True}),
    "a2d": ((5, 6, 13), {"layered": True}),
}


def words_for(geometry, shape, values):
    """Rows of words: x in bytes, y, z or the layer, and a value."""
    at = places(*shape).astype("i4")
    if geometry == "a1d":
        at = at[:, [0, 2, 1]]
    return np.column_stack([4 * at[:, 0], at[:, 1], at[:, 2], values]).astype("i4")


@pytest.mark.parametrize("geometry", SHAPES)
def test_stores_and_loads(stream, geometry):
    shape, options = SHAPES[geometry]
    content = np.random.default_rng(4).integers(-(2**31), 2**31, shape, "i4")
    array = cu.Array(shape, "i4", surface=True, **options)
    surface = cu.Surface(array)
    assert surface.source is array
    words = words_for(geometry, shape, content.reshape(-1))
    run(stores(geometry), surface, words, stream)
    assert np.array_equal(array.to_numpy(), content)
    array.copy_from(content[::-1].copy())
    found = run(loads(geometry), surface, words, stream)[:, 0].view("i4")
    assert np.array_equal(found.reshape(shape), content[::-1])


def test_a_level(stream):
    array = cu.Array((8, 8), "i4", surface=True, mipmaps=3)
    for level in range(3):
        array.level(level).copy_from(np.zeros((8 >> level,) * 2, "i4"))
    words = words_for("2d", (4, 4), np.arange(16))
    run(stores(), cu.Surface(array.level(1)), words, stream)
    assert array.level(1).to_numpy().reshape(-1).tolist() == list(range(16))
    assert not array.level(0).to_numpy().any()
    assert not array.level(2).to_numpy().any()


def test_a_launch_writes_the_array(stream, other, gate):
    array = cu.Array((6, 13), "i4", surface=True, name="image")
    surface = cu.Surface(array, name="paint")
    given = rows(words_for("2d", (6, 13), np.arange(78)))
    found = cu.DeviceBuffer.zeros(given.count, "u4")
    gate.hold(stream)
    token = launch(stores(), surface, given, found, stream)
    assert token.reads == (given,)
    assert token.writes == (array, found)
    for use in (
        lambda: array.copy_to_async(cu.LockedBuffer(78, "i4"), other),
        array.to_numpy,
        lambda: array[1:2].copy_from(np.zeros((1, 13), "i4")),
        lambda: launch(loads(), surface, given, cu.DeviceBuffer(given.count, "u4"), other),
    ):
        with pytest.raises(cu.BufferBorrowedError, match="being written by launch of k"):
            use()
    with pytest.raises(cu.BufferBorrowedError, match="cannot close Surface 'paint'"):
        surface.close()
    gate.open()
    other.wait(token)
    launch(loads(), surface, given, found, other).wait()
    surface.close()
    assert array.to_numpy().reshape(-1).tolist() == list(range(78))


def test_lifetime(stream, gate):
    array = cu.Array((6, 13), "i4", surface=True)
    given = rows(words_for("2d", (6, 13), np.arange(78)))
    found = cu.DeviceBuffer.zeros(given.count, "u4")
    gate.hold(stream)
    launch(stores(), cu.Surface(array), given, found, stream)
    gc.collect()
    gate.open()
    stream.synchronize()
    assert array.to_numpy().reshape(-1).tolist() == list(range(78))
    surface = cu.Surface(array)
    array.close()
    with pytest.raises(cu.BufferClosedError, match=r"Array.* was closed at"):
        launch(stores(), surface, given, found, stream)
    with pytest.raises(cu.BufferClosedError, match=r"Array.* was closed at"):
        cu.Surface(array)


def test_wrong_arrays(unchanged):
    levels = cu.Array((8, 8), surface=True, mipmaps=2)
    volume = cu.Array((4, 4, 4), surface=True)
    with unchanged("cuSurfObjectCreate"):
        for make, text in [
            (lambda: cu.Surface(cu.Array(8)), "was made without surface=True"),
            (lambda: cu.Surface(levels), r"has 2 levels, and a surface one of them"),
            (lambda: cu.Surface(volume[1]), "is a part, and a surface covers a whole level"),
        ]:
            with pytest.raises(ValueError, match=text):
                make()
        for source in (cu.DeviceBuffer(64), np.zeros(4, "f4"), None):
            with pytest.raises(TypeError, match="a surface is over an Array"):
                cu.Surface(source)
    with pytest.raises(TypeError, match="name must be a str"):
        cu.Surface(volume, name=3)
    with pytest.raises(TypeError, match="use Texture or Surface"):
        type(cu.Surface(volume)).__mro__[1]()
