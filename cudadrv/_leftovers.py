"""Finds what a test leaves behind: leaks, data races, a lost device. The pytest plugin uses it."""

import gc
import time
from collections import Counter
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

from cudadrv import testing
from cudadrv._buffer import reap
from cudadrv._buffers import DeviceBuffer
from cudadrv._device import Context, Device, any_lost, birth_of_context, unfinished_work
from cudadrv._errors import ContextLostError
from cudadrv._event import Event, birth_of_event
from cudadrv._host_function import warm_up as make_words
from cudadrv._library import driver_info
from cudadrv._memory import live_buffers
from cudadrv._module import Module, birth_of_module, loaded_code
from cudadrv._records import LiveBuffer
from cudadrv._sharing import warm_up
from cudadrv._site import birthplace, last_birth
from cudadrv._stream import Stream, birth_of_stream

# The software driver's names for cudadrv's kinds of memory. It does not count foreign memory.
COUNTED_AS = {
    "device": "device",
    "stream-ordered": "async",
    "page-locked": "host",
    "managed": "managed",
    "registered": "registered",
    "array": "arrays",
}

# The kinds of objects whose births are known: the class, and the function that returns the birth.
WITH_BIRTH: dict[str, tuple[type, Callable[[Any], int]]] = {
    "streams": (Stream, birth_of_stream),
    "events": (Event, birth_of_event),
    "contexts": (Context, birth_of_context),
    "modules": (Module, birth_of_module),
}

OTHER_THREADS_S = 0.3  # how long other threads may take to drop their references

# Settings of the software driver that are restored before each test, because tests may change them.
RESTORED = ("memory", "races", "instructions", "kernel_faults", "threads", "checks", "hazards")

__all__ = ["Leftovers", "any_lost", "clean_device", "reset_if_lost", "settle"]

_warm: WeakSet[Context] = WeakSet()
_first_settings: dict[str, str] = {}


def clean_device(settings: str, *, pools: bool) -> Device:
    """Return device 0 without unfinished work, and restore the software driver's settings.

    Then applies `settings`. Raises ContextLostError if an earlier error lost a GPU's context.
    """
    try:
        reset_if_lost()
        return _clean_device(settings, pools)
    except ContextLostError:  # another library caused the error
        if not reset_if_lost():
            raise
        return _clean_device(settings, pools)


def reset_if_lost() -> bool:
    """Reset the software driver if an error has lost a context; return whether it was reset."""
    if not any_lost() or not driver_info().is_software:
        return False
    testing.reset_device()
    return True


def _clean_device(settings: str, pools: bool) -> Device:
    device = Device(0)
    if driver_info().is_software:
        if not _first_settings:
            _first_settings.update(testing.settings())
        text = [f"{name}={_first_settings[name]}" for name in RESTORED]
        testing.configure(",".join(["fault=none", *text]))
    _warm_up(device)
    if not pools:
        _leave_pools_off()
    settle(device)
    if driver_info().is_software:
        testing.forget_races()
        testing.forget_hazards()
        testing.configure(settings)
    return device


def settle(device: Device) -> None:
    """Wait for all work of the device, and free the memory of dropped buffers that it used."""
    if driver_info().is_software:
        testing.configure("fault=none")
        testing.drain()
    device.synchronize()
    reap()


def _warm_up(device: Device) -> None:
    """Make what a context keeps, streams, an event and words, so that no test seems to leak it."""
    if device.context in _warm:
        return
    DeviceBuffer(1, stream=Stream())
    buffer = DeviceBuffer(1)
    buffer.fill(0)
    with buffer.lend(None):
        pass
    with buffer.lend(Stream.legacy()):
        pass
    warm_up(device.context)
    make_words(device.context)
    _warm.add(device.context)


def _leave_pools_off() -> None:
    for ordinal in range(Device.count()):
        pools = Device(ordinal).context.pools
        for pool in (pools.device, pools.locked, pools.unified):
            pool.limit_bytes = 0


class Leftovers:
    """What was added since this object was made: buffers, other objects, races, unfinished work."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.software = driver_info().is_software
        self._buffers = Counter(live_buffers())
        self._objects = Counter(testing.live_objects() if self.software else {})
        self._unfinished = set(unfinished_work())
        self._born = last_birth()

    def races(self) -> list[str]:
        """Run all work that can run, and return the reports of data races. Empty on a GPU."""
        if not self.software:
            return []
        testing.drain()
        return testing.races()

    def hazards(self) -> list[str]:
        """Run all work that can run, and return what the checks inside kernels have found."""
        if not self.software:
            return []
        testing.drain()
        return [hazard.text for hazard in testing.hazards()]

    def unfinished(self) -> list[tuple[str, str]]:
        """Return the queued work that is not known to be complete: pairs of operation and line."""
        return [work for work in dict.fromkeys(unfinished_work()) if work not in self._unfinished]

    def finds_anything(self) -> bool:
        """Return whether anything new is alive now, even if it is about to be released."""
        settle(self.device)
        return bool(self._look())

    def leaks(self) -> list[str]:
        """Return a line for each new buffer and object, and one for each kind of unknown objects.

        A module is a leak if the same line has loaded the same code before, and that module is
        alive, too. Otherwise it is in a cache, which a later test uses.

        On a GPU only buffers are listed, because a real driver does not count its objects.
        """
        if self.finds_anything():
            gc.collect()  # takes longer than most tests, so it runs only if something was added
            settle(self.device)
        deadline = time.monotonic() + OTHER_THREADS_S
        while self._look() and time.monotonic() < deadline:
            time.sleep(0.002)  # other threads, such as the one of `await`, may be about to let go
            settle(self.device)
        return self._look()

    def _look(self) -> list[str]:
        buffers = Counter(live_buffers()) - self._buffers
        lines = [_line(buffer, count) for buffer, count in buffers.items()]
        if self.software:
            objects = Counter(testing.live_objects()) - self._objects
            for buffer, count in buffers.items():
                objects[COUNTED_AS.get(buffer.kind, "")] -= count
            for kind, count in objects.items():
                lines += self._objects_of(kind, count) if count > 0 else []
        return lines

    def _objects_of(self, kind: str, count: int) -> list[str]:
        """Return a line for each new object of a kind, and a line for those that are not known."""
        if kind not in WITH_BIRTH:
            return [_others(kind, count)]
        found = [thing for thing, birth in _alive(kind) if birth > self._born]
        unknown = count - len(found)
        leaks = found if kind != "modules" else _loaded_twice(found)
        lines = [f"{_named(thing)}, made at {_birthplace(kind, thing)}" for thing in leaks]
        return [*lines, f"{_others(kind, unknown)} of others"] if unknown > 0 else lines


def _alive(kind: str) -> list[tuple[Any, int]]:
    cls, birth_of = WITH_BIRTH[kind]
    things = [(each, birth_of(each)) for each in gc.get_objects() if isinstance(each, cls)]
    return sorted(things, key=lambda thing: thing[1])


def _loaded_twice(modules: list[Module]) -> list[Module]:
    """Return the modules whose code the same line has loaded before, into a live module."""
    first: dict[tuple[int, int, bytes], Module] = {}
    for module, _ in _alive("modules"):
        if not module.closed:
            first.setdefault(loaded_code(module), module)
    return [module for module in modules if first.get(loaded_code(module)) is not module]


def _named(thing: Any) -> str:
    name = getattr(thing, "name", None)
    return type(thing).__name__ + (f" {name!r}" if name else "")


def _birthplace(kind: str, thing: Any) -> str:
    return birthplace(WITH_BIRTH[kind][1](thing))


def _line(buffer: LiveBuffer, count: int) -> str:
    times = "" if count == 1 else f"{count} times "
    return (
        f"{times}{buffer.label}, {buffer.nbytes} bytes of {buffer.kind} memory, "
        f"made at {buffer.site}"
    )


def _others(kind: str, count: int) -> str:
    if kind.endswith("s"):
        return f"{count} {kind if count > 1 else kind[:-1]}"
    return f"{count} pieces of {kind} memory that no buffer holds"
