"""Arguments of launches: which values each parameter accepts, and what the kernel gets."""

import ctypes
import enum

import numpy as np
import pytest
from results import PTX, array_of

import cudadrv as cu

POINT = np.dtype([("x", "f4"), ("y", "f4"), ("n", "i4"), ("z", "f8")], align=True)
STORED = np.dtype(
    {
        "names": ["byte", "short", "word", "long", "single", "double", "point"],
        "formats": ["u1", "i2", "i4", "i8", "f4", "f8", POINT],
        "offsets": [0, 2, 4, 8, 16, 24, 32],
        "itemsize": 56,
    }
)
A_POINT = np.array([(1.5, -2.0, 3, 4.25)], POINT)[0]


class CPoint(ctypes.Structure):
    _fields_ = [
        ("x", ctypes.c_float),
        ("y", ctypes.c_float),
        ("n", ctypes.c_int),
        ("z", ctypes.c_double),
    ]


class Color(enum.IntEnum):
    RED = 3


@pytest.fixture
def store(module):
    return module["store"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((255, -1, -(2**31), -(2**63), 0.5, 0.1, A_POINT), None),
        ((255, -1, 2**32 - 1, 2**64 - 1, 1, 1, A_POINT), (255, -1, -1, -1, 1, 1)),
        ((True, 2**16 - 1, Color.RED, 2**63, True, False, A_POINT), (1, -1, 3, -(2**63), 1, 0)),
        ((np.uint8(7), np.int16(-7), np.int32(-1), np.int64(-1), np.float32(0.1), np.float64(0.1),
          np.array(A_POINT)), None),
        ((np.bool_(True), np.uint16(65535), np.array(5, "u4"), np.uint64(1), np.array(2, "f4"),
          np.array(3.0), A_POINT), (1, -1, 5, 1, 2, 3)),
        ((ctypes.c_ubyte(9), ctypes.c_short(-9), ctypes.c_int(-9), ctypes.c_longlong(-9),
          ctypes.c_float(0.1), ctypes.c_double(0.1), CPoint(1.5, -2.0, 3, 4.25)),
         (9, -9, -9, -9, np.float32(0.1), 0.1)),
        ((0, 0, 0, ctypes.c_void_p(12345), float("inf"), float("-inf"), A_POINT),
         (0, 0, 0, 12345, np.inf, -np.inf)),
    ],
)  # fmt: skip
def test_values_arrive(store, stream, given, expected):
    out = cu.DeviceBuffer.zeros(1, STORED)
    store.launch(1, 1, out, *given, stream=stream).wait()
    stored = array_of(out)[0]
    assert stored["point"] == A_POINT
    assert tuple(stored)[:6] == tuple(
        type(stored[i])(value) for i, value in enumerate(expected or given[:6])
    )


class LyingFloat(np.float32):
    """A scalar that fails whenever an attribute is looked up in it."""

    def __getattribute__(self, name):
        if name == "__class__":  # isinstance looks it up
            return LyingFloat
        raise ZeroDivisionError(name)


class LyingArray(np.ndarray):
    shape, dtype = (), np.dtype("i8")

    def tobytes(self):
        return b"lying!!!"


class LyingPoint(np.record):
    dtype = np.dtype("i8")

    def tobytes(self):
        return b"lying!!!"


def test_subclasses_with_other_attributes(store, stream):
    out = cu.DeviceBuffer.zeros(1, STORED)
    point = np.array([A_POINT], np.dtype((LyingPoint, POINT)))[0]
    assert type(point) is LyingPoint
    word = np.array(-5, "i4").view(LyingArray)
    store.launch(1, 1, out, 0, 0, word, 0, LyingFloat(1.5), 0.0, point, stream=stream).wait()
    stored = array_of(out)[0]
    assert (stored["word"], stored["single"], stored["point"]) == (-5, 1.5, A_POINT)
    with pytest.raises(TypeError, match=r"argument 3 .* cannot be an array of shape \(2,\)"):
        store.launch(1, 1, out, 0, 0, np.zeros(2, "i4").view(LyingArray), 0, 0.0, 0.0, A_POINT,
                     stream=stream)  # fmt: skip


def test_not_a_number_arrives(store, stream):
    out = cu.DeviceBuffer.zeros(1, STORED)
    nan = float("nan")
    store.launch(1, 1, out, 0, 0, 0, 0, nan, nan, A_POINT, stream=stream).wait()
    stored = array_of(out)[0]
    assert np.isnan(stored["single"])
    assert np.isnan(stored["double"])


GOOD = (None, 0, 0, 0, 0, 0.0, 0.0, A_POINT)
NAMES = ("out", "byte", "short", "word", "long", "single", "double", "point")


@pytest.mark.parametrize(
    ("index", "value", "error", "words"),
    [
        (1, 256, ValueError, "cannot be 256 (int): it does not fit"),
        (1, -129, ValueError, "it does not fit"),
        (2, 2**16, ValueError, "it does not fit"),
        (3, 2**32, ValueError, "it does not fit"),
        (3, -(2**31) - 1, ValueError, "it does not fit"),
        (4, 2**64, ValueError, "it does not fit"),
        (4, -(2**63) - 1, ValueError, "it does not fit"),
        (4, 1 << 200, ValueError, "it does not fit"),
        (5, 1e39, ValueError, "it does not fit"),
        (5, 2**24 + 1, ValueError, "pass float(...) to round it"),
        (6, 2**53 + 1, ValueError, "pass float(...) to round it"),
        (6, 1 << 2000, ValueError, "it does not fit"),
        (3, 1.0, TypeError, "cannot be 1.0 (float): pass a number of the declared kind"),
        (3, np.int64(1), TypeError, "it has 8 bytes, and the parameter 4"),
        (3, np.float32(1), TypeError, "that is another kind of number"),
        (5, np.float64(1), TypeError, "it has 8 bytes, and the parameter 4"),
        (5, np.int32(1), TypeError, "that is another kind of number"),
        (5, ctypes.c_int(1), TypeError, "that is another kind of number"),
        (3, np.array(1, ">i4"), TypeError, "the other byte order"),
        (3, np.zeros(1, "i4"), TypeError, "DeviceBuffer.from_array(array)"),
        (0, np.zeros(4), TypeError, "DeviceBuffer.from_array(array)"),
        (0, bytes(8), TypeError, "pass a buffer, a number, or a NumPy or ctypes value"),
        (0, None, TypeError, "cannot be None (NoneType)"),
        (0, [1], TypeError, "cannot be [1] (list)"),
        (0, "text", TypeError, "cannot be 'text' (str)"),
        (0, 1.5, TypeError, "cannot be 1.5 (float)"),
        (7, 1, TypeError, "pass a NumPy structured scalar"),
        (7, np.zeros((), "V8"), TypeError, "it has 8 bytes, and the parameter 24"),
        (7, CPoint, TypeError, "pass a NumPy structured scalar"),
        (0, np.array(None), TypeError, "DeviceBuffer.from_array(array)"),
    ],
)
def test_what_does_not_fit_is_refused(store, stream, unchanged, index, value, error, words):
    out = cu.DeviceBuffer.zeros(1, STORED)
    args = [out, *GOOD[1:]]
    args[index] = value
    with unchanged("cuLaunchKernelEx"), pytest.raises(error) as caught:
        store.launch(1, 1, *args, stream=stream)
    declared = (
        "(out, .u64) (byte, .u8) (short, .u16) (word, .u32) (long, .u64) (single, .f32)"
        " (double, .f64) (point, .b8[24])".replace(") (", ")|(").split("|")[index]
    )
    assert f"argument {index} {declared} of store " in str(caught.value)
    assert words in str(caught.value)
    assert not out.borrowed


def test_buffers_go_where_addresses_go(store, stream):
    out = cu.DeviceBuffer.zeros(1, STORED)
    for index in (1, 3, 6, 7):
        args = [out, *GOOD[1:]]
        args[index] = out
        with pytest.raises(TypeError, match="the parameter is no address"):
            store.launch(1, 1, *args, stream=stream)


def test_a_float_for_a_parameter_of_bits(stream):
    """Compilers declare a half as .b16, and so they do with bfloat16 and other things."""
    text = ".version 7.0\n.target sm_52\n.address_size 64\n"
    bits = cu.Module(text + ".visible .entry bits(.param .b16 number) { ret; }")["bits"]
    wrong = r"cannot be 1\.5 \(float\): .*; pass numpy\.float16\(1\.5\)"
    with pytest.raises(TypeError, match=wrong):
        bits.launch(1, 1, 1.5, stream=stream)
    bits.launch(1, 1, np.float16(1.5), stream=stream).wait()


def test_how_many(store, module, stream):
    with pytest.raises(TypeError, match=r"store takes 8 arguments, not 0: out \(\.u64\), byte"):
        store.launch(1, 1, stream=stream)
    with pytest.raises(TypeError, match="nothing takes 0 arguments, not 1: none"):
        module["nothing"].launch(1, 1, 1, stream=stream)
    module["nothing"].launch(1, 1, stream=stream).wait()


def test_wrong_borrows(module, stream):
    nothing = module["nothing"]
    with pytest.raises(TypeError, match=r"borrows=\[buffer\]"):
        nothing.launch(1, 1, borrows=cu.DeviceBuffer(1), stream=stream)
    with pytest.raises(TypeError, match="borrows takes buffers, or read"):
        nothing.launch(1, 1, borrows=[3], stream=stream)


def test_borrows_of_empty_buffers(module, stream):
    empty = cu.DeviceBuffer(0)
    for borrows in ([empty], [cu.read(empty)], [cu.shared(empty)]):
        module["nothing"].launch(1, 1, borrows=borrows, stream=stream).wait()


def test_a_closed_or_moved_buffer(saxpy, vectors, stream):
    x, y = vectors
    taken = x.take()
    with pytest.raises(cu.BufferClosedError, match="was moved at"):
        saxpy.launch(1, 1, 1.0, cu.read(x), y, 1, stream=stream)
    taken.close()
    with pytest.raises(cu.BufferClosedError, match="was closed at"):
        saxpy.launch(1, 1, 1.0, cu.read(taken), y, 1, stream=stream)


def test_accesses(driver):
    buffer = cu.DeviceBuffer(4, name="b")
    for make in (cu.read, cu.write, cu.shared):
        access = make(buffer)
        assert access.buffer is buffer
        assert access.mode == make.__name__
        assert repr(access) == f"{make.__name__}(<DeviceBuffer 'b' 4 x uint8>)"
        with pytest.raises(TypeError, match=rf"{make.__name__}\(\) takes a buffer, .*not list"):
            make([])


def test_an_empty_buffer_is_a_null_pointer(saxpy, stream):
    empty = cu.DeviceBuffer(0, "f4")
    saxpy.launch(1, 32, 1.0, cu.read(empty), empty, 0, stream=stream).wait()


FATBIN = PTX.with_suffix(".fatbin")


@pytest.mark.parametrize("count", [0, 1, 3, 40])
@pytest.mark.parametrize("way", ["launch", "prepare", "capture"])
def test_blocks_of_arguments_may_end_anywhere(driver, stream, count, way):
    """The driver takes the arguments as one block, whose size must be exact."""
    bytes_ = "".join(f", .param .u8 b{i}" for i in range(count))
    text = f"""
    .version 6.4
    .target sm_52
    .address_size 64
    .visible .entry last(.param .u64 out{bytes_})
    {{
        .reg .u64 %rd<2>;
        .reg .u16 %rs<2>;
        ld.param.u64 %rd1, [out];
        {f"ld.param.u8 %rs1, [b{count - 1}];" if count else "mov.u16 %rs1, 100;"}
        st.global.u8 [%rd1], %rs1;
        ret;
    }}
    """
    kernel, out = cu.Module(text)["last"], cu.DeviceBuffer.zeros(1, "u1")
    arguments = (out, *range(101 - count, 101))
    if way == "launch":
        kernel.launch(1, 1, *arguments, stream=stream)
    elif way == "prepare":
        kernel.prepare(1, 1, *arguments).launch(stream)
    else:
        graph = cu.Graph()
        with graph.capture(stream):
            kernel.launch(1, 1, *arguments, stream=stream)
        graph.instantiate().launch(stream)
    stream.synchronize()
    assert array_of(out)[0] == 100


def test_where_the_driver_alone_tells_of_the_parameters(driver, stream):
    """For a cubin, the driver knows only the offset and the size of each parameter.

    So a number must be passed as a NumPy scalar, which has a type.
    """
    module = cu.Module.from_file(FATBIN)
    saxpy = module["saxpy"]
    if saxpy.parameters is None:
        pytest.skip("the driver is older than 12.4")
    assert saxpy.parameters[1] == (None, None, 8, 8)
    assert set(module) >= {"saxpy", "store"}
    x, y = cu.DeviceBuffer.from_array(np.ones(9, "f4")), cu.DeviceBuffer.zeros(9, "f4")
    saxpy.launch(1, 9, np.float32(2), cu.read(x), y, np.int32(9), stream=stream).wait()
    assert array_of(y).tolist() == [2] * 9
    for args, words in (
        ((2.0, x, y, np.int32(9)), r"argument 0 \(4 bytes\) of saxpy .* its type is not known"),
        ((np.float32(2), x, y, 9), r"argument 3 \(4 bytes\) of saxpy cannot be 9 \(int\)"),
        ((np.float64(2), x, y, np.int32(9)), "it has 8 bytes, and the parameter 4"),
        ((x, x, y, np.int32(9)), "the parameter is no address"),
        ((np.float32(2), x, y), "saxpy takes 4 arguments, not 3: 4 bytes, 8 bytes"),
    ):
        with pytest.raises(TypeError, match=words):
            saxpy.launch(1, 9, *args, stream=stream)


def test_variables_of_what_is_no_text(driver, stream, other):
    """A launch from a fatbin counts as a use of all its variables: any kernel may use them."""
    module = cu.Module.from_file(FATBIN)
    counter = module.global_("counter", "u4")
    module["nothing"].launch(1, 1, stream=stream)
    with pytest.raises(cu.BufferBorrowedError, match="may be in use by launch of nothing"):
        counter.fill_async(0, other)
    stream.synchronize()


@pytest.mark.cuda_software
def test_where_nobody_tells_of_the_parameters(driver, stream):
    from cudadrv import testing

    testing.fail("cuFuncGetParamInfo", 801)
    assert cu.Module.from_file(PTX)["saxpy"].parameters[3].type == "u32", "the text does"
    module = cu.Module.from_file(FATBIN)
    testing.fail("cuFuncGetParamInfo", 801)
    saxpy = module["saxpy"]
    assert saxpy.parameters is None
    x, y = cu.DeviceBuffer.from_array(np.ones(9, "f4")), cu.DeviceBuffer.zeros(9, "f4")
    saxpy.launch(1, 9, np.float32(2), cu.read(x), y, ctypes.c_int(9), stream=stream).wait()
    assert array_of(y).tolist() == [2] * 9
    with pytest.raises(
        TypeError, match=r"argument 0 of saxpy .*: nothing is known of the parameter"
    ):
        saxpy.launch(1, 9, 2.0, x, y, np.int32(9), stream=stream)
    with pytest.raises(ValueError, match="the arguments of saxpy have more than 4096 bytes"):
        saxpy.launch(1, 9, np.zeros((), "V5000"), stream=stream)
