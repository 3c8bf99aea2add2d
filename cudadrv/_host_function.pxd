"""Functions of the program that streams and graphs call."""

from libc.stdint cimport uint32_t, uint64_t

from cudadrv._device cimport Context
from cudadrv._driver cimport CUDA_HOST_NODE_PARAMS
from cudadrv._engine cimport own_access


# A call of a stream: its slot refers to it until the function runs. A call of a graph: its node
# has it.
cdef class Call:
    cdef object function
    cdef list buffers       # the arguments
    cdef list modes         # how the function uses each
    cdef list addresses     # where each was when the call was queued
    cdef str name           # of the function
    cdef str caller         # the name of the stream or graph in messages
    cdef str done           # what the line of the program has done: "queued", for example
    cdef uint32_t site      # this line
    cdef uint32_t slot      # the epoch of a stream's call
    cdef uint64_t seq
    cdef Context context

    cdef str called(self)
    cdef object run(self, bint blocks)
    cdef int run_now(self, tuple arguments) except -1


cdef class NodeCall:
    cdef Call call
    cdef Launches launches
    cdef Py_ssize_t index   # of the node in `Graph.nodes`; -1: it is in a child graph
    cdef void *node         # the hf_node to which the driver's node points
    cdef uint64_t last      # number of the last launch that calls this function; 0: the present one

    cdef void fill_in(self, CUDA_HOST_NODE_PARAMS *params) noexcept
    cdef bint is_idle(self) noexcept
    cdef int settle(self) except -1
    cdef int replace(self) except -1


cdef class Launched:
    cdef uint64_t number    # 0: not queued yet, or failed
    cdef uint32_t slot      # the epoch of the launch
    cdef uint64_t seq

    cdef bint is_complete(self) noexcept


cdef class Launches:
    cdef uint64_t count     # number of launches; guarded by the issue lock of the executable's runs
    cdef int busy           # number of threads that are launching
    cdef tuple calls        # the NodeCalls of the present functions
    cdef list known         # Launched: those that may be unfinished, or are just being queued
    cdef uint64_t complete  # launches up to this number are known to be complete

    cdef Launched begin(self)
    cdef NodeCall call_at(self, Py_ssize_t index)
    cdef int end(self, Launched launched) except -1
    cdef bint is_complete(self, uint64_t number) except -1


cdef Call new_call(object function, tuple buffers)
cdef NodeCall new_node_call(Call call, Launches launches, Py_ssize_t index)
cdef int borrow_of_call(Call call, own_access *accesses) except -1
cdef tuple described_of_call(Call call)
cdef tuple in_mode(Call call, int wanted)
cdef int fix_sizes(Call call) except -1
cdef void no_call(CUDA_HOST_NODE_PARAMS *params) noexcept
cdef int refuse_in_body(str name, str body) except -1
