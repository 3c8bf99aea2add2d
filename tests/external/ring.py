"""A rank of a ring that passes numbers on: mpiexec -n N python ring.py. See test_mpi.py.

Each rank sends from and receives into page-locked memory, while its device computes.
"""

import numpy as np
from mpi4py import MPI

import cudadrv as cu

COUNT = 1000
comm = MPI.COMM_WORLD
rank, size = comm.rank, comm.size
after, before = (rank + 1) % size, (rank - 1) % size
stream = cu.Stream()
outgoing = cu.LockedBuffer(COUNT, "i8", name="outgoing")
incoming = cu.LockedBuffer.zeros(COUNT, "i8", name="incoming")
work = cu.DeviceBuffer(COUNT, "i8", name="work")


class ByCapsule:
    """An array that has only DLPack. mpi4py asks it for stream -1."""

    def __init__(self, buffer):
        self.__dlpack_device__ = buffer.__dlpack_device__
        self.buffer = buffer

    def __dlpack__(self, **options):
        # Stream -1: MPI works on no stream, so all work on the memory must be complete.
        return self.buffer.__dlpack__(**{**options, "stream": -1})


def refusal(call, *arguments):
    """Make a call that must be refused. Returns the message of the refusal."""
    try:
        call(*arguments)
    except cu.OwnershipError as error:
        return str(error)
    raise SystemExit(f"rank {rank}: {call} was not refused")


def passed_by_address():
    """Send and receive by addresses, in `with` blocks of loans: MPI gets no array."""
    with outgoing.lend(None, readonly=True) as source, incoming.lend(None) as target:
        requests = [
            comm.Irecv([MPI.buffer.fromaddress(target, incoming.nbytes), MPI.BYTE], before),
            comm.Isend([MPI.buffer.fromaddress(source, outgoing.nbytes), MPI.BYTE], after),
        ]
        work.copy_from_async(outgoing, stream)  # allowed, because MPI only reads this memory, too
        message = refusal(incoming.fill_async, 0, stream)
        assert "it is lent to work on no stream, at ring.py:" in message, message
        MPI.Request.Waitall(requests)
    stream.synchronize()


def passed_by_array():
    """Send and receive with loans as arguments: requests keep them, and end them when complete."""
    requests = [
        comm.Irecv(incoming.lend(None), before),
        comm.Isend(outgoing.lend(None, readonly=True), after),
    ]
    assert "it is lent to work on no stream" in refusal(incoming.fill_async, 0, stream)
    MPI.Request.Waitall(requests)
    assert not incoming.borrowed


def passed_by_capsule():
    requests = [comm.Irecv(ByCapsule(incoming), before), comm.Isend(ByCapsule(outgoing), after)]
    assert "it is lent to work on no stream" in refusal(incoming.fill_async, 0, stream)
    MPI.Request.Waitall(requests)
    assert not incoming.borrowed


WAYS = {"address": passed_by_address, "array": passed_by_array, "capsule": passed_by_capsule}


def ring(way):
    """Pass each rank's number around the ring once, until it is back."""
    work.fill(rank)
    seen = []
    for _ in range(size):
        outgoing.copy_from_async(work, stream)
        stream.synchronize()
        WAYS[way]()
        work.copy_from_async(incoming, stream)  # the memory is not lent any more
        seen.append(int(work.to_numpy(stream=stream)[COUNT - 1]))
    assert seen == [(rank - step) % size for step in range(1, size + 1)], seen


def forgot_to_synchronize():
    """A send is refused while a fill may be unfinished. Nothing is sent."""
    outgoing.fill_async(7, stream)
    for send in (
        lambda: comm.Send(outgoing.lend(None), after),
        lambda: comm.Send(ByCapsule(outgoing), after),
        lambda: outgoing.lend(None).__enter__(),
    ):
        message = refusal(send)
        assert "cannot lend LockedBuffer 'outgoing'[0:1000] (int64) to work on no stream" in message
        assert "fill_async on Stream" in message, message
        assert "queued at ring.py:" in message, message
    if rank == 0:
        print(message)
    work.fill_async(7, stream)
    message = refusal(comm.Send, work, after)  # mpi4py asks for stream -1
    assert "cannot lend DeviceBuffer 'work'[0:1000] (int64) to work on no stream" in message
    stream.synchronize()
    send = comm.Isend(outgoing.lend(None, readonly=True), after)
    comm.Recv(incoming.lend(None), before)
    send.Wait()
    assert np.array_equal(np.asarray(incoming), np.full(COUNT, 7))


for way in WAYS:
    ring(way)
forgot_to_synchronize()
for buffer in (outgoing, incoming, work):
    buffer.close()
stream.close()
done = comm.gather(rank)
if rank == 0:  # one rank only, because mpiexec may mix lines of several ranks
    print(f"done: {done}")
