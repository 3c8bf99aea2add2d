"""checks=race: textures and surfaces, whose reads may miss what the same launch has written."""

import numpy
import pytest
from texture_kernels import RESULT

from .test_surfaces import surface_of
from .textures import of_linear, run, texture

LOAD, STORE = "suld.b.1d.b32.trap %r11, [%rd1, %r1];", "sust.b.1d.b32.trap [%rd1, %r1], %r2;"
ADD = "sured.b.add.1d.u32.trap [%rd1, {}], %r2;"
OTHER = "xor.b32 %r1, %r1, 4;"
SURFACES = {
    "reads": (LOAD, []),
    "writes": (STORE, []),
    "a read behind a write": (STORE + LOAD, ["read write"]),
    "a read of what another thread has written": (
        f"{STORE} bar.sync 0; {OTHER} {LOAD}",
        ["read write"],
    ),
    "a write behind a read": (LOAD + STORE, []),
    "a write behind the read of another thread": (LOAD + OTHER + STORE, ["read write"]),
    "writes to one place": (f"mov.u32 %r1, 0; {STORE}", ["write write"]),
    "reductions": (ADD.format("%r4"), []),
    "reductions and reads": (f"{ADD.format('%r4')} {LOAD}", ["atomic read"]),
}
READ = f"tex.1d.v4.u32.s32 {RESULT}, [%rd1, {{%r1}}];"
WRITE = "st.global.u32 [%rd6], %r2;"
TEXTURES = {
    "reads": (READ, []),
    "a read behind a write": (WRITE + READ, ["read write"]),
    "a read behind the write of another thread": (
        f"{WRITE} bar.sync 0; xor.b32 %r1, %r1, 1; {READ}",
        ["read write"],
    ),
    "a write behind a read": (READ + WRITE, []),
}


@pytest.fixture
def schedule(lib):
    """One schedule is enough here."""
    return "eager" if lib.software else None


def modes(hazards):
    found = [sorted((hazard["first"]["mode"], hazard["second"]["mode"])) for hazard in hazards]
    return sorted({" ".join(each) for each in found})


@pytest.mark.parametrize("case", SURFACES)
def test_surfaces(client, software, case):
    body, expected = SURFACES[case]
    _, handle = surface_of(client, "1d", numpy.zeros((1, 1, 16, 1), "u4"))
    words = numpy.zeros((16, 4), "u4")
    words[:, 0] = 4 * numpy.arange(16)
    words[:, 1] = numpy.arange(16)
    with software.checking("race") as found:
        run(client, body, handle, words)
    assert modes(found) == expected


@pytest.mark.parametrize("case", TEXTURES)
def test_textures(client, software, case):
    body, expected = TEXTURES[case]
    address = client.device(64)
    client.write(address, bytes(64))
    handle = texture(client, of_linear(address, 64, "u4"))
    words = numpy.zeros((16, 4), "u4")
    words[:, 0] = words[:, 1] = numpy.arange(16)
    words[:, 2:] = numpy.array([address], "u8").view("u4")
    place = "mov.b64 %rd5, {%r3, %r4}; mul.wide.u32 %rd6, %r1, 4; add.u64 %rd6, %rd6, %rd5;"
    with software.checking("race") as found:
        run(client, place + body, handle, words)
    assert modes(found) == expected
    if expected and "write behind" not in case:
        assert "may miss" in found[0]["text"]
