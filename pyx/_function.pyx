# cython: nonecheck=True
"""Function: a kernel as the driver and the books know it. What `Kernel` is underneath."""

from cudadrv._context cimport Context, enter_context, leave_context
from cudadrv._driver cimport (
    CUDA_SUCCESS, CUfunction_attribute, CUresult, bind_driver, cudadrv_table, cuFuncGetAttribute,
    cuFuncSetAttribute, cuOccupancyMaxActiveBlocksPerMultiprocessor,
)
from cudadrv._likely cimport likely, unlikely
from cudadrv._queue cimport check_queue
from cudadrv._shape cimport Shape, dimensions, fill_shape, threads_of
from cudadrv._stream cimport Stream, stream_for

bind_driver(&cudadrv_table)


cdef class Function:
    """A function of a module: the base of `Kernel`."""

    @property
    def module(self):
        """The module that it comes from."""
        return self.module

    cdef int usable(self) except -1:
        """Refuse before any driver call."""
        if self.module is None:
            raise TypeError("this Kernel was never initialized")
        return self.module.usable()

    cdef int fill(
        self, Shape *shape, object grid, object block, object shared_bytes, bint cooperative,
        object cluster
    ) except -1:
        """Check and note the shape of a launch."""
        fill_shape(shape, self.limits, grid, block, shared_bytes, cooperative, cluster)
        if threads_of(shape) > <unsigned long long>self.most_threads:
            raise ValueError(f"block is {dimensions(shape.block)}, {threads_of(shape)} threads, and"
                             f" {self.signature.kernel} takes at most {self.most_threads}"
                             " (max_threads_per_block)")
        if shape.shared_bytes > <unsigned int>self.most_shared:
            raise ValueError(f"shared_bytes is {shared_bytes}, and {self.signature.kernel} takes at"
                             f" most {self.most_shared}; kernel.max_dynamic_shared_bytes = ..."
                             " raises that, where the device allows it")
        if cooperative:
            _refuse_crowd(self, shape)
        elif shape.plain and _stays(grid) and _stays(block) and type(shared_bytes) is int:
            self.last_grid, self.last_block, self.last_shared = grid, block, shared_bytes
            self.last_shape = shape[0]
        return 0

    cdef Stream stream_of(self, object stream):
        """The stream of a launch: the argument, else the current one."""
        cdef Context context = self.module.context
        cdef Stream found
        if likely(isinstance(stream, Stream)):
            found = <Stream>stream
        else:
            found = stream_for(stream, context)
        if unlikely(found is None):
            raise TypeError(f"launch of {self.signature.kernel} needs a stream: pass stream=, or"
                            " call it inside a `with stream:` block")
        check_queue(found)
        if unlikely(found.context is not context):
            raise ValueError(f"{self!r} belongs to {context!r}, and {found!r} to another context;"
                             " use a stream of the module's context")
        return found

    cdef int attribute(self, CUfunction_attribute attribute) except? -1:
        cdef int value = 0
        cdef CUresult status
        cdef bint pushed = False
        with nogil:
            status = enter_context(self.module.context.raw, &pushed)
            if status == CUDA_SUCCESS:
                status = cuFuncGetAttribute(&value, attribute, self.raw)
                leave_context(pushed)
            self.module.context.check(status)
        return value

    cdef int set_attribute(self, CUfunction_attribute attribute, int value) except -1:
        cdef CUresult status
        cdef bint pushed = False
        with nogil:
            status = enter_context(self.module.context.raw, &pushed)
            if status == CUDA_SUCCESS:
                status = cuFuncSetAttribute(self.raw, attribute, value)
                leave_context(pushed)
            self.module.context.check(status)
        return 0


cdef bint _stays(object size) noexcept:
    """Whether it means the same for ever."""
    if type(size) is tuple:
        for each in <tuple>size:
            if type(each) is not int:
                return False
        return True
    return type(size) is int


cdef int occupancy_of(Function function, Shape *shape) except -1:
    """How many of its blocks a multiprocessor runs at once."""
    cdef int blocks = 0
    cdef int threads = <int>threads_of(shape)
    cdef CUresult status
    cdef bint pushed = False
    with nogil:
        status = enter_context(function.module.context.raw, &pushed)
        if status == CUDA_SUCCESS:
            status = cuOccupancyMaxActiveBlocksPerMultiprocessor(
                &blocks, function.raw, threads, shape.shared_bytes)
            leave_context(pushed)
        function.module.context.check(status)
    return blocks


cdef int _refuse_crowd(Function function, Shape *shape) except -1:
    """Refuse a cooperative grid whose blocks cannot all run at once."""
    wanted = <unsigned long long>shape.grid[0] * shape.grid[1] * shape.grid[2]
    at_once = <unsigned long long>occupancy_of(function, shape) * function.limits.multiprocessors
    if wanted > at_once:
        raise ValueError(f"grid is {dimensions(shape.grid)}, {wanted} blocks, and {at_once} of"
                         f" {function.signature.kernel} run at once, as a cooperative launch needs")
    return 0
