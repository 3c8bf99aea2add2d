"""checks=race on random programs with barriers, fences and atomics, compared with memory_model.py.

    python -m tests.kernels.checks.test_race_memory_model [--programs N] [--seed N]

runs more of them. A program that disagrees is printed.
"""

import argparse
import functools
import random
import sys

import numpy as np
import pytest

import cudadrv as cu
from cudadrv import testing

from .memory_model import (
    BARRIER,
    EXCHANGE,
    FENCE,
    READ,
    RULES,
    WRITE,
    Event,
    Execution,
    Thread,
    fence_kind,
)

pytestmark = [
    pytest.mark.cuda_software,
    pytest.mark.parametrize("cuda_schedule", ["eager"], indirect=True),
    pytest.mark.cuda_allow("hazards"),
]

THREADS = (0, 1, 2, 32, 33)  # those that access memory: lanes of both warps of a block
CELLS, CELL_BYTES = (
    4,
    16,
)  # the memory that they access: in each space, two cells of data, two flags
RESULT_BYTES, MOST_EVENTS = 16, 60
PROGRAM_BYTES = CELLS * CELL_BYTES + MOST_EVENTS * RESULT_BYTES
BATCH = 25  # programs in a module
SLOT = 250_000  # steps: longer than a block runs before the next one
SCOPES = ("cta", "gpu", "sys")
TYPES = {1: "u8", 2: "u16", 4: "u32", 8: "u64"}
YIELD, PAUSE = "yield", "pause"


class Program:
    """A random program. `lines` are events, and what changes the order in which threads run."""

    def __init__(self, seed):
        self.seed = seed
        self.random = random.Random(seed)
        self.blocks = self.random.choice((1, 1, 2))
        some = self.random.sample(
            [Thread(block, index) for block in range(self.blocks) for index in THREADS],
            self.random.randint(2, 4),
        )
        self.threads = some
        self.same_size = self.random.random() < 0.7
        self.pauses = 0
        self.lines = []
        for _ in range(self.random.randint(2, 6)):
            self._add_phase()
        del self.lines[MOST_EVENTS:]

    @property
    def events(self):
        return [line for line in self.lines if isinstance(line, Event)]

    def _add_phase(self):
        """Some threads do some things, in a random order, and then there may be a barrier."""
        queues = [self._what_a_thread_does(thread) for thread in self.threads]
        queues = [queue for queue in queues if queue]
        while queues:
            queue = self.random.choice(queues)
            self.lines.append(queue.pop(0))
            queues = [queue for queue in queues if queue]
            if self.random.random() < 0.15:
                self.lines.append((YIELD, self.random.randrange(2)))
        if self.blocks > 1 and self.pauses < 3 and self.random.random() < 0.5:
            self.pauses += 1
            self.lines.append((PAUSE, self.random.randrange(self.blocks), self.pauses + 1))
        if self.random.random() < 0.4:
            self.lines.append(self._barrier())

    def _barrier(self):
        first = tuple(index for index in THREADS if index < 32)
        second = tuple(index for index in THREADS if index >= 32)
        some = self.random.sample(THREADS, self.random.randint(2, 3))
        warp = tuple(index for index in some if index // 32 == some[0] // 32)
        waiting, arriving = self.random.choice(
            ((THREADS, ()), (first, second), (second, first), (first, ()), (warp, ()), (warp, ()))
        )
        return Event(BARRIER, waiting=tuple(sorted(waiting)), arriving=arriving)

    def _what_a_thread_does(self, thread):
        choice = self.random.random
        done = []
        for _ in range(self.random.randint(0, 2)):
            what = choice()
            if what < 0.3:  # publishes something
                done += self._maybe(self._data(thread, WRITE), 0.9)
                kind = self.random.choice((WRITE, EXCHANGE))
                done += self._with_order(self._flag(thread, kind), releases=True)
            elif what < 0.6:  # looks whether something is published
                kind = self.random.choice((READ, EXCHANGE))
                done += self._with_order(self._flag(thread, kind), acquires=True)
                done += self._maybe(self._data(thread, self.random.choice((READ, WRITE))), 0.9)
            elif what < 0.8:
                done.append(self._flag(thread, self.random.choice((READ, WRITE, EXCHANGE))))
            elif what < 0.9:
                done.append(self._data(thread, self.random.choice((READ, WRITE))))
            else:
                done.append(self._fence(thread))
        return done

    def _with_order(self, flag, **order):
        """An access to a flag, with a fence, or with an access to the same flag, or alone."""
        fence, ordered = self._fence(flag.thread), flag
        if flag.count == 1:
            ordered = flag._replace(strong=True, **order)
        done = self.random.choice(
            ([fence, flag], [fence, flag], [ordered], [ordered, flag], [flag])
        )
        return done if "releases" in order else done[::-1]

    def _maybe(self, event, probability):
        return [event] if self.random.random() < probability else []

    def _place(self, flag):
        """Where an access is: the space, the first byte, the size and the number of elements."""
        shared = self.random.random() < (0.6 if self.blocks == 1 else 0.2)
        cell = CELL_BYTES * (2 * flag + self.random.randrange(2))
        if self.same_size or self.random.random() < 0.6:
            return shared, cell, 4, 1
        size = self.random.choice((4, 4, 8) if flag else (1, 2, 4, 4, 8))
        count = self.random.choice([n for n in (1, 1, 2, 4) if n * size <= CELL_BYTES])
        start = self.random.randrange(0, CELL_BYTES, size * count)
        return shared, cell + start, size, count

    def _data(self, thread, kind):
        return Event(kind, thread, *self._place(False))

    def _flag(self, thread, kind):
        shared, start, size, count = self._place(True)
        if kind == EXCHANGE:
            count = 1
        elif self.random.random() < 0.15:
            return Event(kind, thread, shared, start, size, count)  # weak
        scope = self.random.choice(SCOPES) if self.random.random() < 0.4 else "gpu"
        # The check treats the elements of an access as one access: it does not know that an element
        # may come before another element that acquires, or after another element that releases.
        acquires = kind != WRITE and count == 1 and self.random.random() < 0.1
        releases = kind != READ and count == 1 and self.random.random() < 0.1
        return Event(kind, thread, shared, start, size, count, True, scope, acquires, releases)

    def _fence(self, thread):
        scope = self.random.choice(SCOPES) if self.random.random() < 0.4 else "gpu"
        return Event(FENCE, thread, scope=scope, strong=True, acquires=True, releases=True)

    def ptx(self, name):
        body, number = [], 0
        for position, line in enumerate(self.lines):
            if isinstance(line, Event):
                body.append(f".loc 1 {number + 1} 0")
                body += self._text(line, number)
                number += 1
            elif line[0] == YIELD:
                body.append(f"setp.ne.u32 %p1, %r3, {line[1]}; @%p1 bra n{position};")
                body.append(f"nanosleep.u32 0; n{position}:")
            else:
                body.append(f"setp.ne.u32 %p1, %r2, {line[1]}; @%p1 bra n{position};")
                body.append(f"w{position}: nanosleep.u32 0; mov.u64 %rd5, %clock64;")
                body.append(f"setp.lt.u64 %p2, %rd5, {SLOT * line[2]}; @%p2 bra w{position};")
                body.append(f"n{position}:")
        return f""".visible .entry {name}(.param .u64 out)
{{
    .reg .pred %p<4>; .reg .b16 %h<4>; .reg .b32 %r<16>; .reg .b64 %rd<16>;
    .shared .align 16 .b8 tile{name}[{CELLS * CELL_BYTES}];
    ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; shr.u32 %r3, %r1, 5;
    mad.lo.u32 %r4, %r2, 64, %r1; and.b32 %r5, %r1, 31; mov.u32 %r9, tile{name};
    {chr(10).join(body)}
    ret;
}}
"""

    def _text(self, event, number):
        if event.kind == BARRIER:
            own = 1 + sum(each.kind == BARRIER for each in self.events[:number])
            return barrier_text(event, number, own)
        thread = 64 * event.thread.block + event.thread.index
        skip = f"setp.ne.u32 %p1, %r4, {thread}; @%p1 bra e{number};"
        return [skip, *self._instructions(event, number), f"e{number}:"]

    def _instructions(self, event, number):
        if event.kind == FENCE:
            return [f"fence.{fence_kind(number)}.{event.scope};"]
        space = "shared" if event.shared else "global"
        place = f"[{'%r9' if event.shared else '%rd1'}+{event.start}]"
        wide = "%rd" if event.size == 8 else "%h" if event.size < 4 else "%r"
        first = 1 if wide == "%h" else 10
        registers = [
            f"{wide}{first + min(i, 3 if wide != '%h' else 1)}" for i in range(event.count)
        ]
        registers = [f"{wide}{first + i}" for i in range(event.count)]
        if wide == "%h":
            registers = [f"%h{i}" for i in range(event.count)]
        kind = {4: "b32", 8: "b64"}.get(event.size, "b16")
        value = int.from_bytes(bytes([number + 1]) * max(event.size, 2), "little")
        vector = f".v{event.count}" if event.count > 1 else ""
        operand = f"{{{', '.join(registers)}}}" if vector else registers[0]
        order = "weak"
        if event.strong:
            order = "relaxed"
            if event.acquires and event.releases:
                order = "acq_rel"
            elif event.acquires or event.releases:
                order = "acquire" if event.acquires else "release"
            order += f".{event.scope}"
            if order == "relaxed.sys" and event.kind != EXCHANGE:
                order = "volatile"
        lines = [f"mov.{kind} {register}, {value};" for register in registers]
        if event.kind == WRITE:
            return [*lines, f"st.{order}.{space}{vector}.{TYPES[event.size]} {place}, {operand};"]
        if event.kind == EXCHANGE:
            got = f"{wide}{first + 1}"
            lines.append(f"atom.{order}.{space}.exch.{kind} {got}, {place}, {operand};")
            operand, vector = got, ""
        else:
            lines = [f"ld.{order}.{space}{vector}.{TYPES[event.size]} {operand}, {place};"]
        result = CELLS * CELL_BYTES + number * RESULT_BYTES
        lines.append(f"st.global{vector}.{TYPES[event.size]} [%rd1+{result}], {operand};")
        return lines

    def execution(self, memory):
        """The execution of a run that has left this in the program's part of the buffer."""
        seen = {}
        for number, event in enumerate(self.events):
            if event.kind in (READ, EXCHANGE):
                at = CELLS * CELL_BYTES + number * RESULT_BYTES
                seen[number] = bytes(memory[at : at + event.size * event.count])
        return Execution(self.events, self.blocks, seen)


def barrier_text(event, number, own):
    """The PTX of a barrier. `own` is the number of a barrier that no other event uses."""
    lanes = {index % 32 for index in event.waiting}
    warps = {index // 32 for index in event.waiting}
    if event.waiting == THREADS:
        kinds = ("bar.sync 0;", f"barrier.sync {own}, 64;", f"bar.red.popc.u32 %r6, {own}, %p1;")
        return [kinds[number % 3]]
    (warp,) = warps
    if event.arriving:
        return [
            f"setp.eq.u32 %p1, %r3, {warp}; @%p1 bra s{number};",
            f"bar.arrive {own}, 64; bra e{number};",
            f"s{number}: bar.sync {own}, 64; e{number}:",
        ]
    if lanes == {index % 32 for index in THREADS if index // 32 == warp}:
        return [
            f"setp.ne.u32 %p1, %r3, {warp}; @%p1 bra e{number};",
            "bar.warp.sync -1;" if number % 2 else f"bar.sync {own}, 32;",
            f"e{number}:",
        ]
    mask = sum(1 << lane for lane in lanes)
    return [
        f"shr.u32 %r6, {mask}, %r5; and.b32 %r6, %r6, 1; setp.eq.u32 %p1, %r6, 0;",
        f"setp.ne.or.u32 %p1, %r3, {warp}, %p1; @%p1 bra e{number};",
        f"bar.warp.sync {mask}; e{number}:",
    ]


def run(programs):
    """Run the programs. Return the execution and the hazards of each."""
    text = '.version 8.0\n.target sm_90\n.address_size 64\n.file 1 "program"\n'
    text += "".join(program.ptx(f"k{i}") for i, program in enumerate(programs))
    testing.forget_hazards()
    with testing.configured("checks=race"), cu.Stream(name="s") as stream:
        out = cu.DeviceBuffer.zeros(len(programs) * PROGRAM_BYTES, np.uint8)
        with cu.Module(text) as module:
            for i, program in enumerate(programs):
                part = out[i * PROGRAM_BYTES : (i + 1) * PROGRAM_BYTES]
                module[f"k{i}"].launch(program.blocks, 64, part, stream=stream)
            stream.synchronize()
        memory = out.to_numpy().reshape(len(programs), -1)
        hazards = testing.hazards(benign=True)
    return [
        (program.execution(memory[i]), [h for h in hazards if h.kernel == f"k{i}"])
        for i, program in enumerate(programs)
    ]


def complaint(program, execution, hazards):
    """What is wrong with the hazards, or an empty text."""
    races, possible = execution.races(), execution.races(weak=False)
    if execution.mixes_sizes:
        return "" if hazards else f"not found: {[*races]}"
    racy = set().union(*races.values())
    reported = set()
    for hazard in hazards:
        pair = tuple(sorted((hazard.first.line - 1, hazard.second.line - 1)))
        if pair not in possible or not possible[pair] & racy:
            return f"no race: {pair}"
        reported |= possible[pair]
        for access in (hazard.first, hazard.second):
            event = program.events[access.line - 1]
            if Thread(access.block[0], access.thread[0]) != event.thread:
                return f"wrong thread: {access}"
    for pair, both in races.items():
        words = {(memory, byte // 4) for memory, byte in both}
        if not words & {(memory, byte // 4) for memory, byte in reported}:
            return f"not found: {pair}"
    return ""


def show(program, execution):
    """The program, and what its reads have returned, as text."""
    lines = [f"{program.blocks} blocks"]
    for number, event in enumerate(program.events):
        if event.kind == BARRIER:
            what = f"barrier {event.waiting} {event.arriving or ''}"
        else:
            what = f"block {event.thread.block} thread {event.thread.index}: {event.kind}"
            what += " strong" * event.strong + f" {event.scope}" * event.strong
            what += " acquire" * event.acquires + " release" * event.releases
        if event.kind not in (BARRIER, FENCE):
            what += f" {'shared' if event.shared else 'global'} {event.start} {event.size}"
            what += f"x{event.count} {[*execution.seen.get(number, ())]}"
        lines.append(f"{number}: {what}")
    return "\n".join(lines)


def shrunk(program):
    """Return a shorter program that disagrees, and what is wrong, as text."""
    lines, said = program.lines, None
    for position in reversed(range(len(lines))):
        program.lines = lines[:position] + lines[position + 1 :]
        ((execution, hazards),) = run([program])
        if wrong := complaint(program, execution, hazards):
            lines, said = program.lines, f"{wrong}\n{show(program, execution)}"
    program.lines = lines
    return said


@pytest.mark.parametrize("batch", range(12))
def test_random_programs(cuda_device, batch):
    programs = [Program(seed) for seed in range(batch * BATCH, (batch + 1) * BATCH)]
    for program, (execution, hazards) in zip(programs, run(programs), strict=True):
        wrong = complaint(program, execution, hazards)
        assert not wrong, f"{wrong}\n{show(program, execution)}"


@functools.cache
def sample():
    """Some programs, each with what its reads have returned, and its hazards."""
    programs = [Program(seed) for seed in range(8 * BATCH)]
    return [
        (program, execution.seen, hazards)
        for first in range(0, len(programs), BATCH)
        for program, (execution, hazards) in zip(
            programs[first : first + BATCH], run(programs[first : first + BATCH]), strict=True
        )
    ]


# "earlier" matters to few random programs; test_race.py has one by hand.
@pytest.mark.parametrize("rule", [rule for rule in RULES if rule != "earlier"])
def test_the_check_has_each_rule(cuda_device, rule):
    """Without the rule, the referee disagrees with the check."""
    assert any(
        complaint(program, Execution(program.events, program.blocks, seen, rule), hazards)
        for program, seen, hazards in sample()
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--programs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    wrong = racy = synchronized = 0
    for first in range(args.seed, args.seed + args.programs, BATCH):
        programs = [Program(seed) for seed in range(first, first + BATCH)]
        for number, (program, (execution, hazards)) in enumerate(
            zip(programs, run(programs), strict=True)
        ):
            racy += bool(execution.races())
            synchronized += bool(execution._patterns())
            if said := complaint(program, execution, hazards):
                wrong += 1
                if wrong <= 5:
                    print(f"seed {first + number}: {shrunk(program) or said}", flush=True)
    print(f"{args.programs} programs: {racy} race, {synchronized} synchronize by releases and")
    print(f"acquires, {wrong} disagree")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
