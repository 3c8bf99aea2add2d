"""Devices and contexts: the primary contexts, contexts that programs create, and the default
context.

State that outlives a call: the contexts, and three hooks of modules below (the GIL guards them);
the current context (a context variable).
"""

from contextvars import ContextVar
from weakref import ref

cimport cython
from cpython.contextvars cimport get_value_no_default
from cpython.exc cimport PyErr_CheckSignals
from libc.stdlib cimport calloc, free, malloc

from cudadrv._driver cimport (
    CUDADRV_FUNCTION_RUNS, CUDADRV_LOANS_HAVE_ENDED, CUDA_ERROR_CONTEXT_IS_DESTROYED,
    CUDA_SUCCESS, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS,
    CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES,
    CUcontext, CUdevice_attribute, CUresult, CUuuid, cuCtxCreate, cuCtxDestroy, cuCtxGetCurrent,
    cuCtxPopCurrent, cuCtxPushCurrent, cuDeviceGet, cuDeviceGetAttribute, cuDeviceGetCount,
    cuDeviceGetName, cuDeviceGetPCIBusId, cuDeviceGetUuid, cuDevicePrimaryCtxGetState,
    cuDevicePrimaryCtxRetain, cuDeviceTotalMem, cudadrv_clear_attention, cudadrv_table,
    in_cuCtxGetStreamPriorityRange, in_cuCtxSynchronize, in_cuMemGetInfo, last_failure,
    was_not_called,
)
from cudadrv._engine cimport (
    OWN_INTERNAL, engine, own_domain_close, own_domain_lose, own_domain_open, own_domain_snapshot,
    own_join_host, own_snapshot, own_snapshot_drop, own_suspect, own_suspects,
)
from cudadrv._errors cimport (
    check as check_status, is_sticky, lose_contexts_with, only_made_by, raise_status,
    refuse_if_forked, report, report_text,
)
from cudadrv._library cimport ensure_driver
from cudadrv._names cimport ALLOCATION, RELEASE, operation_name, stream_name
from cudadrv._ordering cimport policy_name
from cudadrv._site cimport birth, place
from cudadrv._trace cimport line_of_call

from cudadrv._driver import fault_of
from cudadrv._errors import (
    CaptureError, ContextLostError, CudaError, EventNotRecordedError, integer,
)

cdef extern from "cudadrv/patient.h" nogil:
    struct patient:
        pass
    patient *patient_begin(CUcontext context)
    bint patient_wait(patient *wait)
    CUresult patient_status(const patient *wait)
    void patient_end(patient *wait)


# ---- devices ----

@cython.final
cdef class Device:
    """Device(ordinal=None)\n--\n
    A GPU, by its ordinal.

    Two Device objects of the same ordinal are equal. Making a Device loads the driver if it is not
    loaded yet, and makes no context.

    Parameters
    ----------
    ordinal : int, optional
        From 0 to ``Device.count() - 1``; default: the current device, see `current`.

    Raises
    ------
    TypeError, ValueError
        The ordinal is not an integer; there is no such device.
    DriverNotFoundError
        There is no usable driver.
    ForkedError
        This process was forked from one that had loaded the driver.

    Driver functions: cuInit, cuDeviceGet.
    """

    def __cinit__(self, ordinal=None):
        cdef int index
        ensure_driver()
        wanted = _current_ordinal() if ordinal is None else integer(ordinal, "ordinal")
        count = Device.count()
        if not 0 <= wanted < count:
            raise ValueError(
                f"there is no device {wanted}: this machine has {count}, numbered from 0")
        self.ordinal = index = wanted
        with nogil:
            check_status(cuDeviceGet(&self.raw, index))

    @property
    def ordinal(self):
        """The number of the device, from 0."""
        return self.ordinal

    @staticmethod
    def count():
        """The number of devices (cuDeviceGetCount)."""
        cdef int count = 0
        ensure_driver()
        with nogil:
            check_status(cuDeviceGetCount(&count))
        return count

    @staticmethod
    def all():
        """Return all devices as a tuple. Makes no context (cuDeviceGetCount, cuDeviceGet)."""
        found = []
        for ordinal in range(Device.count()):
            found.append(Device(ordinal))
        return tuple(found)

    @staticmethod
    def current():
        """Return the device of the innermost ``with device:`` or ``with context:``, else device 0.

        This is the default of ``device=`` arguments. Makes no context, and ignores contexts that
        other libraries have made current.
        """
        return Device(_current_ordinal())

    @property
    def name(self):
        """The device's name (cuDeviceGetName)."""
        cdef char[256] name
        with nogil:
            check_status(cuDeviceGetName(name, sizeof(name), self.raw))
        return name.decode(errors="replace")

    @property
    def uuid(self):
        """The device's identity across processes, as `uuid.UUID` (cuDeviceGetUuid)."""
        from uuid import UUID
        return UUID(bytes=self.uuid_bytes())

    cdef bytes uuid_bytes(self):
        cdef CUuuid found
        with nogil:
            check_status(cuDeviceGetUuid(&found, self.raw))
        return found.bytes[:16]

    @property
    def pci_bus_id(self):
        """The device's address on the PCI bus, such as ``"0000:65:00.0"`` (cuDeviceGetPCIBusId)."""
        cdef char[32] text
        with nogil:
            check_status(cuDeviceGetPCIBusId(text, sizeof(text), self.raw))
        return text.decode()

    @property
    def compute_capability(self):
        """``(major, minor)`` (cuDeviceGetAttribute)."""
        return (self.attribute_value(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
                self.attribute_value(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR))

    @property
    def total_memory(self):
        """Memory of the device in bytes (cuDeviceTotalMem)."""
        cdef size_t nbytes = 0
        with nogil:
            check_status(cuDeviceTotalMem(&nbytes, self.raw))
        return nbytes

    def memory_info(self):
        """Return how much memory of the device is free, and how much it has: ``(free, total)``.

        Both are in bytes. Memory of other processes, and memory that pools keep for reuse, is not
        free. Retains the primary context on first use.

        Driver function: cuMemGetInfo.
        """
        cdef Context context = primary_context(self)
        cdef size_t available = 0
        cdef size_t total = 0
        cdef CUresult status
        context.usable()
        with nogil:
            status = in_cuMemGetInfo(context.raw, &available, &total)
            context.check(status)
        return available, total

    def attribute(self, str name not None):
        """Look up an attribute by its name in cuda.h.

        Parameters
        ----------
        name : str
            The name in cuda.h, with or without ``CU_DEVICE_ATTRIBUTE_``, in upper or lower case:
            ``"multiprocessor_count"``.

        Returns
        -------
        int

        Raises
        ------
        ValueError
            There is no such attribute. The message suggests similar names.
        CudaError
            The driver does not know the attribute.

        Driver function: cuDeviceGetAttribute.
        """
        from cudadrv._attributes import DEVICE_ATTRIBUTES
        number = DEVICE_ATTRIBUTES.get(name.lower().removeprefix("cu_device_attribute_"))
        if number is None:
            import difflib
            near = difflib.get_close_matches(name.lower(), DEVICE_ATTRIBUTES, n=3)
            hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
            raise ValueError(f"there is no device attribute {name!r}{hint}")
        return self.attribute_value(number)

    cdef int attribute_value(self, int attribute) except? -1:
        cdef int value = 0
        with nogil:
            check_status(cuDeviceGetAttribute(&value, <CUdevice_attribute>attribute, self.raw))
        return value

    @property
    def context(self):
        """The device's primary context, retained on first use and kept until the process ends."""
        return primary_context(self)

    # ---- other devices ----

    def can_access(self, Device peer not None):
        """Whether this device can get access to the memory of another one: see `enable_access`.

        A device can always access its own memory. Driver function: cuDeviceCanAccessPeer.
        """
        from cudadrv._peers import can_access
        return can_access(self, peer)

    def enable_access(self, Device peer not None):
        """Let kernels and fills of this device use the memory of another one. May be called twice.

        Like `Context.enable_access`, for the primary contexts of the two devices. Copies between
        devices need no access, but are faster with it.
        """
        self.context.enable_access(peer.context)

    def disable_access(self, Device peer not None):
        """End what `enable_access` has allowed. May be called twice.

        Like `Context.disable_access`, for the primary contexts of the two devices.
        """
        self.context.disable_access(peer.context)

    @property
    def peers(self):
        """The devices whose memory this one has access to, by `enable_access`: a tuple.

        Access that another library has enabled is not listed, but counts.
        """
        cdef Context context = _primary.get(self.ordinal)
        cdef Context peer
        found = []
        if context is not None:
            for peer in context.peers.all():
                if peer.primary:
                    found.append(peer.device)
        return tuple(sorted(found, key=_ordinal_of))

    def link_to(self, Device peer not None):
        """Return what connects this device with another one: a `Link`.

        Raises ValueError for the device itself. Driver functions: cuDeviceCanAccessPeer,
        cuDeviceGetP2PAttribute.
        """
        from cudadrv._peers import link_between
        return link_between(self, peer)

    def synchronize(self):
        """Block until all work of the primary context is complete. See `Context.synchronize`."""
        self.context.synchronize()

    def __enter__(self):
        """Make the primary context current in this thread, and the device the default one."""
        self.context.__enter__()
        return self

    def __exit__(self, kind, exception, traceback):
        """Make the context current that was current before the block."""
        self.context.__exit__(kind, exception, traceback)

    def __eq__(self, other):
        return isinstance(other, Device) and (<Device>other).ordinal == self.ordinal

    def __hash__(self):
        return hash((Device, self.ordinal))

    def __repr__(self):
        name = "" if cudadrv_table.forked else f" {self.name!r}"  # no driver calls after a fork
        return f"<Device {self.ordinal}{name}>"


def _ordinal_of(Device device):
    return device.ordinal


# ---- contexts ----

@cython.final
@cython.no_gc_clear  # a Context that the garbage collector clears still uses its Alive afterwards
cdef class Alive:
    # A WeakSet would not do, because iterating over it fails when another thread adds to it. Nor
    # would a set: its order depends on addresses. The software driver can run a program in all
    # orders of its work, and each time the program must wait for its streams in the same order.

    def __cinit__(self):
        self.references = {}    # weak references in the order of the objects: whether it was added

    cdef object reference_to(self, object thing):
        """Make the weak reference that `add` takes."""
        reference = ref(thing, self.references.pop)
        self.references.setdefault(reference, False)    # from now on `pop` finds it
        return reference

    cdef int add(self, object reference) except -1:
        """Add a reference. Meanwhile no other thread runs, and no finalizer."""
        self.references[reference] = True
        self.added += 1
        return 0

    cdef int remove(self, object thing) except -1:
        self.references.pop(ref(thing), None)
        return 0

    cdef list all(self):
        found = []
        for reference in list(self.references):     # `items` makes tuples, so finalizers can run
            thing = reference()
            if thing is not None and self.references.get(reference):
                found.append(thing)
        return found


resets = 0
RESET = "The device was reset (cudadrv.testing.reset_device) after this object was made; make a" \
    " new one."

_primary = {}  # primary contexts by ordinal, kept until the process ends
cdef Context _first = None  # the primary context of device 0, once it exists
cdef list _replaced = []    # contexts that a reset has replaced, kept until the process ends
cdef Alive _all = Alive()   # all contexts
# The innermost `with` block of a context, as a list of two items: the context, and the list of the
# enclosing block or None.
_current = ContextVar("cudadrv.context", default=None)
cdef bint _blocks_used = False  # whether any such block was ever entered
_after_wait = None  # the hook that synchronizations call at their end, or None


cdef class Kept:

    cdef void end_with(self, Context context) noexcept:
        pass


@cython.final
@cython.no_gc_clear
cdef class Context:
    """Context(*args, **kwargs)\n--\n
    A driver context: streams, events and memory of one device belong to it.

    Most programs need not make one: ``Device(0).context`` is the primary context, which cudadrv
    shares with the CUDA runtime and other libraries. ``with context:`` makes it current in this
    thread, and the default for new objects. Objects of a context work whatever context is current:
    their calls switch to it and back.
    """

    def __cinit__(self):
        self.lost = 0
        self.streams = Alive()
        self.peers = Alive()
        self.ghosts = []
        self.stages = []
        self.defaults = {}

    @property
    def device(self):
        """The device of the context."""
        return self.device

    @property
    def primary(self):
        """Whether this is the device's primary context, which other libraries share."""
        return self.primary

    @property
    def handle(self):
        """The CUcontext as an int, for other libraries. cudadrv does not see how they use it."""
        self.usable()
        return <size_t>self.raw

    @staticmethod
    def create(Device device not None):
        """Create a context of your own on a device, without making it current.

        The context is destroyed with the last object that refers to it. Synchronize the context
        before that. If it still has unfinished work then, it is not destroyed, because destroying
        it would block; a CudaWarning reports this.

        Raises CudaError if the driver cannot create it.
        Driver function: cuCtxCreate.
        """
        cdef Context context
        cdef CUcontext popped = NULL
        refuse_here()
        context = _new_context(device)
        with nogil:
            context.check(cuCtxCreate(&context.raw, 0, device.raw))
            check_status(cuCtxPopCurrent(&popped))
        context.birth = birth()
        _all.add(_all.reference_to(context))
        return context

    def __dealloc__(self):
        if self.domain is NULL or cudadrv_table.forked:
            return
        if self.raw is not NULL and not self.primary and not self.lost:
            _destroy(self)
        if own_domain_close(engine, self.domain):
            free(self.domain)

    @property
    def ordering(self):
        """The policy of the context's buffers whose own policy is None.

        See `cudadrv.ordering`.

        Setting it raises ValueError unless the value is a policy or None.
        """
        return self.policy

    @ordering.setter
    def ordering(self, value):
        self.policy = policy_name(value)

    @property
    def pools(self):
        """The memory pools of the context: ``.device``, ``.locked``, ``.unified``."""
        from cudadrv._pool import pools_of
        return pools_of(self)

    @property
    def limits(self):
        """What the driver sets aside for kernels: ``.printf_bytes``, ``.heap_bytes``,
        ``.stack_bytes``, ``.persisting_bytes``. See `ContextLimits`.
        """
        from cudadrv._limits import limits_of_context
        return limits_of_context(self)

    def enable_access(self, Context peer not None):
        """Let kernels and fills of this context use device memory of another device's context.

        Afterwards buffers of the other context may be used on streams of this one. Access is one
        way, and for this context only. Memory that was allocated with ``stream=`` belongs to the
        default pool of its device, which gives access to the whole device of this context. A
        `DriverPool` has its own `DriverPool.allow_access`. May be called twice, also if another
        library has enabled the access. Does not block.

        Raises ValueError if this device cannot get the access, or for another context of the same
        device; CudaError if the driver refuses, for example because there are too many peers.

        Driver functions: cuDeviceCanAccessPeer, cuCtxEnablePeerAccess, cuDeviceGetDefaultMemPool,
        cuMemPoolGetAccess, cuMemPoolSetAccess.
        """
        from cudadrv._peers import enable_access
        enable_access(self, peer)

    def disable_access(self, Context peer not None):
        """End what `enable_access` has allowed; for other libraries, too. May be called twice.

        The driver does not wait for running kernels before it ends the access. So all work of this
        context has to be known to be complete: call `synchronize` before.

        Raises OwnershipError if work of this context may be unfinished.

        Driver functions: cuCtxDisablePeerAccess, cuDeviceGetDefaultMemPool, cuMemPoolSetAccess.
        """
        from cudadrv._peers import disable_access
        disable_access(self, peer)

    @property
    def peers(self):
        """The contexts whose memory this one has access to, by `enable_access`: a tuple."""
        return tuple(self.peers.all())

    @property
    def priority_range(self):
        """The range of stream priorities, ``(greatest, least)``, such as ``(-5, 0)``.
        Driver function: cuCtxGetStreamPriorityRange.
        """
        cdef int least = 0
        cdef int greatest = 0
        cdef CUresult status
        self.usable()
        with nogil:
            status = in_cuCtxGetStreamPriorityRange(self.raw, &least, &greatest)
            self.check(status)
        return greatest, least

    def synchronize(self):
        """Block until all work of the context is complete, including that of other libraries.

        Afterwards, all work that was queued on its streams before this call counts as complete, so
        the host may use the memory that the work used. Signals such as Ctrl-C interrupt the wait,
        unless it is only for work of other libraries. Raises ContextLostError if the context was
        lost, and CaptureError during a capture of one of its streams.
        Driver functions: cuEventRecord, cuEventQuery, cuCtxSynchronize.
        """
        if not self.finish():
            raise CaptureError(f"{self!r} cannot be synchronized during {self.captured_by}:"
                               " the call would end the capture")
        raise_failures()

    cdef bint finish(self) except -1:
        """Wait for all work. Returns False, without a complete wait, during a capture.

        Raises no exceptions of functions that streams have called.
        """
        cdef own_snapshot snapshot
        self.usable()
        line_of_call(NULL, 0)
        if self.captures:
            return False
        if not own_domain_snapshot(engine, self.domain, &snapshot):
            raise MemoryError()
        try:
            _wait_for_known_work(self)
            if own_suspects(engine, self.domain, NULL, 0) and not synchronize_patiently(self):
                return False
            if not begin_synchronizing(self):
                return False
            self.check(synchronize_now(self))
            own_join_host(engine, &snapshot)
        finally:
            own_snapshot_drop(engine, &snapshot)
        after_wait()
        return True

    def __enter__(self):
        """Make the context current in this thread, and the default for new objects."""
        cdef CUcontext popped = NULL
        global _blocks_used
        self.usable()
        _blocks_used = True
        block = [self, _current.get()]
        with nogil:
            self.check(cuCtxPushCurrent(self.raw))
        try:
            _current.set(block)
            PyErr_CheckSignals()  # for the same reason as in `Nesting.enter` of _ordering.pyx
        except BaseException:  # the variable may have been set even though memory ran out
            _end_block(block)
            with nogil:
                cuCtxPopCurrent(&popped)
            raise
        return self

    def __exit__(self, kind, exception, traceback):
        """Make the context current that was current before the block."""
        cdef CUcontext popped = NULL
        current = get_value_no_default(_current)  # allocates no memory
        if current is None or current[0] is not self:
            raise RuntimeError("`with` blocks of contexts and devices must end in reverse order")
        try:
            _current.set(current[1])
        except MemoryError:
            _end_block(current)
        if self.lost or cudadrv_table.forked:  # like close(), raise nothing then
            return
        with nogil:
            self.check(cuCtxPopCurrent(&popped))

    def __repr__(self):
        kind = "primary" if self.primary else "created"
        return f"<Context {kind}, device {self.device.ordinal}>"

    cdef int usable(self) except -1:
        """Raise if the context is lost, or the process is a forked child. Calls `attend` first."""
        attend()
        if self.lost:
            raise ContextLostError(
                self.lost, "cudadrv",
                RESET if self.replaced else
                "The context was lost by an earlier error; this process cannot use the device any"
                " more.")
        return 0

    cdef int check(self, CUresult status) except -1 nogil:
        """Raise if a driver call failed. A sticky error also marks the context as lost."""
        if status == CUDA_SUCCESS:
            return 0
        return self.raise_failure(status)

    cdef int raise_failure(self, CUresult status) except -1 with gil:
        if not is_sticky(status):
            return raise_status(status)
        if self.lost:  # another thread saw the error first
            return self.usable()
        self.lost = status
        suspects = _suspects(self.domain)
        own_domain_lose(engine, self.domain)
        _drop_functions(self)
        listed = "  " + ("\n  ".join(suspects) or "none of cudadrv's")
        detail = f"The context is lost. Operations that were not known to be complete:\n{listed}"
        fault = fault_of(self.device.ordinal)
        if fault:
            detail = f"{fault}\n{detail}"
        raise ContextLostError(<int>status, last_failure().decode(), detail, suspects)


only_made_by(Context, "use Device(...).context, or Context.create(device)")


def birth_of_context(Context context not None):
    """Return the context's birth (_site.pyx)."""
    return context.birth


cdef Context _new_context(Device device):
    cdef bint excluded = not device.attribute_value(CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS)
    cdef bint same_tables = 1 == device.attribute_value(
        CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES)
    cdef Context context = Context.__new__(Context)
    context.device = device
    context.domain = <own_domain *>calloc(1, sizeof(own_domain))
    if context.domain is NULL:
        raise MemoryError()
    context.same_tables = same_tables
    own_domain_open(engine, context.domain, excluded)
    return context


cdef void _destroy(Context context) noexcept:
    """Destroy a dying context that cudadrv created, unless destroying it could block."""
    cdef CUresult status
    if own_suspects(engine, context.domain, NULL, 0):
        report_text("a context died with unfinished work, and is left to the driver; call its"
                    " synchronize() before the last reference goes")
        return
    if context.caches is not None:
        context.caches.end_with(context)
    with nogil:
        status = cuCtxDestroy(context.raw)
    report_in(context, status)


cdef void report_in(Context context, CUresult status) noexcept:
    """Warn about a failed call of a context where nothing can be raised.

    A sticky error also marks the context as lost, so that one warning names the operations that may
    have caused it, and later calls are not blamed.
    """
    if status == CUDA_SUCCESS or context.lost or cudadrv_table.forked:
        return
    if not is_sticky(status):
        report(status)
        return
    try:
        context.raise_failure(status)
    except Exception as error:
        report_text(str(error))


# Puts an object of the driver into the queue of `_release`, which ends it later.
cdef later_ender _end_later = NULL


cdef void end_later_with(later_ender function) noexcept:
    """Register the function that ends an object of the driver later.

    The function is in `_release`, which this module cannot import.
    """
    global _end_later
    _end_later = function


cdef bint is_ended_later(
    CUresult status, Ending what, size_t handle, Context context, object owner
) noexcept:
    """Whether a driver call that ends an object was not made. If so, the call is made later.

    The call is not made if the context cannot be made current. The owner is kept until the later
    call.
    """
    if status == CUDA_SUCCESS or is_sticky(status) or not was_not_called():
        return False
    _end_later(what, handle, context, owner)
    return True


cdef void report_end(
    CUresult status, Ending what, size_t handle, Context context, object owner
) noexcept:
    """Handle the status of a call that ends an object of the driver, where nothing can be raised.
    """
    if not is_ended_later(status, what, handle, context, owner):
        report_in(context, status)


cdef int _lose_current(CUresult status) except -1:
    """Raise for a sticky status of a call that names no context: the current context is now lost.

    If a context was lost before, none is marked: the call may have used a handle of that context.
    """
    cdef CUcontext current = NULL
    cdef Context context
    cdef bint known
    if any_lost():
        raise CudaError(<int>status, last_failure().decode())
    known = cuCtxGetCurrent(&current) == CUDA_SUCCESS and current is not NULL
    for context in contexts():
        if context.raw == current if known else context is _first:
            return context.raise_failure(status)
    raise ContextLostError(<int>status, last_failure().decode())


lose_contexts_with(_lose_current)


def primary_context(Device device not None):
    """Return the primary context of a device (cuDevicePrimaryCtxRetain)."""
    cdef Context context
    global _first
    ordinal = device.ordinal
    if ordinal not in _primary:
        context = _new_context(device)
        context.primary = True
        with nogil:
            context.check(cuDevicePrimaryCtxRetain(&context.raw, device.raw))
        reference = _all.reference_to(context)
        # No other thread runs between this check and the addition, so a device has one object.
        if ordinal not in _primary:
            _all.add(reference)
            _primary[ordinal] = context
            if ordinal == 0:
                _first = context
    return _primary[ordinal]


cdef bint is_primary_active(Device device) except -1:
    """Whether cudadrv or another library has retained the primary context of a device."""
    cdef unsigned int flags = 0
    cdef int active = 0
    with nogil:
        check_status(cuDevicePrimaryCtxGetState(device.raw, &flags, &active))
    return active


cdef int _end_block(list block) except -1:
    """End a `with` block without allocating memory.

    The list of the block gets the items of the enclosing block's list.
    """
    former = block[1] if block[1] is not None else (None, None)
    block[0], block[1] = former
    return 0


cdef loan_ender _end_loans = NULL


cdef void end_loans_with(loan_ender function) noexcept:
    """Register the function by which `attend` ends the loans that were given back.

    The function is in `_loan`, which this module cannot import.
    """
    global _end_loans
    _end_loans = function


cdef int attend() except -1:
    """Raise ForkedError in a forked child, and HostFunctionError in a function of a stream.

    Also ends the loans that other libraries have given back.

    A library may give a loan back in any thread, where only a flag is set. So `attend` runs at the
    beginning of every call: a loan that was given back before the call does not affect the call.
    """
    refuse_here()
    if cudadrv_table.attention & CUDADRV_LOANS_HAVE_ENDED:
        cudadrv_clear_attention(CUDADRV_LOANS_HAVE_ENDED)
        if _end_loans is not NULL:
            _end_loans()
    return 0


# ---- functions that streams call ----

cdef FunctionHooks _functions
_functions.drop = NULL
failed_functions = 0


cdef void call_functions_with(FunctionHooks hooks) noexcept:
    """Register the functions of `_host_function`, which this module cannot import."""
    global _functions
    _functions = hooks


cdef void count_failed_functions(Py_ssize_t count) noexcept:
    global failed_functions
    failed_functions = count


cdef int refuse_here() except -1:
    """Raise ForkedError in a forked child, and HostFunctionError in a function of a stream.

    `attend` also ends loans, so a call that orders nothing uses this function instead.
    """
    refuse_if_forked()
    if cudadrv_table.attention & CUDADRV_FUNCTION_RUNS:
        _functions.refuse()
    return 0


cdef bint is_function() noexcept:
    """Whether the caller is a function that a stream called."""
    return cudadrv_table.attention & CUDADRV_FUNCTION_RUNS and _functions.runs()


cdef int raise_failed_functions() except -1:
    return _functions.raise_known()


def raise_failures_of_functions():
    """Raise the exceptions of functions as `raise_failures` does, for modules of Python."""
    raise_failures()


cdef int _drop_functions(Context context) except -1:
    """Drop the functions that the streams of a lost context would have called."""
    if _functions.drop is not NULL:
        _functions.drop(context)
    return 0


cdef Context _innermost_context():
    """Return the context of the innermost ``with device`` or ``with context`` block, or None."""
    if not _blocks_used:
        return None
    current = get_value_no_default(_current)
    return None if current is None else (<list>current)[0]


cdef int _current_ordinal() except -1:
    context = _innermost_context()
    return 0 if context is None else context.device.ordinal


cdef Context default_context():
    """Return the context of the innermost ``with device`` or ``with context`` block.

    Outside all such blocks, return the primary context of device 0.
    """
    context = _innermost_context()
    if context is not None:
        return context
    return _first if _first is not None else primary_context(Device(0))


cdef Context context_of(object device):
    """Return the context for a ``device=`` argument: None selects the default context."""
    if device is None:
        return default_context()
    if not isinstance(device, Device):
        raise TypeError(
            f"device must be a Device, not {type(device).__name__}; for example cudadrv.Device(0)")
    if (<Device>device).ordinal == 0 and _first is not None:
        return _first
    return primary_context(device)


cdef list contexts():
    """Return all contexts that are alive."""
    return _all.all()


def any_lost():
    """Whether any context whose object is alive is lost."""
    cdef Context context
    for context in contexts():
        if context.lost:
            return True
    return False


def forget_contexts():
    """Mark all contexts as lost. `testing.reset_device` calls this, because a reset destroys them.

    Objects of these contexts raise ContextLostError from now on. The next use of a device retains
    its primary context again.
    """
    cdef Context context
    global _first, resets
    resets += 1
    for context in contexts():
        context.lost = context.lost or CUDA_ERROR_CONTEXT_IS_DESTROYED
        context.replaced = True
        own_domain_lose(engine, context.domain)
        _drop_functions(context)
        _replaced.append(context)
    _all.references.clear()
    _primary.clear()
    _first = None


def call_after_wait(function):
    """Register a function that every synchronization of a stream or a context calls at its end."""
    global _after_wait
    before = _after_wait

    def both():
        before()
        function()

    _after_wait = function if before is None else both


cdef int after_wait() except -1:
    """Call what `call_after_wait` registered."""
    if _after_wait is not None:
        _after_wait()
    return 0


def _wait_for_known_work(Context context):
    """Wait for streams and ghosts by events, because signals cannot interrupt cuCtxSynchronize.

    The stream that frees memory comes last: it may wait for work that never ends, and only a wait
    for the stream or ghost of that work is refused.
    """
    freeing = context.defaults.get("freeing")
    for stream in context.streams.all():
        if stream is not freeing:
            _wait_for_stream(stream)
    for ghost in context.ghosts[:]:
        try:
            ghost._finish()
        except EventNotRecordedError:  # another thread is closing the stream
            pass
    if freeing is not None:
        _wait_for_stream(freeing)


cdef void _say_for_reuse(bint reuse) noexcept nogil:
    """Like `ask_for` of `_event`, which imports this module."""
    if cudadrv_table.asks is not NULL:
        cudadrv_table.asks(2 if reuse else 0)


def _wait_for_stream(stream):
    try:
        _say_for_reuse(True)  # the program does not get this answer
        try:
            done = stream.done
        finally:
            _say_for_reuse(False)
        if not done:
            stream.waitable()._finish()
    except ValueError:  # the stream was closed meanwhile, or is another thread's default stream
        pass


# cuCtxSynchronize ends the captures of the context's streams that have begun when it is called. So
# calls of it and the beginnings of captures keep each other out (`_keep_out` in _capture).

cdef bint begin_synchronizing(Context context) noexcept:
    """Keep captures of the context's streams from beginning. Returns False during a capture.

    After True, the caller calls cuCtxSynchronize at once, and then `end_synchronizing`.
    """
    if context.captures:
        return False
    context.synchronizing += 1
    context.synchronizations += 1
    return True


cdef void end_synchronizing(Context context) noexcept:
    context.synchronizing -= 1


cdef CUresult synchronize_now(Context context) noexcept:
    """Call cuCtxSynchronize, after `begin_synchronizing` has returned True."""
    cdef CUresult status
    with nogil:
        status = in_cuCtxSynchronize(context.raw)
    end_synchronizing(context)
    return status


cdef bint synchronize_patiently(Context context) except -1:
    """Wait for all work of a context. Signals interrupt the wait. Updates no clock.

    Used for work that no event stands for. Returns False, without a wait, during a capture.
    """
    cdef patient *wait
    cdef bint done = False
    if not begin_synchronizing(context):
        return False
    try:
        with nogil:
            wait = patient_begin(context.raw)
        if wait is NULL:
            raise MemoryError("there is no memory for another thread")
        try:
            while not done:
                with nogil:
                    done = patient_wait(wait)
                PyErr_CheckSignals()
            context.check(patient_status(wait))
        finally:
            patient_end(wait)
    finally:
        end_synchronizing(context)
    return True


def unfinished_work():
    """Return the last operations of each stream of all contexts that are not known to be complete.

    Each operation is a pair of texts: its name with the name of its stream, and the line that
    queued it. Operations of internal streams are left out, and so are allocations and frees of
    memory.
    """
    cdef Context context
    cdef own_suspect *found
    cdef unsigned int count = 0
    cdef unsigned int i
    works = []
    for context in contexts():
        if context.lost:
            continue
        found = _look_for_suspects(context.domain, &count)
        try:
            for i in range(count):
                if found[i].kind != OWN_INTERNAL \
                        and found[i].operation.operation not in (ALLOCATION, RELEASE):
                    works.append((_work(&found[i]), place(found[i].operation.site)))
        finally:
            free(found)
    return works


cdef own_suspect *_look_for_suspects(own_domain *domain, unsigned int *count) except NULL:
    cdef own_suspect *found
    count[0] = own_suspects(engine, domain, NULL, 0)
    found = <own_suspect *>malloc((count[0] + 1) * sizeof(own_suspect))
    if found is NULL:
        raise MemoryError()
    count[0] = min(count[0], own_suspects(engine, domain, found, count[0]))
    return found


cdef tuple _suspects(own_domain *domain):
    cdef unsigned int count = 0
    cdef own_suspect *found = _look_for_suspects(domain, &count)
    try:
        suspects = []
        for i in range(count):
            suspects.append(_suspect(&found[i]))
        return tuple(suspects)
    finally:
        free(found)


cdef tuple unfinished_in(Context context):
    """Describe the operations of a context that are not known to be complete, newest last."""
    return _suspects(context.domain)


cdef str _work(own_suspect *found):
    return f"{operation_name(found.operation.operation)} on" \
           f" {stream_name(found.number, found.kind)}"


cdef str _suspect(own_suspect *found):
    earlier = f" (and {found.earlier} before those listed)" if found.earlier else ""
    return f"{_work(found)}{earlier}, queued at {place(found.operation.site)}"
