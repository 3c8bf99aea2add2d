"""The steps of a program that give devices access to memory of other devices, and its effects."""

from collections import Counter
from functools import cached_property

from oracle import CAPTURED, OK
from session import NO_ACCESS, UNFINISHED
from session_blocks import BlockSession

# Stands for the pool of memory that was allocated on a stream without a DriverPool.
DEFAULT = "default"


def are_apart(target, source=None):
    """Whether a copy is between device memory of two contexts."""
    if source is None or target.on_host or source.on_host:
        return False
    return target.memory.place is not source.memory.place


class PeerSession(BlockSession):
    @cached_property
    def access(self):
        """Pairs of contexts: the first context has access to the second one's memory."""
        return set()

    @cached_property
    def admitted(self):
        """Pairs of an ordinal and a pool: the device has access to the pool's memory.

        The default pool of a device is the pair of DEFAULT and the ordinal of the device.
        """
        return set()

    @cached_property
    def needed(self):
        """How often graphs and executables need each access in `admitted`."""
        return Counter()

    # ---- what graphs need ----

    def access_for(self, place, *buffers):
        """The access that a copy of a graph needs, which a context makes between two contexts.

        None if it needs none. Memory that can grow needs an access that no program here gives.
        """
        for buffer in buffers:
            memory, owner = buffer.memory, buffer.memory.place
            if buffer.on_host or owner.context.device == place.context.device:
                continue
            if memory.model.end is not None:
                return "of memory that can grow"
            if memory.pool is not None:
                pool = default_pool(owner) if memory.pool == DEFAULT else memory.pool
                return place.context.device.ordinal, pool
        return None

    def judge_access_for(self, place, *buffers):
        key = self.access_for(place, *buffers)
        return OK if key is None or key in self.admitted else NO_ACCESS

    def judge_captured_between(self, on, *buffers):
        """The answer to a captured copy between two contexts, apart from its order."""
        place = self.place_on(on)
        answer = self.judge_access_for(place, *buffers)
        of_origin = on.domain is on.capture.origin.domain
        needs = self.access_for(place, *buffers) is not None
        return CAPTURED if answer == OK and needs and not of_origin else answer

    def need(self, holding, place, *buffers):
        """Note that a graph needs the access for a copy between contexts."""
        key = self.access_for(place, *buffers) if are_apart(*buffers) else None
        if key is not None:
            holding.need(self.needed, key)

    # ---- what access permits ----

    def fit(self, buffers, on, strict=False):
        """Whether an operation can use buffers on a stream of the oracle.

        With `strict`, it can use memory only in the memory's own context: peer access is ignored.
        """
        if are_apart(*buffers) and any(buffer.fits(on) for buffer in buffers):
            return True
        return all(buffer.fits(on) if strict else self.can_use(buffer, on) for buffer in buffers)

    def can_use(self, buffer, on):
        if buffer.fits(on):
            return True
        return on.capture is None and self.reaches(self.place_on(on), buffer)

    def place_on(self, on):
        """The context of a stream of the oracle."""
        return next(place for place in self.places if place.domain is on.domain)

    def reaches(self, place, buffer):
        """Whether kernels of a context can use device memory of another context."""
        owner, ordinal = buffer.memory.place, place.context.device.ordinal
        if ordinal == owner.context.device.ordinal or buffer.memory.model.end is not None:
            return False  # memory that can grow is mapped for a fixed set of devices
        if (buffer.memory.of_module or buffer.memory.opened) and buffer.nbytes:
            return False
        if buffer.memory.pool is None or not buffer.nbytes:
            return (place, owner) in self.access
        pool = buffer.memory.pool
        return (ordinal, default_pool(owner) if pool == DEFAULT else pool) in self.admitted

    # ---- changing access ----

    def enable_access(self, place, peer):
        device = place.context.device
        if place.context.primary and peer.context.primary:
            call = lambda: device.enable_access(peer.context.device)  # noqa: E731
        else:
            call = lambda: place.context.enable_access(peer.context)  # noqa: E731
        self.call("enable_access", OK, call)
        self.access.add((place, peer))
        self.admitted.add((device.ordinal, default_pool(peer)))

    def disable_access(self, place, peer):
        last = (place, peer) in self.access and self._is_last(place, peer)
        answer = OK
        if (place, peer) in self.access:
            key = place.context.device.ordinal, default_pool(peer)
            answer = self._judge_end(self._of_device(place) if last else [place], last and key)
        call = lambda: place.context.disable_access(peer.context)  # noqa: E731
        self.call("disable_access", answer, call)
        if answer == OK:
            self.access.discard((place, peer))
            if last:
                self.admitted.discard((place.context.device.ordinal, default_pool(peer)))

    def allow_access(self, pool, place, access):
        """Give a device access to a `DriverPool`, or end that access."""
        key = place.context.device.ordinal, pool
        answer = OK
        if access is None and key in self.admitted:
            answer = self._judge_end(self._of_device(place), key)
        call = lambda: pool.allow_access(place.context.device, access)  # noqa: E731
        self.call("allow_access", answer, call)
        if answer == OK:
            (self.admitted.discard if access is None else self.admitted.add)(key)

    def end_access(self):
        """End all access after all work is complete."""
        for place, peer in self.access:
            place.context.disable_access(peer.context)
        self.access.clear()

    def _of_device(self, place):
        return [each for each in self.places if each.context.device == place.context.device]

    def _is_last(self, place, peer):
        """Whether this is the only access of the place's device to the peer's device."""
        rest = [
            other
            for each, other in self.access - {(place, peer)}
            if each.context.device == place.context.device
        ]
        return all(other.context.device != peer.context.device for other in rest)

    def _judge_end(self, places, key):
        """The answer for ending access.

        All work of the contexts must be known to be complete, and no graph may need the access.
        """
        streams = [stream for place in places for stream in place.domain.streams]
        known = all(map(self.oracle.stream_known, streams))
        return OK if known and not self.needed[key] else UNFINISHED


def default_pool(place):
    return DEFAULT, place.context.device.ordinal
