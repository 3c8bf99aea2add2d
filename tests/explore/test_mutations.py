"""Each mutation of the list changes one place (the list says how to run them)."""

import pytest

from tests.explore.mutations import MUTATIONS, changed


@pytest.mark.parametrize(
    ("name", "file", "old", "new"), MUTATIONS, ids=[mutation[0] for mutation in MUTATIONS]
)
def test_each_changes_one_place(name, file, old, new):
    assert new != old
    assert changed(file, old, new)


def test_names_are_names():
    assert len({mutation[0] for mutation in MUTATIONS}) == len(MUTATIONS)
