"""Planted races of frees, and of host accesses, with work in streams."""

import ctypes

import pytest

from .client import LEGACY
from .race_program import (
    DOWNLOAD,
    FILL,
    MOVE,
    SIZE,
    UPLOAD,
    allocate_managed,
    check_report,
    discard,
    store,
)

pytestmark = pytest.mark.cuda_software


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
    p.ok("cuStreamQuery", 0)  # a query of another stream
    # While the device writes memory, host writes cannot be detected; so let the copy run.
    p.lib("cudadrvSoftDrain")
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
    p.lib("cudadrvSoftDrain")
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


DISCARD = "cuMemDiscardBatchAsync"


def written_and_discarded(p):
    a, b, x = *p.streams(), p.managed(SIZE)
    p.fill(x, a)
    discard(p, x, b)
    return FILL, DISCARD


def discarded_and_read(p):
    a, b, x, y = *p.streams(), p.managed(SIZE), p.device(SIZE)
    discard(p, x, a)
    p.move(y, x, b)
    return DISCARD, MOVE


def host_writes_what_is_discarded(p):
    a, x = p.stream(), p.managed(SIZE)
    discard(p, x, a)
    p.lib("cudadrvSoftDrain")
    store(x, 99)
    return DISCARD, "the host wrote"


def discarded_and_freed(p):
    a, x = p.stream(), p.managed(SIZE)
    discard(p, x, a)
    p.free(x)
    return DISCARD, "cuMemFree_v2"


def host_writes_memory_of_a_pool_before_it_is_there(p):
    a = p.stream()
    p.fill(p.device(SIZE), a)
    x = allocate_managed(p, a)
    p.lib("cudadrvSoftDrain")
    store(x, 99)
    p.ok("cuCtxSynchronize")
    p.ok("cuMemFreeAsync", x, a)
    return "cuMemAllocFromPoolAsync", "the host wrote"


def memory_of_a_managed_pool_freed_in_another_stream(p):
    a, b = p.streams()
    x = allocate_managed(p, a)
    p.order(a, b)
    p.fill(x, b)
    p.ok("cuMemFreeAsync", x, a)
    return FILL, "cuMemFreeAsync"


def discarded_in_another_stream_than_allocated(p):
    """Nothing orders the discard, on another stream, after the default stream's allocation."""
    x, a = allocate_managed(p, 0), p.stream(1)
    p.ok("cuMemPrefetchAsync", x, SIZE, 0, a)
    p.sync(a)
    discard(p, x, a)
    p.sync(a)
    p.ok("cuMemFreeAsync", x, 0)
    return DISCARD, "cuMemAllocFromPoolAsync"


RACY = [
    discarded_in_another_stream_than_allocated,
    written_and_discarded,
    discarded_and_read,
    host_writes_what_is_discarded,
    discarded_and_freed,
    host_writes_memory_of_a_pool_before_it_is_there,
    memory_of_a_managed_pool_freed_in_another_stream,
    used_before_stream_ordered_allocation,
    freed_in_another_stream,
    freed_under_pending_work,
    stream_ordered_memory_freed_by_the_host,
    page_locked_freed_under_pending_work,
    unregistered_under_pending_work,
    freed_while_a_value_is_awaited,
    host_writes_a_source,
    host_writes_a_target,
    host_writes_registered_memory,
    host_writes_managed_memory,
    host_writes_a_large_source,
    host_writes_after_waiting_for_another,
    host_writes_a_source_behind_a_value,
]


@pytest.mark.parametrize("plant", RACY, ids=lambda plant: plant.__name__)
def test_reports(program, plant):
    check_report(program, plant)
