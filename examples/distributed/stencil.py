"""Heat spreads over a grid that is cut into parts, one for each device. One file for every engine:

    python stencil.py --parts 2                              # the devices of this process
    mpiexec -n 2 python -m mpi4py stencil.py --engine mpi    # one part in each rank
    python stencil.py --parts 2 --engine dask                # one part in each worker

Each part keeps a copy of the nearest row of each neighbour: its halo. In a step a part computes its
outer rows first. They go to the neighbours while a kernel computes the inner rows. At the end the
result is compared with NumPy's.
"""

import argparse
import os
import queue
import time

import numpy as np

import cudadrv as cu

BLOCK = 256
OPPOSITE = {"above": "below", "below": "above"}
# out[y][x] = 0.25 * ((up + down) + (left + right)) of in[y + 1][x]; the outer columns stay as they
# are. The rounding is the same as in NumPy, so the results are equal bit by bit.
PTX = """
.version 6.4
.target sm_75
.address_size 64

.visible .entry relax(.param .u64 out, .param .u64 in, .param .u32 columns)
{
    .reg .pred %outside, %left_end, %right_end;
    .reg .u32 %x, %y, %columns, %last, %block, %threads;
    .reg .u64 %at, %row, %out, %in;
    .reg .f32 %up, %down, %left, %right, %value;
    mov.u32 %block, %ctaid.x;
    mov.u32 %threads, %ntid.x;
    mov.u32 %x, %tid.x;
    mad.lo.u32 %x, %block, %threads, %x;
    mov.u32 %y, %ctaid.y;
    ld.param.u32 %columns, [columns];
    setp.ge.u32 %outside, %x, %columns;
    @%outside bra END;

    ld.param.u64 %out, [out];
    ld.param.u64 %in, [in];
    mul.wide.u32 %row, %columns, 4;             // bytes of a row
    mul.wide.u32 %at, %y, %columns;
    cvt.u64.u32 %in, %x;
    add.u64 %at, %at, %in;
    shl.b64 %at, %at, 2;
    add.u64 %out, %out, %at;
    ld.param.u64 %in, [in];
    add.u64 %in, %in, %at;                      // the row above
    ld.global.f32 %up, [%in];
    add.u64 %in, %in, %row;
    ld.global.f32 %value, [%in];
    sub.u32 %last, %columns, 1;
    setp.eq.u32 %left_end, %x, 0;
    setp.eq.u32 %right_end, %x, %last;
    @%left_end bra STORE;
    @%right_end bra STORE;
    ld.global.f32 %left, [%in+-4];
    ld.global.f32 %right, [%in+4];
    add.u64 %in, %in, %row;
    ld.global.f32 %down, [%in];
    add.rn.f32 %up, %up, %down;
    add.rn.f32 %left, %left, %right;
    add.rn.f32 %up, %up, %left;
    mul.rn.f32 %value, %up, 0f3E800000;
STORE:
    st.global.f32 [%out], %value;
END:
    ret;
}
"""


def grid_rows(first, count, columns):
    """Return some rows of the initial grid."""
    y = np.arange(first, first + count)[:, None]
    return ((y * 7919 + np.arange(columns) * 104729) % 1000 / 1000).astype("f4")


def with_numpy(grid, steps):
    for _ in range(steps):
        after = grid.copy()
        vertical = grid[:-2, 1:-1] + grid[2:, 1:-1]
        horizontal = grid[1:-1, :-2] + grid[1:-1, 2:]
        after[1:-1, 1:-1] = np.float32(0.25) * (vertical + horizontal)
        grid = after
    return grid


class Part:
    """The rows of one device with a halo row above and one below, before and after a step."""

    def __init__(self, index, rows, columns, device):
        grid = grid_rows(index * rows, rows + 2, columns)
        self.rows, self.columns, self.name = rows, columns, f"part {index}"
        self.before, self.after = (
            cu.DeviceBuffer.from_array(grid.ravel(), device=device, name=f"{self.name} {name}")
            for name in "ab"
        )
        first, _ = self.before.context.priority_range
        self.outer = cu.Stream(device=device, priority=first, name=f"{self.name}, outer rows")
        self.inner = cu.Stream(device=device, name=f"{self.name}, inner rows")
        self.outer_done = self.inner_done = self.outer.record()
        self.kernel = cu.Module(PTX, device=device, name="stencil.ptx")["relax"]

    def of(self, buffer, first, count):
        return buffer[first * self.columns : (first + count) * self.columns]

    def relax(self, first, count, stream):
        target = self.of(self.after, first, count)
        source = cu.read(self.of(self.before, first - 1, count + 2))
        blocks = (-(-self.columns // BLOCK), count)
        return self.kernel.launch(blocks, BLOCK, target, source, self.columns, stream=stream)

    def compute(self):
        """Queue the kernels of a step."""
        self.outer.wait(self.inner_done)  # the inner rows of the step before
        self.inner.wait(self.outer_done)
        self.relax_outer()
        self.relax_inner()

    def relax_outer(self):
        self.relax(1, 1, self.outer)
        self.outer_done = self.relax(self.rows, 1, self.outer)

    def relax_inner(self):
        self.inner_done = self.relax(2, self.rows - 2, self.inner)

    def edge(self, side):
        """Return the outer row on one side, which a neighbour needs."""
        return self.of(self.after, 1 if side == "above" else self.rows, 1)

    def halo(self, side):
        return self.of(self.after, 0 if side == "above" else self.rows + 1, 1)

    def pull(self, side, neighbour):
        """Queue the copy of a neighbour's outer row, while the inner kernels run."""
        self.outer.wait(neighbour.outer_done)
        self.halo(side).copy_from_async(neighbour.edge(OPPOSITE[side]), self.outer)

    def step_over(self):
        self.before, self.after = self.after, self.before

    def finish(self):
        self.outer.synchronize()
        self.inner.synchronize()

    def result(self):
        return self.of(self.before, 1, self.rows).to_numpy().reshape(self.rows, self.columns)


def neighbours(index, size):
    """Return the neighbours of a part, by side."""
    beside = {"above": index - 1, "below": index + 1}
    return {side: other for side, other in beside.items() if 0 <= other < size}


def timed(run, steps):
    run(1)  # loads the kernels
    begin = time.perf_counter()
    run(steps)
    return time.perf_counter() - begin


# ---- the devices of this process: copies from device to device ----


def run_on_devices(parts, steps):
    for _ in range(steps):
        for part in parts:
            part.compute()
        for index, part in enumerate(parts):
            for side, other in neighbours(index, len(parts)).items():
                part.pull(side, parts[other])
        for part in parts:
            part.step_over()
    for part in parts:
        part.finish()


def with_devices(options, size):
    devices = cu.Device.all()
    for device in devices[:size]:  # copies are then direct, where the devices are connected
        for peer in devices[:size]:
            if device is not peer and device.can_access(peer):
                device.enable_access(peer)
    parts = [
        Part(index, options.rows, options.columns, devices[index % len(devices)])
        for index in range(size)
    ]
    seconds = timed(lambda steps: run_on_devices(parts, steps), options.steps)
    return seconds, [part.result() for part in parts]


# ---- messages, through page-locked memory ----


class Messages:
    """A part whose neighbours are in other processes. `exchange` sends rows and returns the
    neighbours' rows, by side.
    """

    def __init__(self, part, sides, exchange):
        self.part, self.exchange = part, exchange
        self.outgoing = {
            side: cu.LockedBuffer(part.columns, "f4", name=f"{part.name}, to the one {side}")
            for side in sides
        }

    def run(self, steps):
        part = self.part
        for _ in range(steps):
            part.compute()
            for side, row in self.outgoing.items():
                row.copy_from_async(part.edge(side), part.outer)
            part.outer.synchronize()  # the inner kernel goes on
            for side, row in self.exchange(self.outgoing).items():
                part.halo(side).copy_from_async(row, part.outer)
            part.step_over()
        part.finish()


def with_mpi(options, comm):
    from mpi4py import MPI

    devices = cu.Device.all()
    device = devices[MPI.COMM_WORLD.Split_type(MPI.COMM_TYPE_SHARED).rank % len(devices)]
    beside = neighbours(comm.rank, comm.size)
    incoming = {side: cu.LockedBuffer(options.columns, "f4", name=side) for side in beside}

    def exchange(outgoing):
        requests = []
        for side, rank in beside.items():
            requests.append(comm.Irecv(incoming[side].lend(None), rank))
            requests.append(comm.Isend(outgoing[side].lend(None, readonly=True), rank))
        MPI.Request.Waitall(requests)
        return incoming

    messages = Messages(Part(comm.rank, options.rows, options.columns, device), beside, exchange)
    comm.Barrier()
    seconds = comm.allreduce(timed(messages.run, options.steps), MPI.MAX)
    return seconds, comm.gather(messages.part.result())


class Rank:
    """An actor of Dask: a part, and the rows that its neighbours have delivered."""

    def __init__(self, index, size, options):
        devices = cu.Device.all()
        part = Part(index, options.rows, options.columns, devices[index % len(devices)])
        self.sides, self.patience = list(neighbours(index, size)), options.patience
        self.messages = Messages(part, self.sides, self.exchange)
        self.arrived = {side: queue.SimpleQueue() for side in self.sides}

    def meet(self, beside):
        self.beside = beside

    async def deliver(self, side, row):  # async: runs while `run` occupies the actor's thread
        self.arrived[side].put(row)

    def exchange(self, outgoing):
        sent = [self.beside[side].deliver(OPPOSITE[side], outgoing[side]) for side in self.sides]
        for each in sent:
            each.result(timeout=self.patience)
        return {side: self.row_from(side) for side in self.sides}

    def row_from(self, side):
        try:
            return self.arrived[side].get(timeout=self.patience)
        except queue.Empty:
            raise TimeoutError(
                f"{self.messages.part.name} has waited {self.patience} s for the row of the part"
                f" {side} it; that one's process may have died"
            ) from None

    def run(self, steps):
        return timed(self.messages.run, steps), self.messages.part.result()


def with_dask(options, client, size):
    addresses = list(client.scheduler_info(n_workers=-1)["workers"])
    ranks = [
        client.submit(Rank, index, size, options, actor=True, workers=[addresses[index]])
        for index in range(size)
    ]
    ranks = [rank.result() for rank in ranks]
    for index, rank in enumerate(ranks):
        rank.meet({side: ranks[i] for side, i in neighbours(index, size).items()}).result()
    running = [rank.run(options.steps) for rank in ranks]
    # Not in order: a worker that has died may never answer, but then its neighbours raise.
    while not all(future.done() for future in running):
        for future in running:
            if future.done():
                future.result()
        time.sleep(0.01)
    seconds, rows = zip(*(future.result() for future in running), strict=True)
    return max(seconds), rows


# ---- the program ----


def report(options, size, seconds, rows, alone):
    if options.check:
        grid = grid_rows(0, size * options.rows + 2, options.columns)
        expected = with_numpy(grid, options.steps + 1)[1:-1]
        assert np.array_equal(np.concatenate(rows), expected), "differs from NumPy"
    points = options.rows * options.columns * options.steps / 1e6
    found = ", equal to NumPy" if options.check else ""
    print(f"{size} parts of {options.rows} x {options.columns}, {options.steps} steps{found}")
    print(f"1 part: {points / alone:.4g} million points/s")
    print(f"{size} parts: {size * points / seconds:.4g} million points/s", end="; ")
    print(f"weak scaling: {alone / seconds:.2f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--engine", choices=["devices", "mpi", "dask"], default="devices")
    parser.add_argument("--parts", type=int, default=2, help="with mpi, as many as there are ranks")
    parser.add_argument("--rows", type=int, default=32, help="of a part")
    parser.add_argument("--columns", type=int, default=128)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--no-check", dest="check", action="store_false")
    parser.add_argument("--patience", type=float, default=30, help="seconds, for a row, with dask")
    parser.add_argument("--scheduler", help="the address of a Dask cluster; else it is made here")
    options = parser.parse_args()
    if options.rows < 3:
        parser.error("a part needs 3 rows or more")
    if options.engine == "mpi":
        from mpi4py import MPI

        world = MPI.COMM_WORLD
        alone = with_mpi(options, MPI.COMM_SELF)[0]
        seconds, rows = with_mpi(options, world)
        if world.rank == 0:
            report(options, world.size, seconds, rows, alone)
        return
    if options.engine == "devices":
        # Only the software driver reads this setting: as many devices as there are parts.
        settings = os.environ.get("CUDADRV_SOFTWARE", "")
        os.environ["CUDADRV_SOFTWARE"] = f"devices={options.parts},{settings}"
        alone = with_devices(options, 1)[0]
        report(options, options.parts, *with_devices(options, options.parts), alone)
        return
    from distributed import Client, LocalCluster

    from cudadrv.dask import BufferPlugin

    local = {"n_workers": options.parts, "threads_per_worker": 1, "dashboard_address": ":0"}
    with Client(options.scheduler or LocalCluster(**local)) as client:
        client.register_plugin(BufferPlugin())
        alone = with_dask(options, client, 1)[0]
        report(options, options.parts, *with_dask(options, client, options.parts), alone)


if __name__ == "__main__":
    main()
