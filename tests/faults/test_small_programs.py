"""The small programs run without errors on all drivers."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from small_programs import PROGRAMS


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_runs(name):
    PROGRAMS[name]()
