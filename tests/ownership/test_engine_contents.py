"""Discarded contents, and memory that is attached to one stream or to the host."""

import gc
import threading

import pytest
from calls import During, after, host, reach, read, shared, synchronize, write
from limits import PATIENCE
from private_engine import Domain, Engine, MemoryState, StreamState


def discard(stream, memory, start=0, stop=8, **options):
    return stream.issue((memory, start, stop, "write"), effect="discards", **options)[0]


def discarded(memory):
    """The discarded bytes, each with the site of its discard."""
    found = {byte: memory.discarded(byte, byte + 1) for byte in range(8)}
    return {byte: discard[2] for byte, discard in found.items() if discard}


def nested(first, second):
    """Make the second of two calls during the driver call of the first."""
    first(lambda: second(lambda: None))


def one_after_the_other(first, second):
    """Let the first of two calls begin first and end first, and the second begin in between."""
    begun, go_on = threading.Event(), threading.Event()
    thread = threading.Thread(target=first, args=(lambda: (begun.set(), go_on.wait(PATIENCE)),))
    thread.start()
    assert begun.wait(PATIENCE)
    second(lambda: (go_on.set(), thread.join()))


# ---- discards ----


def test_what_was_discarded_is_not_read(streams, memory):
    assert discard(streams[0], memory, site=7) == "ok"
    assert streams[0].issue((memory, 0, 8, "read")) == ("discarded", 7)
    assert host(memory, "read") == "discarded"
    assert streams[0].lend(memory, 0, 8, "write") == ("discarded", 7)
    synchronize(streams[0])
    assert memory.lend(StreamState(streams[0].domain), 0, 8, "read") == ("discarded", 7)
    assert memory.export(0, 8, "write", effect="uses") == ("discarded", 7)
    assert memory.export(0, 8, "read") == ("discarded", 7)
    assert read(streams[0], memory, 3, 3) == "ok"


@pytest.mark.parametrize("use", [write, shared, reach])
def test_what_may_write_counts_as_a_write_of_all_bytes(streams, memory, use):
    discard(streams[0], memory, site=7)
    assert use(streams[0], memory, 2, 5) == "ok"
    assert discarded(memory) == dict.fromkeys((0, 1, 5, 6, 7), 7)
    assert read(streams[0], memory, 2, 5) == "ok"
    assert read(streams[0], memory, 4, 6) == "discarded"
    assert use(streams[0], memory) == read(streams[0], memory) == "ok"


def test_the_host_writes_what_it_views(streams, memory):
    discard(streams[0], memory)
    assert host(memory, "write", 2, 5) == "borrowed"
    assert len(discarded(memory)) == 8
    synchronize(streams[0])
    assert host(memory, "write", 2, 5) == host(memory, "read", 2, 5) == "ok"
    assert list(discarded(memory)) == [0, 1, 5, 6, 7]
    assert host(memory, "write") == host(memory, "read") == "ok"


def test_a_move_writes_nothing(streams, memory):
    discard(streams[0], memory)
    assert streams[1].issue((memory, 0, 8, "shared"), effect="moves")[0] == "ok"
    assert read(streams[0], memory) == "discarded"


def test_a_discard_is_ordered_as_a_write_and_not_after_shared_uses(streams, memory):
    read(streams[0], memory)
    assert discard(streams[1], memory) == "borrowed"
    after(streams[1], streams[0])
    shared(streams[2], memory)
    assert discard(streams[1], memory) == "ok"
    assert write(streams[0], memory) == "borrowed"
    after(streams[0], streams[1])
    assert write(streams[0], memory) == "ok"


def test_the_newest_discard_is_blamed(streams, memory):
    for site, bytes_ in enumerate([(0, 8), (2, 4), (3, 6)], start=1):
        discard(streams[0], memory, *bytes_, site=site)
    assert list(discarded(memory).values()) == [1, 1, 2, 3, 3, 3, 1, 1]
    assert streams[0].issue((memory, 2, 8, "read")) == ("discarded", 2)


def test_one_operation_discards_overlapping_bytes(streams, memory):
    accesses = [(memory, 0, 4, "write"), (memory, 2, 6, "write")]
    assert streams[0].issue(*accesses, effect="discards")[0] == "ok"
    assert list(discarded(memory)) == [0, 1, 2, 3, 4, 5]


def test_views_and_loans_are_in_the_way_of_a_discard(streams, memory):
    _, view = memory.export(0, 4, "read")
    assert discard(streams[0], memory) == "exported"
    assert discard(streams[0], memory, 4, 8) == "ok"
    view.close()
    write(streams[0], memory)
    _, loan = streams[0].lend(memory, 0, 8, "write")
    assert write(streams[0], memory) == "ok"
    assert discard(streams[0], memory) == "exported"
    loan.close()
    assert discard(streams[0], memory) == "ok"


def test_a_policy_does_not_help(streams, memory):
    discard(streams[0], memory)
    for policy in ("wait", "unchecked"):
        assert read(streams[1], memory, policy=policy) == "discarded"
        assert host(memory, "read", policy=policy) == "discarded"


def test_a_write_that_failed_wrote_nothing(streams, memory):
    discard(streams[0], memory, 1, 6, site=7)
    before = discarded(memory)
    for bytes_ in ((0, 8), (2, 4), (1, 6)):
        assert write(streams[0], memory, *bytes_, driver_fails=True) == "driver_failed"
        assert discarded(memory) == before
    assert write(streams[0], memory) == "ok"
    assert discarded(memory) == {}


def test_a_write_in_flight_may_still_fail(streams, memory):
    discard(streams[0], memory, site=7)
    after(streams[1], streams[0])
    elsewhere = During(lambda: write(streams[1], memory, 6, 8), fails=True)
    assert write(streams[0], memory, 0, 4, driver_fails=elsewhere) == "driver_failed"
    assert list(discarded(memory)) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("in_flight", [nested, one_after_the_other])
@pytest.mark.parametrize("fail", [(False, True), (True, False), (True, True)])
def test_writes_in_flight_of_which_some_fail(streams, memory, in_flight, fail):
    discard(streams[0], memory, site=7)
    after(streams[1], streams[0])

    def call(stream, fails):
        return lambda action: shared(stream, memory, driver_fails=During(action, fails))

    in_flight(*map(call, streams, fail))
    assert (discarded(memory) == {}) == (not all(fail))


def test_a_discard_that_failed_discards_nothing(streams, memory):
    discard(streams[0], memory, 2, 4, site=1)
    assert discard(streams[0], memory, driver_fails=True, site=2) == "driver_failed"
    assert discarded(memory) == {2: 1, 3: 1}
    write(streams[0], memory)
    assert discard(streams[0], memory, driver_fails=True) == "driver_failed"
    assert read(streams[0], memory) == "ok"


def test_contents_change_when_the_engine_accepts(streams, memory):
    """Discards and writes take effect before the driver call, and other threads see them then."""
    seen = []
    look = During(lambda: seen.append(len(discarded(memory))))
    discard(streams[0], memory, driver_fails=look)
    write(streams[0], memory, driver_fails=look)
    assert seen == [8, 0]


def test_books_of_discards_do_not_grow(streams, memory):
    """The records of discards stay bounded in a program that discards again and again."""
    import resource

    def rounds(count):
        for _ in range(count):
            for start in (0, 2, 4):
                discard(streams[0], memory, start, start + 3)
                write(streams[0], memory, 1, 4)
            discard(streams[0], memory)
            synchronize(streams[0])
        gc.collect()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    rounds(100)
    before = rounds(1000)
    # `ru_maxrss` is in KiB; one record of a discard has 64 bytes.
    assert rounds(20_000) - before < 1000


def test_discards_of_one_line_are_joined(streams, memory):
    for start in (0, 2, 4, 6):
        discard(streams[0], memory, start, start + 2, site=5)
    whole = (memory, 0, 8, "shared")
    streams[0].issue(whole, effect="moves")
    assert memory.discarded() == (0, 8, 5)
    discard(streams[0], memory, 2, 4, site=6)
    streams[0].issue(whole, effect="moves")
    assert list(discarded(memory).values()) == [5, 5, 6, 6, 5, 5, 5, 5]
    assert memory.discarded(4, 8) == (4, 8, 5)


def test_memory_dies_with_discards(streams, domain):
    memory = MemoryState(domain.engine, 8)
    discard(streams[0], memory, 0, 3)
    discard(streams[0], memory, 4, 8)
    write(streams[0], memory, 0, 3)


# ---- attachments ----


@pytest.fixture
def excluding():
    """Make a domain in which unfinished work excludes the host from managed memory."""
    return Domain(Engine(), host_excluded=True)


@pytest.fixture
def pair(excluding):
    return [StreamState(excluding) for _ in range(2)]


@pytest.fixture
def managed(excluding):
    return MemoryState(excluding.engine, 8, managed=True)


def attach(stream, memory, to, **options):
    access = (memory, 0, 8, "write")
    return stream.issue(access, effect="attaches", attach_to=to, **options)[0]


def test_only_the_attached_stream_may_use_it(pair, managed):
    first, second = pair
    assert attach(first, managed, first, site=5) == "ok"
    assert write(first, managed) == "ok"
    synchronize(first)
    assert second.issue((managed, 0, 8, "read")) == ("attached", 5)
    assert second.lend(managed, 0, 4, "read") == ("attached", 5)
    assert write(second, managed, policy="unchecked") == "attached"
    assert managed.lend(StreamState(first.domain), 0, 8, "read") == ("attached", 5)
    assert read(second, managed, 2, 2) == "ok"


def test_only_its_work_excludes_the_host(pair, managed):
    first, second = pair
    attach(first, managed, first)
    synchronize(first)
    other = MemoryState(first.domain.engine, 8, managed=True)
    write(second, other)
    assert host(other) == "borrowed"
    assert host(managed) == "ok"
    write(first, MemoryState(first.domain.engine, 8))
    assert host(managed) == "borrowed"


def test_a_view_excludes_only_that_stream(pair, managed):
    first, second = pair
    attach(first, managed, first)
    synchronize(first)
    elsewhere = MemoryState(first.domain.engine, 8)
    _, view = managed.export(0, 8, "read")
    assert write(second, elsewhere) == "ok"
    synchronize(second)
    assert write(first, elsewhere) == "exported"
    view.close()
    assert write(first, elsewhere) == "ok"


def test_a_loan_to_another_stream_does_not_exclude_the_host(pair, managed):
    first, second = pair
    attach(first, managed, first)
    synchronize(first)
    _, loan = second.lend(MemoryState(first.domain.engine, 8), 0, 8, "write")
    synchronize(second)
    assert host(managed) == "ok"
    loan.close()
    _, loan = first.lend(MemoryState(first.domain.engine, 8), 0, 8, "write")
    synchronize(first)
    assert host(managed) == "exported"


def test_memory_for_the_host_alone(pair, managed):
    first, second = pair
    attach(first, managed, "host")
    synchronize(first)
    write(second, MemoryState(first.domain.engine, 8))
    assert host(managed) == "ok"
    _, view = managed.export(0, 8, "write")
    assert write(first, MemoryState(first.domain.engine, 8)) == "ok"
    view.close()
    assert read(first, managed) == read(second, managed) == "attached"
    assert attach(second, managed, None) == "ok"
    assert write(second, managed) == "ok"


def test_an_attachment_is_ordered_as_a_write(pair, managed):
    first, second = pair
    read(second, managed)
    assert attach(first, managed, first) == "borrowed"
    after(first, second)
    assert attach(first, managed, first) == "ok"
    assert host(managed) == "borrowed"
    synchronize(first, second)
    _, _view = managed.export(0, 1, "read")
    assert attach(first, managed, None) == "exported"


def test_an_attachment_ends_with_its_stream_and_the_work_of_that(pair, managed):
    first, second = pair
    attach(first, managed, first)
    synchronize(first)
    token = first.issue((MemoryState(first.domain.engine, 8), 0, 8, "write"))[1]
    first.close()
    assert write(second, managed) == "attached"
    token.join_host()
    assert write(second, managed) == "ok"
    synchronize(second)
    write(second, MemoryState(first.domain.engine, 8))
    assert host(managed) == "borrowed"


def test_another_stream_in_the_slot_is_another_stream(pair, managed):
    first = pair.pop(0)
    attach(first, managed, first)
    synchronize(first)
    first.close()
    slot = first.slot
    new = StreamState(first.domain)
    assert new.slot == slot
    assert write(pair[0], managed) == "ok"


def test_an_attachment_that_failed_attaches_nothing(pair, managed):
    first, second = pair
    assert attach(first, managed, first, driver_fails=True) == "driver_failed"
    assert write(second, managed) == "ok"
    after(first, second)
    attach(first, managed, first, site=5)
    assert attach(first, managed, "host", driver_fails=True) == "driver_failed"
    after(second, first)
    assert second.issue((managed, 0, 8, "read")) == ("attached", 5)
    assert write(first, managed) == "ok"


@pytest.mark.parametrize("in_flight", [nested, one_after_the_other])
@pytest.mark.parametrize("fail", [(False, True), (True, False), (True, True)])
def test_attachments_in_flight_of_which_some_fail(pair, managed, in_flight, fail):
    def call(stream, fails):
        return lambda action: attach(
            stream, managed, stream, policy="unchecked", driver_fails=During(action, fails)
        )

    in_flight(*map(call, pair, fail))
    only = next((stream for stream, fails in zip(pair, fail, strict=True) if not fails), None)
    for stream in pair:
        answer = "ok" if only in (None, stream) else "attached"
        assert read(stream, managed, policy="unchecked") == answer


def test_an_attachment_writes_nothing(pair, managed):
    discard(pair[0], managed)
    assert attach(pair[0], managed, pair[0]) == "ok"
    assert read(pair[0], managed) == "discarded"


def test_where_access_is_concurrent_everybody_may_use_it(streams):
    memory = MemoryState(streams[0].domain.engine, 8, managed=True)
    attach(streams[0], memory, streams[0])
    after(streams[1], streams[0])
    assert write(streams[1], memory) == "ok"
    after(streams[0], streams[1])
    attach(streams[0], memory, "host")
    assert write(streams[0], memory) == "ok"
