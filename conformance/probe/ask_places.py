"""Where managed memory is: prefetches and discards in batches, advice for NUMA nodes."""

import ctypes

from driver import INT, LEGACY, PER_THREAD, location
from section import Section, say

section = Section("places")
question = section.question

SIZE = 65536
DEVICE, HOST, NODE, CURRENT = location(1, 0), location(2, 0), location(3, 0), location(4, 0)
PREFETCH, DISCARD = "cuMemPrefetchBatchAsync", "cuMemDiscardBatchAsync"
BOTH = "cuMemDiscardAndPrefetchBatchAsync"


def numbers(p, *values):
    """An array of 64-bit numbers: addresses, sizes, indices, or places."""
    return p.keep((ctypes.c_uint64 * max(1, len(values)))(*(v & (2**64 - 1) for v in values)))


def _prepare(p):
    return {
        "m": p.managed(SIZE),
        "other": p.managed(SIZE),
        "a": p.device(),
        "h": p.host(),
        "page": p.pageable(),
        "s": p.stream(),
        "n": lambda *values: numbers(p, *values),
        "at": location,
    }


# Names of ranges, and their arguments. Each of the three batch functions is called with all ranges.
_RANGES = {
    "one": "n(m), n(65536), 1",
    "two": "n(m, other), n(65536, 4096), 2",
    "the same twice": "n(m, m), n(65536, 65536), 2",
    "overlapping": "n(m, m + 4096), n(8192, 8192), 2",
    "a part of a page": "n(m + 100), n(100), 1",
    "null addresses": "0, n(65536), 1",
    "null sizes": "n(m), 0, 1",
    "none": "n(m), n(65536), 0",
    "none, null": "0, 0, 0",
    "size 0": "n(m), n(0), 1",
    "address 0": "n(0), n(4096), 1",
    "1 past the end": "n(m), n(65537), 1",
    "a page past the end": "n(m), n(69632), 1",
    "at the end": "n(m + 65536), n(4096), 1",
    "device memory": "n(a), n(4096), 1",
    "page-locked memory": "n(h), n(4096), 1",
    "ordinary memory": "n(page), n(4096), 1",
    "device memory second": "n(m, a), n(65536, 4096), 2",
}
_PLACES = {
    "the host": "n(at(2, 0)), n(0), 1",
    "the host 5": "n(at(2, 5)), n(0), 1",
    "a node": "n(at(3, 0)), n(0), 1",
    "node 99": "n(at(3, 99)), n(0), 1",
    "the present node": "n(at(4, 0)), n(0), 1",
    "device 99": "n(at(1, 99)), n(0), 1",
    "device -1": "n(at(1, -1)), n(0), 1",
    "place 0": "n(at(0, 0)), n(0), 1",
    "place 9": "n(at(9, 0)), n(0), 1",
    "null places": "0, n(0), 1",
    "null indices": "n(at(1, 0)), 0, 1",
    "no places": "n(at(1, 0)), n(0), 0",
    "two places": "n(at(1, 0), at(2, 0)), n(0, 1), 2",
    "two places, the same": "n(at(1, 0), at(1, 0)), n(0, 1), 2",
    "three places": "n(*[at(1, 0)] * 3), n(0, 1, 2), 3",
    "first index 1": "n(at(1, 0)), n(1), 1",
    "falling indices": "n(at(1, 0), at(2, 0)), n(0, 0), 2",
    "an index past the end": "n(at(1, 0), at(2, 0)), n(0, 2), 2",
    "second place 99": "n(at(1, 0), at(1, 99)), n(0, 1), 2",
}
_TO_DEVICE = "n(at(1, 0)), n(0), 1"
_STREAMS = {"null stream": 0, "legacy stream": LEGACY, "per-thread stream": PER_THREAD}
for _name, _function in (("prefetch", PREFETCH), ("discard", DISCARD), ("both", BOTH)):
    _to = "" if _function == DISCARD else f"{_TO_DEVICE}, "
    _lines = [f"{_name} {key} | {_function} {value}, {_to}0, s" for key, value in _RANGES.items()]
    _one = f"{_function} {_RANGES['one']}, {_to}"
    _lines += [f"{_name}, {key} | {_one}0, {value}" for key, value in _STREAMS.items()]
    _lines += [f"{_name}, flags {flags} | {_one}{flags}, s" for flags in (1, 1 << 32)]
    if _to:
        _lines += [
            f"{_name} to {key} | {_function} {_RANGES['two']}, {value}, 0, s"
            for key, value in _PLACES.items()
        ]
    section.calls("\n".join(_lines), _prepare)

section.calls(
    """
    prefer the present node | cuMemAdvise_v2 m, 4096, 3, at(4, 0)
    prefer node 99 | cuMemAdvise_v2 m, 4096, 3, at(3, 99)
    prefer place 0 | cuMemAdvise_v2 m, 4096, 3, at(0, 0)
    prefer place 9 | cuMemAdvise_v2 m, 4096, 3, at(9, 0)
    prefer device 99 | cuMemAdvise_v2 m, 4096, 3, at(1, 99)
    prefer nothing any more, place 0 | cuMemAdvise_v2 m, 4096, 4, at(0, 0)
    prefer nothing any more, place 9 | cuMemAdvise_v2 m, 4096, 4, at(9, 0)
    prefer nothing any more, device 99 | cuMemAdvise_v2 m, 4096, 4, at(1, 99)
    read mostly, place 9 | cuMemAdvise_v2 m, 4096, 1, at(9, 0)
    read mostly, device 99 | cuMemAdvise_v2 m, 4096, 1, at(1, 99)
    read mostly, node 99 | cuMemAdvise_v2 m, 4096, 1, at(3, 99)
    accessed by a node | cuMemAdvise_v2 m, 4096, 5, at(3, 0)
    accessed by the present node | cuMemAdvise_v2 m, 4096, 5, at(4, 0)
    accessed by the host | cuMemAdvise_v2 m, 4096, 5, at(2, 0)
    accessed by device 99 | cuMemAdvise_v2 m, 4096, 5, at(1, 99)
    accessed by device 99 no more | cuMemAdvise_v2 m, 4096, 6, at(1, 99)
    accessed by a node no more | cuMemAdvise_v2 m, 4096, 6, at(3, 0)
    advice 0, place 9 | cuMemAdvise_v2 m, 4096, 0, at(9, 0)
    advice 7 | cuMemAdvise_v2 m, 4096, 7, at(1, 0)
    advice for nothing | cuMemAdvise_v2 m, 0, 1, at(1, 0)
    attributes, a size of 8 | cuMemRangeGetAttribute out, 8, 2, m, 4096
    accessed by, a size of 6 | cuMemRangeGetAttribute out, 6, 3, m, 4096
    accessed by, a size of 0 | cuMemRangeGetAttribute out, 0, 3, m, 4096
    prefetch, node -1 | cuMemPrefetchAsync_v2 m, 4096, at(3, -1), 0, s
    prefetch, node 1 | cuMemPrefetchAsync_v2 m, 4096, at(3, 1), 0, s
""",
    _prepare,
)

ATTRIBUTES = {1: "read mostly", 2: "preferred", 4: "prefetched"}
ATTRIBUTES |= {5: "preferred type", 6: "preferred number", 7: "prefetched type"}
ATTRIBUTES |= {8: "prefetched number"}


def _attributes(p, address, size=SIZE, only=tuple(ATTRIBUTES)):
    found = {}
    for number in only:
        cell = ctypes.c_int(77)
        status = p("cuMemRangeGetAttribute", ctypes.byref(cell), 4, number, address, size)
        found[ATTRIBUTES[number]] = cell.value if status == "SUCCESS" else status
    return found


def _batch(p, function, addresses, sizes, *places, stream, indices=(0,)):
    to = (numbers(p, *places), numbers(p, *indices), len(places)) if places else ()
    count = len(addresses)
    return p(function, numbers(p, *addresses), numbers(p, *sizes), count, *to, 0, stream)


def _after(name, doing):
    def ask(p):
        memory, stream = p.managed(SIZE), p.stream()
        status = doing(p, memory, stream)
        p("cuStreamSynchronize", stream)
        return f"{say(status)}; {say(_attributes(p, memory))}"

    section.ask(f"attributes after: {name}", ask)


def _twice(first, second):
    return lambda p, m, s: (first(p, m, s), second(p, m, s))


def _prefetch(place):
    return lambda p, m, s: p("cuMemPrefetchAsync_v2", m, SIZE, place, 0, s)


def _advise(advice, place, offset=0, size=SIZE):
    return lambda p, m, s: p("cuMemAdvise_v2", m + offset, size, advice, place)


def _in_batch(function, *places, indices=(0,)):
    halves = SIZE // 2
    return lambda p, m, s: _batch(
        p, function, [m, m + halves], [halves, halves], *places, stream=s, indices=indices
    )


for _name, _doing in {
    "prefetch to a node": _prefetch(NODE),
    "prefetch to the present node": _prefetch(CURRENT),
    "prefetch batch to the device": _in_batch(PREFETCH, DEVICE),
    "prefetch batch to the host": _in_batch(PREFETCH, HOST),
    "prefetch batch to both": _in_batch(PREFETCH, DEVICE, HOST, indices=(0, 1)),
    "discard batch": _in_batch(DISCARD),
    "discard and prefetch batch to the device": _in_batch(BOTH, DEVICE),
    "prefetch, then discard batch": _twice(_prefetch(DEVICE), _in_batch(DISCARD)),
    "preferred, then discard batch": _twice(_advise(3, DEVICE), _in_batch(DISCARD)),
    "read mostly, then discard batch": _twice(_advise(1, DEVICE), _in_batch(DISCARD)),
    "preferred device, then node": _twice(_advise(3, DEVICE), _advise(3, NODE)),
    "preferred device, then host": _twice(_advise(3, DEVICE), _advise(3, HOST)),
    "preferred device, then 99": _twice(_advise(3, DEVICE), _advise(3, location(1, 99))),
    "preferred node": _advise(3, NODE),
    "preferred present node": _advise(3, CURRENT),
    "read mostly of a part of a page": _advise(1, DEVICE, 100, 100),
    "a batch whose second range is not valid": lambda p, m, s: _batch(
        p, PREFETCH, [m, p.device()], [SIZE, 4096], DEVICE, stream=s
    ),
    "a batch whose second place is not valid": lambda p, m, s: _batch(
        p, PREFETCH, [m, m], [SIZE, SIZE], DEVICE, location(1, 99), stream=s, indices=(0, 1)
    ),
    "attached to the stream, then prefetched": _twice(
        lambda p, m, s: p("cuStreamAttachMemAsync", s, m, 0, 4), _prefetch(DEVICE)
    ),
}.items():
    _after(_name, _doing)


@question("read mostly of a part of a page: which bytes")
def _(p):
    memory = p.managed(SIZE)
    p("cuMemAdvise_v2", memory + 4096 + 100, 100, 1, DEVICE)
    places = ((4096, 4096), (4096, 1), (8191, 1), (4095, 1), (8192, 1), (0, 8192))
    return [_attributes(p, memory + at, size, (1,))["read mostly"] for at, size in places]


@question("attributes of a prefetch that is held")
def _(p):
    memory, stream = p.managed(SIZE), p.stream()
    p.gate(stream)
    p("cuMemPrefetchAsync_v2", memory, SIZE, DEVICE, 0, stream)
    return _attributes(p, memory)


@question("attributes of a batch that is held")
def _(p):
    memory, stream = p.managed(SIZE), p.stream()
    p.gate(stream)
    _batch(p, PREFETCH, [memory], [SIZE], DEVICE, stream=stream)
    return _attributes(p, memory)


for _name, _function, _places in (
    ("prefetch", PREFETCH, (DEVICE,)),
    ("prefetch to the host", PREFETCH, (HOST,)),
    ("discard", DISCARD, ()),
    ("both", BOTH, (DEVICE,)),
):

    def _held(p, function=_function, places=_places):
        memory, stream = p.managed(SIZE), p.stream()
        p.gate(stream)
        return p.function_blocks(
            lambda: _batch(p, function, [memory], [SIZE], *places, stream=stream)
        )

    section.ask(f"held: {_name}", _held)

    def _captured(p, function=_function, places=_places):
        memory, stream = p.managed(SIZE), p.stream()
        p.must("cuStreamBeginCapture_v2", stream, 2)
        status = _batch(p, function, [memory], [SIZE], *places, stream=stream)
        return status, p.get("cuStreamIsCapturing", stream, INT)

    section.ask(f"while capturing: {_name}", _captured)

    def _without(p, function=_function, places=_places):
        memory, stream = p.managed(SIZE), p.stream()
        p("cuCtxSetCurrent", 0)
        return _batch(p, function, [memory], [SIZE], *places, stream=stream)

    section.ask(f"with no context current: {_name}", _without)


@question("what is written after a discard stays")
def _(p):
    memory, stream = p.managed(SIZE), p.stream()
    status = _batch(p, DISCARD, [memory], [SIZE], stream=stream)
    p("cuMemsetD8Async", memory, 0x41, SIZE, stream)
    p("cuStreamSynchronize", stream)
    return status, p.bytes_at(memory, SIZE) == b"A" * SIZE


@question("what the host writes after a discard stays")
def _(p):
    memory, stream = p.managed(SIZE), p.stream()
    status = _batch(p, DISCARD, [memory], [SIZE], stream=stream)
    p("cuStreamSynchronize", stream)
    p.fill_host(memory, b"A" * SIZE)
    p("cuMemPrefetchAsync_v2", memory, SIZE, DEVICE, 0, stream)
    target = p.device(SIZE)
    p("cuMemcpyDtoD_v2", target, memory, SIZE)
    return status, p.read(target, SIZE) == b"A" * SIZE


@question("what lies beside a discard of a part of a page stays")
def _(p):
    memory, stream = p.managed(SIZE), p.stream()
    p.fill_host(memory, b"A" * SIZE)
    status = _batch(p, DISCARD, [memory + 8192 + 100], [100], stream=stream)
    p("cuStreamSynchronize", stream)
    content = p.bytes_at(memory, SIZE)
    kept = b"A" * 4096
    return status, [content[at : at + 4096] == kept for at in (4096, 12288)]


def _discarded(p, device, prefetch, size=SIZE, offset=0, length=None):
    """Whether bytes keep their values after a discard. The driver promises neither answer."""
    memory, stream = p.managed(size), p.stream()
    p.fill_host(memory, b"A" * size)
    if device:
        p("cuMemsetD8Async", memory, 0x41, size, stream)
    status = _batch(p, DISCARD, [memory + offset], [length or size], stream=stream)
    if prefetch:
        p("cuMemPrefetchAsync_v2", memory, size, DEVICE, 0, stream)
    p("cuStreamSynchronize", stream)
    content = p.bytes_at(memory + offset, length or size)
    kinds = {bytes([value]): name for value, name in ((0x41, "kept"), (0, "zero"))}
    return status, kinds.get(content[:1] * (set(content) == {content[0]}), "other")


section.ask("discarded on the host", lambda p: _discarded(p, False, False))
section.ask("discarded on the device", lambda p: _discarded(p, True, False))
section.ask("discarded on the device, 4 MiB", lambda p: _discarded(p, True, False, 4 << 20))
section.ask("discarded on the device, prefetched", lambda p: _discarded(p, True, True))
section.ask("discarded in a page", lambda p: _discarded(p, False, False, SIZE, 100, 100))


@question("attach: another stream may use it where access is concurrent")
def _(p):
    memory, stream, other = p.managed(SIZE), p.stream(), p.stream()
    steps = [p("cuStreamAttachMemAsync", stream, memory, 0, 4), p("cuStreamSynchronize", stream)]
    steps.append(p("cuMemsetD8Async", memory, 0x41, 8, other))
    steps.append(p("cuMemPrefetchAsync_v2", memory, SIZE, DEVICE, 0, other))
    steps.append(p("cuStreamSynchronize", other))
    return *steps, p.bytes_at(memory, 8)


for _name, _flags in (("global", 1), ("host", 2), ("single", 4)):

    def _attach_held(p, flags=_flags):
        memory, stream = p.managed(SIZE), p.stream()
        p.gate(stream)
        return p.blocks("cuStreamAttachMemAsync", stream, memory, 0, flags)

    section.ask(f"held: attach {_name}", _attach_held)


@question("attached to a stream that is destroyed")
def _(p):
    memory, stream = p.managed(SIZE), p.stream()
    steps = [p("cuStreamAttachMemAsync", stream, memory, 0, 4), p("cuStreamSynchronize", stream)]
    steps.append(p.release(stream))
    return *steps, p("cuMemsetD8_v2", memory, 1, 8)


@question("what the host writes beside a prefetch stays")
def _(p):
    memory, stream = p.managed(SIZE), p.stream()
    for round in range(20):
        p("cuMemPrefetchAsync_v2", memory, SIZE, (DEVICE, HOST)[round % 2], 0, stream)
        p.fill_host(memory + 8 * round, round.to_bytes(8, "little"))
    p("cuStreamSynchronize", stream)
    found = p.bytes_at(memory, 160)
    return found == b"".join(round.to_bytes(8, "little") for round in range(20))
