"""Modules: loading, names, invalid images, variables, and unloading."""

import gc
import pickle
import struct
import weakref
from contextlib import suppress

import numpy as np
import pytest
from capsules import Consumer
from hypothesis import given, settings
from hypothesis import strategies as st
from results import PTX, array_of

import cudadrv as cu

HEAD = ".version 6.4\n.target sm_75\n.address_size 64\n"
EMPTY = HEAD + ".visible .entry empty() { ret; }"
FATBIN_HEAD = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 40)


@pytest.mark.parametrize(
    "image",
    [
        EMPTY,
        EMPTY + "\0",
        EMPTY.encode(),
        EMPTY.encode() + b"\0\0",
        bytearray(EMPTY.encode()),
        memoryview(EMPTY.encode()),
        np.frombuffer(EMPTY.encode(), "u1"),
        '// a comment: .entry f() { "\n' + EMPTY,
    ],
    ids=type,
)
def test_ptx_in_any_form(stream, image):
    with cu.Module(image) as module:
        module["empty"].launch(1, 1, stream=stream).wait()
    assert module.closed


def test_from_file(module):
    assert module.name == "kernels.ptx"
    assert repr(module) == "<Module 'kernels.ptx', device 0>"
    assert cu.Module.from_file(str(PTX), name="mine").name == "mine"
    with pytest.raises(OSError, match="nowhere"):
        cu.Module.from_file("nowhere.ptx")


def test_names(module):
    assert list(module)[:3] == ["saxpy", "add_into", "store"]
    assert "saxpy" in module
    assert "saxpi" not in module
    assert "sax\0py" not in module
    assert 3 not in module
    assert module["saxpy"] is module["saxpy"]
    assert module["saxpy"].module is module
    with pytest.raises(cu.CudaNotFoundError, match=r"has no kernel 'saxpi'; did you mean 'saxpy'"):
        module["saxpi"]
    with pytest.raises(
        LookupError, match=r"'kernels.ptx' has no kernel '~'; it has 'saxpy', 'add_"
    ):
        module["~"]
    with pytest.raises(
        cu.CudaNotFoundError,
        match=r"has no kernel 'counter'; it is a variable: module.global_\('counter'\)$",
    ):
        module["counter"]
    with pytest.raises(
        cu.CudaNotFoundError,
        match=r"has no variable 'saxpy'; it is a kernel: module\['saxpy'\](\n|$)",
    ):
        module.global_("saxpy")
    with pytest.raises(TypeError, match="a kernel's name is a str, not int"):
        module[0]


def test_what_a_kernel_is(module):
    saxpy = module["saxpy"]
    assert saxpy.name == "saxpy"
    assert repr(saxpy) == "<Kernel 'saxpy' of Module 'kernels.ptx'>"
    assert saxpy.parameters == (
        ("a", "f32", 0, 4),
        ("x", "u64", 8, 8),
        ("y", "u64", 16, 8),
        ("n", "u32", 24, 4),
    )
    assert module["store"].parameters[-1] == ("point", "b8[24]", 40, 24)
    assert module["nothing"].parameters == ()
    attributes = saxpy.attributes
    assert attributes.max_threads_per_block == saxpy.max_threads_per_block == 1024
    assert attributes.max_dynamic_shared_bytes == saxpy.max_dynamic_shared_bytes == 48 << 10
    assert 1 <= saxpy.occupancy(128) <= 32
    assert saxpy.occupancy((8, 8), shared_bytes=32 << 10) <= saxpy.occupancy(64)
    threads, blocks = saxpy.suggest_block()
    assert 32 <= threads <= 1024
    assert blocks >= 1
    assert saxpy.suggest_block(limit=64)[0] <= 64
    saxpy.prefer_cache("l1")
    saxpy.preferred_shared_carveout = 50
    assert saxpy.preferred_shared_carveout == 50
    for wrong in (
        lambda: saxpy.occupancy(0),
        lambda: saxpy.suggest_block(limit=-1),
        lambda: saxpy.prefer_cache("l2"),
        lambda: setattr(saxpy, "preferred_shared_carveout", 101),
    ):
        with pytest.raises(ValueError):
            wrong()


@pytest.mark.parametrize(
    ("image", "words"),
    [
        (b"", "the image is empty"),
        ("\0\0", "the image is empty"),
        ("garbage", "neither PTX .* nor a cubin or a fatbin: its 7 bytes begin with b'garbage'"),
        ("__global__ void f() {}", r"CUDA C has to be compiled first: .*compile\(source\)"),
        ("saxpy.ptx", r"begin with b'saxpy.ptx'; .* Module.from_file\(path\)"),
        (bytes(range(1, 200)), r"its 199 bytes begin with b'\\x01.*\.\.\."),
        (EMPTY.replace("entry", "en\0try"), "neither PTX"),
        (b"\x7fELF", "a cubin that was cut off: it has 4 bytes, and needs 64"),
        (b"\x7fELF" + bytes(60), r"an ELF file for another machine \(0\)"),
        (b"\x50\xed\x55\xba" + bytes(4), "a fatbin that was cut off: it has 8 bytes, and needs 16"),
        (struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 500), "it has 16 bytes, and needs 516"),
        (struct.pack("<IIQQ", 0x466243B1, 1, 0, 0), "the wrapper of a fatbin"),
    ],
    ids=range(12),
)
def test_what_is_no_image(driver, unchanged, image, words):
    with unchanged("cuModuleLoadDataEx"), pytest.raises(ValueError, match=words):
        cu.Module(image)


def elf(sections):
    """The beginning of a cubin: an ELF header and a section with this offset and size."""
    header = bytearray(64)
    header[:6], header[18:20] = b"\x7fELF\x02\x01", struct.pack("<H", 190)
    struct.pack_into("<Q", header, 40, 64)
    struct.pack_into("<4H", header, 54, 56, 0, 64, 1)
    section = bytearray(64)
    struct.pack_into("<QQ", section, 24, *sections)
    struct.pack_into("<I", section, 4, 1)
    return bytes(header + section)


def test_a_cubin_whose_sections_are_cut_off(driver, unchanged):
    with unchanged("cuModuleLoadDataEx"):
        with pytest.raises(ValueError, match="it has 128 bytes, and needs 300"):
            cu.Module(elf((100, 200)))
        with pytest.raises(ValueError, match="it has 100 bytes, and needs 128"):
            cu.Module(elf((0, 0))[:100])


def test_a_cubin_with_a_damaged_header(driver, unchanged):
    whole = elf((64, 64))
    for at, value, words in (
        (4, b"\1", "an ELF file, but not of 64 bits"),
        (5, b"\2", "an ELF file, but not of 64 bits"),
        (58, b"\0", "a damaged header: its tables have entries of 56 and 0 bytes"),
        (58, b"\7", "its tables have entries of 56 and 7 bytes, not of 56 and 64"),
        (54, b"\1\0\1", "its tables have entries of 1 and 64 bytes"),
    ):
        damaged = whole[:at] + value + whole[at + len(value) :]
        with unchanged("cuModuleLoadDataEx"), pytest.raises(ValueError, match=words):
            cu.Module(damaged)


@settings(deadline=None)
@given(st.data())
def test_whatever_the_bytes_an_image_is_taken_or_refused(data):
    """`checked_image` accepts an image or raises ValueError, whatever the bytes are.

    The sizes in an accepted image stay within its bytes, because the driver is not told how many
    there are.
    """
    from cudadrv._image import checked_image

    sections = data.draw(st.tuples(st.integers(0, 300), st.integers(0, 300)))
    image = bytearray(data.draw(st.sampled_from([elf(sections), FATBIN_HEAD, EMPTY.encode()])))
    image += data.draw(st.binary(max_size=80))
    for _ in range(data.draw(st.integers(0, 4))):
        value = data.draw(st.binary(min_size=1, max_size=8))
        at = data.draw(st.sampled_from([*range(4, 64), len(image)]))
        image[at : at + len(value)] = value
    del image[data.draw(st.integers(0, len(image))) :]
    with suppress(ValueError):
        assert checked_image(bytes(image)).data.startswith(image.rstrip(b"\0"))


@pytest.mark.cuda_software
def test_a_cubin_on_the_software_driver(driver):
    with pytest.raises(cu.CudaImageError) as caught:
        cu.Module(elf((64, 64)))
    assert caught.value.call == "cuModuleLoadDataEx"
    assert "Module 'a cubin' is a cubin of 128 bytes" in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        HEAD + ".entry f() { nonsense; }",
        HEAD + ".entry f( {",
        HEAD.replace("6.4", "99.9") + ".entry f() { ret; }",
        HEAD + ".entry f() { .reg .u32 a; add.u32 a, a, b; ret; }",
        ".version",
    ],
    ids=range(5),
)
def test_ptx_that_is_wrong(driver, text):
    with pytest.raises(cu.CudaImageError) as caught:
        cu.Module(text, name="wrong")
    error = caught.value
    assert error.call == "cuModuleLoadDataEx"
    assert error.log
    assert str(error).endswith(f"Module 'wrong' is PTX of {len(text) + 1} bytes\n{error.log}")
    again = pickle.loads(pickle.dumps(error))
    assert (again.log, str(again)) == (error.log, str(error))


def test_objects_of_other_kinds(driver):
    for image in (None, 3, ["text"]):
        with pytest.raises(TypeError, match="image must be PTX text, or the bytes"):
            cu.Module(image)
    with pytest.raises(TypeError, match="device must be a Device"):
        cu.Module(EMPTY, device=0)
    with pytest.raises(TypeError, match="name must be a str"):
        cu.Module(EMPTY, name=3)


def test_options(driver):
    module = cu.Module(EMPTY, max_registers=32, optimization_level=1, lineinfo=True, verbose=True,
                       debug_info=False, target=cu.Device(0).compute_capability)  # fmt: skip
    assert isinstance(module.log, str)
    for options, words in (
        ({"max_registers": 0}, "max_registers is 0, and must be from 1"),
        ({"optimization_level": 5}, "optimization_level is 5, and must be from 0 to 4"),
    ):
        with pytest.raises(ValueError, match=words):
            cu.Module(EMPTY, **options)
    with pytest.raises(TypeError, match=r"target must be a compute capability such as \(7, 5\)"):
        cu.Module(EMPTY, target="sm_75")


def test_never_initialized(driver):
    bare = cu.Module.__new__(cu.Module)
    assert repr(bare) == "<Module, never initialized>"
    with pytest.raises(TypeError, match="never initialized"):
        bare["f"]


# ---- variables ----


def test_a_variable(module, stream, other):
    module["count"].launch(2, 16, 3, stream=stream).wait()
    counter = module.global_("counter", "u4")
    assert isinstance(counter, cu.DeviceBuffer)
    assert (counter.count, counter.name) == (4, "counter")
    assert array_of(counter)[0] == 96
    module["count"].launch(1, 1, 4, stream=stream)
    with pytest.raises(cu.BufferBorrowedError, match="being written by launch of count on Stream"):
        counter.fill_async(0, other)
    with pytest.raises(cu.BufferBorrowedError) as caught:
        module["count"].launch(1, 1, 4, stream=other)
    assert "cannot write the variable DeviceBuffer 'counter' by launch of count" in str(
        caught.value
    )
    module["nothing"].launch(1, 1, stream=other)
    assert module.global_("counter")[:4].borrowed, "all buffers over it share the books"
    stream.synchronize()
    assert array_of(counter)[0] == 100
    other.synchronize()


def test_launches_before_the_variable_was_asked_for(module, stream, other):
    module["count"].launch(1, 1, 1, stream=stream)
    counter = module.global_("counter", "u4")
    with pytest.raises(cu.BufferBorrowedError, match="written by launch of count"):
        counter.fill_async(0, other)
    stream.synchronize()
    counter.fill_async(0, other)
    other.synchronize()


def test_a_constant_is_only_read(module, stream, other):
    scale = module.global_("scale", "f4")
    scale.copy_from(np.array([0, 3], "f4"))
    x = cu.DeviceBuffer.from_array(np.ones(8, "f4"))
    y = cu.DeviceBuffer.from_array(np.ones(8, "f4"))
    module["scaled"].launch(1, 8, x, stream=stream)
    module["scaled"].launch(1, 8, y, stream=other)
    with pytest.raises(cu.BufferBorrowedError):
        scale.fill_async(0, other)
    stream.synchronize()
    other.synchronize()
    assert array_of(x).tolist() == array_of(y).tolist() == [3] * 8


def test_a_managed_variable(module, stream):
    value = module.global_("flag_value", "i4")
    assert isinstance(value, cu.UnifiedBuffer)
    module["set_managed"].launch(1, 1, -5, stream=stream)
    with pytest.raises(cu.BufferBorrowedError, match="by launch of set_managed"):
        value[0]
    stream.synchronize()
    assert value[0] == -5
    with value.read(), pytest.raises(cu.BufferExportedError, match="the variable UnifiedBuffer"):
        module["set_managed"].launch(1, 1, 1, stream=stream)


def test_variables_that_cannot_be(module):
    with pytest.raises(cu.CudaNotFoundError, match="no variable 'countr'; did you mean 'counter'"):
        module.global_("countr")
    with pytest.raises(ValueError, match=r"'counter' has 16 bytes .*: that is no whole number of"):
        module.global_("counter", "V3")
    counter = module.global_("counter")
    for end in (counter.close, counter.into_raw, counter.__enter__):
        with pytest.raises(ValueError, match="only the whole can be closed"):
            end()
    assert counter.take().nbytes == 16


def test_a_variable_keeps_its_module(driver):
    counter = cu.Module.from_file(PTX).global_("counter", "u4")
    gc.collect()
    counter.fill(7)
    assert array_of(counter).tolist() == [7] * 4


# ---- closing and dropping ----


def test_close(module, saxpy, vectors, stream):
    x, y = vectors
    counter = module.global_("counter")
    ready = saxpy.prepare(1, 1, 1.0, cu.read(x), y, 1)
    module.close()
    module.close()
    assert module.closed
    assert counter.closed
    assert repr(module) == "<Module 'kernels.ptx', closed, device 0>"
    assert repr(saxpy) == "<Kernel 'saxpy' of Module 'kernels.ptx', closed>"
    for use in (
        lambda: module["saxpy"],
        lambda: list(module),
        lambda: "saxpy" in module,
        lambda: module.global_("counter"),
        lambda: saxpy.launch(1, 1, 1.0, cu.read(x), y, 1, stream=stream),
        lambda: ready.launch(stream),
        lambda: saxpy.attributes,
        lambda: saxpy.occupancy(32),
        module.__enter__,
    ):
        with pytest.raises(
            cu.BufferClosedError, match=r"Module 'kernels.ptx' was closed at .*:\d+"
        ):
            use()
    with pytest.raises(cu.BufferClosedError, match=r"'counter'.* was closed at .*test_modules"):
        counter.fill(0)


def test_close_is_refused_while_a_kernel_may_run(module, stream):
    module["nothing"].launch(1, 1, stream=stream)
    with pytest.raises(cu.BufferBorrowedError) as caught:
        module.close()
    text = str(caught.value)
    assert text.startswith(
        "cannot close Module 'kernels.ptx':\n  it is being used by launch of noth"
    )
    assert not module.closed
    stream.synchronize()
    module.close()


def test_close_when_a_library_has_just_given_a_variable_back(module):
    consumer = Consumer(module.global_("counter").__dlpack__(stream=-1))
    with pytest.raises(cu.BufferExportedError, match="it is lent to work on no stream"):
        module.close()
    consumer.end()
    module.close()


def test_close_is_refused_while_a_variable_is_used(module, stream):
    counter, value = module.global_("counter"), module.global_("flag_value")
    counter.fill_async(0, stream)
    with pytest.raises(cu.BufferBorrowedError, match="cannot close DeviceBuffer 'counter'"):
        module.close()
    stream.synchronize()
    with value.read(), pytest.raises(cu.BufferExportedError, match="cannot close UnifiedBuffer"):
        module.close()
    assert not counter.closed, "all or nothing"
    counter.fill(1)
    module.close()


@pytest.mark.cuda_software
def test_a_refused_close_makes_no_driver_call(module, stream, gate):
    """The GPU is busy, so a close that is not refused would record events."""
    from cudadrv import testing

    gate.hold(stream)
    module.global_("counter").fill_async(0, stream)
    before = testing.calls("cuEventRecord")
    with pytest.raises(cu.BufferBorrowedError, match="cannot close DeviceBuffer 'counter'"):
        module.close()
    assert testing.calls("cuEventRecord") == before
    gate.open()
    stream.synchronize()


@pytest.mark.cuda_software
def test_a_close_that_failed_can_be_repeated(module):
    from cudadrv import testing

    counter = module.global_("counter")
    testing.fail("cuModuleUnload", 800)
    with pytest.raises(cu.CudaError, match="cuModuleUnload: CUDA_ERROR_NOT_PERMITTED"):
        module.close()
    assert not module.closed
    counter.fill(1)
    module.close()


def test_leaving_the_block_with_an_exception(stream):
    def leave():
        with cu.Module(EMPTY) as module:
            module["empty"].launch(1, 1, stream=stream)
            raise KeyError

    with pytest.raises(KeyError) as caught:
        leave()
    assert "did not close the module: cannot close Module" in caught.value.__notes__[0]
    stream.synchronize()


def test_a_module_that_dies_is_unloaded_after_its_kernels(driver, stream, gate):
    module = cu.Module.from_file(PTX)
    out = cu.DeviceBuffer.from_array(np.ones(32, "f4"))
    gate.hold(stream)
    token = module["saxpy"].launch(1, 32, 1.0, out.address, out, 32, stream=stream)
    gone = weakref.ref(module)
    del module
    gc.collect()
    assert gone() is None
    gate.open()
    token.wait()
    assert array_of(out).tolist() == [2] * 32
    cu.reap()


@pytest.mark.cuda_software
def test_what_dies_is_unloaded(driver, stream):
    from cudadrv import testing

    before = testing.live_objects()["modules"]
    module = cu.Module.from_file(PTX)
    kernel, counter = module["count"], module.global_("counter")
    module["count"].launch(1, 1, 1, stream=stream)
    assert testing.live_objects()["modules"] == before + 1
    del module, kernel
    stream.synchronize()
    cu.reap()
    assert testing.live_objects()["modules"] == before + 1, "a variable of it is alive"
    del counter
    cu.reap()
    assert testing.live_objects()["modules"] == before


def test_never_closing(driver, stream):
    """Modules are loaded in a loop and dropped, each with a launch that may be unfinished."""
    for _ in range(20):
        cu.Module(EMPTY)["empty"].launch(1, 1, stream=stream)
    stream.synchronize()
    cu.reap()
