"""C++ names of kernels: those that a compiler was asked for, and those that are mangled.

A compiler is asked for kernels by name expressions, such as ``scale<float>``. The PTX lists the
mangled names in comments, so they are still known when the PTX is read from a file.
"""

import re
from collections.abc import Iterable, Mapping

_NOTE = re.compile(r"^// cudadrv\.name: (.+) = ([\w$]+)$", re.MULTILINE)
_VARIABLE = re.compile(
    r"^(?:\.visible )?\.global \.align 8 \.u64 cudadrv_name_(\d+) = ([\w$]+);\n", re.MULTILINE
)
_LENGTH = re.compile(r"L?(\d+)")  # L: the name is known only in this source
_PUNCTUATION = re.compile(r"\s*([<>,():*&])\s*")


def normal(name: str) -> str:
    """Return a name expression with as few spaces as possible, to compare it with others."""
    return _PUNCTUATION.sub(r"\1", " ".join(name.split()))


def with_notes(ptx: str, names: Mapping[str, str]) -> str:
    """Return PTX that says which mangled name each name expression has."""
    notes = (f"// cudadrv.name: {normal(name)} = {names[name]}\n" for name in names)
    return "".join(notes) + ptx


def noted_names(ptx: str) -> dict[str, str]:
    """Return the mangled names in the comments of a PTX text, by their name expressions."""
    return dict(_NOTE.findall(ptx)) if "// cudadrv.name: " in ptx else {}


# ---- names for a compiler that has no functions for them ----


def instantiations(names: Iterable[str]) -> str:
    """Return CUDA C that makes nvcc compile the kernels of these name expressions.

    The address of each kernel becomes the value of a variable, which shows its mangled name.
    """
    lines = ["", '#line 1 "names="']
    for i, name in enumerate(names):
        lines.append(f"__device__ void *cudadrv_name_{i} = (void *)({name});")
    return "\n".join([*lines, ""]) if len(lines) > 2 else ""


def take_instantiations(ptx: str, names: Iterable[str]) -> tuple[str, dict[str, str]]:
    """Remove the variables of `instantiations`. Return the PTX, and the mangled names by name."""
    found = {int(number): mangled for number, mangled in _VARIABLE.findall(ptx)}
    known = {name: found[i] for i, name in enumerate(names) if i in found}
    return _VARIABLE.sub("", ptx), known


# ---- mangled names ----


def unmangled(mangled: str) -> tuple[str, ...]:
    """Return the C++ names by which a kernel can be called: its name with and without namespaces.

    Template arguments and parameters are left out. Returns () for a name that is not mangled, or in
    a way that is not understood.
    """
    head = re.match(r"_ZN?", mangled)
    if head is None:
        return ()
    at, parts = head.end(), []
    while number := _LENGTH.match(mangled, at):
        start = number.end()
        at = start + int(number[1])
        if at > len(mangled):
            return ()
        part = mangled[start:at]
        if not part.startswith("_GLOBAL__N"):
            parts.append(part)
        if not mangled.startswith("_ZN"):
            break
    if not parts:
        return ()
    return tuple(dict.fromkeys((parts[-1], "::".join(parts))))
