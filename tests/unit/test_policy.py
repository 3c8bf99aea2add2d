"""``ordering(...)``: the policy that is in force in a call."""

import contextvars
import gc
import threading

import pytest
from limits import PATIENCE

import cudadrv as cu


@pytest.fixture
def write(stream, other):
    """A function that makes a write which is not ordered after an earlier one.

    It returns whether the write was accepted.
    """
    buffer = cu.LockedBuffer.zeros(16)
    buffer.fill_async(1, stream)

    def write() -> str:
        try:
            buffer.fill_async(2, other)
        except cu.BufferBorrowedError:
            return "refused"
        return "accepted"

    yield write
    cu.Device(0).synchronize()
    buffer.close()


@pytest.mark.parametrize("word", ["Strict", "", "off"])
def test_other_words(word):
    with pytest.raises(ValueError, match="'strict', 'wait', 'unchecked'"):
        cu.ordering(word)


@pytest.mark.parametrize("word", [None, 1, ["wait"]])
def test_other_things(word):
    with pytest.raises(TypeError):
        cu.ordering(word)


def test_strict_is_the_default(write):
    assert write() == "refused"


@pytest.mark.parametrize("word", ["wait", "unchecked"])
@pytest.mark.cuda_allow("races")
def test_the_others_let_it_pass(write, word):
    with cu.ordering(word) as block:
        assert block.policy == word
        assert write() == "accepted"


@pytest.mark.cuda_allow("races")
def test_the_innermost_block_counts(write):
    with cu.ordering("unchecked"):
        with cu.ordering("strict"):
            assert write() == "refused"
        assert write() == "accepted"


def test_it_ends_with_the_block(write):
    with pytest.raises(ZeroDivisionError), cu.ordering("unchecked"):
        1 / 0  # noqa: B018
    assert write() == "refused"


def test_one_block_can_be_entered_again_and_in_threads(write):
    block = cu.ordering("unchecked")
    inside, leave = threading.Event(), threading.Event()

    def enter():
        with block:
            inside.set()
            leave.wait(PATIENCE)

    thread = threading.Thread(target=enter)
    with block:
        thread.start()
        inside.wait(PATIENCE)
    leave.set()
    thread.join()
    assert write() == "refused"
    with block, block:
        pass
    assert write() == "refused"


@pytest.mark.cuda_allow("races")
def test_each_block_counts_until_its_own_end(write):
    outer, inner = cu.ordering("strict"), cu.ordering("unchecked")
    outer.__enter__()
    inner.__enter__()
    outer.__exit__(None, None, None)
    assert write() == "accepted"
    with cu.ordering("strict"):
        assert write() == "refused"
    inner.__exit__(None, None, None)
    assert write() == "refused"
    with pytest.raises(RuntimeError, match=r"ordering\('strict'\) is not entered here"):
        outer.__exit__(None, None, None)


def generator(policy: str):
    with cu.ordering(policy):
        yield


@pytest.mark.cuda_allow("races")
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_generators_that_are_suspended_in_blocks(write, order):
    """A suspended generator leaves the policy of its block in force until it ends."""
    both = [generator("unchecked"), generator("unchecked")]
    for each in both:
        next(each)
    assert write() == "accepted"
    both[order[0]].close()
    assert write() == "accepted"
    both[order[1]].close()
    assert write() == "refused"


def test_a_generator_that_dies(write):
    lost = generator("unchecked")
    next(lost)
    del lost
    assert write() == "refused"


def test_a_generator_that_is_closed_in_a_copy_of_its_context(write):
    """A generator that is closed in a copy of its context leaves no policy in force.

    An event loop closes an asynchronous generator in this way after its task has ended.
    """
    lost = generator("unchecked")
    next(lost)
    contextvars.copy_context().run(lost.close)
    assert write() == "refused"


def test_a_generator_that_is_closed_where_its_block_is_not_known(driver):
    elsewhere = contextvars.Context()
    lost = generator("strict")
    elsewhere.run(next, lost)
    with pytest.raises(RuntimeError, match="in another thread or context, as by a generator"):
        lost.close()


@pytest.mark.cuda_allow("races")
def test_what_a_block_started_keeps_it(write):
    """A `contextvars` context that is copied inside a block keeps the block's policy."""
    with cu.ordering("unchecked"):
        started = contextvars.copy_context()
    assert write() == "refused"
    assert started.run(write) == "accepted"


def test_blocks_that_end_in_any_order_leave_nothing(driver):
    """Blocks that end in any order keep no objects alive.

    The blocks inside a block refer to it only as long as it is in force.
    """
    gc.collect()
    before = len(gc.get_objects())
    last = generator("wait")
    next(last)
    for _ in range(1000):
        later = generator("wait")
        next(later)
        last.close()
        last = later
    last.close()
    gc.collect()
    assert len(gc.get_objects()) - before < 100


def test_new_threads_start_without(write):
    answers = []
    with cu.ordering("unchecked"):
        thread = threading.Thread(target=lambda: answers.append(write()))
        thread.start()
        thread.join()
    assert answers == ["refused"]
