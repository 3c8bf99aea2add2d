"""Marks for tests whose result does not depend on when the software driver runs work."""

import pytest

# Of tests that queue little work in processes of their own, or set the schedule themselves.
one_schedule = pytest.mark.parametrize("cuda_schedule", ["lazy"], indirect=True)
