"""Several threads, each on its own streams.

These tests do not take the issue locks, which the library takes. So no two threads use the same
stream.
"""

import threading

from calls import write
from private_engine import MemoryState, StreamState

THREADS, TURNS = 6, 1_500


def run_at_once(work):
    """Run `work(number)` in numbered threads at once, and raise the exceptions of the threads."""
    failures = []
    ready = threading.Barrier(THREADS)

    def guarded(at):
        try:
            ready.wait()
            work(at)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(at,)) for at in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_each_thread_has_its_part(domain):
    memory = MemoryState(domain.engine, 8 * THREADS)

    def work(at):
        begin, end = 8 * at, 8 * at + 8
        stream = StreamState(domain)
        for turn in range(TURNS):
            assert write(stream, memory, begin + turn % 8, end) == "ok"
            if turn % 10 == 0:
                stream.snapshot().join_host()
            uses = memory.borrows(begin, end)
            assert {use[0] for use in uses} <= {stream.slot}
            assert all(begin <= use[3] < use[4] <= end for use in uses)
        stream.snapshot().join_host()

    run_at_once(work)
    assert memory.borrows() == []
    assert memory.close() == "ok"


def test_a_memory_that_goes_round_by_tokens(domain):
    """Threads write one memory in turn, each after the token of the thread before.

    All threads read the state of the memory meanwhile.
    """
    memory = MemoryState(domain.engine, 8)
    streams = [StreamState(domain) for _ in range(THREADS)]
    tokens = [None] * THREADS
    turns = [threading.Semaphore(0) for _ in range(THREADS)]
    turns[0].release()

    def work(at):
        stream, token = streams[at], None
        for _ in range(TURNS):
            assert len(memory.borrows()) <= 1
            assert memory.export(0, 8, "write")[0] in ("ok", "borrowed")
            if token:
                token.join_host()
            turns[at].acquire()
            if tokens[at - 1]:
                stream.wait(tokens[at - 1])
            answer, token = stream.issue((memory, 0, 8, "write"))
            while answer == "exported":  # another thread just has a host view
                answer, token = stream.issue((memory, 0, 8, "write"))
            assert answer == "ok"
            tokens[at] = token
            turns[(at + 1) % THREADS].release()

    run_at_once(work)
    assert memory.ranges == 1
    tokens[-1].join_host()
    assert all(stream.known for stream in streams)
    assert memory.close() == "ok"


def test_streams_come_and_go_in_all_threads(domain):
    def work(at):
        memory = MemoryState(domain.engine, 8)
        token = None
        for turn in range(TURNS):
            stream = StreamState(domain, ("non_blocking", "blocking")[turn % 2])
            if token:
                stream.wait(token)
            answer, token = stream.issue((memory, 0, 8, "write"))
            assert answer == "ok"
            if turn % 3 == 0:
                token.join_host()
        token.join_host()
        assert memory.close() == "ok"

    run_at_once(work)
    assert domain.engine.slots <= 16 * THREADS
