"""Another project's `cimport cudadrv` builds and runs, on the wheel and on a checkout."""

import importlib.util
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.slow

CHECK = """
import cudadrv, downstream
assert downstream.stream_type() == (cudadrv.Stream, cudadrv.Stream)
assert not downstream.is_stream(None)
assert downstream.size_of_a_handle() == 8
print(cudadrv.__file__)
"""


@pytest.fixture(scope="module")
def cuda_include() -> str:
    spec = importlib.util.spec_from_file_location("cuda_header", ROOT / "cuda_header.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return str(module.find_cuda_header().folder)


def test_cimport(python, cuda_include, tmp_path):
    pytest.importorskip("Cython")
    project = tmp_path / "downstream"
    shutil.copytree(Path(__file__).parent / "downstream", project)
    python(project, "setup.py", "build_ext", "--inplace", CUDA_INCLUDE=cuda_include)
    python(project, "-W", "error", "-c", CHECK)
