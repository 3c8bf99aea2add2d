"""Host views, shared and exclusive, conflict only with GPU work; closing memory; managed memory."""

import pytest
from calls import During, after, host, read, shared, synchronize, write
from private_engine import Domain, MemoryState, StreamState


@pytest.mark.parametrize(
    ("view", "mode", "answer"),
    [
        ("read", "read", "ok"),
        ("read", "write", "exported"),
        ("write", "read", "exported"),
        ("write", "write", "exported"),
        ("read", "shared", "ok"),
        ("write", "shared", "ok"),
    ],
)
def test_what_a_view_refuses(streams, memory, view, mode, answer):
    _, export = memory.export(2, 6, view)
    assert streams[0].issue((memory, 0, 8, mode))[0] == answer
    assert streams[0].issue((memory, 0, 2, mode))[0] == "ok"
    assert streams[0].issue((memory, 6, 8, mode))[0] == "ok"
    export.close()
    assert streams[0].issue((memory, 0, 8, mode))[0] == "ok"


def test_the_host_is_one_user(memory):
    views = [memory.export(0, 8, mode) for mode in ("write", "read", "write", "read")]
    assert [answer for answer, _ in views] == ["ok"] * 4


def test_a_view_ends_with_its_object(streams, memory):
    answer, view = memory.export(0, 8, "write")
    assert write(streams[0], memory) == "exported"
    del view
    assert answer == "ok"
    assert write(streams[0], memory) == "ok"


def test_views_end_in_any_order(streams, memory):
    views = [memory.export(at, at + 4, "read", site=at)[1] for at in (0, 2, 4)]
    views[1].close()
    views[1].close()  # closing a view again does nothing
    assert streams[0].issue((memory, 0, 4, "write")) == ("exported", 0)
    views[0].close()
    assert write(streams[0], memory, 0, 4) == "ok"
    assert streams[0].issue((memory, 0, 8, "write")) == ("exported", 4)
    views[2].close()
    assert write(streams[0], memory) == "ok"


def test_a_refused_view_is_no_view(streams, memory):
    write(streams[0], memory)
    assert memory.export(0, 8, "write")[0] == "borrowed"
    assert memory.export(0, 8, "write", policy="wait")[0] == "must_wait"
    assert write(streams[0], memory) == "ok"


def test_a_view_of_no_bytes_is_in_no_way_but_closing(streams, memory):
    _, view = memory.export(4, 4, "write")
    assert write(streams[0], memory) == "ok"
    synchronize(streams[0])
    assert memory.close() == "exported"
    view.close()
    assert memory.close() == "ok"


def test_a_host_access_orders_nothing_on_the_gpu(streams, memory):
    write(streams[0], memory)
    other = MemoryState(memory.engine, 8)
    assert host(other) == "ok"
    assert write(streams[1], memory) == "borrowed"


def test_host_reads_need_finished_writes_and_host_writes_finished_reads(streams, memory):
    read(streams[0], memory)
    assert (host(memory, "read"), host(memory, "write")) == ("ok", "borrowed")
    write(streams[0], memory)
    assert (host(memory, "read"), host(memory, "write")) == ("borrowed", "borrowed")


def test_a_wait_between_streams_tells_the_host_nothing(streams, memory):
    write(streams[0], memory)
    after(streams[1], streams[0])
    read(streams[1], memory)
    assert host(memory, "read") == "borrowed"


# ---- closing ----


def test_close_waits_for_every_use_whatever_its_mode(streams, memory):
    for stream, use in zip(streams, (read, shared, read), strict=True):
        use(stream, memory)
    for stream in streams:
        assert memory.close() == "borrowed"
        synchronize(stream)
    assert memory.close() == "ok"
    assert memory.close() == "memory_closed"


def test_close_waits_for_views(memory):
    _, view = memory.export(0, 8, "read")
    assert memory.close() == "exported"
    view.close()
    assert memory.close() == "ok"


def test_a_refused_close_closes_nothing(streams, memory):
    write(streams[0], memory)
    assert memory.close() == "borrowed"
    assert write(streams[0], memory) == "ok"


def test_closed_memory_refuses_everything(streams, memory):
    memory.close()
    for mode in ("read", "write", "shared"):
        assert streams[0].issue((memory, 0, 8, mode))[0] == "memory_closed"
    assert write(streams[0], memory, 4, 4) == "memory_closed"
    assert host(memory) == "memory_closed"
    assert host(memory, "read", 4, 4) == "memory_closed"


def test_close_looks_at_all_ranges(streams, memory):
    write(streams[0], memory, 7, 8)
    assert memory.close() == "borrowed"


# ---- managed memory on devices where work excludes the host ----


@pytest.fixture
def excluded(domain):
    """A second domain, as on a device without concurrent managed access."""
    return Domain(domain.engine, host_excluded=True)


@pytest.fixture
def managed(domain):
    return MemoryState(domain.engine, 8, managed=True)


def test_any_work_in_flight_excludes_the_host(excluded, managed, memory):
    stream = StreamState(excluded)
    stream.issue(site=3)
    assert managed.export(0, 8, "read") == ("borrowed", 3)
    assert host(managed, "read", policy="wait") == "must_wait"
    assert host(memory) == "ok", "which is not managed"
    synchronize(stream)
    assert host(managed) == "ok"


def test_work_of_a_closed_stream_is_in_flight_too(excluded, managed):
    stream = StreamState(excluded)
    _, token = stream.issue()
    stream.close()
    assert host(managed) == "borrowed"
    del stream
    assert host(managed) == "borrowed"
    token.join_host()
    assert host(managed) == "ok"


def test_a_host_view_of_managed_memory_excludes_all_work(excluded, managed, memory):
    stream = StreamState(excluded)
    _, view = managed.export(0, 1, "read", site=4)
    assert stream.issue((memory, 0, 8, "read")) == ("exported", 4)
    assert stream.issue() == ("exported", 4)
    assert stream.issue((memory, 0, 8, "read"), policy="unchecked") == ("exported", 4)
    view.close()
    assert read(stream, memory) == "ok"


def test_a_view_of_managed_memory_without_bytes_excludes_nothing(excluded, managed):
    stream = StreamState(excluded)
    _, none = managed.export(4, 4, "write")
    _, view = managed.export(0, 4, "read", site=4)
    assert stream.issue() == ("exported", 4)
    none.close()
    _, none = managed.export(4, 4, "write")
    view.close()
    assert stream.issue()[0] == "ok"
    none.close()


def test_what_is_nearest_is_blamed(excluded, managed, memory):
    stream = StreamState(excluded)
    _, own = memory.export(0, 8, "write", site=5)
    _, other = managed.export(0, 1, "read", site=4)
    assert stream.issue((memory, 0, 8, "read")) == ("exported", 5)
    own.close()
    assert stream.issue((memory, 0, 8, "read")) == ("exported", 4)
    memory.close()
    assert stream.issue((memory, 0, 8, "read"))[0] == "memory_closed"
    other.close()


def test_views_of_other_memory_exclude_nothing(excluded, memory):
    _, view = memory.export(0, 8, "write")
    assert StreamState(excluded).issue()[0] == "ok"
    view.close()


def test_several_views_of_managed_memory(excluded, domain):
    stream = StreamState(excluded)
    memories = [MemoryState(domain.engine, 8, managed=True) for _ in range(3)]
    views = [memory.export(0, 8, "read")[1] for memory in memories]
    for at in (1, 0, 2):
        assert stream.issue()[0] == "exported"
        views[at].close()
    assert stream.issue()[0] == "ok"


def test_work_elsewhere_excludes_nobody(excluded, domain, managed):
    stream = StreamState(domain)
    stream.issue()
    _, view = managed.export(0, 8, "write")
    assert stream.issue()[0] == "ok"
    view.close()


# ---- a context that is lost ----


def test_what_a_lost_context_did_is_over(excluded, domain, managed, memory):
    lost, other = StreamState(excluded), StreamState(domain)
    lost.issue((memory, 0, 4, "write"))
    other.issue((memory, 4, 8, "write"))
    excluded.lose()
    assert lost.known
    assert write(other, memory, 0, 4) == "ok", "other contexts can use the memory"
    assert host(managed) == "ok", "and the host managed memory"
    assert host(memory) == "borrowed", "by the other context, which goes on"
    synchronize(other)
    assert memory.close() == "ok"


def test_what_a_lost_context_waited_for_goes_on(domain, memory):
    lost, other = StreamState(domain), StreamState(Domain(domain.engine))
    write(other, memory, 0, 4)
    after(lost, other)
    write(lost, memory, 4, 8)
    domain.lose()
    assert host(memory, start=4) == "ok"
    assert host(memory, start=0) == "borrowed"


def test_work_on_its_way_into_a_lost_context_is_over_when_it_is_there(domain, memory):
    lost, other = StreamState(domain), Domain(domain.engine)
    other = StreamState(other)
    domain.lose()
    assert write(lost, memory) == "ok", "another thread had passed the check of the context"
    assert lost.known
    assert write(other, memory) == "ok"


def test_closed_streams_of_a_lost_context_give_their_slots_back(domain):
    streams = [StreamState(domain) for _ in range(100)]
    for stream in streams:
        stream.issue()
        stream.close()
    slots = domain.engine.slots
    domain.lose()
    live = Domain(domain.engine)
    assert max(StreamState(live).slot for _ in range(100)) < slots
    assert domain.engine.slots == slots


@pytest.mark.parametrize("fails", [False, True])
def test_a_loss_in_the_middle_of_an_operation(domain, memory, fails):
    lost = StreamState(domain)
    lost.issue((memory, 0, 8, "write"), driver_fails=During(domain.lose, fails))
    assert lost.known
    slot = lost.slot
    lost.close()
    other = StreamState(Domain(domain.engine))
    assert other.slot == slot
    assert write(other, memory) == "ok"
    assert host(memory) == "borrowed", "the number of the failed operation is not known already"
