"""The race detector: planted races are reported, correct programs are not, under every schedule."""

import ctypes
import threading

import pytest

from .client import GEQ, HOST_FUNCTION, LEGACY, SUCCESS, Client, poll

pytestmark = pytest.mark.software_only

SIZE = 256
FILL, UPLOAD, DOWNLOAD, MOVE = (
    "cuMemsetD8Async",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyDtoDAsync_v2",
)


class Program(Client):
    """Short words for what these programs do."""

    def fill(self, target, stream, size=SIZE):
        self.ok(FILL, target, 1, size, stream)

    def fill_rows(self, target, pitch, width, rows, stream):
        self.ok("cuMemsetD2D32Async", target, pitch, 1, width // 4, rows, stream)

    def upload(self, target, source, stream, size=SIZE):
        self.ok(UPLOAD, target, source, size, stream)

    def download(self, target, source, stream, size=SIZE):
        self.ok(DOWNLOAD, target, source, size, stream)

    def move(self, target, source, stream, size=SIZE):
        self.ok(MOVE, target, source, size, stream)

    def sync(self, stream):
        self.ok("cuStreamSynchronize", stream)

    def record(self, stream, event=None):
        event = event or self.event()
        self.ok("cuEventRecord", event, stream)
        return event

    def wait(self, stream, event):
        self.ok("cuStreamWaitEvent", stream, event, 0)

    def order(self, before, after):
        self.wait(after, self.record(before))

    def wait_value(self, stream, address, value=1):
        self.ok("cuStreamWaitValue32_v2", stream, address, value, GEQ)

    def write_value(self, stream, address, value=1):
        self.ok("cuStreamWriteValue32_v2", stream, address, value, 0)

    def host_function(self, stream, function):
        self.keep = [*getattr(self, "keep", []), HOST_FUNCTION(lambda _: function())]
        self.ok("cuLaunchHostFunc", stream, self.keep[-1], None)

    def allocate_async(self, stream, size=SIZE):
        address = ctypes.c_uint64()
        self.ok("cuMemAllocAsync", ctypes.byref(address), size, stream)
        return address.value

    def free(self, address):
        self.forget("cuMemFree_v2", address)
        self.ok("cuMemFree_v2", address)

    def streams(self, flags=1):
        return self.stream(flags), self.stream(flags)


@pytest.fixture
def program(software, schedule):
    software.configure(f"schedule={schedule},seed=3,fault=none,races=record")
    with Program(software) as program:
        program.ok("cuCtxSynchronize")
        software.forget_races()
        yield program
        for gate in program._gates:
            gate.open()
        program.ok("cuCtxSynchronize")
    software.forget_races()


def store(address, value=7, offset=0):
    ctypes.c_ubyte.from_address(address + offset).value = value


# Planted races. Each returns the functions that the report must name, in any order.


def two_writers(p):
    a, b = p.streams()
    x = p.device(SIZE)
    p.fill(x, a)
    p.ok("cuMemsetD32Async", x, 1, 4, b)
    return FILL, "cuMemsetD32Async"


def reader_and_writer(p):
    a, b = p.streams()
    x, y = p.device(SIZE), p.host(SIZE)
    p.download(y, x, a)
    p.fill(x + SIZE - 1, b, 1)
    return FILL, DOWNLOAD


def writer_and_reader(p):
    a, b = p.streams()
    x, y = p.device(SIZE), p.device(SIZE)
    p.fill(x, a)
    p.move(y, x, b)
    return FILL, MOVE


def writer_waits_for_one_of_two_readers(p):
    a, b = p.streams()
    c = p.stream()
    x, y, z = p.device(SIZE), p.host(SIZE), p.device(SIZE)
    p.download(y, x, a)
    p.move(z, x, b)
    p.order(a, c)
    p.fill(x, c)
    return FILL, MOVE


def writer_waits_for_the_other_of_two_readers(p):
    a, b = p.streams()
    c = p.stream()
    x, y, z = p.device(SIZE), p.host(SIZE), p.device(SIZE)
    p.download(y, x, a)
    p.move(z, x, b)
    p.order(b, c)
    p.fill(x, c)
    return FILL, DOWNLOAD


def stale_event(p):
    a, b = p.streams()
    x = p.device(SIZE)
    event = p.record(a)
    p.fill(x, a)
    p.wait(b, event)
    p.ok("cuMemsetD32Async", x, 1, 4, b)
    return FILL, "cuMemsetD32Async"


def event_recorded_again_after_the_wait(p):
    a, b = p.streams()
    x, y = p.device(SIZE), p.host(SIZE)
    event = p.record(a)
    p.wait(b, event)
    p.fill(x, a)
    p.record(a, event)
    p.download(y, x, b)
    return FILL, DOWNLOAD


def event_never_recorded(p):
    a, b = p.streams()
    x, y = p.device(SIZE), p.host(SIZE)
    p.fill(x, a)
    p.wait(b, p.event())
    p.download(y, x, b)
    return FILL, DOWNLOAD


def legacy_and_non_blocking(p):
    x, y = p.device(SIZE), p.device(SIZE)
    p.fill(x, p.stream())
    p.move(y, x, LEGACY)
    return FILL, MOVE


def two_blocking_streams(p):
    a, b = p.streams(0)
    x, y = p.device(SIZE), p.device(SIZE)
    p.fill(x, a)
    p.move(y, x, b)
    return FILL, MOVE


def synchronous_copy_and_non_blocking(p):
    x, y = p.device(SIZE), ctypes.create_string_buffer(SIZE)
    p.fill(x, p.stream())
    p.ok("cuMemcpyDtoH_v2", y, x, SIZE)
    return FILL, "cuMemcpyDtoH_v2"


def device_copy_does_not_wait(p):
    x, y = p.device(SIZE), p.device(SIZE)
    p.ok("cuMemcpyDtoD_v2", x, y, SIZE)
    p.fill(y, p.stream())
    return FILL, "cuMemcpyDtoD_v2"


def synchronous_fill_does_not_wait(p):
    x = p.device(SIZE)
    p.ok("cuMemsetD8_v2", x, 1, SIZE)
    p.fill(x, p.stream())
    return FILL, "cuMemsetD8_v2"


def staged_upload_may_still_arrive(p):
    x, y = p.device(SIZE), ctypes.create_string_buffer(SIZE)
    p.ok("cuMemcpyHtoD_v2", x, y, SIZE)
    p.fill(x, p.stream())
    return FILL, "cuMemcpyHtoD_v2"


def large_upload_may_still_arrive(p):
    size = 1 << 17
    x, y = p.device(size), ctypes.create_string_buffer(size)
    p.ok("cuMemcpyHtoD_v2", x, y, size)
    p.fill(x, p.stream())
    return FILL, "cuMemcpyHtoD_v2"


def pageable_upload_promises_nothing(p):
    a, b = p.streams()
    x, y = p.device(SIZE), ctypes.create_string_buffer(SIZE)
    p.upload(x, y, a)
    p.fill(x, b)
    return FILL, UPLOAD


def per_thread_streams(p):
    x = p.device(SIZE)
    p.fill(x, 2)

    def other():
        p.ok("cuCtxSetCurrent", p.lib.primary)
        p.ok("cuMemsetD32Async", x, 1, 4, 2)

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    return FILL, "cuMemsetD32Async"


def used_before_stream_ordered_allocation(p):
    a, b = p.streams()
    x = p.allocate_async(a)
    p.fill(x, b)
    p.ok("cuCtxSynchronize")
    p.ok("cuMemFreeAsync", x, a)
    return FILL, "cuMemAllocAsync"


def freed_in_another_stream(p):
    a, b = p.streams()
    x = p.allocate_async(a)
    p.order(a, b)
    p.fill(x, b)
    p.ok("cuMemFreeAsync", x, a)
    return FILL, "cuMemFreeAsync"


def freed_under_pending_work(p):
    a, x = p.stream(), p.device(SIZE)
    p.fill(x, a)
    p.free(x)
    return FILL, "cuMemFree_v2"


def stream_ordered_memory_freed_by_the_host(p):
    a = p.stream()
    x = p.allocate_async(a)
    p.fill(x, a)
    p.ok("cuMemFree_v2", x)
    return FILL, "cuMemFree_v2"


def page_locked_freed_under_pending_work(p):
    a, x, y = p.stream(), p.device(SIZE), p.host(SIZE)
    p.upload(x, y, a)
    p.forget("cuMemFreeHost", y)
    p.ok("cuMemFreeHost", y)
    return UPLOAD, "cuMemFreeHost"


def unregistered_under_pending_work(p):
    a, x = p.stream(), p.device(SIZE)
    y = ctypes.create_string_buffer(SIZE)
    p.ok("cuMemHostRegister_v2", y, SIZE, 0)
    p.download(ctypes.addressof(y), x, a)
    p.ok("cuMemHostUnregister", y)
    return DOWNLOAD, "cuMemHostUnregister"


def rows_that_overlap(p):
    a, b = p.streams()
    x = p.device(1024)
    p.fill_rows(x, 64, 32, 16, a)
    p.fill(x + 15 * 64 + 28, b, 8)
    return FILL, "cuMemsetD2D32Async"


def rows_of_different_pitch(p):
    a, b = p.streams()
    x = p.device(1024)
    p.fill_rows(x, 64, 8, 16, a)
    p.fill_rows(x + 8, 56, 4, 8, b)
    return "cuMemsetD2D32Async", "cuMemsetD2D32Async"


def reader_of_rows_that_another_has_read(p):
    a, b = p.streams()
    x, y, z = p.device(1024), p.device(1024), p.device(1024)
    p.fill_rows(x, 64, 32, 16, a)
    p.order(a, b)
    p.move(y, x, b, 1024)
    p.move(z, x, p.stream(), 1024)
    return "cuMemsetD2D32Async", MOVE


def behind_a_value_of_the_host(p):
    a, b = p.streams()
    x, flag = p.device(SIZE), p.host(4)
    p.wait_value(b, flag)
    p.ok("cuMemsetD32Async", x, 1, 4, b)
    store(flag, 1)
    p.fill(x, a)
    return FILL, "cuMemsetD32Async"


def value_comes_before_the_host_waits(p):
    a, b = p.streams()
    x, flag = p.device(SIZE), p.host(4)
    p.wait_value(b, flag)
    p.ok("cuMemsetD32Async", x, 1, 4, b)
    p.fill(x, a)
    store(flag, 1)
    p.sync(a)
    return FILL, "cuMemsetD32Async"


def behind_a_value_of_a_third_stream(p):
    a, b = p.streams()
    c = p.stream()
    x, flag = p.device(SIZE), p.device(4)
    p.ok("cuMemsetD32Async", flag, 0, 1, c)
    p.sync(c)
    p.wait_value(b, flag)
    p.ok("cuMemsetD32Async", x, 1, 4, b)
    p.fill(x, a)
    p.write_value(c, flag)
    return FILL, "cuMemsetD32Async"


def value_does_not_come_from_the_host(p):
    a, b = p.streams()
    c = p.stream()
    x, flag = p.device(SIZE), p.device(4)
    p.ok("cuMemsetD32Async", flag, 0, 1, c)
    p.sync(c)
    p.wait_value(b, flag)
    p.ok("cuMemsetD32Async", x, 1, 4, b)
    p.write_value(c, flag)
    p.fill(x, a)
    p.sync(a)
    return FILL, "cuMemsetD32Async"


def freed_while_a_value_is_awaited(p):
    a = p.stream()
    x, flag = p.device(SIZE), p.host(4)
    p.wait_value(a, flag)
    p.fill(x, a)
    store(flag, 1)
    p.free(x)
    return FILL, "cuMemFree_v2"


def host_writes_a_source(p):
    a, x, y = p.stream(), p.device(SIZE), p.host(SIZE)
    p.upload(x, y, a)
    store(y)
    return UPLOAD, "the host wrote"


def host_writes_a_target(p):
    a, x, y = p.stream(), p.device(SIZE), p.host(SIZE)
    p.download(y, x, a)
    p.ok("cuStreamQuery", 0)  # of another stream
    store(y, 99, SIZE - 1)
    return DOWNLOAD, "the host wrote"


def host_writes_registered_memory(p):
    a, x = p.stream(), p.device(SIZE)
    y = ctypes.create_string_buffer(SIZE)
    p.ok("cuMemHostRegister_v2", y, SIZE, 0)
    p._undo.append(("cuMemHostUnregister", ctypes.addressof(y)))
    p.keep = [y]
    p.upload(x, ctypes.addressof(y), a)
    y[5] = 1
    return UPLOAD, "the host wrote"


def host_writes_managed_memory(p):
    a, x = p.stream(), p.managed(SIZE)
    p.fill(x, a)
    store(x, 99, 7)
    return FILL, "the host wrote"


def host_writes_a_large_source(p):
    size = 1 << 20
    a, x, y = p.stream(), p.device(size), p.host(size)
    p.upload(x, y, a, size)
    ctypes.memset(y, 9, size)
    return UPLOAD, "the host wrote"


def host_writes_after_waiting_for_another(p):
    a, b = p.streams()
    x, y = p.device(SIZE), p.host(SIZE)
    p.upload(x, y, a)
    p.fill(p.device(SIZE), b)
    p.sync(b)
    store(y)
    return UPLOAD, "the host wrote"


def host_writes_a_source_behind_a_value(p):
    a, x, y, flag = p.stream(), p.device(SIZE), p.host(SIZE), p.host(4)
    p.wait_value(a, flag)
    p.upload(x, y, a)
    store(flag, 1)
    p.ok("cuStreamQuery", LEGACY)
    store(y)
    return UPLOAD, "the host wrote"


RACY = [
    *(two_writers, reader_and_writer, writer_and_reader, writer_waits_for_one_of_two_readers),
    *(writer_waits_for_the_other_of_two_readers, value_does_not_come_from_the_host),
    *(stale_event, event_recorded_again_after_the_wait, event_never_recorded),
    *(legacy_and_non_blocking, two_blocking_streams, synchronous_copy_and_non_blocking),
    *(device_copy_does_not_wait, synchronous_fill_does_not_wait, staged_upload_may_still_arrive),
    *(large_upload_may_still_arrive, pageable_upload_promises_nothing, per_thread_streams),
    *(used_before_stream_ordered_allocation, freed_in_another_stream, freed_under_pending_work),
    *(stream_ordered_memory_freed_by_the_host, page_locked_freed_under_pending_work),
    *(unregistered_under_pending_work, rows_that_overlap, rows_of_different_pitch),
    reader_of_rows_that_another_has_read,
    *(behind_a_value_of_the_host, value_comes_before_the_host_waits),
    *(behind_a_value_of_a_third_stream, freed_while_a_value_is_awaited),
    *(host_writes_a_source, host_writes_a_target, host_writes_registered_memory),
    *(host_writes_managed_memory, host_writes_a_large_source),
    *(host_writes_after_waiting_for_another, host_writes_a_source_behind_a_value),
]


@pytest.mark.parametrize("plant", RACY, ids=lambda plant: plant.__name__)
def test_reports(program, plant):
    names = plant(program)
    program.ok("cuCtxSynchronize")
    found = program.lib.races()
    matching = [text for text in found if all(text.count(name) for name in names)]
    assert matching, found
    if names[0] == names[1]:
        assert matching[0].count(names[0]) == 2


# Correct programs.


def in_order(p):
    a, x, y = p.stream(), p.device(SIZE), p.host(SIZE)
    for _ in range(3):
        p.upload(x, y, a)
        p.fill(x, a)
        p.download(y, x, a)
    p.sync(a)
    store(y)
    p.upload(x, y, a)


def after_every_kind_of_wait(p):
    x, streams = p.device(SIZE), [p.stream() for _ in range(6)]
    event = p.event()
    waits = [
        lambda stream: p.sync(stream),
        lambda stream: p.ok("cuCtxSynchronize"),
        lambda stream: p.ok("cuEventSynchronize", p.record(stream, event)),
        lambda stream: poll(lambda: p.call("cuStreamQuery", stream)),
        lambda stream: p.record(stream, event) and poll(lambda: p.call("cuEventQuery", event)),
        lambda stream: p.download(ctypes.create_string_buffer(SIZE), x, stream),
    ]
    for stream, wait in zip(streams, waits, strict=True):
        p.fill(x, stream)
        wait(stream)
    p.free(x)


def waits_that_reach_other_streams(p):
    a, b = p.streams()
    x, y = p.device(SIZE), p.host(SIZE)
    p.upload(x, y, a)
    p.order(a, b)
    p.sync(b)
    store(y)
    p.fill(x, p.stream())


def events_recorded_again(p):
    a, b = p.streams()
    x, event = p.device(SIZE), p.event()
    for _ in range(4):
        for here, there in ((a, b), (b, a)):
            p.fill(x, here)
            p.record(here, event)
            p.wait(there, event)
    p.fill(x, a)


def wait_for_what_is_done(p):
    a, b = p.streams()
    x = p.device(SIZE)
    p.fill(x, a)
    event = p.record(a)
    p.ok("cuMemFree_v2", p.allocate_async(b))
    p.lib("cudadrvSoftDrain")
    p.wait(b, event)
    p.fill(x, b)
    p.sync(b)
    p.fill(x, p.stream())


def event_destroyed_after_the_wait(p):
    a, b = p.streams()
    x = p.device(SIZE)
    p.fill(x, a)
    event = p.record(a)
    p.wait(b, event)
    p.forget("cuEventDestroy_v2", event)
    p.ok("cuEventDestroy_v2", event)
    p.fill(x, b)


def legacy_and_blocking(p):
    a, b = p.streams(0)
    x, y = p.device(SIZE), p.host(SIZE)
    p.fill(x, a)
    p.download(y, x, LEGACY)
    p.fill(x, b)
    p.ok("cuMemcpyDtoH_v2", y, x, SIZE)
    store(y)
    p.fill(x, 2)
    p.fill(x, LEGACY)
    p.sync(LEGACY)
    p.free(x)


def legacy_sync_reaches_blocking_streams(p):
    a, x = p.stream(0), p.device(SIZE)
    p.fill(x, a)
    p.sync(LEGACY)
    p.fill(x, p.stream())


def destroyed_streams(p):
    x = p.device(SIZE)
    for _ in range(10):
        a = p.stream()
        p.fill(x, a)
        p.forget("cuStreamDestroy_v2", a)
        p.ok("cuStreamDestroy_v2", a)
        p.ok("cuCtxSynchronize")


def readers_together(p):
    a, b = p.streams()
    x, y = p.device(SIZE), p.host(2 * SIZE)
    p.ok("cuMemsetD8_v2", x, 1, SIZE)
    p.ok("cuCtxSynchronize")
    p.download(y, x, a)
    p.download(y + SIZE, x, b)
    c = p.stream()
    p.order(a, c)
    p.order(b, c)
    p.fill(x, c)


def disjoint_bytes(p):
    a, b = p.streams()
    x = p.device(2 * SIZE)
    for _ in range(3):
        p.fill(x, a)
        p.fill(x + SIZE, b)
        p.fill(x + 10, a, 20)


def disjoint_columns(p):
    a, b = p.streams()
    c = p.stream()
    x = p.device(4096)
    p.fill_rows(x, 64, 32, 64, a)
    p.fill_rows(x + 32, 64, 16, 64, b)
    p.fill(x + 48, c, 16)
    p.fill_rows(x + 64 + 48, 128, 16, 31, c)


def staged_uploads(p):
    x, y = p.device(SIZE), ctypes.create_string_buffer(SIZE)
    a = p.stream(0)
    p.fill(x, a)
    p.ok("cuMemcpyHtoD_v2", x, y, SIZE)
    y[0] = 5
    p.fill(x, a)
    p.ok("cuCtxSynchronize")
    p.ok("cuMemcpyHtoD_v2", x, y, SIZE)
    p.sync(LEGACY)
    p.fill(x, p.stream())


def staging_waits_for_earlier_work(p):
    a, x, y = p.stream(0), p.device(SIZE), p.host(SIZE)
    p.upload(x, y, a)
    p.ok("cuMemcpyHtoD_v2", p.device(8), ctypes.create_string_buffer(8), 8)
    store(y)


def page_locked_copies_that_wait(p):
    x, y = p.device(SIZE), p.host(SIZE)
    p.ok("cuMemcpyHtoD_v2", x, y, SIZE)
    store(y)
    p.ok("cuMemcpyDtoH_v2", y, x, SIZE)
    store(y)
    p.fill(x, p.stream())
    p.ok("cuMemsetD8_v2", y, 0, SIZE)
    store(y)


def pageable_downloads_wait(p):
    a, x, y = p.stream(), p.device(SIZE), ctypes.create_string_buffer(SIZE)
    p.fill(x, a)
    p.download(y, x, a)
    p.fill(x, p.stream())


def stream_ordered_memory(p):
    a, b = p.streams()
    for _ in range(5):
        x = p.allocate_async(a)
        p.order(a, b)
        p.fill(x, b)
        p.order(b, a)
        p.ok("cuMemFreeAsync", x, a)
    y = p.allocate_async(b)
    p.sync(b)
    p.fill(y, a)
    p.sync(a)
    p.ok("cuMemFree_v2", y)


def host_sets_a_value(p):
    a, b = p.streams()
    x, y, flag = p.device(SIZE), p.host(SIZE), p.host(4)
    p.wait_value(b, flag)
    p.upload(x, y, b)
    p.fill(x, a)
    p.sync(a)
    store(y, 3)
    store(flag, 1)
    p.sync(b)
    store(y, 4)
    p.free(x)


def stream_sets_a_value(p):
    a, b = p.streams()
    x, flag = p.device(SIZE), p.device(8)
    p.ok("cuMemsetD8_v2", flag, 0, 8)
    p.ok("cuCtxSynchronize")
    for step in (1, 2, 3):
        p.fill(x, a)
        p.write_value(a, flag, step)
        p.wait_value(b, flag, step)
        p.fill(x, b)
        p.write_value(b, flag + 4, step)
        p.wait_value(a, flag + 4, step)
    p.fill(x, a)


def wait_comes_before_the_write(p):
    a, b = p.streams()
    c = p.stream()
    x, flag = p.device(SIZE), p.host(4)
    p.wait_value(b, flag)
    p.fill(x, b)
    p.order(b, c)
    p.fill(x, c)
    p.fill(x, a)
    p.write_value(a, flag)


def copy_sets_a_value(p):
    a, b = p.streams()
    x, flag, one = p.device(SIZE), p.device(4), p.host(4, 1)
    p.ok("cuMemsetD8_v2", flag, 0, 4)
    p.ok("cuCtxSynchronize")
    p.wait_value(b, flag)
    p.fill(x, b)
    p.fill(x, a)
    p.upload(flag, one, a, 4)


def host_sees_a_value(p):
    a, x, y, flag = p.stream(), p.device(SIZE), p.host(SIZE), p.host(4)
    p.upload(x, y, a)
    p.write_value(a, flag)
    p.lib("cudadrvSoftDrain")
    poll(lambda: SUCCESS if ctypes.string_at(flag, 1) == b"\x01" else 600)
    store(y)
    p.free(x)


def host_function_tells_the_host(p):
    a, x, y, told = p.stream(), p.device(SIZE), p.host(SIZE), threading.Event()
    p.upload(x, y, a)
    p.host_function(a, told.set)
    p.lib("cudadrvSoftDrain")
    assert told.wait(5)
    store(y)
    p.fill(x, p.stream())


def host_function_makes_a_source(p):
    a, b = p.streams()
    x, y = p.device(SIZE), p.host(SIZE)
    for step in range(3):
        p.host_function(a, lambda step=step: store(y, step + 1))
        p.upload(x, y, a)
        p.order(a, b)
        p.upload(x, y, b)
        p.order(b, a)


def device_writes_and_reads_host_memory(p):
    a, b = p.streams()
    x, y = p.device(SIZE), p.host(SIZE)
    p.fill(x, a)
    for _ in range(3):
        p.download(y, x, a)
        p.order(a, b)
        p.upload(x, y, b)
        p.ok("cuMemsetD8Async", y, 5, SIZE, b)
        p.order(b, a)
    p.sync(a)
    store(y)


def managed_memory(p):
    a, x, y = p.stream(), p.managed(SIZE), p.device(SIZE)
    for value in range(3):
        store(x, value)
        p.ok("cuMemPrefetchAsync", x, SIZE, 0, a)
        p.move(y, x, a)
        p.fill(x, a)
        p.sync(a)


def neighbours_on_the_host(p):
    a, x, y = p.stream(), p.device(SIZE), p.host(2 * SIZE)
    p.upload(x, y, a)
    store(y, 1, SIZE)
    p.download(y + SIZE + 8, x, a, 8)
    store(y, 1, SIZE + 7)
    store(y, 1, SIZE + 16)


def captured_work(p):
    a, b = p.streams()
    x, graph = p.device(SIZE), ctypes.c_void_p()
    p.ok("cuStreamBeginCapture_v2", a, 2)
    p.fill(x, a)
    p.fill(x, b)
    p.ok("cuStreamEndCapture", a, ctypes.byref(graph))
    p.ok("cuGraphDestroy", graph)


def host_memory_comes_back(p):
    a, x = p.stream(), p.device(SIZE)
    for _ in range(5):
        y = p.host(SIZE)
        p.upload(x, y, a)
        p.sync(a)
        p.forget("cuMemFreeHost", y)
        p.ok("cuMemFreeHost", y)


CORRECT = [
    *(in_order, after_every_kind_of_wait, waits_that_reach_other_streams, events_recorded_again),
    *(wait_for_what_is_done, event_destroyed_after_the_wait, legacy_and_blocking),
    *(legacy_sync_reaches_blocking_streams, destroyed_streams, readers_together, disjoint_bytes),
    *(disjoint_columns, staged_uploads, staging_waits_for_earlier_work),
    *(page_locked_copies_that_wait, pageable_downloads_wait, stream_ordered_memory),
    *(host_sets_a_value, stream_sets_a_value, wait_comes_before_the_write, copy_sets_a_value),
    *(host_sees_a_value, host_function_tells_the_host, host_function_makes_a_source),
    *(device_writes_and_reads_host_memory, managed_memory, neighbours_on_the_host),
    *(captured_work, host_memory_comes_back),
]


@pytest.mark.parametrize("correct", CORRECT, ids=lambda correct: correct.__name__)
def test_is_silent(program, correct):
    correct(program)
    program.ok("cuCtxSynchronize")
    assert program.lib.races() == []
