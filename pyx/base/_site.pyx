"""Call sites: which line of the user's program made a call.

State that outlives a call: code objects and their lines, by number, and prefixes of files that are
skipped; the number of births (the GIL guards them).
"""

import os

import numpy as np

from libc.stdint cimport uint32_t, uint64_t


cdef extern from "Python.h":
    str PyUnicode_FromObject(object text)

cdef extern from "cudadrv/site_search.h":
    ctypedef struct site_place:
        int offset
    site_table site_the_table
    uint32_t site_search(site_spot spot)
    site_place *site_find(uint32_t site)
    object site_file(site_place *place)
    int site_line(site_place *place)
    void site_set_library(int index, const char *folder)
    void site_skip(object prefixes)
    int site_describe_line(char *text, int size) noexcept nogil


cdef int _set_library(int index, bytes folder) except -1:
    site_set_library(index, folder)
    return 0


sites = &site_the_table
sites.generation = 1
for _index, _module in enumerate((os, np)):
    _set_library(_index, os.fsencode(os.path.join(os.path.dirname(_module.__file__), "")))


cdef tuple _prefixes = ()


def skip_file_prefixes(*prefixes):
    """Let messages name the line that calls your library, rather than the library's own line.

    Lines of files whose names begin with one of the prefixes are skipped from now on, wherever the
    line of a call is shown: in refusals, borrows, tokens, races and reports of memory. If all lines
    of a call are skipped, the innermost line is shown. Lines of Python's own modules and of NumPy
    are always skipped. Earlier prefixes stay in force, and a prefix cannot be removed.

    Parameters
    ----------
    *prefixes : str or os.PathLike
        As for ``skip_file_prefixes`` of ``warnings.warn``: ``os.path.dirname(__file__)``.

    Raises
    ------
    TypeError
        A prefix is not a str.
    ValueError
        A prefix is empty. It would skip every file.
    """
    global _prefixes
    new = list(_prefixes)
    for prefix in prefixes:
        prefix = os.fspath(prefix)
        if not isinstance(prefix, str):
            raise TypeError(f"a prefix must be a str, not {type(prefix).__name__}")
        if not prefix:
            raise ValueError("a prefix is empty, and would skip every file")
        if prefix not in new:
            new.append(PyUnicode_FromObject(prefix))
    _prefixes = tuple(new)
    site_skip(_prefixes)


cdef uint32_t here() noexcept:
    """Return the site of the line that called cudadrv.

    Lines of the standard library, of NumPy and of `skip_file_prefixes` are skipped.
    """
    return site_of(PyThreadState_Get())


cdef uint64_t _births = 0


cdef uint64_t birth() noexcept:
    """Return the birth of an object that the current line makes: its number, and its site.

    The number is in the upper 32 bits, and counts all objects with a birth.
    """
    global _births
    _births += 1
    return _births << 32 | here()


def last_birth():
    """Return the birth of the last object, for a comparison with later ones."""
    return _births << 32 | 0xFFFFFFFF


def birthplace(uint64_t birth):
    """Return the line that made an object, as ``file.py:41``."""
    return place(<uint32_t>birth)


cdef uint32_t unknown_site(site_spot spot) noexcept:
    """The slow path of `site_of`, for lines that are not in the table yet or that are skipped."""
    return site_search(spot)


cdef str place(uint32_t site):
    """Return a site as ``file.py:41``. The path is relative for files in the working directory."""
    cdef site_place *found = site_find(site)
    if found is NULL:
        return "a line that is no longer known"
    return f"{_short(site_file(found))}:{site_line(found)}"


cdef int describe_line(char *text, int size) noexcept nogil:
    """Write the user's line that this thread runs, for a signal handler: see site_search.h."""
    return site_describe_line(text, size)


cdef str _short(str path):
    """Return a path relative to the working directory, if the file is in it.

    Runs no Python code, because a report of a data race calls this while an issue lock is held.
    """
    try:
        folder = os.getcwd() + os.sep
    except OSError:  # the working directory is gone
        return path
    return path[len(folder):] if path.startswith(folder) else path
