"""All calls accept the same arrays of other libraries, whatever defines their attributes."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from other_library import ADD, Library

import cudadrv as cu
from cudadrv import testing

ITEMS = 16
FATBIN = Path(__file__).with_name("kernels.fatbin")


@pytest.fixture
def library(driver):
    found = Library()
    yield found
    found.end()


@pytest.fixture
def add(driver):
    return cu.Module(ADD)["add"]


@pytest.fixture
def memory(library, stream):
    """The memory of the other library, which has two arrays of 16 items: 0, 1, 2, ... and fives."""
    x = cu.DeviceBuffer.from_address(library.address, ITEMS, "u4")
    y = cu.DeviceBuffer.from_address(library.address + 4 * ITEMS, ITEMS, "u4")
    x.copy_from(np.arange(ITEMS, dtype="u4"))
    y.fill(5)
    yield x, y
    cu.Device(0).synchronize()


def interface(address):
    return {
        "shape": (ITEMS,),
        "typestr": "<u4",
        "data": (address, False),
        "version": 3,
        "stream": None,
    }


class Proxy:
    """What proxies of all kinds do: it looks up its attributes in another object."""

    def __init__(self, other):
        self._other = other

    def __getattr__(self, name):
        return getattr(self._other, name)


class Interface:
    def __init__(self, address):
        self.__cuda_array_interface__ = interface(address)


class TypedInterface:
    def __init__(self, address):
        self._address = address

    @property
    def __cuda_array_interface__(self):
        return interface(self._address)


class Mapped(np.ndarray):
    """An array of NumPy over memory that the device can use, such as numba's mapped arrays."""

    def __new__(cls, address):
        made = np.zeros(1).view(cls)
        made._address = address
        return made

    @property
    def __cuda_array_interface__(self):
        return interface(self._address)


class Capsules:
    def __init__(self, address):
        self.buffer = cu.DeviceBuffer.from_address(address, ITEMS, "u4")

    def __dlpack__(self, **options):
        return self.buffer.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.buffer.__dlpack_device__()


def with_attributes(address):
    made = Capsules(address)
    return SimpleNamespace(
        __dlpack__=made.__dlpack__, __dlpack_device__=made.__dlpack_device__, keeps=made
    )


FORMS = {
    "interface of the type": (cu.from_cuda_array, TypedInterface),
    "interface of the object": (cu.from_cuda_array, Interface),
    "interface in a namespace": (
        cu.from_cuda_array,
        lambda address: SimpleNamespace(__cuda_array_interface__=interface(address)),
    ),
    "proxy of an interface": (cu.from_cuda_array, lambda address: Proxy(TypedInterface(address))),
    "ndarray with an interface": (cu.from_cuda_array, Mapped),
    "capsules of the type": (cu.from_dlpack, Capsules),
    "capsules in a namespace": (cu.from_dlpack, with_attributes),
    "proxy of capsules": (cu.from_dlpack, lambda address: Proxy(Capsules(address))),
    "proxy of a proxy": (cu.from_dlpack, lambda address: Proxy(Proxy(Capsules(address)))),
}
forms = pytest.mark.parametrize("form", FORMS)


def arrays_of(form, memory):
    make = FORMS[form][1]
    return [make(buffer.address) for buffer in memory]


@forms
def test_as_a_buffer(memory, stream, form):
    x, _ = arrays_of(form, memory)
    buffer = FORMS[form][0](x, stream)
    assert buffer.address == memory[0].address
    assert buffer.to_numpy(stream=stream).tolist() == list(range(ITEMS))


@forms
@pytest.mark.parametrize("mark", [cu.write, cu.shared, lambda array: array])
def test_as_an_argument(memory, add, stream, form, mark):
    x, y = arrays_of(form, memory)
    token = add.launch(1, ITEMS, cu.read(x), mark(y), stream=stream)
    assert [each.address for each in token.reads] == [memory[0].address]
    assert memory[1].to_numpy(stream=stream).tolist() == [5 + i for i in range(ITEMS)]


@forms
@pytest.mark.cuda_software
def test_where_the_parameters_are_not_known(memory, driver, stream, form):
    testing.fail("cuFuncGetParamInfo", 801)
    saxpy = cu.Module.from_file(FATBIN)["saxpy"]
    assert saxpy.parameters is None
    x, y = arrays_of(form, memory)
    # As floats, the items are denormal numbers, whose float sums have the same bits as the integer
    # sums.
    saxpy.launch(1, ITEMS, np.float32(1), cu.read(x), y, np.int32(ITEMS), stream=stream)
    assert memory[1].to_numpy(stream=stream).tolist() == [5 + i for i in range(ITEMS)]


@forms
def test_in_borrows(memory, add, stream, other, form):
    x, _ = arrays_of(form, memory)
    addresses = np.uint64(memory[0].address), np.uint64(memory[1].address)
    for borrows in ([x], [cu.write(x)]):
        token = add.launch(1, ITEMS, *addresses, stream=stream, borrows=borrows)
        assert [each.address for each in token.writes] == [memory[0].address]
        with pytest.raises(cu.OwnershipError):
            memory[0].fill_async(1, other)
        stream.synchronize()


@forms
def test_with_arrays_of_the_host(memory, add, stream, form):
    x, _ = arrays_of(form, memory)
    y = np.full(ITEMS, 7, "u4")
    add.launch(1, ITEMS, cu.read(x), cu.InOut(y), stream=stream).wait()
    assert y.tolist() == [7 + i for i in range(ITEMS)]


@forms
def test_what_keeps_its_arguments_says_to_make_a_buffer(memory, add, stream, form):
    x, y = arrays_of(form, memory)
    graph = cu.Graph()
    node = graph.add_launch(add, 1, ITEMS, *memory)
    step = graph.instantiate()
    uses = [
        lambda: add.prepare(1, ITEMS, x, y),
        lambda: add.prepare(1, ITEMS, cu.read(x), memory[1]),
        lambda: add.prepare(1, ITEMS, *memory, borrows=[x]),
        lambda: cu.Graph().add_launch(add, 1, ITEMS, x, memory[1]),
        lambda: cu.Graph().add_launch(add, 1, ITEMS, cu.read(x), memory[1]),
        lambda: step[node].set(cu.read(x), memory[1]),
        lambda: step[node].set(x, memory[1]),
    ]
    for use in uses:
        with pytest.raises(TypeError, match=r"takes buffers.*cudadrv\.from_dlpack\(array\)"):
            use()


@forms
def test_a_class_is_no_array(memory, add, stream, form):
    kind = type(arrays_of(form, memory)[0])
    for use in (cu.from_dlpack, cu.from_cuda_array):
        with pytest.raises(TypeError, match="has no __"):
            use(kind)
    with pytest.raises(TypeError, match="takes a buffer"):
        cu.read(kind)
    with pytest.raises(TypeError):
        add.launch(1, ITEMS, kind, memory[1], stream=stream)


class Flickering:
    """An object whose interface exists only at every other look-up."""

    def __init__(self, address, turn):
        self._address, self._turn = address, turn

    def __getattr__(self, name):
        if name != "__cuda_array_interface__":
            raise AttributeError(name)
        self._turn += 1
        if self._turn % 2:
            raise AttributeError(name)
        return interface(self._address)


@pytest.mark.parametrize("turn", range(4))
@pytest.mark.parametrize("mark", [cu.read, lambda array: array])
def test_an_interface_that_comes_and_goes(memory, add, stream, turn, mark):
    """Such an object is refused, or the launch gets the array: never a wrong address."""
    try:
        add.launch(1, ITEMS, mark(Flickering(memory[0].address, turn)), memory[1], stream=stream)
    except TypeError:
        expected = [5] * ITEMS
    else:
        expected = [5 + i for i in range(ITEMS)]
    assert memory[1].to_numpy(stream=stream).tolist() == expected


class Failing:
    @property
    def __cuda_array_interface__(self):
        raise ZeroDivisionError


@pytest.mark.parametrize(
    "array", [Failing(), Proxy(Failing())], ids=["of the type", "of the object"]
)
def test_what_an_attribute_raises_is_raised(memory, add, stream, array):
    with pytest.raises(ZeroDivisionError):
        cu.from_cuda_array(array)
    with pytest.raises(ZeroDivisionError):
        add.launch(1, ITEMS, array, memory[1], stream=stream)


# ---- streams ----

STREAMS = {
    "in a namespace": lambda handle: SimpleNamespace(__cuda_stream__=lambda: (0, handle)),
    "proxy": lambda handle: Proxy(SimpleNamespace(__cuda_stream__=lambda: (0, handle))),
}


@pytest.mark.parametrize("form", STREAMS)
def test_streams(memory, add, stream, other, form):
    theirs = STREAMS[form](stream.handle)
    x, y = memory
    tokens = [
        add.launch(1, ITEMS, *memory, stream=theirs),
        add.prepare(1, ITEMS, *memory).launch(theirs),
        x.fill_async(1, theirs),
        x.copy_from_async(y, theirs),
        x.copy_from_async(y.to_numpy(stream=theirs), theirs),
    ]
    assert [token.stream for token in tokens] == [stream] * len(tokens)
    other.wait(theirs)
    x.fill(2, stream=theirs)
    x.fill_async(3, other)
    other.synchronize()
    graph = cu.Graph()
    with graph.capture(theirs):
        x.fill_async(4, theirs)
    assert graph.instantiate().launch(theirs).stream is stream
    assert cu.from_cuda_array(TypedInterface(y.address), theirs).count == ITEMS
    with x.lend(theirs):
        pass
    stream.synchronize()
