"""What graphs cost: a launch by nodes and buffers, changes, and steps as calls and as a graph.

    python benchmarks/graphs.py [--json FILE] [--rounds N]

Each node launches an empty kernel with two pointers. Graphs are timed as by calls.py, in one
process, in turn: bare from C and from Python, through cudadrv, cuda.core and CuPy, and through
PyTorch, whose nodes are PyTorch's kernels. If a binding has no call for a row, the row stays empty.
"""

import argparse

import numpy as np
import tables
from calls import (
    FLOOR,
    PYTHON_FLOOR,
    ROUNDS,
    add_bindings,
    measure,
    prepared,
    show,
    stay_on_the_quickest_processor,
    timers,
)
from floor import Floor
from machine import about, share_software_driver
from peers import KERNEL, NBYTES, PTX, Peer

import cudadrv as cu

LAUNCHES = ((1, 1), (5, 1), (20, 1), (100, 1), (32, 2), (32, 8), (32, 32))  # nodes, buffers
STEPS = (20, 50)
CHANGED = 20  # nodes of the graph that is changed
# How often each graph is made. Some executables are slow: each of their launches takes 1 us longer,
# even by the bare call.
MADE = 3


def name_of(nodes, buffers):
    return f"launch {nodes} {buffers}"


def rows_of(launch, call):
    """Return a binding's rows. `launch` launches a graph, `call` the kernel of one node."""
    rows = {
        name_of(nodes, buffers): launch.format(f"graph_{nodes}_{buffers}")
        for nodes, buffers in LAUNCHES
    }
    for count in STEPS:
        rows[f"step {count} calls"] = f"for _ in range({count}): {call}"
        rows[f"step {count} graph"] = launch.format(f"graph_{count}_1")
    return rows


def graphs_of(make, buffers):
    """Return graphs by name. `make(pairs)` makes one, which launches the kernel on each pair."""
    sizes = {*LAUNCHES, *((count, 1) for count in STEPS)}
    return {
        f"graph_{nodes}_{count}": make(
            [(buffers[i % count], buffers[(i + 1) % count]) for i in range(nodes)]
        )
        for nodes, count in sizes
    }


def cudadrv():
    stream = cu.Stream()
    buffers = [cu.DeviceBuffer.zeros(NBYTES) for _ in range(32)]
    kernel = cu.Module(PTX)[KERNEL]

    def template(pairs):
        graph = cu.Graph()
        with graph.capture(stream):
            for x, y in pairs:
                kernel.launch(1, 32, 32, 2.0, x, y, stream=stream)
        return graph

    x, y = buffers[:2]
    other = template([(x, y)] * CHANGED)
    changed = other.instantiate()
    rows = rows_of("{}.launch(stream)", "kernel.launch(1, 32, 32, 2.0, x, x, stream=stream)")
    rows["update"] = "changed.update(other)"
    rows["set"] = "node.set(32, 2.0, x, y)"
    names = graphs_of(lambda pairs: template(pairs).instantiate(), buffers)
    return Peer(
        stream.synchronize, rows, stream=stream, kernel=kernel, x=x, y=y, changed=changed,
        other=other, node=changed[other.nodes[0]], **names,
    )  # fmt: skip


def floor():
    """Return the bare calls, from C and from Python, in rows as `timers` returns them."""
    with cu.Device(0):
        bare = Floor(cu.driver_info().path, PTX.encode() + b"\0", KERNEL)
        stream = cu.Stream()
        buffers = [cu.DeviceBuffer.zeros(NBYTES) for _ in range(32)]
        bare.things.stream = stream.handle
        addresses = [buffer.address for buffer in buffers]

        def made(pairs):
            return bare.graph(len(pairs), list(dict.fromkeys(x for x, _ in pairs)))

        graphs = graphs_of(made, addresses)
        changed = bare.graph(CHANGED, addresses[:2])
        bare.things.device = bare.things.other = addresses[0]
    calls = {name: ("graph", things) for name, things in graphs.items()}
    calls.update(launch=("launch", None), update=("update", changed), set=("set", changed))
    functions = {name: bare.for_python(*call) for name, call in calls.items()}
    rows = rows_of("{}(stream)", "launch(1, 32, 32, 2.0, x, x, stream)")
    rows.update(update="update(other)", set="set(32, 2.0, x, y)")
    x, y = buffers[:2]
    python = Peer(stream.synchronize, rows, stream=stream, x=x, y=y, other=changed, **functions)
    found = {FLOOR: from_c(bare, calls), PYTHON_FLOOR: timers(python)}
    return found, (bare, python, buffers, graphs)


def from_c(bare, calls):
    """Return the rows in C: `calls` has, by name, a row of floor.c and its arguments."""

    def timer(name, times=1):
        row, things = calls[name]

        def run(count):
            return bare.timed(row, count * times, things) * times

        return [(None, (run, run))]

    rows = {name_of(n, b): timer(f"graph_{n}_{b}") for n, b in LAUNCHES}
    for count in STEPS:
        rows[f"step {count} calls"] = timer("launch", times=count)
        rows[f"step {count} graph"] = timer(f"graph_{count}_1")
    return {**rows, "update": timer("update"), "set": timer("set")}


def cuda_core():
    import cuda.core as core

    unit = core.Device(0)
    unit.set_current()
    stream = unit.create_stream()
    kernel = core.ObjectCode.from_ptx(PTX.encode()).get_kernel(KERNEL)
    memory = [unit.allocate(NBYTES, stream=stream) for _ in range(32)]
    buffers = [each.handle for each in memory]
    numbers, config = (np.int32(32), np.float32(2)), core.LaunchConfig(grid=1, block=32)

    def built(pairs):
        builder = unit.create_graph_builder().begin_building()
        for x, y in pairs:
            core.launch(builder, config, kernel, *numbers, x, y)
        return builder.end_building()

    other = built([(buffers[0], buffers[1])] * CHANGED)
    changed = other.complete()
    rows = rows_of("{}.launch(stream)", "launch(stream, config, kernel, *numbers, x, x)")
    rows["update"] = "changed.update(other)"
    names = graphs_of(lambda pairs: built(pairs).complete(), buffers)
    return Peer(
        stream.sync, rows, stream=stream, launch=core.launch, config=config, kernel=kernel,
        numbers=numbers, x=buffers[0], changed=changed, other=other, memory=memory, **names,
    )  # fmt: skip


def cupy():
    import cupy

    stream = cupy.cuda.Stream(non_blocking=True)
    buffers = [cupy.zeros(NBYTES, "u1") for _ in range(32)]
    raw = cupy.RawModule(
        code=f'extern "C" __global__ void {KERNEL}(int, float, float *, float *) {{}}'
    )
    kernel, numbers = raw.get_function(KERNEL), (np.int32(32), np.float32(2))

    def captured(pairs):
        with stream:
            stream.begin_capture()
            for x, y in pairs:
                kernel((1,), (32,), (*numbers, x, y))
            return stream.end_capture()

    rows = rows_of("{}.launch(stream)", "kernel((1,), (32,), (*numbers, x, x))")
    names = graphs_of(captured, buffers)
    stream.use()
    return Peer(
        stream.synchronize, rows, stream=stream, kernel=kernel, numbers=numbers, x=buffers[0],
        **names,
    )  # fmt: skip


def pytorch():
    """PyTorch's nodes add 1 to a tensor. A graph is launched on the current stream."""
    import torch

    torch.set_grad_enabled(False)
    stream = torch.cuda.Stream()
    torch.cuda.set_stream(stream)
    buffers = [torch.zeros(NBYTES, dtype=torch.uint8, device="cuda") for _ in range(32)]

    def captured(pairs):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for x, _ in pairs:
                x.add_(1)
        return graph

    rows = rows_of("{}.replay()", "x.add_(1)")
    names = graphs_of(captured, buffers)
    torch.cuda.set_stream(stream)
    return Peer(stream.synchronize, rows, x=buffers[0], **names)


PEERS = {"cudadrv": cudadrv, "cuda.core": cuda_core, "CuPy": cupy, "PyTorch": pytorch}


def measured(only, rounds):
    """Return the table, measured with newly made graphs."""
    found, keep = floor()
    others = add_bindings(found, PEERS, only)
    table = prepared(found, tables.GRAPHS)
    measure(table, rounds)
    del keep, others
    return table


def add(table, another):
    """Add the figures of another table. A cell that it lacks is left out."""
    for row, cells in table.items():
        for name in cells.keys() - another[row].keys():
            del cells[name]
        for name, cell in cells.items():
            for figures, more in zip(cell.figures, another[row][name].figures, strict=True):
                figures.extend(more)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", help="also write the figures, with machine and versions, here")
    parser.add_argument("--only", nargs="+", metavar="NAME", help=f"of {', '.join(PEERS)}")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"default {ROUNDS}")
    options = parser.parse_args()
    share_software_driver()
    machine = about()
    if not machine["software"]:
        stay_on_the_quickest_processor()
    made = min(options.rounds, MADE)
    options.rounds -= options.rounds % made
    table = measured(options.only, options.rounds // made)
    for _ in range(made - 1):
        add(table, measured(options.only, options.rounds // made))
    show(table, machine, options, tables.graphs)


if __name__ == "__main__":
    main()
