"""The picture example: its kernels give the same results as NumPy, and its files are PNG."""

from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def program(load_file):
    pytest.importorskip("PIL", reason="the example needs Pillow")
    return load_file(ROOT / "examples" / "09_image.py")


def shifted(picture, margin):
    """A function of row and column offsets that returns shifted views of a picture.

    Outside of the picture, its edges are repeated.
    """
    rows, columns = picture.shape[:2]
    widths = [(margin, margin)] * 2 + [(0, 0)] * (picture.ndim - 2)
    padded = np.pad(picture.astype("i8"), widths, mode="edge")

    def view(i, j):
        return padded[margin + i : margin + i + rows, margin + j : margin + j + columns]

    return view


def blurred(picture):
    view = shifted(picture, 2)
    weights = [1, 4, 6, 4, 1]
    total = sum(
        weights[i + 2] * weights[j + 2] * view(i, j) for i in range(-2, 3) for j in range(-2, 3)
    )
    return (total + 128) >> 8


def edges(picture):
    view = shifted((picture.astype("i8") @ np.array([77, 150, 29])) >> 8, 1)
    weights = {-1: 1, 0: 2, 1: 1}
    across = sum(weight * (view(i, 1) - view(i, -1)) for i, weight in weights.items())
    down = sum(weight * (view(1, i) - view(-1, i)) for i, weight in weights.items())
    return np.minimum(np.sqrt(across**2 + down**2).astype("i8"), 255)


@pytest.mark.parametrize("shape", [(1, 1), (1, 50), (50, 1), (2, 3), (37, 53)])
def test_kernels(program, shape):
    picture = np.random.default_rng(8).integers(0, 256, (*shape, 3), "u1")
    for actual, expected in zip(
        program.blur_and_edges(picture), (blurred(picture), edges(picture)), strict=True
    ):
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("value", [0, 255])
def test_a_picture_of_one_colour(program, value):
    blur, edge = program.blur_and_edges(np.full((9, 9, 3), value, "u1"))
    assert (blur == value).all()
    assert not edge.any()


def test_files(program, script, tmp_path, monkeypatch):
    from PIL import Image

    monkeypatch.chdir(tmp_path)
    picture = np.random.default_rng(9).integers(0, 256, (20, 30, 3), "u1")
    Image.fromarray(picture).save("given.png")
    code = f"""
        import runpy, sys
        sys.argv[1:] = ["given.png"]
        runpy.run_path({program.__file__!r}, run_name="__main__")
    """
    assert script.quiet(code).split() == ["given_blur.png", "given_edges.png"]
    for name, expected in (("blur", blurred(picture)), ("edges", edges(picture))):
        assert Path(f"given_{name}.png").read_bytes().startswith(b"\x89PNG")
        np.testing.assert_array_equal(np.asarray(Image.open(f"given_{name}.png")), expected)
