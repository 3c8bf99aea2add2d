"""Migrations: how often managed memory changes sides."""

from cudadrv._engine cimport own_access
from cudadrv._region cimport Region


cdef int count_migration(Region region, own_access *access) except -1
cdef object migrations_of(Region region)
