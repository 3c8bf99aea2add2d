"""The line that a message names is the user's, whoever called."""

import asyncio
import contextlib
import functools
import inspect

import numpy as np
import pytest

import cudadrv as cu


@pytest.fixture
def buffer(driver):
    buffer = cu.LockedBuffer.zeros(16)
    yield buffer
    cu.Device(0).synchronize()
    buffer.close()


def in_generator(buffer, stream):
    yield buffer.fill_async(1, stream)  # the line


def decorated(function):
    @functools.wraps(function)
    def wrapper(*arguments):
        return function(*arguments)

    return wrapper


@decorated
def behind_a_decorator(buffer, stream):
    return buffer.fill_async(1, stream)  # the line


async def in_a_task(buffer, stream):
    return await asyncio.create_task(coroutine(buffer, stream))


async def coroutine(buffer, stream):
    return buffer.fill_async(1, stream)  # the line


def in_a_key(buffer, stream):
    tokens = []
    sorted([1], key=lambda _: tokens.append(buffer.fill_async(1, stream)))  # the line
    return tokens[0]


def on_exit(buffer, stream):
    with contextlib.ExitStack() as stack:  # the line
        tokens = []
        stack.callback(map(tokens.append, map(buffer.fill_async, [1], [stream])).__next__)
    return tokens[0]


def in_numpy(buffer, stream):
    found = np.apply_along_axis(lambda _: fill_from_numpy(buffer, stream), 0, np.zeros(1))
    return found[0]


def fill_from_numpy(buffer, stream):
    return [buffer.fill_async(1, stream)]  # the line


def direct_from_numpy(buffer, stream):
    tokens = []
    fill = functools.partial(buffer.fill_async, stream=stream)
    np.vectorize(lambda value: tokens.append(fill(int(value))), otypes="O")([1])  # the line
    return tokens[0]


CALLS = {
    "comprehension": lambda b, s: [b.fill_async(value, s) for value in (1,)][0],  # noqa: RUF015
    "lambda": lambda b, s: (lambda: b.fill_async(1, s))(),
    "map": lambda b, s: next(map(b.fill_async, [1], [s])),
    "partial": lambda b, s: functools.partial(b.fill_async, 1, s)(),
    "method": lambda b, s: type(b).fill_async(b, 1, s),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls_in_one_line(buffer, stream, name):
    line = 1 + next(at for at, text in enumerate(SOURCE) if text.startswith(f'    "{name}": '))
    assert CALLS[name](buffer, stream).site.endswith(f"test_sites.py:{line}")


SOURCE = inspect.getsource(inspect.getmodule(decorated)).splitlines()
FUNCTIONS = {
    "generator": (lambda b, s: next(in_generator(b, s)), in_generator),
    "decorator": (behind_a_decorator, behind_a_decorator),
    "task": (lambda b, s: asyncio.run(in_a_task(b, s)), coroutine),
    "key": (in_a_key, in_a_key),
    "exit stack": (on_exit, on_exit),
    "below numpy": (in_numpy, fill_from_numpy),
    "out of numpy": (direct_from_numpy, direct_from_numpy),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(buffer, stream, name):
    call, function = FUNCTIONS[name]
    lines, first = inspect.getsourcelines(function)
    line = first + next(at for at, text in enumerate(lines) if "# the line" in text)
    assert call(buffer, stream).site.endswith(f"test_sites.py:{line}")


def test_code_without_a_file(buffer, stream):
    program = compile("\n\ntoken = buffer.fill_async(1, stream)", "<cell 3>", "exec")
    names = {"buffer": buffer, "stream": stream}
    exec(program, names)
    assert names["token"].site == "<cell 3>:3"


def test_a_view_that_the_standard_library_opened(buffer, stream):
    with contextlib.ExitStack() as stack:
        stack.enter_context(buffer.write())
        with pytest.raises(cu.BufferExportedError, match=r"made at .*test_sites\.py:\d+\."):
            buffer.fill_async(1, stream)


def test_a_thread_that_only_the_standard_library_runs(buffer, stream):
    """There is no line of the user's: the innermost one is better than none."""
    import threading

    thread = threading.Thread(target=buffer.fill_async, args=(1, stream))
    thread.start()
    thread.join()
    assert "threading.py:" in buffer.borrows[0].site


def test_the_table_of_lines_starts_anew_while_code_dies(script):
    """Code that dies then may run Python, which notes lines of its own."""
    script.quiet(
        """
import weakref
import cudadrv as cu

kept = []
first = compile("cu.DeviceBuffer(0)", "first.py", "exec")
exec(first)
died = weakref.ref(first, lambda _: kept.extend(cu.DeviceBuffer(4) for _ in range(4)))
del first
while not kept:
    exec(compile("cu.DeviceBuffer(0)", "another.py", "exec"))
assert all("<string>:" in buffer.site for buffer in cu.live_buffers())
"""
    )
