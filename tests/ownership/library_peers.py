"""The steps of random programs with memory of several devices."""

from library_joined import JoinedChoices

WEIGHTS = {"change_access": 14}


class PeerChoices(JoinedChoices):
    def other_devices(self, place):
        """The contexts of other devices."""
        device = place.context.device
        return [each for each in self.session.places if each.context.device != device]

    def change_access(self):
        """Give a context access to the memory of another device, or end such access."""
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
