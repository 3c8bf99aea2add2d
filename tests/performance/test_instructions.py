"""The calls of a loop take about the number of instructions that was last recorded.

A change that makes a call slower on purpose records new counts, and its commit says why:
    python benchmarks/instructions.py --record
"""

import pytest


def test_no_call_takes_many_more_instructions_than_recorded(instructions):
    former = instructions.recorded().get(instructions.BUILD)
    if former is None:
        pytest.skip(f"nothing is recorded for {instructions.BUILD}")
    if reason := instructions.missing():
        pytest.skip(reason)
    counted = instructions.count()
    assert counted.keys() == former.keys()
    assert instructions.grown(counted, former) == []
    short, long = map(counted.get, instructions.COLUMNS)
    assert long <= 1.01 * short  # one record, and one call of the driver, for any number of rows


def test_growth_is_seen(instructions):
    former = {"steady": 1000, "less": 1000, "a little": 1000, "much": 1000}
    counted = {"steady": 1000, "less": 500, "a little": 1090, "much": 1110}
    assert instructions.grown(counted, former) == ["much: 1,000 -> 1,110 (+11.0%)"]


def test_what_is_recorded_is_whole(instructions):
    """The counts of all builds are of the same operations, and at least one build has counts."""
    names = [tuple(counts) for counts in instructions.recorded().values()]
    assert names
    assert len(set(names)) == 1
