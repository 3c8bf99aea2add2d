"""Calls of the buffer classes. With common arguments, Python does not call `__init__`."""

import itertools

import numpy as np
import pytest

import cudadrv as cu

CLASSES = [cu.DeviceBuffer, cu.LockedBuffer, cu.UnifiedBuffer]
POSITIONAL = [(), (4,), (4, "f4"), (4, "f4", None), ("4",), (-1,), (4, "O"), (0,), (np.int32(3),)]
KEYWORDS = [
    {},
    {"count": 4},
    {"dtype": "f4"},
    {"dtype": None},
    {"name": "x"},
    {"name": 3},
    {"device": cu.Device},
    {"device": 0},
    {"stream": None},
    {"stream": 7},
    {"pooled": False},
    {"pooled": True, "name": "x"},
    {"write_combined": True},
    {"dtype": "f4", "name": "x", "device": None, "stream": None},
    {"nonsense": 1},
    {"name": "x", "nonsense": 1},
]


def outcome(call, *arguments, **keywords):
    """The properties of the buffer that a call makes, or the error that it raises."""
    try:
        made = call(*arguments, **keywords)
    except Exception as error:
        return type(error), str(error)
    return type(made), made.count, made.dtype, made.name, made.device, made.context


@pytest.mark.parametrize("cls", CLASSES)
def test_arguments_mean_what_they_mean_to_init(driver, cls):
    def usual(*arguments, **keywords):
        made = cls.__new__(cls)
        made.__init__(*arguments, **keywords)
        return made

    found = set()
    for arguments, given in itertools.product(POSITIONAL, KEYWORDS):
        keywords = {k: cu.Device(0) if v is cu.Device else v for k, v in given.items()}
        expected = outcome(usual, *arguments, **keywords)
        assert outcome(cls, *arguments, **keywords) == expected, (arguments, keywords)
        assert outcome(type.__call__, cls, *arguments, **keywords) == expected
        found.add(expected[0])
    assert found == {cls, TypeError, ValueError}


@pytest.mark.parametrize("cls", CLASSES)
def test_keywords_that_are_equal_but_not_the_same_string(stream, cls):
    keywords = {"".join(["str", "eam"]): stream, "".join(["na", "me"]): "x"}
    made = cls(4, **keywords)
    assert (made.name, made.count) == ("x", 4)
    if cls is cu.DeviceBuffer:
        assert made.borrows[0].stream in repr(stream)


@pytest.mark.parametrize("cls", CLASSES)
def test_what_is_pooled_and_what_is_not(driver, cls):
    cls(5000).close()
    first = cls(5000)
    address = first.address
    first.close()
    own = cls(5000, pooled=False)
    assert own.address != address
    assert cls(5000).address == address


def test_write_combined_memory_is_not_taken_for_the_other_kind(driver):
    first = cu.LockedBuffer(5000, write_combined=True)
    address = first.address
    first.close()
    assert cu.LockedBuffer(5000).address != address
    assert cu.LockedBuffer(5000, write_combined=True).address == address


def test_a_line_that_fails_is_the_callers(stream, other):
    buffer = cu.DeviceBuffer(16, stream=stream)
    with pytest.raises(cu.BufferBorrowedError, match=r"allocation on .*test_calls\.py:\d+"):
        buffer.fill_async(1, other)
