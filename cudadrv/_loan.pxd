"""Loan: a buffer in the hands of another library."""

from cudadrv._event cimport Event
from cudadrv._ownership cimport own_export
from cudadrv._region cimport Region
from cudadrv._stream cimport Stream


cdef class Loan:
    cdef Region region
    cdef readonly Stream stream     # the engine's loan names it
    cdef readonly bint readonly
    cdef Event event                # recorded where the block begins and ends
    cdef int state                  # of the block; the engine has the loan while it lasts
    cdef own_export loan

    cdef int end(self) except -1
    cdef int end_unrecorded(self, raised, error) except -1
    cdef int use(self, own_export *loan, bint recorded=*) except -1


cdef Loan new_loan(Region region, Stream stream, bint readonly)
