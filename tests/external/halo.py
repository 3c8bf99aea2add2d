"""Mistakes at the border of two ranks. Each must be refused: mpiexec -n 2 python halo.py.

The ranks are taken from examples/distributed/stencil.py, which is correct. See test_mpi.py.
"""

import sys
from argparse import Namespace
from pathlib import Path

import numpy as np
from mpi4py import MPI

import cudadrv as cu

sys.path.append(str(Path(__file__).resolve().parents[2] / "examples" / "distributed"))
import stencil

comm = MPI.COMM_WORLD
options = Namespace(rows=8, columns=40, steps=3)
side = ("below", "above")[comm.rank]
other = 1 - comm.rank
arrived = cu.LockedBuffer(options.columns, "f4", name="arrived")


class Forgetful(stencil.Part):
    """A part that omits the wait named by `forgets`."""

    forgets = None

    def compute(self):
        if self.forgets == "inner rows":
            self.inner_done = self.outer.record()
        super().compute()


def refused(message, call, *arguments):
    """Make a call that must be refused. Returns the refusal's text.

    Both ranks make the same calls, so that each later message of MPI has a partner.
    """
    try:
        call(*arguments)
    except cu.OwnershipError as error:
        text = str(error)
    else:
        raise SystemExit(f"rank {comm.rank}: {call} was not refused")
    assert message in text, text
    return text


def part():
    return Forgetful(comm.rank, options.rows, options.columns, cu.Device())


def read_before_it_arrived():
    """A halo is copied to the device while MPI may still write it."""
    one = part()
    row = cu.LockedBuffer.from_array(np.full(options.columns, comm.rank, "f4"))
    receive = comm.Irecv(arrived.lend(None), other)
    send = comm.Isend(row.lend(None, readonly=True), other)
    halo = one.halo(side)
    text = refused("it is lent to work on no stream", halo.copy_from_async, arrived, one.outer)
    MPI.Request.Waitall([receive, send])
    halo.copy_from_async(arrived, one.outer).wait()
    assert np.array_equal(halo.to_numpy(), np.full(options.columns, other))
    return text


def sent_before_it_was_copied():
    """A row is sent before the copy of the edge from the device to the row is complete."""
    one = part()
    one.compute()
    row = cu.LockedBuffer(options.columns, "f4", name="row")
    row.copy_from_async(one.edge(side), one.outer)
    text = refused("it is being written by copy_from_async", comm.Isend, row.lend(None), other)
    one.finish()
    return text


def sent_while_a_kernel_writes_it():
    """The edge in device memory is passed to MPI while a kernel writes it."""
    one = part()
    one.compute()
    text = refused("it is being written by launch of relax", comm.Isend, one.edge(side), other)
    one.outer.synchronize()
    with one.edge(side).lend(None, readonly=True):
        pass  # allowed while the inner kernel still runs, because that writes other rows
    one.finish()
    return text


def overwritten_while_it_is_sent():
    """The next step copies into a row while MPI still sends it."""
    one = part()
    row = cu.LockedBuffer.zeros(options.columns, "f4", name="row")
    send = comm.Isend(row.lend(None, readonly=True), other)
    text = refused("it is lent", row.copy_from_async, one.edge(side), one.outer)
    comm.Recv(arrived.lend(None), other)
    send.Wait()
    row.copy_from_async(one.edge(side), one.outer).wait()
    return text


def computed_before_the_step_was_over():
    """A kernel reads rows that the inner kernel of the previous step may still write."""
    one = part()
    one.compute()
    one.outer.synchronize()
    one.step_over()
    one.forgets = "inner rows"
    text = refused("by launch of relax", one.compute)
    one.finish()
    return text


MISTAKES = [
    read_before_it_arrived,
    sent_before_it_was_copied,
    sent_while_a_kernel_writes_it,
    overwritten_while_it_is_sent,
    computed_before_the_step_was_over,
]
for mistake in MISTAKES:
    text = mistake()
    assert ".py:" in text, text  # the message names lines of both operations
    comm.Barrier()
if comm.rank == 0:
    print(f"{len(MISTAKES)} mistakes refused")
