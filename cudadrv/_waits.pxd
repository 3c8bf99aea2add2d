"""Waits: finds the work that a request conflicts with, so that its stream or the host can wait."""

from cudadrv._engine cimport own_access, own_clock, own_conflict, own_engine, own_request, own_runs


# A request that the engine has answered with OWN_MUST_WAIT.
cdef struct Question:
    own_engine *engine      # the process's engine, or the engine of a graph's plan
    own_conflict *conflict  # of the last answer
    own_request *request    # NULL: the host asks for `access`
    const own_runs *runs    # of the request, or NULL
    const own_access *access
    void *capture           # the Capturing of the plan, whose streams are waited for, or NULL
    own_clock *known        # what the stream will have waited for in any case, or NULL


cdef list missing_waits(Question *question)
cdef list users_in_the_way(Question *question)
