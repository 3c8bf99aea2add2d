"""Values that kernels read through textures, compared with those that an H100 has answered."""

from pathlib import Path

import numpy as np
import pytest
from readers import reads, reads_levels, run

import cudadrv as cu

ANSWERS = Path(__file__).parents[2] / "conformance/answers/h100-580.159.04-textures.txt"
FINE = [0.5 + step / 4096 for step in range(4097)]
COARSE = [step / 4 + 1 / 16 for step in range(-36, 53)]
NAMES = {"point": "nearest", "linear": "mean"}
MODES = ["wrap", "clamp", "mirror", "border"]
RAMPS = {
    "all steps of a ramp": ([0, 1], "f4", {}),
    "all steps of a falling ramp": ([1, 0], "f4", {}),
    "of bytes": ([0, 255], "u1", {"as_float": True}),
    "of bytes near to each other": ([100, 101], "u1", {"as_float": True}),
    "of signed bytes": ([-128, 127], "i1", {"as_float": True}),
    "of words of 16 bits": ([0, 65535], "u2", {"as_float": True}),
    "of halves": ([0, 1], "f2", {}),
    "of sRGB": ([0, 255], "u1", {"as_float": True, "srgb": True}),
}


@pytest.fixture(scope="module")
def answers():
    """What the H100 has answered, by question."""
    found = {}
    for line in ANSWERS.read_text().splitlines():
        question, _, answer = line.partition(" = ")
        found[question] = answer
    return found


def read(texture, at, stream, geometry="1d"):
    at = np.array(at, "f4")
    return run(reads(geometry), texture, at, stream).view("f4")[:, 0]


def in_runs(answer):
    """The numbers of an answer in which equal neighbours are one ``value*count``."""
    pairs = [text.split("*") for text in answer.split()]
    return [np.float32(value) for value, count in pairs for _ in range(int(count))]


@pytest.mark.parametrize("ramp", RAMPS)
def test_weights(stream, answers, ramp):
    values, dtype, options = RAMPS[ramp]
    texture = cu.Texture(cu.Array.from_array(np.array(values, dtype)), filter="linear", **options)
    at = FINE if dtype == "f4" else FINE[::4]
    found = read(texture, [(x,) for x in at], stream)
    assert found.tolist() == in_runs(answers[f"textures / weights: {ramp}"])


@pytest.mark.parametrize(
    "shape", [(2, 1), (2, 1, 1)], ids=["rows of a plane", "slices of a volume"]
)
def test_weights_of_other_dimensions(stream, answers, shape):
    array = cu.Array.from_array(np.array([0, 1], "f4").reshape(shape))
    texture = cu.Texture(array, filter="linear")
    at = [(0.5,) * (len(shape) - 1) + (x,) for x in FINE]
    question = "rows of a plane" if len(shape) == 2 else "slices of a volume"
    found = read(texture, at, stream, f"{len(shape)}d")
    assert found.tolist() == in_runs(answers[f"textures / weights: {question}"])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("filter_", NAMES)
@pytest.mark.parametrize("normalized", [False, True])
def test_outside(stream, answers, mode, filter_, normalized):
    if not normalized and mode in ("wrap", "mirror"):
        pytest.skip("refused")
    array = cu.Array.from_array(np.array([1, 2, 4, 8], "f4"))
    texture = cu.Texture(
        array, address=mode, filter=filter_, normalized=normalized, border=(16, 0, 0, 0)
    )
    scale = 4 if normalized else 1
    found = read(texture, [(x / scale,) for x in COARSE], stream)
    question = f"outside: {mode}, {NAMES[filter_]}{', normalized' if normalized else ''}"
    assert found.tolist() == [float(text) for text in answers[f"textures / {question}"].split()]


@pytest.mark.parametrize("one", MODES)
@pytest.mark.parametrize("other", MODES)
@pytest.mark.parametrize("filter_", NAMES)
def test_outside_of_an_image(stream, answers, one, other, filter_):
    content = np.array([1, 2, 4, 8, 16, 32, 64, 128], "f4").reshape(2, 4)
    texture = cu.Texture(
        cu.Array.from_array(content),
        address=(one, other, "clamp"),
        filter=filter_,
        normalized=True,
        border=(100, 0, 0, 0),
    )
    at = [(x / 16, y / 8) for y in (-9, -3, 3, 7, 11) for x in (-19, -7, -1, 1, 15, 21)]
    found = read(texture, at, stream, "2d")
    answer = answers[f"textures / outside: {one} and {other}, {NAMES[filter_]}, normalized"]
    assert found.tolist() == [float(text) for text in answer.split()]


LEVELS = {
    "the nearest": ({}, [(0.5, step / 16) for step in range(-8, 72)]),
    "where the next one begins": ({}, [(0.5, 0.5 + step / 1024) for step in range(-16, 17)]),
    "means": ({"mipmap_filter": "linear"}, [(0.5, step / 16) for step in range(-8, 72)]),
    "all weights": ({"mipmap_filter": "linear"}, [(0.5, step / 1024) for step in range(1025)]),
}


@pytest.mark.parametrize("question", LEVELS)
def test_levels(stream, answers, question):
    options, at = LEVELS[question]
    array = cu.Array(16, mipmaps=4)
    for level, value in enumerate((0, 1, 10, 100)):
        array.level(level).copy_from(np.full(16 >> level, value, "f4"))
    texture = cu.Texture(array, normalized=True, **options)
    rows = np.array([(x, 0, 0, level) for x, level in at], "f4")
    found = run(reads_levels(), texture, rows, stream).view("f4")[:, 0]
    answer = answers[f"textures / levels: {question}"]
    wanted = in_runs(answer) if "*" in answer else [np.float32(text) for text in answer.split()]
    assert found.tolist() == wanted
