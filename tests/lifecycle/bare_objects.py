"""Use all attributes of all extension classes on objects whose ``__init__`` never ran.

Prints a line for each use. If the process of a class crashes, a line says how it ended. Each class
has a process of its own, forked before anything uses the driver.
"""

import copy
import importlib
import inspect
import operator
import os
import pickle
import sys
import warnings

import cudadrv
from cudadrv._finder import NAMES

HEAP_TYPE = 1 << 9  # flag of classes that are made in Python
ARGUMENTS_OF = {
    "__getitem__": [(slice(0, 1),), (0,), ("name",)],
    "__setitem__": [(0, 1), (slice(0, 1), b"1")],
    "__contains__": [("name",), (1,)],
    "__exit__": [(None, None, None), (ValueError, ValueError(), None)],
}


def classes():
    """Every class that an extension module of cudadrv defines, by its full name."""
    found = {}
    for name in (f"cudadrv.{module}" for module in NAMES):
        for value in vars(importlib.import_module(name)).values():
            ours = isinstance(value, type) and value.__module__ in (name, "cudadrv")
            if ours and not value.__flags__ & HEAP_TYPE and value not in found.values():
                found[f"{name}.{value.__qualname__}"] = value
    return found


class World:
    """Arguments of many kinds for the methods."""

    def __init__(self):
        self.stream = cudadrv.Stream()
        self.event = self.stream.record()
        self.locked = cudadrv.LockedBuffer.zeros(16)
        self.device = cudadrv.DeviceBuffer(16)
        self.token = self.device.copy_from_async(self.locked, self.stream)
        self.stream.synchronize()

    def arguments(self):
        yield from ((), (self.stream,), (self.device,), (self.locked,), (self.event,))
        yield from ((self.token,), (b"0123456789abcdef",), (bytearray(16),), (1,), ("u1",))
        yield from ((self.device, self.stream), (1, self.stream), (b"0" * 16, self.stream))
        yield from ((None,), (1, 1), (1, 1, self.device), ("name",))


def uses_of(cls, name, world):
    """Functions that use an attribute of an object: reads, writes or calls it."""
    if isinstance(inspect.getattr_static(cls, name), (staticmethod, classmethod)):
        return
    if not callable(getattr(cls, name)):  # the attribute is a property
        yield lambda thing: getattr(thing, name)
        for value in (0, 1, None, "wait", world.device):
            yield lambda thing, value=value: setattr(thing, name, value)
        yield lambda thing: delattr(thing, name)
        return
    for arguments in ARGUMENTS_OF.get(name) or world.arguments():
        yield lambda thing, arguments=arguments: getattr(thing, name)(*arguments)


def uses_as_a_whole():
    """Functions that use the object itself."""
    yield from (repr, str, bool, hash, len, iter, list, int, float, memoryview, bytes)
    yield from (copy.copy, pickle.dumps, operator.index)
    yield lambda thing: thing == cudadrv
    yield lambda thing: thing.__init__()
    yield cudadrv.read
    yield cudadrv.shared
    yield cudadrv.Module
    yield lambda thing: cudadrv.DeviceBuffer(4).copy_from(thing)
    yield lambda thing: cudadrv.DeviceBuffer(4).copy_to(thing)
    yield lambda thing: cudadrv.DeviceBuffer(4, device=thing)
    yield lambda thing: cudadrv.DeviceBuffer(4, stream=thing)
    yield lambda thing: cudadrv.Stream().wait(thing)
    yield lambda thing: cudadrv.Stream().record(thing)
    yield lambda thing: cudadrv.Stream().bind(thing)

    def enter(thing):
        with thing:
            pass

    yield enter


def answer(cls, use):
    """The result of a use: the text of the exception, or the class of the returned object."""
    try:
        thing = cls.__new__(cls)
        return type(use(thing)).__name__
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]


def try_out(full_name, cls):
    warnings.simplefilter("ignore")
    world = World()
    names = sorted(set(dir(cls)) - set(dir(object)) - {"__pyx_vtable__"})
    for name in names:
        for number, use in enumerate(uses_of(cls, name, world)):
            print(f"{full_name}.{name} {number}: ", end="", flush=True)
            print(answer(cls, use), flush=True)
    for number, use in enumerate(uses_as_a_whole()):
        print(f"{full_name} {number}: ", end="", flush=True)
        print(answer(cls, use), flush=True)


def main():
    for full_name, cls in classes().items():
        child = os.fork()
        if not child:
            try_out(full_name, cls)
            sys.exit()
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status:
            print(f"\n{full_name}: its process ended with {status}", flush=True)


if __name__ == "__main__":
    main()
