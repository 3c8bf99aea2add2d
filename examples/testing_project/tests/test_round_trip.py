"""These tests run under every order of their asynchronous work."""

import numpy as np
import pytest
from round_trip import CarelessRoundTrip, RoundTrip

pytestmark = pytest.mark.cuda_explore


@pytest.fixture
def frames():
    return [np.full(256, number, "f4") for number in range(4)]


def test_frames_come_back(frames):
    found = RoundTrip(256).run(frames)
    assert [frame[0] for frame in found] == [0, 1, 2, 3]


@pytest.mark.cuda_software
@pytest.mark.cuda_allow("races")
@pytest.mark.xfail(strict=True, reason="sends into a slot that is still read")
def test_frames_come_back_careless(frames):
    """The frames are right in the first order, and in most others."""
    found = CarelessRoundTrip(256).run(frames)
    assert [frame[0] for frame in found] == [0, 1, 2, 3]
