"""Methods and properties check the object that they are called with, and work as before.

Cython's functions do not check it by themselves: `pyx/methods.c` adds the check.
"""

import copy
import functools
import inspect
import pickle
import re
import types
import weakref
from pathlib import Path

import pytest

import cudadrv as cu

PROGRAM = Path(__file__).with_name("wrong_objects.py")
# What Python says for its own classes.
REFUSED = re.compile(
    r"\S+ of .*: TypeError: ("
    r"descriptor '\w+' for '[\w.]+' objects doesn't apply to a '[\w.]+' object"
    r"|descriptor '\w+' requires a '[\w.]+' object but received a '[\w.]+'"
    r"|unbound method [\w.]+\(\) needs an argument"
    r"|[\w.]+\.__new__\(.*\): .* is not a (type object|subtype of) .*)"
)
OF_A_CLASS_METHOD = re.compile(r"\S+ of .*, with 16(, 16)?: TypeError: ")


@pytest.mark.parametrize("cuda_schedule", ["eager"], indirect=True)
def test_everything_that_the_classes_define(lines_of):
    lines = lines_of(PROGRAM)
    wrong = [
        line for line in lines if not REFUSED.fullmatch(line) and not OF_A_CLASS_METHOD.match(line)
    ]
    assert wrong[:20] == []
    for cls, name, use in (
        ("_stream.Stream", "synchronize", "alone"),
        ("_stream.Stream", "handle", "read"),
        ("_buffer.Buffer", "fill", "with 1"),
        ("_region.Region", "reshape", "with 1"),  # has *args
        ("_graph_changes.ExecutableNode", "set", "with 1"),  # has *args, and a fast path
        ("_kernel.Kernel", "launch", "with 1"),  # has a fast path
        ("_loan.Loan", "__exit__", "alone"),
    ):
        beginning = f"cudadrv.{cls}.{name} of 3, {use}: "
        ending = f"descriptor '{name}' for "
        assert any(beginning in line and ending in line for line in lines), beginning
    assert len({line.split()[0] for line in lines if " of nothing: " in line}) > 150


def test_fast_paths_check_the_object():
    for given in ((), (3,), (3, 1, 1), (None, 1, 1, 2.0)):
        with pytest.raises(TypeError, match=r"needs an arg|^descriptor 'launch' for 'cudadrv\.K"):
            cu.Kernel.launch(*given)


def test_ways_to_call_a_method(driver):
    """Each way to call the method checks the object, and passes the arguments."""
    buffer, stream = cu.LockedBuffer.zeros(4), cu.Stream()
    buffer.fill(1)
    cu.Buffer.fill(buffer, value=2)
    cu.LockedBuffer.fill(buffer, 3)
    functools.partial(cu.Buffer.fill, buffer)(4)
    types.MethodType(cu.Buffer.fill, buffer)(value=5)
    weakref.WeakMethod(buffer.fill)()(6)
    assert cu.Buffer.reshape(buffer, 2, 2).shape == (2, 2)
    assert bytes(buffer) == b"\6\6\6\6"
    for call in (
        lambda: cu.Buffer.fill(stream, value=2),
        lambda: functools.partial(cu.Buffer.fill, stream)(4),
        lambda: types.MethodType(cu.Buffer.fill, stream)(value=5),
        lambda: types.MethodType(cu.Buffer.fill, cu.Buffer)(5),
        lambda: cu.Buffer.fill.__get__(stream)(5),
        lambda: cu.Buffer.fill.__call__(stream, 5),
        lambda: cu.Buffer.reshape(stream, 2, 2),
        lambda: list(map(cu.Buffer.fill, [stream], [5])),
        lambda: list(map(cu.UnifiedBuffer.prefetch, [buffer])),
    ):
        with pytest.raises(TypeError, match=r"^descriptor '\w+' for 'cudadrv\.\S+' objects"):
            call()
    assert bytes(buffer) == b"\6\6\6\6"


def test_classes_that_programs_derive():
    class Filled(cu.Buffer):
        def fill(self, value):
            return super().fill(value)

    bare = Filled.__new__(Filled)
    for call in (lambda: bare.fill(1), lambda: cu.Buffer.fill(bare, 1)):
        with pytest.raises(TypeError, match="never initialized"):
            call()
    with pytest.raises(TypeError, match="'Filled' object"):
        cu.Stream.synchronize(bare)


def test_functions_are_what_they_were():
    method = cu.Stream.synchronize
    assert list(inspect.signature(method).parameters) == ["self", "timeout"]
    assert method.__doc__.startswith("Block")
    assert (method.__name__, method.__qualname__) == ("synchronize", "Stream.synchronize")
    assert copy.copy(method) is method
    assert pickle.loads(pickle.dumps(method)) is method
    assert weakref.ref(method)() is method
