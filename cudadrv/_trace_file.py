"""Reads the traces that `cudadrv.trace` writes, without a library for protocol buffers."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

# Perfetto's types of events.
BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4

Field = tuple[int, int | bytes]


@dataclass
class Track:
    """A thread, a stream, a buffer, a counter, or a lane of one of them."""

    uuid: int
    name: str
    parent: int = 0
    is_thread: bool = False


@dataclass
class Slice:
    """Something that took time, or an instant. Times are nanoseconds since the system was started.

    ``end`` is None if the trace ends before. ``notes`` are what the trace says about it, by name.
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
    """A trace: its tracks by number, its slices and instants by their time, and its counters."""

    tracks: dict[int, Track] = field(default_factory=dict)
    slices: list[Slice] = field(default_factory=list)
    instants: list[Slice] = field(default_factory=list)
    counters: dict[str, list[tuple[int, int]]] = field(default_factory=dict)

    def under(self, name: str, of: str) -> list[Slice]:
        """Return the slices of tracks with a name whose group has the name `of`."""
        return [
            each
            for each in self.slices
            if each.track.name == name and self.group_of(each.track) == of
        ]

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
    """Reads one packet after the other. The numbers are those of Perfetto's messages."""

    def __init__(self) -> None:
        self.trace = TraceFile()
        self.names: dict[int, str] = {}
        self.keys: dict[int, str] = {}
        self.strings: dict[int, str] = {}
        self.events: list[tuple[int, int, dict[int, list[int | bytes]]]] = []

    def read(self, data: bytes) -> TraceFile:
        try:
            for number, packet in fields(data):
                if number != 1 or not isinstance(packet, bytes):
                    raise NotATraceError(f"field {number} where packets should be")
                self.packet(_all(packet))
        except IndexError:
            pass  # the process ended while it wrote this packet
        self.place()
        return self.trace

    def packet(self, found: dict[int, list[int | bytes]]) -> None:
        for interned in _messages(found, 12):
            for table, key in ((self.names, 2), (self.keys, 3), (self.strings, 29)):
                for each in _messages(interned, key):
                    table[_number(each, 1)] = _text(each, 2)
        for described in _messages(found, 60):
            self.describe(described)
        for event in _messages(found, 11):
            self.events.append((_number(found, 8), len(self.events), event))

    def describe(self, found: dict[int, list[int | bytes]]) -> None:
        uuid, name, thread = _number(found, 1), _text(found, 2), _messages(found, 4)
        for each in thread:
            name = _text(each, 5) or f"thread {_number(each, 2)}"
        for each in _messages(found, 3):
            name = _text(each, 6)
        self.trace.tracks[uuid] = Track(uuid, name, _number(found, 5), bool(thread))

    def notes(self, event: dict[int, list[int | bytes]]) -> dict[str, str | int]:
        found: dict[str, str | int] = {}
        for note in _messages(event, 4):
            key = self.keys.get(_number(note, 1), "?")
            if 17 in note:
                found[key] = self.strings.get(_number(note, 17), "")
            else:
                found[key] = _text(note, 6) if 6 in note else _number(note, 3)
        return found

    def slice(self, time: int, event: dict[int, list[int | bytes]]) -> Slice:
        uuid = _number(event, 11)
        track = self.trace.tracks.setdefault(uuid, Track(uuid, f"track {uuid}"))
        name = _text(event, 23) or self.names.get(_number(event, 10), "")
        flows = [each for each in event.get(47, ()) if isinstance(each, int)]
        ends = [each for each in event.get(48, ()) if isinstance(each, int)]
        return Slice(
            track, name, time, None, self.notes(event), tuple(flows), tuple(ends), _text(event, 22)
        )

    def place(self) -> None:
        """Pair the begins and ends of slices, by time."""
        open_slices: dict[int, list[Slice]] = {}
        for time, _, event in sorted(self.events, key=lambda each: each[:2]):
            kind, uuid = _number(event, 9), _number(event, 11)
            if kind == BEGIN:
                begun = self.slice(time, event)
                open_slices.setdefault(uuid, []).append(begun)
                self.trace.slices.append(begun)
            elif kind == END and open_slices.get(uuid):
                ended = open_slices[uuid].pop()
                ended.end = time
                ended.notes.update(self.notes(event))
            elif kind == INSTANT:
                self.trace.instants.append(self.slice(time, event))
            elif kind == COUNTER:
                name = self.slice(time, event).track.name
                self.trace.counters.setdefault(name, []).append((time, _number(event, 30)))


def parse(data: bytes) -> TraceFile:
    """Parse a trace that may end in the middle of a packet."""
    return Reader().read(data)


def read(path: str | os.PathLike[str]) -> TraceFile:
    """Read a trace. Raises NotATraceError if the file is none, and OSError."""
    trace = parse(Path(path).read_bytes())
    if not trace.tracks:
        raise NotATraceError("it has no packets of a trace")
    return trace
