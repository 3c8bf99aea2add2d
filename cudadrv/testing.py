"""Control of the software driver, for tests of programs that use cudadrv.

Everything here needs the software driver (``CUDADRV_DRIVER=software``), and says so with a
RuntimeError when another one is loaded. The settings are those of the environment variable
``CUDADRV_SOFTWARE``. Under pytest, the fixtures of cudadrv's plugin do most of this for you: see
docs/testing.md.
"""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

from cudadrv._device import forget_contexts
from cudadrv._library import driver_info

__all__ = [
    "calls",
    "configure",
    "configured",
    "drain",
    "fail",
    "forget_races",
    "kernel_fault",
    "live_objects",
    "pending",
    "races",
    "reset_device",
    "settings",
    "unsupported_calls",
]

KINDS = (
    *("device", "async", "host", "managed", "registered"),
    *("streams", "events", "contexts", "modules", "libraries", "links"),
)

_opened: ctypes.CDLL | None = None


def _library() -> ctypes.CDLL:
    global _opened
    if _opened is not None:
        return _opened
    info = driver_info()
    if not info.is_software:
        raise RuntimeError(
            f"cudadrv.testing controls the software driver, and {info.path} is a real one; "
            "set CUDADRV_DRIVER=software before the first use"
        )
    library = ctypes.CDLL(info.path)
    library.cudadrvSoftConfigure.argtypes = [ctypes.c_char_p]
    library.cudadrvSoftSettings.restype = ctypes.c_char_p
    library.cudadrvSoftError.restype = ctypes.c_char_p
    library.cudadrvSoftCount.argtypes = [ctypes.c_char_p]
    library.cudadrvSoftCount.restype = ctypes.c_ulonglong
    library.cudadrvSoftCalls.argtypes = [ctypes.c_char_p]
    library.cudadrvSoftCalls.restype = ctypes.c_ulonglong
    library.cudadrvSoftUnsupported.argtypes = [ctypes.c_ulonglong]
    library.cudadrvSoftUnsupported.restype = ctypes.c_char_p
    library.cudadrvSoftPending.restype = ctypes.c_ulonglong
    library.cudadrvSoftRaces.restype = ctypes.c_ulonglong
    library.cudadrvSoftRaceText.argtypes = [ctypes.c_ulonglong]
    library.cudadrvSoftRaceText.restype = ctypes.c_char_p
    library.cudadrvSoftFaultText.restype = ctypes.c_char_p
    _opened = library
    return library


def configure(text: str) -> None:
    """Change settings, until they are changed again.

    Parameters
    ----------
    text
        Such as ``"schedule=random,seed=7"``. What it does not name stays as it is. A ``seed=``
        starts the random choices from the beginning.

    Raises
    ------
    ValueError
        A setting cannot be: the software driver's words. Then nothing has changed.
    """
    if _library().cudadrvSoftConfigure(text.encode()):
        raise ValueError(_library().cudadrvSoftError().decode())


def settings() -> dict[str, str]:
    """Say which settings are in force, all but the faults."""
    text = _library().cudadrvSoftSettings().decode()
    return dict(item.split("=", 1) for item in text.split(",") if item)


@contextmanager
def configured(text: str) -> Iterator[None]:
    """Change settings for the length of a ``with`` block.

    At its end the settings that it named have their former values again; if it set a fault, there
    are no faults any more.

    Parameters
    ----------
    text
        As for `configure`.

    Raises
    ------
    ValueError
        A setting cannot be, or, at the end of the block, cannot be changed back (the number of
        devices, while a context is alive).
    """
    former = settings()
    configure(text)
    try:
        yield
    finally:
        named = {item.partition("=")[0] for item in text.split(",") if item}
        back = [f"{name}={former[name]}" for name in former if name in named]
        configure(",".join([*back, "fault=none"] if "fault" in named else back))


def fail(function: str, status: int, *, nth: int = 1) -> None:
    """Let a call of a driver function fail, once; the driver does nothing in that call.

    Of the plugin's fixtures, each starts and ends without faults. Otherwise
    ``configure("fault=none")`` takes back those that have not happened yet.

    Parameters
    ----------
    function
        Its exported name, such as ``"cuMemAlloc_v2"``; per-thread variants count as the same.
    status
        What the call returns: a `cudadrv.CUresult`, from 1 to 999. A sticky one (700, 719, ...)
        loses the device: only `reset_device` brings it back.
    nth
        Which call from now on, 1 for the next.

    Raises
    ------
    ValueError
        There is no such function, or the status or the number cannot be.
    """
    configure(f"fault={function}:{int(nth)}:{int(status)}")


def live_objects() -> dict[str, int]:
    """How many objects of each kind the driver has: what a program has not given back."""
    return {kind: _library().cudadrvSoftCount(kind.encode()) for kind in KINDS}


def calls(function: str = "") -> int:
    """How often a driver function was called, by its exported name; all functions without one."""
    return int(_library().cudadrvSoftCalls(function.encode()))


def unsupported_calls() -> dict[str, int]:
    """How often functions were called that the software driver does not implement, by name.

    Each such call returned ``CUDA_ERROR_NOT_SUPPORTED``.
    """
    counted: dict[str, int] = {}
    while name := _library().cudadrvSoftUnsupported(len(counted)):
        counted[name.decode()] = calls(name.decode())
    return counted


def pending() -> int:
    """How many queued operations have not run yet."""
    return int(_library().cudadrvSoftPending())


def drain() -> None:
    """Run everything that can run, without waiting for what cannot.

    The program has not waited for anything by that: what is not ordered stays a race.
    """
    _library().cudadrvSoftDrain()


def races() -> list[str]:
    """The data races that the driver has seen since `forget_races`, a text for each.

    Each names both operations; the same race again is counted in the first one's text.
    """
    found = range(_library().cudadrvSoftRaces())
    texts = [_library().cudadrvSoftRaceText(index) for index in found]
    return [text.decode() for text in texts if text is not None]


def reset_device() -> None:
    """Bring the software driver back to the state after its start, also after a lost context.

    All devices lose their contexts, and with them memory, streams, modules and unfinished work.
    cudadrv retains new primary contexts at the next use; an object from before raises
    ContextLostError in each call, and closing it is quiet. Host arrays that show page-locked or
    managed memory stay readable: their memory is not used again in this process.

    Races, faults and the text of `kernel_fault` are forgotten; settings stay as they are. No GPU
    can do this: there a lost context is lost for the process. Other libraries in the process lose
    their contexts, too, and no other thread may use a device during the call.
    """
    library = _library()
    forget_contexts()
    library.cudadrvSoftRenew()


def kernel_fault() -> str | None:
    """What the last kernel that ended by an error did wrong; None if there was none.

    Kernel, PTX line and thread, and what is known of the address: in, beyond or before which
    memory, and whether that was freed. It is also printed to stderr, unless the setting
    ``kernel_faults=record`` is in force.
    """
    text = _library().cudadrvSoftFaultText()
    return text.decode() if text else None


def forget_races() -> None:
    """Start over with an empty list of `races`."""
    _library().cudadrvSoftForgetRaces()
