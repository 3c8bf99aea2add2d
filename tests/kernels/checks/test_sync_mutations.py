"""checks=sync on the kernels of examples/kernels, and on these with a mistake in a barrier."""

import re

import pytest

from .examples import PROGRAMS, hazards, ptx, without

pytestmark = [
    pytest.mark.cuda_software,
    pytest.mark.parametrize("cuda_schedule", ["eager"], indirect=True),
    pytest.mark.cuda_allow("hazards", "leaks"),
]

BARRIER = re.compile(r"bar(?:rier)?\.sync[^;]*;")
SHUFFLE = re.compile(r"(shfl\.sync[^;]*, )[^,;]*;")
BODY = re.compile(r"(\.visible \.entry [^{]*\{)")
# Half of the lanes of each warp, and of each row of a block.
FEW = r"""\1 .reg .pred %few; .reg .b32 %column;
    mov.u32 %column, %tid.x; and.b32 %column, %column, 15; setp.lt.u32 %few, %column, 8;"""


def places(pattern, *names):
    for name in names or PROGRAMS:
        for number in range(len(pattern.findall(ptx(name)))):
            yield name, number


def changed(name, pattern, number, change):
    """The PTX of a program, in which `change` replaces what the pattern matches."""
    text = ptx(name)
    place = list(pattern.finditer(text))[number]
    return text[: place.start()] + change(place) + text[place.end() :]


@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_is_found(cuda_device, tmp_path, name):
    assert hazards(name, ptx(name), tmp_path, "sync") == []


@pytest.mark.parametrize(("name", "number"), list(places(BARRIER)))
def test_a_missing_barrier_is_no_hazard(cuda_device, tmp_path, name, number):
    """Without a barrier there is nothing that anyone does not come to; the other check finds it."""
    place = list(BARRIER.finditer(ptx(name)))[number]
    assert hazards(name, without(ptx(name), place), tmp_path, "sync") == []


@pytest.mark.parametrize(("name", "number"), list(places(BARRIER)))
def test_a_barrier_for_some_lanes(cuda_device, tmp_path, name, number):
    text = changed(name, BARRIER, number, lambda place: f"@%few {place[0]}")
    found = hazards(name, BODY.sub(FEW, text), tmp_path, "sync")
    assert found
    assert {hazard.memory for hazard in found} == {"barrier 0"}
    assert all("__syncthreads" in hazard.first.mode for hazard in found)


@pytest.mark.parametrize(("name", "number"), list(places(SHUFFLE)))
def test_a_shuffle_with_half_of_the_mask(cuda_device, tmp_path, name, number):
    text = changed(name, SHUFFLE, number, lambda place: f"{place[1]} 0xffff;")
    found = hazards(name, text, tmp_path, "sync")
    assert [hazard.memory for hazard in found] == ["the lanes of a warp"]
    assert "is not" in found[0].text


@pytest.mark.parametrize(("name", "number"), list(places(SHUFFLE)))
def test_a_shuffle_for_some_lanes(cuda_device, tmp_path, name, number):
    text = changed(name, SHUFFLE, number, lambda place: f"@%few {place[0]}")
    found = hazards(name, BODY.sub(FEW, text), tmp_path, "sync")
    assert found
    assert all(hazard.first.mode.startswith("__shfl") for hazard in found)
