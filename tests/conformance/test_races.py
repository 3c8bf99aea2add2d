"""Planted races between streams: each is reported with both operations, under every schedule."""

import ctypes
import threading

import pytest

from .client import LEGACY
from .race_program import DOWNLOAD, FILL, MOVE, SIZE, UPLOAD, check_report, store

pytestmark = pytest.mark.cuda_software


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


def write_after_one_of_two_readers(p, waited_for):
    readers, writer = p.streams(), p.stream()
    x, y, z = p.device(SIZE), p.host(SIZE), p.device(SIZE)
    p.download(y, x, readers[0])
    p.move(z, x, readers[1])
    p.order(readers[waited_for], writer)
    p.fill(x, writer)


def writer_waits_for_one_of_two_readers(p):
    write_after_one_of_two_readers(p, 0)
    return FILL, MOVE


def writer_waits_for_the_other_of_two_readers(p):
    write_after_one_of_two_readers(p, 1)
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


def allocation_between_two_blocking_streams(p):
    a, b = p.streams(0)
    x, y = p.device(SIZE), p.device(SIZE)
    p.fill(x, a)
    z = p.allocate_async(LEGACY)
    p.move(y, x, b)
    p.ok("cuMemFreeAsync", z, LEGACY)
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


RACY = [
    two_writers,
    reader_and_writer,
    writer_and_reader,
    writer_waits_for_one_of_two_readers,
    writer_waits_for_the_other_of_two_readers,
    stale_event,
    event_recorded_again_after_the_wait,
    event_never_recorded,
    legacy_and_non_blocking,
    two_blocking_streams,
    allocation_between_two_blocking_streams,
    synchronous_copy_and_non_blocking,
    device_copy_does_not_wait,
    synchronous_fill_does_not_wait,
    staged_upload_may_still_arrive,
    large_upload_may_still_arrive,
    pageable_upload_promises_nothing,
    per_thread_streams,
    rows_that_overlap,
    rows_of_different_pitch,
    reader_of_rows_that_another_has_read,
    behind_a_value_of_the_host,
    value_comes_before_the_host_waits,
    behind_a_value_of_a_third_stream,
    value_does_not_come_from_the_host,
]


@pytest.mark.parametrize("plant", RACY, ids=lambda plant: plant.__name__)
def test_reports(program, plant):
    check_report(program, plant)
