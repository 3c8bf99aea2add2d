"""Compares exploring with all orders without reduction, for more programs than the tests take.

    python -m tests.explore.brute_force [--programs N] [--ordered N] [--most ORDERS]

Prints how many classes of orders there were, and how many runs exploring needed to find each wait
whose loss changes a result. Programs with more than ORDERS orders are left out.
"""

import argparse
import statistics
import sys

import cudadrv as cu
from cudadrv import testing
from cudadrv._explore import Verdict, explore
from tests.explore.calls import Calls, ordered_program, random_program, run_all, without_waits


class TooManyError(Exception):
    """A program has more orders than are compared."""


def all_orders(calls, most):
    try:
        return run_all(Calls(calls), everything=True, most=most)
    except AssertionError as error:
        if "too many orders" in str(error):
            raise TooManyError from None
        raise


def compare(programs, most):
    """Compare programs of up to 8 operations. Return how many there were, and their classes."""
    compared = classes = 0
    seed = 0
    while compared < programs:
        calls = random_program(seed, operations=2 + seed % 7)
        seed += 1
        try:
            every = all_orders(calls, most)
        except TooManyError:
            continue
        found = run_all(Calls(calls))
        assert found.results == every.results, calls
        assert found.orders == every.orders, calls
        assert found.runs == len(every.orders), calls
        compared, classes = compared + 1, classes + found.runs
        print(f"\r{compared} of {seed} programs: {classes} classes", end="", file=sys.stderr)
    print(f"{compared} of the first {seed} programs: {classes} classes, all the same", flush=True)


def runs_until_found(calls, right):
    """Return after how many runs exploring finds another result than the right one, or None."""
    program, runs = Calls(calls), 0

    def run():
        nonlocal runs
        runs += 1
        if program() != right:
            raise FoundError

    try:
        explore(run, lambda _: Verdict.PASSED, saves=False)
    except FoundError:
        return runs
    return None


class FoundError(Exception):
    """A run has had a wrong result."""


def remove_waits(programs, most):
    """Remove each wait of programs with one order, and compare."""
    removed, matter, left_out, needed = 0, 0, 0, []
    for seed in range(programs):
        calls = ordered_program(seed)
        (right,) = run_all(Calls(calls)).results
        for mutated in without_waits(calls):
            try:
                every = all_orders(mutated, most)
            except TooManyError:
                left_out += 1
                continue
            removed += 1
            runs = runs_until_found(mutated, right)
            assert (runs is not None) == (every.results != {right}), mutated
            if runs is not None:
                matter += 1
                needed.append(runs)
        print(f"\r{seed + 1} programs: {removed} waits, {matter}", end="", file=sys.stderr)
    print(
        f"{removed} removed waits of {programs} programs, of which {matter} change a result: all"
        f" found, after {statistics.median(needed):g} runs in the median and {max(needed)} at most"
        f" ({left_out} left out)"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--programs", type=int, default=44, metavar="N")
    parser.add_argument("--ordered", type=int, default=142, metavar="N")
    parser.add_argument("--most", type=int, default=20_000, metavar="ORDERS")
    options = parser.parse_args()
    cu.Device(0).synchronize()
    testing.configure("schedule=lazy")
    compare(options.programs, options.most)
    remove_waits(options.ordered, options.most)


if __name__ == "__main__":
    main()
