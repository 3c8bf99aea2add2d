"""Reads the traces that `cudadrv.trace` writes, without a library for protocol buffers."""

import os
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

# Perfetto's types of events.
BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4

# The bytes with which messages of a trace begin: the number of a field, and its type.
PACKET, TIMESTAMP, EVENT, NAME, NOTE = 0x0A, 0x40, 0x5A, b"\x50", b"\x22"
FLOW, FLOW_END = b"\xf9\x02", b"\x81\x03"
MOST_NOTES = 10_000  # that are remembered

# Names of rows, and of instants that end what has no row.
FLIGHT, RUNS, BORROWS = "queued until known complete", "runs", "borrows"
KNOWN, TRACE_ENDS = "known complete", "end of the trace"

Field = tuple[int, int | bytes]


@dataclass(slots=True)
class Track:
    """A thread, a stream, a buffer, a counter, or a lane of one of them."""

    uuid: int
    name: str
    parent: int = 0
    is_thread: bool = False


@dataclass(slots=True)
class Slice:
    """Something that took time, or an instant. Times are nanoseconds since the system was started.

    ``end`` is None if the trace ends before. ``notes`` are what the trace says about it, by name;
    slices share them, so do not change them.
    """

    track: Track
    name: str
    begin: int
    end: int | None
    notes: dict[str, str | int] = field(default_factory=dict)
    flows: tuple[int, ...] = ()
    flow_ends: tuple[int, ...] = ()
    category: str = ""

    @property
    def took(self) -> int:
        return 0 if self.end is None else self.end - self.begin


@dataclass
class TraceFile:
    """A trace: its tracks by number, its slices by their begin, its instants and its counters.

    ``beyond`` are operations and borrows that overlap more others than a stream or buffer has rows
    for. The file has them as instants; here they have their ends, and a row of their own.
    """

    tracks: dict[int, Track] = field(default_factory=dict)
    slices: list[Slice] = field(default_factory=list)
    beyond: list[Slice] = field(default_factory=list)
    instants: list[Slice] = field(default_factory=list)
    counters: dict[str, list[tuple[int, int]]] = field(default_factory=dict)

    def under(self, name: str, of: str) -> list[Slice]:
        """Return what is in rows with a name whose group has the name `of`, and beyond them."""
        rows = {
            track.uuid
            for track in self.tracks.values()
            if track.name == name and self.group_of(track) == of
        }
        found = [each for each in self.slices if each.track.uuid in rows]
        beyond = (each for each in self.beyond if each.track.name == name)
        return [*found, *(each for each in beyond if self.group_of(each.track) == of)]

    def group_of(self, track: Track) -> str:
        """Return "streams" or "buffers" for a track below one of these, else ""."""
        while track.parent in self.tracks:
            track = self.tracks[track.parent]
            if track.name in ("streams", "buffers"):
                return track.name
        return ""

    def owner(self, track: Track) -> str:
        """Return the name of the stream or buffer of a lane."""
        return self.tracks[track.parent].name


class NotATraceError(ValueError):
    """A file is no trace of cudadrv."""


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7


def fields(data: bytes) -> Iterator[Field]:
    """Yield the numbers and values of a message's fields. Raises IndexError where it is cut off."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        kind = key & 7
        if kind == 0:
            number, at = varint(data, at)
            yield key >> 3, number
            continue
        if kind == 2:
            size, at = varint(data, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise NotATraceError(f"a field of type {kind}")
        if at + size > len(data):
            raise IndexError
        value = data[at : at + size]
        at += size
        yield key >> 3, value if kind == 2 else int.from_bytes(value, "little")


def _all(data: bytes) -> dict[int, list[int | bytes]]:
    found: dict[int, list[int | bytes]] = {}
    for number, value in fields(data):
        found.setdefault(number, []).append(value)
    return found


def _number(found: dict[int, list[int | bytes]], key: int) -> int:
    value = found.get(key, [0])[0]
    return value if isinstance(value, int) else 0


def _text(found: dict[int, list[int | bytes]], key: int) -> str:
    value = found.get(key, [b""])[0]
    return value.decode(errors="replace") if isinstance(value, bytes) else ""


def _messages(found: dict[int, list[int | bytes]], key: int) -> list[dict[int, list[int | bytes]]]:
    return [_all(each) for each in found.get(key, ()) if isinstance(each, bytes)]


class Reader:
    """Reads one packet after the other. The numbers are those of Perfetto's messages.

    Most packets are events, of which a trace may have millions. They begin with the same fields in
    the same order, and most of their notes repeat, so these are read once.
    """

    def __init__(self) -> None:
        self.trace = TraceFile()
        self.names: dict[int, str] = {}
        self.keys: dict[int, str] = {}
        self.strings: dict[int, str] = {}
        self.times: dict[bytes, int] = {}
        self.notes: dict[bytes, dict[str, str | int]] = {}
        self.open: dict[int, list[Slice]] = {}
        self.rows: dict[tuple[int, str], Track] = {}
        # By slot: what has no row, with its number; and the ends, with the last number they end.
        self.beyond: dict[int, list[tuple[int, Slice]]] = {}
        self.ends: dict[int, list[tuple[int, int, str]]] = {}

    def read(self, data: bytes) -> TraceFile:
        at, end = 0, len(data)
        try:
            while at < end:
                if data[at] != PACKET:
                    raise NotATraceError("there are other bytes where a packet should begin")
                size, begin = varint(data, at + 1)
                at = begin + size
                if at > end:
                    break  # the process ended while it wrote this packet
                packet = data[begin:at]
                if packet[4] == TIMESTAMP and packet[14] == EVENT:
                    self.event(packet)
                else:
                    self.describe(_all(packet))
        except IndexError:
            pass  # the same
        self.end_beyond()
        self.trace.slices.sort(key=_begin_of)
        return self.trace

    def describe(self, found: dict[int, list[int | bytes]]) -> None:
        for interned in _messages(found, 12):
            for table, key in ((self.names, 2), (self.keys, 3), (self.strings, 29)):
                for each in _messages(interned, key):
                    table[_number(each, 1)] = _text(each, 2)
        for described in _messages(found, 60):
            self.describe_track(described)

    def describe_track(self, found: dict[int, list[int | bytes]]) -> None:
        uuid, name, thread = _number(found, 1), _text(found, 2), _messages(found, 4)
        for each in thread:
            name = _text(each, 5) or f"thread {_number(each, 2)}"
        for each in _messages(found, 3):
            name = _text(each, 6)
        self.trace.tracks[uuid] = Track(uuid, name, _number(found, 5), bool(thread))

    def time(self, packet: bytes) -> int:
        """Return the time of an event: nine bytes, of which the last five seldom change."""
        high = packet[9:14]
        known = self.times.get(high)
        if known is None:
            known = self.times[high] = varint(high, 0)[0] << 28
        low = (packet[6] & 127) << 7 | (packet[7] & 127) << 14 | (packet[8] & 127) << 21
        return known | packet[5] & 127 | low

    def event(self, packet: bytes) -> None:
        time, kind = self.time(packet), packet[18]
        uuid, at = varint(packet, 20)
        if kind == BEGIN:
            begun = self.slice(time, uuid, packet, at)
            self.open.setdefault(uuid, []).append(begun)
            self.trace.slices.append(begun)
        elif kind == END and self.open.get(uuid):
            # The events of a track are in the order in which they begin and end.
            ended = self.open[uuid].pop()
            ended.end = time
            if at < len(packet):
                ended.notes = {**ended.notes, **self.notes_of(packet, at)[0]}
        elif kind == INSTANT:
            self.instant(time, uuid, packet, at)
        elif kind == COUNTER:
            name = self.track(uuid).name
            value = _number(_all(packet[at:]), 30)
            self.trace.counters.setdefault(name, []).append((time, value))

    def track(self, uuid: int) -> Track:
        found = self.trace.tracks.get(uuid)
        if found is None:
            found = self.trace.tracks[uuid] = Track(uuid, f"track {uuid}")
        return found

    def slice(self, time: int, uuid: int, packet: bytes, at: int) -> Slice:
        name, at = self.name_of(packet, at)
        return self.rest_of_slice(time, uuid, packet, at, name)

    def name_of(self, packet: bytes, at: int) -> tuple[str, int]:
        if packet[at : at + 1] != NAME:
            return "", at
        number, at = varint(packet, at + 1)
        return self.names.get(number, ""), at

    def rest_of_slice(self, time: int, uuid: int, packet: bytes, at: int, name: str) -> Slice:
        notes, at = self.notes_of(packet, at)
        found = Slice(self.track(uuid), name, time, None, notes)
        tag = packet[at : at + 2]
        if len(packet) == at + 10 and tag in (FLOW, FLOW_END):
            flow = (int.from_bytes(packet[at + 2 :], "little"),)
            found.flows, found.flow_ends = (flow, ()) if tag == FLOW else ((), flow)
        elif at < len(packet):
            rest = _all(packet[at:])
            found.flows = tuple(each for each in rest.get(47, ()) if isinstance(each, int))
            found.flow_ends = tuple(each for each in rest.get(48, ()) if isinstance(each, int))
            found.name = _text(rest, 23) or name
            found.category = _text(rest, 22)
            found.notes = {**notes, **self.read_notes(rest)}
        return found

    def notes_of(self, packet: bytes, begin: int) -> tuple[dict[str, str | int], int]:
        """Return the notes that begin here, and where they end. They may be those of others."""
        at = begin
        while packet[at : at + 1] == NOTE:
            size, at = varint(packet, at + 1)
            at += size
        key = packet[begin:at]
        found = self.notes.get(key)
        if found is None:
            if len(self.notes) > MOST_NOTES:
                self.notes.clear()
            found = self.notes[key] = self.read_notes(_all(key))
        return found, at

    def read_notes(self, event: dict[int, list[int | bytes]]) -> dict[str, str | int]:
        found: dict[str, str | int] = {}
        for note in _messages(event, 4):
            key = self.keys.get(_number(note, 1), "?")
            if 17 in note:
                found[key] = self.strings.get(_number(note, 17), "")
            else:
                found[key] = _text(note, 6) if 6 in note else _number(note, 3)
        return found

    def instant(self, time: int, uuid: int, packet: bytes, at: int) -> None:
        """Add an instant, which may be an operation or a borrow that has no row, or its end."""
        name, at = self.name_of(packet, at)
        if packet[at : at + 1] != NOTE or self.keys.get(packet[at + 4]) != "slot":
            found = self.rest_of_slice(time, uuid, packet, at, name)
            took = found.notes.get("took")
            if isinstance(took, int):
                found.end = time + took
                self.add_beyond(found, RUNS)
            else:
                self.trace.instants.append(found)
            return
        # Two notes of this layout: the note's tag, two bytes of length, the key, the tag of the
        # number, and the number.
        slot, at = varint(packet, at + 6)
        number, at = varint(packet, at + 6)
        if name in (KNOWN, TRACE_ENDS):
            note = "not known complete when the trace ended" if name == TRACE_ENDS else ""
            self.ends.setdefault(slot, []).append((number, time, note))
            return
        found = self.rest_of_slice(time, uuid, packet, at, name)
        of_stream = self.trace.tracks.get(found.track.parent, found.track).name == "streams"
        self.add_beyond(found, FLIGHT if of_stream else BORROWS)
        self.beyond.setdefault(slot, []).append((number, found))

    def add_beyond(self, found: Slice, row: str) -> None:
        key = found.track.uuid, row
        track = self.rows.get(key)
        if track is None:
            track = self.rows[key] = Track(0, row, found.track.uuid)
        found.track = track
        self.trace.beyond.append(found)

    def end_beyond(self) -> None:
        """Find the end of each operation and borrow that has no row."""
        for slot, ends in self.ends.items():
            ends.sort()
            for number, each in self.beyond.get(slot, ()):
                at = bisect_left(ends, (number,))
                if at < len(ends):
                    _, time, note = ends[at]
                    each.end = max(time, each.begin)
                    if note:
                        each.notes = {**each.notes, "note": note}


def _begin_of(each: Slice) -> int:
    return each.begin


def parse(data: bytes) -> TraceFile:
    """Parse a trace that may end in the middle of a packet."""
    return Reader().read(data)


def read(path: str | os.PathLike[str]) -> TraceFile:
    """Read a trace. Raises NotATraceError if the file is none, and OSError."""
    trace = parse(Path(path).read_bytes())
    if not trace.tracks:
        raise NotATraceError("it has no packets of a trace")
    return trace
