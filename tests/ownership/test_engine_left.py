"""Memory that several buffers share, one of which is closed."""

from calls import host, read, synchronize, write


def test_a_closed_buffer_is_refused_even_on_the_fast_path(streams, memory):
    write(streams[0], memory, 0, 8)
    synchronize(streams[0])
    assert memory.leave(0, 8) == "ok"
    assert write(streams[0], memory, 0, 8) == "memory_closed"
    assert read(streams[0], memory, 0, 8) == "memory_closed"
    assert host(memory, "read", 0, 8) == "memory_closed"


def test_it_closes_once(streams, memory):
    assert memory.leave(0, 8) == "ok"
    assert memory.leave(0, 8) == "memory_closed"


def test_it_stays_open_while_its_bytes_are_in_use(streams, memory):
    write(streams[0], memory, 0, 4)
    assert memory.leave(2, 6) == "borrowed"
    assert memory.leave(4, 8) == "ok"


def test_other_buffers_stay_open(streams, memory):
    assert memory.leave(0, 8) == "ok"
    memory.other_buffer()
    assert write(streams[0], memory, 0, 8) == "ok"
    memory.other_buffer(alive=False)
    assert write(streams[0], memory, 0, 8) == "ok"
