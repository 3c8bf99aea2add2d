"""Borrows of byte ranges: disjoint ranges do not conflict, and ranges are joined again."""

import pytest
from calls import after, host, read, synchronize, write
from oracle import BoxStop
from private_engine import MemoryState


def test_halves_on_two_streams(streams, memory):
    assert write(streams[0], memory, 0, 4) == "ok"
    assert write(streams[1], memory, 4, 8) == "ok"
    assert write(streams[2], memory, 3, 4) == "borrowed"
    assert write(streams[2], memory, 4, 5) == "borrowed"


@pytest.mark.parametrize(
    ("start", "stop", "answer"),
    [
        (0, 2, "ok"),  # ends at the start of the write
        (6, 8, "ok"),  # begins at the end of the write
        (0, 3, "borrowed"),
        (5, 8, "borrowed"),
        (2, 6, "borrowed"),  # the same bytes
        (3, 5, "borrowed"),  # inside the written bytes
        (0, 8, "borrowed"),  # around the written bytes
        (2, 3, "borrowed"),
        (5, 6, "borrowed"),
        (4, 4, "ok"),  # an empty range
    ],
)
@pytest.mark.parametrize("by", ["gpu", "host", "gpu under a view"])
def test_what_overlaps(streams, memory, start, stop, answer, by):
    if by == "gpu under a view":
        _, view = memory.export(2, 6, "write")
        expected = "exported" if answer == "borrowed" else answer
        assert write(streams[1], memory, start, stop) == expected
        view.close()
        return
    write(streams[0], memory, 2, 6)
    if by == "host":
        assert host(memory, "write", start, stop) == answer
    else:
        assert write(streams[1], memory, start, stop) == answer


def test_no_bytes_borrow_nothing(streams, memory):
    write(streams[0], memory)
    assert write(streams[1], memory, 4, 4) == "ok"
    assert write(streams[1], memory, 8, 8) == "ok"
    assert (memory.ranges, len(memory.borrows())) == (1, 1)
    assert not streams[1].known, "it is an operation all the same"


def test_memory_of_no_bytes(streams, memory):
    empty = MemoryState(memory.engine, 0)
    assert write(streams[0], empty, 0, 0) == "ok"
    assert write(streams[1], empty, 0, 0) == "ok"
    assert host(empty, "write", 0, 0) == "ok"
    assert empty.borrows() == []
    assert empty.close() == "ok"


def test_ranges_are_cut_where_uses_begin_and_end(streams, memory):
    write(streams[0], memory, 2, 6)
    assert memory.ranges == 3
    assert memory.borrows() == [(streams[0].slot, 1, "write", 2, 6)]
    assert memory.borrows(3, 4) == [(streams[0].slot, 1, "write", 3, 4)]
    assert memory.borrows(0, 2) == []


def test_a_whole_write_makes_one_range_again(streams, memory):
    for start in range(8):
        write(streams[0], memory, start, start + 1)
    assert memory.ranges == 8
    write(streams[0], memory)
    assert memory.ranges == 1
    assert len(memory.borrows()) == 1


def test_a_whole_write_makes_one_range_of_what_several_streams_had(streams, memory):
    for at, stream in enumerate(streams):
        write(stream, memory, 2 * at, 2 * at + 2)
        read(stream, memory, 2 * at, 2 * at + 1)
    after(streams[0], *streams[1:])
    assert write(streams[0], memory) == "ok"
    assert memory.ranges == 1


def test_equal_neighbours_in_an_access_are_joined(streams, memory):
    streams[0].issue((memory, 0, 4, "write"), (memory, 4, 8, "write"))
    assert memory.ranges == 2
    write(streams[0], memory)
    assert memory.ranges == 1
    assert memory.borrows() == [(streams[0].slot, 2, "write", 0, 8)]


def test_parts_that_are_used_again_and_again(streams, memory):
    """Parts that are used again take the fast path, which records each part at its own range."""
    user, other = streams[:2]
    for number in range(1, 6, 2):
        assert write(user, memory, 2, 4) == write(user, memory, 6, 8) == "ok"
        slot, uses = user.slot, memory.borrows()
        assert uses == [(slot, number, "write", 2, 4), (slot, number + 1, "write", 6, 8)]
        assert memory.ranges == 4
    assert write(other, memory, 0, 2) == write(other, memory, 4, 6) == "ok"
    assert write(other, memory, 2, 4) == read(other, memory, 6, 8) == "borrowed"
    assert read(user, memory, 2, 4) == "ok"
    assert write(other, memory, 3, 5) == "borrowed"
    assert write(user, memory, 2, 3) == "ok"  # a part of a range
    assert memory.ranges == 5


def test_a_read_and_a_write_of_one_operation_stay_apart(streams, memory):
    streams[0].issue((memory, 0, 4, "read"), (memory, 4, 8, "write"))
    assert memory.ranges == 2
    assert read(streams[1], memory, 0, 4) == "ok"
    assert read(streams[1], memory, 4, 8) == "borrowed"


def test_a_cut_keeps_all_uses_on_both_sides(streams, memory):
    """Both sides of a cut range keep all uses, even more uses than a range has inline space for."""
    for stream in streams:
        read(stream, memory)
    read(streams[0], memory, 3, 5)
    assert memory.ranges == 3
    for start in (0, 3, 5):
        assert len(memory.borrows(start, start + 1)) == 3
    after(streams[0], streams[1])
    assert write(streams[0], memory, 5, 8) == "borrowed"
    assert write(streams[0], memory, 0, 1) == "borrowed"
    after(streams[0], streams[2])
    assert write(streams[0], memory) == "ok"
    assert memory.ranges == 1


@pytest.mark.parametrize("modes", [("write", "write"), ("read", "write"), ("read", "reach")])
def test_the_next_operation_is_usual_after_one_that_names_memory_twice(streams, memory, modes):
    assert memory.is_usual(streams[0])
    assert streams[0].issue(*((memory, 0, 8, mode) for mode in modes))[0] == "ok"
    assert memory.is_usual(streams[0])
    assert not memory.is_usual(streams[1])


@pytest.mark.parametrize("wait", [after, lambda first, *others: synchronize(first, *others)])
def test_the_next_operation_is_usual_after_many_uses_have_ended(streams, memory, wait):
    for stream in streams:
        read(stream, memory)
    wait(streams[0], *streams[1:])
    assert not memory.is_usual(streams[0]), "the range has no space for three uses"
    assert write(streams[0], memory) == "ok"
    assert memory.is_usual(streams[0])


def test_known_uses_go_when_the_bytes_are_used_again(streams, memory):
    for stream in streams:
        read(stream, memory)
    synchronize(*streams)
    assert memory.borrows() == []
    read(streams[0], memory)
    assert memory.borrows() == [(streams[0].slot, 2, "read", 0, 8)]


def test_many_ranges(streams, domain):
    """A memory can have more ranges than the first allocation has space for."""
    large = MemoryState(domain.engine, 10_000)
    for start in range(0, 10_000, 2):
        assert write(streams[start // 2 % 2], large, start, start + 1) == "ok"
    assert large.ranges == 10_000
    assert write(streams[2], large, 1, 2) == "ok"
    assert write(streams[2], large, 4_000, 4_001) == "borrowed"
    after(streams[2], streams[0])
    assert write(streams[2], large, 0, 10_000) == "borrowed"
    after(streams[2], streams[1])
    assert write(streams[2], large, 0, 10_000) == "ok"
    assert large.ranges == 1


def test_a_million_operations_ordered_by_events_alone_need_no_more_state(streams, memory):
    """The records of a program that only uses events stay bounded: the host never synchronizes."""
    producer, consumer, _ = streams
    item = (memory, 0, 8, "write"), (memory, 0, 8, "read")
    for _ in range(500_000):
        producer.issue(item[0])
        consumer.wait(producer.snapshot(True))
        answer, token = consumer.issue(item[1])
        producer.wait(token)
    assert answer == "ok"
    assert memory.ranges == 1
    assert len(memory.borrows()) == 2
    assert memory.engine.slots == 8


def test_sub_ranges_for_ever_need_no_more_state(streams, memory):
    for turn in range(20_000):
        stream, other = streams[turn % 2], streams[1 - turn % 2]
        after(stream, other)
        start = turn * 7 % 8
        assert stream.issue((memory, start, min(8, start + turn % 5), "write"))[0] == "ok"
        assert stream.issue((memory, start // 2, 8, "read"))[0] == "ok"
    assert memory.ranges <= 8
    assert all(len(memory.borrows(byte, byte + 1)) <= 4 for byte in range(8))


def test_parts_that_are_not_used_again_are_joined(streams, domain):
    """Ranges are joined if the host knows their uses to be complete."""
    large = MemoryState(domain.engine, 1_000_000)
    most = 0
    for start in range(0, 1_000_000, 10):
        assert write(streams[0], large, start, start + 10) == "ok"
        if start % 1_000 == 0:
            synchronize(streams[0])
        most = max(most, large.ranges)
    assert most <= 2 * 100 + 64 + 2
    assert large.borrows(999_010, 999_020) == [(streams[0].slot, 99_902, "write", 999_010, 999_020)]


def test_joining_forgets_no_use(streams, domain):
    """Ranges with unfinished uses are not joined: each keeps its own uses."""
    large = MemoryState(domain.engine, 1_000)
    tokens = []
    for start in range(0, 1_000, 2):
        tokens.append(streams[0].issue((large, start, start + 2, "write"))[1])
        read(streams[0], large, start, start + 1)
    assert large.ranges == 1_000
    tokens[250].join_host()
    for start in range(0, 1_000, 2):
        expected = "ok" if start <= 500 else "borrowed"
        assert host(large, "read", start, start + 2) == expected
    assert write(streams[1], large, 0, 500) == "ok"


def test_more_boxes_than_the_table_has(domain, streams):
    """Of 64 boxes that may be in use, each has an entry. Further ones are recorded row by row."""
    one, other = streams[:2]
    memory = MemoryState(domain.engine, 16 * 80)
    boxes = [(16 * i, BoxStop(16 * i, 4, 8, 2)) for i in range(70)]
    for start, stop in boxes:
        assert one.issue((memory, start, stop, "write"))[0] == "ok"
    for start, stop in boxes:
        assert other.issue((memory, start, stop, "write"))[0] == "borrowed"
        assert other.issue((memory, start + 8, start + 9, "write"))[0] == "borrowed"
        assert other.issue((memory, start + 4, start + 8, "write"))[0] == "ok"
