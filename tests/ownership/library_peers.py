"""The steps of random programs with memory of several devices."""

from library_joined import JoinedChoices
from session_peers import are_apart, default_pool

WEIGHTS = {"change_access": 14}


class PeerChoices(JoinedChoices):
    def other_devices(self, place):
        """The contexts of other devices."""
        device = place.context.device
        return [each for each in self.session.places if each.context.device != device]

    def change_access(self):
        """Give a context access to the memory of another device, or end such access."""
        if self.captures and self.chance(0.5):
            self.exchange()
            if self.chance(0.5):
                return
        needed = [key for key, count in self.session.needed.items() if count]
        if needed and self.chance(0.4):
            self.end_needed_access(*self.pick(needed))
            return
        place = self.pick_place()
        if not (peers := self.other_devices(place)):
            return
        peer = self.random.choice(peers)
        pools = [
            pool
            for (kind, device), pool in self.session.driver_pools.items()
            if kind == "device" and device == peer.context.device
        ]
        step = self.random.choice((*("enable_access",) * 3, "disable_access"))
        told = step, *self.where(place), *self.where(peer)
        if pools and self.chance(0.5):
            access = "readwrite" if step == "enable_access" else None
            self.note("allow_access", access, *told[1:])
            self.session.allow_access(pools[0], place, access)
            return
        if step == "disable_access" and self.chance(0.7):
            self.note("  and before that synchronize")
            self.session.synchronize_context(place)
        self.note(*told)
        getattr(self.session, step)(place, peer)

    def give_access_for(self, place, *buffers):
        """Give the access that a copy of a graph in `place` needs, most often."""
        if place is None or not are_apart(*buffers) or not self.chance(0.7):
            return
        key = self.session.access_for(place, *buffers)
        if not isinstance(key, tuple) or key in self.session.admitted:
            return
        owner = next(b.memory.place for b in buffers if b.memory.place is not place)
        self.note("give access", *self.where(place), *self.where(owner))
        if isinstance(key[1], tuple):
            self.session.enable_access(place, owner)
        else:
            self.session.allow_access(key[1], place, "readwrite")

    def end_needed_access(self, ordinal, pool):
        """Try to end an access that a graph needs."""
        places = [p for p in self.session.places if p.context.device.ordinal == ordinal]
        self.note("synchronize", *self.where(places[0]), "and end needed access")
        for place in places:
            self.session.synchronize_context(place)
        if not isinstance(pool, tuple):
            self.session.allow_access(pool, places[0], None)
            return
        for place, peer in sorted(self.session.access, key=lambda pair: self.where(pair[1])):
            if place in places and default_pool(peer) == pool:
                self.session.disable_access(place, peer)

    def pick_elsewhere(self, buffer):
        """Choose a buffer in device memory of another context. None if there is none."""
        place = buffer.memory.place
        found = [b for b in self.buffers if not (b.on_host or b.closed or b.memory.place is place)]
        return self.pick(found) if found and not buffer.on_host else None

    def any_user_of(self, *buffers):
        """Choose a context whose streams may be able to use the buffers."""
        owners = [buffer.memory.place for buffer in buffers if not buffer.on_host]
        if not self.several or not owners:
            return buffers[0].memory.place
        places = [
            p for p in self.session.places if any(self.session.reaches(p, b) for b in buffers)
        ]
        return self.random.choice(owners + places)
