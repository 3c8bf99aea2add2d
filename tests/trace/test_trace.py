"""`cudadrv.trace`: what is in the file."""

import threading

import numpy as np
import pytest

import cudadrv as cu
from cudadrv._trace_file import NotATraceError, fields, parse, read

FLIGHT = "queued until known complete"


def on_thread(trace, name):
    return [each for each in trace.slices if each.track.is_thread and each.name == name]


def flights(trace):
    """Return operations by the name of their stream."""
    return [(trace.owner(each.track), each) for each in trace.under(FLIGHT, "streams")]


def test_an_operation_is_a_call_and_is_in_flight_until_it_is_known_complete(traced):
    stream, buffer = cu.Stream(name="work"), cu.DeviceBuffer(64)

    def program():
        buffer.fill_async(1, stream)
        stream.synchronize()

    trace = traced(program)
    (call,) = on_thread(trace, "fill_async")
    ((owner, flight),) = flights(trace)
    *_, wait = on_thread(trace, "cuStreamQuery")
    assert owner == "Stream 'work'"
    assert call.notes["stream"] == owner
    assert call.notes["line"] == flight.notes["line"]
    assert call.notes["line"].startswith("tests/trace/test_trace.py:")
    assert call.flows == flight.flow_ends  # the arrow
    assert flight.begin == call.begin < call.end <= wait.begin < flight.end
    assert "note" not in flight.notes


def test_driver_calls_are_inside_the_call_that_makes_them(traced):
    stream, buffer = cu.Stream(), cu.DeviceBuffer(64)
    trace = traced(lambda: buffer.fill_async(1, stream))
    (call,) = on_thread(trace, "fill_async")
    (inner,) = (each for each in trace.slices if each.name.startswith("cuMemset"))
    assert call.track is inner.track
    assert call.begin < inner.begin <= inner.end <= call.end


def test_work_that_nothing_waits_for_ends_with_the_trace(traced):
    stream, buffer = cu.Stream(), cu.DeviceBuffer(64)
    trace = traced(lambda: buffer.fill_async(1, stream))
    ((_, flight),) = flights(trace)
    assert flight.notes["note"] == "not known complete when the trace ended"
    assert flight.end is not None
    stream.synchronize()


def test_borrows_are_slices_of_the_buffer_with_use_and_bytes(traced):
    stream = cu.Stream()
    source, target = cu.LockedBuffer.zeros(64), cu.DeviceBuffer(64, name="target")

    def program():
        target[16:32].copy_from_async(source[:16], stream)
        stream.synchronize()

    trace = traced(program)
    borrows = {trace.owner(each.track): each for each in trace.under("borrows", "buffers")}
    (written,) = (each for name, each in borrows.items() if "'target'" in name)
    (read_,) = (each for name, each in borrows.items() if "LockedBuffer" in name)
    assert (written.notes["use"], written.notes["bytes"]) == ("write", "16:32")
    assert (read_.notes["use"], read_.notes["bytes"]) == ("read", "0:16")
    ((_, flight),) = flights(trace)
    assert written.begin == flight.begin
    assert written.end == flight.end


def test_a_refusal_has_its_whole_text(traced):
    up, down, buffer = cu.Stream(name="up"), cu.Stream(name="down"), cu.DeviceBuffer(64)
    messages = []

    def program():
        buffer.fill_async(1, up)
        with pytest.raises(cu.BufferBorrowedError) as refused:
            buffer.fill_async(2, down)
        messages.append(str(refused.value))
        with pytest.raises(cu.BufferBorrowedError):
            buffer.close()

    trace = traced(program)
    refusals = [each for each in trace.instants if each.category == "refusal"]
    assert [each.name for each in refusals] == ["BufferBorrowedError"] * 2
    assert refusals[0].notes["text"] == messages[0]
    assert "line" in refusals[0].notes
    calls = on_thread(trace, "fill_async")
    assert calls[1].notes["note"] == "not queued"
    assert calls[1].begin < refusals[0].begin
    up.synchronize()


def test_an_arrow_leads_from_a_record_to_each_wait(traced):
    first, others = cu.Stream(), [cu.Stream() for _ in range(3)]

    def program():
        event = first.record()
        for other in others:
            other.wait(event)

    trace = traced(program)
    (record,) = (each for each in trace.instants if each.name == "record")
    waits = [each for each in trace.instants if each.name == "wait"]
    arrows = [arrow for each in waits for arrow in each.flow_ends]
    assert len(set(arrows)) == 3
    assert set(arrows) <= set(record.flows)
    assert len({each.track.uuid for each in waits}) == 3


def test_operations_that_overlap_get_lanes(traced, gate):
    stream, buffer = cu.Stream(), cu.DeviceBuffer(64)
    gate.hold(stream)

    def program():
        for _ in range(40):
            buffer.fill_async(1, stream)
        gate.open()
        stream.synchronize()

    trace = traced(program)
    lanes = {each.track.uuid for each in trace.slices if each.track.name == FLIGHT}
    assert len(lanes) == 32
    # What has no lane is an instant, so that nothing is missing.
    assert sum(each.track.name == FLIGHT for each in trace.beyond) == 40 - 32
    assert len(flights(trace)) == 40
    (known,) = {each.end for _, each in flights(trace)}
    assert all(each.begin < known for _, each in flights(trace))


def test_counters_show_live_and_kept_bytes(traced):
    def program():
        buffer = cu.DeviceBuffer(1 << 20)
        buffer.close()

    live = [value for _, value in traced(program).counters["live buffers"]]
    assert max(live) - live[-1] == 1 << 20


def test_memory_made_in_a_loop_has_one_track(traced):
    def program():
        for _ in range(20):
            cu.DeviceBuffer(80)

    tracks = traced(program).tracks.values()
    assert sum(", 80 bytes, made at tests/trace/" in each.name for each in tracks) <= 2


def test_each_thread_has_a_track_with_its_name(traced):
    def work():
        stream, buffer = cu.Stream(), cu.DeviceBuffer(64)
        for _ in range(50):
            buffer.fill_async(1, stream)
        stream.synchronize()

    def program():
        threads = [threading.Thread(target=work, name=f"worker {i}") for i in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    trace = traced(program)
    names = [each.track.name for each in on_thread(trace, "fill_async")]
    assert {name: names.count(name) for name in names} == {f"worker {i}": 50 for i in range(3)}
    assert all(flight.end for _, flight in flights(trace))


def test_an_operation_in_a_capture_is_no_operation_of_the_stream(traced):
    stream, buffer = cu.Stream(), cu.DeviceBuffer(64)
    graph = cu.Graph()

    def program():
        with graph.capture(stream):
            buffer.fill_async(1, stream)
        graph.instantiate().launch(stream)
        stream.synchronize()

    trace = traced(program)
    (call,) = on_thread(trace, "fill_async")
    assert call.notes["note"].startswith("captured")
    ((_, flight),) = flights(trace)
    assert flight.name.startswith("launch of")


def test_a_copy_through_stages_is_one_operation_a_chunk(traced):
    stream, buffer = cu.Stream(), cu.DeviceBuffer(3 << 20)
    trace = traced(lambda: buffer.copy_from(np.zeros(3 << 20, "u1"), stream=stream))
    (owner,) = {owner for owner, _ in flights(trace)}
    assert owner == repr(stream)[1:-1].partition(",")[0] or owner.startswith("Stream ")
    assert {each.name for _, each in flights(trace)} == {"copy_from"}
    assert all(each.end for _, each in flights(trace))


def test_operations_run_on_the_software_driver(traced, driver):
    if driver == "cuda":
        pytest.skip("a GPU does not say when operations run")
    up, down = cu.Stream(name="up"), cu.Stream(name="down")
    first, second = cu.DeviceBuffer(64), cu.DeviceBuffer(64)

    def program():
        first.fill_async(1, up)
        down.wait(up)
        second.copy_from_async(first, down)
        down.synchronize()

    trace = traced(program)
    runs = trace.under("runs", "streams")
    assert [(trace.owner(each.track), each.name) for each in runs] == [
        ("Stream 'up'", "fill_async"),
        ("Stream 'down'", "copy_from_async"),
    ]
    assert runs[0].end <= runs[1].begin
    assert {each.notes["line"] for each in runs} == {
        each.notes["line"] for _, each in flights(trace)
    }


def test_the_classes_of_perfetto_read_the_same(tmp_path, perfetto):
    """Every field has the number and the type that Perfetto's own classes give it."""
    up, down, buffer = cu.Stream(), cu.Stream(), cu.DeviceBuffer(64)
    path = tmp_path / "run.pftrace"
    with cu.trace(path):
        buffer.fill_async(1, up)
        down.wait(up)
        with pytest.raises(cu.BufferBorrowedError):
            buffer.close()
        buffer.fill_async(2, down)
        down.synchronize()
    data = path.read_bytes()
    theirs, ours = perfetto(data), parse(data)
    assert not any(packet.ListFields() == [] for packet in theirs.packet)
    assert theirs.packet[0].sequence_flags == 1
    assert {packet.sequence_flags for packet in theirs.packet[1:]} == {2}
    tracks = {
        packet.track_descriptor.uuid: packet.track_descriptor
        for packet in theirs.packet
        if packet.HasField("track_descriptor")
    }
    assert tracks.keys() == ours.tracks.keys()
    for uuid, track in ours.tracks.items():
        named = tracks[uuid]
        assert track.name in (named.name, named.thread.thread_name, named.process.process_name)
        assert track.parent == named.parent_uuid
    assert {tracks[uuid].counter.unit for uuid in tracks if tracks[uuid].HasField("counter")} == {3}
    events = [packet for packet in theirs.packet if packet.HasField("track_event")]
    begins = [each for each in events if each.track_event.type == 1]
    ends = [each for each in events if each.track_event.type == 2]
    assert len(begins) == len(ends) == len(ours.slices)
    assert {each.track_event.track_uuid for each in events} <= tracks.keys()
    names = {
        each.iid: each.name for packet in theirs.packet for each in packet.interned_data.event_names
    }
    assert sorted(names[each.track_event.name_iid] for each in begins) == sorted(
        each.name for each in ours.slices
    )
    flows = [flow for each in events for flow in each.track_event.flow_ids]
    ended = [flow for each in events for flow in each.track_event.terminating_flow_ids]
    assert len(set(flows)) == len(flows)
    assert set(ended) <= set(flows)


def test_a_file_that_is_no_trace(tmp_path):
    path = tmp_path / "other"
    path.write_bytes(b"not a trace at all")
    with pytest.raises(NotATraceError):
        read(path)
    with pytest.raises(IndexError):
        list(fields(b"\x0a\x05ab"))
