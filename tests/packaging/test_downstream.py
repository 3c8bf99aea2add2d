"""Another project with `cimport cudadrv` builds and runs, with the wheel and with a checkout."""

import importlib.util
import re
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.slow

IMPORTED_TYPE = re.compile(
    r'__Pyx_ImportType_\w+\(\w+, "(cudadrv[\w.]*)", "(\w+)",.*?(CheckSize_[A-Z][a-z]+)', re.DOTALL
)
# Changes the functions of cudadrv before the import, as another version of cudadrv would.
IMPORT = """
from cudadrv import _custom
functions = _custom.__pyx_capi__
{}
try:
    import downstream
except (ImportError, TypeError) as error:
    print(type(error).__name__, error)
"""


@pytest.fixture(scope="module")
def cuda_include() -> str:
    spec = importlib.util.spec_from_file_location("cuda_header", ROOT / "cuda_header.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return str(module.find_cuda_header().folder)


def test_downstream(python, cuda_include, tmp_path, pytestconfig):
    pytest.importorskip("Cython")
    project = tmp_path / "downstream"
    shutil.copytree(Path(__file__).parent / "downstream", project)
    shutil.copy(ROOT / "tests" / "kernels" / "kernels.fatbin", project)
    build = ["setup.py", "build_ext", "--inplace"]
    python(project, *build, CUDA_INCLUDE=cuda_include, CFLAGS="-O0 -g0")

    driver = f"--cuda-driver={pytestconfig.getoption('cuda_driver') or 'software'}"
    plugins = ["-p", "pytest_cudadrv", "-p", "no:cacheprovider"]
    found = python(project, "-m", "pytest", "-q", "-W", "error", *plugins, driver)
    assert " passed" in found

    types = IMPORTED_TYPE.findall((project / "downstream.c").read_text())
    assert len(types) > 10
    # The project relies on no layout of a class.
    assert {size for *_, size in types} == {"CheckSize_Ignore"}, types

    def imported(change: str) -> str:
        return python(project, "-c", IMPORT.format(change))

    assert imported("functions['later'] = functions['issue']") == ""
    found = imported("del functions['borrow']")
    assert re.match(r"ImportError .*C function borrow", found), found
    found = imported("functions['borrow'] = functions['issue']")
    assert re.match(r"TypeError C function cudadrv._custom.borrow has wrong signature", found)
