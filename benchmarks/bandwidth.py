"""Copies between NumPy arrays and the device, by size: cudadrv, other bindings, the bare driver.

    python benchmarks/bandwidth.py [--json FILE] [--only NAME ...] [--largest BYTES] [--seconds N]

The floor is a copy of page-locked memory by the bare driver in the same process. All copies
alternate, in another order in each round, and figures are medians of the rounds. The arrays were
used before, except in "to a new array": there the system has to map the pages first.
"""

import argparse
import ctypes
import random
import statistics
import sys
import time

import numpy as np
import tables
from machine import about, share_software_driver, write

import cudadrv as cu

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
SIZES = (64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB, GIB)
MOST_ROUNDS, LEAST_ROUNDS = 31, 3
INWARD, OUTWARD, NEW = "to the device", "to the host", "to a new array"


class Peer:
    """A way to copy. Both functions take an array, and return the function that is timed."""

    def __init__(self, into, out_of, keep=None):
        self.into, self.out_of, self.keep = into, out_of, keep


def check(status):
    if status:
        raise RuntimeError(f"the driver returned status {status}")


def bare(nbytes):
    """Return the driver's own copies of ordinary memory."""
    driver = ctypes.CDLL(cu.driver_info().path)
    device = cu.DeviceBuffer(nbytes)
    remote, size = ctypes.c_uint64(device.address), ctypes.c_size_t(nbytes)

    def into(array):
        local = ctypes.c_void_p(array.ctypes.data)
        return lambda: check(driver.cuMemcpyHtoD_v2(remote, local, size))

    def out_of(array):
        local = ctypes.c_void_p(array.ctypes.data)
        return lambda: check(driver.cuMemcpyDtoH_v2(local, remote, size))

    return Peer(into, out_of, device)


def bare_and_wait(nbytes):
    """Return the driver's own copies with a wait for each, because cudadrv's copies wait, too."""
    driver = ctypes.CDLL(cu.driver_info().path)
    device, stream = cu.DeviceBuffer(nbytes), cu.Stream()
    remote, size = ctypes.c_uint64(device.address), ctypes.c_size_t(nbytes)
    queue = ctypes.c_void_p(stream.handle)

    def into(array):
        local = ctypes.c_void_p(array.ctypes.data)

        def call():
            check(driver.cuMemcpyHtoDAsync_v2(remote, local, size, queue))
            check(driver.cuStreamSynchronize(queue))

        return call

    def out_of(array):
        local = ctypes.c_void_p(array.ctypes.data)

        def call():
            check(driver.cuMemcpyDtoHAsync_v2(local, remote, size, queue))
            check(driver.cuStreamSynchronize(queue))

        return call

    return Peer(into, out_of, (device, stream))


def locked(nbytes):
    """Return functions that copy page-locked memory, instead of the array that they are given."""
    driver = ctypes.CDLL(cu.driver_info().path)
    device, host, stream = cu.DeviceBuffer(nbytes), cu.LockedBuffer.zeros(nbytes), cu.Stream()
    remote, local = ctypes.c_uint64(device.address), ctypes.c_void_p(host.address)
    size, queue = ctypes.c_size_t(nbytes), ctypes.c_void_p(stream.handle)

    def into():
        check(driver.cuMemcpyHtoDAsync_v2(remote, local, size, queue))
        check(driver.cuStreamSynchronize(queue))

    def out_of():
        check(driver.cuMemcpyDtoHAsync_v2(local, remote, size, queue))
        check(driver.cuStreamSynchronize(queue))

    return Peer(lambda _: into, lambda _: out_of, (device, host, stream))


def cudadrv(nbytes):
    device, stream = cu.DeviceBuffer(nbytes), cu.Stream()
    return Peer(
        lambda array: lambda: device.copy_from(array, stream=stream),
        lambda array: lambda: device.copy_to(array, stream=stream),
    )


def cuda_bindings(nbytes):
    from cuda.bindings import driver

    device = cu.DeviceBuffer(nbytes)
    remote = driver.CUdeviceptr(device.address)

    def into(array):
        local = array.ctypes.data
        return lambda: check(driver.cuMemcpyHtoD(remote, local, nbytes)[0])

    def out_of(array):
        local = array.ctypes.data
        return lambda: check(driver.cuMemcpyDtoH(local, remote, nbytes)[0])

    return Peer(into, out_of, device)


def cupy(nbytes):
    import cupy

    device, stream = cupy.zeros(nbytes, "u1"), cupy.cuda.Stream(non_blocking=True)

    def into(array):
        def call():
            device.set(array, stream=stream)
            stream.synchronize()

        return call

    return Peer(into, lambda array: lambda: device.get(stream=stream, out=array))


def pycuda(nbytes):
    import pycuda.autoprimaryctx  # noqa: F401 - releases the context at exit
    import pycuda.driver as cuda

    device = cuda.mem_alloc(nbytes)
    return Peer(
        lambda array: lambda: cuda.memcpy_htod(device, array),
        lambda array: lambda: cuda.memcpy_dtoh(array, device),
    )


def pytorch(nbytes):
    import torch

    if not torch.cuda.is_available():
        raise ImportError("this PyTorch has no CUDA")
    device = torch.zeros(nbytes, dtype=torch.uint8, device="cuda")

    def into(array):
        host = torch.from_numpy(array)
        return lambda: device.copy_(host)

    def out_of(array):
        host = torch.from_numpy(array)
        return lambda: host.copy_(device)

    return Peer(into, out_of)


def numba_cuda(nbytes):
    from numba import cuda

    device = cuda.device_array(nbytes, np.uint8)
    return Peer(
        lambda array: lambda: device.copy_to_device(array),
        lambda array: lambda: device.copy_to_host(array),
    )


PEERS = {
    tables.LOCKED: locked,
    tables.DRIVER: bare,
    tables.DRIVER_WAITED: bare_and_wait,
    "cudadrv": cudadrv,
    "cuda.bindings": cuda_bindings,
    "CuPy": cupy,
    "PyCUDA": pycuda,
    "PyTorch": pytorch,
    "numba-cuda": numba_cuda,
}


def ready(nbytes, source, names):
    """Return the peers that can copy, warmed up, after a check that they really copy."""
    found = {}
    for name in names:
        try:
            peer = PEERS[name](nbytes)
            array = np.zeros(nbytes, "u1")
            peer.into(source)()
            peer.out_of(array)()
        except Exception as error:
            print(f"without {name}: {type(error).__name__}: {error}", file=sys.stderr)
        else:
            if name != tables.LOCKED and not np.array_equal(array, source):
                sys.exit(f"{name} did not copy what was there")
            found[name] = peer
    return found


def timed(peer, way, array):
    """Copy once, and return the bytes per nanosecond, which are GB/s."""
    if way == NEW:
        array = np.empty(len(array), "u1")
    call = peer.into(array) if way == INWARD else peer.out_of(array)
    start = time.perf_counter_ns()
    call()
    return len(array) / (time.perf_counter_ns() - start)


def measure(peers, array, deadline):
    """Return ``{way: {name: [GB/s, ...]}}``"""
    turns = [
        (way, name)
        for way in (INWARD, OUTWARD, NEW)
        for name in peers
        if (way, name) != (NEW, tables.LOCKED)
    ]
    rates = {way: {name: [] for at, name in turns if at == way} for way in (INWARD, OUTWARD, NEW)}
    order = random.Random(0)
    for done in range(MOST_ROUNDS):
        if done >= LEAST_ROUNDS and time.monotonic() > deadline:
            break
        order.shuffle(turns)
        for way, name in turns:
            rates[way][name].append(timed(peers[name], way, array))
    return rates


def summary(rates):
    ordered = sorted(rates)
    quarter = len(ordered) // 4
    figures = (statistics.median(ordered), ordered[quarter], ordered[-1 - quarter])
    return dict(zip(("median", "low", "high"), (round(rate, 3) for rate in figures), strict=True))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", help="also write the figures, with machine and versions, here")
    parser.add_argument("--largest", type=int, help="bytes (default: 1 GiB, in software 64 MiB)")
    parser.add_argument("--seconds", type=float, default=40, help="about how long (default 40)")
    parser.add_argument("--only", nargs="+", metavar="NAME", help=f"of {', '.join(PEERS)}")
    options = parser.parse_args()
    share_software_driver()
    machine, floors = about(), (tables.LOCKED, tables.DRIVER, tables.DRIVER_WAITED)
    names = [name for name in PEERS if name in (*floors, *(options.only or PEERS))]
    largest = options.largest or (64 * MIB if machine["software"] else GIB)
    sizes = [nbytes for nbytes in SIZES if nbytes <= largest]
    rows = {way: {} for way in (INWARD, OUTWARD, NEW)}
    source = np.resize(np.arange(251, dtype="u1"), sizes[-1])
    for nbytes in sizes:
        peers = ready(nbytes, source[:nbytes], names)
        names = list(peers)  # a peer that failed is reported only once
        rates = measure(peers, source[:nbytes], time.monotonic() + options.seconds / len(sizes))
        for way, found in rates.items():
            rows[way][str(nbytes)] = {name: summary(figures) for name, figures in found.items()}
    print(tables.head(machine), "\n")
    print(tables.bandwidth(rows))
    if options.json:
        write(options.json, rows, machine)


if __name__ == "__main__":
    main()
