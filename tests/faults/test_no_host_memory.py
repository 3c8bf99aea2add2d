"""The host runs out of memory in the middle of a call: no state is lost, and nothing leaks."""

import extensions
import numpy as np
import pytest

import cudadrv as cu

memory = extensions.compiled("no_memory")

STEPS = 60  # more allocations of Python objects than any call makes


def with_failing_allocation(number: int, call) -> bool:
    """Call a function in which one allocation of the interpreter fails.

    Returns whether it raised MemoryError.
    """
    memory.begin(number, number + 1)
    try:
        call()
    except MemoryError:
        return True
    finally:
        memory.end()
    return False


CALLS = {
    "record": lambda buffer, locked, stream: stream.record(),
    "make": lambda buffer, locked, stream: cu.LockedBuffer(8).close(),
    "stream": lambda buffer, locked, stream: cu.Stream().close(),
    "item": lambda buffer, locked, stream: locked.to_numpy(),
}


@pytest.mark.cuda_software
@pytest.mark.parametrize("name", CALLS)
def test_each_allocation_fails_once(stream, name):
    buffer, locked = cu.DeviceBuffer(16), cu.LockedBuffer.zeros(16)
    met = 0
    for number in range(STEPS):
        met += with_failing_allocation(number, lambda: CALLS[name](buffer, locked, stream))
        stream.synchronize()
        assert not buffer.borrowed
    assert met
    CALLS[name](buffer, locked, stream)
    stream.synchronize()
    buffer.close()
    locked.close()


def test_an_offload_without_memory_ends_with_a_later_wait(stream):
    """If memory is missing even to make the arrays writable again, a later wait makes them so."""
    array, met = np.zeros(16, "u4"), 0
    for number in range(0, 300, 2):
        memory.begin(number, number + 9)
        try:
            try:
                with cu.offload(inout=array, stream=stream):
                    pass
            finally:  # this must come first, because an `except` may need memory
                memory.end()
        except MemoryError:
            met += 1
        stream.synchronize()
        assert array.flags.writeable, number
    assert met
    assert not cu.live_buffers()


def test_without_memory_for_a_token_nothing_is_queued(stream):
    buffer = cu.DeviceBuffer(16)
    kept, met = [], 0
    for number in range(4):
        # Many live tokens, so that no dropped token can be reused.
        kept += [buffer.fill_async(1, stream) for _ in range(100)]
        stream.synchronize()
        if with_failing_allocation(number, lambda: buffer.fill_async(1, stream)):
            met += 1
            assert not buffer.borrowed
        stream.synchronize()
    assert met


@pytest.mark.cuda_software
@pytest.mark.parametrize("cuda_schedule", ["lazy"], indirect=True)
def test_a_first_use_raises_memory_error(script):
    """If memory runs out in an import, this raises MemoryError, and the next use tries again."""
    script.quiet(
        """
    import os
    import _testcapi
    import cudadrv as cu

    def strike(number):
        error = None
        _testcapi.set_nomemory(number, number + 1)
        try:
            try:
                cu.migration_limit
            finally:
                _testcapi.remove_mem_hooks()
        except Exception as found:
            error = found
        cu.migration_limit
        known = isinstance(error, MemoryError) or str(error).startswith("can't allocate ")
        os._exit(0 if error is None else 1 if known else 2)

    ends = []
    for number in range(0, 450, 3):
        child = os.fork()
        if not child:
            strike(number)
        ends.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    assert set(ends) == {0, 1}, ends
    """
    )
