"""Another project that uses cudadrv from Cython: all that its build has to say."""

import os

from Cython.Build import cythonize
from setuptools import Extension, setup

import cudadrv

extension = Extension(
    "downstream",
    ["downstream.pyx"],
    include_dirs=[cudadrv.get_include(), os.environ["CUDA_INCLUDE"]],
)
setup(name="downstream", ext_modules=cythonize([extension], language_level=3))
