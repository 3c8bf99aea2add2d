"""CUDADRV_DRIVER: which library is opened, and the error if none can be."""

import pytest

import cudadrv._softdriver

SHOW = """
    import cudadrv as cu
    try:
        info = cu.driver_info()
        print(info.is_software, info.name, info.path)
    except (cu.DriverNotFoundError, ValueError) as error:
        print(type(error).__name__, error)
"""


def test_software(script):
    answer = script.quiet(SHOW, CUDADRV_DRIVER="software")
    assert answer.startswith("True cudadrv software driver /")


def test_a_path(script):
    path = cudadrv._softdriver.__file__
    assert script.quiet(SHOW, CUDADRV_DRIVER=path).strip().endswith(path)


@pytest.mark.parametrize("choice", ["libcuda.so.1", "Software", "gpu"])
def test_a_word_that_is_none(script, choice):
    answer = script.quiet(SHOW, CUDADRV_DRIVER=choice)
    assert answer.startswith(f"ValueError CUDADRV_DRIVER={choice!r} is not one of 'auto', 'cuda'")


def test_a_path_that_is_not_there(script):
    answer = script.quiet(SHOW, CUDADRV_DRIVER="/no/such/libcuda.so.1")
    assert answer.startswith("DriverNotFoundError dlopen: CUDA_ERROR_SHARED_OBJECT_INIT_FAILED")
    assert "/no/such/libcuda.so.1" in answer
    assert "CUDADRV_DRIVER=software" in answer


def test_a_file_that_is_no_library(script, tmp_path):
    (tmp_path / "libcuda.so.1").write_text("not a library")
    answer = script.quiet(SHOW, CUDADRV_DRIVER=str(tmp_path / "libcuda.so.1"))
    assert answer.startswith("DriverNotFoundError")
    assert str(tmp_path) in answer


def no_system_driver() -> bool:
    import ctypes

    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return True
    return False


without_system_driver = pytest.mark.skipif(not no_system_driver(), reason="libcuda.so.1 is there")


@without_system_driver
def test_cuda_without_a_driver_says_what_to_do(script):
    answer = script.quiet(SHOW, CUDADRV_DRIVER="cuda")
    assert answer.startswith("DriverNotFoundError")
    assert "libcuda.so.1" in answer
    assert "Install an NVIDIA driver" in answer
    assert "CUDADRV_DRIVER=software" in answer


@without_system_driver
@pytest.mark.parametrize("choice", ["auto", ""])
def test_auto_without_a_driver_is_the_software_driver_and_says_so_once(script, choice):
    answer = script.run(SHOW + "    cu.Device(0)\n", CUDADRV_DRIVER=choice)
    assert answer.stdout.startswith("True")
    assert answer.stderr.count("using the software driver (not a GPU)") == 1


def test_settings_that_cannot_be(script):
    answer = script.quiet(SHOW, CUDADRV_DRIVER="software", CUDADRV_SOFTWARE="schedule=sometimes")
    assert answer.startswith("ValueError CUDADRV_SOFTWARE='schedule=sometimes': ")
    assert "sometimes" in answer
