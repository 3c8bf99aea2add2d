"""The settings of coredumps."""

import ctypes

import pytest

from .client import INVALID_VALUE, SUCCESS

NOT_SUPPORTED = 801
ON_EXCEPTION, TRIGGER_HOST, LIGHTWEIGHT, USER_TRIGGER, FILE, PIPE, FLAGS = range(1, 8)
TEXT_BYTES = 1024
READ, WRITE = "cuCoredumpGetAttribute", "cuCoredumpSetAttribute"

# These tests check what cuda.h says. No GPU has answered yet.
unasked = pytest.mark.cuda_software


def get(client, setting, kind=ctypes.c_bool, suffix="Global"):
    value = kind()
    size = ctypes.c_size_t(ctypes.sizeof(value))
    client.ok(READ + suffix, setting, ctypes.byref(value), ctypes.byref(size))
    return value.value


def get_text(client, setting, suffix="Global"):
    return get(client, setting, ctypes.c_char * TEXT_BYTES, suffix)


def put(client, setting, value, suffix="Global"):
    size = ctypes.c_size_t(ctypes.sizeof(value))
    return client.call(WRITE + suffix, setting, ctypes.byref(value), ctypes.byref(size))


def put_text(client, text, suffix="Global"):
    return put(client, FILE, ctypes.create_string_buffer(text), suffix)


@pytest.fixture(autouse=True)
def restored(client):
    """Restore the settings that tests change for the whole process."""
    text = get_text(client, FILE)
    values = {setting: get(client, setting) for setting in (TRIGGER_HOST, LIGHTWEIGHT)}
    flags = get(client, FLAGS, ctypes.c_int)
    yield
    assert put_text(client, text) == SUCCESS
    for setting, value in values.items():
        assert put(client, setting, ctypes.c_bool(value)) == SUCCESS
    assert put(client, FLAGS, ctypes.c_int(flags)) == SUCCESS


@pytest.fixture
def context(client):
    """A new context for the test, because settings of a context cannot be removed."""
    handle = ctypes.c_void_p()
    client.ok("cuCtxCreate_v2", ctypes.byref(handle), 0, 0)
    yield handle
    client.ok("cuCtxDestroy_v2", handle)
    client.ok("cuCtxSetCurrent", client.lib.primary)


def test_defaults(client):
    assert not get(client, ON_EXCEPTION)
    assert not get(client, USER_TRIGGER)
    assert get_text(client, PIPE) == b""  # cuda.h describes another default


def test_settings_are_kept(client):
    for value in (False, True):
        assert put(client, TRIGGER_HOST, ctypes.c_bool(value)) == SUCCESS
        assert get(client, TRIGGER_HOST) is value
    assert put(client, FLAGS, ctypes.c_int(6)) == SUCCESS
    assert get(client, FLAGS, ctypes.c_int) == 6
    assert put(client, FLAGS, ctypes.c_int(0)) == SUCCESS


@pytest.mark.parametrize("end", [b"", b"\0more"])
def test_a_text_ends_with_its_size_or_with_zero(client, end):
    text = b"dump of a test" + end
    room = (ctypes.c_char * len(text))(*text)
    assert put(client, FILE, room) == SUCCESS
    assert get_text(client, FILE) == b"dump of a test"


def test_a_context_has_its_own_settings(client, context):
    assert put_text(client, b"dump of a context", "") == SUCCESS
    assert get_text(client, FILE, "") == b"dump of a context"
    assert get_text(client, FILE) != b"dump of a context"
    assert put(client, LIGHTWEIGHT, ctypes.c_bool(True)) == SUCCESS
    assert not get(client, LIGHTWEIGHT, suffix="")


def test_a_context_begins_with_the_settings_of_the_process(client, request):
    assert put(client, LIGHTWEIGHT, ctypes.c_bool(True)) == SUCCESS
    request.getfixturevalue("context")
    assert get(client, LIGHTWEIGHT, suffix="")


@pytest.mark.parametrize("setting", [USER_TRIGGER, pytest.param(PIPE, marks=unasked)])
def test_settings_that_contexts_do_not_have(client, context, setting):
    assert put(client, setting, ctypes.c_bool(), "") == INVALID_VALUE


@pytest.mark.parametrize("name", [READ, READ + "Global", WRITE, WRITE + "Global"])
def test_sizes_and_refusals(client, name):
    size, value = ctypes.c_size_t(), ctypes.c_bool()
    for setting, expected in ((LIGHTWEIGHT, 1), (FILE, TEXT_BYTES), (FLAGS, 4)):
        client.ok(name, setting, None, ctypes.byref(size))
        assert size.value == expected
    for setting in (0, 8):
        assert client.call(name, setting, None, ctypes.byref(size)) == INVALID_VALUE
    assert client.call(name, FLAGS, ctypes.byref(value), None) == INVALID_VALUE
    size.value = 1
    assert client.call(name, FLAGS, ctypes.byref(value), ctypes.byref(size)) == INVALID_VALUE


@pytest.mark.cuda_software  # on a GPU, this test enables coredumps
@pytest.mark.parametrize("setting", [ON_EXCEPTION, USER_TRIGGER])
def test_there_are_no_coredumps(client, setting):
    assert put(client, setting, ctypes.c_bool(True)) == NOT_SUPPORTED
    assert put(client, setting, ctypes.c_bool(False)) == SUCCESS
    assert get(client, setting) is False
