"""Module: kernels and variables, loaded from PTX, a cubin or a fatbin.

State that outlives a call: the kernels and variables of each module (the GIL guards them).
"""

import difflib
import operator
import os
from pathlib import Path
from weakref import WeakValueDictionary

cimport cython
from libc.stdint cimport uint32_t
from libc.string cimport strlen

from cudadrv._arguments cimport Room, new_room
from cudadrv._buffer cimport Buffer
from cudadrv._device cimport Context, context_of
from cudadrv._driver cimport (
    CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_FOUND, CUDA_ERROR_NOT_SUPPORTED,
    CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS, CU_JIT_ERROR_LOG_BUFFER,
    CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, CU_JIT_GENERATE_DEBUG_INFO, CU_JIT_GENERATE_LINE_INFO,
    CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, CU_JIT_INPUT_CUBIN,
    CU_JIT_INPUT_FATBINARY, CU_JIT_INPUT_PTX, CU_JIT_LOG_VERBOSE,
    CU_JIT_MAX_REGISTERS, CU_JIT_OPTIMIZATION_LEVEL, CU_JIT_TARGET, CU_POINTER_ATTRIBUTE_IS_MANAGED,
    CUdeviceptr, CUfunction, CUjitInputType, CUjit_option, CUlinkState, CUmodule, CUresult,
    cuFuncGetName, has_answered, in_cuLinkAddData, in_cuLinkComplete, in_cuLinkCreate,
    in_cuLinkDestroy,
    in_cuModuleEnumerateFunctions, in_cuModuleGetFunction, in_cuModuleGetFunctionCount,
    in_cuModuleGetGlobal, in_cuModuleLoadDataEx, in_cuPointerGetAttribute, last_failure,
)
from cudadrv._errors cimport (
    close_at_end, is_sticky, refuse_uninitialized, report, uninitialized,
)
from cudadrv._memory cimport Memory, close_module, code_memory, show_memory, variable_memory
from cudadrv._engine cimport (
    OWN_REACH, OWN_READ, OWN_WRITE, engine, own_guard_enter, own_guard_leave, own_guard_reopen,
    own_guard_shut, own_memory_inherit,
)
from cudadrv._refusal cimport refuse_closed
from cudadrv._release cimport drain, drain_for_more
from cudadrv._site cimport birth

from cudadrv._buffers import DeviceBuffer, UnifiedBuffer
from cudadrv._cpp_names import normal, unmangled
from cudadrv._driver import is_software
from cudadrv._errors import CudaImageError, CudaNotFoundError, OwnershipError
from cudadrv._image import Image, checked_image
from cudadrv._ptx import Text

# ---- loading: options, and the log of the JIT compiler ----

cdef enum:
    MOST_OPTIONS = 10
    LOG_BYTES = 1 << 14


cdef list compiler_options(
    object max_registers, object optimization_level, object target, bint lineinfo, bint debug_info,
    bint verbose
):
    """Return the options of the driver's compiler, each as (option, value), or raise."""
    options = []
    if max_registers is not None:
        number = _number("max_registers", max_registers, 1, 1 << 16)
        options.append((CU_JIT_MAX_REGISTERS, number))
    if optimization_level is not None:
        number = _number("optimization_level", optimization_level, 0, 4)
        options.append((CU_JIT_OPTIMIZATION_LEVEL, number))
    if target is not None:
        options.append((CU_JIT_TARGET, _target_number(target)))
    for option, wanted in ((CU_JIT_GENERATE_LINE_INFO, lineinfo),
                           (CU_JIT_GENERATE_DEBUG_INFO, debug_info),
                           (CU_JIT_LOG_VERBOSE, verbose)):
        if wanted:
            options.append((option, 1))
    return options


cdef object _number(str name, object value, long least, long most):
    number = operator.index(value)
    if not least <= number <= most:
        raise ValueError(f"{name} is {number}, and must be from {least} to {most}")
    return number


cdef object _target_number(object target):
    """Return the CUjit_target of a compute capability: 10 times the major plus the minor number."""
    try:
        major, minor = target
        number = 10 * operator.index(major) + operator.index(minor)
    except (TypeError, ValueError):
        raise TypeError("target must be a compute capability such as (7, 5), not"
                        f" {target!r}") from None
    if not 0 <= number < 1 << 31:
        raise ValueError(f"target is {target!r}, and there is no such compute capability")
    return number


cdef struct Log:
    # The options of a call of the driver's compiler or linker, and where it writes its two logs.
    CUjit_option names[MOST_OPTIONS]
    void *values[MOST_OPTIONS]
    unsigned int count
    char info[LOG_BYTES]
    char errors[LOG_BYTES]


cdef int _begin_log(Log *log, list options) except -1:
    """Fill in the options. The struct must not be moved while the driver writes its logs."""
    log.info[0] = log.errors[0] = 0
    options = options + [(CU_JIT_INFO_LOG_BUFFER, <size_t>&log.info[0]),
                         (CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, LOG_BYTES),
                         (CU_JIT_ERROR_LOG_BUFFER, <size_t>&log.errors[0]),
                         (CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, LOG_BYTES)]
    for i, (option, value) in enumerate(options):
        log.names[i] = option
        log.values[i] = <void *><size_t>value
    log.count = <unsigned int>len(options)
    return 0


cdef str load_image(Memory code, object image, list options, str called):
    """Load an image. `code` owns the CUmodule as soon as the driver has made it.

    Returns the info log of the driver's compiler. Raises CudaImageError with the error log of the
    compiler.
    """
    cdef Context context = code.context
    cdef const char *data = <bytes>image.data
    cdef CUmodule raw = NULL
    cdef CUresult status
    cdef Log log
    _begin_log(&log, options)
    with nogil:
        status = in_cuModuleLoadDataEx(
            context.raw, &raw, data, log.count, log.names, log.values)
    if status == CUDA_SUCCESS:
        code.address = <CUdeviceptr><size_t>raw
        # A compressed image does not show which functions it calls.
        if b"vprintf" in image.data or image.kind == "a fatbin":
            context.prints = True
        return _text(log.info)
    _refuse_image(context, status, &log, f"{called} is {image.kind} of {len(image.data)} bytes")


cdef int _refuse_image(Context context, CUresult status, Log *log, str what) except -1:
    """Raise the exception for an image that the driver cannot load or link."""
    if status in (CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_OUT_OF_MEMORY) or is_sticky(status):
        context.check(status)
    call = last_failure().decode()
    text = _text(log.errors)
    raise CudaImageError(<int>status, call, f"{what}\n{text}" if text else what, text)


# ---- linking ----

cdef dict INPUTS = {"PTX": <int>CU_JIT_INPUT_PTX, "a cubin": <int>CU_JIT_INPUT_CUBIN,
                    "a fatbin": <int>CU_JIT_INPUT_FATBINARY}
cdef tuple ONE_IMAGE = (str, bytes, bytearray, memoryview, os.PathLike)


cdef tuple _inputs(object images):
    """Return (name, checked image) of each image to link. Raises TypeError or ValueError."""
    if isinstance(images, ONE_IMAGE):
        raise TypeError("link takes a list of images, such as [first, second]; one image alone is"
                        " loaded by Module(image)")
    found = []
    for image in images:
        name = f"image {len(found) + 1}"
        if isinstance(image, os.PathLike):
            name, image = os.path.basename(image), Path(image).read_bytes()
        try:
            found.append((name, checked_image(image)))
        except (TypeError, ValueError) as error:
            raise type(error)(f"{name}: {error}") from None
    if not found:
        raise ValueError("link takes at least one image, and got none")
    return tuple(found)


cdef tuple _link(Context context, tuple inputs, list options, str called):
    """Link images. Returns the linked image, and the info log of the linker."""
    cdef Log log
    _begin_log(&log, options)
    cdef CUlinkState link = NULL
    cdef CUresult status
    cdef void *image = NULL
    cdef size_t nbytes = 0
    cdef bytes data, encoded
    cdef char *start
    cdef const char *label
    cdef int kind
    with nogil:
        status = in_cuLinkCreate(context.raw, log.count, log.names, log.values, &link)
    if status != CUDA_SUCCESS:
        _refuse_image(context, status, &log, f"{called} cannot be linked")
    try:
        for name, each in inputs:
            data, encoded, kind = each.data, name.encode(errors="replace"), INPUTS[each.kind]
            start, label, nbytes = data, encoded, len(data)
            with nogil:
                status = in_cuLinkAddData(context.raw, link, <CUjitInputType>kind, start, nbytes,
                                          label, 0, NULL, NULL)
            if status != CUDA_SUCCESS:
                what = f"{called} cannot be linked: {name} is {each.kind} of {len(data)} bytes"
                _refuse_image(context, status, &log, what)
        with nogil:
            status = in_cuLinkComplete(context.raw, link, &image, &nbytes)
        if status != CUDA_SUCCESS:
            names = ", ".join(dict(inputs))
            _refuse_image(context, status, &log, f"{called} cannot be linked from {names}")
        # The image ends with the link.
        return Image((<char *>image)[:nbytes], "linked code", _joined_text(inputs)), _text(log.info)
    finally:
        with nogil:
            status = in_cuLinkDestroy(context.raw, link)
        report(status)  # a failure of the call does not affect the linked code


cdef str _joined_text(tuple inputs):
    """Return the PTX of all inputs, or None if one of them is not PTX."""
    texts = []
    for _, each in inputs:
        if each.text is None:
            return None
        texts.append(each.text)
    return "\n".join(texts)


cdef str _text(char *log):
    log[LOG_BYTES - 1] = 0
    return log[:strlen(log)].decode(errors="replace").strip()


# ---- modules ----

@cython.final
cdef class Module:
    """Module(image, *, device=None, name=None, max_registers=None, optimization_level=None, \
target=None, lineinfo=False, debug_info=False, verbose=False)\n--\n
    Kernels and variables in a context: ``module["saxpy"]`` is a kernel.

    Parameters
    ----------
    image : str or bytes-like
        PTX text, which the driver compiles, or the bytes of a cubin or a fatbin.
    device : Device, optional
        The device into whose primary context it is loaded; default: the current context.
    name : str, optional
        Shown in messages.
    max_registers : int, optional
        The most registers that a thread may use. This and the following options are for the
        driver's compiler.
    optimization_level : int, optional
        From 0 to 4; default: 4.
    target : (int, int), optional
        The compute capability to compile for; default: the device's.
    lineinfo : bool, optional
        Whether the code contains the line numbers of its source.
    debug_info : bool, optional
        Whether the code contains what a debugger needs.
    verbose : bool, optional
        Whether `log` is verbose.

    Loading may block in the driver. It does not order any work.

    Attributes
    ----------
    context : Context
    name : str
    log : str
        The log of the driver's compiler; "" if it is empty.

    Raises
    ------
    TypeError, ValueError
        The image is empty, truncated or of another format; an option is not valid.
    CudaImageError
        The driver cannot load the image. The message contains the compiler's log.

    Driver function: cuModuleLoadDataEx.
    """

    def __init__(
        self, image, *, device=None, name=None, max_registers=None, optimization_level=None,
        target=None, bint lineinfo=False, bint debug_info=False, bint verbose=False
    ):
        shown = _checked_label(name)
        options = compiler_options(
            max_registers, optimization_level, target, lineinfo, debug_info, verbose)
        given = checked_image(image)
        context = context_of(device)
        context.usable()
        drain_for_more()
        _load(self, context, given.kind if shown is None else shown, given, options, "")

    @classmethod
    def link(
        cls, images, *, device=None, name=None, max_registers=None, optimization_level=None,
        target=None, bint lineinfo=False, bint debug_info=False, bint verbose=False
    ):
        """Link several images, and load the result as one module.

        So a kernel can call functions and use variables of another image, if both were compiled to
        be linked: PTX of ``nvcc -rdc=true``, or a cubin or fatbin with such code. Blocks in the
        driver. Does not order any work.

        Parameters
        ----------
        images : iterable of images, or of paths
            Each is PTX, a cubin or a fatbin as for `Module`, or the `pathlib.Path` of a file.
        device, name, max_registers, optimization_level, target, lineinfo, debug_info, verbose
            As for `Module`; the options are for the linker. ``name`` defaults to
            ``"linked code"``.

        Returns
        -------
        Module
            Its `log` is the linker's log. Names and types of parameters, and which variables a
            kernel uses, are known if all images are PTX.

        Raises
        ------
        TypeError, ValueError
            As for `Module`, with the number or the file name of the image; there is no image.
        CudaImageError
            The linker refuses an image, or a name is not defined, or is defined twice. The message
            contains the linker's log.
        OSError
            A file cannot be read.

        Driver functions: cuLinkCreate, cuLinkAddData, cuLinkComplete, cuLinkDestroy;
        cuModuleLoadDataEx.
        """
        cdef Module module
        shown = _checked_label(name)
        options = compiler_options(
            max_registers, optimization_level, target, lineinfo, debug_info, verbose)
        inputs = _inputs(images)
        context = context_of(device)
        context.usable()
        drain_for_more()
        shown = "linked code" if shown is None else shown
        linked, log = _link(context, inputs, options, f"Module {shown!r}")
        module = cls.__new__(cls)
        _load(module, context, shown, linked, [], log)
        return module

    @classmethod
    def from_file(cls, path, **options):
        """Load a .ptx, .cubin or .fatbin file.

        Options are as for `Module`; ``name`` defaults to the file's name. Raises OSError if the
        file cannot be read, and what `Module` raises.
        """
        options.setdefault("name", os.path.basename(path))
        return cls(Path(path).read_bytes(), **options)

    @property
    def context(self):
        """The context that the module is loaded into."""
        return self.context

    @property
    def name(self):
        """The module's name in messages."""
        return self.name

    @property
    def handle(self):
        """The CUmodule as an int, for other libraries. cudadrv does not see how they use it."""
        self.usable()
        return <size_t>self.raw()

    @property
    def log(self):
        """The log of the driver's compiler; "" if it is empty."""
        return self.log

    @property
    def device(self):
        """The device of the module's context."""
        return None if self.context is None else self.context.device

    @property
    def closed(self):
        """Whether the module was closed."""
        return self.code is None or bool(self.code.state.closed)

    def __getitem__(self, name):
        """__getitem__($self, name, /)\n--\n
        Return the kernel of a name.

        The name is the one in the PTX, which C++ mangles unless it is declared ``extern "C"``; or
        the C++ name, with or without namespaces, if only one kernel of the module has it
        (``module["scale"]``); or one of the ``names`` that `toolkit.compile` was asked for
        (``module["scale<float>"]``).

        Raises CudaNotFoundError if there is no such kernel (the message suggests similar names), or
        if several have the C++ name, TypeError if the name is not a str, and BufferClosedError if
        the module is closed.

        Driver functions: cuModuleGetFunction, and those that `Kernel` names.
        """
        self.usable()
        kernel = self.kernels.get(_checked_name(name))
        if kernel is None:
            name = _name_in_image(self, name, True)
            kernel = self.kernels.get(name)
        if kernel is None:
            from cudadrv._kernel import kernel_of
            # `setdefault` gives the same object to threads that come here at the same time.
            kernel = self.kernels.setdefault(name, kernel_of(self, name))
        return kernel

    def __contains__(self, name):
        """__contains__($self, name, /)\n--\n
        Whether ``module[name]`` finds a kernel (cuModuleGetFunction)."""
        self.usable()
        return isinstance(name, str) and _find(self, _name_in_image(self, name, False)) is not None

    def __iter__(self):
        """__iter__($self, /)\n--\n
        Iterate over the names of the kernels.

        For an image that is not PTX, raises CudaError if the driver is older than CUDA 12.4.

        Driver functions, for an image that is not PTX: cuModuleGetFunctionCount,
        cuModuleEnumerateFunctions, cuFuncGetName.
        """
        self.usable()
        return iter(_names(self))

    def global_(self, str name not None, dtype="u1"):
        """Return a buffer over a whole variable of the module, as items of a dtype. Does not block.

        The buffer is a `UnifiedBuffer` if the variable is managed, else a `DeviceBuffer`. It keeps
        the module's code loaded, and is closed together with the module. Launches of kernels that
        may use the variable borrow it, including launches before this call: see docs/kernels.md.

        Raises
        ------
        CudaNotFoundError
            There is no such variable.
        TypeError, ValueError
            The dtype is not valid, or the variable's size is not a multiple of its item size.

        Driver functions: cuModuleGetGlobal, cuPointerGetAttribute.
        """
        cdef Buffer buffer
        cdef Memory memory
        self.usable()
        memory = _variable(self, name, True)
        cls = UnifiedBuffer if memory.state.managed else DeviceBuffer
        buffer = cls.__new__(cls)
        buffer.stand_for(memory, dtype, name)
        show_memory(memory)
        return buffer

    def close(self):
        """Unload the module when the device is idle. Closing twice does nothing.

        Signals such as Ctrl-C interrupt the wait, and then the module stays loaded.

        Raises BufferBorrowedError while one of its kernels may be running or one of its variables
        is in use, BufferExportedError while the host has a view of a variable, and OwnershipError
        while another thread looks up a kernel or a variable, or asks about one. The module then
        stays loaded. A module that dies without `close` is unloaded once its kernels are complete.
        Driver function: cuModuleUnload.
        """
        if self.closed:
            return
        if not own_guard_shut(&self.guard, 0):
            raise OwnershipError(
                f"cannot close {self.called()}: another thread is just closing it, or asking the"
                " driver about its kernels or variables. Close it when that call has returned")
        try:
            close_module(self.code, list(self.variables.values()))
        except BaseException:
            own_guard_reopen(&self.guard)
            raise
        drain(False)

    def __enter__(self):
        """``with module:`` closes it at the end of the block."""
        self.usable()
        return self

    def __exit__(self, kind, exception, traceback):
        """Close the module.

        If closing fails while an exception propagates, a note is added to that exception.
        """
        close_at_end(self, exception, "module")

    def __repr__(self):
        if self.code is None:
            return uninitialized(self)
        closed = ", closed" if self.closed else ""
        return f"<Module {self.name!r}{closed}, device {self.context.device.ordinal}>"

    cdef CUmodule raw(self) noexcept nogil:
        return <CUmodule><size_t>self.code.address

    cdef int usable(self) except -1:
        """Raise if the module is closed, the context lost, or the process forked.

        After a reset of the software driver, load the module again.
        """
        if self.code is None:
            refuse_uninitialized(self)
        if self.image is not None and self.context.replaced and self.context.primary \
                and not self.code.state.closed:
            _load_again(self)
        self.context.usable()
        if self.code.state.closed:
            refuse_closed(self.called(), self.code.closed_at)
        return 0

    cdef int begin_call(self) except -1:
        """Keep the module loaded until `end_call`, or raise as `usable`.

        Launches need no such call: the engine knows that they use the module.
        """
        self.usable()
        if not own_guard_enter(&self.guard):    # a thread is just closing the module
            refuse_closed(self.called())
        return 0

    cdef void end_call(self) noexcept nogil:
        own_guard_leave(&self.guard)

    cdef str called(self):
        """Return the module's name in messages."""
        return self.code.label


cdef str _checked_label(object name):
    if name is not None and not isinstance(name, str):
        raise TypeError(f"name must be a str, not {type(name).__name__}")
    return name


cdef int _load(
    Module module, Context context, str shown, object given, list options, str log
) except -1:
    """Initialize a module with an image. `log` is what the linker has logged."""
    label = f"Module {shown!r}"
    text = Text(given.text) if given.text is not None else None
    kernels, variables, unlisted = WeakValueDictionary(), {}, []
    code = code_memory(context, label)
    found = load_image(code, given, options, label) if module.code is None else None
    # Another thread, or code that was run by an argument, may have loaded the module meanwhile.
    if module.code is not None:
        raise TypeError("this Module is loaded already")
    module.context, module.name, module.text = context, shown, text
    module.log = "\n".join(filter(None, (log, found)))
    module.kernels, module.variables, module.unlisted = kernels, variables, unlisted
    module.image, module.options = given if is_software() else None, options
    module.code, module.birth = code, birth()
    return 0


cdef int _load_again(Module module) except -1:
    """Load a module into the primary context that has replaced its own (`testing.reset_device`).

    Programs keep modules in caches, which would otherwise be of no use after one fault in a test.
    """
    cdef Context lost = module.context
    cdef Context context = context_of(lost.device)
    cdef Memory old = module.code
    variables, unlisted = module.variables, module.unlisted
    code = code_memory(context, old.label)
    code.site = old.site
    load_image(code, module.image, module.options, old.label)
    if module.context is not lost:     # another thread has loaded it meanwhile
        return 0
    module.context, module.code, module.variables, module.unlisted = context, code, {}, []
    module.birth = birth() >> 32 << 32 | <uint32_t>module.birth
    module.changes += 1
    try:
        from cudadrv._kernel import renew_kernel
        for kernel in module.kernels.values():
            renew_kernel(kernel)
    except BaseException:
        module.context, module.code = lost, old
        module.variables, module.unlisted = variables, unlisted
        raise
    return 0


def birth_of_module(Module module not None):
    """Return the module's birth (_site.pyx)."""
    return module.birth


def loaded_code(Module module not None):
    """Return what identifies the code of a module: equal if one line has loaded it twice."""
    return id(module.context), <uint32_t>module.birth, module.image.data


# ---- names ----

cdef str _checked_name(object name):
    if not isinstance(name, str):
        raise TypeError(f"a kernel's name is a str, not {type(name).__name__}")
    return name


cdef str _name_in_image(Module module, str name, bint must):
    """Return the name that a kernel has in the image, for the name that the program uses.

    Returns the given name if there is no kernel of that name. With `must`, raises CudaNotFoundError
    if several kernels have it.
    """
    if module.text is not None:
        if name in module.text.kernels:
            return name
        if module.text.names:
            noted = module.text.names.get(normal(name))
            if noted is not None:
                return noted
    elif _find(module, name) is not None:
        return name
    found = []
    for each in _known_names(module):
        if name in unmangled(each):
            found.append(each)
    if len(found) > 1 and must:
        noted = {} if module.text is None else module.text.names
        known = {mangled: each for each, mangled in noted.items()}
        shown = []
        for each in found:
            shown.append(repr(known.get(each, each)))
        raise CudaNotFoundError(
            <int>CUDA_ERROR_NOT_FOUND, "cuModuleGetFunction",
            f"{module.called()} has {len(found)} kernels that C++ calls {name!r}; say which one:"
            f" {', '.join(shown)}")
    return found[0] if len(found) == 1 else name


cdef object _find(Module module, str name):
    """Return the handle of a kernel as an int, or None if the module has no such kernel."""
    cdef bytes encoded = name.encode()
    cdef const char *c_name = encoded
    cdef CUfunction found = NULL
    cdef CUresult status
    if b"\0" in encoded:
        return None
    module.begin_call()
    with nogil:
        status = in_cuModuleGetFunction(module.context.raw, &found, module.raw(), c_name)
        module.end_call()
    if has_answered(status, CUDA_ERROR_NOT_FOUND):
        return None
    module.context.check(status)
    return <size_t>found


def function_of(Module module not None, str name not None):
    """Return the CUfunction of a kernel as an int. Raises CudaNotFoundError."""
    found = _find(module, name)
    if found is None:
        _refuse_name(module, name, "kernel", "cuModuleGetFunction", _known_names(module))
    return found


cdef int _refuse_name(Module module, str name, str what, str call, list known) except -1:
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.4)
    other = _other_way(module, name, what)
    hint = ""
    if other is not None:
        hint = f"; it is a {other}"
    elif near:
        hint = f"; did you mean {' or '.join(map(repr, near))}?"
    elif known:
        hint = f"; it has {', '.join(map(repr, known[:8]))}"
    raise CudaNotFoundError(
        <int>CUDA_ERROR_NOT_FOUND, call, f"{module.called()} has no {what} {name!r}{hint}")


cdef str _other_way(Module module, str name, str what):
    """Return how to get what has this name, if that is not a `what`; else None."""
    if what == "variable" and name in _known_names(module):
        return f"kernel: module[{name!r}]"
    if what == "kernel" and module.text is not None and name in module.text.variables:
        return f"variable: module.global_({name!r})"
    return None


cdef list _known_names(Module module):
    """Return the names of the kernels, for hints; an empty list if the driver cannot list them."""
    try:
        return _names(module)
    except RuntimeError:
        return []


cdef list _names(Module module):
    cdef unsigned int count = 0
    cdef unsigned int i
    cdef const char *name = NULL
    cdef CUfunction *functions
    cdef CUresult status
    cdef Room room
    if module.text is not None:
        return list(module.text.kernels)
    names = []
    module.begin_call()
    try:
        with nogil:
            status = in_cuModuleGetFunctionCount(module.context.raw, &count, module.raw())
            module.context.check(status)
        room = new_room(count * sizeof(CUfunction))
        functions = <CUfunction *>room.start
        with nogil:
            status = in_cuModuleEnumerateFunctions(
                module.context.raw, functions, count, module.raw())
            module.context.check(status)
        for i in range(count):
            with nogil:
                module.context.check(cuFuncGetName(&name, functions[i]))
            names.append(name.decode(errors="replace"))
    finally:
        module.end_call()
    return names


# ---- variables ----

cdef list variables_of(Module module, str kernel):
    """Return (Memory, mode) of each variable that a kernel uses according to the PTX text."""
    found = []
    if module.text is not None:
        for name, written in module.text.reached(kernel).items():
            found.append((_variable(module, name, False), OWN_WRITE if written else OWN_READ))
    return found


cdef Memory _variable(Module module, str name, bint must):
    """Return the Memory of a variable. All buffers over the variable and all launches share it.

    If the driver does not know the variable, the result depends on `must`: True raises
    CudaNotFoundError, False returns a Memory of one byte that stands for the variable.
    """
    cdef CUdeviceptr address = 0
    cdef size_t nbytes = 1
    cdef bint managed = False
    cdef Memory memory
    if name in module.variables and (must <= ((<Memory>module.variables[name]).address != 0)):
        return module.variables[name]
    if not _locate(module, name, &address, &nbytes, &managed) and must:
        known = sorted(module.text.variables) if module.text is not None else []
        _refuse_name(module, name, "variable", "cuModuleGetGlobal", known)
    kind = "UnifiedBuffer" if managed else "DeviceBuffer"
    memory = variable_memory(module.context, address, nbytes, module.code, f"{kind} {name!r}")
    memory.state.managed = managed
    unlisted = module.unlisted + [memory]
    is_listed = module.text is not None and name in module.text.variables
    # No other thread runs from this check to the addition.
    if name not in module.variables:
        module.variables[name] = memory
        if not is_listed and not _unlisted(module, memory, unlisted):
            del module.variables[name]
            raise MemoryError()
    return module.variables[name]


cdef bint _unlisted(Module module, Memory memory, list unlisted) except -1:
    """Record that every kernel of the module may use a variable. Earlier launches count, too.

    Returns False if memory ran out. A launch that another thread is queuing now is not missed.
    Either the engine has recorded the launch before `own_memory_inherit` copies the module's uses
    to the variable, or the launch notices that `changes` has grown, and starts again.
    """
    former, module.unlisted = module.unlisted, unlisted
    module.changes += 1
    if own_memory_inherit(engine, memory.state, module.code.state, OWN_REACH):
        return True
    module.unlisted = former
    module.changes += 1
    return False


cdef bint _locate(
    Module module, str name, CUdeviceptr *address, size_t *nbytes, bint *managed
) except -1:
    """Find the address and size of a variable, and whether it is managed memory.

    Returns False if the module has no such variable.
    """
    cdef bytes encoded = name.encode()
    cdef const char *c_name = encoded
    cdef int is_managed = 0
    cdef CUresult status
    cdef CUresult answer = CUDA_SUCCESS
    if b"\0" in encoded:  # the driver would stop at the NUL and look up a shorter name
        return False
    module.begin_call()
    with nogil:
        status = in_cuModuleGetGlobal(module.context.raw, address, nbytes, module.raw(), c_name)
        if status == CUDA_SUCCESS:
            answer = in_cuPointerGetAttribute(
                module.context.raw, &is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address[0])
        module.end_call()
    if has_answered(status, CUDA_ERROR_NOT_FOUND):
        return False
    if has_answered(status, CUDA_ERROR_INVALID_VALUE) and name in _known_names(module):
        return False
    module.context.check(status)
    if has_answered(answer, CUDA_ERROR_INVALID_VALUE) and (
            module.text is None or name not in module.text.variables
            or name in module.text.constants):
        is_managed = 0  # cuPointerGetAttribute does not know addresses of constant memory
    else:
        module.context.check(answer)
    managed[0] = is_managed & 1
    return True
