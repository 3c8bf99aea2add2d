"""Control of the software driver, for tests of programs that use cudadrv.

Everything here needs the software driver (``CUDADRV_DRIVER=software``), and says so when another
one is loaded. The settings are those of the environment variable ``CUDADRV_SOFTWARE``.
"""

import ctypes

from cudadrv._library import driver_info

KINDS = ("device", "async", "host", "managed", "registered", "streams", "events", "contexts")

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
    _opened = library
    return library


def configure(settings: str) -> None:
    """Change settings at run time, such as ``"schedule=random,seed=7"`` or a ``fault=``.

    Raises ValueError, with the software driver's words, for a setting that cannot be.
    """
    if _library().cudadrvSoftConfigure(settings.encode()):
        raise ValueError(_library().cudadrvSoftError().decode())


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
    """Run everything that can run."""
    _library().cudadrvSoftDrain()


def races() -> list[str]:
    """The data races that the driver has seen since `forget_races`, a text for each.

    Each names both operations; the same race again is counted in the first one's text.
    """
    found = range(_library().cudadrvSoftRaces())
    texts = [_library().cudadrvSoftRaceText(index) for index in found]
    return [text.decode() for text in texts if text is not None]


def forget_races() -> None:
    """Start over with an empty list of `races`."""
    _library().cudadrvSoftForgetRaces()
