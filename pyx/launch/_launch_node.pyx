"""Launches of kernels as nodes of graphs, and as changes of nodes.

State that outlives a call: a change that the next one uses again (the GIL guards it).
"""

cimport cython
from libc.stdint cimport uint32_t
from libc.string cimport memcpy, memset

from cudadrv._arguments cimport (
    Frame, Packed, Room, Shape, new_room, of_present_sizes, point_to_values,
)
from cudadrv._capture cimport GraphNode, after_of
from cudadrv._device cimport Context
from cudadrv._driver cimport (
    CUDA_KERNEL_NODE_PARAMS, CUDA_SUCCESS, CUcontext, CUgraphExec, CUgraphNode, CUlaunchAttribute,
    CUresult, in_cuGraphAddKernelNode, in_cuGraphExecKernelNodeSetParams,
    in_cuGraphKernelNodeSetAttribute,
)
from cudadrv._engine cimport own_access, own_request
from cudadrv._kernel cimport (
    MOST_ATTRIBUTES, Kernel, Prepared, advice_of, borrow_of, borrows_of_launch, check_kernel,
    count_accesses, described, fill_attributes, pack_all, prepared, remember_launch,
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
    Packed *packed
    Py_ssize_t *changes     # as in _kernel
    Py_ssize_t seen


cdef CUresult _launch_call(
    void *arguments, Place *place, CUgraphNode *nodes, int *count
) noexcept nogil:
    cdef Launch *launch = <Launch *>arguments
    cdef CUlaunchAttribute attributes[MOST_ATTRIBUTES]
    cdef CUresult status
    cdef unsigned int number
    if launch.changes[0] != launch.seen:
        return <CUresult>VARIABLES_CHANGED
    status = in_cuGraphAddKernelNode(
        place.context, nodes, place.graph, place.after, place.count, &launch.params)
    if status != CUDA_SUCCESS:
        return status
    for number in range(fill_attributes(launch.shape, launch.packed, attributes)):
        if status == CUDA_SUCCESS:
            status = in_cuGraphKernelNodeSetAttribute(
                place.context, nodes[0], attributes[number].id, &attributes[number].value)
    if status != CUDA_SUCCESS:
        take_back(place, nodes[0], "cuGraphKernelNodeSetAttribute")
    return status


cdef GraphNode add_launch(
    Builder graph, Kernel kernel, object grid, object block, tuple args, object shared_bytes,
    object borrows, bint cooperative, object cluster, tuple attributes, object after
):
    cdef own_request request
    cdef Launch launch
    cdef Room room
    cdef GraphNode node = None
    cdef tuple nodes = after_of(after)
    cdef Prepared ready = prepared(
        kernel, grid, block, of_present_sizes(args), shared_bytes,
        of_present_sizes(borrows_of_launch(borrows)), cooperative, cluster, attributes,
        "add_launch")
    cdef Packed *packed = &ready.packed
    cdef Context context = kernel.module.context
    cdef int reason = VARIABLES_CHANGED
    launch.shape, launch.packed = &ready.shape, packed
    launch.changes = &kernel.module.changes
    launch_params(&launch.params, kernel, &ready.shape, packed)
    while reason == VARIABLES_CHANGED:
        kernel.usable()
        room = new_room(count_accesses(kernel, packed) * sizeof(own_access))
        launch.seen = kernel.changes
        fill_request(&request, kernel.operation, <own_access *>room.start, 0)
        request.count = <uint32_t>borrow_of(kernel, packed, request.accesses)
        node = try_to_add(graph, context, &request, nodes, _launch_call, &launch, ready.uses,
                          buffers_in, None, &reason)
    if reason:
        refuse(graph, context, &request, reason, described(kernel, packed, kernel.variables),
               advice_of(&request, reason, packed))
    node.kind = LAUNCH_NODE
    remember_launch(node, kernel, &ready.shape, len(args))
    return node


cdef void launch_params(
    CUDA_KERNEL_NODE_PARAMS *params, Kernel kernel, const Shape *shape, const Packed *packed
) noexcept:
    """Fill in the driver's description of a launch. It points into `packed`."""
    memset(params, 0, sizeof(params[0]))
    params.func = kernel.raw
    params.kernelParams = packed.pointers
    params.gridDimX, params.gridDimY, params.gridDimZ = \
        shape.grid[0], shape.grid[1], shape.grid[2]
    params.blockDimX, params.blockDimY, params.blockDimZ = \
        shape.block[0], shape.block[1], shape.block[2]
    params.sharedMemBytes = shape.shared_bytes


@cython.final
@cython.no_gc
cdef class LaunchChange(NodeChange):
    """Other arguments, or another shape, of a launch."""

    cdef CUDA_KERNEL_NODE_PARAMS params     # points into `packed`
    cdef Packed packed
    cdef Room room                          # what `packed` points into, if that is not a Frame

    cdef CUresult make(
        self, CUgraphExec executable, CUgraphNode raw, int part, CUcontext context
    ) noexcept nogil:
        return in_cuGraphExecKernelNodeSetParams(context, executable, raw, &self.params)

    cdef tuple targets(self):
        cdef Kernel kernel = self.node.kernel
        return described(kernel, &self.packed, kernel.variables)

    cdef void end(self) noexcept:
        global _spare
        self.node = self.room = None
        _spare = self


# A change that has ended, kept for the next one: making the object takes longer than filling it.
cdef LaunchChange _spare = None


cdef LaunchChange _new_change():
    global _spare
    cdef LaunchChange change = _spare
    _spare = None
    return LaunchChange.__new__(LaunchChange) if change is None else change


cdef NodeChange change_launch(
    GraphNode old, tuple args, object grid, object block, object shared_bytes, object borrows,
    Frame *frame
):
    """Return a change of a launch. None, or empty `args`, keeps what the launch has now.

    The caller keeps `frame` as long as the change.
    """
    cdef LaunchChange change = _new_change()
    cdef Packed *packed = &change.packed
    cdef Kernel kernel = old.kernel
    cdef Shape shape
    cdef tuple more = _borrows_in(old) if borrows is None else borrows_of_launch(borrows)
    check_kernel(kernel)
    memcpy(&shape, old.settings, sizeof(shape))
    if not args:
        args = (<tuple>old.source)[:old.arguments]
    if grid is not None or block is not None or shared_bytes is not None:
        _fill_shape(kernel, &shape, grid, block, shared_bytes)
    args = of_present_sizes(args)
    if more:
        more = of_present_sizes(more)
    change.room = pack_all(kernel, args, more, shape.cooperative, "a node", frame, packed)
    if change.room is None:
        packed.pointers = frame.pointers
        point_to_values(kernel.signature, len(args), packed)
    change.node = renewed(
        old, args + more if more else args, old.target, count_accesses(kernel, packed))
    change.node.count = <uint32_t>borrow_of(kernel, packed, change.node.accesses)
    remember_launch(change.node, kernel, &shape, len(args))
    launch_params(&change.params, kernel, &shape, packed)
    return change


cdef tuple _borrows_in(GraphNode node):
    """Return the `borrows` of a launch."""
    cdef tuple uses = node.source
    return () if node.arguments == len(uses) else uses[node.arguments:]


cdef int _fill_shape(
    Kernel kernel, Shape *shape, object grid, object block, object shared_bytes
) except -1:
    """Set the shape. An argument that is None keeps the present value."""
    cdef Shape now = shape[0]
    kernel.fill(
        shape,
        (now.grid[0], now.grid[1], now.grid[2]) if grid is None else grid,
        (now.block[0], now.block[1], now.block[2]) if block is None else block,
        now.shared_bytes if shared_bytes is None else shared_bytes, now.cooperative,
        (now.cluster[0], now.cluster[1], now.cluster[2]) if now.cluster[0] else None)
    return 0
