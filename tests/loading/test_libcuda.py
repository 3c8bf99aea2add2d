"""The software driver as libcuda.so.1: which libraries find it, and which do not."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import cudadrv as cu
from cudadrv._libcuda import lay_out

pytestmark = pytest.mark.cuda_software

COMPILER = shutil.which(os.environ.get("CC") or "cc")

# Functions of a user of the driver API: `find` opens the library, `calls` counts calls in a
# library.
FOREIGN = """
def find():
    return ctypes.CDLL("libcuda.so.1")

def calls(path):
    library = ctypes.CDLL(path)
    library.cudadrvSoftCalls.restype = ctypes.c_ulonglong
    return library.cudadrvSoftCalls(b"cuDeviceTotalMem_v2")
"""

PROGRAM = r"""
#include <stdio.h>
int cuInit(unsigned), cuDeviceGetName(char *, int, int);
int cuMemAlloc_v2(unsigned long long *, size_t);
int main(void) {
    char name[100];
    unsigned long long address = 1;
    printf("%d ", cuInit(0));
    printf("%d ", cuDeviceGetName(name, 100, 0));
    printf("%s, %d\n", name, cuMemAlloc_v2(&address, 4));
    return 0;
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return lay_out(tmp_path_factory.mktemp("laid out") / "lib")


def run(code, **environment):
    kept = {k: v for k, v in os.environ.items() if k not in ("CUDADRV_DRIVER", "LD_LIBRARY_PATH")}
    environment = {k: str(v) for k, v in environment.items()}
    done = subprocess.run(
        [sys.executable, "-c", f"import ctypes, sys, cudadrv as cu\n{FOREIGN}\n{code}"],
        env={**kept, **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def no_system_driver():
    code = "import ctypes\nctypes.CDLL('libcuda.so.1')"
    kept = {k: v for k, v in os.environ.items() if k != "LD_LIBRARY_PATH"}
    return subprocess.run([sys.executable, "-c", code], env=kept, capture_output=True).returncode


@pytest.mark.parametrize("choice", ["software", "auto"])
def test_cudadrv_by_itself_is_not_found_as_libcuda(choice):
    """cudadrv alone does not make the software driver visible as libcuda.so.1.

    Otherwise an import on a machine without a GPU would tell other libraries that there is one.
    """
    if not no_system_driver():
        pytest.skip("this machine has a libcuda.so.1")
    code = "print(cu.driver_info().is_software)\ntry:\n    find()\nexcept OSError: print('none')"
    assert run(code, CUDADRV_DRIVER=choice) == ["True", "none"]


def test_once_chosen_by_its_path_it_is_libcuda_for_all(library):
    code = (
        "cu.driver_info()\nbefore = calls(cu.driver_info().path)\n"
        "found = find()\nfound.cuDeviceTotalMem_v2(ctypes.byref(ctypes.c_size_t()), 0)\n"
        "print(cu.driver_info().is_software, cu.driver_info().path)\n"
        "print(calls(cu.driver_info().path) - before)"
    )
    first, last = run(code, CUDADRV_DRIVER=library)
    assert first == f"True {library}"
    assert last == "1"


@pytest.mark.parametrize("first", ["cudadrv", "another"])
def test_auto_finds_the_one_that_others_find(library, first):
    find = "find().cuInit(0)\n"
    code = f"{find if first == 'another' else ''}print(cu.driver_info().path)\n{find}"
    code += (
        "before = calls(cu.driver_info().path)\n"
        "find().cuDeviceTotalMem_v2(ctypes.byref(ctypes.c_size_t()), 0)\n"
        "print(calls(cu.driver_info().path) - before)"
    )
    path, called = run(code, CUDADRV_DRIVER="auto", LD_LIBRARY_PATH=library.parent)
    assert (Path(path), called) == (library, "1")


def test_software_beside_a_libcuda_that_another_loaded(library):
    """CUDADRV_DRIVER=software opens this package's driver, even if another libcuda is loaded."""
    code = "find().cuInit(0)\nprint(cu.driver_info().path)"
    (path,) = run(code, CUDADRV_DRIVER="software", LD_LIBRARY_PATH=library.parent)
    assert Path(path).name.startswith("_softdriver")


@pytest.mark.skipif(COMPILER is None, reason="there is no C compiler")
def test_a_program_that_is_linked_with_lcuda(library, tmp_path):
    source, program = tmp_path / "program.c", tmp_path / "program"
    source.write_text(PROGRAM)
    command = [COMPILER, source, "-o", program, f"-L{library.parent}", "-lcuda"]
    subprocess.run(command, check=True)
    environment = {**os.environ, "LD_LIBRARY_PATH": str(library.parent)}
    done = subprocess.run([program], env=environment, capture_output=True, text=True)
    no_context = int(cu.CUresult.CUDA_ERROR_INVALID_CONTEXT)
    assert done.stdout == f"0 0 cudadrv software device (not a GPU), {no_context}\n"
    if shutil.which("readelf"):
        listed = subprocess.run(
            ["readelf", "--dynamic", program], check=True, capture_output=True, text=True
        )
        assert "[libcuda.so.1]" in listed.stdout


def test_again_over_an_older_one(library, tmp_path):
    """A link that an older version has made is replaced, even if its target no longer exists."""
    old = tmp_path / "_softdriver.so"
    shutil.copy(library, old)
    for target in (old, tmp_path / "_softdriver.gone.so"):
        folder = tmp_path / target.stem
        folder.mkdir()
        (folder / "libcuda.so.1").symlink_to(target)
        made = lay_out(folder)
        assert made.read_bytes() == library.read_bytes()
        assert not made.is_symlink()
    assert old.exists()


@pytest.mark.parametrize("name", ["libcuda.so.1", "libcuda.so"])
def test_another_driver_is_left_alone(tmp_path, name):
    (tmp_path / name).write_text("somebody's")
    with pytest.raises(FileExistsError, match="is another library"):
        lay_out(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]
