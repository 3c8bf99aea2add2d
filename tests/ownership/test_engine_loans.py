"""Loans; and bytes that leave memory which several buffers share."""

import pytest
from calls import after, host, read, record, shared, synchronize, write
from private_engine import StreamState


@pytest.fixture
def nobody(domain):
    """A stream state that stands for work on no stream."""
    return StreamState(domain)


def lend(memory, nobody, start=0, stop=8, mode="write"):
    answer, view = memory.lend(nobody, start, stop, mode)
    return view if answer == "ok" else answer


def test_work_on_no_stream_comes_after_what_the_host_knows(streams, memory, nobody):
    write(streams[0], memory, 0, 4)
    assert lend(memory, nobody) == "borrowed"
    assert lend(memory, nobody, mode="read") == "borrowed"
    lend(memory, nobody, 4, 8).close()
    synchronize(streams[0])
    lend(memory, nobody).close()


def test_what_is_lent_goes_to_no_other_process(streams, memory):
    """Lent memory cannot be lent to another process, not even on the borrower's own stream.

    The borrower may queue more work on that stream.
    """
    _, loan = streams[0].lend(memory, 0, 4, "write")
    assert streams[0].issue((memory, 3, 5, "write"), effect="shares")[0] == "exported"
    assert streams[0].issue((memory, 4, 8, "write"), effect="shares")[0] == "ok"
    loan.close()
    assert streams[0].issue((memory, 0, 4, "write"), effect="shares")[0] == "ok"


def test_every_view_is_in_the_way_of_work_on_no_stream(streams, memory, nobody):
    _, view = memory.export(0, 8, "read")
    assert lend(memory, nobody) == "exported"
    lend(memory, nobody, mode="read").close()
    view.close()
    _, loan = streams[0].lend(memory, 0, 8, "write")
    assert lend(memory, nobody) == "exported"
    loan.close()
    synchronize(streams[0])
    first = lend(memory, nobody, 0, 4)
    assert lend(memory, nobody, 3, 5) == "exported"
    lend(memory, nobody, 4, 8).close()
    first.close()


def test_work_on_no_stream_is_in_the_way_of_all(streams, memory, nobody):
    loan = lend(memory, nobody, mode="read")
    assert (write(streams[0], memory), host(memory)) == ("exported", "exported")
    assert (read(streams[0], memory), host(memory, "read")) == ("ok", "ok")
    loan.close()
    assert write(streams[0], memory) == "ok"


def test_closed_memory_is_not_lent(streams, memory, nobody):
    memory.close()
    assert lend(memory, nobody) == lend(memory, nobody, 0, 0) == "memory_closed"


def test_the_end_of_a_loan_is_a_use_whatever_is_in_the_way(streams, memory):
    assert read(streams[1], memory) == "ok"
    _, loan = streams[0].lend(memory, 0, 8, "write", policy="unchecked")
    assert write(streams[0], memory) == "borrowed"
    assert write(streams[0], memory, returns=True) == "ok"
    loan.close()
    assert read(streams[2], memory) == "borrowed"
    after(streams[2], streams[0])
    assert read(streams[2], memory) == "ok"


def test_bytes_leave_behind_every_use(streams, memory):
    leave = {"effect": "leaves"}
    shared(streams[0], memory, 0, 4)
    assert write(streams[1], memory, 0, 4) == "ok"
    assert write(streams[1], memory, 0, 4, **leave) == "borrowed"
    assert write(streams[1], memory, 4, 8, **leave) == "ok"
    memory.other_buffer()
    after(streams[1], streams[0])
    _, loan = streams[1].lend(memory, 0, 4, "read")
    assert write(streams[0], memory, 0, 4, **leave) == "exported"
    assert write(streams[1], memory, 0, 4, **leave) == "ok"  # streams[1] is the borrower
    memory.other_buffer()
    assert write(streams[1], memory) == "ok"  # the rest of the memory is still usable
    assert write(streams[1], memory, effect="closes") == "exported"
    loan.close()
    assert write(streams[1], memory, effect="closes") == "ok"


def test_what_keeps_some_bytes(streams, memory, nobody):
    write(streams[0], memory, 0, 3)
    assert memory.free(0, 4) == "borrowed"
    assert memory.free(3, 8) == "ok"
    loan = lend(memory, nobody, 6, 8)
    assert memory.free(3, 8) == "exported"
    assert memory.free(3, 6) == "ok"
    loan.close()
    synchronize(streams[0])
    assert memory.free(0, 8) == "ok"
    assert record(streams[1]).known
