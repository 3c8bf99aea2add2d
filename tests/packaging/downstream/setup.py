"""Another project that uses cudadrv from Cython. This is all that its build needs."""

import os

from Cython.Build import cythonize
from setuptools import Extension, setup

import cudadrv

include = [cudadrv.get_include(), os.environ["CUDA_INCLUDE"]]
extensions = [
    Extension(name, [f"{name}.pyx"], include_dirs=include) for name in ("downstream", "plusplus")
]
setup(name="downstream", ext_modules=cythonize(extensions, language_level=3))
