"""A pytest plugin that makes PyCUDA compile to PTX instead of a cubin."""

import functools

import pycuda.compiler

pycuda.compiler.compile = functools.partial(pycuda.compiler.compile, target="ptx")
