"""Call sites: lines of the user's program that made a call.

A site is a number, because a text is needed only when the line is printed (`place`).
"""

from cpython.pystate cimport PyThreadState, PyThreadState_Get
from libc.stdint cimport uint32_t, uint64_t

from cudadrv._driver cimport likely


cdef extern from "cudadrv/site.h":
    ctypedef struct site_spot:
        pass
    ctypedef struct site_table:
        uint32_t generation
    site_spot site_spot_of(const PyThreadState *thread)
    uint32_t site_known(site_table *table, site_spot spot)


cdef site_table *sites
cdef uint32_t here() noexcept
cdef uint64_t birth() noexcept
cdef uint32_t unknown_site(site_spot spot) noexcept
cdef str place(uint32_t site)
cdef int describe_line(char *text, int size) noexcept nogil


cdef inline uint32_t site_of(PyThreadState *thread) noexcept:
    """Like `here`, for the thread that has this thread state. Inlined for the fast path."""
    cdef site_spot spot = site_spot_of(thread)
    cdef uint32_t site = site_known(sites, spot)
    return site if likely(site) else unknown_site(spot)
