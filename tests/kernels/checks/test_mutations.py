"""Each mutation of the checks changes exactly one place of one function."""

import collections

import pytest

from . import mutations

pytestmark = pytest.mark.parametrize("cuda_schedule", ["eager"], indirect=True)


def test_each_changes_one_place():
    wrong = [name for name, *change in mutations.MUTATIONS if not mutations.changed(*change)]
    assert wrong == []
    assert all(old != new for _, _, old, new in mutations.MUTATIONS)


def test_each_has_its_own_name():
    counts = collections.Counter(name for name, *_ in mutations.MUTATIONS)
    assert counts.most_common(1)[0][1] == 1
