"""Memory that shrinks: its last bytes are cut off, and may come back later."""

import pytest
from calls import host, read, synchronize, write


def test_the_last_bytes_go(streams, memory):
    assert memory.cut(4, site=7) == "ok"
    assert write(streams[0], memory, 0, 4) == "ok"
    assert host(memory, "read", 0, 4) == "borrowed"
    for start in (0, 3, 4, 6):
        assert write(streams[0], memory, start, 8) == "cut"
        assert read(streams[1], memory, start, 8) == "cut"
        assert host(memory, "read", start, 8) == "cut"


def test_no_bytes_can_be_used_anywhere(streams, memory):
    memory.cut(4)
    assert write(streams[0], memory, 8, 8) == "ok"


def test_they_come_back(streams, memory):
    memory.cut(2)
    memory.extend(6)
    assert write(streams[0], memory, 0, 6) == "ok"
    assert write(streams[0], memory, 0, 7) == "cut"
    memory.extend(8)
    assert write(streams[0], memory, 0, 8) == "ok"


def test_extending_needs_no_cut(streams, memory):
    memory.extend(2)
    assert write(streams[0], memory, 0, 8) == "ok"


@pytest.mark.parametrize(("start", "stop", "answer"), [(0, 4, "ok"), (3, 5, "borrowed")])
def test_only_uses_of_these_bytes_are_in_the_way(streams, memory, start, stop, answer):
    write(streams[0], memory, start, stop)
    assert memory.cut(4) == answer
    assert write(streams[0], memory, 0, 8) == ("cut" if answer == "ok" else "ok")
    synchronize(streams[0])
    assert memory.cut(4) == "ok"


def test_views_are_in_the_way(memory):
    _, view = memory.export(5, 6, "read")
    assert memory.cut(4) == "exported"
    assert memory.cut(6) == "ok"
    view.close()
    assert memory.cut(4) == "ok"


def test_closed_memory(memory):
    assert memory.close() == "ok"
    assert memory.cut(4) == "memory_closed"


def test_a_policy_does_not_help(streams, memory):
    memory.cut(4)
    for policy in ("strict", "wait", "unchecked"):
        assert write(streams[0], memory, 0, 8, policy=policy) == "cut"


def test_with_discarded_bytes(streams, memory):
    """Memory can have a cut and discarded bytes at the same time: one record has both limits."""
    assert write(streams[0], memory, 0, 8, effect="discards") == "ok"
    synchronize(streams[0])
    assert memory.cut(4) == "ok"
    assert read(streams[0], memory, 0, 4) == "discarded"
    assert read(streams[0], memory, 0, 8) == "cut"
    assert write(streams[0], memory, 0, 4) == "ok"
    assert read(streams[0], memory, 0, 4) == "ok"
    assert read(streams[0], memory, 0, 8) == "cut"
