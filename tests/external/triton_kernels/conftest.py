"""Lets plain pytest run these tests, also on a GPU: CUDADRV_DRIVER=cuda pytest FOLDER.

The folder of the kernels is put on the path, and the fixture of the other tests here, which needs
the software driver, is replaced. run_suites.py needs neither.
"""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def schedule():
    """Does nothing: these tests set no schedule."""
