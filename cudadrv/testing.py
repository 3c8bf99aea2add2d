"""Control of the software driver, for tests of programs that use cudadrv.

All functions need the software driver (``CUDADRV_DRIVER=software``), and raise RuntimeError if
another driver is loaded. The settings are the same as in the environment variable
``CUDADRV_SOFTWARE``. Under pytest, the fixtures of cudadrv's plugin call most of these functions:
see docs/testing.md.
"""

import ctypes
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from cudadrv._buffer import Buffer
from cudadrv._device import forget_contexts
from cudadrv._library import driver_info
from cudadrv._observe import observations
from cudadrv._status import CUresult

__all__ = [
    "Hazard",
    "HazardAccess",
    "PageFaults",
    "calls",
    "configure",
    "configured",
    "drain",
    "fail",
    "forget_hazards",
    "forget_races",
    "hazards",
    "kernel_fault",
    "live_objects",
    "observe",
    "page_faults",
    "page_places",
    "pending",
    "races",
    "reset_device",
    "settings",
    "unsupported_calls",
]

KINDS = (
    *("device", "async", "host", "managed", "registered", "arrays", "reservations"),
    *("backings", "textures", "surfaces", "streams", "events", "contexts"),
    *("modules", "libraries", "links"),
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
    library.cudadrvSoftHazards.restype = ctypes.c_ulonglong
    library.cudadrvSoftHazard.argtypes = [ctypes.c_ulonglong]
    library.cudadrvSoftHazard.restype = ctypes.c_char_p
    library.cudadrvSoftFaultText.restype = ctypes.c_char_p
    numbers = ctypes.POINTER(ctypes.c_ulonglong)
    library.cudadrvSoftPageFaults.argtypes = [ctypes.c_ulonglong, ctypes.c_ulonglong, numbers]
    library.cudadrvSoftPagePlaces.argtypes = [
        *(ctypes.c_ulonglong, ctypes.c_ulonglong),
        *(ctypes.POINTER(ctypes.c_int), ctypes.c_ulonglong),
    ]
    _opened = library
    return library


def configure(text: str) -> None:
    """Change settings of the software driver, until they are changed again.

    Parameters
    ----------
    text
        Such as ``"schedule=random,seed=7"``. Settings that it does not name stay unchanged.
        ``seed=`` restarts the random choices.

    Raises
    ------
    ValueError
        A setting is not valid. The message comes from the software driver. No setting has changed.
    """
    if _library().cudadrvSoftConfigure(text.encode()):
        raise ValueError(_library().cudadrvSoftError().decode())


def settings() -> dict[str, str]:
    """Return the settings that are in force, without the faults."""
    text = _library().cudadrvSoftSettings().decode()
    return dict(item.split("=", 1) for item in text.split(",") if item)


@contextmanager
def configured(text: str) -> Iterator[None]:
    """Change settings inside a ``with`` block.

    At the end of the block, the settings in ``text`` get their former values back. If ``text`` set
    a fault, all faults are removed.

    Parameters
    ----------
    text
        As for `configure`.

    Raises
    ------
    ValueError
        A setting is not valid. At the end of the block: a setting cannot be changed back, such as
        the number of devices while a context is alive.
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
    """Make a call of a driver function fail, once. The driver does nothing else in that call.

    The plugin's fixtures start and end without faults. Elsewhere, ``configure("fault=none")``
    removes the faults that have not happened yet.

    Parameters
    ----------
    function
        The exported name of the function, such as ``"cuMemAlloc_v2"``. Per-thread variants count as
        the same function.
    status
        The status that the call returns: a `cudadrv.CUresult`, from 1 to 999. A sticky status (700,
        719, ...) loses the device; only `reset_device` brings it back.
    nth
        Which call from now on: 1 for the next one.

    Raises
    ------
    ValueError
        There is no such function, or ``status`` or ``nth`` is not valid.
    """
    configure(f"fault={function}:{int(nth)}:{int(status)}")


def observe(value: object) -> None:
    """Say that a value must be the same in all schedules.

    Does nothing unless the test or program is explored (``--cuda-schedule=explore``, or ``python -m
    cudadrv explore``). Then each call is compared with the same call in the first schedule.

    Parameters
    ----------
    value
        Anything. Arrays are compared byte by byte, other values by their ``repr``.

    Raises
    ------
    AssertionError
        The value differs from the value in the first schedule.

    Examples
    --------
    ::

        stream.synchronize()
        testing.observe(np.asarray(result))
    """
    observations.add(value)


def live_objects() -> dict[str, int]:
    """Return the number of objects of each kind that exist in the driver, by name of the kind."""
    return {kind: _library().cudadrvSoftCount(kind.encode()) for kind in KINDS}


def calls(function: str = "") -> int:
    """Return how often a driver function was called.

    ``function`` is its exported name; ``""`` counts the calls of all functions.
    """
    return int(_library().cudadrvSoftCalls(function.encode()))


def unsupported_calls() -> dict[str, int]:
    """Return how often each function was called that the software driver does not implement.

    Each such call returned ``CUDA_ERROR_NOT_SUPPORTED``.
    """
    counted: dict[str, int] = {}
    while name := _library().cudadrvSoftUnsupported(len(counted)):
        counted[name.decode()] = calls(name.decode())
    return counted


def pending() -> int:
    """Return how many queued operations have not run yet."""
    return int(_library().cudadrvSoftPending())


def drain() -> None:
    """Run all queued work that can run now. Does not wait for work that cannot run yet.

    The call is not a synchronization of the program. Work that the program has not ordered is still
    reported as a data race.
    """
    _library().cudadrvSoftDrain()


def races() -> list[str]:
    """Return the data races that the driver has seen since `forget_races`: a text for each.

    Each text names both operations. If the same race happens again, its text says how often.
    """
    found = range(_library().cudadrvSoftRaces())
    texts = [_library().cudadrvSoftRaceText(index) for index in found]
    return [text.decode() for text in texts if text is not None]


class HazardAccess(NamedTuple):
    """One of the two accesses of a `Hazard`.

    ``mode`` is "read", "write" or "atomic", or what an uninitialized value was used for (`Hazard`);
    for a wrong barrier it is the function of CUDA C or the instruction of PTX, such as
    "__syncthreads". ``file`` and ``line`` are the place in the source, if the code was compiled
    with lines (``-lineinfo``); otherwise ``file`` is None. In an inlined function, they are the
    place of the outermost call, and ``inner`` is the place in the function, such as "helper.h:12";
    otherwise ``inner`` is None. ``ptx_line`` is the line in the PTX. ``thread`` and ``block`` are
    the indices x, y and z.
    """

    mode: str
    file: str | None
    line: int
    inner: str | None
    ptx_line: int
    thread: tuple[int, int, int]
    block: tuple[int, int, int]


class Hazard(NamedTuple):
    """What a check inside kernels has found: see `hazards`.

    ``kind`` is "race", "uninitialized" or "barrier". ``kernel`` is the name of the kernel;
    ``memory`` names the memory: a buffer, a variable, or shared memory, and for a wrong barrier the
    barrier, such as "barrier 0"; ``start`` and ``stop`` are byte offsets in the memory. ``first``
    and ``second`` are the accesses; those of a race are in the order of the code; ``second`` is
    None if a barrier is wrong at one place. For an uninitialized value, ``first`` is where it was
    read, or None if no kernel has read it, and ``second`` where it was used: its ``mode`` is then
    such as "condition of a branch", or "copy" for a copy to the host (with the line of Python). If
    a value was updated by an atomic, ``second`` is None. ``benign`` is whether both accesses wrote,
    and the later one stored the bytes that were there already. ``count`` is how often this happened
    at these two lines, and ``text`` says all of this, and what to do.
    """

    kind: str
    kernel: str
    memory: str
    start: int
    stop: int
    first: HazardAccess
    second: HazardAccess | None
    benign: bool
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody needs
    text: str


def hazards(*, benign: bool = False) -> list[Hazard]:
    """Return what the checks inside kernels have found since `forget_hazards`.

    Only the setting ``checks=race+init+sync`` turns these checks on; without it the list is empty.
    A race is two accesses of different threads of one launch to the same byte of shared or global
    memory, at least one of them a write, that are not both atomic and that nothing orders: no
    barrier, and no fence with an atomic access. With ``init``, uses of values that nobody has
    written are found, and with ``sync`` wrong barriers and masks.
    The same two lines in the same kernel and memory are one hazard.

    Parameters
    ----------
    benign : bool
        Also return races whose second write stored the bytes that were there already.

    Examples
    --------
    ::

        with testing.configured("checks=race"):
            kernel.launch(1, 64, output, stream=stream)
            stream.synchronize()
        assert not testing.hazards()
    """
    library = _library()
    texts = [library.cudadrvSoftHazard(index) for index in range(library.cudadrvSoftHazards())]
    found = [_hazard(json.loads(text)) for text in texts if text is not None]
    return [hazard for hazard in found if benign or not hazard.benign]


def _hazard(record: dict[str, Any]) -> Hazard:
    first, second = (
        access and HazardAccess(**access | {key: tuple(access[key]) for key in ("thread", "block")})
        for access in (record["first"], record["second"])
    )
    return Hazard(**record | {"first": first, "second": second})


def forget_hazards() -> None:
    """Empty the list that `hazards` returns."""
    _library().cudadrvSoftForgetHazards()


def reset_device() -> None:
    """Reset the software driver to its state after the start, even after a lost context.

    All devices lose their contexts, and with them memory, streams, modules and unfinished work.
    cudadrv retains new primary contexts at the next use. Modules of primary contexts, and their
    kernels, are loaded again when they are used, because programs keep them in caches. Calls on
    other older objects raise ContextLostError, but closing these objects raises nothing. Host
    arrays over page-locked or managed memory stay readable, because that memory is not used again
    in this process.

    Data races, hazards, faults and the text of `kernel_fault` are forgotten; settings stay
    unchanged. On a GPU this is not possible: a lost context is lost for the process. Other
    libraries in the process lose their contexts, too, and no other thread may use a device during
    the call.
    """
    library = _library()
    forget_contexts()
    library.cudadrvSoftRenew()


def kernel_fault() -> str | None:
    """Return a text that says what the last failed kernel did wrong; None if no kernel has failed.

    The text names the kernel, the PTX line and the thread. It also names the memory in which, or
    near which, the address lies, and the line that launched the kernel. If that memory was freed,
    the text names the last buffer that had it, and the lines that made and closed this buffer. The
    text is also printed to stderr, unless the setting ``kernel_faults=record`` is in force.
    """
    text = _library().cudadrvSoftFaultText()
    return text.decode() if text else None


class PageFaults(NamedTuple):
    """How often blocks of managed memory have moved because they were used elsewhere.

    ``host`` counts the moves to the host, ``device`` those to a device.
    """

    host: int
    device: int


def page_faults(buffer: Buffer) -> PageFaults:
    """Return how often managed memory has moved because it was used elsewhere.

    Counting begins when the memory is allocated. Memory moves in blocks of 64 KiB, which begin at
    multiples of 64 KiB: one fault moves the whole block in which the host or a device has used a
    byte. Uses by a device are counted when its work is done. These are not faults: the first use of
    memory, a prefetch, and a use by a device that can access the memory where it is. Memory with
    the advice "read mostly" is copied and not moved. The copy counts as a fault, but writes of the
    host to such memory are not seen.

    Parameters
    ----------
    buffer
        A `cudadrv.UnifiedBuffer` or a part of one. Every block that has one of its bytes counts.

    Raises
    ------
    ValueError
        The buffer is not managed memory.
    RuntimeError
        The system does not show ``/proc/self/pagemap``, which tells the driver what the host uses.
    """
    counts = (ctypes.c_ulonglong * 2)()
    function = _library().cudadrvSoftPageFaults
    _check_managed(function(buffer.address, buffer.nbytes, counts), buffer)
    return PageFaults(*counts)


def page_places(buffer: Buffer) -> list[int | str | None]:
    """Return where each page of managed memory is: the number of a device, ``"host"``, or None.

    None stands for pages that have not been used since they were allocated or discarded. A page has
    4096 bytes.

    Parameters
    ----------
    buffer
        A `cudadrv.UnifiedBuffer` or a part of one.

    Raises
    ------
    ValueError
        The buffer is not managed memory.
    RuntimeError
        As for `page_faults`.
    """
    size = buffer.nbytes
    count = (buffer.address % 4096 + size + 4095) // 4096
    places = (ctypes.c_int * count)()
    function = _library().cudadrvSoftPagePlaces
    _check_managed(function(buffer.address, size, places, count), buffer)
    names: dict[int, str | None] = {-1: "host", -2: None}
    return [names.get(place, place) for place in places]


def _check_managed(status: int, buffer: Buffer) -> None:
    if status == CUresult.CUDA_ERROR_NOT_SUPPORTED:
        raise RuntimeError(
            "the software driver cannot see which pages the host uses: the system does not show "
            "/proc/self/pagemap"
        )
    if status:
        raise ValueError(
            f"a {type(buffer).__name__} is not managed memory, and has no pages to move"
        )


def forget_races() -> None:
    """Empty the list that `races` returns."""
    _library().cudadrvSoftForgetRaces()
