"""Copies between two devices: cudadrv, other bindings, and the bare driver called from C.

    python benchmarks/devices.py [--json FILE] [--only NAME ...] [--largest BYTES] [--seconds N]

Each figure is for a few copies that are queued one after the other, and a wait for all. The ways:
from device 0 to 1 and back, each on a stream of the source; the halves of the same bytes on two
streams, one of each device; and both directions at once. All are measured first without access of
the devices to each other, then with it. The ways alternate, in another order in each round, and
figures are medians.

PyTorch gives access by itself, so it is left out of the copies without access.
"""

import argparse
import ctypes
import os
import random
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import tables
from machine import about, share_software_driver, write

import cudadrv as cu

HERE = Path(__file__).resolve().parent
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
SIZES = (64 * KIB, MIB, 16 * MIB, 256 * MIB, GIB)
MOST_ROUNDS, LEAST_ROUNDS = 31, 3
AT_ONCE = 64 * MIB  # the most bytes of copies that are queued at once, or one copy
MOST_COPIES = 64  # the most copies that are queued at once
C = "bare driver from C"
WAYS = ("0 to 1", "1 to 0", "0 to 1, two streams", "both at once")


def parts(way, nbytes):
    """Return the copies of a way: source device, first byte, end, device of the stream."""
    half = nbytes // 2
    return {
        "0 to 1": [(0, 0, nbytes, 0)],
        "1 to 0": [(1, 0, nbytes, 1)],
        "0 to 1, two streams": [(0, 0, half, 0), (0, half, nbytes, 1)],
        "both at once": [(0, 0, half, 0), (1, half, nbytes, 1)],
    }[way]


class Memory:
    """The buffers and streams that the bare driver and cudadrv use."""

    def __init__(self, nbytes):
        self.devices = cu.Device(0), cu.Device(1)
        self.streams = [cu.Stream(device=device) for device in self.devices]
        self.buffers = [cu.DeviceBuffer(nbytes, device=device) for device in self.devices]


# Each of these functions takes the number of bytes. It returns run(way, turns), which makes the
# copies and returns the seconds that they took.


class Job(ctypes.Structure):
    """The structure `job` of devices.c."""

    _fields_ = [
        ("target", ctypes.c_uint64),
        ("source", ctypes.c_uint64),
        ("target_context", ctypes.c_void_p),
        ("source_context", ctypes.c_void_p),
        ("bytes", ctypes.c_size_t),
        ("stream", ctypes.c_void_p),
    ]


def compiled():
    """Compile devices.c and return it as a library."""
    sys.path.insert(0, str(HERE.parent))
    from cuda_header import find_cuda_header

    target = Path(tempfile.mkdtemp(), "devices.so")
    command = [*shlex.split(os.environ.get("CC", "cc")), "-O2", "-shared", "-fPIC"]
    command += [f"-I{find_cuda_header().folder}", HERE / "devices.c", "-o", target, "-ldl"]
    subprocess.run(command, check=True)
    library = ctypes.CDLL(str(target))
    library.devices_run.restype = ctypes.c_double
    library.devices_run.argtypes = [ctypes.POINTER(Job), ctypes.c_int, ctypes.c_int]
    if not library.devices_open(cu.driver_info().path.encode()):
        raise RuntimeError(f"{cu.driver_info().path} cannot be opened")
    return library


def in_c(nbytes):
    library, memory = compiled(), Memory(nbytes)

    def run(way, turns):
        jobs = [
            Job(
                memory.buffers[1 - source].address + start,
                memory.buffers[source].address + start,
                memory.devices[1 - source].context.handle,
                memory.devices[source].context.handle,
                stop - start,
                memory.streams[stream].handle,
            )
            for source, start, stop, stream in parts(way, nbytes)
        ]
        seconds = library.devices_run((Job * len(jobs))(*jobs), len(jobs), turns)
        if seconds < 0:
            raise RuntimeError("the driver refused a copy")
        return seconds

    return run


def timed(calls, waits, turns):
    start = time.perf_counter()
    for _ in range(turns):
        for call in calls:
            call()
    for wait in waits:
        wait()
    return time.perf_counter() - start


def cudadrv(nbytes):
    memory = Memory(nbytes)

    def run(way, turns):
        calls = []
        for source, start, stop, at in parts(way, nbytes):
            target, origin = (memory.buffers[at][start:stop] for at in (1 - source, source))
            stream = memory.streams[at]
            calls.append(lambda t=target, o=origin, s=stream: t.copy_from_async(o, s))
        return timed(calls, [stream.synchronize for stream in memory.streams], turns)

    return run


def cuda_core(nbytes):
    from cuda.core import Buffer, Device

    memory, streams = Memory(nbytes), []
    for ordinal in (0, 1):
        device = Device(ordinal)
        device.set_current()
        streams.append(device.create_stream())

    def part(device, start, stop):  # cuda.core's buffers have no parts: use an address
        return Buffer.from_handle(memory.buffers[device].address + start, stop - start)

    def run(way, turns):
        calls = []
        for source, start, stop, at in parts(way, nbytes):
            target, origin = part(1 - source, start, stop), part(source, start, stop)
            calls.append(lambda t=target, o=origin, s=streams[at]: t.copy_from(o, stream=s))
        return timed(calls, [stream.sync for stream in streams], turns)

    return run


def cupy(nbytes):
    import cupy

    arrays, streams = [], []
    for ordinal in (0, 1):
        with cupy.cuda.Device(ordinal):
            arrays.append(cupy.zeros(nbytes, "u1"))
            streams.append(cupy.cuda.Stream(non_blocking=True))
            cupy.cuda.Device().synchronize()
    copy = cupy.cuda.runtime.memcpyPeerAsync

    def run(way, turns):
        calls = []
        for source, start, stop, at in parts(way, nbytes):
            arguments = (
                arrays[1 - source].data.ptr + start,
                1 - source,
                arrays[source].data.ptr + start,
                source,
                stop - start,
                streams[at].ptr,
            )
            calls.append(lambda a=arguments: copy(*a))
        return timed(calls, [stream.synchronize for stream in streams], turns)

    return run


def pytorch(nbytes):
    import torch

    if torch.cuda.device_count() < 2:
        raise ImportError("this PyTorch has no two devices")
    tensors = [torch.zeros(nbytes, dtype=torch.uint8, device=f"cuda:{i}") for i in (0, 1)]
    streams = [torch.cuda.Stream(device=f"cuda:{i}") for i in (0, 1)]
    torch.cuda.synchronize(0), torch.cuda.synchronize(1)

    def run(way, turns):
        calls = []
        for source, start, stop, _ in parts(way, nbytes):
            target, origin = tensors[1 - source][start:stop], tensors[source][start:stop]
            # PyTorch always copies on the current stream of the source's device.
            stream = streams[source]

            def call(t=target, o=origin, s=stream):
                with torch.cuda.stream(s):
                    t.copy_(o, non_blocking=True)

            calls.append(call)
        return timed(calls, [stream.synchronize for stream in streams], turns)

    return run


PEERS = {C: in_c, "cudadrv": cudadrv, "cuda.core": cuda_core, "CuPy": cupy, "PyTorch": pytorch}
GIVES_ACCESS = ("PyTorch",)  # the peers that always enable access


def check_copies():
    """Exit with a message if a copy by cudadrv, in any of WAYS, changes the items."""
    items = np.random.default_rng(1).integers(0, 256, MIB, dtype="u1")
    memory = Memory(MIB)
    for way in WAYS:
        for source, start, stop, at in parts(way, MIB):
            memory.buffers[source][start:stop].copy_from(items[start:stop])
            memory.buffers[1 - source][start:stop].fill(0)
            target, origin = memory.buffers[1 - source][start:stop], memory.buffers[source]
            target.copy_from_async(origin[start:stop], memory.streams[at]).wait()
            if not np.array_equal(target.to_numpy(), items[start:stop]):
                sys.exit(f"cudadrv did not copy what was there: {way}")


def ready(nbytes, names):
    found = {}
    for name in names:
        try:
            found[name] = PEERS[name](nbytes)
            for way in WAYS:
                found[name](way, 1)
        except Exception as error:
            print(f"without {name}: {type(error).__name__}: {error}", file=sys.stderr)
            found.pop(name, None)
    return found


def measure(peers, nbytes, deadline):
    """Return ``{way: {name: [GB/s, ...]}}``"""
    turns = max(1, min(MOST_COPIES, AT_ONCE // nbytes))
    order, each = random.Random(0), [(way, name) for way in WAYS for name in peers]
    rates = {way: {name: [] for name in peers} for way in WAYS}
    for done in range(MOST_ROUNDS):
        if done >= LEAST_ROUNDS and time.monotonic() > deadline:
            break
        order.shuffle(each)
        for way, name in each:
            rates[way][name].append(turns * nbytes / peers[name](way, turns) / 1e9)
    return rates


def row(way, nbytes, access, rates):
    ordered = {name: sorted(figures) for name, figures in rates.items()}
    return {
        "way": way,
        "nbytes": nbytes,
        "access": access,
        "rates": {
            name: {
                "median": round(statistics.median(figures), 3),
                "low": round(figures[len(figures) // 4], 3),
                "high": round(figures[-1 - len(figures) // 4], 3),
            }
            for name, figures in ordered.items()
        },
    }


def table(rows, names):
    """Return a Markdown table: GB/s, and the fraction of the bare driver's GB/s."""
    lines = [f"| GB/s | bytes | access | {' | '.join(names)} |", "|---" * (3 + len(names)) + "|"]
    for each in rows:
        bare = each["rates"].get(C, {}).get("median")
        cells = []
        for name in names:
            rate = each["rates"].get(name, {}).get("median")
            share = f" ({rate / bare:.2f})" if rate and bare and name != C else ""
            cells.append(f"{rate:.1f}{share}" if rate else "-")
        access = "yes" if each["access"] else "no"
        lines.append(f"| {each['way']} | {each['nbytes']:,} | {access} | {' | '.join(cells)} |")
    return "\n".join(lines)


def set_access(given):
    for device, peer in ((cu.Device(0), cu.Device(1)), (cu.Device(1), cu.Device(0))):
        if not given:
            device.disable_access(peer)
        elif device.can_access(peer):
            device.enable_access(peer)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", help="also write the figures, with machine and versions, here")
    parser.add_argument("--largest", type=int, help="bytes (default: 1 GiB, in software 16 MiB)")
    parser.add_argument("--seconds", type=float, default=60, help="about how long (default 60)")
    parser.add_argument("--only", nargs="+", metavar="NAME", help=f"of {', '.join(PEERS)}")
    options = parser.parse_args()
    share_software_driver()
    if cu.Device.count() < 2:
        sys.exit("this needs two devices; on the software driver: CUDADRV_SOFTWARE=devices=2")
    machine = about()
    largest = options.largest or (16 * MIB if machine["software"] else GIB)
    sizes = [nbytes for nbytes in SIZES if nbytes <= largest]
    check_copies()
    names = [name for name in PEERS if name in (C, *(options.only or PEERS))]
    rows = []
    for access in (False, True):
        set_access(access)
        wanted = [name for name in names if access or name not in GIVES_ACCESS]
        for nbytes in sizes:
            peers = ready(nbytes, wanted)
            wanted = list(peers)  # a peer that failed is reported only once
            deadline = time.monotonic() + options.seconds / 2 / len(sizes)
            for way, rates in measure(peers, nbytes, deadline).items():
                rows.append(row(way, nbytes, access, rates))
    print(tables.head(machine), cu.Device(0).link_to(cu.Device(1)), "\n", sep="\n")
    print(table(rows, names))
    if options.json:
        write(options.json, rows, machine)


if __name__ == "__main__":
    main()
