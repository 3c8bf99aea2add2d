"""Builds the driver as cudadrv's setup.py does, once for all versions of Python."""

import os
import sys

from setuptools import setup

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # PEP 517 builds do not add it
from cudadrv_setup import BuildExtensions, software_driver

setup(
    ext_modules=software_driver("cudadrv_software", py_limited_api=True),
    cmdclass={"build_ext": BuildExtensions},
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
