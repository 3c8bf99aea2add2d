"""Streams that are named by something else than their object: a handle, or a slot of the engine."""

cdef object user_of_slot(unsigned int slot)
