"""Which calls make work known to be complete, or ordered, for streams and for the host."""

from calls import after, host, read, record, synchronize, write
from private_engine import Domain, Engine, MemoryState, StreamState


def test_one_stream_is_in_order(streams, memory):
    for mode in ("write", "read", "write", "write", "read", "read"):
        assert streams[0].issue((memory, 0, 8, mode))[0] == "ok"


def test_two_streams_are_not_ordered(streams, memory):
    assert write(streams[0], memory) == "ok"
    assert write(streams[1], memory) == "borrowed"
    assert read(streams[1], memory) == "borrowed"
    assert host(memory, "read") == "borrowed"


def test_a_wait_orders(streams, memory):
    write(streams[0], memory)
    streams[1].wait(record(streams[0]))
    assert write(streams[1], memory) == "ok"
    assert write(streams[0], memory) == "borrowed", "a wait orders in one direction only"


def test_a_wait_is_transitive(streams, memory):
    write(streams[0], memory)
    streams[1].wait(record(streams[0]))
    streams[2].wait(record(streams[1]))
    assert write(streams[2], memory) == "ok"


def test_waiting_for_a_token_covers_its_operation_and_what_came_before(streams, memory):
    other = MemoryState(memory.engine, 8)
    write(streams[0], memory)
    _, token = streams[0].issue((other, 0, 8, "write"))
    streams[1].wait(token)
    assert write(streams[1], memory) == "ok"
    assert write(streams[1], other) == "ok"


def test_a_snapshot_does_not_cover_later_work(streams, memory):
    event = record(streams[0])
    write(streams[0], memory)
    streams[1].wait(event)
    assert write(streams[1], memory) == "borrowed"
    event.join_host()
    assert host(memory) == "borrowed"


def test_recording_again_does_not_change_earlier_waits(streams, memory):
    event = record(streams[0])
    streams[1].wait(event)
    write(streams[0], memory)
    event = record(streams[0])  # record the same event again
    assert write(streams[1], memory) == "borrowed"
    streams[1].wait(event)
    assert write(streams[1], memory) == "ok"


def test_what_a_stream_learns_later_does_not_reach_its_old_snapshots(streams, memory):
    first, second, third = streams
    first.issue()
    second.wait(record(first))  # now `second` shares its clock
    event = record(second)
    write(first, memory)
    second.wait(record(first))
    third.wait(event)
    assert write(third, memory) == "borrowed"
    assert write(second, memory) == "ok"


def test_synchronizing_tells_the_host_and_all_streams(streams, memory):
    write(streams[0], memory)
    synchronize(streams[0])
    assert host(memory) == "ok"
    assert write(streams[1], memory) == "ok"


def test_synchronizing_tells_the_host_what_the_stream_had_waited_for(streams, memory):
    write(streams[0], memory)
    streams[1].wait(record(streams[0]))
    synchronize(streams[1])
    assert host(memory) == "ok"
    assert streams[0].known


def test_a_snapshot_waited_for_late_says_only_what_it_said_then(streams, memory):
    early = record(streams[1])
    write(streams[0], memory)
    streams[1].wait(record(streams[0]))
    early.join_host()
    assert host(memory) == "borrowed"


def test_the_host_does_not_forget(streams, memory):
    """The host's knowledge never shrinks: joining an old snapshot later changes nothing."""
    old = record(streams[0])
    write(streams[0], memory)
    synchronize(streams[0])
    old.join_host()
    assert host(memory) == "ok"
    assert streams[0].known


def test_known_is_exactly_what_was_observed(streams, memory):
    _, first = streams[0].issue((memory, 0, 8, "write"))
    _, second = streams[0].issue((memory, 0, 8, "write"))
    first.join_host()
    assert (first.known, second.known, streams[0].known) == (True, False, False)
    second.join_host()
    assert streams[0].known


def test_a_stream_that_never_worked_is_known(streams):
    assert streams[0].known
    record(streams[0]).join_host()
    assert streams[0].known


def test_operations_without_memory_count_as_work(streams):
    _, token = streams[0].issue()
    assert not streams[0].known
    token.join_host()
    assert streams[0].known


def test_asking_changes_nothing(streams, memory):
    """A query of the engine establishes no order."""
    write(streams[0], memory)
    for _ in range(3):
        assert not streams[0].known
        assert len(memory.borrows()) == 1
        assert host(memory) == "borrowed"
        assert memory.close() == "borrowed"


def test_engines_are_independent():
    """Two engines have the same slots and numbers, and do not influence each other."""
    answers = []
    engines = [Engine(), Engine()]
    domains = [Domain(engine) for engine in engines]
    for engine, domain in zip(engines, domains, strict=True):
        memory, first, second = MemoryState(engine, 8), StreamState(domain), StreamState(domain)
        answers.append([write(first, memory), write(second, memory), first.slot, second.slot])
        synchronize(first)
        answers[-1] += [first.known, engine.slots]
    assert answers[0] == answers[1]
    assert answers[0][:2] == ["ok", "borrowed"]


def test_a_refused_call_changes_nothing(streams, memory):
    write(streams[0], memory, 0, 4)
    before, known = memory.borrows(), streams[1].known
    ranges = memory.ranges
    assert write(streams[1], memory, 2, 8) == "borrowed"
    assert write(streams[1], memory, 2, 8, policy="wait") == "must_wait"
    assert host(memory) == "borrowed"
    assert (memory.borrows(), memory.ranges, streams[1].known) == (before, ranges, known)
    assert write(streams[1], memory, 4, 8) == "ok"
    assert [use[1] for use in memory.borrows(4, 8)] == [1], "no sequence number was used up"


def test_a_refused_access_refuses_the_whole_operation(streams, memory):
    other = MemoryState(memory.engine, 8)
    write(streams[0], memory)
    answer, _ = streams[1].issue((other, 0, 8, "write"), (memory, 0, 8, "read"))
    assert answer == "borrowed"
    assert other.borrows() == []
    assert write(streams[2], other) == "ok"


# ---- all work of a context ----


def near_and_far():
    """A stream of one context that has written a memory, and two streams of another context."""
    engine = Engine()
    near, far = Domain(engine), Domain(engine)
    writer, memory = StreamState(near), MemoryState(engine, 8)
    write(writer, memory)
    return near, far, writer, memory


def test_synchronizing_a_context_covers_all_its_streams(domain, streams, memory):
    other = MemoryState(memory.engine, 8)
    write(streams[0], memory)
    write(streams[1], other)
    domain.snapshot().join_host()
    assert host(memory) == "ok"
    assert host(other) == "ok"


def test_synchronizing_a_context_says_nothing_of_another_one():
    near, far, writer, memory = near_and_far()
    far.snapshot().join_host()
    assert host(memory) == "borrowed"
    near.snapshot().join_host()
    assert host(memory) == "ok"
    del writer


def test_synchronizing_a_context_covers_what_its_streams_have_waited_for():
    """Synchronizing a context also covers work for which its streams only waited.

    A wait is work of its context, even if nothing is queued after it.
    """
    near, far, writer, memory = near_and_far()
    waiter = StreamState(far)
    after(waiter, writer)
    far.snapshot().join_host()
    assert host(memory) == "ok"
    del near


def test_synchronizing_a_context_covers_what_dead_streams_have_waited_for():
    """Synchronizing a context covers the waits of its dead streams, too.

    The answer must not depend on whether a stream object is still alive.
    """
    for works in (False, True):
        for drop in (False, True):
            near, far, writer, memory = near_and_far()
            waiter = StreamState(far)
            after(waiter, writer)
            if works:
                waiter.issue()
            waiter.close()
            if drop:
                del waiter
            far.snapshot().join_host()
            assert host(memory) == "ok", (works, drop)
            del near


def test_synchronizing_a_context_covers_all_that_dead_streams_have_waited_for():
    """Synchronizing a context covers all waits of dead streams, even if these shared a slot."""
    engine = Engine()
    near, far = Domain(engine), Domain(engine)
    memories = [MemoryState(engine, 8) for _ in range(20)]
    writers = [StreamState(near) for _ in memories]
    for writer, memory in zip(writers, memories, strict=True):
        write(writer, memory)
        after(StreamState(far), writer)
    before = far.snapshot()
    late = MemoryState(engine, 8)
    write(writers[0], late)
    after(StreamState(far), writers[0])
    before.join_host()
    assert [host(memory) for memory in memories] == ["ok"] * 20
    assert host(late) == "borrowed", "a snapshot covers no later wait"
    far.snapshot().join_host()
    assert host(late) == "ok"


def test_what_a_dead_stream_has_waited_for_says_nothing_of_later_work(memory):
    """Waits of a dead stream say nothing about later work of another stream in the same slot."""
    near, far, writer, written = near_and_far()
    after(StreamState(far), writer)
    write(writer, memory := MemoryState(writer.domain.engine, 8))
    far.snapshot().join_host()
    assert host(written) == "ok"
    assert host(memory) == "borrowed"
    del near


def test_many_dead_streams_that_have_waited_need_few_slots():
    near, far, writer, memory = near_and_far()
    for _ in range(10_000):
        after(StreamState(far), writer)
        write(writer, memory)
    assert writer.domain.engine.slots == 8
    del near
