"""Operations of another project, which uses all of `cimport cudadrv`, and misuses some of it."""

cimport cudadrv as cu
from cudadrv cimport Stream
from cudadrv._driver cimport cuDeviceGetCount  # private, and not bound by this module


def types():
    return (cu.Buffer, cu.Context, cu.Device, cu.DeviceBuffer, cu.Event, cu.HostBuffer, cu.Kernel,
            cu.LockedBuffer, cu.Module, cu.Operation, cu.Prepared, cu.Stream, cu.Token,
            cu.UnifiedBuffer)


def is_stream(value):
    return isinstance(value, Stream)


def status_of_an_unbound_function():
    cdef int count = 0
    return cuDeviceGetCount(&count)


# ---- a copy ----

cdef struct Copy:
    cu.CUdeviceptr target
    cu.CUdeviceptr source
    size_t nbytes


cdef cu.CUresult copy_call(void *arguments, cu.CUstream stream, bint *queued) noexcept nogil:
    cdef Copy *given = <Copy *>arguments
    return cu.cuMemcpyAsync(given.target, given.source, given.nbytes, stream)


def copy(cu.Buffer target not None, cu.Buffer source not None, stream=None):
    cdef Copy arguments
    cdef cu.Operation operation = cu.Operation("downstream.copy")
    arguments.target = cu.borrow(operation, target, cu.WRITE)
    arguments.source = cu.borrow(operation, source, cu.READ)
    arguments.nbytes = target.nbytes
    cdef cu.Token token = cu.issue(operation, stream, copy_call, &arguments)
    return token


# ---- fills that fail at a chosen call ----

cdef enum:
    MOST = 8

MODES = {"read": cu.READ, "write": cu.WRITE, "shared": cu.SHARED}


cdef struct Fills:
    cu.CUdeviceptr targets[MOST]
    size_t sizes[MOST]
    int count
    int status          # what the call returns after the fills
    bint tells          # whether it reports that nothing was queued if the first fill fails
    int calls           # number of calls of fill_call


cdef cu.CUresult fill_call(void *arguments, cu.CUstream stream, bint *queued) noexcept nogil:
    cdef Fills *given = <Fills *>arguments
    cdef cu.CUresult status
    cdef int i
    given.calls += 1
    for i in range(given.count):
        status = cu.cuMemsetD8Async(given.targets[i], 7, given.sizes[i], stream)
        if status != cu.CUDA_SUCCESS:
            if given.tells:
                queued[0] = i > 0
            return status
    return <cu.CUresult>given.status


cdef class Work:
    """An operation that can be issued more than once."""
    cdef Fills arguments
    cdef readonly object operation

    def __init__(self, name="downstream.fill", tells=False, status=0):
        self.operation = cu.Operation(name)
        self.arguments.tells = tells
        self.arguments.status = status

    @property
    def calls(self):
        return self.arguments.calls

    def use(self, buffer, mode="write"):
        address = cu.borrow(self.operation, buffer, MODES.get(mode, mode))
        if mode == "write":
            self.arguments.targets[self.arguments.count] = address
            self.arguments.sizes[self.arguments.count] = buffer.nbytes
            self.arguments.count += 1
        return self

    def issue(self, stream=None):
        return cu.issue(self.operation, stream, fill_call, &self.arguments)


# ---- a call that lasts until the test ends it ----

cdef extern from "<unistd.h>" nogil:
    int usleep(unsigned int microseconds)


cdef struct Pause:
    int begun
    int ended


cdef cu.CUresult pause_call(void *arguments, cu.CUstream stream, bint *queued) noexcept nogil:
    cdef Pause *given = <Pause *>arguments
    given.begun = True
    while not given.ended:
        usleep(100)
    return cu.CUDA_SUCCESS


cdef class Paused:
    """An operation whose call returns only after `end`."""
    cdef Pause state

    @property
    def begun(self):
        return bool(self.state.begun)

    def end(self):
        self.state.ended = True

    def issue(self, stream):
        return cu.issue(cu.Operation("downstream.pause"), stream, pause_call, &self.state)


def misuse(what, first=None, second=None):
    if what == "borrow":
        return cu.borrow(first, second, cu.READ)
    if what == "borrow_kernel":
        return <size_t>cu.borrow_kernel(first, second)
    if what == "borrow_prepared":
        return <size_t>cu.borrow_prepared(first, second)
    return cu.issue(first, second, NULL, NULL)


# ---- launches ----

cdef struct Launch:
    cu.CUfunction function
    void *parameters[3]
    cu.CUdeviceptr address
    float factor
    unsigned int count
    unsigned int block


cdef cu.CUresult launch_call(void *arguments, cu.CUstream stream, bint *queued) noexcept nogil:
    cdef Launch *given = <Launch *>arguments
    return cu.cuLaunchKernel(
        given.function, 1, 1, 1, given.block, 1, 1, 0, stream, given.parameters, NULL)


def scale(cu.Kernel kernel not None, cu.Buffer buffer not None, float factor, stream=None):
    """Launch `scale(float *, float, unsigned)`, with arguments that are packed here."""
    cdef Launch arguments
    cdef cu.Operation operation = cu.Operation("downstream.scale")
    arguments.function = cu.borrow_kernel(operation, kernel)
    arguments.address = cu.borrow(operation, buffer, cu.WRITE)
    arguments.factor, arguments.count, arguments.block = factor, buffer.count, buffer.count
    arguments.parameters[0] = &arguments.address
    arguments.parameters[1] = &arguments.factor
    arguments.parameters[2] = &arguments.count
    return cu.issue(operation, stream, launch_call, &arguments)


def bare_launch(kernel, stream, variable=None, others=()):
    """Launch a kernel without parameters, which reads `variable` if one is given.

    The kernels in `others` are borrowed, but not launched.
    """
    cdef Launch arguments
    cdef cu.Operation operation = cu.Operation("downstream.launch")
    arguments.function, arguments.block = cu.borrow_kernel(operation, kernel), 1
    if variable is not None:
        cu.borrow(operation, variable, cu.READ)
    for other in others:
        cu.borrow_kernel(operation, other)
    return cu.issue(operation, stream, launch_call, &arguments)


cdef struct Batch:
    Copy copies[MOST]
    int count
    void *launch


cdef cu.CUresult batch_call(void *arguments, cu.CUstream stream, bint *queued) noexcept nogil:
    cdef Batch *given = <Batch *>arguments
    cdef Copy *each
    cdef cu.CUresult status
    cdef int i
    for i in range(given.count):
        each = &given.copies[i]
        status = cu.cuMemcpyAsync(each.target, each.source, each.nbytes, stream)
        if status != cu.CUDA_SUCCESS:
            queued[0] = i > 0
            return status
    return cu.launch_prepared(given.launch, stream)


def copy_and_launch(list pairs not None, cu.Prepared ready, stream=None):
    """Issue several copies and a launch as one operation."""
    cdef Batch arguments
    cdef cu.Operation operation = cu.Operation("downstream.batch")
    arguments.count = 0
    for target, source in pairs:
        arguments.copies[arguments.count] = Copy(
            cu.borrow(operation, target, cu.WRITE), cu.borrow(operation, source, cu.READ),
            target.nbytes)
        arguments.count += 1
    arguments.launch = cu.borrow_prepared(operation, ready)
    return cu.issue(operation, stream, batch_call, &arguments)
