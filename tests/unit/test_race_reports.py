"""Reports of data races name the operations, buffers and lines of cudadrv's calls."""

import ctypes
import functools
import operator
import re
import signal
import threading

import pytest

import cudadrv as cu
from cudadrv import testing

pytestmark = [
    pytest.mark.cuda_software,
    pytest.mark.cuda_allow("races"),
]

HERE = r"tests/unit/test_race_reports\.py:\d+"
PTX = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry poke(.param .u64 p)
{
    .reg .b64 %rd<2>;
    .reg .b32 %r<2>;
    ld.param.u64 %rd1, [p];
    mov.u32 %r1, 7;
    st.global.u32 [%rd1], %r1;
    ret;
}
"""


def the_report() -> str:
    [report] = testing.races()
    return report


def test_both_sides_and_the_buffer_are_named(driver):
    frames, work = cu.LockedBuffer.zeros(64), cu.DeviceBuffer(64, name="work")
    one, two = cu.Stream(), cu.Stream()
    with cu.ordering("unchecked"):
        work.copy_from_async(frames, one)
        work.fill_async(1, two)
    pattern = (
        r"race on DeviceBuffer 'work' \(device memory 0x[0-9a-f]+, allocation \d+, 64 bytes\): "
        rf"fill_async on {two!r}, queued at {HERE} \(cuMemsetD8Async\), writes bytes 0 to 64, and "
        rf"copy_from_async on {one!r}, queued at {HERE} \(cuMemcpyHtoDAsync_v2\), writes bytes 0 to"
        r" 64: neither is ordered after the other"
    )
    pattern = pattern.replace(repr(one), name_of(one)).replace(repr(two), name_of(two))
    assert re.fullmatch(pattern, the_report())


def name_of(stream: cu.Stream) -> str:
    return re.search(r"Stream \d+", repr(stream))[0]


@pytest.mark.parametrize("kind", ["legacy", "per_thread"])
def test_default_streams_are_named(driver, kind):
    stream = getattr(cu.Stream, kind)()
    work, other = cu.DeviceBuffer(64), cu.Stream()
    with cu.ordering("unchecked"):
        work.fill_async(1, stream)
        work.fill_async(1, other)
    words = {"legacy": "the legacy default stream", "per_thread": "per-thread default Stream"}
    assert f"and fill_async on {words[kind]}" in the_report()


def test_a_launch_is_named_by_its_kernel(driver):
    work = cu.DeviceBuffer(64)
    one, two = cu.Stream(), cu.Stream()
    kernel = cu.Module(PTX)["poke"]
    with cu.ordering("unchecked"):
        kernel.launch(1, 1, work, stream=one)
        kernel.launch(1, 1, work, stream=two)
    cu.Device(0).synchronize()
    report = the_report()
    assert len(re.findall(rf"launch of poke on Stream \d+, queued at {HERE}", report)) == 2, report


def test_what_others_queue_on_our_stream_is_not_called_ours(driver):
    work = cu.DeviceBuffer(64)
    one, two = cu.Stream(), cu.Stream()
    library = ctypes.CDLL(cu.driver_info().path)
    with cu.ordering("unchecked"):
        work.fill_async(1, one)
        one.synchronize()
        arguments = ctypes.c_void_p(work.address), 1, ctypes.c_size_t(64)
        assert library.cuMemsetD8Async(*arguments, ctypes.c_void_p(one.handle)) == 0
        work.fill_async(1, two)
    report = the_report()
    assert re.search(rf": fill_async on Stream \d+, queued at {HERE}", report)
    assert ", and cuMemsetD8Async on stream 0x" in report


def test_two_lines_that_race_are_two_reports(driver):
    work = cu.DeviceBuffer(64)
    one, two = cu.Stream(), cu.Stream()
    with cu.ordering("unchecked"):
        work.fill_async(1, one)
        work.fill_async(1, two)
        work.fill_async(1, one)
    lines = [re.findall(r"\.py:(\d+)", report) for report in testing.races()]
    assert len(lines) == 2
    assert lines[0] != lines[1]


def test_a_refused_operation_is_no_part_of_it(driver):
    """A report does not name an operation that the driver has refused.

    The next operation of the stream is named with its own line.
    """
    work = cu.DeviceBuffer(64)
    one, two = cu.Stream(), cu.Stream()
    with cu.ordering("unchecked"):
        work.fill_async(1, one)
        testing.fail("cuMemsetD8Async", 801)
        with pytest.raises(cu.CudaError):
            work.fill_async(1, two)
        work.fill_async(1, two)
    assert the_report().count("fill_async") == 2


def test_threads_that_race_get_their_reports(driver):
    work, go_on = cu.DeviceBuffer(64), threading.Event()

    def race():
        stream = cu.Stream()
        with cu.ordering("unchecked"):
            for _ in range(50):
                work.fill_async(1, stream)
        stream.synchronize()

    threads = [threading.Thread(target=race) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        testing.races()
    go_on.set()
    for thread in threads:
        thread.join()
    for report in testing.races():
        assert len(re.findall(rf"fill_async on Stream \d+.*?, queued at {HERE}", report)) == 2


PROGRAM = """
    import cudadrv as cu
    work = cu.DeviceBuffer(64, name="work")
    one, two = cu.Stream(), cu.Stream()
    with cu.ordering("unchecked"):
        work.fill_async(1, one)
        work.fill_async(1, two)
    print("behind", flush=True)
    cu.Device(0).synchronize()
"""


@pytest.mark.parametrize("schedule", ["eager", "lazy", "random"])
def test_printed_reports_have_the_names_too(script, schedule):
    done = script.run(PROGRAM, CUDADRV_SOFTWARE=f"schedule={schedule},races=print")
    assert done.returncode == 0
    assert re.fullmatch(
        r"race on DeviceBuffer 'work' \(.*\): fill_async on Stream \d+, queued at <string>:7"
        r" \(cuMemsetD8Async\), .* and fill_async on Stream \d+, queued at <string>:6 .*\n",
        done.stderr,
    )


def test_a_race_that_only_a_worker_saw_is_printed_at_the_end(script):
    """A race that a driver thread finds is printed at the end of the process.

    These kernels end on threads of the driver, which cannot ask Python for names.
    """
    program = f"""
    import time
    import cudadrv as cu
    from cudadrv import testing
    work = cu.DeviceBuffer(64, name="work")
    one, two = cu.Stream(), cu.Stream()
    kernel = cu.Module({PTX!r})["poke"]
    with cu.ordering("unchecked"):
        kernel.launch(1, 1, work, stream=one)
        kernel.launch(1, 1, work, stream=two)
    while testing.pending():
        time.sleep(0.001)
    import os, ctypes
    ctypes.CDLL(None).exit(0)
    """
    done = script.run(program, CUDADRV_SOFTWARE="schedule=eager,races=print")
    assert done.stderr.count("race on ") == 1
    assert "cuLaunchKernelEx of kernel 'poke'" in done.stderr or "launch of poke" in done.stderr


def the_next_line():
    """Does nothing. Python checks for signals at the beginning of a function."""


def test_ctrl_c_is_not_lost_in_a_report(driver):
    """Ctrl-C that comes while a report is being made is raised after the call.

    A report is made inside a driver call.
    """
    first, second = cu.Stream(name="first"), cu.Stream(name="second")
    buffer = cu.LockedBuffer(8)
    fill = functools.partial(buffer.fill_async, 1, second)
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        buffer.fill_async(1, first)
        with cu.ordering("unchecked"), pytest.raises(KeyboardInterrupt):
            list(map(operator.call, (ctypes.pythonapi.PyErr_SetInterrupt, fill, the_next_line)))
    finally:
        signal.signal(signal.SIGINT, handler)
    first.device.synchronize()
    assert "Stream 'second'" in the_report()
