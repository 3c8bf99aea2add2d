"""Runs a program on the engine and on the oracle, and compares each of their answers."""

from dataclasses import dataclass
from itertools import count

import oracle as model
import private_engine as real


class Disagreement(AssertionError):
    """The engine and the oracle answered differently."""


@dataclass(eq=False)
class Both:
    """An object of the engine, and the oracle's object for the same thing."""

    real: object
    model: object


class Pair:
    """A program on both engine and oracle.

    Each method is one step of the program. It returns the answer, and the object that was made.
    """

    def __init__(self):
        self.engine = real.Engine()
        self.oracle = model.Oracle()
        self.domains = []  # keeps the domains alive as long as the engine
        self.memories = []
        self.sites = count(1)
        self.judging = True  # whether the engine's answers to operations are compared

    def agree(self, what, got, expected):
        if got != expected:
            raise Disagreement(f"{what}: the engine says {got!r}, the oracle {expected!r}")

    def agree_answer(self, what, got, blamed, expected):
        self.agree(what, got, expected.answer)
        if expected.blamed and blamed not in expected.blamed:
            raise Disagreement(f"{what}: blames {blamed}, not one of {set(expected.blamed)}")

    def open_domain(self, host_excluded=False):
        made = real.Domain(self.engine, host_excluded)
        self.domains.append(Both(made, self.oracle.open_domain(host_excluded)))
        return self.domains[-1]

    def open_stream(self, domain, kind="non_blocking"):
        made = real.StreamState(domain.real, kind)
        return Both(made, self.oracle.open_stream(domain.model, kind))

    def open_memory(self, nbytes, managed=False):
        made = real.MemoryState(self.engine, nbytes, managed)
        self.memories.append(Both(made, self.oracle.open_memory(nbytes, managed)))
        return self.memories[-1]

    def snapshot(self, stream, record=True):
        made = stream.real.snapshot(record)
        return Both(made, self.oracle.snapshot(stream.model, record))

    def wait(self, stream, snapshot):
        stream.real.wait(snapshot.real)
        self.oracle.wait(stream.model, snapshot.model)

    def synchronize(self, snapshot):
        snapshot.real.join_host()
        self.oracle.synchronize(snapshot.model)
        self.agree("known", snapshot.real.known, True)

    def synchronize_domain(self, domain):
        domain.real.snapshot().join_host()
        self.oracle.synchronize_domain(domain.model)

    def close_stream(self, stream):
        stream.real.close()
        self.oracle.close_stream(stream.model)

    def issue(self, stream, accesses, policy="strict", attach_to=None):
        """Returns ("ok", token) or (reason, None)."""
        site = next(self.sites)
        if self.judging:
            expected = self.oracle.judge(stream.model, modelled(accesses), policy)
        answer, what = self._issue(stream, accesses, policy, site, attach_to)
        if self.judging:
            self.agree_answer("operation", answer, what, expected)
        if answer != "ok":
            return answer, None
        made = Both(what, self.oracle.issue(stream.model, modelled(accesses), site))
        if effect_of(accesses) == "attaches":
            to = attach_to.model if isinstance(attach_to, Both) else attach_to
            self.oracle.attach(accesses[0][0].model, to, site)
        return "ok", made

    def _issue(self, stream, accesses, policy, site, attach_to=None, driver_fails=False):
        return stream.real.issue(
            *realized(accesses),
            policy=policy,
            site=site,
            effect=effect_of(accesses),
            attach_to=attach_to.real if isinstance(attach_to, Both) else attach_to,
            driver_fails=driver_fails,
        )

    def lend(self, stream, access, policy="strict"):
        """Returns ("ok", loan) or (reason, None). A loan ends as an export does."""
        site = next(self.sites)
        expected = self.oracle.judge(stream.model, modelled([access]), policy, lends=True)
        answer, what = stream.real.lend(*realized([access])[0], policy=policy, site=site)
        self.agree_answer("loan", answer, what, expected)
        if answer != "ok":
            return answer, None
        self.oracle.issue(stream.model, modelled([access]), site)
        return "ok", Both(what, self.oracle.export(*modelled([access])[0], site, stream.model))

    def lend_to_nobody(self, nobody, memory, start, stop, mode):
        """Lend bytes to work on no stream. Returns ("ok", loan) or (reason, None)."""
        site = next(self.sites)
        expected = self.oracle.judge_lend(memory.model, start, stop, mode, nobody.model)
        answer, what = memory.real.lend(nobody.real, start, stop, mode, site=site)
        self.agree_answer("loan to nobody", answer, what, expected)
        if answer != "ok":
            return answer, None
        view = self.oracle.export(memory.model, start, stop, mode, site, nobody.model)
        return "ok", Both(what, view)

    def open_nobody(self, domain):
        """Make the borrower that stands for work on no stream."""
        return Both(real.StreamState(domain.real), model.Stream(domain.model, "nobody"))

    def end_loan(self, stream, access, view):
        """End a loan.

        All that the borrower queued counts as one use, queued now. This is never refused.
        """
        site = next(self.sites)
        answer, _ = stream.real.issue(*realized([access]), site=site, returns=True)
        self.agree("end of a loan", answer, "ok")
        self.oracle.issue(stream.model, modelled([access]), site)
        self.close_export(access[0], view)

    def leave(self, stream, memory, start, stop, policy):
        """End a buffer over some bytes, ordered after all uses of these bytes."""
        site = next(self.sites)
        access = (memory.model, start, stop, "leave")
        expected = self.oracle.judge(stream.model, [access], policy)
        answer, what = stream.real.issue(
            (memory.real, start, stop, "write"), policy=policy, site=site, effect="leaves"
        )
        self.agree_answer("leaving", answer, what, expected)
        if answer == "ok":
            self.oracle.issue(stream.model, [(*access[:3], "write")], site)
            # From here on, accesses belong to another buffer over the memory.
            memory.real.other_buffer(alive=False)
        return answer

    def free(self, memory, start, stop):
        """Ask whether a buffer over some bytes can be closed."""
        answer = memory.real.free(start, stop)
        self.agree("bytes are free", answer, self.oracle.judge_end(memory.model, start, stop))
        return answer

    def lends_to(self, stream):
        """Whether anything is lent to a stream. The library does not close such a stream."""
        return self.oracle.lends_to(stream.model)

    def fail(self, stream, accesses, policy="strict", attach_to=None):
        """Issue an operation whose driver call fails if the engine accepts the operation.

        The engine's state must be as before. If the engine cannot undo the operation completely,
        some of its bytes may stay borrowed; the oracle is then told which ones.
        """
        site = next(self.sites)
        expected = self.oracle.judge(stream.model, modelled(accesses), policy)
        before = [uses_by_byte(memory) for memory in self.memories]
        exact = all(remembers(memory, start, stop) for memory, start, stop, _ in accesses)
        answer, what = self._issue(stream, accesses, policy, site, attach_to, driver_fails=True)
        if answer != "driver_failed":
            self.agree_answer("failing operation", answer, what, expected)
            return answer
        self.agree("failing operation", "ok", expected.answer)
        after = [uses_by_byte(memory) for memory in self.memories]
        old = {use[:2] for uses in before for held in uses for use in held}
        kept = [
            (memory.model, byte, byte + 1, use[2])
            for memory, uses in zip(self.memories, after, strict=True)
            for byte, held in enumerate(uses)
            for use in held
            if use[:2] not in old
        ]
        if exact or not kept:
            self.agree("uses after a failure", after, before)
        claimed = {
            (memory.model, byte)
            for memory, start, stop, _ in accesses
            for byte in model.span(start, stop)
        }
        self.agree("bytes borrowed by a failure", {use[:2] for use in kept} <= claimed, True)
        if kept:
            self.oracle.fail(stream.model, kept, site)
        return answer

    def export(self, memory, start, stop, mode, policy="strict", uses=False):
        """Make a host view. With `uses`, the host may also read what it writes."""
        site = next(self.sites)
        expected = self.oracle.judge_export(memory.model, start, stop, mode, policy, uses)
        answer, what = memory.real.export(
            start, stop, mode, policy=policy, site=site, effect="uses" if uses else None
        )
        self.agree_answer("host access", answer, what, expected)
        if answer != "ok":
            return answer, None
        return "ok", Both(what, self.oracle.export(memory.model, start, stop, mode, site))

    def close_export(self, memory, view):
        view.real.close()
        self.oracle.close_export(memory.model, view.model)

    def close_memory(self, memory):
        answer = memory.real.close()
        self.agree("closing memory", answer, self.oracle.close_memory(memory.model))
        return answer

    def compare(self, streams=()):
        """Compare the states of engine and oracle, as far as both show them."""
        for memory in self.memories:
            uses = uses_by_byte(memory)
            got = {byte for byte, held in enumerate(uses) if held}
            self.agree("borrowed bytes", got, self.oracle.borrowed_bytes(memory.model))
            found = {byte: memory.real.discarded(byte, byte + 1) for byte in range(len(uses))}
            got = {byte: discard[2] for byte, discard in found.items() if discard}
            self.agree("discarded bytes", got, memory.model.discarded)
        for stream in streams:
            known = self.oracle.stream_known(stream.model)
            self.agree("stream known", stream.real.known, known)


EFFECTS = {"discard": "discards", "attach": "attaches", "move": "moves"}


def effect_of(accesses):
    """The effect of an operation in addition to reading and writing.

    All its accesses have the same mode.
    """
    return EFFECTS.get(accesses[0][3]) if accesses else None


def realized(accesses):
    return [
        (memory.real, start, stop, model.AS.get(mode, mode))
        for memory, start, stop, mode in accesses
    ]


def modelled(accesses):
    return [(memory.model, *rest) for memory, *rest in accesses]


def uses_by_byte(memory):
    """The uses that the engine records for each byte. The engine's ranges do not matter."""
    return [
        {use[:3] for use in memory.real.borrows(byte, byte + 1)}
        for byte in range(memory.model.nbytes)
    ]


def remembers(memory, start, stop):
    """Whether the engine certainly undoes an access if the driver call fails.

    This is certain if the memory has one range with few uses so far, and the access covers it.
    """
    boxes = any(isinstance(use.stop, model.BoxStop) for use in memory.model.accesses)
    whole = start == 0 and stop == memory.model.nbytes and memory.real.ranges == 1 and not boxes
    return whole and len(memory.model.accesses) <= 2
