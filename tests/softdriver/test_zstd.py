"""Texts that Zstandard has compressed, as compilers put them into fatbins."""

import random
import shutil
import struct
import subprocess

import pytest
from limits import PATIENCE

from .sanitized import ADDRESS, ROOT, Build

PROGRAM = ROOT / "tests" / "softdriver" / "zstd_run.cpp"
MOST = 1 << 20
MAGIC = b"\x28\xb5\x2f\xfd"
SINGLE = 0x20  # a frame whose size is given, in one byte
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """A function that runs zstd_run with an input. It returns the status and the output."""
    path = Build("address", ADDRESS).ptx_program(PROGRAM)
    file = tmp_path_factory.mktemp("zstd") / "text.zst"

    def run(frames, most=MOST, *changes):
        file.write_bytes(frames)
        command = [path, file, str(most), *map(str, changes)]
        done = subprocess.run(command, capture_output=True, timeout=PATIENCE, cwd=file.parent)
        assert done.returncode in (0, 1), done.stderr.decode()[-4000:]
        return done.returncode == 0, done.stdout

    return run


def numbers(count):
    """Numbers of 15 bits, the same each time."""
    value = 7
    for _ in range(count):
        value = value * 1103515245 + 12345 & 0x7FFFFFFF
        yield value >> 16


def instructions(count, mask):
    made = [f"add.u32 %r{n & 7}, %r{n >> 4 & 3}, {n >> 8 & mask};\n" for n in numbers(count)]
    return "".join(made).encode()


def letters(count, mask):
    return bytes(97 + min(n & mask, n >> 4 & mask) for n in numbers(count))


# Texts that zstd 1.5 has compressed, each in another way.
FRAMES = {
    "a byte, repeated": (b"a" * 5000, "28b52ffd00584d0000106161010083d3032c"),
    "as it is": (letters(20, 15), "28b52ffd0058a10000676565636263636362626d626c626e6367676d63"),
    "one stream": (
        letters(280, 1),
        "28b52ffd00689d0100728a0604e00f8151d070800c035171425a1c9252c057a2417e110148840700ac036d"
        "c73c881925ab74a2de03320af918b37a02",
    ),
    "four streams": (
        letters(280, 3),
        "28b52ffd006895020086911306e0e9bb01d411100010001000e80eb5285507b4dea3a80b470b2da07ac7c5"
        "46ca0bd05953e3a8aaa07ba5f706f8ae80863ddc16abe8150d095cbbc10588c0ad6dcb27b01075558a18c3"
        "144d1e0800",
    ),
    "matches": (
        instructions(12, 7),
        "28b52ffd006885020022830a0fc0eb30827f349026657249011d0b58e0fc67438aefcc074b6cf656d851c0"
        "31d62ab0a602fd2552420112a010d0c9fd33302d2deca640b9d9fd0cc8b5848e6ececee63364cb99655cd6"
        "e38652",
    ),
    "two blocks": (
        instructions(60, 1) * 120,
        "28b52ffd006814050082840c0fc0eb30827f3440d9644a5980edad37f6be647b3b639ebdb225cd5b179f62"
        "e97b76e9eb1b0f1c866125c2302582bf484a283fa0c1f4f6efd0301299d90111fbef24a7a039dafbc4512c"
        "23f4c9921a3a63a14f4d47a7718e3429b656d3000dab11608da61b9d944687a5d186b90b843e3a53065d3b"
        "ba019d4b749fe356d076acc698155dfad1f89516ba669974d36cb144a335ac7cb666dd581adb3f6eb50a4d"
        "00000001009dcef8ffae81",
    ),
    "a checksum": (
        instructions(12, 7),
        "28b52ffd045825030094036164642e753332202572342c202572322c20343b0a36302c203634332c203232"
        "312c2030333735322c203532363431333235302c2033333b0a14008008d8b3986668ed0acd8025801fc818"
        "a0056002d601ce40260013b02e6002d6054cc0deb84d26f930b399",
    ),
}


@pytest.mark.parametrize("name", FRAMES)
def test_recorded(program, name):
    text, frames = FRAMES[name]
    assert program(bytes.fromhex(frames)) == (True, text)


def block(kind, content, last=True, size=None):
    size = len(content) if size is None else size
    return struct.pack("<I", size << 3 | kind << 1 | last)[:3] + content


def frame(*blocks, flags=SINGLE, fields=None, size=0):
    return MAGIC + bytes([flags]) + (bytes([size]) if fields is None else fields) + b"".join(blocks)


RAW, REPEATED, COMPRESSED, RESERVED = range(4)
ABC = frame(block(RAW, b"abc"), size=3)
SKIPPED = b"\x53\x2a\x4d\x18" + struct.pack("<I", 5) + b"notes"


@pytest.mark.parametrize(
    ("frames", "text"),
    [
        (ABC, b"abc"),
        (ABC + SKIPPED + ABC, b"abcabc"),
        (SKIPPED, b""),
        (frame(block(REPEATED, b"x", size=200), size=200), b"x" * 200),
        (frame(block(RAW, b"ab", last=False), block(RAW, b"c"), size=3), b"abc"),
        (frame(block(RAW, b"abc"), flags=0, fields=b"\x58"), b"abc"),  # a frame of unknown size
        (frame(block(RAW, b"x" * 300), flags=0x60, fields=struct.pack("<H", 44)), b"x" * 300),
        (frame(block(RAW, b"abc"), flags=0xE0, fields=struct.pack("<Q", 3)), b"abc"),
        (frame(block(RAW, b"abc"), flags=SINGLE | 1, fields=b"\0\3"), b"abc"),  # dictionary 0
        (frame(block(COMPRESSED, b"\x18abc\0"), size=3), b"abc"),  # literals only
        (frame(block(COMPRESSED, b"\x19a\0"), size=3), b"aaa"),
        # An overlapping match: one literal, then a match at offset 1. The tables are in RLE mode.
        (frame(block(COMPRESSED, b"\x08a\1\x54\1\0\1\1"), size=5), b"aaaaa"),
    ],
)  # fmt: skip
def test_by_hand(program, frames, text):
    assert program(frames) == (True, text)


@pytest.mark.parametrize(
    "frames",
    [
        b"",
        MAGIC[:3],
        b"\x27\xb5\x2f\xfd" + ABC[4:],  # a format of older versions
        ABC[:-1],
        ABC + b"\0",
        SKIPPED[:-1],
        frame(block(RAW, b"abc"), size=4),  # the frame says another size
        frame(block(RAW, b"abc"), flags=SINGLE | 8, size=3),  # a reserved flag
        frame(block(RAW, b"abc"), flags=SINGLE | 1, fields=b"\7\3"),  # needs a dictionary
        frame(block(RAW, b"abc"), flags=SINGLE | 4, size=3),  # without its checksum
        frame(block(RAW, b"abc", last=False), size=3),  # without its last block
        frame(block(RESERVED, b"abc"), size=3),
        frame(block(REPEATED, b"a", size=(128 << 10) + 1), flags=0, fields=b"\x58"),
        frame(block(COMPRESSED, b""), size=0),
        frame(block(COMPRESSED, b"\x18ab"), size=3),  # fewer literals than announced
        frame(block(COMPRESSED, b"\x18abc\0x"), size=3),  # bytes behind no sequence
        frame(block(COMPRESSED, b"\x03\0\0"), size=0),  # needs the table of an earlier block
        frame(block(COMPRESSED, b"\x08a\1\xfc\1"), size=5),  # needs the tables of an earlier block
        frame(block(COMPRESSED, b"\x08a\1\x55\1\0\1\1"), size=5),  # reserved modes
        frame(block(COMPRESSED, b"\x08a\1\x54\x24\0\1\1"), size=5),  # symbols that do not exist
        frame(block(COMPRESSED, b"\x08a\1\x54\1\x20\1\1"), size=5),
        frame(block(COMPRESSED, b"\x08a\1\x54\1\0\x35\1"), size=5),
        frame(block(COMPRESSED, b"\x08a\1\x54\1\0\1\0"), size=5),  # a stream without end
        frame(block(COMPRESSED, b"\x08a\1\x54\1\0\1\2"), size=5),  # bits are left in the stream
        frame(block(COMPRESSED, b"\x08a\1\x54\2\0\1\1"), size=5),  # more literals than there are
        frame(block(COMPRESSED, b"\x08a\1\x54\1\2\1\7"), size=5),  # a match before the beginning
        frame(block(COMPRESSED, b"\x08a\1\x54\1\2\1\1"), size=5),  # bits are missing in the stream
    ],
)  # fmt: skip
def test_corrupt(program, frames):
    assert program(frames) == (False, b"")


def test_more_text_than_allowed(program):
    bomb = frame(*[block(REPEATED, b"a", False, 128 << 10)] * 8000, flags=0, fields=b"\x58")
    assert program(bomb) == (False, b"")
    assert program(ABC, 2) == (False, b"")
    assert program(ABC, 3) == (True, b"abc")
    text, frames = FRAMES["matches"]
    assert program(bytes.fromhex(frames), len(text) - 1) == (False, b"")


@pytest.mark.parametrize("name", FRAMES)
def test_cut_off(program, name):
    frames = bytes.fromhex(FRAMES[name][1])
    for size in range(1, len(frames), 1 + len(frames) // 40):
        assert program(frames[:size]) == (False, b"")


@pytest.mark.parametrize("name", FRAMES)
def test_random_changes(program, name):
    """No input reads or writes beyond its bytes, takes long, or gives more text than allowed."""
    good, said = program(bytes.fromhex(FRAMES[name][1]), MOST, 3000)
    assert good
    assert said.endswith(b" of 3000 were right")


@pytest.fixture(scope="module")
def compressed():
    """A function that compresses bytes with the Zstandard that this machine has."""
    try:
        import zstandard
    except ImportError:
        if not (tool := shutil.which("zstd")):
            pytest.skip("there is neither the package zstandard nor the program zstd")

        def run(text, level):
            options = [f"--fast={-level}" if level < 0 else f"-{level}", "--no-check"]
            command = [tool, "-q", "-c", *options]
            return subprocess.run(command, input=text, capture_output=True, check=True).stdout

        return run
    return lambda text, level: zstandard.ZstdCompressor(level=level).compress(text)


def _texts():
    random.seed(3)
    yield b""
    yield from (path.read_bytes() for path in sorted((ROOT / "tests" / "kernels").glob("*.ptx")))
    yield from (path.read_bytes() for path in sorted((ROOT / "softdriver" / "ptx").glob("d*.cpp")))
    yield b"".join(path.read_bytes() for path in sorted((ROOT / "softdriver").rglob("*.cpp")))[
        :MOST
    ]
    for size in (1, 2, 5, 50, 500, 3000, 70_000, 300_000):
        for kinds in (2, 4, 16, 200, 256):
            text = bytes(random.randrange(kinds) for _ in range(size))
            yield (text * random.choice((1, 1, 3)))[:MOST]


@pytest.mark.parametrize("level", [-5, 1, 3, 9, 19])
def test_of_the_reference(program, compressed, level):
    """Whatever the reference implementation compresses is decompressed to the same bytes."""
    for text in _texts():
        assert program(compressed(text, level)) == (True, text)
