"""Kernel: a function of a module, and its launches."""

from libc.stdint cimport uint16_t

from cudadrv._arguments cimport Frame, Limits, Packed, Room, Shape, Signature, Takes
from cudadrv._capture cimport GraphNode
from cudadrv._driver cimport (
    CUfunction, CUfunction_attribute, CUlaunchAttribute, CUresult, CUstream, likely, unlikely,
)
from cudadrv._engine cimport own_access, own_request
from cudadrv._module cimport Module, check_module
from cudadrv._stream cimport Stream
from cudadrv._token cimport Token


cdef enum:
    MOST_ATTRIBUTES = 6     # of one launch


cdef class Kernel:
    cdef Module module
    cdef CUfunction raw         # lives as long as the module
    cdef Signature signature
    cdef Limits limits
    cdef uint16_t operation     # the number of the name "launch of KERNEL": see _names.pyx
    cdef Takes takes            # the shapes of launches that the kernel takes
    cdef list reached           # (Memory, mode) of each variable that the PTX text says it may use
    cdef list variables         # `reached`, and the module's unlisted variables
    cdef Py_ssize_t changes     # the module's change counter when `variables` was made
    # The arguments of the last plain launch, and the shape that `fill` made of them.
    cdef object last_grid
    cdef object last_block
    cdef object last_shared
    cdef Shape last_shape
    cdef dict settings          # the attributes that were set, and their values
    cdef object __weakref__

    cdef int usable(self) except -1
    cdef int fill(
        self, Shape *shape, object grid, object block, object shared_bytes, bint cooperative,
        object cluster) except -1
    cdef Stream other_stream(self, object stream)
    cdef int attribute(self, CUfunction_attribute attribute) except? -1
    cdef int set_attribute(self, CUfunction_attribute attribute, int value) except -1


cdef inline int check_kernel(Kernel kernel) except -1:
    """Like `usable`, inlined for the fast path."""
    return check_module(kernel.module)


cdef inline int shape_of(
    Kernel kernel, Shape *shape, object grid, object block, object shared_bytes,
    bint cooperative, object cluster
) except -1:
    """Like `fill`, with a fast path for the grid, block and shared memory of the last launch.
    """
    if likely(grid is kernel.last_grid and block is kernel.last_block
              and shared_bytes is kernel.last_shared and cluster is None and not cooperative
              and kernel.last_shape.plain):
        shape[0] = kernel.last_shape
        return 0
    return kernel.fill(shape, grid, block, shared_bytes, cooperative, cluster)


cdef extern from *:
    """
    /* Written in C, because the type of clusterDim has no name that Cython could use. */
    static inline void set_cluster(CUlaunchAttribute *attribute, const unsigned int *sizes) {
        attribute->id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
        attribute->value.clusterDim.x = sizes[0];
        attribute->value.clusterDim.y = sizes[1];
        attribute->value.clusterDim.z = sizes[2];
    }
    """
    void set_cluster(CUlaunchAttribute *attribute, const unsigned int *sizes) noexcept nogil


cdef int occupancy_of(Kernel kernel, Shape *shape) except -1
cdef int find_variables(Kernel kernel) except -1


cdef Token launch_packed(
    Kernel kernel, Shape *shape, Packed *packed, Stream stream, tuple uses)
cdef tuple borrows_of_launch(object borrows)


cdef class Prepared:
    cdef Kernel kernel
    cdef tuple args
    cdef tuple uses             # the arguments, and the items of `borrows`; keeps buffers alive
    cdef Room room              # the memory that `packed` refers to
    cdef Packed packed
    cdef Shape shape
    cdef object window          # the AccessWindow that `packed` refers to, or None
    cdef object __weakref__


cdef void remember_launch(
    GraphNode node, Kernel kernel, const Shape *shape, Py_ssize_t arguments) noexcept
cdef Prepared prepared(
    Kernel kernel, grid, block, tuple args, shared_bytes, borrows, bint cooperative, cluster,
    tuple attributes, str call=*)
cdef tuple attributes_of(object priority, object domain, object window, bint early)
cdef unsigned int fill_attributes(
    const Shape *shape, const Packed *packed, CUlaunchAttribute *attributes) noexcept nogil
cdef Room pack_all(
    Kernel kernel, tuple args, tuple more, bint cooperative, str call, Frame *frame, Packed *packed)
cdef Py_ssize_t count_accesses(Kernel kernel, Packed *packed) except -1
cdef Py_ssize_t borrow_of(Kernel kernel, Packed *packed, own_access *accesses) except -1
cdef tuple described(Kernel kernel, Packed *packed, list variables)
cdef str advice_of(own_request *request, int reason, Packed *packed)
cdef CUresult launch_ready(Prepared ready, CUstream stream) noexcept nogil
