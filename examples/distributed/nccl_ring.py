"""NCCL adds numbers of all devices, and passes rows round. It needs two GPUs and nccl4py.

NCCL works on streams, so a buffer is lent to the stream on which NCCL uses it.
"""

import os

os.environ.setdefault("NCCL_NVLS_ENABLE", "0")  # no NVLink multicast: not every host lets us use it

from contextlib import ExitStack

import nccl.core as nccl
import numpy as np

import cudadrv as cu

COUNT = 1 << 20


class Array:
    """A loan for nccl4py, which names no stream, although NCCL works on the stream of the loan."""

    def __init__(self, loan, stream):
        self.loan, self.stream = loan, stream

    def __dlpack__(self, *, stream=None, **options):
        return self.loan.__dlpack__(stream=self.stream.handle, **options)

    def __dlpack_device__(self):
        return self.loan.__dlpack_device__()


def lent(stack, buffer, stream, readonly=False):
    """Lend a buffer until the end of a block, when NCCL has queued its work."""
    loan = buffer.lend(stream, readonly=readonly)
    stack.enter_context(loan)
    return Array(loan, stream)


def main():
    devices = cu.Device.all()
    assert len(devices) > 1, "this needs two GPUs"
    size = len(devices)
    streams = [cu.Stream(device=device) for device in devices]
    comms = nccl.Communicator.init_all(list(range(size)))
    mine = [cu.DeviceBuffer(COUNT, "f4", device=device, name="mine") for device in devices]
    sums = [cu.DeviceBuffer(COUNT, "f4", device=device, name="sums") for device in devices]
    for rank, stream in enumerate(streams):
        mine[rank].fill_async(rank + 1, stream)  # NCCL's work runs after it, on the same stream

    with ExitStack() as stack, nccl.group():
        for comm, stream, source, target in zip(comms, streams, mine, sums, strict=True):
            source, target = lent(stack, source, stream, True), lent(stack, target, stream)
            comm.allreduce(source, target, nccl.SUM, stream=stream)
    other = cu.Stream(device=devices[0])
    try:
        sums[0].fill_async(0, other)  # NCCL's work may not be complete
    except cu.BufferBorrowedError as error:
        print("\n".join(str(error).splitlines()[:2]))
    for rank, stream in enumerate(streams):
        expected = np.full(COUNT, size * (size + 1) / 2, "f4")
        assert np.array_equal(sums[rank].to_numpy(stream=stream), expected)

    with ExitStack() as stack, nccl.group():
        for rank, (comm, stream) in enumerate(zip(comms, streams, strict=True)):
            comm.send(lent(stack, mine[rank], stream, True), (rank + 1) % size, stream=stream)
            comm.recv(lent(stack, sums[rank], stream), (rank - 1) % size, stream=stream)
    for rank, stream in enumerate(streams):
        received = sums[rank].to_numpy(stream=stream)
        assert np.array_equal(received, np.full(COUNT, (rank - 1) % size + 1, "f4"))
    for comm in comms:
        comm.destroy()
    print(f"{size} devices: the sum and the ring are right")


if __name__ == "__main__":
    main()
