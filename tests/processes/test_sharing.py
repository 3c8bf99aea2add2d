"""Buffers that are lent to other processes: tickets, receipts, and refusals."""

import os
import pickle
import random
import resource
import struct
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest
from limits import PATIENCE
from other_process import Other

import cudadrv as cu
from cudadrv import testing


def filled(count=1000, dtype="i4", value=1):
    buffer = cu.DeviceBuffer(count, dtype, name="frames")
    buffer.fill(value)
    return buffer


def wait_until_gone(buffer, stream):
    """Take the buffer back without a receipt, as soon as the other process has dropped it."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return buffer.accept(stream=stream)
        except cu.BufferExportedError:
            assert time.monotonic() < end
            time.sleep(0.01)


def test_there_and_back(other):
    stream = cu.Stream()
    buffer = filled()
    buffer.fill_async(5, stream=stream)
    ticket = buffer.share(stream)
    assert ticket.shape == (1000,)
    assert ticket.dtype == np.dtype("i4")
    other("there := cu.open(ticket, s := cu.Stream())", ticket=ticket)
    assert other("there.to_numpy(stream=s).tolist()") == [5] * 1000
    other("there[10:20].fill_async(7, stream=s)")
    receipt = other("there.give_back(s)")
    buffer.accept(receipt, stream)
    expected = np.full(1000, 5, "i4")
    expected[10:20] = 7
    np.testing.assert_array_equal(buffer.to_numpy(stream=stream), expected)


def test_the_default_stream(other):
    buffer = filled()
    ticket = buffer.share(cu.Stream.legacy())
    other("[there := cu.open(ticket), there.fill(3, stream=cu.Stream.legacy())][1]", ticket=ticket)
    buffer.accept(other("there.give_back(cu.Stream.legacy())"))
    assert buffer.to_numpy(stream=cu.Stream.legacy()).tolist() == [3] * 1000


def test_work_that_has_not_begun(other, gate):
    """The other process opens the ticket and queues work before the owner's work has begun."""
    stream = cu.Stream()
    buffer = filled()
    gate.hold(stream)
    buffer.fill_async(5, stream=stream)
    ticket = buffer.share(stream)
    other("there := cu.open(ticket, s := cu.Stream())", ticket=ticket)
    other("there[:500].fill_async(6, stream=s)")
    receipt = other("there.give_back(s)")
    buffer.accept(receipt, stream)
    token = buffer[:1].fill_async(7, stream=stream)
    assert not token.done
    gate.open()
    token.wait()
    assert buffer.to_numpy(stream=stream).tolist() == [7] + [6] * 499 + [5] * 500


def test_work_there_that_has_not_begun(other):
    """The owner takes the buffer back and uses it before the other process's work has begun."""
    stream = cu.Stream()
    buffer = filled()
    result = cu.LockedBuffer(1000, "i4")
    other("there := cu.open(ticket, s := cu.Stream())", ticket=buffer.share(stream))
    other(
        "[flag := cu.LockedBuffer.zeros(1, 'u4'), ctypes := __import__('ctypes'),"
        " ctypes.CDLL(cu.driver_info().path).cuStreamWaitValue32_v2(ctypes.c_void_p(s.handle),"
        " ctypes.c_uint64(flag.address), 1, 0)] and None"
    )
    other("there.fill_async(6, stream=s)")
    buffer.accept(other("there.give_back(s)"), stream)
    token = result.copy_from_async(buffer, stream)
    assert not token.done
    other("flag.__setitem__(0, 1)")
    token.wait()
    assert result.to_numpy().tolist() == [6] * 1000


def test_uses_during_the_loan_are_refused(other):
    stream = cu.Stream()
    buffer = filled()
    ticket = buffer.share(stream)
    where = "test_sharing.py"
    for use in (
        lambda: buffer.fill_async(1, stream=stream),
        lambda: buffer.to_numpy(),
        lambda: buffer.close(),
        lambda: buffer.share(stream),
        lambda: buffer.lend(stream).__enter__(),
        lambda: buffer[5:6].fill(1),
        lambda: buffer.into_raw(),
    ):
        with pytest.raises(cu.BufferExportedError) as caught:
            use()
        assert "it is shared with another process, at" in str(caught.value)
        assert where in str(caught.value)
        assert "buffer.accept(receipt)" in str(caught.value)
    other("there := cu.open(ticket, s := cu.Stream())", ticket=ticket)
    with pytest.raises(cu.BufferExportedError, match=f"process {other.pid} has it"):
        buffer.accept()
    buffer.accept(other("there.give_back(s)"), stream)
    buffer.fill_async(1, stream=stream)


def test_what_is_lent_is_not_shared(driver):
    """A buffer that is lent to a library is not shared.

    The library may queue work on the same stream after `share`.
    """
    stream = cu.Stream()
    buffer = filled(100)
    with buffer[:50].lend(stream):
        with pytest.raises(cu.BufferExportedError, match=r"(?s)is lent to.*End the loan first"):
            buffer.share(stream)
        buffer[50:].share(stream)
        buffer.accept(stream=stream)
    buffer.share(stream)
    buffer.accept(stream=stream)


def test_boxes_are_not_shared_but_their_rows_are(other):
    """A ticket names bytes in one piece."""
    stream = cu.Stream()
    image = cu.DeviceBuffer.from_array(np.arange(24, dtype="i4").reshape(4, 6), name="image")
    with pytest.raises(ValueError, match=r"share needs items in one piece, .*'image'\[0:4, 2:4\]"):
        image[:, 2:4].share(stream)
    ticket = image[1:3].share(stream)
    assert ticket.shape == (2, 6)
    other("there := cu.open(ticket, s := cu.Stream())", ticket=ticket)
    other("there[:, 2:4].fill_async(9, stream=s)")
    assert other("there[1].to_numpy(stream=s).tolist()") == [12, 13, 9, 9, 16, 17]
    image[0, 1:].fill(8)  # not shared
    with pytest.raises(cu.BufferExportedError):
        image[:, 5:].fill(8)
    image[1:3].accept(other("there.give_back(s)"), stream)
    assert image.to_numpy(stream=stream)[:, 3].tolist() == [8, 9, 9, 21]


def test_memory_of_a_pool_that_was_taken_over_is_not_shared(driver):
    """`from_raw` cannot know that memory is from a pool. The driver makes no handle of it."""
    stream = cu.Stream()
    ordered = cu.DeviceBuffer(64, stream=stream)
    stream.synchronize()
    taken = cu.DeviceBuffer.from_raw(ordered.into_raw(), 64, name="mine")
    with pytest.raises(ValueError, match=r"'mine'\[0:64\].*no handles.*Copy it"):
        taken.share(stream)
    taken.fill(1, stream=stream)
    taken.close()


def test_parts_are_shared_alone(other):
    stream = cu.Stream()
    buffer = filled(100)
    tickets = [buffer[10:20].share(stream), buffer[50:60].share(stream)]
    buffer[20:50].fill_async(4, stream=stream)
    with pytest.raises(cu.BufferExportedError):
        buffer[15:25].fill_async(4, stream=stream)
    with pytest.raises(ValueError, match="2 parts"):
        buffer.accept()
    other("s := cu.Stream()")
    receipts = []
    for value, ticket in enumerate(tickets):
        other("there := cu.open(ticket, s)", ticket=ticket)
        other("there.fill_async(value, stream=s)", value=value + 70)
        receipts.append(other("there.give_back(s)"))
    buffer.accept(receipts[1], stream)
    with pytest.raises(ValueError, match="accepted before"):
        buffer.accept(receipts[1], stream)
    buffer.accept(receipts[0], stream)
    found = buffer.to_numpy(stream=stream)
    assert found[10:20].tolist() == [70] * 10
    assert found[50:60].tolist() == [71] * 10
    assert found[20:50].tolist() == [4] * 30


def test_a_ticket_is_opened_once(other):
    stream = cu.Stream()
    buffer = filled()
    ticket = buffer.share(stream)
    other("there := cu.open(ticket, s := cu.Stream())", ticket=ticket)
    with pytest.raises(cu.OwnershipError, match=f"opened before, by process {other.pid}"):
        other("cu.open(ticket, s)")
    buffer.accept(other("there.give_back(s)"), stream)
    with pytest.raises(cu.OwnershipError):
        other("cu.open(ticket, s)")


def test_a_ticket_is_not_for_its_own_process():
    stream = cu.Stream()
    buffer = filled()
    ticket = buffer.share(stream)
    with pytest.raises(cu.OwnershipError, match="made by this process"):
        cu.open(ticket, stream)
    buffer.accept()


def test_taken_back_before_it_was_opened(other):
    stream = cu.Stream()
    buffer = filled()
    ticket = buffer.share(stream)
    buffer.accept(stream=stream)
    buffer.fill_async(2, stream=stream)
    with pytest.raises(cu.OwnershipError, match=r"taken the buffer back|not valid"):
        other("cu.open(ticket, cu.Stream())", ticket=ticket)


def test_a_failed_open_leaves_the_ticket_valid(other, driver):
    stream = cu.Stream()
    buffer = filled()
    other("s := cu.Stream()")
    ticket = buffer.share(stream)
    other("(capture := cu.Graph().capture(s)).__enter__() and None")
    with pytest.raises(cu.CaptureError):
        other("cu.open(ticket, s)", ticket=ticket)
    other("capture.__exit__(None, None, None)")
    if driver != "cuda":
        other("testing := __import__('cudadrv.testing').testing")
        for name in ("cuIpcOpenEventHandle", "cuIpcOpenMemHandle_v2", "cuStreamWaitEvent"):
            other("testing.fail(name, 1)", name=name)
            with pytest.raises(cu.CudaError):
                other("cu.open(ticket, s)")
            other("[testing.configure('fault=none'), cu.reap()][1]")
            assert not start_on_board(ticket)
    other("there := cu.open(ticket, s)")
    if driver != "cuda":
        assert start_on_board(ticket)
    buffer.accept(other("there.give_back(s)"), stream)


def start_on_board(ticket):
    """Read from the board the start time of the process that has the buffer.

    If the start time of an earlier process were left there, the owner would believe that the
    present process has ended.
    """
    file, _, slot = struct.unpack_from("<iQI", bytes(ticket), 12)
    return int.from_bytes(os.pread(file, 8, 32 * slot + 8), "little")


@pytest.mark.cuda_software
@pytest.mark.parametrize(
    "name", ["cuEventCreate", "cuStreamCreateWithPriority", "cuStreamWaitEvent", "cuEventRecord"]
)
def test_a_failed_give_back_can_be_repeated(other, name, gate):
    """`give_back` can be repeated after a driver call in it has failed.

    Because the owner's work is not complete, `give_back` makes more driver calls.
    """
    stream = cu.Stream()
    buffer = filled()
    gate.hold(stream)
    other(
        "[there := cu.open(ticket, s := cu.Stream()), s.record()] and None",
        ticket=buffer.share(stream),
    )
    other("testing := __import__('cudadrv.testing').testing")
    for _ in range(2):
        other("testing.fail(name, 1)", name=name)
        with pytest.raises(cu.CudaError):
            other("there.give_back(s)")
        other("there.fill_async(2, stream=s) and None")  # works: the buffer is still open
    receipt = other("there.give_back(s)")
    gate.open()
    buffer.accept(receipt, stream)
    assert buffer[:10].to_numpy(stream=stream).tolist() == [2] * 10
    assert other("s.synchronize()") is None


@pytest.mark.cuda_software
def test_a_refused_give_back_makes_no_driver_call(other, gate):
    """Only an accepted `give_back` makes an event, because the owner's work is not complete."""
    stream = cu.Stream()
    buffer = filled()
    gate.hold(stream)
    buffer.fill_async(1, stream=stream)
    other("[testing := __import__('cudadrv.testing').testing, s := cu.Stream()] and None")
    other("there := cu.open(ticket, s)", ticket=buffer.share(stream))
    other("[graph := cu.Graph(), graph.add_fill(there, 2), ready := graph.instantiate()] and None")
    calls = "sum(map(testing.calls, ('cuEventCreate', 'cuEventRecord', 'cuStreamWaitEvent')))"
    before = other(calls)
    with pytest.raises(cu.BufferBorrowedError, match="graph"):
        other("there.give_back(s)")
    assert other(calls) == before
    gate.open()


@pytest.mark.cuda_software
def test_a_failed_accept_leaves_the_ticket_valid(other):
    stream = cu.Stream()
    buffer = filled()
    ticket = buffer.share(stream)
    testing.fail("cuStreamWaitEvent", 1)
    with pytest.raises(cu.CudaError):
        buffer.accept(stream=stream)
    testing.configure("fault=none")
    other("there := cu.open(ticket, s := cu.Stream())", ticket=ticket)
    with pytest.raises(cu.BufferExportedError):
        buffer.accept(stream=stream)
    buffer.accept(other("there.give_back(s)"), stream)


def test_a_refused_receipt_leaves_the_ticket_valid(other):
    stream = cu.Stream()
    buffer = filled()
    ticket = buffer.share(stream)
    pid, _, _, slot = struct.unpack_from("<IiQI", bytes(ticket), 8)
    number = struct.unpack_from("<8sIiQIBBH16s", bytes(ticket))[-1]
    receipt = cu.Receipt(struct.pack("<8sII16s", b"CUDAREC1", pid, slot, number))
    with pytest.raises(ValueError, match="not genuine"):
        buffer.accept(receipt)
    other("there := cu.open(ticket, s := cu.Stream())", ticket=ticket)
    with pytest.raises(ValueError, match="not genuine"):
        buffer.accept(receipt)
    buffer.accept(other("there.give_back(s)"), stream)


def test_use_there_has_to_be_ordered(other):
    stream = cu.Stream()
    buffer = filled()
    ticket = buffer.share(stream)
    other("there := cu.open(ticket, s := cu.Stream())", ticket=ticket)
    with pytest.raises(cu.BufferBorrowedError, match="open on Stream"):
        other("there.fill_async(1, stream=cu.Stream())")
    buffer.accept(other("there.give_back(s)"), stream)
    with pytest.raises(cu.BufferBorrowedError, match="accept on Stream"):
        buffer.fill_async(1, stream=cu.Stream())
    with pytest.raises(cu.BufferClosedError):
        other("there.fill_async(1, stream=s)")


def test_a_dropped_buffer_can_be_taken_back(other):
    stream = cu.Stream()
    buffer = filled()
    other("there := cu.open(ticket, s := cu.Stream())", ticket=buffer.share(stream))
    other("there.fill_async(9, stream=s)")
    with pytest.raises(cu.BufferExportedError):
        buffer.accept()
    other("globals().pop('there') and None")
    other("s.synchronize()")
    other("cu.reap()")
    wait_until_gone(buffer, stream)
    assert buffer.to_numpy(stream=stream).tolist() == [9] * 1000


def test_a_buffer_that_is_dropped_here_lives_there(other):
    stream = cu.Stream()
    buffer = filled()
    other("there := cu.open(ticket, s := cu.Stream())", ticket=buffer.share(stream))
    del buffer
    stream.synchronize()
    cu.reap()
    for _ in range(3):
        filled(100_000, value=8)
    assert other("there.to_numpy(stream=s).tolist()") == [1] * 1000
    other("globals().pop('there') and None")
    other("s.synchronize()")
    other("cu.reap()")
    stream.synchronize()
    cu.reap()


def test_closing_while_the_memory_is_mapped_there(other):
    """The owner takes a buffer back and closes it before the other process has unmapped it."""
    stream = cu.Stream()
    buffer = filled()
    other("there := cu.open(ticket, s := cu.Stream())", ticket=buffer.share(stream))
    buffer.accept(other("there.give_back(s)"), stream)
    stream.synchronize()
    buffer.close()
    other("[s.synchronize(), cu.reap()][1]")
    cu.reap()


def test_many_rounds_use_one_event(other):
    stream = cu.Stream()
    buffer = filled(10, value=0)
    other("s := cu.Stream()")
    for round in range(30):
        other("there := cu.open(ticket, s)", ticket=buffer.share(stream))
        other("there.fill_async(round, stream=s)", round=round)
        buffer.accept(other("there.give_back(s)"), stream)
        other("s.synchronize()")
    assert buffer.to_numpy(stream=stream).tolist() == [29] * 10


def test_an_event_that_is_used_again_orders_nothing_else(other):
    """An event is reused for a later ticket, and then orders only the work of that ticket.

    `open` does not order work that was queued before an earlier `give_back`.
    """
    stream, later = cu.Stream(), cu.Stream()
    first, second = filled(), filled()
    other("[s := cu.Stream(), t := cu.Stream(), own := cu.DeviceBuffer(10, 'i4')] and None")
    other("there := cu.open(ticket, s)", ticket=first.share(stream))
    other("own.fill_async(1, stream=s)")
    receipt = other("there.give_back(s)")
    other("globals().pop('there') and None")
    # These allocations unmap the shared memory, because it is unused.
    other("[cu.DeviceBuffer(10, pooled=False) for _ in range(9)] and None")
    first.accept(receipt, stream)  # now the event can be used for another ticket
    other("there := cu.open(ticket, t)", ticket=second.share(later))
    with pytest.raises(cu.BufferBorrowedError, match="fill_async on Stream"):
        other("own.fill_async(2, stream=t)")
    second.accept(other("there.give_back(t)"), later)


@pytest.mark.parametrize("make", [filled, lambda: cu.LockedBuffer(1000, "i4", shareable=True)])
def test_a_buffer_that_is_opened_again_orders_nothing_else(other, make):
    """`open` orders uses of the buffer, but no other work that was queued before a `give_back`.

    The driver often maps a buffer to the same address again, but a program cannot rely on that.
    """
    stream, buffer = cu.Stream(), make()
    other("[s := cu.Stream(), t := cu.Stream(), own := cu.DeviceBuffer(10, 'i4')] and None")
    for _ in range(3):
        other("there := cu.open(ticket, s)", ticket=buffer.share(stream))
        other("[there.fill_async(3, stream=s), own.fill_async(1, stream=s)] and None")
        buffer.accept(other("there.give_back(s)"), stream)
        other("there := cu.open(ticket, t)", ticket=buffer.share(stream))
        other("there.fill_async(4, stream=t)")  # the ticket has ordered this after the first fill
        with pytest.raises(cu.BufferBorrowedError, match="fill_async on Stream"):
            other("own.fill_async(2, stream=t)")
        buffer.accept(other("there.give_back(t)"), stream)
        other("s.wait(t)")
        other("t.wait(s)")
        other("own.fill_async(2, stream=t)")
        other("s.wait(t)")
    stream.synchronize()
    assert buffer.to_numpy().tolist() == [4] * 1000


def open_files(pid):
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def test_what_belongs_to_an_owner_is_opened_once(other, driver):
    stream = cu.Stream()
    buffers = [filled() for _ in range(3)]
    other("s := cu.Stream()")
    files = []
    for buffer in buffers:
        other("there := cu.open(ticket, s)", ticket=buffer.share(stream))
        receipt = other("there.give_back(s)")
        other("[globals().pop('there'), s.synchronize()][1]")
        buffer.accept(receipt, stream)
        stream.synchronize()
        files.append(open_files(other.pid))
        if driver != "cuda":
            calls = "__import__('cudadrv.testing').testing.calls('cuIpcOpenEventHandle')"
            assert other(calls) == 1
    assert len(set(files)) == 1


def test_files_of_an_owner_that_has_ended_are_closed(driver):
    files = []
    for _ in range(4):
        owner = Other(driver)
        ticket = owner("[b := cu.DeviceBuffer(10), b.fill(3), b.share(cu.Stream())][2]")
        buffer = cu.open(ticket, stream := cu.Stream())
        assert buffer.to_numpy(stream=stream).tolist() == [3] * 10
        del buffer
        stream.synchronize()
        owner.kill()
        cu.reap()
        files.append(open_files(os.getpid()))
    assert len(set(files[1:])) == 1  # only the file of the last process is still open


# ---- what a process cannot know of another one ----


@contextmanager
def no_more_files():
    """Limit the open files of this process, so that opening a file fails."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


class Word:
    """The state of a ticket on this process's board, by which the processes communicate."""

    offered = 1

    def __init__(self, ticket):
        pid, file, _, slot = struct.unpack_from("<IiQI", bytes(ticket), 8)
        self.board = Path(f"/proc/{pid}/fd/{file}")
        self.offset = 32 * slot

    def set(self, state):
        with self.board.open("r+b") as board:
            os.pwrite(board.fileno(), struct.pack("<Q", state), self.offset)

    def set_opened_by(self, pid):
        """Set the state of a process that has claimed the ticket and done nothing else."""
        self.set(2 | pid << 8)


def is_refused(buffer, pid):
    with pytest.raises(cu.BufferExportedError, match=f"process {pid} has it"):
        buffer.accept()
    return True


def test_a_borrower_lives_when_no_file_can_be_opened(other):
    stream = cu.Stream()
    buffer = filled()
    other("there := cu.open(ticket, s := cu.Stream())", ticket=buffer.share(stream))
    with no_more_files():
        stream.synchronize()
        assert is_refused(buffer, other.pid)
    assert is_refused(buffer, other.pid)
    buffer.accept(other("there.give_back(s)"), stream)


def test_an_owner_lives_when_no_file_can_be_opened(other):
    limit = "[r := __import__('resource'), r.setrlimit(r.RLIMIT_NOFILE, ({}, h[1]))] and None"
    stream = cu.Stream()
    buffer = filled()
    ticket = buffer.share(stream)
    other("[s := cu.Stream(), h := __import__('resource').getrlimit(7)] and None", ticket=ticket)
    other("cu.open and None")  # imports the module of `open`
    other(limit.format(0))
    with pytest.raises(OSError, match="Too many open files"):
        other("cu.open(ticket, s)")
    other(limit.format("h[0]"))
    other("there := cu.open(ticket, s)")
    buffer.accept(other("there.give_back(s)"), stream)


def files_of_processes():
    """The pidfds, by which this process sees that another process has ended."""
    found = set()
    for file in Path("/proc/self/fd").iterdir():
        # The file descriptor of the listing itself is closed by now.
        with suppress(FileNotFoundError):
            if "pidfd" in str(file.readlink()):
                found.add(int(file.name))
    return found


def test_a_borrower_lives_whose_file_the_program_has_closed(other):
    stream = cu.Stream()
    buffer = filled()
    before = files_of_processes()
    other("there := cu.open(ticket, s := cu.Stream())", ticket=buffer.share(stream))
    assert is_refused(buffer, other.pid)
    (file,) = files_of_processes() - before
    os.close(file)
    assert is_refused(buffer, other.pid)
    buffer.accept(other("there.give_back(s)"), stream)


def test_threads_open_one_file_for_a_borrower(other):
    stream = cu.Stream()
    buffer = filled()
    before = files_of_processes()
    other("s := cu.Stream()")
    for _ in range(20):
        other("there := cu.open(ticket, s)", ticket=buffer.share(stream))
        start = threading.Barrier(4)

        def synchronize(start=start):
            own = cu.Stream()
            start.wait()
            own.synchronize()

        threads = [threading.Thread(target=synchronize) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(files_of_processes() - before) == 1
        receipt = other("there.give_back(s)")
        other("[globals().pop('there')] and None")
        other("[s.synchronize(), cu.reap()] and None")
        buffer.accept(receipt, stream)
        stream.synchronize()
    assert files_of_processes() == before


def test_a_borrower_that_has_not_said_when_it_started(other, driver):
    """A process claims a ticket, and ends before it has written its start time.

    An earlier process had a ticket in the same slot of the board.
    """
    stream = cu.Stream()
    buffer = filled()
    earlier = Other(driver)
    ticket = buffer.share(stream)
    slot = Word(ticket).offset
    earlier("there := cu.open(ticket, s := cu.Stream())", ticket=ticket)
    earlier("there.give_back(s)")
    earlier.kill()
    buffer.accept(stream=stream)
    stream.synchronize()
    word = Word(buffer.share(stream))
    assert word.offset == slot
    word.set_opened_by(other.pid)
    assert is_refused(buffer, other.pid)
    word.set(Word.offered)
    buffer.accept()


def test_a_borrower_after_one_that_could_not_open_it(other, driver):
    stream = cu.Stream()
    buffer = filled()
    first = Other(driver)
    first("cu.Stream() and None")
    ticket = buffer.share(stream)
    word = Word(ticket)
    word.set_opened_by(first.pid)
    assert is_refused(buffer, first.pid)
    word.set(Word.offered)
    first.kill()
    other("there := cu.open(ticket, s := cu.Stream())", ticket=ticket)
    assert is_refused(buffer, other.pid)
    buffer.accept(other("there.give_back(s)"), stream)


def test_threads_take_it_back_at_once():
    buffer = filled()
    for _ in range(50):
        buffer.share(cu.Stream.legacy())
        start, taken, refused = threading.Barrier(3), [], []

        def take(start=start, taken=taken, refused=refused):
            stream = cu.Stream()
            start.wait()
            try:
                buffer.accept(stream=stream)
                taken.append(stream)
            except ValueError as error:
                refused.append(str(error))

        threads = [threading.Thread(target=take) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (len(taken), len(refused)) == (1, 2), refused
        buffer.fill_async(1, stream=taken[0])
        taken[0].synchronize()


# ---- page-locked memory ----


def test_page_locked_memory(other):
    stream = cu.Stream()
    buffer = cu.LockedBuffer(1000, "f4", shareable=True, name="frames")
    buffer[:] = np.arange(1000)
    other("there := cu.open(ticket, s := cu.Stream())", ticket=buffer.share(stream))
    with pytest.raises(cu.BufferExportedError, match="shared with another process"):
        buffer[0]
    assert other("[s.synchronize(), there.to_numpy().sum().item()][1]") == 499500
    other("there.__setitem__(slice(0, 3), [7, 8, 9])")
    buffer.accept(other("there.give_back(s)"), stream)
    with pytest.raises(cu.BufferBorrowedError):
        buffer[0]
    stream.synchronize()
    assert buffer[:4].to_numpy().tolist() == [7, 8, 9, 3]


@pytest.mark.parametrize("order", ["s", "r"])
def test_functions_that_use_a_buffer_that_is_given_back(other, order):
    """The call is before the giving back, so its function still gets the memory."""
    stream = cu.Stream()
    buffer = cu.LockedBuffer(1000, "u4", shareable=True)
    buffer.fill(6)
    other("[s := cu.Stream(), r := cu.Stream(), there := cu.open(ticket, s)]",
          ticket=buffer.share(stream))  # fmt: skip
    other("[s.call(lambda array: array.__imul__(7), there), r.wait(s)]")
    buffer.accept(other(f"there.give_back({order})"), stream)
    stream.synchronize()
    assert (buffer.to_numpy() == 42).all()


def test_page_locked_memory_and_device_work(other):
    stream = cu.Stream()
    buffer = cu.LockedBuffer(1000, "f4", shareable=True)
    buffer.fill_async(2, stream=stream)
    other("there := cu.open(ticket, s := cu.Stream())", ticket=buffer.share(stream))
    other(
        "[d := cu.DeviceBuffer(1000, 'f4'), d.copy_from_async(there, s), "
        "d[:10].fill_async(5, stream=s), there.copy_from_async(d, s)][1].done"
    )
    buffer.accept(other("there.give_back(s)"), stream)
    stream.synchronize()
    assert buffer.to_numpy().tolist() == [5] * 10 + [2] * 990


def test_shapes_and_dtypes(other):
    stream = cu.Stream()
    record = np.dtype([("x", "<f4"), ("y", "<i2", (2, 3))])
    for dtype, shape in ((record, (7,)), ("c16", (2, 3)), ("?", (4, 1, 2)), ("S5", (3,))):
        array = np.zeros(shape, dtype)
        buffer = cu.DeviceBuffer.from_array(array)
        ticket = buffer.share(stream)
        other("there := cu.open(ticket, s := cu.Stream())", ticket=ticket)
        assert other("(there.shape, there.dtype)") == (shape, array.dtype)
        buffer.accept(other("there.give_back(s)"), stream)


# ---- what cannot be shared ----


def test_memory_that_cannot_be_shared(driver):
    stream = cu.Stream()
    foreign = cu.DeviceBuffer(10)
    for buffer, way in (
        (cu.UnifiedBuffer(10), "DeviceBuffer"),
        (cu.LockedBuffer(10), "shareable=True"),
        (cu.DeviceBuffer(10, stream=stream), "without stream="),
        (cu.DeviceBuffer(0), "empty"),
        (cu.DeviceBuffer.from_address(foreign.address, 10, owner=foreign), "your own"),
    ):
        with pytest.raises(ValueError, match=way):
            buffer.share(stream)
    with pytest.raises(ValueError, match="write-combined"):
        cu.LockedBuffer(10, shareable=True, write_combined=True)
    with pytest.raises(ValueError, match="cannot give it away"):
        cu.LockedBuffer(10, shareable=True).into_raw()


def test_what_was_opened_is_not_shared_on(other):
    stream = cu.Stream()
    buffer = filled()
    other("there := cu.open(ticket, s := cu.Stream())", ticket=buffer.share(stream))
    with pytest.raises(ValueError, match="only its owner can share"):
        other("there.share(s)")
    with pytest.raises(ValueError, match="parts of it are alive"):
        other("[part := there[:5], there.give_back(s)]")
    other("globals().pop('part')")
    buffer.accept(other("there.give_back(s)"), stream)


# ---- untrusted bytes ----


def test_bytes_that_are_no_ticket(other):
    stream = cu.Stream()
    buffer = filled()
    ticket = buffer.share(stream)
    data = bytes(ticket)
    assert cu.Ticket(data) == ticket
    assert pickle.loads(pickle.dumps(ticket)) == ticket
    for wrong in (b"", data[:-1], data + b"x", bytes(len(data)), data[:100], b"x" * 100_000):
        with pytest.raises(ValueError, match="ticket"):
            cu.Ticket(wrong)
    with pytest.raises(TypeError):
        cu.Ticket(5)
    with pytest.raises(TypeError):
        cu.open(data)
    with pytest.raises(ValueError, match="receipt"):
        cu.Receipt(data)
    choose = random.Random(5)
    damaged = []
    for index in range(len(data)):
        changed = bytearray(data)
        changed[index] ^= 1 << choose.randrange(8)
        damaged.append(bytes(changed))
    for _ in range(300):
        changed = bytearray(data)
        for _ in range(choose.randrange(1, 9)):
            changed[choose.randrange(len(data))] = choose.randrange(256)
        if bytes(changed) != data:
            damaged.append(bytes(changed))
    other("s := cu.Stream()")
    refused = "[0 for data in damaged if try_open(data, s)]"
    other(
        "exec('''\\ndef try_open(data, s):\\n"
        "    try:\\n        cu.open(cu.Ticket(data), s)\\n"
        "    except (ValueError, cu.OwnershipError):\\n        return False\\n"
        "    return True\\n''', globals())"
    )
    assert other(refused, damaged=damaged) == []
    # Works: the ticket was not opened by the refused calls.
    other("there := cu.open(ticket, s)", ticket=ticket)
    buffer.accept(other("there.give_back(s)"), stream)


def test_a_ticket_for_items_at_an_odd_address():
    stream = cu.Stream()
    part = filled()[:1]
    data = bytearray(bytes(part.share(stream)))
    offset = struct.calcsize("<8sIiQIBBH16s16s64s64sQ")
    data[offset] += 1
    with pytest.raises(ValueError, match="damaged"):
        cu.Ticket(bytes(data))
    part.accept(stream=stream)


def test_receipts_of_others(other):
    stream = cu.Stream()
    first, second = filled(), filled()
    other("there := cu.open(ticket, s := cu.Stream())", ticket=first.share(stream))
    ticket = second.share(stream)
    receipt = other("there.give_back(s)")
    with pytest.raises(ValueError, match="not for"):
        second.accept(receipt)
    with pytest.raises(TypeError, match="Receipt"):
        second.accept(ticket)
    first.accept(receipt, stream)
    second.accept()
    with pytest.raises(ValueError, match="not shared"):
        second.accept()
    assert pickle.loads(pickle.dumps(receipt)).__reduce__() == receipt.__reduce__()


TRIES = """
def tries():
    while True:
        try:
            cu.open(stale)
        except cu.OwnershipError:
            pass
"""


def test_a_stale_ticket_does_not_disturb_the_next_one_of_its_slot(other, driver):
    stream = cu.Stream()
    buffer = filled()
    stale = buffer.share(stream)
    buffer.accept(stream=stream)
    third = Other(driver)
    third("exec(text, globals())", text=TRIES, stale=stale)
    third.send("tries()")
    opened = "cu.open(ticket, s := cu.Stream()).give_back(s)"
    try:
        for _ in range(300):
            buffer.accept(other(opened, ticket=buffer.share(stream)), stream)
    finally:
        third.kill()


# ---- processes that die ----


def test_a_borrower_that_dies_before_it_opens(other):
    stream = cu.Stream()
    buffer = filled()
    buffer.share(stream)
    other.kill()
    buffer.accept(stream=stream)
    buffer.fill(2, stream=stream)


def test_a_borrower_that_dies_with_the_buffer(other):
    stream = cu.Stream()
    buffer = filled()
    other("there := cu.open(ticket, s := cu.Stream())", ticket=buffer.share(stream))
    other("there.fill_async(4, stream=s)")
    with pytest.raises(cu.BufferExportedError):
        buffer.accept()
    other.kill()
    with pytest.raises(cu.BufferExportedError, match="has ended"):
        buffer.fill(2)  # only a call of the program ends the loan
    buffer.accept(stream=stream)
    buffer.fill(2, stream=stream)
    assert buffer.to_numpy(stream=stream).tolist() == [2] * 1000


def test_a_borrower_that_dies_after_it_has_given_back(other, gate):
    stream = cu.Stream()
    buffer = filled()
    other("there := cu.open(ticket, s := cu.Stream())", ticket=buffer.share(stream))
    other("there.fill_async(4, stream=s)")
    receipt = other("there.give_back(s)")
    other.kill()
    buffer.accept(receipt, stream)
    buffer[:10].fill_async(2, stream=stream)
    assert buffer[:10].to_numpy(stream=stream).tolist() == [2] * 10
    again = buffer.share(stream)
    assert again.pid
    buffer.accept(stream=stream)


def test_a_dead_borrower_of_what_another_thread_has_shared(other):
    """A thread shares a buffer on its own default stream, and the borrower dies.

    Only that thread can use its stream, but all threads can wait for the work before `share`.
    """
    buffer, stream, shared, over = filled(), cu.Stream(), threading.Event(), threading.Event()
    tickets = []

    def share():
        own = cu.Stream.per_thread()
        buffer.fill_async(3, own)
        tickets.append(buffer.share(own))
        shared.set()
        over.wait()
        own.synchronize()

    thread = threading.Thread(target=share)
    thread.start()
    shared.wait()
    other("there := cu.open(ticket, cu.Stream())", ticket=tickets[0])
    other.kill()
    try:
        buffer.accept(stream=stream)
    finally:
        over.set()
        thread.join()
    assert buffer.to_numpy(stream=stream).tolist() == [3] * 1000


def test_a_dead_borrower_of_a_dropped_buffer(other):
    stream = cu.Stream()
    buffer = filled()
    other("there := cu.open(ticket, s := cu.Stream())", ticket=buffer.share(stream))
    del buffer
    other.kill()
    stream.synchronize()
    cu.reap()


def test_an_owner_that_dies_before_the_ticket_is_opened(other):
    ticket = other("[b := cu.DeviceBuffer(10), b.share(cu.Stream())][1]")
    other.kill()
    with pytest.raises(cu.OwnershipError, match=f"process {other.pid}.*has ended"):
        cu.open(ticket, cu.Stream())


def test_an_owner_that_dies_afterwards(other):
    stream = cu.Stream()
    ticket = other("[b := cu.DeviceBuffer(10), b.fill(3), b.share(s := cu.Stream())][2]")
    other("s.synchronize()")
    buffer = cu.open(ticket, stream)
    other.kill()
    buffer.fill_async(1, stream=stream)
    assert buffer.to_numpy(stream=stream).tolist() == [1] * 10
    with pytest.raises(cu.BufferClosedError, match="has ended"):
        buffer.give_back(stream)
    del buffer
    stream.synchronize()


# Expressions that block the stream `s` of the other process for ever.
STUCK = (
    "f := cu.LockedBuffer.zeros(1, 'u4'), __import__('ctypes').CDLL(cu.driver_info().path)"
    ".cuStreamWaitValue32_v2(__import__('ctypes').c_void_p(s.handle),"
    " __import__('ctypes').c_uint64(f.address), 1, 0)"
)


@pytest.fixture
def stuck(driver):
    """A process for tests that block its stream. On a GPU, it can then free no device memory."""
    process = Other(driver)
    yield process
    assert process.end() == 0


def refuses_to_wait(process, call, pid):
    with pytest.raises(cu.OwnershipError, match=f"never end: process {pid} has ended"):
        process(call)


@pytest.mark.parametrize("how", ["keeps", "gives back", "drops"])
def test_an_owner_that_dies_with_unfinished_work(other, stuck, driver, how):
    ticket = other(
        f"[b := cu.DeviceBuffer(10), s := cu.Stream(), {STUCK}, b.fill_async(3, stream=s),"
        " b.share(s)][-1]"
    )
    stuck("there := cu.open(ticket, s := cu.Stream())", ticket=ticket)
    stuck("[work := there.fill_async(1, stream=s), done := s.record()] and None")
    if how == "gives back":
        stuck("there.give_back(s) and None")
    elif how == "drops":
        stuck("globals().pop('there') and None")
    with pytest.raises(TimeoutError):
        stuck("work.wait(timeout=0.6)")  # the owner is still running
    other.process.kill()
    assert not stuck("work.done")
    if driver != "cuda":  # only on the software driver: a real driver opens files, too
        names = (
            "r := __import__('resource'), nofile := r.RLIMIT_NOFILE, most := r.getrlimit(nofile)"
        )
        stuck(f"[{names}]")
        # Now the process cannot open a pidfd to see which process has ended.
        stuck("r.setrlimit(nofile, (3, most[1]))")
        with pytest.raises(TimeoutError):
            stuck("work.wait(timeout=0.2)")
        stuck("r.setrlimit(nofile, most)")
    other.kill()
    stuck("large := cu.DeviceBuffer(1 << 22, pooled=False)")
    copies = "there.to_numpy(stream=s)", "large.to_numpy(stream=s)"
    awaited = "__import__('asyncio').new_event_loop().run_until_complete(work)"
    waits = "work.wait()", "s.synchronize()", "done.synchronize()", "cu.Device(0).synchronize()"
    for wait in (*waits, awaited, *copies[how != "keeps" :]):
        refuses_to_wait(stuck, wait, other.pid)
    stuck("[x := cu.Stream(), l := cu.LockedBuffer(4), l.fill_async(7, stream=x).wait()] and None")
    assert stuck("int(l[3])") == 7
    refuses_to_wait(stuck, "work.wait(timeout=0.01)", other.pid)


PTX = Path(__file__).parent.with_name("kernels") / "kernels.ptx"

# Each expression frees memory, for which a driver waits for all work of the device.
FREES = {
    "device": "cu.DeviceBuffer(1 << 20, pooled=False)",
    "locked": "cu.LockedBuffer(1 << 20, pooled=False)",
    "managed": "cu.UnifiedBuffer(1 << 20, pooled=False)",
    "growing": "cu.DeviceBuffer(1 << 20, capacity=4 << 20)",
    "shareable": "cu.LockedBuffer(1 << 20, shareable=True)",
    "module": f"cu.Module.from_file({str(PTX)!r})",
}


def test_nothing_waits_for_an_owner_that_died_with_unfinished_work(other, stuck):
    """Closing succeeds, and the memory stays in the queue; calls that have to wait are refused."""
    for name, made in FREES.items():
        stuck(f"{name} := {made}")
    stuck("dropped := cu.DeviceBuffer(1 << 20, pooled=False)")
    stuck("shrinks := cu.DeviceBuffer(8 << 20, capacity=16 << 20)")
    stuck("pipeline := cu.Pipeline(10)")
    ticket = other(
        f"[b := cu.DeviceBuffer(10), s := cu.Stream(), {STUCK}, b.fill_async(3, stream=s),"
        " b.share(s)][-1]"
    )
    stuck("there := cu.open(ticket, s := cu.Stream())", ticket=ticket)
    stuck("there.fill_async(1, stream=s) and None")
    stuck("[lost := cu.DeviceBuffer(100, stream=s), globals().pop('lost')] and None")
    other.kill()
    for name in FREES:
        stuck(f"{name}.close()")
        assert stuck(f"getattr({name}, 'closed', True)")
        stuck(f"{name}.close()")
    stuck("globals().pop('dropped') and None")
    refuses_to_wait(stuck, "shrinks.shrink(10)", other.pid)
    assert stuck("shrinks.count") == 8 << 20
    stuck("pipeline.close()")
    refuses_to_wait(stuck, "cu.reap()", other.pid)
    refuses_to_wait(stuck, "cu.reap()", other.pid)
    refuses_to_wait(stuck, "cu.Device(0).synchronize()", other.pid)
    assert stuck("cu.live_buffers()[-1].kind")  # what is not in the queue is listed as before


def test_an_owner_that_dies_while_a_close_waits(other, stuck):
    stuck("large := cu.DeviceBuffer(1 << 20, pooled=False)")
    ticket = other(
        f"[b := cu.DeviceBuffer(10), s := cu.Stream(), {STUCK}, b.fill_async(3, stream=s),"
        " b.share(s)][-1]"
    )
    stuck("there := cu.open(ticket, s := cu.Stream())", ticket=ticket)
    stuck("there.fill_async(1, stream=s) and None")
    stuck.send("large.close()")
    time.sleep(0.3)
    other.kill()
    stuck.answer()
    assert stuck("large.closed")
    refuses_to_wait(stuck, "cu.reap()", other.pid)


BORROWS = (
    "s := cu.Stream()",
    "there := cu.open(ticket, s)",
    "there.fill_async(4, stream=s) and None",
    "s.synchronize()",
    "receipt := there.give_back(s)",
    "s.synchronize()",
)


@pytest.mark.parametrize("steps", range(len(BORROWS) + 1))
@pytest.mark.parametrize("cuda_schedule", ["lazy"], indirect=True)
def test_a_borrower_that_is_killed_after_any_step(other, steps):
    """The owner gets the buffer back, whether the borrower has written it or not."""
    stream = cu.Stream()
    buffer = filled()
    ticket, receipt = buffer.share(stream), None
    for step in BORROWS[:steps]:
        answer = other(step, ticket=ticket)
        receipt = answer if step.startswith("receipt") else receipt
    other.kill()
    buffer.accept(receipt, stream)
    values = set(buffer.to_numpy(stream=stream))
    assert values == {4} if steps >= 4 else values <= {1, 4}
    buffer.fill_async(2, stream=stream)
    stream.synchronize()
    buffer.close()


LENDS = (
    "[b := cu.DeviceBuffer(1000, 'i4'), s := cu.Stream()] and None",
    "b.fill_async(3, stream=s) and None",
    "s.synchronize()",
    "ticket := b.share(s)",
    "s.synchronize()",
)


@pytest.mark.parametrize("steps", range(len(LENDS) + 1))
@pytest.mark.parametrize("cuda_schedule", ["lazy"], indirect=True)
def test_an_owner_that_is_killed_after_any_step(other, stuck, steps):
    """The borrower reads what was written, is refused, or learns that a wait would never end."""
    ticket, early = None, steps % 2  # early: the ticket is opened before the owner is killed
    for step in LENDS[:steps]:
        answer = other(step)
        if step.startswith("ticket"):
            ticket = answer
            early and stuck("there := cu.open(ticket, s := cu.Stream())", ticket=ticket)
    other.kill()
    if ticket is None:
        return
    if not early:
        with pytest.raises(cu.OwnershipError, match="has ended"):
            stuck("there := cu.open(ticket, s := cu.Stream())", ticket=ticket)
        return
    assert stuck("set(there.to_numpy(stream=s).tolist())") == {3}
    with pytest.raises(cu.BufferClosedError, match="has ended"):
        stuck("there.give_back(s)")
    stuck("[globals().pop('there'), s.synchronize(), cu.reap()] and None")


def test_a_borrower_that_dies_with_unfinished_work(other):
    stream = cu.Stream()
    buffer = filled()
    other("there := cu.open(ticket, s := cu.Stream())", ticket=buffer.share(stream))
    receipt = other(f"[{STUCK}, there.fill_async(4, stream=s), there.give_back(s)][-1]")
    other.kill()
    buffer.accept(receipt, stream)
    buffer.fill_async(2, stream=stream)
    assert buffer.to_numpy(stream=stream).tolist() == [2] * 1000


def test_a_borrower_that_dies_after_its_unfinished_work_was_accepted(other, stuck):
    ticket = stuck("[b := cu.DeviceBuffer(10), s := cu.Stream(), b.share(s)][-1]")
    other("there := cu.open(ticket, s := cu.Stream())", ticket=ticket)
    receipt = other(f"[{STUCK}, there.fill_async(4, stream=s), there.give_back(s)][-1]")
    stuck("[b.accept(receipt, s), work := b.fill_async(2, stream=s)] and None", receipt=receipt)
    other.kill()
    refuses_to_wait(stuck, "work.wait()", other.pid)


def test_an_owner_that_dies_when_its_work_is_complete(other):
    ticket = other("[b := cu.DeviceBuffer(10), s := cu.Stream(), b.fill(3), b.share(s)][-1]")
    stream = cu.Stream()
    buffer = cu.open(ticket, stream)
    other("s.synchronize()")
    other.kill()
    assert buffer.to_numpy(stream=stream).tolist() == [3] * 10


# ---- several devices ----


@pytest.fixture
def two(driver):
    """Two processes with two devices."""
    software = {} if driver == "cuda" else {"CUDADRV_SOFTWARE": f"schedule={driver},devices=2"}
    processes = [Other(driver, **software) for _ in range(2)]
    try:
        if processes[0]("cu.Device.count()") < 2:
            pytest.skip("this needs two devices")
        yield processes
    finally:
        ends = [process.end() for process in processes]
    assert ends == [0, 0]


def test_access_of_other_devices_is_not_for_memory_of_other_processes(two):
    owner, borrower = two
    ticket = owner(
        "[one := cu.Device(1), b := cu.DeviceBuffer(10, device=one), s := cu.Stream(device=one),"
        " b.fill_async(3, stream=s), b.share(s)][-1]"
    )
    borrower("[zero := cu.Device(0), one := cu.Device(1), zero.enable_access(one)] and None")
    borrower("[near := cu.Stream(device=zero), far := cu.Stream(device=one)] and None")
    borrower("there := cu.open(ticket, far)", ticket=ticket)
    borrower("near.wait(far)")
    with pytest.raises(ValueError, match="or memory of another process"):
        borrower("there.fill_async(4, stream=near)")
    borrower(
        "[here := cu.DeviceBuffer(10, device=zero), here.copy_from_async(there, far)] and None"
    )
    borrower("near.wait(far)")
    assert borrower("here.to_numpy(stream=near).tolist()") == [3] * 10
    owner("s.synchronize()")


@pytest.mark.parametrize("there", [None, 0, 1])
def test_page_locked_memory_that_a_stream_of_another_device_takes_back(two, there):
    owner, borrower = two
    for process in two:
        process("streams := [cu.Stream(device=cu.Device(at)) for at in (0, 1)]")
    owner("buffer := cu.LockedBuffer(10, 'i4', shareable=True)")
    owner("buffer.fill_async(1, stream=streams[0])")
    ticket, receipt = owner("buffer.share(streams[0])"), None
    if there is not None:
        borrower("lent := cu.open(ticket, streams[at])", ticket=ticket, at=there)
        borrower("lent.fill_async(2, stream=streams[at])", at=there)
        receipt = borrower("lent.give_back(streams[at])", at=there)
    owner("buffer.accept(receipt, streams[1])", receipt=receipt)
    with pytest.raises(cu.BufferBorrowedError, match="accept"):
        owner("buffer[0]")
    with pytest.raises(cu.BufferBorrowedError, match="accept"):
        owner("buffer.fill_async(3, stream=streams[0])")
    owner("streams[1].synchronize()")
    assert owner("buffer.to_numpy().tolist()") == [1 if there is None else 2] * 10
