"""Boxes of the engine: whether two of them have bytes in common is computed, not looked up."""

import subprocess
from pathlib import Path

from compiled import compiled
from limits import PATIENCE

FOLDER = Path(__file__).parent


def test_all_pairs_of_small_boxes(tmp_path):
    """The program compares what box.h answers with the sets of bytes of the boxes."""
    program = tmp_path / "boxes"
    assert compiled(FOLDER / "boxes.c", program) == ""
    ran = subprocess.run([program], capture_output=True, text=True, timeout=PATIENCE)
    assert ran.stdout == "588 boxes, 8178576 pairs\n"
    assert ran.returncode == 0
