"""The driver's log: the text of cuLogsDumpToMemory, and the messages that callbacks get."""

import ctypes
import os
import re
import subprocess
import sys

import pytest

from .client import INVALID_VALUE, PATIENCE, SUCCESS

ERROR = 0
KEPT = 25600  # how many bytes of messages the driver keeps at most
MOST_MESSAGES = 100
CALLBACK = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(ctypes.c_char), ctypes.c_size_t
)
CUT = b"Log buffer has rolled over since the previous dump. The oldest messages will be missing\n"
# A line of a dump: the time, the thread, the level and the message.
LINE = re.compile(rb"\[\d\d:\d\d:\d\d\.\d{3}\]\[\d+\]\[CUDA\]\[([EW])\] (.*)")


def fail(client):
    """Make a call that fails. Returns its last message: a real driver logs another one before."""
    assert client.call("cuMemAlloc_v2", ctypes.byref(ctypes.c_uint64()), 0) == INVALID_VALUE
    return b"Returning 1 (CUDA_ERROR_INVALID_VALUE) from cuMemAlloc_v2"


def messages(text, level=b"E"):
    """The messages of a dump, all of which have this level."""
    matches = [LINE.fullmatch(line) for line in text.splitlines()]
    assert {match[1] for match in matches} == {level}
    return [match[2] for match in matches]


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
    """A function that registers a callback. Returns the callback's messages, and its handle."""
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
    message = fail(client)
    text = dump(client, iterator)
    assert text.endswith(b"\n")
    assert messages(text)[-1] == message


def test_a_call_that_is_not_supported_is_logged_with_the_reason(software, client):
    iterator = current(client)
    graphics = (ctypes.c_uint64 * 3)(0, 0, 16)  # only cigParams is not null
    assert client.call("cuCtxCreate_v4", ctypes.byref(ctypes.c_void_p()), graphics, 0, 0) == 801
    reason, returned = messages(dump(client, iterator))
    assert b"cuCtxCreate_v4: cigParams: contexts that share resources with graphics" in reason
    assert b"Returning 801 (CUDA_ERROR_NOT_SUPPORTED) from cuCtxCreate_v4" in returned


def test_a_dump_moves_the_iterator(client):
    iterator = current(client)
    message = fail(client)
    assert dump(client, iterator) != b""
    assert dump(client, iterator) == b""
    assert dump(client, None).endswith(message + b"\n")


def test_an_answer_is_no_failure(client):
    stream, gate = client.stream(), client.gate()
    iterator = current(client)
    gate.hold(stream)
    assert client.call("cuStreamQuery", stream) == 600
    assert dump(client, iterator) == b""


@pytest.mark.cuda_software  # a real driver crashes
def test_a_dump_that_does_not_fit_has_the_last_messages(client):
    iterator = current(client)
    again, whole = ctypes.c_uint(iterator.value), ctypes.c_uint(iterator.value)
    for _ in range(3):
        fail(client)
    lines = dump(client, whole).splitlines(keepends=True)
    room = len(CUT) + 2 * len(lines[0]) + 1
    assert dump(client, iterator, room) == CUT + b"".join(lines[1:])
    assert dump(client, iterator) == b""
    buffer, size = ctypes.create_string_buffer(9), ctypes.c_size_t(9)
    small = ctypes.byref(again), buffer, ctypes.byref(size), 0
    assert client.call("cuLogsDumpToMemory", *small) == INVALID_VALUE
    assert size.value == 0
    # The failed dump has not moved the iterator.
    assert dump(client, again).startswith(b"".join(lines))


def test_old_messages_are_lost(client):
    iterator = current(client)
    message = fail(client)
    for _ in range(KEPT // len(message)):
        fail(client)
    text = dump(client, iterator)
    assert text.startswith(CUT)
    assert messages(text.removeprefix(CUT))[-1] == message


def test_the_last_messages_are_kept(client):
    for _ in range(MOST_MESSAGES + 1):
        message = fail(client)
    text = dump(client, None)
    assert text.startswith(CUT)
    kept = messages(text.removeprefix(CUT))
    assert len(kept) == MOST_MESSAGES
    assert kept[-1] == message


def test_the_bytes_of_long_messages_are_limited(client, software):
    name = "x" * 1000  # an instruction that does not exist
    code = f".version 7.0\n.target sm_70\n.address_size 64\n.entry f() {{\n{name};\n}}\n".encode()
    for _ in range(MOST_MESSAGES // 2):
        assert client.call("cuModuleLoadData", ctypes.byref(ctypes.c_void_p()), code) != SUCCESS
    lines = dump(client, None).removeprefix(CUT)
    kept = messages(lines)
    assert len(kept) < MOST_MESSAGES
    assert KEPT - max(map(len, lines.splitlines(keepends=True))) < len(lines) <= KEPT


def test_dump_to_a_file(client, tmp_path):
    iterator, file = current(client), tmp_path / "log.txt"
    message = fail(client)
    client.ok("cuLogsDumpToFile", ctypes.byref(iterator), os.fsencode(file), 0)
    assert messages(file.read_bytes())[-1] == message


def test_dump_to_a_file_that_cannot_be_made(client, tmp_path):
    nowhere = os.fsencode(tmp_path / "no" / "file")
    iterator = current(client)
    assert client.call("cuLogsDumpToFile", ctypes.byref(iterator), nowhere, 0) == INVALID_VALUE


# On an H100, callbacks get the same messages, but this test or the next one hung. On an H200, the
# next one hangs.
@pytest.mark.cuda_software
def test_callbacks(client, listen):
    (first, handle), (second, _) = listen(), listen()
    message = fail(client)
    assert first == [(1, ERROR, message)]
    assert second == [(2, ERROR, message)]
    client.ok("cuLogsUnregisterCallback", handle)
    assert client.call("cuLogsUnregisterCallback", handle) == INVALID_VALUE
    fail(client)
    assert len(first) == 1
    assert len(second) == 3  # also the message of the failed cuLogsUnregisterCallback


@pytest.mark.cuda_software  # NVIDIA's driver hangs
def test_a_callback_may_call_the_driver(client, listen):
    """A callback is not called for failures of its own calls, but the log has these failures."""
    told, _ = listen(lambda: fail(client))
    iterator = current(client)
    message = fail(client)
    assert [text for _, _, text in told] == [message]
    assert messages(dump(client, iterator)) == 2 * [message]
    fail(client)
    assert len(told) == 2


@pytest.mark.cuda_software  # NVIDIA's driver crashes
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
    text = dump(program, iterator)
    assert messages(text, b"W")[0].startswith(b"race on device memory")


def test_kernel_errors(lost):
    iterator = current(lost)
    assert (
        lost.launch(
            lost.function(lost.kernels, "fill"), None, 64, ctypes.c_uint(1), ctypes.c_uint(1)
        )
        == 0
    )
    assert lost.call("cuCtxSynchronize") == 700
    told = messages(dump(lost, iterator))
    assert told[0].startswith(b"kernel 'fill'")
    assert told[-1] == b"Returning 700 (CUDA_ERROR_ILLEGAL_ADDRESS) from cuCtxSynchronize"


def test_where_the_log_ends(client):
    """Flags are ignored, although cuda.h says that they must be 0."""
    assert client.call("cuLogsCurrent", None, 0) == INVALID_VALUE
    assert client.call("cuLogsCurrent", ctypes.byref(ctypes.c_uint()), 1) == SUCCESS


@pytest.mark.cuda_software  # a real driver may read and write where these arguments point
def test_wrong_arguments(client):
    iterator, size = ctypes.c_uint(), ctypes.c_size_t(10)
    at, buffer = ctypes.byref(iterator), ctypes.create_string_buffer(10)
    for name, *arguments in (
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
message = b"Returning 3 (CUDA_ERROR_NOT_INITIALIZED) from cuCtxSynchronize"
assert told == [message + b"\\n"], told
driver.cuInit(0)
child = os.fork()
if not child:
    driver.cuCtxSynchronize()
    os._exit(len(told) - 1)  # calls that a forked child must not make are not logged
assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.cuda_software  # an H100 logs other messages
def test_before_cuinit_and_in_a_forked_child(library_path, lib):
    subprocess.run([sys.executable, "-c", CHILD, library_path], check=True, timeout=PATIENCE)
