"""All short programs over a few streams, two ranges of one memory, an event and the host.

An engine cannot be copied, so each program runs from its start. Only the last step of a program is
judged and compared: each earlier step was the last one of a shorter program.
"""

import pytest
from oracle import Oracle
from pair import Pair

RANGES = ((0, 1), (1, 2))
MODES = ("read", "write")


class Small:
    """The objects of a program. They are few, because each program makes them anew.

    Each step returns whether it changed anything.
    """

    def __init__(self, kinds):
        self.pair = Pair()
        domain = self.pair.open_domain()
        self.streams = [self.pair.open_stream(domain, kind) for kind in kinds]
        self.memory = self.pair.open_memory(2)
        self.event = None

    def issue(self, at, part, mode):
        return self.pair.issue(self.streams[at], [(self.memory, *RANGES[part], mode)])[0] == "ok"

    def issue_whole(self, at, mode):
        return self.pair.issue(self.streams[at], [(self.memory, 0, 2, mode)])[0] == "ok"

    def record(self, at):
        self.event = self.pair.snapshot(self.streams[at])
        return True

    def wait(self, at):
        if self.event:
            self.pair.wait(self.streams[at], self.event)
        return self.event is not None

    def synchronize_event(self):
        if self.event:
            self.pair.synchronize(self.event)
        return self.event is not None

    def synchronize(self, at):
        self.pair.synchronize(self.pair.snapshot(self.streams[at], record=False))
        return True

    def host(self, part, mode):
        answer, view = self.pair.export(self.memory, *RANGES[part], mode)
        if answer == "ok":
            self.pair.close_export(self.memory, view)


def steps_of(streams):
    found = [(Small.issue, at, part, mode) for at in streams for part in (0, 1) for mode in MODES]
    found += [(Small.issue_whole, at, "write") for at in streams]
    found += [
        (step, at) for step in (Small.record, Small.wait, Small.synchronize) for at in streams
    ]
    found += [(Small.synchronize_event,)]
    return found


USES_OF_EVENTS = (Small.wait, Small.synchronize_event)
LAST = [(Small.host, part, mode) for part in (0, 1) for mode in MODES]


def begun(kinds, program):
    """Make new objects, and run a program on them whose steps were judged before."""
    small = Small(kinds)
    small.pair.judging = False
    for step, *arguments in program:
        step(small, *arguments)
    small.pair.judging = True
    return small


def changes_anything(kinds, program):
    step, *arguments = program[-1]
    return step(begun(kinds, program[:-1]), *arguments)


def uses_all_events(program):
    """Whether each event is used before the next one is recorded."""
    waiting = False
    for step, *_ in program:
        if step is Small.record and waiting:
            return False
        waiting = step is Small.record or (waiting and step not in USES_OF_EVENTS)
    return not waiting


def may_use_all_events(program):
    """Whether more steps can use the events that nothing has used."""
    return uses_all_events([*program, (Small.synchronize_event,)])


def run_all(kinds, length, shortened=False):
    """Run all programs of this length, and return their number.

    A host access changes nothing, so it can only be the last step. All last steps are tried on the
    same objects, until one changes anything. By symmetry, the range that is used first is always
    the first range, and likewise for streams of the same kind.

    `shortened` skips programs with an earlier step that changes nothing, such as a refused
    operation, or an event that nothing uses: shorter programs cover them.
    """
    steps = steps_of(range(len(kinds)))
    first = [step for step in steps if step[0] is not Small.wait and 1 not in step[2:3]]
    if kinds[0] == kinds[1]:
        first = [step for step in first if step[1:2] != (1,)]
    programs = [[step] for step in first if step[0] is not Small.synchronize_event]
    assert all(changes_anything(kinds, program) for program in programs)
    for _ in range(length - 2):
        programs = [[*program, step] for program in programs for step in steps]
        if shortened:
            programs = [
                program
                for program in programs
                if may_use_all_events(program) and changes_anything(kinds, program)
            ]
    count = 0
    for program in programs:
        last = LAST + steps
        if shortened:
            last = [step for step in last if uses_all_events([*program, step])]
        count += len(last)
        small = begun(kinds, program)
        for step, *arguments in last:
            changed = step(small, *arguments)
            small.pair.compare(small.streams)
            if changed:
                small = begun(kinds, program)
    return count


KINDS = [("non_blocking", "non_blocking"), ("blocking", "legacy")]


@pytest.mark.parametrize("kinds", KINDS, ids=" and ".join)
def test_all_programs_of_up_to_four_steps(kinds):
    assert sum(run_all(kinds, length) for length in (2, 3, 4)) > 30_000


@pytest.mark.slow
@pytest.mark.parametrize("kinds", KINDS, ids=" and ".join)
def test_all_programs_of_five_steps(kinds):
    assert run_all(kinds, 5, shortened=True) > 100_000


@pytest.mark.slow
def test_all_programs_of_four_steps_with_the_three_kinds():
    kinds = ("blocking", "blocking", "legacy", "non_blocking")
    assert run_all(kinds, 4, shortened=True) > 100_000


def test_the_oracle_itself_refuses_and_accepts():
    """The oracle also refuses: comparing with an oracle that accepts everything proves nothing."""
    oracle = Oracle()
    domain = oracle.open_domain(False)
    first, second = (oracle.open_stream(domain, "non_blocking") for _ in range(2))
    memory = oracle.open_memory(8, False)
    use = [(memory, 0, 8, "write")]
    assert oracle.judge(first, use, "strict").answer == "ok"
    token = oracle.issue(first, use, 1)
    assert oracle.judge(second, use, "strict") == ("borrowed", {1})
    assert oracle.judge_export(memory, 0, 8, "read", "strict") == ("borrowed", {1})
    oracle.wait(second, token)
    assert oracle.judge(second, use, "strict").answer == "ok"
    assert oracle.judge_export(memory, 0, 8, "read", "strict").answer == "borrowed"
    oracle.synchronize(token)
    assert oracle.judge_export(memory, 0, 8, "read", "strict").answer == "ok"
