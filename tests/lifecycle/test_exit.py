"""The interpreter ends quietly with any objects alive, in any order."""

import itertools
from pathlib import Path

import pytest

TESTS = str(Path(__file__).parents[1])
HEAD = """
    import sys
    import cudadrv as cu
"""
THINGS = {
    "stream": "cu.Stream()",
    "event": "cu.Stream().record()",
    "buffer": "cu.LockedBuffer.zeros(16)",
    "token": "cu.LockedBuffer.zeros(16).fill_async(1, cu.Stream())",
}


@pytest.mark.parametrize("order", list(itertools.permutations(THINGS)), ids="-".join)
def test_globals_in_any_order(script, order):
    script.quiet(HEAD + "".join(f"    {name} = {THINGS[name]}\n" for name in order))


GENERATORS = """
    def suspended(stream):
        buffer = cu.LockedBuffer.zeros(16)
        with cu.ordering("wait"), stream:
            yield buffer.fill_async(1)

    def suspended_view(buffer):
        with buffer.read() as array:
            yield array

    async def waiting(buffer):
        import asyncio
        async def work():
            await buffer.fill_async(1, cu.Stream())
        sys.task = asyncio.create_task(work())
        await asyncio.sleep(0)
"""


@pytest.mark.parametrize(
    "last",
    [
        "view = memoryview(cu.LockedBuffer.zeros(16))",
        "import numpy; view = numpy.asarray(cu.LockedBuffer.zeros(16))",
        "block = cu.LockedBuffer.zeros(16).write(); array = block.__enter__()",
        "stream = cu.Stream(); stream.__enter__()",
        "context = cu.Context.create(cu.Device(0)); context.__enter__(); stream = cu.Stream()",
        "legacy, mine = cu.Stream.legacy(), cu.Stream.per_thread(); legacy.wait(mine)",
        "token = cu.LockedBuffer.zeros(16).fill_async(1, cu.Stream.per_thread())",
        "sys.stream = cu.Stream()",
        "sys.modules['kept'] = cu.LockedBuffer.zeros(16).fill_async(1, cu.Stream())",
        "import atexit; stream = cu.Stream(); atexit.register(stream.synchronize)",
        "import builtins; builtins.kept = [cu.Event(), cu.Stream(), cu.DeviceBuffer(4)]",
        "work = suspended(cu.Stream()); next(work)",
        "sys.kept = suspended(cu.Stream()); next(sys.kept)",
        "work = suspended_view(cu.LockedBuffer.zeros(16)); next(work)",
        "work = suspended_view(cu.LockedBuffer.zeros(16)); next(work); sys.kept = work",
        "import weakref; b = cu.LockedBuffer(4); weakref.finalize(b, print, end='')",
        "import atexit; b = cu.LockedBuffer(4); atexit.register(lambda: (b.fill(1), b.close()))",
        "import atexit; atexit.register(cu.reap); cu.DeviceBuffer(4).fill_async(1, cu.Stream())",
        "b = cu.DeviceBuffer(4, stream=cu.Stream()); sys.kept = b[1:].take(); del b",
        "b = cu.LockedBuffer.zeros(4); c = cu.LockedBuffer.from_address(b.address, 4, owner=b)",
        "import numpy; array = numpy.from_dlpack(cu.LockedBuffer.zeros(16))",
        "import numpy; sys.kept = numpy.from_dlpack(cu.LockedBuffer.zeros(16))",
        "sys.kept = cu.DeviceBuffer(4).__dlpack__()",
        "sys.kept = cu.DeviceBuffer(4).lend(cu.Stream()); sys.kept.__cuda_array_interface__",
        "sys.kept = cu.from_dlpack(cu.DeviceBuffer(4)); sys.kept.fill_async(1, cu.Stream.legacy())",
        "import asyncio; asyncio.run(waiting(cu.LockedBuffer.zeros(16)))",
        "sys.kept = type('Last', (), {'__del__': lambda self, b=cu.LockedBuffer.zeros(16),"
        " s=cu.Stream(): [b.fill_async(1, s).wait() for _ in range(9)]})()",
    ],
)
def test_with_something_alive(script, last):
    script.quiet(HEAD + GENERATORS + "    " + last)


@pytest.mark.parametrize("end", ["end_as_the_process_ends", "end_without_the_gil"])
def test_deleters_that_nothing_follows(script, end):
    """Deleters that run last use nothing that is gone by then: neither objects nor the driver."""
    script.quiet(
        HEAD
        + f"""
    sys.path.insert(0, {TESTS!r})
    from capsules import Consumer
    stream = cu.Stream()
    buffers = [cu.DeviceBuffer(16), cu.LockedBuffer.zeros(16), cu.DeviceBuffer(16)]
    sys.kept = buffers[0]
    consumers = [
        Consumer(buffer.__dlpack__(stream=stream.handle, max_version=version))
        for buffer in buffers for version in (None, (1, 0))
    ]
    del buffers
    for consumer in consumers:
        consumer.{end}()
    """
    )


def test_in_cycles(script):
    script.quiet(
        HEAD
        + """
    class Node:
        pass
    nodes = []
    for _ in range(10):
        node = Node()
        node.me, node.stream = node, cu.Stream()
        node.token = cu.LockedBuffer.zeros(16).fill_async(1, node.stream)
        node.event = node.stream.record()
    """
    )


def test_while_threads_work(script):
    script.quiet(
        HEAD
        + """
    import threading, time
    def work():
        stream, buffer = cu.Stream(), cu.LockedBuffer.zeros(16)
        while True:
            buffer.fill_async(1, stream).wait()
    for _ in range(3):
        threading.Thread(target=work, daemon=True).start()
    time.sleep(0.1)
    """
    )


@pytest.mark.parametrize("wait", ["token.wait()", "stream.synchronize()", "buffer.copy_to(back)"])
def test_while_threads_wait_for_what_never_ends(script, wait):
    """The interpreter ends while daemon threads wait for work that never ends."""
    script.quiet(
        HEAD
        + f"""
    import ctypes, threading, time
    stream, flag = cu.Stream(), cu.LockedBuffer.zeros(1, "u4")
    wait = ctypes.CDLL(cu.driver_info().path).cuStreamWaitValue32_v2
    wait.argtypes = [ctypes.c_void_p, ctypes.c_ulonglong, ctypes.c_uint, ctypes.c_uint]
    with stream.device:
        assert wait(stream.handle, flag.address, 1, 0) == 0
    def work():
        buffer, back = cu.LockedBuffer.zeros(16), bytearray(16)
        with stream:
            token = buffer.fill_async(1)
            {wait}
    for _ in range(3):
        threading.Thread(target=work, daemon=True).start()
    time.sleep(0.1)
    """
    )


def test_views_in_cycles(script):
    script.quiet(
        HEAD
        + """
    import numpy
    class Node:
        pass
    for make in (memoryview, numpy.asarray, lambda b: memoryview(b.readonly()), lambda b: b[1:]):
        node = Node()
        node.me, node.buffer = node, cu.LockedBuffer.zeros(16)
        node.view, node.stream = make(node.buffer), cu.Stream()
        node.work = (lambda n: n.stream)(node)
    """
    )


def test_with_work_that_never_ends(script):
    script.quiet(
        HEAD
        + """
    import ctypes
    stream, flag = cu.Stream(), cu.LockedBuffer.zeros(1, "u4")
    wait = ctypes.CDLL(cu.driver_info().path).cuStreamWaitValue32_v2
    wait.argtypes = [ctypes.c_void_p, ctypes.c_ulonglong, ctypes.c_uint, ctypes.c_uint]
    with stream.device:
        assert wait(stream.handle, flag.address, 1, 0) == 0
    token = cu.LockedBuffer.zeros(16).fill_async(1, stream)
    import atexit
    flag_view = memoryview(flag)
    atexit.register(lambda: flag_view.__setitem__(0, 1))
    """
    )


def test_after_an_exception(script):
    done = script.run(
        HEAD
        + """
    with cu.Device(0), cu.Stream() as stream:
        cu.LockedBuffer.zeros(16).fill_async(1)
        raise SystemExit(3)
    """
    )
    assert (done.returncode, done.stderr) == (3, "")
