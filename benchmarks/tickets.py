"""What it costs to lend a buffer to another process, beside the bare driver calls.

    python benchmarks/tickets.py [--rounds 200] [--bytes 1048576]

The other process opens and gives back: once with cuIpcOpenMemHandle and cuIpcCloseMemHandle alone,
once by tickets. Each round opens memory that is not mapped at that time.
"""

import argparse
import ctypes
import multiprocessing
import statistics
import time

import cudadrv as cu


class Handle(ctypes.Structure):
    """CUipcMemHandle."""

    _fields_ = (("reserved", ctypes.c_ubyte * 64),)


def bare_library():
    library = ctypes.CDLL(cu.driver_info().path)
    library.cuIpcGetMemHandle.argtypes = [ctypes.c_void_p, ctypes.c_uint64]
    library.cuIpcOpenMemHandle_v2.argtypes = [ctypes.c_void_p, Handle, ctypes.c_uint]
    library.cuIpcCloseMemHandle.argtypes = [ctypes.c_uint64]
    return library


def measure(function):
    start = time.perf_counter_ns()
    result = function()
    return result, (time.perf_counter_ns() - start) / 1000


def borrow(pipe):
    """The other process: answers each message with the microseconds that opening took."""
    library = bare_library()
    stream = cu.Stream()
    while (message := pipe.recv()) is not None:
        kind, value = message
        with cu.Device(0):
            if kind == "bare":
                address = ctypes.c_uint64()
                handle = Handle.from_buffer_copy(value)
                status, spent = measure(
                    lambda h=handle, a=address: library.cuIpcOpenMemHandle_v2(ctypes.byref(a), h, 1)
                )
                assert status == 0
                assert library.cuIpcCloseMemHandle(address) == 0
                pipe.send((spent, 0, None))
            else:
                buffer, spent = measure(lambda t=value: cu.open(t, stream))
                receipt, back = measure(lambda b=buffer: b.give_back(stream))
                del buffer
                stream.synchronize()
                cu.reap()  # unmaps the memory, so that the next round maps it again
                pipe.send((spent, back, receipt))


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--bytes", type=int, default=1 << 20)
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    pipe, there = context.Pipe()
    process = context.Process(target=borrow, args=(there,))
    process.start()
    library, stream = bare_library(), cu.Stream()
    buffer = cu.DeviceBuffer(options.bytes)
    rows = {name: [] for name in ("bare open", "open", "give_back", "share", "accept")}
    with cu.Device(0):
        handle = Handle()
        assert library.cuIpcGetMemHandle(ctypes.byref(handle), buffer.address) == 0
    for number in range(options.rounds + 10):
        pipe.send(("bare", bytes(handle)))
        bare, _, _ = pipe.recv()
        ticket, shared = measure(lambda: buffer.share(stream))
        pipe.send(("ticket", ticket))
        opened, back, receipt = pipe.recv()
        _, accepted = measure(lambda r=receipt: buffer.accept(r, stream))
        if number >= 10:
            spent = bare, opened, back, shared, accepted
            for row, value in zip(rows.values(), spent, strict=True):
                row.append(value)
    pipe.send(None)
    process.join()
    for name, values in rows.items():
        spread = statistics.quantiles(values, n=10)
        print(f"{name:10} median {statistics.median(values):9.1f} us, 90 % below {spread[-1]:9.1f}")
    ratio = statistics.median(rows["open"]) / statistics.median(rows["bare open"])
    print(f"opening a ticket takes {ratio:.2f} of the bare call (at most 1.3 is the aim)")


if __name__ == "__main__":
    main()
