"""Code from which Cython 3.3.0 or 3.3.1 makes wrong C, and which must not be in a .pyx file."""

import builtins
import re
from pathlib import Path

SOURCES = sorted((Path(__file__).parents[2] / "pyx").rglob("*.pyx"))
# Statements that raise nothing. Only these may be at the end of a block with a `return` in it.
RAISE_NOTHING = re.compile(
    r"(own_\w+|free|PyBuffer_Release|PyMem_Free)\(|\w+ [-+]= 1$|if transfer\.holds:$|with nogil:$"
)
# Functions that return no Python object.
RETURNS_C = re.compile(r"cdef (inline )?(b?int|size_t|uint\d+_t|double|CUresult|void|bint) ")


def indent_of(line):
    return len(line) - len(line.lstrip())


def end_of(lines, start):
    """The statements of the `finally` of a `try`. None if it has no `finally`."""
    ending = None
    for line in lines[start + 1 :]:
        if not line.strip():
            continue
        deeper = indent_of(line) - indent_of(lines[start])
        if deeper < 0 or (deeper == 0 and not re.match(r"\s*(except|else|finally)\b", line)):
            break
        if deeper == 0:
            ending = [] if line.strip() == "finally:" else None
        elif ending is not None:
            ending.append(line.strip())
    return ending


def risky_returns(path):
    lines = [line.split("  # ")[0].rstrip() for line in path.read_text().splitlines()]
    function, blocks = "", []  # the indents of the blocks around a line
    for number, line in enumerate(lines):
        words = line.strip()
        if not words:
            continue
        if re.match(r"(def|cdef|cpdef)\b", words):
            function = words
        while blocks and indent_of(line) <= blocks[-1]:
            if indent_of(line) == blocks[-1] and re.match(r"(except|else)\b", words):
                break
            blocks.pop()
        if blocks and re.match(r"return\b(?! None$).", words) and not RETURNS_C.match(function):
            yield f"{path.name}:{number + 1}: {words}"
        if re.match(r"with (?!nogil|gil)", words):
            blocks.append(indent_of(line))
        elif words == "try:":
            ending = end_of(lines, number)
            if ending is not None and not all(map(RAISE_NOTHING.match, ending)):
                blocks.append(indent_of(line))


def test_no_with_blocks():
    """`with` blocks are forbidden in .pyx files.

    If there is no memory for a traceback, Cython's code for an exception in the block uses a NULL
    pointer.
    """
    found = [
        f"{path.name}:{number}: {line.strip()}"
        for path in SOURCES
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.match(r"\s+with (?!nogil|gil)[^`]*:(  #.*)?$", line)
    ]
    assert not found


# ---- returns from a block whose end may raise: then the returned object is never freed ----


def test_no_object_is_returned_out_of_a_block_whose_end_can_raise():
    assert not [found for path in SOURCES for found in risky_returns(path)]


def test_such_returns_are_found(tmp_path):
    source = tmp_path / "_some.pyx"
    source.write_text(
        "def one(thing):\n    with thing:\n        return thing\n"
        "def two(thing):\n    try:\n        if thing:\n            return thing\n"
        "    finally:\n        thing.close()\n    return thing\n"
        "def three(thing):\n    try:\n        return thing\n    finally:\n        free(room)\n"
    )
    assert [found.split(":")[1] for found in risky_returns(source)] == ["3", "7"]


# ---- a base class whose constructor takes *args: Cython 3.3.0 leaves out a function of it ----


def bases_with_star_arguments(path):
    """The classes with *args in their constructor from which the file derives others."""
    text = path.read_text()
    for base in set(re.findall(r"^cdef class \w+\((\w+)\)", text, re.M)):
        body = re.search(rf"^cdef class {base}\b.*?(?=^\S|\Z)", text, re.M | re.S)
        if body and re.search(r"def __c?init__\([^)]*\*\w", body[0].replace("**", "")):
            yield f"{path.name}: {base}"


def test_no_base_class_takes_star_arguments():
    """The C of the derived classes calls a function that does not exist: the import fails."""
    assert not [found for path in SOURCES for found in bases_with_star_arguments(path)]


def test_such_base_classes_are_found(tmp_path):
    source = tmp_path / "_some.pyx"
    source.write_text(
        "cdef class One:\n    def __init__(self, *args, **kwargs):\n        pass\n"
        "cdef class Two(One):\n    def __init__(self, **kwargs):\n        pass\n"
        "cdef class Three(Two):\n    pass\n"
    )
    assert list(bases_with_star_arguments(source)) == ["_some.pyx: One"]


# ---- a list that is made of a list or a tuple: Python 3.11 leaks these if there is no memory ----

# Arguments of list() that are no list or tuple, or whose items hold no other objects.
NO_OBJECTS = (
    *("number", "key", "ways", "_prefixes", "edges[index]", "module.text.kernels"),
    *("_in_flight", "self.references"),
)


def test_no_list_of_objects_is_copied_by_list():
    """`list(x)` leaks x, and what x holds, if memory runs out: use `x[:]`, or a loop."""
    found = [
        f"{path.name}: {call}"
        for path in SOURCES
        for call in re.findall(r"[ (]list\(([\w.\[\]()]+)\)", path.read_text(encoding="utf-8"))
        if call not in NO_OBJECTS and not call.rstrip(")").endswith((".items(", ".values("))
    ]
    assert not found


# ---- isinstance with a tuple: Cython 3.3.1 takes a failure for "yes" ----

BUILTIN = {name for name, value in vars(builtins).items() if isinstance(value, type)}
CHECKED = re.compile(r"isinstance\([^()]+, \(([^()]+)\)\)")


def classes_that_may_fail(path, known):
    """The tuples that are written in a call of isinstance and name a Python class."""
    for names in CHECKED.findall(path.read_text(encoding="utf-8")):
        if {name.strip() for name in names.split(",")} - known:
            yield f"{path.name}: ({names})"


def test_no_python_class_is_in_a_tuple_of_isinstance():
    """`isinstance(x, (int, np.integer))` is true if x.__class__ raises: give the tuple a name."""
    ours = {
        name
        for path in SOURCES
        for name in re.findall(r"^cdef class (\w+)", path.read_text(encoding="utf-8"), re.M)
    }
    assert not [found for path in SOURCES for found in classes_that_may_fail(path, BUILTIN | ours)]


def test_such_tuples_are_found(tmp_path):
    source = tmp_path / "_some.pyx"
    source.write_text(
        "if isinstance(a, (int, str)):\n    pass\n"
        "if isinstance(a[0], (int,\n                     np.integer)):\n    pass\n"
    )
    assert len(list(classes_that_may_fail(source, BUILTIN))) == 1
