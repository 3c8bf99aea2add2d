"""The benchmarks of managed memory, pipelines and pools measure what they say."""

import io

import numpy as np
import pytest

STAGES = ["source to page-locked memory", "copy in", "kernel", "copy out", "both copies at once"]
TOGETHER = "source and both copies at once"
WAYS = ["Pipeline", "waiting for each chunk"]


@pytest.fixture
def managed(scripts, driver):
    return scripts("managed")


def test_all_parts_are_measured(benchmark_results):
    options = ["--size", "2", "--chunk", "1", "--seconds", "0", "--rounds", "2"]
    results, printed = benchmark_results("managed.py", *options)
    assert (results["size"], results["chunk"], results["software"]) == (2, 1, True)
    rows = results["rows"]
    assert list(rows["moves"]) == ["to the device", "to the host"]
    for ways in rows["moves"].values():
        assert list(ways) == ["faults", "prefetch, then use", "copy, then use", "already there"]
        for cells in ways.values():
            figures = cells["cudadrv"]
            assert 0 < figures["low"] <= figures["median"] <= figures["high"]
    assert list(rows["pipelines"]) == ["an array", "a file"]
    for cells in rows["pipelines"].values():
        assert list(cells) == [*STAGES, TOGETHER, *WAYS]
        slowest = min(cells[name]["median"] for name in STAGES[:4])
        for way in WAYS:
            share = cells[way]["median"] / slowest
            assert cells[way]["of the slowest stage"] == pytest.approx(share)
            assert cells[way]["of all at once"] > 0
    assert set(rows["pools"]) == {
        "locked", "locked on a stream", "managed", "managed on a stream"
    }  # fmt: skip
    assert all(row["cudadrv"]["loop"]["median"] > 0 for row in rows["pools"].values())
    for words in ("GB/s to the host", "GB/s from a file", "taken and given back"):
        assert words in printed


@pytest.mark.cuda_software
def test_each_way_moves_pages_as_it_says(managed):
    """Each way to move pages causes the stated number of page faults in the software driver."""
    from cudadrv import testing

    moves = managed.OurMoves(1 << 20)
    blocks = 16  # number of blocks of 64 KiB
    for to_host in (False, True):
        ways = managed.ways_to_move(moves, to_host)
        for name, prepare in ways.items():
            run = prepare()
            before = testing.page_faults(moves.managed)
            run()
            moves.wait()
            after = testing.page_faults(moves.managed)
            found = after.host - before.host, after.device - before.device
            expected = blocks if name == "faults" else 0
            assert found == ((expected, 0) if to_host else (0, expected)), name


def test_wrong_numbers_are_found(managed, scripts):
    """A loop without its kernel gives wrong results, which are found."""
    made = scripts("pipeline").Pipeline(1 << 16, 1 << 14, [managed.BUFFERS])
    numbers = made.source.to_numpy()
    array = managed.Source(numbers, made.count)
    file = managed.Source(numbers, made.count, io.BytesIO())
    ways = managed.loops(made, software=True)
    for name, (run, found) in ways.items():
        for source in (array, file):
            managed.check(name, run, found, made, source, numbers)
    made.compute = lambda work, stream: stream
    with pytest.raises(SystemExit, match="gave wrong numbers"):
        managed.check("it", ways["waiting for each chunk"][0], None, made, array, numbers)


def test_the_stage_of_the_host_is_that_of_a_pipeline(managed, scripts):
    """The host's stage writes all bytes of the source to page-locked memory, as a pipeline does."""
    made = scripts("pipeline").Pipeline(1 << 16, 1 << 14, [managed.BUFFERS])
    numbers = made.source.to_numpy()
    for file in (None, io.BytesIO()):
        assert managed.fill(managed.Source(numbers, made.count, file), made) == 4
        rooms = made.pipelines[managed.BUFFERS]._sources[:4]
        assert np.array_equal(np.concatenate([room.to_numpy() for room in rooms]), numbers)
        for room in rooms:
            room.fill(0)
