"""The command line and the environment with which a run is started."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# CUDA_VISIBLE_DEVICES says which GPUs the tests use. A software driver has one device by default.
OURS = (
    *("CUDADRV_DRIVER", "CUDADRV_SOFTWARE", "CUDA_VISIBLE_DEVICES"),
    *("PYTEST_CUDADRV_LIBCUDA", "LD_LIBRARY_PATH"),
)


def clean_environment(**changes):
    kept = {name: value for name, value in os.environ.items() if name not in OURS}
    return {**kept, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error", **changes}


def line(*arguments):
    return [sys.executable, "-m", "cudadrv", "run", *map(str, arguments)]
