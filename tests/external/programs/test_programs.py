"""Runs programs that somebody built from the checkout $SUITE_SOURCE.

$PROGRAMS has patterns of their paths in the checkout. $SKIPS is the status with which a program
skips itself.
"""

import os
from pathlib import Path

import pytest
from running import run

SOURCE = Path(os.environ["SUITE_SOURCE"])
SKIPS = int(os.environ.get("SKIPS", "77"))


def programs():
    found = {path for pattern in os.environ["PROGRAMS"].split() for path in SOURCE.glob(pattern)}
    return sorted(path for path in found if path.is_file() and os.access(path, os.X_OK))


@pytest.mark.parametrize("program", [pytest.param(path, id=path.name) for path in programs()])
def test_program(program):
    run(program, skips=SKIPS)
