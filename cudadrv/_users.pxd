"""Users of dead memory: who may still use it, and whether they are done."""

from cudadrv._context cimport Context
from cudadrv._event cimport Event
from cudadrv._ownership cimport own_memory


cdef bint is_unused(own_memory *state) noexcept
cdef list users_of(own_memory *state)
cdef bint users_are_idle(own_memory *state) except -1
cdef bint finish_everything() except -1
cdef bint is_idle(Context context) except -1
cdef bint is_complete(Event event) noexcept
