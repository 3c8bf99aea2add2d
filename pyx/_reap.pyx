"""Reap: give back everything that is not used any more."""

from cudadrv._cache cimport trim_caches
from cudadrv._context cimport Context, contexts
from cudadrv._ghost cimport make_room
from cudadrv._library cimport ensure_driver
from cudadrv._release cimport drain
from cudadrv._stage cimport drop_idle_stages


def reap():
    """Free the memory of buffers that have died, waiting for its users as needed.

    Buffers that die while the GPU may use them, or while freeing could block, are kept until the
    GPU is idle, or by pools for new buffers; this waits instead, and empties the pools. Idle
    page-locked memory of the library's own is freed too.
    Where the default stream of another thread used such memory, that is for all work of all
    contexts, and is left out while a stream is being captured. ``close()`` a buffer to free it at
    a point that you choose.

    Driver functions: cuEventRecord, cuEventQuery, cuMemFree, cuMemFreeHost, cuMemFreeAsync;
    cuCtxSynchronize for what the default stream of another thread used.
    """
    cdef Context context
    ensure_driver()
    for context in contexts():
        if not context.lost:
            make_room(context)
            drop_idle_stages(context)
    trim_caches()
    drain(True)
