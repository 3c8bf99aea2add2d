"""Random programs in several threads; the oracle must come to the same decisions (replay.py)."""

from collections import Counter

import pytest
import replay
from oracle import Oracle
from pair import Disagreement

PROGRAMS = 120
THREADS = range(2, 9)


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return replay.build(tmp_path_factory.mktemp("replay"))


@pytest.mark.parametrize("scheduled", [True, False], ids=["scheduled", "unscheduled"])
def test_the_oracle_decides_the_same(program, scheduled):
    total = Counter()
    for seed in range(PROGRAMS):
        _, answers = replay.run(program, seed, THREADS[seed % len(THREADS)], scheduled)
        total += answers
    # Programs in which one answer is rare would test little.
    for answer in ("ok", "borrowed", "exported", "must_wait", "discarded", "attached"):
        assert total[f"begin {answer}"] > 10, total
    for answer in ("export ok", "export borrowed", "lend ok", "close_memory ok"):
        assert total[answer] > 10, total


def test_a_schedule_can_be_repeated(program):
    _, first = replay.run(program, 1, 4, True)
    assert replay.run(program, 1, 4, True)[1] == first


def test_a_wrong_answer_is_noticed(program, monkeypatch):
    """An oracle that lacks one edge disagrees with the engine, and the record is printed."""
    monkeypatch.setattr(Oracle, "wait", lambda self, stream, snapshot: None)
    noticed = []
    for seed in range(60):
        try:
            replay.run(program, seed, 4, True)
        except Disagreement as error:
            noticed.append(str(error))
    assert len(noticed) > 5
    assert all("open_stream" in error for error in noticed)
