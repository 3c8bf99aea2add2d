"""The array of a ``with`` block: objects that are made of it, and names that are bound to it.

At the end of the block, plain views and containers of such arrays are emptied with the array.
Objects that may keep the address of the memory are refused: the buffer stays borrowed until they
are gone.
"""

import asyncio
import collections
import contextlib
import copy
import ctypes
import functools
import gc
import io
import operator
import pickle
import queue
import struct
import sys
import threading
import warnings
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
from limits import PATIENCE

import cudadrv as cu

pytestmark = [
    pytest.mark.filterwarnings("ignore:the matrix subclass"),
    # One schedule suffices: the results do not depend on when GPU work runs.
    pytest.mark.parametrize("cuda_schedule", ["lazy"], indirect=True),
]

COUNT = np.arange(8, dtype="i4")
RECORD = np.dtype([("a", "i4"), ("b", "f4")])
# The buffer protocol has formats for the first two dtypes, and none for the others.
dtypes = pytest.mark.parametrize("dtype", ["i4", RECORD, "M8[s]", "V4"], ids=str)


# ---- objects that are made of the array ----

VIEWS = {
    "alias": lambda array: array,
    "T": lambda array: array.T,
    "reshape": lambda array: array.reshape(2, 4),
    "reshape of a part": lambda array: array[2:6].reshape(2, 2).T[::-1],
    "ravel": lambda array: array.ravel(),
    "part": lambda array: array[1:3],
    "no items": lambda array: array[:0],
    "view": lambda array: array.view(),
    "view as bytes": lambda array: array.view("u1"),
    "base": lambda array: array.base,
    "squeeze": lambda array: array.squeeze(),
    "asarray": np.asarray,
    "swapped": lambda array: array.view(array.dtype.newbyteorder()),
    "ndarray": lambda array: np.ndarray((8,), array.dtype, buffer=array),
    "frombuffer": lambda array: np.frombuffer(array, "u1"),
    "broadcast_to": lambda array: np.broadcast_to(array, (3, 8)),
    "0-dimensional": lambda array: array[3, ...],
    "split": lambda array: np.array_split(array, 3),
    "rows": lambda array: list(array.reshape(2, 4)),
    "in a dict": lambda array: {"parts": (array[:4], array[4:])},
    "in a deque": lambda array: collections.deque([array[1:]]),
    "in an object": lambda array: SimpleNamespace(kept=array[1:]),
    "in a class": lambda array: type("Kept", (), {"kept": array[1:]}),
    "in a subclass of dict": lambda array: collections.Counter(kept=array[1:]),
    "cycle": lambda array: cycle_of(array),
    "method": lambda array: array.sum,
    "partial": lambda array: functools.partial(np.sum, array),
    "iterator": iter,
    "queue": lambda array: queue_of(array[1:]),
}
# Objects that know the address of the array, or may know it.
POINTERS = {
    "memoryview": memoryview,
    "memoryview of a view": lambda array: memoryview(array[2:]),
    "nested memoryview": lambda array: memoryview(memoryview(array)[1:])[1:],
    "data": lambda array: array.data,
    "in a list": lambda array: [{"kept": memoryview(array)}],
    "masked": np.ma.masked_array,
    "masked_invalid": lambda array: np.ma.masked_invalid(array, copy=False),
    "data of masked": lambda array: (np.ma.masked_array(array), 0)[0],
    "recarray": lambda array: array.view(np.recarray),
    "matrix": np.asmatrix,
    "transposed matrix": lambda array: np.asmatrix(array).T,
    "dlpack": lambda array: array.__dlpack__(),
    "from_dlpack": np.from_dlpack,
    "as_strided": lambda array: np.lib.stride_tricks.as_strided(array, (2,), (4,)),
    "windows": lambda array: np.lib.stride_tricks.sliding_window_view(array, 3),
    "base of windows": lambda array: base_of_windows(array),
    "broadcast": lambda array: np.broadcast(array, 1),
    "flat": lambda array: array.flat,
    "flat of a view": lambda array: array[1:].flat,
    "nditer": np.nditer,
    "as_ctypes": np.ctypeslib.as_ctypes,
    "ctypes": lambda array: (ctypes.c_int * 8).from_buffer(array),
    "ctypes attribute": lambda array: array.ctypes,
    "ctypes pointer": lambda array: array.ctypes.data_as(ctypes.POINTER(ctypes.c_int)),
    "iter_unpack": lambda array: struct.iter_unpack("i", array),
    "out-of-band pickle": lambda array: pickled_beside(array),
    "array struct": lambda array: array.__array_struct__,
    "array interface": lambda array: np.asarray(Interface(array)),
    "holder of an interface": lambda array: kept_with(Interface(array)),
    "holder of a property": lambda array: kept_with(Property(array)),
    "generator": lambda array: (item for item in array),
    "base of base": lambda array: array.base.base,
    "memoryview of the base": lambda array: memoryview(array.base.base),
}
COPIES = {
    "nothing": lambda array: None,
    "item": lambda array: array[0],
    "sum": np.sum,
    "computed": lambda array: array + 1,
    "selected": lambda array: array[[1, 2]],
    "list": list,
    "array": np.array,
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": pickle.dumps,
    "bytes": bytes,
    "BytesIO": io.BytesIO,
    "address": lambda array: array.ctypes.data,
}


class Interface:
    """An object with the array interface of an array, but not an array."""

    def __init__(self, array):
        self.kept = array
        self.__array_interface__ = array.__array_interface__


class Property:
    def __init__(self, array):
        self.kept = array
        self.interface = array.__array_interface__

    @property
    def __array_interface__(self):
        return self.interface


def kept_with(holder):
    return holder, np.asarray(holder)


def cycle_of(array):
    ring = [array]
    ring.append(ring)
    return ring


def queue_of(array):
    waiting = queue.Queue()
    waiting.put(array)
    return waiting


def base_of_windows(array):
    windows = np.lib.stride_tricks.as_strided(array, (2,), (4,))
    return windows.base, windows


def pickled_beside(array):
    beside = []
    return pickle.dumps(array, 5, buffer_callback=beside.append), beside


try:
    import torch
except ImportError:
    pass
else:

    def tensor_of(array):
        with warnings.catch_warnings():  # PyTorch warns of read-only arrays
            warnings.simplefilter("ignore")
            return torch.from_numpy(array)

    POINTERS["tensor"] = tensor_of
    POINTERS["tensor of a part"] = lambda array: tensor_of(array[2:])[1:]


# ---- ways to bind the array to a name; each returns the made object ----


def by_name(block, make):
    with block as array:
        made = make(array)
    return made


def rebound(block, make):
    with block as array:
        array = make(array)
    return array


def deleted(block, make):
    with block as array:
        made = make(array)
        del array
    return made


def cell(block, make):
    def inner():
        return array

    with block as array:
        array = make(array)
    return inner()


def nonlocal_name(block, make):
    array = None

    def inner():
        nonlocal array
        with block as array:
            array = make(array)

    inner()
    return array


def in_another_function(block, make):
    def inner(block, array):
        block.__exit__(None, None, None)
        return make, array

    made = make(block.__enter__())
    inner(block, made)
    return made


def global_name(block, make):
    global made_globally
    try:
        with block as made_globally:
            made_globally = make(made_globally)
        return made_globally
    finally:
        del made_globally


def module(block, make):
    namespace = {"block": block, "make": make}
    exec("with block as array:\n    made = array = make(array)", namespace)
    return namespace["made"]


def class_body(block, make):
    class Body:
        with block as array:
            made = make(array)

    return Body.made


def attribute(block, make):
    holder = SimpleNamespace()
    with block as holder.array:
        holder.array = make(holder.array)
    return holder.array


class Holder:
    pass


def attribute_of_an_attribute(block, make):
    holder = Holder()
    holder.inner = Holder()
    with block as holder.inner.array:
        holder.inner.made = make(holder.inner.array)
    return holder.inner.made


def slot(block, make):
    class Slotted:
        __slots__ = ("array", "made")

    holder = Slotted()
    with block as holder.array:
        holder.made = make(holder.array)
    return holder.made


def item(block, make):
    kept = {}
    with block as kept["array"]:
        kept["array"] = make(kept["array"])
    return kept["array"]


def list_item(block, make):
    kept = [None]
    with block as kept[0]:
        kept[0] = make(kept[0])
    return kept[0]


def exit_stack(block, make):
    with contextlib.ExitStack() as stack:
        made = make(stack.enter_context(block))
    return made


def kept_exit_stack(block, make):
    holder = SimpleNamespace(stack=contextlib.ExitStack())
    holder.array = holder.stack.enter_context(block)
    holder.made = make(holder.array)
    holder.stack.close()
    return holder.made


def context_manager(block, make):
    @contextlib.contextmanager
    def wrapped():
        with block as array:
            yield array

    with wrapped() as array:
        made = make(array)
    return made


def no_target(block, make):
    made = make(block.__enter__())
    block.__exit__(None, None, None)
    return made


def generator(block, make):
    def items():
        with block as array:
            yield make(array)

    made = []
    for each in items():
        made.append(each)
    return made.pop()


def coroutine(block, make):
    async def work():
        with block as array:
            made = make(array)
            await asyncio.sleep(0)
        return made

    return asyncio.run(work())


def under_locals(block, make):
    with block as array:
        made = make(array)
        kept = locals()
        assert eval("array is kept['array']")
    del kept
    return made


def under_a_debugger(block, make):
    seen = []

    def trace(frame, event, _argument):
        if frame.f_code is by_name.__code__:
            seen.append(frame.f_locals)
            return trace
        return None

    former = sys.gettrace()
    sys.settrace(trace)
    try:
        made = by_name(block, make)
    finally:
        sys.settrace(former)
    seen.clear()
    return made


BINDINGS = [
    *(by_name, rebound, deleted, cell, nonlocal_name, in_another_function, global_name, module),
    *(class_body, attribute, attribute_of_an_attribute, slot, item, list_item, exit_stack),
    *(kept_exit_stack, context_manager, no_target, generator, coroutine, under_locals),
    under_a_debugger,
]
ways = pytest.mark.parametrize("way", ["read", "write"])


def arrays_in(thing, depth=5):
    """The arrays to which a thing refers through plain containers and attributes."""
    if isinstance(thing, np.ndarray):
        yield thing
    elif depth:
        for other in gc.get_referents(thing):
            if not isinstance(other, type(sys)):
                yield from arrays_in(other, depth - 1)


class Outcome:
    """The objects that were made in a block, and the refusal at its end, if there was one."""

    def __init__(self, buffer, way, make, bind):
        self.made = []
        self.refused = ""
        block = getattr(buffer, way)()
        try:
            bind(block, lambda array: self.keep(make(array)))
        except cu.BufferExportedError as error:
            self.refused = str(error)

    def keep(self, made):
        self.made.append(made)
        return made


def is_free(buffer, stream):
    try:
        buffer.view("u1").fill_async(0x55, stream).wait()
    except cu.BufferExportedError:
        return False
    return True


def can_make(make, dtype, way):
    """Whether NumPy can make this object from an ordinary array."""
    array = np.ndarray(8, dtype, bytearray(8 * np.dtype(dtype).itemsize))
    array.flags.writeable = way == "write"
    try:
        make(array[:])
    except (TypeError, ValueError, BufferError, NotImplementedError):
        return False
    return True


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_plain_views_are_emptied(make, stream, view):
    buffer, problems = make("locked", 8, "i4", COUNT), {}
    for bind in BINDINGS:
        outcome = Outcome(buffer, "write", view, bind)
        if outcome.refused or not is_free(buffer, stream):
            problems[bind.__name__] = outcome.refused
        elif any(array.size or array.base is not None for array in arrays_in(outcome.made)):
            problems[bind.__name__] = "not emptied"
        outcome.made.clear()
    assert problems == {}


@pytest.mark.parametrize("pointer", POINTERS.values(), ids=POINTERS)
def test_what_may_know_the_address_is_refused(make, stream, pointer):
    buffer, problems = make("locked", 8, "i4", COUNT), {}
    for bind in BINDINGS:
        outcome = Outcome(buffer, "write", pointer, bind)
        if "is still referred to by" not in outcome.refused or is_free(buffer, stream):
            problems[bind.__name__] = f"not refused: {outcome.refused}"
        outcome.made.clear()
        if not is_free(buffer, stream):
            gc.collect()  # some objects are in reference cycles
        if not is_free(buffer, stream):
            problems[bind.__name__] = "still borrowed when it is gone"
    assert problems == {}


@pytest.mark.parametrize("duplicate", COPIES.values(), ids=COPIES)
def test_copies_hold_nothing(make, stream, duplicate):
    buffer, problems = make("locked", 8, "i4"), {}
    for bind in BINDINGS:
        buffer[:] = COUNT
        outcome = Outcome(buffer, "write", duplicate, bind)
        if outcome.refused or not is_free(buffer, stream):
            problems[bind.__name__] = outcome.refused
        elif any((array != duplicate(COUNT)).any() for array in arrays_in(outcome.made)):
            problems[bind.__name__] = "changed"
    assert problems == {}


@ways
@dtypes
@pytest.mark.parametrize("made", (VIEWS | POINTERS).values(), ids=VIEWS | POINTERS)
def test_every_dtype(make, stream, dtype, made, way):
    """For every dtype, an object is either emptied or refused at the end of the block."""
    if not can_make(made, dtype, way):
        pytest.skip("NumPy cannot make it of such an array")
    buffer = make("locked", 8, dtype)
    outcome = Outcome(buffer, way, made, by_name)
    free = is_free(buffer, stream)
    assert free is not bool(outcome.refused)
    assert not free or not any(array.size for array in arrays_in(outcome.made))
    outcome.made.clear()
    if not is_free(buffer, stream):
        gc.collect()
    assert is_free(buffer, stream)
    buffer.close()


def test_the_records_of_an_array_are_views_of_it(make, stream):
    buffer = make("locked", 8, RECORD)
    outcome = Outcome(buffer, "write", lambda array: array[0], by_name)
    assert outcome.refused
    outcome.made.clear()
    assert is_free(buffer, stream)


def test_views_are_emptied_although_something_else_is_refused(make, stream):
    """A refused block still empties its plain views.

    So the program only has to drop the reference that could not be emptied, here a memoryview.
    """
    buffer = make("locked", 8, "i4", COUNT)
    kept = []

    def leave():
        with buffer.write() as array:
            part = array[:4]
            other = array[4:]
            kept.append((part, memoryview(other)))

    with pytest.raises(cu.BufferExportedError):
        leave()
    (part, view) = kept[0]
    assert part.size == 0
    assert view.tolist() == [4, 5, 6, 7]
    assert not is_free(buffer, stream)
    del view
    kept.clear()
    assert is_free(buffer, stream)


def leave_a_loop_variable(buffer):
    with buffer.write() as array:
        for row in array.reshape(2, 4):
            row += 1
    return row


def leave_slices(buffer):
    with buffer.write() as array:
        low, high = array[:4], array[4:]
        low += high
    return low, high


def leave_by_exception(buffer):
    def fail(part):
        kept = part[1:]
        raise KeyError(kept.size)

    with pytest.raises(KeyError) as raised, buffer.write() as array:
        fail(array)
    assert not hasattr(raised.value, "__notes__")


def leave_locals(buffer):
    with buffer.write() as array:
        part = array[:4]
        kept = locals()
    return part, kept


def leave_a_function(buffer):
    with buffer.write() as array:
        part = array[1:]

        def later():
            return part.size, array.size

    assert later() == (0, 0)


def leave_twice(buffer):
    for _ in range(3):
        with buffer.write() as array:
            first = array[:2]
            first += 1
    return first


@pytest.mark.parametrize(
    "leave",
    [
        *(leave_a_loop_variable, leave_slices, leave_by_exception, leave_locals),
        *(leave_a_function, leave_twice),
    ],
)
def test_what_is_only_left_behind_is_not_refused(make, stream, leave):
    buffer = make("locked", 8, "i4", COUNT)
    left = leave(buffer)
    assert is_free(buffer, stream)
    for array in arrays_in(left):
        assert array.size == 0


def test_the_variables_of_the_caller_live_no_longer(make):
    """Looking for references to the array keeps no variables of the caller alive."""
    buffer = make("locked", 8)

    class Thing:
        pass

    died = []
    thing = Thing()
    with contextlib.ExitStack() as stack:
        reference = weakref.ref(thing, died.append)
        stack.enter_context(buffer.write())
        del thing
    assert died == [reference]


def test_a_call_of_another_thread_is_refused(make, stream):
    """A block is refused while another thread runs a call with its array as an argument."""
    buffer = make("locked", 8, "i4", COUNT)
    entered, may_end = threading.Event(), threading.Event()

    def work(array):
        entered.set()
        may_end.wait(PATIENCE)
        return array.size

    def start():
        with buffer.write() as array:
            thread = threading.Thread(target=work, args=(array,))
            thread.start()
            entered.wait(PATIENCE)
            threads.append(thread)

    threads = []
    with pytest.raises(cu.BufferExportedError):
        start()
    may_end.set()
    threads[0].join()
    assert is_free(buffer, stream)


def leave_by_return(buffer):
    with buffer.write() as array:
        return int(array[0])


def leave_by_break(buffer):
    for _ in range(2):
        with buffer.write() as array:
            array[0] = 1
            break


def leave_by_error(buffer):
    try:
        with buffer.write() as array:
            array[0] = 1
            raise KeyError
    except KeyError:
        pass


def leave_a_generator(buffer):
    def items():
        with buffer.write() as array:
            yield array[0]

    next(items())


@pytest.mark.parametrize(
    "leave", [leave_by_return, leave_by_break, leave_by_error, leave_a_generator]
)
def test_a_block_that_is_left_early_is_over(make, stream, leave):
    buffer = make("locked", 8, "u1", np.ones(8, "u1"))
    leave(buffer)
    buffer.fill_async(0, stream).wait()
    buffer.close()


def test_returning_the_array_is_an_escape(make):
    buffer = make("locked", 8)

    def leave():
        with buffer.write() as array:
            return array

    with pytest.raises(cu.BufferExportedError, match="is still referred to"):
        leave()


def test_an_operand_of_a_running_call_is_an_escape(make, stream):
    """A block that ends inside a call with the array as an argument is refused.

    From Python 3.14 on, a call can borrow the reference of its caller's variable.
    """
    buffer = make("locked", 8)
    block = buffer.write()
    array = block.__enter__()

    def end(other):
        assert other.size == 8
        block.__exit__(None, None, None)

    with pytest.raises(cu.BufferExportedError, match="is still referred to"):
        operator.call(end, array)
    assert array.size == 8
    del array
    assert is_free(buffer, stream)


@pytest.mark.parametrize("kind", ["locked", "unified"])
def test_the_host_is_one_user(make, stream, kind):
    buffer = make(kind, 8, "i4", np.arange(8, dtype="i4"))
    with buffer.read() as first, buffer.read() as second:
        assert np.shares_memory(first, second)
        with buffer.write() as third:
            third[0] = 5
            buffer[1] = 6
        assert first[:2].tolist() == second[:2].tolist() == [5, 6]
        make("device", 8, "i4").copy_from_async(buffer, stream)
        with pytest.raises(cu.BufferExportedError):
            buffer.fill_async(0, stream)
    buffer.fill_async(0, stream).wait()


def test_what_ends_inside_a_block(make, stream):
    buffer = make("locked", 8)
    with buffer.write() as array:
        for end in (buffer.close, buffer.into_raw):
            with pytest.raises(cu.BufferExportedError):
                end()
        moved = buffer.take()
        with pytest.raises(cu.BufferExportedError):
            moved.fill_async(0, stream)
        with pytest.raises(cu.BufferClosedError, match="moved"):
            buffer.fill_async(0, stream)
        array[3] = 3
    assert moved[3] == 3
    moved.fill_async(0, stream).wait()
    moved.close()


def test_a_block_outlives_the_name_of_its_buffer(make):
    with make("locked", 8).write() as array:
        array[:] = 7
        assert array.sum() == 56
