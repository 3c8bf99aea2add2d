"""The PTX text that is taken out of a fatbin, a container of code for several devices."""

import shutil
import struct
import subprocess

import pytest
from limits import PATIENCE

from .sanitized import ADDRESS, PTX_DUMP, Build

LZ4, ZSTD, UNKNOWN, ONE_DEVICE, ONE_FAMILY = 0x2000, 0x8000, 0x1000, 0x100000, 0x200000
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def text_of(tmp_path_factory):
    """A function that asks for the PTX text for a device.

    It returns True and the text, or False and the reason why there is none.
    """
    program = Build("address", ADDRESS).ptx_program(PTX_DUMP)
    file = tmp_path_factory.mktemp("fatbin") / "code.fatbin"

    def run(container: bytes, capability: int) -> tuple[bool, str]:
        file.write_bytes(container)
        command = [program, file, str(capability)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode in (0, 1), done.stderr[-4000:]
        return done.returncode == 0, done.stdout

    return run


def entry(
    payload: bytes, capability: int, *, kind: int = 1, flags: int = 0, text_bytes: int = 0
) -> bytes:
    packed = len(payload) if flags & (LZ4 | ZSTD) else 0
    payload += bytes(-len(payload) % 8)
    header = struct.pack(
        "<HHIQIIIIIIQQQ", kind, 0x101, 80, len(payload), packed, 64, 0x90000,
        capability, 0, 0, flags, 0, text_bytes,
    )  # fmt: skip
    return header + bytes(16) + payload


def container(*entries: bytes) -> bytes:
    content = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(content)) + content


@pytest.mark.parametrize(
    ("capability", "expected"),
    [(70, "old"), (74, "old"), (75, "middle"), (89, "middle"), (90, "new"), (100, "new")],
)
def test_the_newest_that_fits(text_of, capability, expected):
    code = container(
        entry(b"\x7fELF", capability, kind=2),
        entry(b"middle\0\0", 75),
        entry(b"new\0\0\0\0\0", 90),
        entry(b"old\0\0\0\0\0", 70),
    )
    good, text = text_of(code, capability)
    assert good
    assert text.rstrip("\0") == expected


@pytest.mark.parametrize(
    ("flags", "made_for", "capability", "fits"),
    [
        (ONE_DEVICE, 90, 90, True),
        (ONE_DEVICE, 90, 100, False),
        (ONE_FAMILY, 100, 103, True),
        (ONE_FAMILY, 100, 120, False),
        (ONE_FAMILY, 103, 100, False),
        (0, 90, 120, True),
    ],
)
def test_particular_devices(text_of, flags, made_for, capability, fits):
    good, text = text_of(container(entry(b"special\0", made_for, flags=flags)), capability)
    assert good == fits
    name = f"sm_{made_for}" + {ONE_DEVICE: "a", ONE_FAMILY: "f"}.get(flags, "")
    none = f"the fatbin has no PTX for sm_{capability} or an older device, only for {name}"
    assert text == ("special\0" if fits else none)


# Texts and their compressed blocks, made by hand: literals, then matches that overlap their output.
BLOCKS = [
    (b"abc", b"\x30abc"),
    (b"abcabcabcabcX", b"\x35abc\x03\x00\x10X"),
    (b"a" * 300 + b"b", b"\x1fa\x01\x00\xff\x19\x10b"),
    (bytes(range(32, 127)), b"\xf0\x50" + bytes(range(32, 127))),
]


@pytest.mark.parametrize(("text", "block"), BLOCKS, ids=range(len(BLOCKS)))
def test_compressed(text_of, text, block):
    code = container(entry(block, 75, flags=LZ4, text_bytes=len(text)))
    assert text_of(code, 75) == (True, text.decode())


BROKEN = ("a compressed text in the fatbin is broken", "a text in the fatbin is too long")


@pytest.mark.parametrize(
    ("block", "text_bytes"),
    [
        (b"\x30ab", 3),  # fewer literals than announced
        (b"\x30abc", 2),  # more bytes than announced
        (b"\x30abc", 4),  # fewer bytes than announced
        (b"\x30abc\x04\x00\x10X", 8),  # a match before the beginning
        (b"\x30abc\x00\x00\x10X", 8),  # a match with distance 0
        (b"\x30abc\x01", 7),  # an incomplete match
        (b"\xf0\xff\xff", 1000),  # a length that does not end
        (b"\x1fa\x01\x00" + b"\xff" * 100, 1 << 20),
        (b"", 0),
        (b"\x30abc", 1 << 62),
    ],
)
def test_broken_block(text_of, block, text_bytes):
    good, why = text_of(container(entry(block, 75, flags=LZ4, text_bytes=text_bytes)), 75)
    assert (good, why in BROKEN) == (False, True), why


# "text" four times, in a frame of Zstandard with one uncompressed block.
FRAME = b"\x28\xb5\x2f\xfd\x20\x10\x81\0\0" + b"text" * 4


def test_zstandard(text_of):
    code = container(entry(FRAME, 75, flags=ZSTD, text_bytes=16))
    assert text_of(code, 75) == (True, "text" * 4)


@pytest.mark.parametrize(
    ("frame", "text_bytes"),
    [(FRAME[:-1], 16), (FRAME, 15), (FRAME, 17), (b"", 0), (b"\0" * 20, 16), (FRAME, 1 << 62)],
)
def test_broken_frame(text_of, frame, text_bytes):
    good, why = text_of(container(entry(frame, 75, flags=ZSTD, text_bytes=text_bytes)), 75)
    assert (good, why in BROKEN) == (False, True), why


def test_other_compression(text_of):
    packed = entry(b"packed", 75, flags=UNKNOWN)
    good, why = text_of(container(packed), 75)
    assert not good
    assert "compressed in a way that this driver does not know" in why
    assert text_of(container(packed, entry(b"readable", 70)), 75) == (True, "readable")


def test_binaries_alone(text_of):
    binaries = [entry(b"\x7fELF", 75, kind=2), entry(b"\x7fELF", 90, kind=2, flags=ONE_DEVICE)]
    good, why = text_of(container(*binaries, binaries[0]), 75)
    assert not good
    assert why == (
        "the fatbin has only machine code (sm_75, sm_90a), and only PTX can run here: "
        "add PTX, for example by nvcc -gencode=arch=compute_75,code=compute_75"
    )


def test_nothing(text_of):
    good, why = text_of(container(), 75)
    assert not good
    assert why.startswith("the fatbin is empty: add PTX")


def test_many_binaries(text_of):
    code = container(*(entry(b"", made_for, kind=2) for made_for in range(20, 20_000)))
    good, why = text_of(code, 75)
    assert not good
    assert "sm_20, sm_21, sm_22, sm_23, sm_24, sm_25, sm_26, sm_27, ...)" in why


GOOD = container(entry(b"text\0\0\0\0", 75))


@pytest.mark.parametrize(
    "code",
    [
        b"",
        GOOD[:15],
        GOOD[:-1],
        b"text" + GOOD[4:],
        GOOD[:6] + b"\x0f\x00" + GOOD[8:],  # a header size smaller than the header
        GOOD[:8] + b"\xff" * 8 + GOOD[16:],
        GOOD[:20] + b"\x3f\0\0\0" + GOOD[24:],  # a header size of the entry smaller than its header
        GOOD[:20] + b"\xff" * 4 + GOOD[24:],
        GOOD[:24] + b"\xff" * 8 + GOOD[32:],
        GOOD[:32] + b"\x09\0\0\0" + GOOD[36:],  # more compressed bytes than there are bytes
    ],
    ids=range(10),
)
def test_lying_headers(text_of, code):
    good, why = text_of(code, 75)
    assert not good
    assert why in ("the fatbin's header is broken", "an entry of the fatbin is broken")


@pytest.mark.parametrize("mode", ["none", "speed", "balance", "size"])
def test_of_a_compiler(text_of, tmp_path, mode):
    if not shutil.which("nvcc"):
        pytest.skip("there is no nvcc")
    source, code = tmp_path / "k.cu", tmp_path / "k.fatbin"
    source.write_text("__global__ void kernel(float *x) { x[threadIdx.x] *= 2; }\n")
    for_two = "-gencode=arch=compute_75,code=[compute_75,sm_75]"
    newer = "-gencode=arch=compute_90,code=compute_90"
    subprocess.run(
        ["nvcc", "-fatbin", for_two, newer, f"--compress-mode={mode}", source, "-o", code],
        check=True,
        capture_output=True,
    )
    good, text = text_of(code.read_bytes(), 80)
    assert good
    assert ".target sm_75" in text
    assert ".entry _Z6kernelPf" in text
    good, text = text_of(code.read_bytes(), 90)
    assert good
    assert ".target sm_90" in text
