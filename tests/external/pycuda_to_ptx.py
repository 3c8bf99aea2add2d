"""A plugin of pytest: PyCUDA compiles to PTX, where it would compile to a cubin."""

import functools

import pycuda.compiler

pycuda.compiler.compile = functools.partial(pycuda.compiler.compile, target="ptx")
