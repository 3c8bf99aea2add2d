"""Messages name a line of the user's code, through any kind of call."""

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
    yield buffer.fill_async(1, stream)  # the line that messages name


def decorated(function):
    @functools.wraps(function)
    def wrapper(*arguments):
        return function(*arguments)

    return wrapper


@decorated
def behind_a_decorator(buffer, stream):
    return buffer.fill_async(1, stream)  # the line that messages name


async def in_a_task(buffer, stream):
    return await asyncio.create_task(coroutine(buffer, stream))


async def coroutine(buffer, stream):
    return buffer.fill_async(1, stream)  # the line that messages name


def in_a_key(buffer, stream):
    tokens = []
    sorted([1], key=lambda _: tokens.append(buffer.fill_async(1, stream)))  # the line named
    return tokens[0]


def on_exit(buffer, stream):
    with contextlib.ExitStack() as stack:  # the line that messages name
        tokens = []
        stack.callback(map(tokens.append, map(buffer.fill_async, [1], [stream])).__next__)
    return tokens[0]


def in_numpy(buffer, stream):
    found = np.apply_along_axis(lambda _: fill_from_numpy(buffer, stream), 0, np.zeros(1))
    return found[0]


def fill_from_numpy(buffer, stream):
    return [buffer.fill_async(1, stream)]  # the line that messages name


def direct_from_numpy(buffer, stream):
    tokens = []
    fill = functools.partial(buffer.fill_async, stream=stream)
    np.vectorize(lambda value: tokens.append(fill(int(value))), otypes="O")([1])  # the line named
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
    """If a thread runs no line of the user's code, the message names the innermost line."""
    import threading

    thread = threading.Thread(target=buffer.fill_async, args=(1, stream))
    thread.start()
    thread.join()
    assert "threading.py:" in buffer.borrows[0].site


def test_the_table_of_lines_starts_anew_while_code_dies(script):
    """The table of lines is full and starts anew, which drops code objects.

    Dropping a code object may run Python code, which adds lines to the table.
    """
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


# ---- skip_file_prefixes ----

LIBRARY = """
import cudadrv as cu

class Wrapper:
    def __init__(self, buffer):
        self.buffer = buffer

    def fill(self, stream):
        return self.inner(stream)

    def inner(self, stream):
        return self.buffer.fill_async(1, stream)

    def lend(self, stream):
        return self.buffer.lend(stream)

    def each(self, streams):
        for stream in streams:
            yield self.fill(stream)

    def close(self):
        self.buffer.close()

    async def fill_soon(self, stream):
        return self.fill(stream)

    def view(self):
        return self.buffer.readonly()

def make(n):
    return Wrapper(cu.LockedBuffer.zeros(n))

def call(function):
    return function()

evaluated = eval("lambda wrapper, stream: wrapper.fill(stream)")
"""
USER = """
import asyncio, functools
import cudadrv as cu, os.path, wrapping
from wrapping import make, call
stream, other = cu.Stream(), cu.Stream()
wrapper = make(16)                                       # line 6
"""


@pytest.fixture
def wrapped(script, tmp_path):
    """A function that runs a user's program, which uses a library that wraps cudadrv."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "wrapping.py").write_text(LIBRARY)

    def run(program, skip=True):
        head = "import sys; sys.path[:0] = ['lib', '.']\nimport cudadrv as cu\n"
        head += "cu.skip_file_prefixes(os.path.abspath('lib'))\n" if skip else ""
        path = tmp_path / "user.py"
        path.write_text(USER + program + "\ncu.Device(0).synchronize()\n")
        return script.quiet(
            f"import os; os.chdir({str(tmp_path)!r})\n{head}import user\n",
        )

    return run


def test_the_lines_of_a_library_are_skipped(wrapped):
    found = wrapped("""
def line(token):
    print(token.site)
line(wrapper.fill(stream))                               # 10
for token in wrapper.each([stream, stream]): line(token) # 11
line(functools.partial(wrapper.fill, stream)())          # 12
line(call(lambda: wrapper.fill(stream)))                 # 13
line(asyncio.run(wrapper.fill_soon(stream)))             # 14
line(next(map(wrapper.fill, [stream])))                  # 15
line(wrapper.buffer.fill_async(1, stream))               # 16
""")
    lines = [int(line.rpartition("user.py:")[2]) for line in found.split()]
    assert lines == [10, 11, 11, 12, 13, 14, 15, 16]


def test_without_it_they_are_named(wrapped):
    found = wrapped("print(wrapper.fill(stream).site)\n", skip=False)
    assert "wrapping.py:12" in found


def test_everything_that_notes_a_line_follows(wrapped):
    found = wrapped("""
wrapper.fill(stream)                                     # 8
try:
    wrapper.fill(other)
except cu.BufferBorrowedError as error:
    print("refused:", str(error).partition("queued at ")[2].split(",")[0])
print("made:", cu.live_buffers()[0].site)
stream.synchronize()
with wrapper.lend(stream):                               # 15
    print("lent:", wrapper.buffer.explain().partition("user.py:")[2][:2])
stream.synchronize()
view = wrapper.view()                                    # 18
try:
    wrapper.buffer.fill_async(1, stream)
    memoryview(view)
except cu.OwnershipError as error:
    print(error)
stream.synchronize()
del view
wrapper.close()                                          # 26
try:
    wrapper.fill(stream)
except cu.BufferClosedError as error:
    print("closed:", error)
""")
    assert "wrapping.py" not in found
    assert "refused: user.py:8" in found
    assert "made: user.py:6" in found
    assert "lent: 15" in found
    assert "user.py:26" in found


@pytest.mark.cuda_software
def test_races_name_the_users_lines(script, tmp_path):
    (tmp_path / "wrapping.py").write_text(LIBRARY)
    found = script.quiet(f"""
        import sys; sys.path.insert(0, {str(tmp_path)!r})
        import cudadrv as cu, wrapping
        from cudadrv import testing
        cu.skip_file_prefixes({str(tmp_path)!r})
        testing.configure("schedule=lazy")
        wrapper, stream, other = wrapping.make(16), cu.Stream(), cu.Stream()
        with cu.ordering("unchecked"):
            wrapper.fill(stream)
            wrapper.fill(other)
        cu.Device(0).synchronize()
        for race in testing.races():
            print(race)
    """)
    assert "<string>:9" in found
    assert "<string>:10" in found
    assert "wrapping.py" not in found


def test_lines_that_were_noted_before_stay_and_later_ones_are_skipped(wrapped):
    found = wrapped(
        """
first = wrapper.fill(stream)                             # 8
cu.skip_file_prefixes(os.path.dirname(wrapping.__file__))
second = wrapper.fill(stream)                            # 10
print(first.site, second.site)
""",
        skip=False,
    )
    first, second = found.split()
    assert first.endswith("wrapping.py:12")
    assert second == "user.py:10"


def test_a_prefix_of_everything_leaves_the_innermost_line(wrapped):
    found = wrapped("""
cu.skip_file_prefixes("user", "<", "/")
print(wrapper.fill(stream).site)
""")
    assert found.strip().endswith("wrapping.py:12")


def test_code_without_a_file_can_be_skipped(wrapped):
    found = wrapped("""
code = compile("def fill(): return wrapper.fill(stream)", "<generated 7>", "exec")
exec(code, globals())
print(fill().site)                                       # 10
cu.skip_file_prefixes("<generated")
print(fill().site)                                       # 12
print(wrapping.evaluated(wrapper, stream).site)
""")
    assert found.split() == ["<generated", "7>:1", "user.py:12", "<string>:1"]


def test_threads_that_a_library_starts(wrapped):
    """A thread that a library starts runs no line of the user's code.

    So the message names the thread's innermost line.
    """
    found = wrapped("""
import threading
threads = [threading.Thread(target=wrapper.fill, args=(stream,)) for _ in range(4)]
for thread in threads: thread.start(); thread.join()
print({borrow.site for borrow in wrapper.buffer.borrows})
""")
    assert "wrapping.py:12" in found


def test_what_is_no_prefix(driver, tmp_path):
    with pytest.raises(TypeError):
        cu.skip_file_prefixes(1)
    with pytest.raises(TypeError, match="must be a str, not bytes"):
        cu.skip_file_prefixes(b"lib")
    with pytest.raises(ValueError, match="a prefix is empty"):
        cu.skip_file_prefixes("")
    cu.skip_file_prefixes()
    cu.skip_file_prefixes(tmp_path, tmp_path, str(tmp_path))


def test_code_that_dies_behind_a_library(script, tmp_path):
    """The table of lines starts anew while it is searched for a line of the user."""
    (tmp_path / "wrapping.py").write_text(LIBRARY)
    script.quiet(f"""
        import sys; sys.path.insert(0, {str(tmp_path)!r})
        import cudadrv as cu, wrapping
        cu.skip_file_prefixes({str(tmp_path)!r})
        stream, wrapper = cu.Stream(), wrapping.make(16)
        for index in range(20000):
            names = dict(wrapper=wrapper, stream=stream)
            exec(compile("token = wrapper.fill(stream)", f"line {{index}}", "exec"), names)
            assert names["token"].site == f"line {{index}}:1", (index, names["token"].site)
        stream.synchronize()
    """)
