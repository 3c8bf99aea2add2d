"""External signals between processes."""

import pickle

import numpy as np
import pytest

import cudadrv as cu


def test_two_processes_take_turns(other):
    """Each process sets the numbers for which the other one waits."""
    stream, signal = cu.Stream(), cu.Signal(external=True, name="turn")
    result = cu.LockedBuffer.zeros(4, "i4")
    other("there := signal", signal=signal)
    other("mine := cu.Stream()")
    for turn in range(0, 20, 2):
        other("mine.wait(there, turn + 1)", turn=turn)
        other("mine.set(there, turn + 2).done", turn=turn)
    other.send("mine.synchronize()")  # a lazy driver runs nothing otherwise
    for turn in range(0, 20, 2):
        stream.wait(signal, turn)
        result.fill_async(turn, stream)
        stream.set(signal, turn + 1)
    signal.wait(20)
    assert result[0] == 18
    other.answer()
    assert other("there.value") == 20
    assert other("(there.name, there.external)") == ("turn", True)
    other("there.close()")
    signal.close()


def test_a_number_of_another_process_is_seen(other):
    signal = cu.Signal(external=True)
    other("there := signal", signal=signal)
    other("there.set(3)")
    signal.wait(2)
    assert signal.value == 3
    with pytest.raises(cu.SignalError, match="only grows, and is 3 already"):
        signal.set(3)


def test_a_third_process_gets_it_from_the_second(other, driver):
    signal = cu.Signal(external=True)
    text = other("__import__('pickle').dumps(there := signal)", signal=signal)
    again = pickle.loads(text)
    assert again is signal
    other("there.set(1)")
    assert again.value == 1


def test_the_owner_is_gone(other):
    text = other("__import__('pickle').dumps(made := cu.Signal(external=True))")
    here = pickle.loads(text)
    other("made.set(1)")
    assert here.value == 1
    other("made.close()")
    other("[globals().pop('made'), __import__('gc').collect()] and None")
    stream = cu.Stream()
    stream.set(here, 2)
    here.wait(2)  # the memory is there as long as a process has it
    del here
    with pytest.raises(cu.OwnershipError):
        pickle.loads(text)


@pytest.mark.parametrize("changes", [(0,), (20,), (8, 20), (12, 20)])
def test_damaged_bytes(driver, changes):
    signal = cu.Signal(external=True)
    function, (data,) = signal.__reduce__()
    array = np.frombuffer(bytearray(data), "u1")
    for change in changes:
        array[change] ^= 0xFF
    with pytest.raises((ValueError, cu.OwnershipError)):
        function(array.tobytes())
