"""Modules that are linked from several images."""

import numpy as np
import pytest

import cudadrv as cu

HEAD = ".version 7.0\n.target sm_75\n.address_size 64\n"
TWICE = (
    HEAD
    + """
.visible .global .u32 calls;
.visible .func (.param .b32 r) twice(.param .b32 a)
{
    .reg .b32 %r;
    .reg .b64 %a;
    mov.u64 %a, calls;
    red.global.add.u32 [%a], 1;
    ld.param.b32 %r, [a];
    add.u32 %r, %r, %r;
    st.param.b32 [r], %r;
    ret;
}
"""
)
MAIN = (
    HEAD
    + """
.extern .func (.param .b32 r) twice(.param .b32 a);
.visible .entry double_it(.param .u64 p)
{
    .reg .b64 %a;
    .reg .b32 %r;
    ld.param.u64 %a, [p];
    cvta.to.global.u64 %a, %a;
    ld.global.u32 %r, [%a];
    {
        .param .b32 x;
        .param .b32 y;
        st.param.b32 [x], %r;
        call (y), twice, (x);
        ld.param.b32 %r, [y];
    }
    st.global.u32 [%a], %r;
    ret;
}
.visible .entry nothing() { ret; }
"""
)


@pytest.fixture
def files(tmp_path):
    for name, text in (("main.ptx", MAIN), ("twice.ptx", TWICE)):
        (tmp_path / name).write_text(text)
    return [tmp_path / "main.ptx", tmp_path / "twice.ptx"]


@pytest.mark.parametrize("form", ["text", "bytes", "files", "reversed", "iterator"])
def test_linked_code_runs(stream, files, form):
    images = {
        "text": [MAIN, TWICE],
        "bytes": [MAIN.encode(), bytearray(TWICE.encode() + b"\0")],
        "files": files,
        "reversed": [TWICE, MAIN],
        "iterator": iter((MAIN, TWICE)),
    }[form]
    module = cu.Module.link(images, name="both")
    buffer = cu.DeviceBuffer.from_array(np.array([21, 5], "u4"))
    module["double_it"].launch(1, 1, buffer, stream=stream)
    stream.synchronize()
    assert list(buffer.to_numpy()) == [42, 5]
    assert set(module) == {"double_it", "nothing"}
    assert repr(module) == "<Module 'both', device 0>"
    assert list(module.global_("calls", "u4").to_numpy()) == [1]
    module.close()


def test_variables_of_other_images_are_borrowed(stream, other, gate):
    """A kernel borrows the variables that it uses, through functions of other images, too."""
    module = cu.Module.link([MAIN, TWICE])
    calls = module.global_("calls", "u4")
    calls.fill(0)
    buffer = cu.DeviceBuffer.from_array(np.array([1], "u4"))
    gate.hold(stream)
    module["double_it"].launch(1, 1, buffer, stream=stream)
    with pytest.raises(cu.BufferBorrowedError, match="launch of double_it"):
        calls.fill_async(0, other)
    module["nothing"].launch(1, 1, stream=other)
    gate.open()
    stream.synchronize()
    other.synchronize()
    calls.fill_async(0, other).wait()


def test_parameters_are_known():
    (parameter,) = cu.Module.link([MAIN, TWICE])["double_it"].parameters
    assert (parameter.name, parameter.type) == ("p", "u64")


def test_one_image_alone(stream):
    module = cu.Module.link([TWICE.replace(".func", ".func"), MAIN], max_registers=32, verbose=True)
    assert module.name == "linked code"
    assert isinstance(module.log, str)


REFUSED = [
    ([MAIN], "'linked code' cannot be linked from image 1\n.*twice"),
    ([MAIN, TWICE, TWICE], "cannot be linked( from image 1, image 2, image 3)?.*\n(.|\n)*twice"),
    ([TWICE, HEAD + ".visible .entry k() { frobnicate; }"], "image 2 is PTX of .* bytes\n.*frobni"),
    ([HEAD.replace("7.0", "99.9") + ".entry k() { ret; }", MAIN], "image 1 is PTX"),
]


@pytest.mark.parametrize(("images", "text"), REFUSED)
def test_what_the_linker_refuses(images, text):
    with pytest.raises(cu.CudaImageError, match=text) as caught:
        cu.Module.link(images)
    assert caught.value.log
    assert caught.value.log in str(caught.value)


WRONG = [
    ([], ValueError, "link takes at least one image"),
    (MAIN, TypeError, r"link takes a list of images.*one image alone is loaded by Module\(image\)"),
    (MAIN.encode(), TypeError, "link takes a list"),
    ([MAIN, 5], TypeError, "image 2: image must be PTX text"),
    ([MAIN, b""], ValueError, "image 2: the image is empty"),
    ([MAIN, b"\x7fELF"], ValueError, "image 2: the image is a cubin that was cut off"),
    ([MAIN, "__global__ void f() {}"], ValueError, "image 2: .*CUDA C has to be compiled first"),
]


@pytest.mark.parametrize(("images", "error", "text"), WRONG)
def test_what_is_no_image(images, error, text):
    with pytest.raises(error, match=text):
        cu.Module.link(images)


def test_other_wrong_arguments(files, tmp_path):
    with pytest.raises(OSError, match=r"none\.ptx"):
        cu.Module.link([files[0], tmp_path / "none.ptx"])
    files[1].write_text("no PTX")
    with pytest.raises(ValueError, match=r"twice\.ptx: the image is neither PTX"):
        cu.Module.link(files)
    with pytest.raises(TypeError, match="name must be a str"):
        cu.Module.link([MAIN, TWICE], name=5)
    with pytest.raises(ValueError, match="optimization_level is 9"):
        cu.Module.link([MAIN, TWICE], optimization_level=9)


@pytest.mark.cuda_software
@pytest.mark.parametrize("call", ["cuLinkCreate_v2", "cuLinkAddData_v2", "cuLinkComplete"])
def test_a_call_that_fails_leaves_no_link(driver, call):
    from cudadrv import testing

    before = testing.live_objects()
    testing.configure(f"fault={call}:1:200")
    try:
        with pytest.raises(cu.CudaImageError, match=call.removesuffix("_v2")):
            cu.Module.link([MAIN, TWICE])
    finally:
        testing.configure("fault=none")
    assert testing.live_objects() == before
    cu.Module.link([MAIN, TWICE]).close()
