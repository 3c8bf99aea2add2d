"""Access modes: reads share, writes exclude, `shared` is not checked. The policies."""

import pytest
from calls import after, host, reach, read, record, shared, synchronize, write
from private_engine import MemoryState, StreamState


def test_reads_share(streams, memory):
    assert [read(stream, memory) for stream in streams] == ["ok"] * 3
    assert host(memory, "read") == "ok"


def test_a_write_waits_for_every_reader(streams, memory):
    """A write must wait for both readers: the second record must not replace the first one."""
    first, second, writer = streams
    read(first, memory)
    read(second, memory)
    after(writer, second)
    assert write(writer, memory) == "borrowed"
    after(writer, first)
    assert write(writer, memory) == "ok"


def test_the_host_waits_for_every_reader(streams, memory):
    for stream in streams:
        read(stream, memory)
    synchronize(streams[2], streams[0])
    assert host(memory) == "borrowed"
    assert host(memory, "read") == "ok"
    synchronize(streams[1])
    assert host(memory) == "ok"


def test_memory_is_not_freed_under_a_shared_use(streams, memory):
    """Memory stays allocated until its `shared` uses are complete, although nothing orders them."""
    user, owner, _ = streams
    shared(user, memory)
    assert write(owner, memory) == "ok"
    whole = (memory, 0, 8, "write")
    assert owner.issue(whole, effect="closes")[0] == "borrowed"
    after(owner, user)
    assert owner.issue(whole, effect="closes")[0] == "ok"
    assert write(owner, memory) == "memory_closed"


def test_memory_is_closed_by_whoever_frees_it(streams, memory):
    owner = streams[0]
    assert write(owner, memory) == "ok"
    assert owner.issue((memory, 0, 8, "write"), effect="closes")[0] == "ok"
    assert write(owner, memory) == "memory_closed"


def test_a_read_does_not_hide_the_write_before_it(streams, memory):
    writer, reader, other = streams
    write(writer, memory)
    after(reader, writer)
    assert read(reader, memory) == "ok"
    assert read(other, memory) == "borrowed"
    after(other, writer)
    assert read(other, memory) == "ok", "two reads need no order"
    assert write(writer, memory) == "borrowed"


def test_a_reader_that_waited_for_another_stands_for_it(streams, memory):
    first, second, writer = streams
    read(first, memory)
    after(second, first)
    read(second, memory)
    after(writer, second)
    assert write(writer, memory) == "ok"


def test_a_write_stands_for_all_that_it_waited_for(streams, memory):
    first, second, writer = streams
    read(first, memory)
    read(second, memory)
    after(writer, first, second)
    write(writer, memory)
    assert len(memory.borrows()) == 1
    synchronize(writer)
    assert host(memory) == "ok"


# ---- shared ----


def test_shared_conflicts_with_nothing_but_close(streams, memory):
    write(streams[0], memory)
    assert shared(streams[1], memory) == "ok"
    assert shared(streams[2], memory) == "ok"
    synchronize(streams[0])
    assert host(memory) == "ok"
    assert write(streams[0], memory) == "ok"
    assert memory.close() == "borrowed"
    synchronize(*streams)
    assert memory.close() == "ok"


def test_shared_may_be_used_under_a_host_view(streams, memory):
    """`shared` works under a host view: the host can set a flag while the kernel polls it."""
    _, view = memory.export(0, 8, "write")
    assert shared(streams[0], memory) == "ok"
    view.close()


def test_shared_does_not_hide_other_uses(streams, memory):
    """After a `shared` use, an earlier write of the same stream still excludes other streams."""
    write(streams[0], memory)
    shared(streams[0], memory)
    assert read(streams[1], memory) == "borrowed"


def test_other_uses_do_not_hide_shared_ones_that_they_do_not_follow(streams, memory):
    shared(streams[0], memory)
    write(streams[1], memory)
    synchronize(streams[1])
    assert memory.close() == "borrowed"


# ---- policies ----


@pytest.mark.parametrize(
    ("policy", "answer"), [("strict", "borrowed"), ("wait", "must_wait"), ("unchecked", "ok")]
)
@pytest.mark.parametrize("mode", ["read", "write"])
def test_policies_differ_where_order_is_missing(streams, memory, policy, answer, mode):
    write(streams[0], memory)
    assert streams[1].issue((memory, 0, 8, mode), policy=policy)[0] == answer


@pytest.mark.parametrize(
    ("policy", "answer"), [("strict", "borrowed"), ("wait", "must_wait"), ("unchecked", "ok")]
)
def test_policies_of_the_host(streams, memory, policy, answer):
    write(streams[0], memory)
    assert host(memory, policy=policy) == answer


@pytest.mark.parametrize("policy", ["strict", "wait", "unchecked"])
def test_policies_agree_where_nothing_is_missing(streams, memory, policy):
    write(streams[0], memory)
    after(streams[1], streams[0])
    assert write(streams[1], memory, policy=policy) == "ok"


def test_a_wait_is_all_that_must_wait_asks_for(streams, memory):
    for stream in streams[:2]:
        read(stream, memory, site=stream.slot)
    waits = 0
    while streams[2].issue((memory, 0, 8, "write"), policy="wait")[0] == "must_wait":
        _, site = streams[2].issue((memory, 0, 8, "write"), policy="wait")
        after(streams[2], *(stream for stream in streams if stream.slot == site))
        waits += 1
    assert waits == 2


def test_what_cannot_be_waited_for_is_refused_first(streams, memory):
    """If one access of an operation can never be ordered, no waits are inserted for the others."""
    other = MemoryState(memory.engine, 8)
    write(streams[0], memory)
    _, view = other.export(0, 8, "write", site=7)
    for accesses in [(memory, other), (other, memory)]:
        answer = streams[1].issue(*((m, 0, 8, "write") for m in accesses), policy="wait")
        assert answer == ("exported", 7)
    view.close()
    other.close()
    for accesses in [(memory, other), (other, memory)]:
        answer = streams[1].issue(*((m, 0, 8, "write") for m in accesses), policy="wait")
        assert answer == ("memory_closed", None)


def test_unchecked_keeps_what_it_did_not_wait_for(streams, memory):
    first, second, third = streams
    write(first, memory)
    assert write(second, memory, policy="unchecked") == "ok"
    after(third, second)
    assert write(third, memory) == "borrowed", "the first write is still there"
    synchronize(second)
    assert host(memory) == "borrowed"
    assert memory.close() == "borrowed"
    synchronize(first)
    assert memory.close() == "ok"


def test_unchecked_is_recorded(streams, memory):
    write(streams[0], memory, policy="unchecked")
    assert write(streams[1], memory) == "borrowed"


def test_many_unchecked_writers_are_all_kept(domain, memory):
    many = [StreamState(domain) for _ in range(20)]
    for stream in many:
        assert write(stream, memory, policy="unchecked") == "ok"
    assert len(memory.borrows()) == 20
    for stream in many:
        assert host(memory) == "borrowed"
        synchronize(stream)
    assert host(memory) == "ok"


def test_unchecked_uses_of_one_stream_do_not_pile_up(streams, memory):
    write(streams[0], memory)
    for _ in range(100):
        write(streams[1], memory, policy="unchecked")
    assert len(memory.borrows()) == 2


@pytest.mark.parametrize("policy", ["strict", "wait", "unchecked"])
def test_no_policy_gets_past_a_host_view_or_a_closed_memory(streams, memory, policy):
    _, view = memory.export(0, 8, "read", site=5)
    assert streams[0].issue((memory, 0, 8, "write"), policy=policy) == ("exported", 5)
    view.close()
    memory.close()
    assert streams[0].issue((memory, 0, 8, "read"), policy=policy)[0] == "memory_closed"
    assert memory.export(0, 8, "read", policy=policy)[0] == "memory_closed"


# ---- several accesses ----


def test_one_operation_does_not_conflict_with_itself(streams, memory):
    uses = [(memory, 0, 8, "write")] * 2
    assert streams[0].issue(*uses)[0] == "ok"


@pytest.mark.parametrize("mode", ["read", "write", "shared"])
@pytest.mark.parametrize("count", [2, 3, 8])
def test_the_same_bytes_several_times_are_one_use(streams, memory, mode, count):
    """An operation may name the same bytes several times, as a launch with equal arguments does."""
    neighbour = MemoryState(memory.engine, 8)
    assert streams[0].issue(*[(memory, 0, 8, mode)] * count)[0] == "ok"
    assert [use[2:] for use in memory.borrows()] == [(mode, 0, 8)]
    assert neighbour.borrows() == []
    synchronize(streams[0])
    assert host(memory) == "ok"


def test_overlapping_reads_of_one_operation(streams, memory):
    assert streams[0].issue((memory, 0, 6, "read"), (memory, 2, 8, "read"))[0] == "ok"
    assert write(streams[1], memory, 0, 1) == "borrowed"
    assert write(streams[1], memory, 7, 8) == "borrowed"
    after(streams[1], streams[0])
    assert write(streams[1], memory) == "ok"


def test_blame_names_the_operation_in_the_way(streams, memory):
    write(streams[0], memory, 0, 4, site=11)
    write(streams[1], memory, 4, 8, site=22)
    after(streams[2], streams[0])
    assert streams[2].issue((memory, 0, 8, "read")) == ("borrowed", 22)
    assert memory.export(0, 4, "read") == ("borrowed", 11)
    assert record(streams[0]).known is False


@pytest.mark.parametrize("others", [0, 1, 2])
def test_an_operation_can_use_one_memory_in_all_ways(domain, streams, memory, others):
    """One operation can use a memory in all modes.

    A range has space for two uses, and allocates space for more.
    """
    stream = streams[0]
    more = [(MemoryState(domain.engine, 8), 0, 8, "read") for _ in range(others)]
    write(stream, memory)
    ways = [(memory, 0, 8, mode) for mode in ("read", "shared")]
    assert stream.issue(*more, *ways)[0] == "ok"
    assert len(memory.borrows()) == 3
    assert read(streams[1], memory) == "borrowed"
    assert stream.issue(*more, *ways, (memory, 0, 8, "write"))[0] == "ok"
    assert {borrow[3:] for borrow in memory.borrows()} == {(0, 8)}
    synchronize(stream)
    assert host(memory) == "ok"


# ---- reach ----


def test_reach_shares_with_reach_alone(streams, memory):
    """Two `reach` accesses share. Reads and writes exclude a `reach`, because the kernel may use
    what it reaches.
    """
    assert [reach(stream, memory) for stream in streams] == ["ok"] * 3
    assert read(streams[0], memory) == "borrowed"
    assert write(streams[0], memory) == "borrowed"
    assert host(memory, "read") == "borrowed"
    assert shared(streams[0], memory) == "ok"
    after(streams[0], streams[1])
    after(streams[0], streams[2])
    assert read(streams[0], memory) == "ok"
    assert reach(streams[1], memory) == "borrowed"


@pytest.mark.parametrize("use", [read, write])
def test_reach_follows_every_use(streams, memory, use):
    assert use(streams[0], memory) == "ok"
    assert reach(streams[1], memory) == "borrowed"
    after(streams[1], streams[0])
    assert reach(streams[1], memory) == "ok"


def test_reach_is_in_the_way_of_every_view(streams, memory):
    view = memory.export(0, 8, "read")[1]
    assert reach(streams[0], memory) == "exported"
    view.close()
    assert reach(streams[0], memory) == "ok"


def test_reach_does_not_hide_other_uses(streams, memory):
    write(streams[0], memory)
    shared(streams[0], memory)
    reach(streams[0], memory)
    after(streams[1], streams[0])
    assert write(streams[1], memory) == "ok"
