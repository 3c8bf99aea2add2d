"""Loads the files of PTX in the repository of gpuocelot, $SUITE_SOURCE, most of them of PTX 1."""

import os
from pathlib import Path

import pytest

import cudadrv as cu

SOURCE = Path(os.environ["SUITE_SOURCE"])
FILES = sorted(path.relative_to(SOURCE) for path in SOURCE.rglob("*.ptx"))


@pytest.mark.parametrize("file", FILES, ids=str)
def test_load(file):
    cu.Module.from_file(SOURCE / file)
