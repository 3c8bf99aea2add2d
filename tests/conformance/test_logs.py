"""The driver's log: the text of cuLogsDumpToMemory, and the messages that callbacks get."""

import ctypes
import os
import subprocess
import sys

import pytest

from .client import INVALID_VALUE, PATIENCE, SUCCESS

pytestmark = pytest.mark.cuda_software

ERROR, WARNING = 0, 1
CALLBACK = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(ctypes.c_char), ctypes.c_size_t
)
CUT = b"(older messages are not here)\n"


def fail(client):
    """Make a call that fails. Returns the line that the log then has for it."""
    assert client.call("cuMemAlloc_v2", ctypes.byref(ctypes.c_uint64()), 0) == INVALID_VALUE
    return b"[error] cuMemAlloc_v2 returned CUDA_ERROR_INVALID_VALUE (1)"


def current(client):
    iterator = ctypes.c_uint()
    client.ok("cuLogsCurrent", ctypes.byref(iterator), 0)
    return iterator


def dump(client, iterator, room=30000):
    buffer, size = ctypes.create_string_buffer(room), ctypes.c_size_t(room)
    told = ctypes.byref(iterator) if iterator is not None else None
    client.ok("cuLogsDumpToMemory", told, buffer, ctypes.byref(size), 0)
    assert len(buffer.value) == size.value
    return buffer.value


@pytest.fixture
def listen(client):
    """Register a callback. Returns the list of the messages that it gets, and its handle."""
    kept = []

    def listen(function=None):
        told = []

        def hear(data, level, text, length):
            told.append((data, level, text[:length]))
            if function:
                function()

        handle, callback = ctypes.c_void_p(), CALLBACK(hear)
        register = client.lib._lib.cuLogsRegisterCallback
        data = ctypes.c_void_p(len(kept) + 1)
        assert register(callback, data, ctypes.byref(handle)) == SUCCESS
        kept.append((handle.value, callback))
        return told, handle.value

    yield listen
    for handle, _ in kept:
        client.call("cuLogsUnregisterCallback", handle)


def test_failed_calls_are_logged(client):
    iterator = current(client)
    assert dump(client, iterator) == b""
    line = fail(client)
    assert dump(client, iterator) == line + b"\n"
    assert dump(client, iterator) == b""  # the dump has moved the iterator
    assert dump(client, None).endswith(line + b"\n")


def test_an_answer_is_no_failure(client):
    stream, gate = client.stream(), client.gate()
    iterator = current(client)
    gate.hold(stream)
    assert client.call("cuStreamQuery", stream) == 600
    assert dump(client, iterator) == b""


def test_a_dump_that_does_not_fit_has_the_last_messages(client):
    iterator = current(client)
    line = fail(client) + b"\n"
    fail(client)
    fail(client)
    room = len(CUT) + 2 * len(line) + 1
    again = ctypes.c_uint(iterator.value)
    assert dump(client, iterator, room) == CUT + 2 * line
    assert dump(client, iterator) == b""
    buffer, size = ctypes.create_string_buffer(9), ctypes.c_size_t(9)
    small = ctypes.byref(again), buffer, ctypes.byref(size), 0
    assert client.call("cuLogsDumpToMemory", *small) == INVALID_VALUE
    assert size.value == 0
    assert dump(client, again).startswith(3 * line)  # the failed dump has not moved the iterator


def test_old_messages_are_lost(client):
    iterator = current(client)
    line = fail(client) + b"\n"
    kept = 25600 // len(line)
    for _ in range(kept + 5):
        fail(client)
    text = dump(client, iterator)
    assert text.startswith(CUT)
    assert text.count(line) == kept
    assert dump(client, None).startswith(CUT)


def test_dump_to_a_file(client, tmp_path):
    iterator, file = current(client), tmp_path / "log.txt"
    line = fail(client)
    client.ok("cuLogsDumpToFile", ctypes.byref(iterator), os.fsencode(file), 0)
    assert file.read_bytes() == line + b"\n"
    nowhere = os.fsencode(tmp_path / "no" / "file")
    assert client.call("cuLogsDumpToFile", ctypes.byref(iterator), nowhere, 0) == INVALID_VALUE


def test_callbacks(client, listen):
    (first, handle), (second, _) = listen(), listen()
    line = fail(client)
    assert first == [(1, ERROR, line)]
    assert second == [(2, ERROR, line)]
    client.ok("cuLogsUnregisterCallback", handle)
    assert client.call("cuLogsUnregisterCallback", handle) == INVALID_VALUE
    fail(client)
    assert len(first) == 1
    assert len(second) == 3  # also the message of the failed cuLogsUnregisterCallback


def test_a_callback_may_call_the_driver(client, listen):
    """A callback is not called for failures of its own calls, but the log has them."""
    told, _ = listen(lambda: fail(client))
    iterator = current(client)
    line = fail(client)
    assert [text for _, _, text in told] == [line]
    assert dump(client, iterator) == 2 * (line + b"\n")
    fail(client)
    assert len(told) == 2


def test_a_callback_may_unregister_itself(client, listen):
    handles = []
    told, handle = listen(lambda: client.ok("cuLogsUnregisterCallback", handles.pop()))
    handles.append(handle)
    fail(client)
    fail(client)
    assert len(told) == 1


def test_races_are_warnings(program):
    iterator = current(program)
    memory = program.device(256)
    program.fill(memory, program.stream())
    program.fill(memory, program.stream())
    program.ok("cuCtxSynchronize")
    assert dump(program, iterator).startswith(b"[warning] race on device memory")


def test_kernel_errors(lost):
    iterator = current(lost)
    assert (
        lost.launch(
            lost.function(lost.kernels, "fill"), None, 64, ctypes.c_uint(1), ctypes.c_uint(1)
        )
        == 0
    )
    assert lost.call("cuCtxSynchronize") == 700
    text = dump(lost, iterator)
    assert text.startswith(b"[error] kernel 'fill'")
    assert b"[error] cuCtxSynchronize returned CUDA_ERROR_ILLEGAL_ADDRESS (700)" in text


def test_wrong_arguments(client):
    iterator, size = ctypes.c_uint(), ctypes.c_size_t(10)
    at, buffer = ctypes.byref(iterator), ctypes.create_string_buffer(10)
    for name, *arguments in (
        ("cuLogsCurrent", None, 0),
        ("cuLogsCurrent", at, 1),
        ("cuLogsDumpToMemory", at, None, ctypes.byref(size), 0),
        ("cuLogsDumpToMemory", at, buffer, None, 0),
        ("cuLogsDumpToMemory", at, buffer, ctypes.byref(ctypes.c_size_t(0)), 0),
        ("cuLogsDumpToMemory", at, buffer, ctypes.byref(size), 1),
        ("cuLogsDumpToFile", at, None, 0),
        ("cuLogsUnregisterCallback", 12345),
    ):
        assert client.call(name, *arguments) == INVALID_VALUE, name
    assert client.lib._lib.cuLogsRegisterCallback(None, None, None) == INVALID_VALUE


CHILD = """
import ctypes, os, sys
driver = ctypes.CDLL(sys.argv[1])
CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t)
told = []
callback = CALLBACK(lambda data, level, text, length: told.append(text))
driver.cuLogsRegisterCallback(callback, None, None)  # before cuInit
driver.cuCtxSynchronize()
assert told == [b"[error] cuCtxSynchronize returned CUDA_ERROR_NOT_INITIALIZED (3)\\n"], told
driver.cuInit(0)
child = os.fork()
if not child:
    driver.cuCtxSynchronize()
    os._exit(len(told) - 1)  # nobody is told of what a forked child must not call
assert os.waitpid(child, 0)[1] == 0
"""


def test_before_cuinit_and_in_a_forked_child(library_path, lib):
    subprocess.run([sys.executable, "-c", CHILD, library_path], check=True, timeout=PATIENCE)
