"""The race detector and kernels: it knows a kernel's accesses only after the kernel has ended.

Its reports are the same as for copies and fills.
"""

import ctypes
import re

import pytest

from .kernels import TEXT
from .race_program import DOWNLOAD, FILL, SIZE, check_report, check_silence, store

pytestmark = pytest.mark.cuda_software

LAUNCH = "cuLaunchKernel"
WORDS = SIZE // 4


class Kernels:
    """Short names for launches of a program."""

    def __init__(self, program):
        self.program = program
        self.module = program.module(TEXT)

    def run(self, name, stream, *arguments, words=WORDS):
        function = self.program.function(self.module, name)
        assert self.program.launch(function, stream, *arguments, grid=words, block=1) == 0

    def fill(self, target, stream, words=WORDS):
        self.run("fill", stream, target, ctypes.c_uint32(words), ctypes.c_uint32(1), words=words)

    def move(self, target, source, stream, words=WORDS):
        self.run("move", stream, target, source, ctypes.c_uint32(words), words=words)


def two_kernels_write(p, k):
    a, b = p.streams()
    x = p.device(SIZE)
    k.fill(x, a)
    k.fill(x, b)
    return LAUNCH, LAUNCH


def kernel_writes_and_copy_reads(p, k):
    a, b = p.streams()
    x, y = p.device(SIZE), p.host(SIZE)
    k.fill(x, a)
    p.download(y, x, b)
    return LAUNCH, DOWNLOAD


def copy_reads_and_kernel_writes(p, k):
    a, b = p.streams()
    x, y = p.device(SIZE), p.host(SIZE)
    p.download(y, x, a)
    k.fill(x, b)
    return LAUNCH, DOWNLOAD


def kernel_reads_and_fill_writes(p, k):
    a, b = p.streams()
    x, y = p.device(SIZE), p.device(SIZE)
    k.move(y, x, a)
    p.fill(x, b)
    return LAUNCH, FILL


def only_the_last_word_is_shared(p, k):
    a, b = p.streams()
    x = p.device(SIZE)
    k.fill(x, a)
    p.fill(x + SIZE - 4, b, 1)
    return LAUNCH, FILL


def atomic_and_plain(p, k):
    a, b = p.streams()
    x = p.device(SIZE)
    k.run("add", a, x, words=1)
    p.fill(x, b, 4)
    return LAUNCH, FILL


def a_later_write_hides_no_earlier_one(p, k):
    """The kernel races with the first fill.

    The second fill, which is ordered after the kernel and the first fill, does not hide this race.
    """
    a, b = p.streams()
    x = p.device(SIZE)
    p.fill(x, a)
    k.fill(x, b)
    p.order(b, a)
    p.ok("cuMemsetD32Async", x, 1, WORDS, a)
    return LAUNCH, FILL


def what_the_host_learnt_meanwhile_does_not_count(p, k):
    a, b = p.streams()
    x = p.device(SIZE)
    p.fill(x, a)
    k.fill(x, b)
    p.sync(a)
    p.sync(b)
    return LAUNCH, FILL


def freed_in_another_stream(p, k):
    a, b = p.streams()
    x, gate = p.allocate_async(a), p.gate().hold(b)
    p.sync(a)
    k.fill(x, a)
    p.ok("cuMemFreeAsync", x, b)
    p.lib("cudadrvSoftDrain")  # runs all work, but does not tell the host that the work is complete
    gate.open()
    return LAUNCH, "cuMemFreeAsync"


RACY = [
    two_kernels_write,
    kernel_writes_and_copy_reads,
    copy_reads_and_kernel_writes,
    kernel_reads_and_fill_writes,
    only_the_last_word_is_shared,
    atomic_and_plain,
    a_later_write_hides_no_earlier_one,
    freed_in_another_stream,
    what_the_host_learnt_meanwhile_does_not_count,
]


@pytest.mark.parametrize("plant", RACY, ids=lambda plant: plant.__name__)
def test_reports(program, plant):
    check_report(program, lambda p: plant(p, Kernels(p)))


def ordered_by_an_event(p, k):
    a, b = p.streams()
    x, y = p.device(SIZE), p.host(SIZE)
    k.fill(x, a)
    p.order(a, b)
    p.download(y, x, b)
    k.move(x, x, b)


def ordered_by_the_host(p, k):
    a, b = p.streams()
    x = p.device(SIZE)
    k.fill(x, a)
    p.sync(a)
    k.fill(x, b)


def other_bytes(p, k):
    a, b = p.streams()
    x = p.device(SIZE)
    k.fill(x, a, WORDS // 2)
    p.fill(x + SIZE // 2, b, SIZE // 2)


def neighbours(p, k):
    a, b = p.streams()
    x, y = p.device(512), p.device(512)
    k.fill(x, a, 128)
    k.fill(y, b, 128)


def two_readers(p, k):
    a, b = p.streams()
    x, y, z = (p.device(SIZE) for _ in range(3))
    k.move(y, x, a)
    p.move(z, x, b)


def two_that_count(p, k):
    a, b = p.streams()
    x = p.device(SIZE)
    k.run("add", a, x, words=4)
    k.run("add", b, x, words=4)


def meeting(p, k):
    a, b = p.streams()
    flags = p.device(8)
    p.ok("cuMemsetD32_v2", flags, 0, 2)
    p.ok("cuCtxSynchronize")
    k.run("meet", a, flags, flags + 4, words=1)
    k.run("meet", b, flags + 4, flags, words=1)


def a_flag_that_the_host_sets(p, k):
    a, flag = p.stream(), p.host(4)
    k.run("spin", a, flag, words=1)
    store(flag, 1)
    p.sync(a)


def copies_beside_a_kernel_that_spins(p, k):
    a, b, c = p.stream(), p.stream(), p.stream()
    flag, x, y = p.host(4), p.device(SIZE), p.host(SIZE)
    k.run("spin", a, flag, words=1)
    p.fill(x, b)
    p.order(b, c)
    p.download(y, x, c)
    store(flag, 1)
    p.sync(a)


def a_value_that_a_copy_writes_beside_a_kernel(p, k):
    a, b = p.streams()
    spin, flag, x = p.stream(), p.host(4), p.device(SIZE)
    word, one = p.device(4), p.device(4)
    for address, value in ((word, 0), (one, 1)):
        p.ok("cuMemsetD32_v2", address, value, 1)
    p.ok("cuCtxSynchronize")
    k.run("spin", spin, flag, words=1)
    p.wait_value(b, word)
    p.ok("cuMemsetD32Async", x, 1, 4, b)
    p.fill(x, a)
    p.move(word, one, a, 4)
    store(flag, 1)
    p.sync(spin)


def mapped_output(p, k):
    a, y = p.stream(), p.host(SIZE)
    k.fill(y, a)
    p.sync(a)
    store(y)
    k.fill(y, a)


def a_copy_of_what_a_kernel_writes_for_the_host(p, k):
    a, y, x = p.stream(), p.host(SIZE), p.device(SIZE)
    k.fill(y, a)
    p.upload(x, y, a)
    k.fill(y, a)


CORRECT = [
    ordered_by_an_event,
    ordered_by_the_host,
    other_bytes,
    neighbours,
    two_readers,
    two_that_count,
    meeting,
    a_flag_that_the_host_sets,
    copies_beside_a_kernel_that_spins,
    a_value_that_a_copy_writes_beside_a_kernel,
    mapped_output,
    a_copy_of_what_a_kernel_writes_for_the_host,
]


@pytest.mark.parametrize("correct", CORRECT, ids=lambda correct: correct.__name__)
def test_silence(program, correct):
    check_silence(program, lambda p: correct(p, Kernels(p)))


def test_the_report_names_the_kernels(program):
    kernels = Kernels(program)
    a, b = program.streams()
    x, y = program.device(SIZE), program.device(SIZE)
    kernels.fill(x, a)
    kernels.move(y, x, b)
    program.ok("cuCtxSynchronize")
    (text,) = program.lib.races()
    access = r"cuLaunchKernel of kernel '{}' on stream {:#x} \(stream id \d+, operation \d+\) {} "
    later, earlier = access.format("move", b, "reads"), access.format("fill", a, "writes")
    assert re.search(f"{later}bytes 0 to {SIZE}, and {earlier}bytes 0 to {SIZE}: neither", text)


def test_other_kernels_are_another_report(program):
    kernels = Kernels(program)
    a, b = program.streams()
    x, y = program.device(SIZE), program.device(SIZE)
    for _ in range(2):
        kernels.fill(x, a)
        kernels.fill(x, b)
        program.ok("cuCtxSynchronize")
    kernels.fill(x, a)
    kernels.move(y, x, b)
    program.ok("cuCtxSynchronize")
    first, second = program.lib.races()
    assert first.count("'fill'") == 2
    assert "(2 times)" in first
    assert "'move'" in second


def test_the_host_writes_before_it_knows_the_kernel_done(program):
    kernels = Kernels(program)
    x, y, stream = program.device(SIZE), program.host(SIZE), program.stream()
    kernels.move(x, y, stream)
    program.lib("cudadrvSoftDrain")
    store(y)
    program.sync(stream)
    (text,) = program.lib.races()
    assert "the host wrote" in text
    assert LAUNCH in text


def test_races_are_told_while_a_kernel_spins(program):
    """Races of work before a spinning kernel are reported at once, and its own races at its end."""
    kernels = Kernels(program)
    a, b = program.streams()
    spin, flag, x = program.stream(), program.host(4), program.device(SIZE)
    program.fill(x, a)
    program.fill(x, b)
    assert len(program.lib.races()) == 1
    kernels.run("spin", spin, flag, words=1)
    store(flag, 1)
    program.sync(spin)
    assert len(program.lib.races()) == 1
