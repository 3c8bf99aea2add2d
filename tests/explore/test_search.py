"""Exploring runs each order once: compared with all orders of random programs."""

import pytest

from cudadrv import testing
from cudadrv._explore import Verdict, choices_of, explore, script_of
from tests.explore.calls import Calls, ordered_program, random_program, run_all, without_waits

MOST_ORDERS = 100_000

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


@pytest.mark.parametrize("seed", range(30))
def test_orders_of_random_programs(cuda_device, seed):
    """All results, and all orders of conflicting steps, each of them once."""
    calls = random_program(seed, operations=2 + seed % 3)
    every = run_all(Calls(calls), everything=True, most=MOST_ORDERS)
    found = run_all(Calls(calls))
    assert found.results == every.results
    assert found.orders == every.orders
    assert found.runs == len(every.orders)


@pytest.mark.parametrize("seed", range(1, 13))
def test_a_wait_is_missing(cuda_device, seed):
    """It is found if and only if some order without it has another result."""
    calls = ordered_program(seed)
    right = run_all(Calls(calls))
    assert right.runs == 1
    for mutated in without_waits(calls):
        every = run_all(Calls(mutated), everything=True, most=MOST_ORDERS)
        assert run_all(Calls(mutated)).results == every.results


def test_some_missing_waits_matter(cuda_device):
    programs = [ordered_program(seed) for seed in range(1, 13)]
    results = [len(run_all(Calls(m)).results) for calls in programs for m in without_waits(calls)]
    assert results.count(1) > 5
    assert sum(count > 1 for count in results) > 5


def test_the_first_order(cuda_device):
    """It runs what a wait needs, and no other work."""
    calls = [("fill", 0, 0, 1), ("fill", 1, 1, 2), ("synchronize", 1), ("ask", 0)]
    explored = explore(Calls(calls), lambda _: Verdict.PASSED, saves=False)
    assert explored.value[0] is False
    assert explored.runs == 2


@pytest.mark.parametrize(
    ("choices", "text"),
    [([], "x"), ([1], "x1"), ([0, 0, 2, 1], "x2:2-1"), ([0, 3, 0, 0, 1, 0], "x1:3-2:1")],
)
def test_scripts(choices, text):
    assert script_of(choices) == text
    while choices and not choices[-1]:
        choices.pop()
    assert choices_of(text) == choices


@pytest.mark.parametrize("text", ["", "1", "x0", "x-", "x1-", "x3:0", "xa", "x1:2:3", "x-1"])
def test_what_is_no_script(cuda_device, text):
    with pytest.raises(ValueError, match="script must be such as x or x3:2-1"):
        testing.configure(f"schedule=replay,script={text}")
