"""Library: chooses a libcuda.so.1 by CUDADRV_DRIVER, and opens it on first use.

State that outlives a call: the path of the open library (guarded by a lock, held while it is
opened).
"""

import os
from _thread import RLock  # the RLock of threading, which is slow to import

from cudadrv._driver cimport (
    CUDA_ERROR_FILE_NOT_FOUND, CUDA_ERROR_NO_DEVICE, CUDA_ERROR_SHARED_OBJECT_INIT_FAILED,
    CUDA_SUCCESS, CUresult, cuDeviceGetCount, cuDriverGetVersion, cuInit, last_failure,
)
from cudadrv._errors cimport check, refuse_if_forked, status_of

from cudadrv._driver import explanation, hear_log, is_software, open_driver
from cudadrv._errors import DriverNotFoundError

SYSTEM_LIBRARY = "libcuda.so.1"
USE_SOFTWARE = "To run without a GPU, use the software driver: CUDADRV_DRIVER=software"

cdef bint _ready = False
_opening = RLock()
_path = None


def driver_info():
    """Return which driver is used. Loads the driver if it is not loaded yet.

    Returns
    -------
    DriverInfo
        ``name``, ``path``, ``version`` and ``is_software``.

    Raises
    ------
    DriverNotFoundError
        No driver can be loaded, or it has no usable device.
    ValueError
        ``CUDADRV_DRIVER`` or ``CUDADRV_SOFTWARE`` has a value that is not valid.
    ForkedError
        This process was forked from one that had loaded the driver.

    Driver functions: cuInit, cuDriverGetVersion.
    """
    cdef int version = 0
    from cudadrv._records import DriverInfo
    ensure_driver()
    with nogil:
        check(cuDriverGetVersion(&version))
    name = "cudadrv software driver" if is_software() else "CUDA driver"
    return DriverInfo(name, _path, (version // 1000, version % 1000 // 10), is_software())


cdef int ensure_driver() except -1:
    """Load the driver unless it is loaded. Raises ForkedError in a forked child."""
    if not _ready:
        _open()
    return refuse_if_forked()


def _forget_lock():
    global _opening
    _opening = RLock()


# If another thread held the lock during a fork, the lock would stay taken in the child.
os.register_at_fork(after_in_child=_forget_lock)


def _open():
    global _ready, _path
    refuse_if_forked()
    lock = _opening
    lock.acquire()
    try:
        if not _ready:
            _path = _choose()
            _start()
            status_of(CUDA_SUCCESS)  # loads `CUresult`; an error may come without free memory
            _ready = True
            _begin_as_asked()
    finally:
        lock.release()


def _begin_as_asked():
    """Begin what the environment asks for."""
    from cudadrv._environment import is_guarded, trace_file
    if trace_file():
        from cudadrv._tracing import begin_for_process
        begin_for_process()
    if is_guarded():
        from cudadrv._guarding import guard_process
        guard_process()


def open_now():
    """Open the driver, if it is not open yet."""
    ensure_driver()


def _choose():
    from cudadrv._environment import driver
    choice = driver()
    if choice == "auto":
        try:
            return open_driver(SYSTEM_LIBRARY)
        except OSError as reason:
            import logging  # not at the top, because most programs never need logging
            logging.getLogger("cudadrv").warning(
                "%s; using the software driver (not a GPU)", reason)
            return _load(software_path())
        except LookupError as reason:  # a driver is installed, so do not replace it silently
            raise _unusable(reason) from None
    if choice == "cuda":
        return _load(SYSTEM_LIBRARY)
    if choice == "software":
        return _load(software_path())
    return _load(choice)


def software_path():
    """Return the path of the software driver that is installed with this package."""
    from importlib.util import find_spec
    spec = find_spec("cudadrv._softdriver")
    if spec is None or spec.origin is None:
        raise DriverNotFoundError(
            <int>CUDA_ERROR_FILE_NOT_FOUND, "find_spec",
            "This installation of cudadrv was built without its software driver.")
    return spec.origin


def _load(path):
    try:
        return open_driver(path)
    except (OSError, LookupError) as reason:
        raise _unusable(reason) from None


def _unusable(reason):
    return DriverNotFoundError(
        <int>CUDA_ERROR_SHARED_OBJECT_INIT_FAILED, "dlopen",
        f"{reason}\nInstall an NVIDIA driver of CUDA 12.0 or newer, or point CUDADRV_DRIVER to its"
        f" {SYSTEM_LIBRARY}.\n{USE_SOFTWARE}")


def _start():
    cdef CUresult status
    cdef int count = 0
    with nogil:
        status = cuInit(0)
        if status == CUDA_SUCCESS:
            status = cuDeviceGetCount(&count)
    if status == CUDA_SUCCESS and count > 0:
        hear_log()
        return
    from cudadrv._environment import software_settings, visible_devices
    if explanation():
        raise ValueError(f"CUDADRV_SOFTWARE={software_settings()!r}: {explanation()}")
    call, code = last_failure().decode(), <int>status
    if status == CUDA_SUCCESS:
        call, code = "cuDeviceGetCount", <int>CUDA_ERROR_NO_DEVICE
    lines = [f"{_path} was loaded, but has no usable device."]
    hidden = visible_devices()
    if hidden is not None:
        lines.append(f"CUDA_VISIBLE_DEVICES={hidden!r} says which devices it may show.")
    lines.append(USE_SOFTWARE)
    raise DriverNotFoundError(code, call, "\n".join(lines))
