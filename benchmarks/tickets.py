"""What it costs to lend a buffer to another process, beside the bare driver calls.

    python benchmarks/tickets.py [--rounds 200] [--bytes 1048576]

The other process opens memory and gives it back: once with the bare calls, once by tickets. Each
round opens memory that is not mapped at that time. "bare open" is cuIpcOpenMemHandle. "bare wait"
is cuStreamWaitEvent for the owner's event, which was opened before: it is part of opening a ticket.
"""

import argparse
import ctypes
import multiprocessing
import statistics
import time

import cudadrv as cu

SHARED_EVENT = 4 | 2  # CU_EVENT_INTERPROCESS, CU_EVENT_DISABLE_TIMING


class Handle(ctypes.Structure):
    """CUipcMemHandle, and CUipcEventHandle."""

    _fields_ = (("reserved", ctypes.c_ubyte * 64),)


def bare_library():
    library = ctypes.CDLL(cu.driver_info().path)
    library.cuIpcGetMemHandle.argtypes = [ctypes.c_void_p, ctypes.c_uint64]
    library.cuIpcOpenMemHandle_v2.argtypes = [ctypes.c_void_p, Handle, ctypes.c_uint]
    library.cuIpcGetEventHandle.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    library.cuIpcOpenEventHandle.argtypes = [ctypes.c_void_p, Handle]
    library.cuStreamWaitEvent.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint]
    library.cuEventRecord.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    library.cuIpcCloseMemHandle.argtypes = [ctypes.c_uint64]
    return library


def measure(function):
    start = time.perf_counter_ns()
    result = function()
    return result, (time.perf_counter_ns() - start) / 1000


def borrow(pipe):
    """The other process: answers each message with the microseconds that opening took."""
    library = bare_library()
    stream, event = cu.Stream(), ctypes.c_void_p()
    with cu.Device(0):
        given = Handle.from_buffer_copy(pipe.recv())
        assert library.cuIpcOpenEventHandle(ctypes.byref(event), given) == 0
        while (message := pipe.recv()) is not None:
            kind, value = message
            if kind == "bare":
                pipe.send(open_bare(library, Handle.from_buffer_copy(value), stream.handle, event))
            else:
                buffer, spent = measure(lambda t=value: cu.open(t, stream))
                receipt, back = measure(lambda b=buffer: b.give_back(stream))
                del buffer
                stream.synchronize()
                cu.reap()  # unmaps the memory, so that the next round maps it again
                pipe.send((spent, back, receipt))


def open_bare(library, handle, stream, event):
    address = ctypes.c_uint64()
    status, opened = measure(
        lambda: library.cuIpcOpenMemHandle_v2(ctypes.byref(address), handle, 1)
    )
    assert status == 0
    status, waited = measure(lambda: library.cuStreamWaitEvent(stream, event, 0))
    assert status == 0
    assert library.cuIpcCloseMemHandle(address) == 0
    return opened, waited


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
    buffer, event = cu.DeviceBuffer(options.bytes), ctypes.c_void_p()
    rows = {name: [] for name in ("bare open", "bare wait", "open", "give_back", "share", "accept")}
    with cu.Device(0):
        handle, shared_event = Handle(), Handle()
        assert library.cuIpcGetMemHandle(ctypes.byref(handle), buffer.address) == 0
        assert library.cuEventCreate(ctypes.byref(event), SHARED_EVENT) == 0
        assert library.cuIpcGetEventHandle(ctypes.byref(shared_event), event) == 0
    pipe.send(bytes(shared_event))
    for number in range(options.rounds + 10):
        with cu.Device(0):
            assert library.cuEventRecord(event, stream.handle) == 0
        pipe.send(("bare", bytes(handle)))
        bare, waited = pipe.recv()
        ticket, shared = measure(lambda: buffer.share(stream))
        pipe.send(("ticket", ticket))
        opened, back, receipt = pipe.recv()
        _, accepted = measure(lambda r=receipt: buffer.accept(r, stream))
        if number >= 10:
            spent = bare, waited, opened, back, shared, accepted
            for row, value in zip(rows.values(), spent, strict=True):
                row.append(value)
    pipe.send(None)
    process.join()
    for name, values in rows.items():
        spread = statistics.quantiles(values, n=10)
        print(f"{name:10} median {statistics.median(values):9.1f} us, 90 % below {spread[-1]:9.1f}")
    bare, waited, opened = (statistics.median(values) for values in list(rows.values())[:3])
    print(f"opening a ticket takes {opened / bare:.2f} of the bare open (at most 1.3 is the aim),")
    print(f"{opened / (bare + waited):.2f} of both bare calls")


if __name__ == "__main__":
    main()
