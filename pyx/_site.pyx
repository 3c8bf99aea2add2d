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
    """The line that called into cudadrv; lines of Python's own modules and NumPy are skipped."""
    return site_of(PyThreadState_Get())


cdef uint32_t unknown_site(site_spot spot) noexcept:
    """The site of a line that is not in the table, or that lies in a library."""
    return site_search(spot)


cdef str place(uint32_t site):
    """``file.py:41``. The path is relative if the file lies in the working directory."""
    cdef site_place *found = site_find(site)
    if found is NULL:
        return "a line that is no longer known"
    return f"{_short(site_file(found))}:{site_line(found)}"


cdef str _short(str path):
    """Shorten a path. Runs no Python code, because reports of data races are made in operations."""
    try:
        folder = os.getcwd() + os.sep
    except OSError:  # the working directory is gone
        return path
    return path[len(folder):] if path.startswith(folder) else path
