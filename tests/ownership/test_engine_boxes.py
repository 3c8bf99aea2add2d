"""Boxes of the engine: whether two of them have bytes in common is computed, not looked up."""

import subprocess
from pathlib import Path

import pytest
from calls import read, write
from compiled import compiled
from limits import PATIENCE
from oracle import BoxStop
from private_engine import Domain, Engine, MemoryState, StreamState

FOLDER = Path(__file__).parent
NBYTES = 16
PITCHES = range(2, 7)


def test_all_pairs_of_small_boxes(tmp_path):
    """The program compares what box.h answers with the sets of bytes of the boxes."""
    program = tmp_path / "boxes"
    assert compiled(FOLDER / "boxes.c", program) == ""
    ran = subprocess.run([program], capture_output=True, text=True, timeout=PATIENCE)
    assert ran.stdout == "588 boxes, 8178576 pairs\n"
    assert ran.returncode == 0


def small_boxes():
    """All boxes of two and three rows in NBYTES: where they begin, and their ends."""
    for pitch in PITCHES:
        for width in range(1, pitch):
            for rows in (2, 3):
                for start in range(NBYTES + 1 - (rows - 1) * pitch - width):
                    yield start, BoxStop(start, width, pitch, rows)


def test_two_streams_conflict_exactly_where_their_boxes_share_bytes(streams):
    """The writes of two streams to all pairs of boxes."""
    boxes = list(small_boxes())
    assert len(boxes) > 200
    for start, stop in boxes:
        memory = MemoryState(streams[0].domain.engine, NBYTES)
        assert write(streams[0], memory, start, stop) == "ok"
        for other, end in boxes:
            answer = "ok" if stop.bytes.isdisjoint(end.bytes) else "borrowed"
            assert read(streams[1], memory, other, end) == answer, ((start, stop), (other, end))


@pytest.mark.parametrize("pitch", PITCHES)
def test_column_halves_never_conflict(pitch):
    """Wherever the columns are cut, one stream writes those before the cut and another the rest."""
    rows = NBYTES // pitch
    for cut in range(1, pitch):
        domain = Domain(Engine())
        streams, memory = [StreamState(domain) for _ in range(3)], MemoryState(domain.engine, 64)
        halves = (0, BoxStop(0, cut, pitch, rows)), (cut, BoxStop(cut, pitch - cut, pitch, rows))
        for stream, half in zip(streams, halves, strict=False):
            assert write(stream, memory, *half) == "ok"
        for byte in range(rows * pitch):
            owner = byte % pitch >= cut
            found = [write(stream, memory, byte, byte + 1) for stream in streams]
            assert found == ["borrowed" if at != owner else "ok" for at in range(3)], byte


@pytest.mark.parametrize("rows", [16, 16_384])
def test_a_column_half_is_one_record(streams, rows):
    memory = MemoryState(streams[0].domain.engine, 8 * rows)
    left, right = (0, BoxStop(0, 4, 8, rows)), (4, BoxStop(4, 4, 8, rows))
    assert write(streams[0], memory, *left) == "ok"
    assert memory.ranges <= 3
    assert len(memory.borrows()) == 1
    assert write(streams[1], memory, *right) == "ok"
    assert memory.ranges <= 5
    assert len(memory.borrows()) == 2
    last = 8 * (rows - 1)
    assert read(streams[1], memory, last + 3, last + 4) == "borrowed"
    assert read(streams[0], memory, last + 4, last + 5) == "borrowed"
