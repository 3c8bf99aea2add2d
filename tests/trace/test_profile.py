"""`cudadrv.profile`, `python -m cudadrv trace` and `run --trace`."""

import os
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from limits import PATIENCE

import cudadrv as cu
from cudadrv.__main__ import main
from cudadrv._trace_file import Reader, Slice, TraceFile, Track, read
from cudadrv._trace_picture import picture
from cudadrv._trace_table import Total, joined, overlap_of, summary, table


def program(up, down):
    first, second = cu.LockedBuffer.zeros(1 << 16), cu.DeviceBuffer(1 << 16)
    for _ in range(3):
        second.copy_from_async(first, up)
    down.wait(up)
    second.fill_async(1, down)
    with pytest.raises(cu.BufferBorrowedError):
        second.copy_from_async(first, up)
    down.synchronize()


def test_a_profile_counts_operations_waits_and_bytes():
    up, down = cu.Stream(name="up"), cu.Stream(name="down")
    with cu.profile() as profile:
        program(up, down)
        inside = profile.summary
    found = profile.summary
    counts = {each.what.partition(" at ")[0]: each.count for each in found.operations}
    assert counts == {"copy_from_async": 3, "fill_async": 1}
    assert found.copied == inside.copied == 3 << 16
    assert any("Stream 'down'" in each.what for each in found.waits)
    assert {name for name, _, _ in found.refusals} == {"BufferBorrowedError"}
    assert 0 < found.overlap <= 1
    text = str(profile)
    assert "192.0 KiB copied" in text
    assert "\n1 refusal\n" in text
    assert profile.summary is found


@pytest.mark.parametrize("ends", [True, False])
def test_a_profile_counts_what_the_drawing_has_no_rows_for(ends):
    stream, other = cu.Stream(), cu.Stream()
    first, second = cu.LockedBuffer.zeros(1 << 10), cu.DeviceBuffer(1 << 10)
    work = cu.DeviceBuffer(64)
    with cu.profile() as profile:
        begin = time.perf_counter_ns()
        for _ in range(300):
            second.copy_from_async(first, stream)
        work.fill_async(1, other)
        queued = time.perf_counter_ns()
        time.sleep(0.05)
        asked = time.perf_counter_ns()
        if ends:
            other.synchronize()
            stream.synchronize()
    end = time.perf_counter_ns()
    stream.synchronize()
    found = profile.summary
    counts = {each.what.partition(" at ")[0]: each for each in found.operations}
    assert counts["copy_from_async"].count == 300
    assert counts["fill_async"].count == 1
    if ends and cu.driver_info().is_software:  # a GPU does not say when work runs
        runs = {each.what.partition(" at ")[0]: each.count for each in found.runs}
        assert runs == {"copy_from_async": 300, "fill_async": 1}
    assert found.copied == 300 << 10
    # Each copy was in flight from its call until the synchronization, or until the end.
    assert 300 * (asked - queued) < counts["copy_from_async"].nanoseconds < 300 * (end - begin)
    # The streams had work in flight together from the fill on.
    assert (asked - queued) / (end - begin) < found.overlap < 1


def test_a_profile_counts_bursts_that_end_one_after_the_other():
    stream, buffer = cu.Stream(), cu.DeviceBuffer(64)
    with cu.profile() as profile:
        for _ in range(4):
            for _ in range(100):
                buffer.fill_async(1, stream)
            stream.synchronize()
            time.sleep(0.02)  # in which nothing is in flight
    (total,) = profile.summary.operations
    assert total.count == 400
    assert total.nanoseconds < 400 * 20_000_000


@pytest.mark.parametrize("nbytes", [100, 1 << 16, (1 << 20) + 1])
def test_a_profile_counts_bytes_of_copies_through_stages_once(nbytes):
    buffer, pageable = cu.DeviceBuffer(nbytes), np.zeros(nbytes, np.uint8)
    for copy in (buffer.copy_from, buffer.copy_to):
        with cu.profile() as profile:
            copy(pageable)
        assert profile.summary.copied == nbytes


def test_a_profile_counts_the_bytes_of_boxes():
    first, second = (cu.DeviceBuffer(1 << 12).reshape(64, 64) for _ in range(2))
    stream = cu.Stream()
    with cu.profile() as profile:
        first[:16, :32].copy_from_async(second[8:24, 32:], stream)
        first[16:].copy_from_async(second[16:], stream)
        stream.synchronize()
    assert profile.summary.copied == 16 * 32 + 48 * 64


def test_runs_that_have_no_row_are_counted():
    reader = Reader()
    reader.trace.tracks = {2: Track(2, "streams"), 3: Track(3, "Stream 1", parent=2)}
    reader.keys, reader.names = {1: "took"}, {7: "launch"}
    reader.instant(40, 3, b"\x50\x07\x22\x04\x08\x01\x18\x05", 0)
    assert summary(reader.trace).runs == (Total("launch at ?", 1, 5),)


def test_two_profiles_count_apart():
    stream, buffer = cu.Stream(), cu.DeviceBuffer(64)
    profile = cu.profile()
    for times in (1, 2):
        with profile:
            for _ in range(times):
                buffer.fill_async(1, stream)
            stream.synchronize()
        assert [each.count for each in profile.summary.operations] == [times]


def test_overlap_is_the_time_with_two_streams_in_flight():
    tracks = {i: Track(i, f"lane {i}", parent=i // 10) for i in (10, 11, 20)}
    trace = TraceFile(tracks)
    flight = [
        Slice(tracks[10], "a", 0, 10),
        Slice(tracks[11], "b", 5, 20),  # the same stream
        Slice(tracks[20], "c", 15, 25),
        Slice(tracks[20], "d", 40, 50),
    ]
    assert joined([(0, 10), (5, 20), (40, 50)]) == [(0, 20), (40, 50)]
    assert overlap_of(trace, flight) == 5 / 35
    assert overlap_of(trace, []) == 0


def test_an_empty_trace_has_a_table_and_a_picture():
    found = summary(TraceFile())
    assert "0 operations" in table(found)
    ET.fromstring(picture(TraceFile()))


def test_the_command_prints_a_table_and_draws(tmp_path, capsys):
    path, drawn = tmp_path / "run.pftrace", tmp_path / "run.svg"
    with cu.trace(path):
        program(cu.Stream(name="up"), cu.Stream(name="<&>"))
    assert main(["trace", str(path), "--svg", str(drawn)]) == 0
    assert capsys.readouterr().out == table(summary(read(path))) + "\n"
    drawing = ET.parse(drawn).getroot()
    titles = [each.text for each in drawing.iter("{http://www.w3.org/2000/svg}title")]
    assert any("copy_from_async" in title for title in titles)
    assert any("nothing orders this operation after it" in title for title in titles)
    texts = [each.text for each in drawing.iter("{http://www.w3.org/2000/svg}text")]
    assert any(text.startswith("Stream '<&>'") for text in texts)
    assert "refused: BufferBorrowedError" in texts


def test_the_command_and_bad_files(tmp_path, capsys):
    other = tmp_path / "other"
    other.write_bytes(b"")
    assert main(["trace", str(other)]) == 2
    assert "is no trace of cudadrv" in capsys.readouterr().err
    assert main(["trace", str(tmp_path / "nowhere")]) == 1
    assert "nowhere" in capsys.readouterr().err


@pytest.mark.parametrize("uses", [True, False])
def test_run_traces_the_process_that_uses_cudadrv(tmp_path, uses):
    path = tmp_path / "run.pftrace"
    program = "import cudadrv as cu; cu.DeviceBuffer(64).fill(1)" if uses else "pass"
    command = ["run", "--trace", str(path), "--", sys.executable, "-c", program]
    done = subprocess.run(
        [sys.executable, "-m", "cudadrv", *command],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    assert ("no process has used cudadrv" in done.stderr) == (not uses)
    if uses:
        assert any(each.name == "fill" for each in read(path).slices)


def test_a_profile_is_read_while_it_ends():
    """One thread reads the figures, another one ends the block: both see all operations."""
    stream, buffer = cu.Stream(), cu.DeviceBuffer(64)
    for _ in range(30):
        profile, wrong = cu.profile(), []
        with profile:
            buffer.fill_async(1, stream)
            reader = threading.Thread(target=count_into, args=(wrong, profile))
            reader.start()
        reader.join()
        assert not wrong
        assert sum(each.count for each in profile.summary.operations) == 1
    stream.synchronize()


def count_into(wrong, profile):
    try:
        for _ in range(3):
            count = sum(each.count for each in profile.summary.operations)
            if count != 1:
                wrong.append(count)
    except Exception as error:
        wrong.append(error)
