"""Kernels by their C++ names: name expressions for templates, and names of only one kernel."""

import logging
from pathlib import Path

import numpy as np
import pytest

import cudadrv as cu
from cudadrv import toolkit
from cudadrv._cpp_names import normal, noted_names, unmangled, with_notes

SOURCE = """
template <class T> __global__ void scale(T *x, T factor, int count)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        x[i] *= factor;
}

namespace deep {
template <class T, int N> __global__ void put(T *x) { x[threadIdx.x] = N; }
__global__ void put_nine(int *x) { x[threadIdx.x] = 9; }
}

template <int A, int B> __global__ void both(int *x) { x[threadIdx.x] = A + B; }

static __global__ void hidden(int *x) { x[threadIdx.x] = 1; }
extern "C" __global__ void plain(int *x) { x[threadIdx.x] = 2; hidden; }
"""
NAMES = ["scale<float>", "scale<unsigned long long>", "deep::put<int, 5>", "both<1, 2>", "hidden"]


@pytest.fixture
def ptx(compiler):
    return toolkit.compile(SOURCE, name="names.cu", compiler=compiler, names=NAMES)


def filled(module, name, stream):
    buffer = cu.DeviceBuffer.zeros(4, "i4")
    module[name].launch(1, 4, buffer, stream=stream)
    stream.synchronize()
    return set(buffer.to_numpy())


def test_kernels_of_templates(ptx, driver, stream):
    module = cu.Module(ptx)
    x = cu.DeviceBuffer.from_array(np.arange(100, dtype="f4"))
    module["scale<float>"].launch(1, 128, x, 3, 100, stream=stream)
    stream.synchronize()
    assert (x.to_numpy() == 3 * np.arange(100, dtype="f4")).all()
    wide = cu.DeviceBuffer.from_array(np.arange(10, dtype="u8"))
    module["scale<unsigned long long>"].launch(1, 32, wide, 1 << 40, 10, stream=stream)
    stream.synchronize()
    assert list(wide.to_numpy()) == [i << 40 for i in range(10)]
    assert filled(module, "deep::put<int, 5>", stream) == {5}
    assert filled(module, "both<1,2>", stream) == {3}
    assert filled(module, "hidden", stream) == {1}
    assert module["deep::put<int,5>"] is module[" deep::put < int , 5 > "]
    assert module["scale<float>"].name in ptx
    assert "cudadrv_name" not in ptx


def test_names_that_only_one_kernel_has(ptx, driver, stream):
    module = cu.Module(ptx)
    for name in ("put_nine", "deep::put_nine"):
        assert filled(module, name, stream) == {9}
        assert name in module
    assert filled(module, "put", stream) == {5}
    assert filled(module, "plain", stream) == {2}
    assert "scale" not in module
    with pytest.raises(
        cu.CudaNotFoundError,
        match=r"has 2 kernels that C\+\+ calls 'scale'; say which one: 'scale<float>', 'scale<un",
    ):
        module["scale"]
    with pytest.raises(cu.CudaNotFoundError, match="has no kernel 'scale<short>'"):
        module["scale<short>"]


def test_the_names_are_in_files(ptx, driver, stream, tmp_path):
    path = tmp_path / "names.ptx"
    path.write_text(ptx)
    assert filled(cu.Module.from_file(path), "both<1, 2>", stream) == {3}


def test_a_source_in_a_file(compiler, driver, stream, tmp_path):
    (tmp_path / "value.h").write_text("#define VALUE 7\n")
    path = tmp_path / "file.cu"
    path.write_text(
        '#include "value.h"\ntemplate <class T> __global__ void f(T *x) { *x = VALUE; }'
    )
    module = cu.Module(toolkit.compile(path, compiler=compiler, names=["f<int>"]))
    assert filled(module, "f<int>", stream) == {0, 7}
    path.write_text(path.read_text().replace("*x = VALUE", "oops"))
    with pytest.raises(toolkit.CompileError, match=r"file\.cu"):
        toolkit.compile(path, compiler=compiler, names=["f<int>"])


def test_the_cache_knows_the_names(compiler, driver):
    texts = [
        toolkit.compile(SOURCE, compiler=compiler, names=names)
        for names in ((), ["scale<int>"], ["scale<float>"], ["scale<int>"])
    ]
    assert texts[1] == texts[3]
    assert len(set(texts)) == 3
    noted = [set(noted_names(text)) for text in texts[:3]]
    assert noted == [set(), {"scale<int>"}, {"scale<float>"}]


@pytest.mark.parametrize("name", ["scal<float>", "scale<nothing>", "scale<float", "1 + 1)("])
def test_names_of_no_kernel(compiler, driver, name):
    with pytest.raises(toolkit.CompileError):
        toolkit.compile(SOURCE, compiler=compiler, names=[name])


def test_no_warning(compiler, driver, caplog):
    with caplog.at_level(logging.WARNING, "cudadrv"):
        toolkit.compile(SOURCE.replace("hidden;", ""), compiler=compiler, names=NAMES)
    assert not caplog.records


def test_a_compiler_that_does_not_tell(nvcc):
    with pytest.raises(toolkit.CompileError, match=r"not told which kernel of source\.cu is 'f'"):
        toolkit.compile("no such kernel", arch="compute_75", names=["f"])


REFUSED = [
    ("scale<float>", TypeError, "is no list of str; give a list"),
    (5, TypeError, "is no list of str"),
    ([5], TypeError, "5 is no str"),
    ([""], ValueError, "is not the name of a kernel"),
    (["f; int x"], ValueError, "is not the name of a kernel"),
    (["f\n"], ValueError, "is not the name of a kernel"),
    (["f // "], ValueError, "is not the name of a kernel"),
    (["f\ud800"], ValueError, "U\\+D800"),
]


@pytest.mark.parametrize(("names", "error", "text"), REFUSED)
def test_wrong_names(names, error, text):
    with pytest.raises(error, match=text):
        toolkit.compile("source", arch="compute_75", names=names)


UNMANGLED = [
    ("_Z5scaleIfEvPT_S0_i", ("scale",)),
    ("_Z5plainPf", ("plain",)),
    ("_ZL6hiddenPi", ("hidden",)),
    ("_ZN4deep4fillIjLi4EEEvPT_", ("fill", "deep::fill")),
    ("_ZN1a1b1cEv", ("c", "a::b::c")),
    ("_ZN12_GLOBAL__N_15innerEPi", ("inner",)),
    ("_ZN4deep12_GLOBAL__N_15innerEPi", ("inner", "deep::inner")),
    ("plain", ()),
    ("_Z", ()),
    ("_ZN", ()),
    ("_Z99x", ()),
    ("_ZNSt3fooEv", ()),
    ("_ZplIiEvT_", ()),
    ("", ()),
]


@pytest.mark.parametrize(("mangled", "names"), UNMANGLED)
def test_unmangled(mangled, names):
    assert unmangled(mangled) == names


def test_notes():
    assert normal("  deep :: f < unsigned  int ,  5 > ") == "deep::f<unsigned int,5>"
    text = with_notes(".version 8.0\n", {"f< int >": "_Z1fIiEvv", "g": "_Z1gv"})
    assert noted_names(text) == {"f<int>": "_Z1fIiEvv", "g": "_Z1gv"}
    assert noted_names("// cudadrv.name: wrong\n.version 8.0") == {}


def test_old_ptx_has_no_notes(driver):
    module = cu.Module.from_file(Path(__file__).parents[1] / "kernels" / "kernels.ptx")
    assert "saxpy" in module
