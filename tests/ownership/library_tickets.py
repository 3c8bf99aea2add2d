"""The steps of random programs that lend buffers to another process, which runs partner.py."""

import contextlib
import os
from pathlib import Path

from library_peers import PeerChoices
from other_process import ROOT, Other

import cudadrv as cu
from cudadrv import testing

WEIGHTS = {"share": 20, "there": 50, "accept": 16, "open_own": 1, "kill_there": 3}
OF_TICKETS = tuple(WEIGHTS)
FAILURES = {
    "share": ("cuEventRecord", "cuEventCreate", "cuIpcGetMemHandle", "cuIpcGetEventHandle"),
    "accept": ("cuStreamWaitEvent",),
}
MOST_STEPS = 6  # maximum number of steps that the other process makes at a time


class Partner:
    """The other process, which runs partner.py. The programs use it one after the other."""

    def __init__(self):
        self.software = cu.driver_info().is_software
        self.start()

    def start(self):
        environment = {"PYTHONPATH": f"{ROOT}{os.pathsep}{Path(__file__).parent}"}
        environment["CUDADRV_DRIVER"] = "software" if self.software else "cuda"
        if self.software:
            environment["CUDADRV_SOFTWARE"] = f"devices={cu.Device.count()}"
        # The schedule of each program is set by `begin`.
        self.process = Other("cuda", **environment)

    def _call(self, name, *what):
        return self.process(f"__import__('partner').{name}(*what)", what=what)

    def begin(self, seed, policies, several):
        found = testing.settings() if self.software else {}
        settings = ",".join(f"{name}={found[name]}" for name in ("schedule", "seed") if found)
        self._call("begin", seed, policies, several, settings)

    def open(self, *what):
        return self._call("open", *what)

    def steps(self, count):
        self._call("steps", count)

    def give_back(self, at):
        return self._call("give_back", at)

    def end(self):
        return self._call("end")

    def drop(self):
        self._call("drop")

    def kill(self):
        """Kill the process, whatever it is doing, and start another one."""
        self.process.kill()
        self.start()

    def stop(self):
        """End the process. Returns its exit status."""
        return self.process.end()


class TicketChoices(PeerChoices):
    partner = None  # the other process, or None if programs must not use one

    def __init__(self, seed):
        super().__init__(seed)
        self.seed = seed
        self.shares = []
        self.began = False  # whether the other process has begun its program
        self.awaited = False  # whether a stream here may wait for unfinished work of that program

    # ---- the owner ----

    def pick_to_share(self):
        """Choose a buffer that can probably be shared.

        At most one part of an allocation is lent at a time.
        """
        away = [share.buffer.memory.model for share in self.shares if not self.is_over(share)]
        found = [
            buffer
            for buffer in self.buffers
            if buffer.memory.can_be_shared and buffer.memory.model not in away and buffer.nbytes
        ]
        if not found or self.chance(0.1):
            buffer = self.pick_buffer()
            return None if buffer.memory.model in away else buffer
        return self.pick_usable(found, lambda buffer: not buffer.closed)

    def is_over(self, share):
        """Whether the buffer is back, and the other process does not use it any more."""
        return share.is_back and (not share.opened or share.died or share.receipt is not None)

    def share(self):
        buffer = self.pick_to_share()
        if buffer is None:
            return
        stream, pickled = self.maybe_stream(False, buffer.memory.place), self.chance(0.15)
        told = self.buffers.index(buffer), self.at(stream, self.streams)
        self.note("share", *told, "by pickling it" * pickled)
        share = self.session.share(buffer, stream, pickled)
        if share is not None:
            self.note("  as", len(self.shares))
            self.shares.append(share)
            if self.chance(0.6):
                self.open_there(share)

    def accept(self):
        if not self.shares:
            return
        share = self.pick_usable(self.shares, lambda share: not share.is_back)
        back = share.receipt is None and not share.is_back and self.chance(0.8)
        if share.opened and back and not share.died:
            self.give_back_there(share)
        self.take_back(share)

    def take_back(self, share):
        place = share.buffer.memory.place
        primary = share.place.context.primary  # other contexts have no default stream of their own
        stream = self.maybe_stream(primary, place)
        if stream is None and not primary:
            return
        receipt = share.receipt if self.chance(0.8) or share.is_back else None
        told = self.shares.index(share), self.at(stream, self.streams)
        self.note("accept", *told, "with a receipt" * (receipt is not None))
        if not share.is_back or receipt is not None:
            accepted = self.session.accept(share, stream, receipt)
            # Work of the other process may still be waiting to run.
            self.awaited = self.awaited or (accepted and share.opened and not share.died)
            if accepted and self.chance(0.5):
                self.note("  and copy to array")
                on = stream or self.session.open_stream("legacy", share.place)
                self.session.copy_out(share.buffer, on)

    def open_own(self):
        shares = [share for share in self.shares if share.buffer.memory.place.context.primary]
        if shares:
            share = self.pick(shares)
            self.note("open own", self.shares.index(share))
            self.session.open_own(share)

    # ---- the other process ----

    def begin_there(self):
        if not self.began:
            self.began, self.awaited = True, False
            self.partner.begin(f"{self.seed}.partner", self.policies, len(self.session.places) > 1)

    def away(self):
        """The shares whose buffers the other process has."""
        return [
            share
            for share in self.shares
            if share.opened and share.receipt is None and not share.died
        ]

    def there(self):
        """Let the other process open a buffer, run some steps, or give a buffer back."""
        away = self.away()
        unopened = [share for share in self.shares if not share.opened]
        if unopened and self.chance(0.5):
            self.open_there(self.pick(unopened))
        elif self.shares and self.chance(0.1):
            self.open_there(self.pick(self.shares))
        elif away and self.chance(0.2):
            self.give_back_there(self.pick(away))
        elif self.began:
            steps = self.random.randint(1, MOST_STEPS)
            self.note("there", steps, "steps")
            self.partner.steps(steps)

    def open_there(self, share):
        """Let the other process open a ticket, sometimes one that is no longer valid."""
        self.begin_there()
        buffer = share.buffer
        valid = not (share.opened or share.is_back)
        ordinal = buffer.memory.place.context.device.ordinal
        if buffer.memory.kind == "device" and ordinal > 0 and len(self.session.places) == 1:
            return
        self.note("open there", self.shares.index(share), "which is not valid" * (not valid))
        what = share.ticket, buffer.memory.kind, ordinal, valid, buffer.start
        what += buffer.memory.bytes.copy(), self.session.ordered
        if self.partner.open(self.shares.index(share), *what):
            share.opened = True

    def give_back_there(self, share):
        """Let the other process give a buffer back. It may refuse."""
        self.note("give back there", self.shares.index(share))
        receipt, bytes_, ordered = self.partner.give_back(self.shares.index(share))
        if receipt is not None:
            share.receipt = receipt
            self.learn(share, bytes_, ordered)

    def kill_there(self):
        """Kill the other process, and start another one. The owner can then take buffers back.

        Do nothing if a stream may wait for the process's work, because the wait would never end.
        """
        if self.awaited or not self.began or self.chance(0.5):
            return
        for share in self.away():
            if self.chance(0.5):  # work of the process on the buffer may be unfinished
                self.give_back_there(share)
        self.note("kill there")
        self.partner.kill()
        self.began = False
        for share in self.shares:
            if share.opened and not share.is_back:
                share.died = True
                self.session.ordered = False  # the process may have written only a part

    def learn(self, share, bytes_, ordered):
        """Note which bytes the other process has left in a buffer."""
        share.buffer.bytes[:] = bytes_
        self.session.ordered = self.session.ordered and ordered

    def end_shares(self):
        """Let the other process end its program, and take all buffers back."""
        if not self.began:
            found, ordered = {}, True
        else:
            self.note("end there")
            self.began = False
            found, ordered, answers = self.partner.end()
            self.session.answers.update({f"there {what}": n for what, n in answers.items()})
        for at, bytes_ in found.items():
            self.learn(self.shares[at], bytes_, ordered)
            # The other process has dropped the buffer, so it can be taken back.
            self.shares[at].opened = False
        for share in self.shares:
            if not share.is_back:
                self.note("take back", self.shares.index(share))
                stream = self.session.open_stream("legacy", share.buffer.memory.place)
                self.session.accept(share, stream, share.receipt)

    def drop_shares(self):
        """Drop the other process's program and all shares after a disagreement."""
        if self.began:
            self.began = False
            self.partner.drop()
        for share in self.shares:
            if not share.is_back:
                with contextlib.suppress(Exception):
                    share.buffer.real.accept(share.receipt)
        self.shares.clear()
