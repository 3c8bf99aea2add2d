"""Overlapping accesses of one operation: each byte is used in the strongest of its modes."""

import itertools

import pytest
from calls import host, read, record, synchronize, write
from private_engine import Domain, Engine, MemoryState, StreamState

SPANS = [(0, 8), (0, 4), (2, 6), (4, 8), (3, 4), (0, 0)]
ACCESSES = [(*span, mode) for span in SPANS for mode in ("read", "write")]
PAIRS = list(itertools.product(ACCESSES, repeat=2))
EACH = ("read", "write", "shared", "reach")
MODES = list(itertools.product(EACH, repeat=3))


@pytest.mark.parametrize("pair", PAIRS)
def test_every_byte_of_two_accesses(streams, pair):
    user, other, _ = streams
    memory = MemoryState(streams[0].domain.engine, 8)
    answer, _ = user.issue(*[(memory, *access) for access in pair])
    assert answer == "ok"
    for byte in range(8):
        modes = {mode for start, stop, mode in pair if start <= byte < stop}
        assert host(memory, "read", byte, byte + 1) == ("borrowed" if "write" in modes else "ok")
        assert host(memory, "write", byte, byte + 1) == ("borrowed" if modes else "ok")
    synchronize(user)
    assert write(other, memory) == "ok"


@pytest.mark.parametrize("pair", PAIRS)
def test_what_the_driver_refuses_uses_no_more_than_it_would_have(streams, pair):
    """A failed operation leaves bytes free that it did not name.

    Its own bytes may stay borrowed.
    """
    user, other, _ = streams
    memory = MemoryState(streams[0].domain.engine, 8)
    user.issue(*[(memory, *access) for access in pair], driver_fails=True)
    for byte in range(8):
        modes = {mode for start, stop, mode in pair if start <= byte < stop}
        if "write" not in modes:
            assert host(memory, "read", byte, byte + 1) == "ok"
        if not modes:
            assert host(memory, "write", byte, byte + 1) == "ok"
    synchronize(user)
    assert write(other, memory) == "ok"


@pytest.mark.parametrize("modes", MODES)
def test_the_same_bytes_in_several_modes(streams, modes):
    user, other, _ = streams
    memory = MemoryState(streams[0].domain.engine, 8)
    write(other, memory)
    user.wait(record(other))
    before = memory.borrows()
    user.issue(*[(memory, 0, 8, mode) for mode in modes], driver_fails=True)
    assert memory.borrows() == before
    answer, _ = user.issue(*[(memory, 0, 8, mode) for mode in modes])
    assert answer == "ok"
    assert read(other, memory) == ("borrowed" if {"write", "reach"} & {*modes} else "ok")
    assert memory.close() == "borrowed"


def test_many_parts_of_one_memory(streams):
    user, other, _ = streams
    memory = MemoryState(streams[0].domain.engine, 64)
    for _ in range(2):
        user.issue(*[(memory, 8 * i, 8 * i + 8, "write") for i in range(8)])
        assert memory.ranges == 8
    assert write(other, memory, 0, 64) == "borrowed"
    assert write(user, memory, 0, 64) == "ok"
    assert memory.ranges == 1, "equal neighbours in an access are joined"


def test_new_memory_inherits_the_users_of_another(streams):
    """A module's variable starts with the uses of the module's code, by `inherit`."""
    user, second, other = streams
    code, variable, constant = (MemoryState(streams[0].domain.engine, size) for size in (1, 16, 16))
    for stream in (user, second):
        stream.issue((code, 0, 1, "shared"))
    variable.inherit(code, "write")
    constant.inherit(code, "read")
    assert read(other, variable, 8, 16) == "borrowed"
    assert read(other, constant) == "ok"
    assert write(other, constant) == "borrowed"
    synchronize(user)
    assert write(other, variable) == "borrowed"
    synchronize(second)
    assert write(other, variable, 0, 16) == "ok"


@pytest.mark.parametrize("former", [(), ("write",), ("read",), ("reach",), ("write", "read")])
@pytest.mark.parametrize("modes", [*itertools.product(EACH, repeat=2), *MODES])
def test_the_fast_path_leaves_what_the_long_one_leaves(former, modes):
    """Memory with a view cannot take the fast path, even if the view has no bytes."""
    left = []
    for way in ("fast", "long"):
        stream = StreamState(Domain(Engine()))
        memory = MemoryState(stream.domain.engine, 8)
        if way == "long":
            _, _view = memory.export(0, 0, "write")
        for mode in former:
            stream.issue((memory, 0, 8, mode))
        assert stream.issue(*((memory, 0, 8, mode) for mode in modes))[0] == "ok"
        left.append(memory.borrows())
        stream.issue(*((memory, 0, 8, mode) for mode in modes), driver_fails=True)
        left.append(memory.borrows())
    assert left[:2] == left[2:]
