"""A launch that passes the same bytes as `cu.read` and explicitly as `cu.write` is refused."""

import numpy as np
import pytest
from results import PTX, array_of

import cudadrv as cu

WORDS = r"is passed as cudadrv.read, and .* as cudadrv.write, and they overlap"


@pytest.fixture
def add(module):
    """The kernel add_into(a, b, c, n), which writes a."""
    return module["add_into"]


@pytest.fixture
def numbers(driver):
    return cu.DeviceBuffer.from_array(np.arange(64, dtype="u4"), name="numbers")


def pairs(buffer):
    """Pairs of buffers with bytes in common: the whole, parts, views, one byte."""
    words = buffer.view("u1")
    return [
        (buffer, buffer),
        (buffer, buffer[8:16]),
        (buffer[8:16], buffer),
        (buffer[:17], buffer[16:]),
        (buffer.view("f4"), buffer[3:4]),
        (words[:5], words[4:9]),
        (buffer[:8], cu.DeviceBuffer.from_address(buffer.address, 4, "u4", owner=buffer)),
    ]


def test_bytes_that_are_read_and_written(add, numbers, stream):
    other = cu.DeviceBuffer(64, "u4")
    for one, two in pairs(numbers):
        for args in (
            (cu.write(one), cu.read(two), other, 1),
            (cu.read(one), cu.write(two), other, 1),
            (other, cu.read(one), cu.write(two), 1),
            (cu.write(one), other, cu.read(two), 1),
        ):
            with pytest.raises(ValueError, match=WORDS):
                add.launch(1, 1, *args, stream=stream)
    assert not numbers.borrowed
    assert not other.borrowed


def test_bytes_that_may_be_read_and_written(add, numbers, stream):
    """Bare and shared arguments may overlap any other one. So may two read-only arguments."""
    other = cu.DeviceBuffer.zeros(64, "u4")
    for args in (
        (numbers, cu.read(numbers), other),
        (cu.write(numbers[:32]), cu.read(numbers[32:]), other),
        (cu.write(numbers[:32]), numbers[16:], cu.read(other)),
        (cu.write(numbers), cu.write(numbers), cu.read(other)),
        (cu.write(numbers), cu.shared(numbers), other),
        (cu.shared(numbers), cu.read(numbers), other),
        (other, cu.read(numbers), cu.read(numbers)),
        (cu.write(other), cu.read(numbers), cu.read(numbers[:0])),
        (cu.write(numbers[8:8]), cu.read(numbers), other),
    ):
        add.launch(1, 1, *args, 0, stream=stream)
    stream.synchronize()


def test_the_message_names_both_arguments(add, numbers, stream):
    with pytest.raises(ValueError) as caught:
        add.launch(1, 1, cu.write(numbers), numbers, cu.read(numbers[8:24]), 1, stream=stream)
    assert str(caught.value) == (
        "argument 2 (c, .u64) DeviceBuffer 'numbers'[8:24] (uint32) is passed as cudadrv.read, and"
        " argument 0 (a, .u64) DeviceBuffer 'numbers'[0:64] (uint32) as cudadrv.write, and they"
        " overlap: add_into cannot both leave bytes unchanged and write them. If it works in place,"
        " pass the second buffer bare, without cudadrv.write"
    )
    add.launch(1, 8, numbers, numbers, cu.read(numbers[8:24]), 8, stream=stream).wait()
    assert list(array_of(numbers)[:8]) == [2 * i + 8 for i in range(8)]


@pytest.mark.parametrize("count", [1, 20])
def test_what_borrows_declares(add, numbers, stream, count):
    """Buffers in `borrows` are compared, too, even if they do not fit on the stack."""
    other, more = cu.DeviceBuffer(64, "u4"), cu.DeviceBuffer(64, "u4").chunks(2)[:count]
    for first, second in ((cu.read, cu.write), (cu.write, cu.read)):
        with pytest.raises(ValueError, match=r"argument 1 \(b, .u64\).*and borrows|borrows.*\(b, "):
            add.launch(
                1, 1, other, first(numbers), other, 1, borrows=[*more, second(numbers[5:6])],
                stream=stream,
            )  # fmt: skip
        with pytest.raises(ValueError, match=rf"borrows\[.*borrows\[.*{WORDS[-12:]}"):
            add.launch(
                1, 1, other, other, other, 1, stream=stream,
                borrows=[first(numbers[:6]), *more, second(numbers[5:6])],
            )  # fmt: skip
    add.launch(
        1, 1, other, cu.read(numbers), other, 0, borrows=(*more, numbers), stream=stream
    ).wait()


def test_each_way_to_launch(add, numbers, stream):
    """`prepare`, a node of a graph and a change of a node are refused, and change nothing."""
    other, graph = cu.DeviceBuffer.zeros(64, "u4"), cu.Graph()
    wrong = cu.write(numbers), cu.read(numbers[:1]), cu.read(other), 64
    with pytest.raises(ValueError, match=WORDS):
        add.prepare(1, 64, *wrong)
    with pytest.raises(ValueError, match=WORDS):
        graph.add_launch(add, 1, 64, *wrong)
    with graph.capture(stream):
        with pytest.raises(ValueError, match=WORDS):
            add.launch(1, 64, *wrong, stream=stream)
        add.launch(1, 64, cu.write(numbers), cu.read(other), cu.read(other), 64, stream=stream)
    step = graph.instantiate()
    with pytest.raises(ValueError, match=WORDS):
        step[0].set(*wrong)
    with pytest.raises(ValueError, match=WORDS):
        step[0].set(borrows=[cu.read(numbers[63:])])
    step[0].set(cu.write(numbers), cu.read(other), cu.read(other), 64)
    step.launch(stream).wait()
    assert not array_of(numbers).any()


def test_a_cooperative_launch(add, numbers, stream):
    if not add.module.device.attribute("cooperative_launch"):
        pytest.skip("the device has no cooperative launches")
    other = cu.DeviceBuffer(64, "u4")
    with pytest.raises(ValueError, match=WORDS):
        add.launch(
            1, 1, cu.write(numbers), cu.read(numbers), other, 1, stream=stream, cooperative=True
        )


@pytest.mark.cuda_software
def test_a_kernel_whose_parameters_are_not_known(driver, numbers, stream):
    """A driver of a CUDA before 12.4 does not list the parameters of a fatbin."""
    from cudadrv import testing

    testing.fail("cuFuncGetParamInfo", 801)
    kernel = cu.Module.from_file(PTX.with_suffix(".fatbin"))["add_into"]
    assert kernel.parameters is None
    with pytest.raises(ValueError, match=f"^argument 1 .*{WORDS}"):
        kernel.launch(
            1, 1, cu.write(numbers), cu.read(numbers), cu.read(numbers), np.int32(1), stream=stream
        )
    other = cu.DeviceBuffer.zeros(64, "u4")
    args = cu.write(other), cu.read(numbers), cu.read(numbers), np.int32(64)
    kernel.launch(1, 64, *args, stream=stream).wait()
    assert list(array_of(other)) == [2 * i for i in range(64)]


def test_arrays_of_another_library(add, numbers, stream):
    """The launch imports the arrays, and finds out that they share memory."""

    class Array:
        def __init__(self, buffer):
            self.buffer = buffer

        def __dlpack__(self, **options):
            return self.buffer.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.buffer.__dlpack_device__()

    other = cu.DeviceBuffer.zeros(64, "u4")
    array = Array(numbers)
    with pytest.raises(ValueError, match=WORDS):
        add.launch(1, 1, cu.write(array), cu.read(array), other, 1, stream=stream)
    with pytest.raises(ValueError, match=WORDS):
        add.launch(1, 1, cu.write(array), other, other, 1, borrows=[cu.read(array)], stream=stream)
    stream.synchronize()


def test_arrays_of_the_host_beside_them(add, numbers, stream):
    """The launch is refused before anything is allocated or copied for the array."""
    given = np.ones(64, "u4")
    with pytest.raises(ValueError, match=WORDS):
        add.launch(1, 1, cu.write(numbers), cu.read(numbers), cu.InOut(given), 1, stream=stream)
    assert given.flags.writeable
    result = np.zeros(64, "u4")
    add.launch(1, 64, cu.Out(result), cu.In(given), cu.In(given), 64, stream=stream).wait()
    assert (result == 2).all()


def test_what_an_argument_tells(numbers):
    for mode in (cu.read, cu.write, cu.shared):
        access = mode(numbers)
        assert access.buffer is numbers
        assert access.mode == mode.__name__
        assert repr(access).startswith(f"{mode.__name__}(<DeviceBuffer 'numbers'")
