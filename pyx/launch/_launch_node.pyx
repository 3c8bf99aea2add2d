"""Launches of kernels as nodes of graphs, and as changes of nodes."""

cimport cython
from libc.stdint cimport uint32_t
from libc.string cimport memcpy, memset

from cudadrv._arguments cimport Room, Shape, new_room, of_present_sizes
from cudadrv._capture cimport GraphNode, after_of
from cudadrv._device cimport Context
from cudadrv._driver cimport (
    CUDA_KERNEL_NODE_PARAMS, CUDA_SUCCESS, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, CUcontext, CUgraphExec,
    CUgraphNode, CUlaunchAttribute, CUresult, in_cuGraphAddKernelNode,
    in_cuGraphExecKernelNodeSetParams, in_cuGraphKernelNodeSetAttribute,
)
from cudadrv._engine cimport own_access, own_request
from cudadrv._kernel cimport (
    Kernel, Prepared, advice_of, borrow_of, borrows_of_launch, count_accesses, described,
    new_prepared, pack_prepared, prepared, remember_launch, set_cluster,
)
from cudadrv._names cimport LAUNCH_NODE
from cudadrv._node cimport (
    Builder, NodeChange, Place, fill_request, refuse, renewed, take_back, try_to_add,
)

from cudadrv._arguments import buffers_in

cdef enum:
    VARIABLES_CHANGED = 0x7fff0000      # a result of `_launch_call` that no driver call returns


cdef struct Launch:
    CUDA_KERNEL_NODE_PARAMS params
    Shape *shape
    Py_ssize_t *changes     # as in _kernel
    Py_ssize_t seen


cdef CUresult _launch_call(
    void *arguments, Place *place, CUgraphNode *nodes, int *count
) noexcept nogil:
    cdef Launch *launch = <Launch *>arguments
    cdef CUlaunchAttribute attribute
    cdef CUresult status
    if launch.changes[0] != launch.seen:
        return <CUresult>VARIABLES_CHANGED
    status = in_cuGraphAddKernelNode(
        place.context, nodes, place.graph, place.after, place.count, &launch.params)
    if status != CUDA_SUCCESS:
        return status
    if launch.shape.cooperative:
        attribute.value.cooperative = 1
        status = in_cuGraphKernelNodeSetAttribute(
            place.context, nodes[0], CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &attribute.value)
    if status == CUDA_SUCCESS and launch.shape.cluster[0]:
        set_cluster(&attribute, launch.shape.cluster)
        status = in_cuGraphKernelNodeSetAttribute(
            place.context, nodes[0], attribute.id, &attribute.value)
    if status != CUDA_SUCCESS:
        take_back(place, nodes[0], "cuGraphKernelNodeSetAttribute")
    return status


cdef GraphNode add_launch(
    Builder graph, Kernel kernel, object grid, object block, tuple args, object shared_bytes,
    object borrows, bint cooperative, object cluster, object after
):
    cdef own_request request
    cdef Launch launch
    cdef Room room
    cdef GraphNode node = None
    cdef tuple nodes = after_of(after)
    cdef Prepared ready = prepared(
        kernel, grid, block, of_present_sizes(args), shared_bytes,
        of_present_sizes(borrows_of_launch(borrows)), cooperative, cluster, "add_launch")
    cdef Context context = kernel.module.context
    cdef int reason = VARIABLES_CHANGED
    launch.shape, launch.changes = &ready.shape, &kernel.module.changes
    launch_params(&launch.params, ready)
    while reason == VARIABLES_CHANGED:
        kernel.usable()
        room = new_room(count_accesses(ready) * sizeof(own_access))
        launch.seen = kernel.changes
        fill_request(&request, kernel.operation, <own_access *>room.start, 0)
        request.count = <uint32_t>borrow_of(ready, request.accesses)
        node = try_to_add(graph, context, &request, nodes, _launch_call, &launch, ready.uses,
                          buffers_in, None, &reason)
    if reason:
        refuse(graph, context, &request, reason, described(ready),
               advice_of(ready, &request, reason))
    node.kind = LAUNCH_NODE
    remember_launch(node, kernel, &ready.shape, len(args))
    return node


cdef void launch_params(CUDA_KERNEL_NODE_PARAMS *params, Prepared ready) noexcept:
    """Fill in the driver's description of a launch. It points into `ready`."""
    cdef Shape *shape = &ready.shape
    memset(params, 0, sizeof(params[0]))
    params.func = ready.kernel.raw
    params.kernelParams = ready.packed.pointers
    params.gridDimX, params.gridDimY, params.gridDimZ = \
        shape.grid[0], shape.grid[1], shape.grid[2]
    params.blockDimX, params.blockDimY, params.blockDimZ = \
        shape.block[0], shape.block[1], shape.block[2]
    params.sharedMemBytes = shape.shared_bytes


@cython.final
cdef class LaunchChange(NodeChange):
    """Other arguments, or another shape, of a launch."""

    cdef Prepared ready
    cdef CUDA_KERNEL_NODE_PARAMS params     # points into `ready`

    cdef CUresult make(
        self, CUgraphExec executable, CUgraphNode raw, int part, CUcontext context
    ) noexcept nogil:
        return in_cuGraphExecKernelNodeSetParams(context, executable, raw, &self.params)

    cdef tuple targets(self):
        return described(self.ready)


cdef NodeChange change_launch(
    GraphNode old, tuple args, object grid, object block, object shared_bytes, object borrows
):
    """Return a change of a launch. None, or empty `args`, keeps what the launch has now."""
    cdef LaunchChange change = LaunchChange.__new__(LaunchChange)
    cdef Kernel kernel = old.kernel
    cdef Prepared ready = new_prepared(kernel)
    cdef tuple uses = old.source
    cdef tuple more = uses[old.arguments:] if borrows is None else borrows_of_launch(borrows)
    if not args:
        args = uses[:old.arguments]
    change.ready = ready
    memcpy(&ready.shape, old.settings, sizeof(ready.shape))
    if grid is not None or block is not None or shared_bytes is not None:
        _fill_shape(ready, grid, block, shared_bytes)
    pack_prepared(ready, of_present_sizes(args), of_present_sizes(more), "a node")
    change.node = renewed(old, ready.uses, old.target, count_accesses(ready))
    remember_launch(change.node, kernel, &ready.shape, len(args))
    launch_params(&change.params, ready)
    change.node.count = <uint32_t>borrow_of(ready, change.node.accesses)
    return change


cdef int _fill_shape(
    Prepared ready, object grid, object block, object shared_bytes
) except -1:
    """Set the shape. None keeps what it has now."""
    cdef Shape shape = ready.shape
    ready.kernel.fill(
        &ready.shape,
        (shape.grid[0], shape.grid[1], shape.grid[2]) if grid is None else grid,
        (shape.block[0], shape.block[1], shape.block[2]) if block is None else block,
        shape.shared_bytes if shared_bytes is None else shared_bytes, shape.cooperative,
        (shape.cluster[0], shape.cluster[1], shape.cluster[2]) if shape.cluster[0] else None)
    return 0
