"""``ordering(...)``: which policy a call gets."""

import threading

import pytest

import cudadrv as cu


@pytest.fixture
def write(stream, other):
    """A write that is not ordered after another one."""
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
            leave.wait(10)

    thread = threading.Thread(target=enter)
    with block:
        thread.start()
        inside.wait(10)
    leave.set()
    thread.join()
    assert write() == "refused"
    with block, block:
        pass
    assert write() == "refused"


def test_blocks_end_in_reverse_order(driver):
    outer, inner = cu.ordering("wait"), cu.ordering("strict")
    outer.__enter__()
    inner.__enter__()
    with pytest.raises(RuntimeError, match="reverse order"):
        outer.__exit__(None, None, None)
    inner.__exit__(None, None, None)
    outer.__exit__(None, None, None)


def test_new_threads_start_without(write):
    answers = []
    with cu.ordering("unchecked"):
        thread = threading.Thread(target=lambda: answers.append(write()))
        thread.start()
        thread.join()
    assert answers == ["refused"]
