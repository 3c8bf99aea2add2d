"""Use all that the extension classes define with objects of other classes, as `Stream.wait(3)`.

Prints a line for each use. If the process of a class crashes, a line says how it ended. Each class
has a process of its own. No use gets as far as the driver.
"""

import os
import sys
from contextlib import suppress

from bare_objects import classes

METHOD = "cython_function_or_method"
CHECKED_BY_PYTHON = ("method_descriptor", "wrapper_descriptor", "builtin_function_or_method")


class Plain:
    """A class that is made in Python."""


def wrong_objects(cls, all_classes):
    """Objects that are not of a class, by their names."""
    found = {"None": None, "3": 3, "a Plain": Plain(), "the class": cls}
    for name, other in all_classes.items():
        if not issubclass(other, cls):
            found[name] = other
            with suppress(TypeError):  # only cudadrv makes objects of some classes
                found[f"a {name}"] = other.__new__(other)
    return found


def uses_of(member):
    """Functions that use a member of a class on an object, by their names."""
    kind = type(member).__name__
    if kind == METHOD:
        return {"alone": member, "with 1": lambda thing: member(thing, 1)}
    if kind in CHECKED_BY_PYTHON:
        return {"alone": member}
    if kind == "getset_descriptor":
        return {
            "read": lambda thing: member.__get__(thing, Plain),
            "set": lambda thing: member.__set__(thing, 1),
            "deleted": member.__delete__,
        }
    if kind == "classmethod":
        return {
            "with 16": lambda thing: member.__func__(thing, 16),
            "with 16, 16": lambda thing: member.__func__(thing, 16, 16),
        }
    return {}


def answer(use, *things):
    """What a use raises, or the class of what it returns."""
    try:
        return f"returned a {type(use(*things)).__name__}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def try_out(full_name, cls, all_classes):
    wrong = wrong_objects(cls, all_classes)
    for name, member in list(vars(cls).items()):
        if type(member).__name__ == METHOD:
            print(f"{full_name}.{name} of nothing: {answer(member)}")
            print(f"{full_name}.{name} of a keyword: {answer(lambda m=member: m(self=3))}")
        for way, use in uses_of(member).items():
            for what, thing in wrong.items():
                if thing is cls and (name == "__new__" or isinstance(member, classmethod)):
                    continue  # the class itself is a right object here
                if thing is None and way == "read":
                    continue  # returns the property, like `Stream.name`
                print(f"{full_name}.{name} of {what}, {way}: ", end="", flush=True)
                print(answer(use, thing))


def main():
    all_classes = classes()
    for full_name, cls in all_classes.items():
        sys.stdout.flush()
        child = os.fork()
        if not child:
            try_out(full_name, cls, all_classes)
            sys.stdout.flush()
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status:
            print(f"\n{full_name}: its process ended with {status}")


if __name__ == "__main__":
    main()
