"""Random programs for the engine and the oracle, side by side.

    python tests/ownership/referee.py --operations 1000000 --seed 1

There are many short programs rather than a long one: bugs need few streams and few steps to show,
and the searches of the oracle grow with the program. With ``--threads 4``, four threads make the
calls of each program (replay.py).
"""

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import replay
from oracle import BoxStop
from pair import Disagreement, Pair

BOXES = [
    (start, BoxStop(start, width, pitch, rows))
    for start in range(4)
    for pitch, rows in ((2, 2), (2, 3), (2, 4), (3, 2), (4, 2))
    for width in range(1, pitch)
    if start + (rows - 1) * pitch + width <= 8
] + [(0, BoxStop(0, 1, 2, 2, 4, 2)), (1, BoxStop(1, 1, 2, 2, 4, 2)), (0, BoxStop(0, 1, 1, 1, 3, 3))]
MODES = ("read", "read", "write", "write", "write", "shared", "reach")
CUTS = (0, 1, 3, 4, 6, 8)
NBYTES = CUTS[-1]
LONGEST = 70
KINDS = ("non_blocking", "blocking", "legacy")


class Program:
    """One random program. `run` makes its steps and logs them, to be printed if one fails."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.pair = Pair()
        self.domains = [
            self.pair.open_domain(host_excluded=self.random.random() < 0.15)
            for _ in range(self.random.choice((1, 1, 2)))
        ]
        self.streams, self.memories, self.snapshots, self.views = [], [], [], []
        self.nobodies = [self.pair.open_nobody(domain) for domain in self.domains]
        self.legacy = set()  # domains that have their legacy stream
        self.default_streams = self.random.random() < 0.5
        self.boxes = self.random.choice((0, 0, 0.3, 0.8))  # share of boxes among accesses
        self.limits = self.random.random() < 0.5  # whether memory is discarded and attached
        self.answers = {}
        self.log = []
        for _ in range(self.random.randint(1, 4)):
            self.open_stream()
        for _ in range(self.random.randint(1, 2)):
            self.open_memory()
        steps = {
            self.issue: 40,
            self.record: 12,
            self.wait: 14,
            self.synchronize: 7,
            self.synchronize_domain: 0.5 if len(self.domains) == 1 else 2,
            self.export: 6,
            self.lend: 2,
            self.lend_to_nobody: 1,
            self.leave: 1,
            self.free: 1,
            self.close_export: 6,
            self.fail: 4,
            self.discard: 5 if self.limits else 0,
            self.attach: 3 if self.limits else 0,
            self.move: 1,
            self.open_stream: 2,
            self.close_stream: 2,
            self.close_memory: 1,
            self.open_memory: 0.5,
        }
        self.steps, self.weights = list(steps), list(steps.values())

    def run(self, steps):
        for step in self.random.choices(self.steps, self.weights, k=steps):
            step()
            if self.random.random() < 0.2:
                self.pair.compare(self.streams)
        self.pair.compare(self.streams)

    def note(self, *what):
        self.log.append(what)

    def pick(self, things):
        """A random thing. Recent ones are more frequent, because they more often are in use."""
        at = min(self.random.randrange(len(things)), self.random.randrange(len(things)))
        return things[-1 - at]

    # ---- steps ----

    def open_stream(self):
        domain = self.random.choice(self.domains)
        kind = self.random.choice(KINDS) if self.default_streams else "non_blocking"
        if kind == "legacy":
            if domain in self.legacy:
                return
            self.legacy.add(domain)
        self.streams.append(self.pair.open_stream(domain, kind))
        self.note("open stream", len(self.streams) - 1, kind, self.domains.index(domain))

    def open_memory(self):
        managed = self.random.random() < 0.3
        self.memories.append(self.pair.open_memory(NBYTES, managed))
        self.note("open memory", len(self.memories) - 1, "managed" if managed else "")

    def close_stream(self):
        """Close a stream, but not a legacy one, which lives as long as its context."""
        stream = self.pick(self.streams)
        if stream.model.kind == "legacy" or not stream.model.open or self.pair.lends_to(stream):
            return
        self.note("close stream", self.streams.index(stream))
        self.pair.close_stream(stream)
        if self.random.random() < 0.3:
            self.try_closed(stream)
        self.streams.remove(stream)  # drops the last reference
        if not self.streams:
            self.streams.append(self.pair.open_stream(self.domains[0]))

    def try_closed(self, stream):
        answer, _ = self.pair.issue(stream, self.accesses())
        assert answer == "stream_closed"

    def accesses(self, overlapping=True):
        """The accesses of one operation: several, as a launch has."""
        count = self.random.choice((0, 1, 1, 1, 1, 1, 1, 2, 2, 3))
        found = []
        for _ in range(count):
            start, stop = self.bytes()
            if self.random.random() < 0.3:
                start, stop = 0, NBYTES
            mode = self.random.choice(MODES)
            access = (self.pick(self.memories), start, stop, mode)
            if overlapping or not any(overlap(access, other) for other in found):
                found.append(access)
        return found

    def bytes(self):
        """Two cuts; in some programs, often a box."""
        if self.random.random() < self.boxes:
            return self.random.choice(BOXES)
        return sorted(self.random.choices(CUTS, k=2))

    def policy(self):
        return self.random.choice(("strict",) * 5 + ("wait", "unchecked"))

    def issue(self):
        stream, accesses, policy = self.pick(self.streams), self.accesses(), self.policy()
        self.note("issue", self.streams.index(stream), self.told(accesses), policy)
        answer, token = self.pair.issue(stream, accesses, policy)
        self.answers[answer] = self.answers.get(answer, 0) + 1
        if token and self.random.random() < 0.3:
            self.snapshots.append(token)
            self.note("  keep the token as snapshot", len(self.snapshots) - 1)

    def fail(self):
        stream, accesses, policy = self.pick(self.streams), self.accesses(False), self.policy()
        self.note("issue, driver fails", self.streams.index(stream), self.told(accesses), policy)
        self.pair.fail(stream, accesses, policy)

    def discard(self):
        self.special("discard")

    def move(self):
        self.special("move")

    def special(self, mode):
        """Discard or move the bytes of some accesses."""
        stream, policy, fails = self.pick(self.streams), self.policy(), self.random.random() < 0.15
        accesses = [
            (*access[:3], mode)
            for access in self.accesses(not fails)
            if mode != "discard" or not isinstance(access[2], BoxStop)  # boxes are not discarded
        ]
        self.note(mode, self.streams.index(stream), self.told(accesses), policy, fails)
        if fails:
            self.pair.fail(stream, accesses, policy)
        else:
            answer, _ = self.pair.issue(stream, accesses, policy)
            self.answers[f"{mode} {answer}"] = self.answers.get(f"{mode} {answer}", 0) + 1

    def attach(self):
        """Attach memory to a stream, to all, or to the host."""
        stream, memory = self.pick(self.streams), self.pick(self.memories)
        to = self.random.choice((stream, stream, None, "host"))
        access, policy = (memory, 0, NBYTES, "attach"), self.policy()
        fails = self.random.random() < 0.15
        told = "itself" if to is stream else to
        self.note("attach", self.streams.index(stream), self.told([access]), policy, told, fails)
        if fails:
            self.pair.fail(stream, [access], policy, to)
        else:
            answer, _ = self.pair.issue(stream, [access], policy, to)
            self.answers["attach " + answer] = self.answers.get("attach " + answer, 0) + 1

    def told(self, accesses):
        return [(self.memories.index(memory), *rest) for memory, *rest in accesses]

    def record(self):
        stream, record = self.pick(self.streams), self.random.random() < 0.8
        self.note("record" if record else "snapshot", self.streams.index(stream))
        self.snapshots.append(self.pair.snapshot(stream, record))

    def wait(self):
        if self.snapshots:
            stream, snapshot = self.pick(self.streams), self.pick(self.snapshots)
            self.note("wait", self.streams.index(stream), self.snapshots.index(snapshot))
            self.pair.wait(stream, snapshot)

    def synchronize(self):
        if self.snapshots:
            snapshot = self.pick(self.snapshots)
            self.note("synchronize", self.snapshots.index(snapshot))
            self.pair.synchronize(snapshot)

    def synchronize_domain(self):
        domain = self.random.choice(self.domains)
        self.note("synchronize domain", self.domains.index(domain))
        self.pair.synchronize_domain(domain)

    def export(self):
        start, stop = self.bytes()
        memory, mode = self.pick(self.memories), self.random.choice(("read", "write"))
        policy, uses = self.policy(), self.random.random() < 0.4
        self.note("export", self.memories.index(memory), start, stop, mode, policy, uses)
        answer, view = self.pair.export(memory, start, stop, mode, policy, uses)
        self.answers["host " + answer] = self.answers.get("host " + answer, 0) + 1
        if answer == "ok":
            self.views.append((memory, view, None))

    def lend(self):
        stream, policy = self.pick(self.streams), self.policy()
        for access in self.accesses():
            if access[3] not in ("read", "write"):  # loans have only these modes
                continue
            self.note("lend", self.streams.index(stream), self.told([access]), policy)
            answer, view = self.pair.lend(stream, access, policy)
            self.answers["lend " + answer] = self.answers.get("lend " + answer, 0) + 1
            if answer == "ok":
                self.views.append((access[0], view, (stream, access)))

    def close_export(self):
        if self.views:
            at = self.random.randrange(len(self.views))
            self.note("close export", at)
            memory, view, lent = self.views.pop(at)
            if lent is not None and self.random.random() < 0.7:
                self.note("  after its last use")
                self.pair.end_loan(*lent, view)
            else:
                self.pair.close_export(memory, view)

    def lend_to_nobody(self):
        start, stop = self.bytes()
        memory, mode = self.pick(self.memories), self.random.choice(("read", "write"))
        nobody = self.random.choice(self.nobodies)
        self.note("lend to nobody", self.memories.index(memory), start, stop, mode)
        answer, view = self.pair.lend_to_nobody(nobody, memory, start, stop, mode)
        self.answers["nobody " + answer] = self.answers.get("nobody " + answer, 0) + 1
        if answer == "ok":
            self.views.append((memory, view, None))

    def leave(self):
        start, stop = sorted(self.random.choices(CUTS, k=2))
        stream, memory = self.pick(self.streams), self.pick(self.memories)
        policy = self.random.choice(("strict", "wait"))
        told = self.streams.index(stream), self.memories.index(memory), start, stop
        self.note("leave", *told, policy)
        self.pair.leave(stream, memory, start, stop, policy)

    def free(self):
        start, stop = sorted(self.random.sample(CUTS, k=2))
        memory = self.pick(self.memories)
        self.note("free", self.memories.index(memory), start, stop)
        self.pair.free(memory, start, stop)

    def close_memory(self):
        memory = self.pick(self.memories)
        self.note("close memory", self.memories.index(memory))
        if self.pair.close_memory(memory) == "ok":
            self.open_memory()


def overlap(access, other):
    """Whether two accesses of an operation share bytes: the engine then need not undo a failure."""
    memory, start, stop, _ = access
    memory2, start2, stop2, _ = other
    return memory is memory2 and start < stop2 and start2 < stop  # the gaps of boxes count, too


def run(seed):
    """Run one program. Returns its number of steps and the answers, or raises Disagreement."""
    program = Program(seed)
    steps = program.random.randint(5, LONGEST)
    try:
        program.run(steps)
    except Disagreement as error:
        lines = [f"{error}", f"program {seed!r}:", *map(repr, program.log)]
        raise Disagreement("\n  ".join(lines)) from None
    return steps, program.answers


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--operations", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=1, help="disagreements to print")
    parser.add_argument("--threads", type=int, help="make the calls in so many threads")
    options = parser.parse_args()
    if options.threads:
        with tempfile.TemporaryDirectory() as folder:
            program = replay.build(folder)
            return judge(options, lambda number: run_in_threads(program, options, number))
    return judge(options, lambda number: run(f"{options.seed}.{number}"))


def run_in_threads(program, options, number):
    """Run one program in threads: the even numbers under a schedule."""
    return replay.run(program, options.seed * 1_000_000 + number, options.threads, number % 2 == 0)


def judge(options, run):
    """Run programs by their numbers, and print what was found. Returns the exit status."""
    operations = programs = disagreements = 0
    answers = {}
    begin = time.perf_counter()
    while operations < options.operations:
        programs += 1
        try:
            steps, found = run(programs)
        except Disagreement as error:
            disagreements += 1
            steps, found = LONGEST // 2, {}
            if disagreements <= options.show:
                print(error, end="\n\n")
        operations += steps
        for answer, count in found.items():
            answers[answer] = answers.get(answer, 0) + count
    seconds = time.perf_counter() - begin
    print(f"{operations} operations in {programs} programs, {operations / seconds:.0f} per second")
    print(", ".join(f"{answer}: {count}" for answer, count in sorted(answers.items())))
    print(f"{disagreements} disagreements")
    return 1 if disagreements else 0


if __name__ == "__main__":
    sys.exit(main())
