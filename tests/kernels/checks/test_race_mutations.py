"""checks=race on the kernels of examples/kernels, and on these without one of their barriers."""

import re

import pytest

from .examples import PROGRAMS, hazards, ptx, without

pytestmark = [
    pytest.mark.cuda_software,
    pytest.mark.parametrize("cuda_schedule", ["eager"], indirect=True),
    pytest.mark.cuda_allow("hazards", "leaks"),
]

BARRIER = re.compile(r"bar(?:rier)?\.sync[^;]*;")


def barriers():
    for name in PROGRAMS:
        for number in range(len(BARRIER.findall(ptx(name)))):
            yield name, number


@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_is_found(cuda_device, tmp_path, name):
    assert hazards(name, ptx(name), tmp_path, "race") == []


@pytest.mark.parametrize(("name", "number"), list(barriers()))
def test_a_missing_barrier_is_found(cuda_device, tmp_path, name, number):
    text = ptx(name)
    place = list(BARRIER.finditer(text))[number]
    found = hazards(name, without(text, place), tmp_path, "race")
    assert found
    assert all(hazard.kind == "race" and "__sync" in hazard.text for hazard in found)
