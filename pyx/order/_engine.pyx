"""The one ownership engine of this process. Its code is C: include/cudadrv/ownership.h.

State that outlives a call: all clocks and ranges (the engine's lock, and the issue locks of streams
and events).
"""


def books():
    """Return how many records of each kind the engine keeps, as a dict. Used by tests.

    The keys are ``contexts``, ``streams`` (open ones, and those that may have unfinished work) and
    ``views`` (host views of managed memory).
    """
    cdef own_books counted
    own_count(engine, &counted)
    return {"contexts": counted.domains, "streams": counted.streams, "views": counted.views}
