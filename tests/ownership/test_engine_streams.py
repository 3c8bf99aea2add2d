"""The rules of the default streams; streams that are closed with unfinished work; slots."""

import gc

import pytest
from calls import after, host, read, record, synchronize, write
from private_engine import Domain, Engine, MemoryState, StreamState


@pytest.fixture
def legacy(domain):
    return StreamState(domain, "legacy")


@pytest.fixture
def blocking(domain):
    return [StreamState(domain, "blocking") for _ in range(2)]


# ---- the legacy default stream and the blocking streams ----


def test_legacy_work_comes_after_all_blocking_streams(legacy, blocking, domain):
    memories = [MemoryState(domain.engine, 8) for _ in blocking]
    for stream, memory in zip(blocking, memories, strict=True):
        write(stream, memory)
    assert legacy.issue(*((memory, 0, 8, "write") for memory in memories))[0] == "ok"


def test_blocking_streams_come_after_legacy_work(legacy, blocking, memory):
    write(legacy, memory)
    assert read(blocking[0], memory) == "ok"
    assert read(blocking[1], memory) == "ok"
    assert write(legacy, memory) == "ok"


def test_what_may_have_queued_nothing_tells_nothing_of_the_default_streams(
    legacy, blocking, memory
):
    """An operation that perhaps queues nothing, such as an allocation, orders no default streams.

    The driver may complete it at once, so that its stream waits for nothing.
    """
    write(legacy, memory)
    allocated = MemoryState(memory.engine, 8)
    assert blocking[0].issue((allocated, 0, 8, "write"), passive=True)[0] == "ok"
    assert blocking[0].issue((memory, 0, 8, "write"), passive=True)[0] == "borrowed"
    synchronize(blocking[0])
    assert host(memory) == "borrowed"
    assert write(blocking[0], memory) == "ok", "an operation is ordered as ever"


def test_what_may_have_queued_nothing_is_no_work_that_others_come_after(legacy, blocking, memory):
    """Legacy and blocking streams are not ordered after an operation that perhaps queues nothing.

    This holds for both kinds of streams, with and without other work before the operation.
    """
    for first, second in ((legacy, blocking[0]), (blocking[0], legacy), (legacy, blocking[1])):
        other = MemoryState(memory.engine, 8)
        write(first, other)
        assert first.issue((memory, 0, 8, "write"), passive=True)[0] == "ok"
        assert first.issue((memory, 0, 8, "write"), passive=True)[0] == "ok"
        assert write(second, memory) == "borrowed"
        assert write(second, other) == "ok", "what came before it is ordered as ever"
        assert write(second, memory) == "borrowed"
        first.issue()
        assert write(second, memory) == "ok", "and so is it, once there is work after it"
        legacy.issue()


def test_a_record_after_what_may_have_queued_nothing_is_work(legacy, blocking, memory):
    for use in (lambda: record(legacy), lambda: legacy.wait(record(blocking[1]))):
        assert legacy.issue((memory, 0, 8, "write"), passive=True)[0] == "ok"
        assert write(blocking[0], memory) == "borrowed"
        use()
        assert write(blocking[0], memory) == "ok"
        synchronize(blocking[0])


def test_blocking_streams_are_ordered_by_legacy_work_between(legacy, blocking, memory):
    write(blocking[0], memory)
    assert write(blocking[1], memory) == "borrowed"
    legacy.issue()
    assert write(blocking[1], memory) == "ok"


def test_they_are_ordered_by_legacy_work_of_any_kind(legacy, blocking, domain):
    """A record or a wait on the legacy stream orders blocking streams, as other work does."""
    event = record(StreamState(domain))
    for use in (lambda: record(legacy), lambda: legacy.wait(event)):
        memory = MemoryState(domain.engine, 8)
        write(blocking[0], memory)
        use()
        assert write(blocking[1], memory) == "ok"


def test_what_they_are_ordered_after_is_superseded(legacy, blocking, memory):
    write(legacy, memory)
    write(blocking[0], memory)
    assert [slot for slot, *_ in memory.borrows()] == [blocking[0].slot]
    read(blocking[1], memory, 0, 4)
    write(legacy, memory)
    assert [slot for slot, *_ in memory.borrows()] == [legacy.slot]
    assert memory.ranges == 1


def test_a_recorded_legacy_event_covers_the_blocking_streams(legacy, blocking, memory):
    write(blocking[0], memory)
    record(legacy).join_host()
    assert host(memory) == "ok"


def test_a_token_covers_what_its_operation_came_after(legacy, blocking, memory):
    write(blocking[0], memory)
    _, token = legacy.issue()
    token.join_host()
    assert host(memory) == "ok"


def test_blocking_streams_come_after_what_legacy_waited_for(legacy, blocking, streams, memory):
    write(streams[0], memory)
    after(legacy, streams[0])
    assert write(blocking[0], memory) == "ok"


def test_blocking_streams_are_not_ordered_without_legacy_work(legacy, blocking, memory):
    write(blocking[0], memory)
    assert write(blocking[1], memory) == "borrowed"
    assert legacy.known


def test_earlier_legacy_work_orders_nothing_later(legacy, blocking, memory):
    legacy.issue()
    write(blocking[0], memory)
    assert write(blocking[1], memory) == "borrowed"


def test_legacy_work_orders_again_each_time(legacy, blocking, memory):
    for turn in range(6):
        assert write(blocking[turn % 2], memory) == "ok"
        assert write(blocking[1 - turn % 2], memory) == "borrowed"
        legacy.issue()


def test_non_blocking_streams_are_not_ordered_with_legacy(legacy, streams, memory):
    write(streams[0], memory)
    assert write(legacy, memory) == "borrowed"
    other = MemoryState(memory.engine, 8)
    write(legacy, other)
    assert write(streams[0], other) == "borrowed"


def test_the_rules_hold_within_one_context(legacy, domain, memory):
    elsewhere = StreamState(Domain(domain.engine), "blocking")
    write(elsewhere, memory)
    assert write(legacy, memory) == "borrowed"
    other = MemoryState(memory.engine, 8)
    write(legacy, other)
    assert write(elsewhere, other) == "borrowed"


def test_a_refused_legacy_operation_orders_nothing(legacy, blocking, streams, memory):
    other = MemoryState(memory.engine, 8)
    write(streams[0], other)
    write(blocking[0], memory)
    assert write(legacy, other) == "borrowed"
    assert write(blocking[1], memory) == "borrowed"


def test_a_refused_blocking_operation_has_not_waited(legacy, blocking, streams, memory):
    """A refused operation does not order its blocking stream after the legacy work.

    The driver was not called.
    """
    other = MemoryState(memory.engine, 8)
    write(streams[0], other)
    write(legacy, memory)
    assert write(blocking[0], other) == "borrowed"
    synchronize(blocking[0])
    assert host(memory) == "borrowed"
    assert write(blocking[0], memory) == "ok", "but its next operation is"


def test_a_closed_blocking_stream_is_not_among_those_that_exist(legacy, blocking, memory):
    """Later legacy work is not ordered after a closed blocking stream.

    Its handle is destroyed, and no documentation says that the driver waits for its work.
    """
    write(blocking[0], memory)
    blocking[0].close()
    assert write(legacy, memory) == "borrowed"


# ---- closed streams ----


def test_a_closed_stream_takes_no_work(streams, memory):
    streams[0].close()
    assert streams[0].issue((memory, 0, 8, "write")) == ("stream_closed", None)
    assert streams[0].issue(policy="unchecked") == ("stream_closed", None)
    streams[0].close()  # closing a stream again does nothing


def test_closing_orders_nothing(streams, memory):
    write(streams[0], memory)
    streams[0].close()
    assert write(streams[1], memory) == "borrowed"
    assert host(memory) == "borrowed"
    assert memory.close() == "borrowed"


def test_the_work_of_a_closed_stream_stays_until_it_is_known(domain, streams, memory):
    write(streams[0], memory)
    event = record(streams[0])
    slot = streams[0].slot
    streams[0].close()
    del streams[0]
    opened = StreamState(domain)
    assert opened.slot != slot
    assert write(opened, memory) == "borrowed"
    opened.wait(event)
    assert write(opened, memory) == "ok"
    assert StreamState(domain).slot != slot, "only the host's knowledge ends it"
    event.join_host()
    assert StreamState(domain).slot == slot


def test_dropping_a_stream_closes_it(domain, memory):
    stream = StreamState(domain)
    write(stream, memory)
    event = record(stream)
    del stream
    assert host(memory) == "borrowed"
    event.join_host()
    assert host(memory) == "ok"


def test_a_slot_is_used_again_without_mistaking_old_work_for_new(domain, memory):
    first = StreamState(domain)
    for _ in range(5):
        write(first, memory)
    old = record(first)
    synchronize(first)
    slot = first.slot
    first.close()
    second = StreamState(domain)
    other = StreamState(domain)
    assert second.slot == slot
    assert second.known
    write(second, memory)
    assert not second.known
    other.wait(old)
    assert write(other, memory) == "borrowed"
    old.join_host()
    assert host(memory) == "borrowed"


def test_a_new_stream_knows_nothing_of_its_slots_waits(domain, streams, memory):
    """A new stream in a slot has none of the waits of the slot's former stream."""
    first = StreamState(domain)
    write(streams[0], memory)
    after(first, streams[0])
    slot = first.slot
    first.close()
    second = StreamState(domain)
    assert second.slot == slot
    assert write(second, memory) == "borrowed"


def test_ten_thousand_streams_need_no_more_slots(domain, memory):
    for _ in range(10_000):
        stream = StreamState(domain)
        assert write(stream, memory) == "ok"
        synchronize(stream)
        stream.close()
    assert domain.engine.slots == 8
    assert memory.ranges == 1
    assert len(memory.borrows()) == 0


def test_ten_thousand_streams_whose_work_is_known_late_need_few_slots(domain, memory):
    """Slots are used again when the work of closed streams is known to be complete.

    Each stream is closed with unfinished work, which becomes known to be complete with the work of
    a later stream.
    """
    token = None
    for _ in range(10_000):
        stream = StreamState(domain)
        if token:
            stream.wait(token)
        _, token = stream.issue((memory, 0, 8, "write"))
        if stream.slot >= 6:
            token.join_host()
    assert domain.engine.slots == 8


def test_more_streams_than_slots(domain, memory):
    many = [StreamState(domain) for _ in range(100)]
    assert len({stream.slot for stream in many}) == 100
    for stream in many:
        assert read(stream, memory) == "ok"
    after(many[0], *many[1:])
    assert write(many[0], memory) == "ok"
    synchronize(many[0])
    assert all(stream.known for stream in many)


def test_the_garbage_collector_may_end_them_in_any_order():
    """Engine, domains, streams and memory can be destroyed in any order.

    The garbage collector chooses the order if the traceback of a failing test refers to them.
    """
    for _ in range(20):
        stream = StreamState(Domain(Engine()))
        stream.issue()
        cycle = [stream, stream.domain]
        cycle.append(cycle)
        del stream, cycle
        gc.collect()
