"""Exploring runs each order once: compared with all orders of random programs."""

import pytest

from tests.explore.calls import Calls, random_program, run_all

pytestmark = [
    pytest.mark.cuda_software,
    pytest.mark.cuda_allow("races"),
    pytest.mark.parametrize("cuda_schedule", ["lazy"], indirect=True),
]


def test_a_race_has_two_orders(cuda_device):
    calls = [("fill", 0, 0, 1), ("fill", 1, 0, 2), ("synchronize", 0), ("synchronize", 1)]
    found = run_all(Calls(calls))
    assert found.runs == len(found.orders) == 2
    assert {result[0] for result in found.results} == {1, 2}
    assert found.limits == ()


@pytest.mark.parametrize("seed", range(40))
def test_orders_of_random_programs(cuda_device, seed):
    """All results, and all orders of conflicting steps, each of them once."""
    calls = random_program(seed, operations=3 + seed % 4)
    every = run_all(Calls(calls), everything=True, most=100_000)
    found = run_all(Calls(calls))
    assert found.results == every.results
    assert found.orders == every.orders
    assert found.runs == len(every.orders)
