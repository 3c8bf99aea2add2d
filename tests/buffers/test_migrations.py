"""Counts of how often managed memory changes sides, and limits for them."""

import warnings

import numpy as np
import pytest

import cudadrv as cu

pytestmark = pytest.mark.usefixtures("concurrent_access")
BLOCK = 1 << 16
LINE = r"test_migrations\.py:\d+"


@pytest.fixture
def managed(driver):
    return cu.UnifiedBuffer(4 * BLOCK, name="u", pooled=False)


def use(buffer, stream, value=1):
    """Queue work of the device on the buffer."""
    buffer.fill_async(value, stream).wait()


def test_each_turn_of_the_host_counts_once(managed, stream):
    assert managed.migrations == 0
    managed[:] = 0
    assert managed.migrations == 0
    for turn in range(1, 4):
        use(managed, stream, turn)
        assert managed.migrations == turn - 1
        assert managed[5] == turn
        assert managed[6] == turn
        managed[7] = 0
        assert managed.migrations == turn


@pytest.mark.parametrize(
    "access",
    [
        lambda u: u[0],
        lambda u: u.__setitem__(0, 1),
        lambda u: u.to_numpy(),
        lambda u: u.fill(1),
        lambda u: u.copy_from(np.zeros(u.count, "u1")),
        lambda u: u.copy_to(np.zeros(u.count, "u1")),
        lambda u: memoryview(u).release(),
        lambda u: np.asarray(u)[0],
        lambda u: u.read().__enter__()[0],
    ],
)
def test_all_accesses_of_the_host_count(managed, stream, access):
    use(managed, stream)
    access(managed)
    assert managed.migrations == 1


def test_reads_of_the_device_count_too(managed, stream):
    managed[:] = 1
    target = cu.DeviceBuffer(managed.count)
    target.copy_from_async(managed, stream).wait()
    assert managed[0] == 1
    assert managed.migrations == 1


def test_a_prefetch_to_the_host_does_not_count(managed, stream):
    for _ in range(3):
        use(managed, stream)
        managed.prefetch("host", stream).wait()
        assert managed[0] == 1
    assert managed.migrations == 0
    use(managed, stream)
    cu.prefetch_batch([(managed[:BLOCK], "host"), (managed[BLOCK:], "host")], stream).wait()
    assert managed.to_numpy().any()
    assert managed.migrations == 0


def test_work_after_the_prefetch_counts(managed, stream):
    managed.prefetch("host", stream)
    use(managed, stream)
    assert managed[0] == 1
    assert managed.migrations == 1


def test_a_prefetch_to_the_device_counts_when_the_host_takes_the_pages_back(managed, stream):
    managed[:] = 1
    managed.prefetch(cu.Device(0), stream).wait()
    assert managed[0] == 1
    assert managed.migrations == 1


def test_the_same_bytes_are_what_counts(managed, stream):
    """Migrations are counted for each page.

    A program that reads its results part by part moves each page once.
    """
    for start in range(0, managed.count, BLOCK):
        part = managed[start : start + BLOCK]
        use(part, stream)
        assert part[0] == 1
        assert part.migrations == 1
    assert managed.migrations == 1
    use(managed[:BLOCK], stream)
    assert managed[0] == 1
    assert managed.migrations == managed[:BLOCK].migrations == 2
    assert managed[BLOCK:].migrations == 1


def test_the_allocation_is_no_use(stream):
    with stream:
        buffer = cu.UnifiedBuffer(16)
    buffer[0] = 1
    assert buffer.migrations == 0
    pool = cu.DriverPool("unified")
    with pool:
        buffer = cu.UnifiedBuffer(16, stream=stream)
    stream.synchronize()
    buffer[0] = 1
    assert buffer.migrations == 0


def test_new_memory_begins_anew(stream):
    for _ in range(3):
        buffer = cu.UnifiedBuffer(16)
        use(buffer, stream)
        assert buffer[0] == 1
        assert buffer.migrations == 1
        buffer.close()


def test_memory_with_advice_does_not_count(managed, stream):
    """Memory that the device may access in place has no migrations."""
    managed.advise(accessed_by={cu.Device(0)}, preferred="host")
    with cu.migration_limit(0):
        for _ in range(3):
            use(managed, stream)
            assert managed[0] == 1
    assert managed.migrations == 0


def test_a_refused_access_does_not_count(managed, stream, gate):
    gate.hold(stream)
    managed.fill_async(1, stream)
    with pytest.raises(cu.BufferBorrowedError):
        managed[0]
    assert managed.migrations == 0
    gate.open()
    stream.synchronize()


def test_other_kinds_do_not_migrate(stream):
    buffer = cu.LockedBuffer(16)
    with cu.migration_limit(0):
        use(buffer, stream)
        assert buffer[0] == 1
    assert not hasattr(buffer, "migrations")


# ---- limits ----


def test_a_limit_refuses_the_next_turn(managed, stream):
    with cu.migration_limit(2) as limit:
        assert (limit.count, limit.action) == (2, "raise")
        for _ in range(2):
            use(managed, stream)
            assert managed[0] == 1
        use(managed, stream)
        for _ in range(2):  # the access is refused each time
            with pytest.raises(cu.MigrationError) as caught:
                managed[0]
        assert managed.migrations == 2
        managed.prefetch("host", stream).wait()
        assert managed[0] == 1
    text = str(caught.value)
    assert "UnifiedBuffer 'u'[0:1] (uint8) has changed sides 2 times in" in text
    assert "migration_limit(2, 'raise'), and does so again" in text
    assert "a device used it by fill_async, queued at" in text
    assert text.count("test_migrations.py") == 2
    assert "buffer.prefetch('host', stream)" in text


def test_a_refused_access_borrows_nothing(managed, stream):
    use(managed, stream)
    with cu.migration_limit(0), pytest.raises(cu.MigrationError):
        memoryview(managed)
    use(managed, stream)
    managed.close()


def test_a_limit_may_warn(managed, stream):
    with cu.migration_limit(1, "warn"):
        use(managed, stream)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert managed[0] == 1
        use(managed, stream)
        with pytest.warns(cu.CudaWarning, match="has changed sides once in") as caught:
            assert managed[0] == 1
        assert caught[0].filename == __file__
    assert managed.migrations == 2


def test_a_warning_that_is_an_error_borrows_nothing(managed, stream):
    use(managed, stream)
    with warnings.catch_warnings(), cu.migration_limit(0, "warn"):
        warnings.simplefilter("error")
        with pytest.raises(cu.CudaWarning):
            managed[0]
    use(managed, stream)


def test_a_limit_counts_from_its_own_beginning(managed, stream):
    for _ in range(3):
        use(managed, stream)
        assert managed[0] == 1
    with cu.migration_limit(1):
        use(managed, stream)
        assert managed[0] == 1
        with cu.migration_limit(1):
            use(managed, stream)
            assert managed[0] == 1
        use(managed, stream)
        with pytest.raises(cu.MigrationError):
            managed[0]
    assert managed[0] == 1
    assert managed.migrations == 6


def test_parts_that_move_once_do_not_reach_a_limit(managed, stream):
    with cu.migration_limit(1):
        for start in range(0, managed.count, BLOCK):
            use(managed[start : start + BLOCK], stream)
            assert managed[start] == 1


def test_a_block_is_of_its_thread(managed, stream, in_a_thread):
    use(managed, stream)
    with cu.migration_limit(0):
        assert in_a_thread(lambda: managed[0]) == 1


def test_a_limit_keeps_no_memory_alive(managed, stream):
    before = len(cu.live_buffers())
    with cu.migration_limit(5):
        buffer = cu.UnifiedBuffer(16)
        use(buffer, stream)
        assert buffer[0] == 1
        del buffer
        assert len(cu.live_buffers()) == before


def test_bad_arguments():
    with pytest.raises(ValueError, match="count is how often memory may change sides"):
        cu.migration_limit(-1)
    with pytest.raises(ValueError, match="must be 'warn' or 'raise'"):
        cu.migration_limit(1, "ignore")
    with pytest.raises(TypeError):
        cu.migration_limit("many")
    assert repr(cu.migration_limit(3)) == "migration_limit(3, 'raise')"


@pytest.mark.parametrize("action", ["raise", "warn"])
def test_a_refused_write_leaves_discarded_bytes_discarded(managed, stream, action):
    """A refused write leaves discarded bytes discarded.

    The limit refuses the write, or the limit's warning if warnings are errors.
    """
    use(managed, stream)
    part = managed[:BLOCK]
    part.discard(stream).wait()
    with warnings.catch_warnings(), cu.migration_limit(0, action):
        warnings.simplefilter("error")
        with pytest.raises((cu.MigrationError, cu.CudaWarning)):
            managed.write().__enter__()
    with pytest.raises(cu.ContentsDiscardedError):
        part.to_numpy()
