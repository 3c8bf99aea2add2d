"""An operation that the driver refuses leaves the engine's state unchanged."""

import pytest
from calls import During, after, host, read, record, synchronize, write
from private_engine import MemoryState, StreamState


def fail(stream, *accesses, during=None, **options):
    fails = During(during, fails=True) if during else True
    answer, _ = stream.issue(*accesses, driver_fails=fails, **options)
    assert answer == "driver_failed"


@pytest.mark.parametrize("mode", ["read", "write", "shared"])
def test_a_failure_on_free_memory_leaves_it_free(streams, memory, mode):
    fail(streams[0], (memory, 0, 8, mode))
    assert memory.borrows() == []
    assert streams[0].known
    assert memory.close() == "ok"


def test_a_failure_brings_back_the_uses_that_it_replaced(streams, memory):
    write(streams[0], memory)
    read(streams[0], memory)
    before = memory.borrows()
    fail(streams[0], (memory, 0, 8, "write"))
    assert memory.borrows() == before
    assert read(streams[1], memory) == "borrowed"


def test_the_number_of_a_failed_operation_is_used_again(streams, memory):
    fail(streams[0], (memory, 0, 8, "write"))
    write(streams[0], memory)
    assert [use[1] for use in memory.borrows()] == [1]


def test_a_failure_of_a_part_leaves_no_cuts(streams, memory):
    write(streams[0], memory)
    fail(streams[0], (memory, 2, 6, "read"))
    assert memory.ranges == 1
    assert memory.borrows() == [(streams[0].slot, 1, "write", 0, 8)]


def test_a_failed_use_of_a_part_that_was_used_before(streams, memory):
    write(streams[0], memory, 2, 4)
    write(streams[0], memory, 6, 8)
    before = memory.borrows()
    fail(streams[0], (memory, 6, 8, "write"))
    assert memory.borrows() == before


def test_a_failure_of_several_accesses(streams, memory):
    other = MemoryState(memory.engine, 8)
    write(streams[0], other)
    before = other.borrows()
    fail(streams[0], (memory, 0, 4, "read"), (other, 0, 8, "write"), (memory, 6, 8, "write"))
    assert (memory.borrows(), memory.ranges, other.borrows()) == ([], 1, before)
    synchronize(streams[0])
    assert streams[0].known
    assert host(other) == "ok"


def test_a_failure_without_memory(streams):
    fail(streams[0])
    assert streams[0].known


def test_what_cannot_be_undone_stays_borrowed(streams, memory):
    """A failed operation on memory with several ranges stays a borrow.

    The borrow ends when the work of the operation's stream is known to be complete.
    """
    write(streams[0], memory, 0, 4)
    fail(streams[0], (memory, 0, 8, "write"))
    assert write(streams[1], memory) == "borrowed"
    synchronize(streams[0])
    assert write(streams[1], memory) == "ok"


def test_a_failure_forgets_nobody(streams, memory):
    """After a failed operation other uses stay recorded, whether or not it can be undone."""
    first, second, third = streams
    for start, stop in ((0, 4), (4, 8), (0, 8)):
        read(first, memory, start, stop)
        after(second, first)
        read(second, memory, start, stop)
        fail(second, (memory, 0, 8, "write"))
        after(third, second)
    assert write(third, memory) == "ok"
    synchronize(second)
    assert first.known


def test_a_failed_legacy_operation_orders_nothing(domain, memory):
    legacy, first, second = (StreamState(domain, k) for k in ("legacy", "blocking", "blocking"))
    write(first, memory)
    fail(legacy, (MemoryState(memory.engine, 8), 0, 8, "write"))
    assert write(second, memory) == "borrowed"
    synchronize(legacy)
    assert host(memory) == "borrowed"
    assert write(legacy, memory) == "ok", "its next operation comes after the blocking streams"


def test_a_failed_blocking_operation_has_not_waited(domain, memory):
    legacy, blocking = StreamState(domain, "legacy"), StreamState(domain, "blocking")
    write(legacy, memory)
    fail(blocking, (MemoryState(memory.engine, 8), 0, 8, "write"))
    synchronize(blocking)
    assert host(memory) == "borrowed"
    assert write(blocking, memory) == "ok", "its next operation comes after the legacy stream"


def test_a_failure_that_stays_borrowed_does_not_stand_for_what_it_never_followed(domain, memory):
    """The failed blocking operation never waited for the legacy stream in the driver.

    So completion of the blocking stream's work must not release the legacy stream's uses.
    """
    legacy, blocking = StreamState(domain, "legacy"), StreamState(domain, "blocking")
    write(legacy, memory, 0, 4)
    write(legacy, memory, 4, 8)
    fail(blocking, (memory, 0, 8, "write"))
    synchronize(blocking)
    assert host(memory) == "borrowed"
    synchronize(legacy)
    assert host(memory) == "ok"


# ---- other threads run during the driver call ----


def test_an_operation_on_its_way_is_in_no_snapshot(streams, memory):
    """A snapshot that is taken during the driver call of an operation does not cover it."""
    event = []
    driver = During(lambda: event.append(streams[0].snapshot()))
    assert write(streams[0], memory, driver_fails=driver) == "ok"
    event[0].join_host()
    assert host(memory) == "borrowed"
    streams[1].wait(event[0])
    assert write(streams[1], memory) == "borrowed"
    synchronize(streams[0])
    assert host(memory) == "ok"


def test_an_operation_on_its_way_is_a_borrow(streams, memory):
    answers = []
    driver = During(lambda: answers.extend([write(streams[1], memory), host(memory)]))
    write(streams[0], memory, driver_fails=driver)
    assert answers == ["borrowed", "borrowed"]


def test_a_snapshot_on_the_way_does_not_say_what_a_failed_operation_would_have(domain, memory):
    """One thread takes a snapshot of a stream while another thread's operation on it fails."""
    legacy, blocking = StreamState(domain, "legacy"), StreamState(domain, "blocking")
    write(legacy, memory)
    event = []
    fail(blocking, during=lambda: event.append(blocking.snapshot()))
    event[0].join_host()
    assert host(memory) == "borrowed"


@pytest.mark.parametrize("use", [read, write])
def test_a_failure_does_not_take_back_what_others_borrowed_meanwhile(streams, memory, use):
    fail(
        streams[0],
        (memory, 0, 8, "read"),
        during=lambda: use(streams[1], memory, policy="unchecked"),
    )
    assert streams[1].slot in {slot for slot, *_ in memory.borrows()}
    synchronize(streams[0])
    assert host(memory) == "borrowed"
    synchronize(streams[1])
    assert host(memory) == "ok"


def test_a_failure_does_not_take_back_a_part_that_others_borrowed_meanwhile(streams, memory):
    write(streams[0], memory)
    fail(
        streams[0],
        (memory, 0, 8, "read"),
        during=lambda: read(streams[1], memory, 2, 6, policy="unchecked"),
    )
    after(streams[2], streams[0])
    assert write(streams[2], memory, 2, 6) == "borrowed"
    after(streams[2], streams[1])
    assert write(streams[2], memory) == "ok"


def test_two_failures_at_once(streams, memory):
    fail(
        streams[0],
        (memory, 0, 8, "read"),
        during=lambda: fail(streams[1], (memory, 0, 8, "read")),
    )
    assert memory.borrows() == []
    assert record(streams[0]).known


def test_a_loan_that_the_driver_refuses_is_none(streams, memory):
    assert streams[0].lend(memory, 0, 8, "write", driver_fails=True)[0] == "driver_failed"
    assert host(memory) == "ok"
    assert write(streams[1], memory) == "ok"
    assert memory.close() == "borrowed"
