"""Where the sources' functions are. Mutations name the function that they change."""

import re
from functools import cache
from pathlib import Path

FOLDERS = ["include/cudadrv", "pyx", "pyx/*", "cudadrv"]
SUFFIXES = (".h", ".pyx", ".pxd", ".py")
ROOT = Path(__file__).resolve().parents[2]
C_FUNCTION = re.compile(
    r"^(?![#/ }]|typedef|enum)[^\n;{(]*?\b(\w+)\([^;{}]*?\) \{\n.*?^\}", re.MULTILINE | re.DOTALL
)


def in_c(text):
    """Yield the name, the beginning and the end of each C function."""
    plain = re.sub(r"__attribute__\(\(\w+\)\)", lambda found: " " * len(found[0]), text)
    for found in C_FUNCTION.finditer(plain):
        yield found[1], found.start(), found.end()


def in_cython(text):
    """Yield the name, the beginning and the end of each function; of a method, "Class.method"."""
    lines = text.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    owner = ""
    for at, line in enumerate(lines):
        found = re.match(r"( *)(?:cdef class|class) (\w+)", line)
        if found:
            owner = found[2] if not found[1] else owner
            continue
        found = re.match(r"( *)(?:async def|cdef|cpdef|def) [^\n=#\"':]*?(\w+)\(", line)
        if not found:
            continue
        indent, end = len(found[1]), at + 1
        while end < len(lines):
            text_of = lines[end].strip()
            depth = len(lines[end]) - len(lines[end].lstrip(" "))
            if text_of and depth <= indent and not text_of.startswith(")"):
                break
            end += 1
        if not any(line.partition("  #")[0].rstrip().endswith(":") for line in lines[at:end]):
            continue  # a declaration
        name = f"{owner}.{found[2]}" if indent and owner else found[2]
        yield name, starts[at], starts[end]


@cache
def functions(tree):
    """Map the names of functions, and also "module.name", to their places: (path, begin, end)."""
    places = {}
    for folder in FOLDERS:
        for path in sorted(Path(tree).glob(f"{folder}/*")):
            if path.suffix not in SUFFIXES:
                continue
            found = in_c if path.suffix == ".h" else in_cython
            for name, begin, end in found(path.read_text(encoding="utf-8")):
                for each in (name, f"{path.stem}.{name}"):
                    places.setdefault(each, []).append((path, begin, end))
    return places


def place_of(name, tree=ROOT):
    """Return where a function is, or a file: (path, begin, end). There must be only one.

    For code outside of functions, such as a table, the name is the name of the file.
    """
    if Path(name).suffix in SUFFIXES:
        (path,) = (path for folder in FOLDERS for path in Path(tree).glob(f"{folder}/{name}"))
        return path, 0, len(path.read_text(encoding="utf-8"))
    (place,) = functions(tree)[name]
    return place


def changed(name, old, new, tree=ROOT):
    """Return the path and the text of a source with a change in one function, or None.

    It returns None unless the function contains the old text exactly once.
    """
    path, begin, end = place_of(name, tree)
    text = path.read_text(encoding="utf-8")
    if text[begin:end].count(old) != 1:
        return None
    return path, text[:begin] + text[begin:end].replace(old, new) + text[end:]
