"""Each public method beside every other one on the same object, in two threads: pairs.py.

`make pairs` does so for longer: 200 rounds, and the second call at every driver call of the first.
"""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from pairs import SECONDS, failures, run_child
from rows import ARGUMENTS, EXCLUDED, INTERNAL, KINDS, REFUSALS, members, rows_of
from windows import interposed

import cudadrv as cu

# Base classes: their members are rows of the derived classes.
ABSTRACT = {"Region", "Buffer", "HostBuffer", "Handle"}
# Kinds whose objects a GPU makes slowly, above all while many processes use it: the pairs make some
# 300 contexts, or register memory some 4000 times. On a GPU, only every nth pair of them runs.
SLOW = {"created context": 8, "shareable": 8}


@pytest.fixture(scope="module")
def stopping(tmp_path_factory) -> Path:
    """The path of a driver that stops calls at their driver calls: interposed.c."""
    return interposed(cu.driver_info().path, tmp_path_factory.mktemp("interposed"))


def test_each_class_has_kinds():
    assert {kind.of for kind in KINDS.values()} | ABSTRACT == set(members())


def test_each_member_has_a_row():
    known = {member.row for of_class in members().values() for member in of_class.values()}
    for kind in KINDS:
        rows_of(kind)  # raises if a method has no arguments
    assert {*ARGUMENTS, *EXCLUDED, *REFUSALS} - known == set()
    assert not INTERNAL & {kind.of for kind in KINDS.values()}


def test_each_row_succeeds_alone(stopping):
    child = run_child(stopping, "--alone")
    assert child.returncode == 0, child.stderr
    done = [row for line in child.stdout.splitlines() for row in json.loads(line)["done"]]
    rows = {row for kind in KINDS for row in rows_of(kind)}
    if cu.Device.count() < 2:
        rows -= {row for row in rows if row.endswith(("_access", "link_to"))}
    assert rows - set(done) == set()


@pytest.mark.timeout(5 * SECONDS)  # a pair that hangs ends after SECONDS, and says where it hung
@pytest.mark.parametrize("kind", KINDS)
def test_pairs(stopping, kind):
    step = 1 if cu.driver_info().is_software else SLOW.get(kind, 1)
    found = list(failures(kind, stopping, ["--rounds", "2", "--moments", "some"], step))
    assert not found, "\n\n".join(found)
