"""Call sites: which line of the user's program made a call."""

import os

import numpy as np

from libc.stdint cimport uint32_t


cdef extern from "cudadrv/site_search.h":
    ctypedef struct site_place:
        int offset
    site_table site_the_table
    uint32_t site_search(site_spot spot)
    site_place *site_find(uint32_t site)
    object site_file(site_place *place)
    int site_line(site_place *place)
    void site_set_library(int index, const char *folder)


cdef int _set_library(int index, bytes folder) except -1:
    site_set_library(index, folder)
    return 0


sites = &site_the_table
sites.generation = 1
for _index, _module in enumerate((os, np)):
    _set_library(_index, os.fsencode(os.path.join(os.path.dirname(_module.__file__), "")))


cdef uint32_t here() noexcept:
    """Return the line that called cudadrv, skipping lines of the standard library and NumPy."""
    return site_of(PyThreadState_Get())


cdef uint32_t unknown_site(site_spot spot) noexcept:
    """Return the site of a line that is not in the table yet, or that lies in a library."""
    return site_search(spot)


cdef str place(uint32_t site):
    """Return a site as ``file.py:41``. The path is relative for files in the working directory."""
    cdef site_place *found = site_find(site)
    if found is NULL:
        return "a line that is no longer known"
    return f"{_short(site_file(found))}:{site_line(found)}"


cdef str _short(str path):
    """Shorten a path. Runs no Python code, because a report of a data race may hold an issue lock.
    """
    try:
        folder = os.getcwd() + os.sep
    except OSError:  # the working directory is gone
        return path
    return path[len(folder):] if path.startswith(folder) else path
