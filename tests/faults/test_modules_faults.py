"""Making modules and kernels fails in the middle, or arguments call the same functions again."""

import gc
import sys
from pathlib import Path

import extensions
import numpy as np
import pytest

import cudadrv as cu
from cudadrv import testing

pytestmark = pytest.mark.cuda_software

FATBIN = Path(__file__).parents[1] / "kernels" / "kernels.fatbin"
HEAD = ".version 7.7\n.target sm_75\n.address_size 64\n"
PTX = (
    HEAD
    + """.visible .global .u32 A;
.visible .entry k(.param .u64 x, .param .u32 n, .param .f32 f)
{ st.global.u32 [A], 1; ret; }
.visible .entry empty() { ret; }
"""
)
STEPS = 60  # more allocations of Python objects than any call makes


def loaded():
    gc.collect()
    cu.reap()
    return testing.live_objects()["modules"]


# ---- parameters ----


@pytest.mark.parametrize("status", [2, 999])
@pytest.mark.parametrize("nth", [1, 2, 3, 4])
def test_a_question_that_fails_is_not_the_end_of_the_parameters(driver, status, nth):
    module = cu.Module(PTX)
    testing.fail("cuFuncGetParamInfo", status, nth=nth)
    with pytest.raises(cu.CudaError) as caught:
        module["k"]
    assert caught.value.call == "cuFuncGetParamInfo"
    assert len(module["k"].parameters) == 3, "the next time it is told"


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_the_driver_and_the_text_agree_on_the_parameters(driver, stream, nth):
    module = cu.Module(PTX)
    testing.fail("cuFuncGetParamInfo", 1, nth=nth)
    with pytest.raises(cu.CudaError, match=f"The driver counts {nth - 1} parameters of kernel 'k'"):
        module["k"]
    with pytest.raises(TypeError, match="k takes 3 arguments, not 1"):
        module["k"].launch(1, 1, 0, stream=stream)


# ---- out of memory, and interrupts ----


def test_no_module_is_lost_where_memory_runs_out(driver):
    memory = extensions.compiled("no_memory")
    cu.Module(PTX)  # imports modules and fills caches
    before = loaded()
    met = 0
    for number in range(600):
        module = None
        memory.begin(number, number + 1)
        try:
            module = cu.Module(PTX, name="one")
        except MemoryError:
            met += 1
        finally:
            memory.end()
    assert met > 20
    assert module is not None, "more allocations than looked at"
    del module
    assert loaded() == before


class Stop(BaseException):
    pass


def test_no_module_is_lost_where_the_user_interrupts(driver):
    """Ctrl-C comes at each line of the library's Python code that runs while a module is made."""
    before = loaded()
    lines = [0, 0]

    def trace(frame, event, argument):
        if "cudadrv" not in frame.f_code.co_filename or "tests" in frame.f_code.co_filename:
            return None
        lines[0] += 1
        if lines[0] == lines[1]:
            raise Stop
        return trace

    met = done = 0
    while not done:
        lines[:] = 0, lines[1] + 7
        sys.settrace(trace)
        try:
            cu.Module(PTX)["k"]
            done += 1
        except Stop:
            met += 1
        finally:
            sys.settrace(None)
    assert met > 10
    assert loaded() == before


def refused_launch(kernel):
    with pytest.raises(TypeError):
        kernel.launch(1, 1)


NO_MEMORY = {
    "arguments": lambda module, buffer: refused_launch(module["k"]),
    "kernel": lambda module, buffer: module["empty"],
    "chunks": lambda module, buffer: buffer.chunks(1),
    "live": lambda module, buffer: cu.live_buffers(),
    "report": lambda module, buffer: cu.memory_report(),
    "names": lambda module, buffer: list(module),
    "explain": lambda module, buffer: buffer.explain(),
}


@pytest.mark.parametrize("name", NO_MEMORY)
def test_lists_that_cannot_grow_drop_nothing_twice(driver, stream, name):
    memory = extensions.compiled("no_memory")
    if name == "kernel" and sys.version_info[:2] == (3, 12):
        pytest.skip("a new kernel looks into the PTX, in Python, and CPython 3.12 crashes there")
    module, buffer = cu.Module(PTX), cu.DeviceBuffer.zeros(100, "u1", name="b")
    kept = module["k"]  # keeps the parsed PTX, so that no call parses it again
    buffer.fill_async(1, stream)
    with stream:
        for number in range(STEPS):
            memory.begin(number, number + 1)
            try:
                NO_MEMORY[name](module, buffer)
            except (MemoryError, pytest.fail.Exception):
                pass
            finally:
                memory.end()
    stream.synchronize()
    gc.collect()
    assert sys.getrefcount(buffer) < 10
    assert len(buffer.chunks(1)) == 100
    assert kept.name == "k"


# ---- an argument initializes the same object again ----


class Again:
    """A value that calls a function when it is converted for the first time."""

    def __init__(self, call, value=1):
        self.call, self.value, self.left = call, value, 1

    def convert(self):
        if self.left:
            self.left -= 1
            self.call()
        return self.value

    __index__ = __float__ = __len__ = convert

    def __iter__(self):
        self.convert()
        return iter((7, 5))


@pytest.mark.parametrize("option", ["max_registers", "optimization_level", "target"])
def test_a_module_that_is_initialized_by_its_own_option(driver, stream, option):
    before = loaded()
    module = cu.Module.__new__(cu.Module)
    kernels = []

    def inner():
        module.__init__(PTX, name="inner")
        kernels.append(module["empty"])

    with pytest.raises(TypeError, match="loaded already"):
        module.__init__(PTX, **{option: Again(inner, 4)})
    assert module.name == "inner"
    kernels[0].launch(1, 1, stream=stream).wait()
    with pytest.raises(TypeError, match="loaded already"):
        module.__init__(PTX)
    assert loaded() == before + 1
    assert module["empty"] is kernels[0]
    module.close()


def test_a_module_that_is_initialized_by_its_own_image(driver):
    module = cu.Module.__new__(cu.Module)

    class Image(np.ndarray):
        def __array_finalize__(self, other):
            pass

    class Text(str):
        def encode(self, *options):
            module.__init__(PTX, name="inner")
            return PTX.encode()

    module.__init__(Text(PTX))
    assert module.name == "PTX", "the text itself counts"
    if sys.version_info >= (3, 12):

        class Exporter:
            def __buffer__(self, flags):
                other.__init__(PTX, name="inner")
                return memoryview(PTX.encode())

        other = cu.Module.__new__(cu.Module)
        with pytest.raises(TypeError, match="loaded already"):
            other.__init__(Exporter())
        assert other.name == "inner"


WHERE = ["grid", "block", "shared_bytes", "integer", "float", "borrows"]


def hostile_launch(kernel, buffer, where, call, stream):
    again = Again(call)
    grid, block, options = 1, 1, {}
    arguments = [buffer, 1, 1.0]
    if where == "grid":
        grid = again
    elif where == "block":
        block = (1, again)
    elif where == "shared_bytes":
        options = {"shared_bytes": again}
    elif where == "integer":
        arguments[1] = again
    elif where == "float":
        convert = {"__float__": lambda self: float(again.convert())}
        arguments[2] = type("Float", (float,), convert)(1)
    else:

        def borrows():
            again.convert()
            yield buffer

        options = {"borrows": borrows()}
    return kernel.launch(grid, block, *arguments, stream=stream, **options)


@pytest.mark.parametrize("where", WHERE)
def test_arguments_that_launch_again(driver, stream, where):
    kernel, buffer = cu.Module(PTX)["k"], cu.DeviceBuffer.zeros(4, "u4")
    tokens = []
    hostile_launch(
        kernel,
        buffer,
        where,
        lambda: tokens.append(kernel.launch((2, 2), 2, buffer, 7, 2.0, stream=stream)),
        stream,
    ).wait()
    assert [token.done for token in tokens] == [True]


@pytest.mark.parametrize("where", WHERE)
def test_arguments_that_close_things(driver, stream, where):
    for what in ("module", "buffer", "moved", "stream"):
        module, buffer, own = cu.Module(PTX), cu.DeviceBuffer.zeros(4, "u4"), cu.Stream()
        kernel = module["k"]
        call = {
            "module": module.close,
            "buffer": buffer.close,
            "moved": buffer.take,
            "stream": own.close,
        }[what]
        with pytest.raises((cu.BufferClosedError, ValueError)):
            hostile_launch(kernel, buffer, where, call, own)
        assert not buffer.borrowed
        if not module.closed:
            module.close()


def test_a_limit_is_converted_once(driver):
    """A value is converted once, so that the checked value is the one that is set."""
    kernel = cu.Module(PTX)["k"]

    class Growing:
        value = 100

        def __index__(self):
            self.value, former = 1 << 30, self.value
            return former

    kernel.max_dynamic_shared_bytes = Growing()
    assert kernel.max_dynamic_shared_bytes == 100
    kernel.preferred_shared_carveout = Growing()
    assert kernel.suggest_block(limit=Growing())[0] <= 100


class Lying(np.ndarray):
    """An array that reports a wrong shape, dtype and bytes."""

    shape = property(lambda self: ())
    dtype = property(lambda self: np.dtype("u4"))

    def tobytes(self, *options):
        return bytes(100_000)


@pytest.mark.parametrize("known", [True, False])
def test_values_that_lie_about_themselves(driver, stream, known):
    """The number of bytes of the value counts, not the shape and dtype that the value reports."""
    module = cu.Module(PTX) if known else cu.Module.from_file(FATBIN)
    if not known:
        testing.fail("cuFuncGetParamInfo", 801)
    kernel = module["k"] if known else module["count"]
    value = np.zeros(2, "u4").view(Lying)
    arguments = (cu.DeviceBuffer(4), value, 1.0) if known else (value,)
    with pytest.raises((TypeError, ValueError), match="cannot be an array of shape"):
        kernel.launch(1, 1, *arguments, stream=stream)
    value.tobytes = lambda *options: 3
    with pytest.raises(TypeError):
        kernel.launch(1, 1, *arguments, stream=stream)
