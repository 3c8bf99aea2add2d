"""Random programs on the engine and on the oracle, which must give the same answers.

Hypothesis shrinks a failing program to a few steps. The seeded programs are faster, so there are
many more of them.
"""

import pytest
import referee
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
)
from pair import Disagreement, Pair

PROGRAMS = 12_000

cuts = st.sampled_from(referee.CUTS)
parts = st.tuples(cuts, cuts).map(sorted) | st.just([0, referee.NBYTES])
modes = st.sampled_from(["write", "read", "shared", "reach"])
policies = st.sampled_from(["strict", "wait", "unchecked"])


class Referee(RuleBasedStateMachine):
    domains = Bundle("domains")
    streams = Bundle("streams")
    memories = Bundle("memories")
    snapshots = Bundle("snapshots")
    views = Bundle("views")

    def __init__(self):
        super().__init__()
        self.pair = Pair()
        self.open_streams = []
        self.with_legacy = set()

    @initialize(target=domains, excluded=st.booleans())
    def two_domains(self, excluded):
        return multiple(self.pair.open_domain(), self.pair.open_domain(excluded))

    @initialize(target=memories)
    def two_memories(self):
        size = referee.NBYTES
        return multiple(self.pair.open_memory(size), self.pair.open_memory(size, managed=True))

    @rule(target=streams, domain=domains, kind=st.sampled_from(referee.KINDS))
    def open_stream(self, domain, kind):
        if kind == "legacy" and domain in self.with_legacy:
            return multiple()
        if kind == "legacy":
            self.with_legacy.add(domain)
        stream = self.pair.open_stream(domain, kind)
        self.open_streams.append(stream)
        return stream

    @rule(stream=consumes(streams))
    def close_stream(self, stream):
        if self.pair.lends_to(stream):
            return
        if stream.model.kind != "legacy":
            self.open_streams.remove(stream)
        self.pair.close_stream(stream)

    @rule(target=memories, managed=st.booleans())
    def open_memory(self, managed):
        return self.pair.open_memory(referee.NBYTES, managed)

    @rule(memory=memories)
    def close_memory(self, memory):
        self.pair.close_memory(memory)

    @rule(
        target=snapshots, stream=streams, memory=memories, part=parts, mode=modes, policy=policies
    )
    def issue(self, stream, memory, part, mode, policy):
        _, token = self.pair.issue(stream, [(memory, *part, mode)], policy)
        return token or multiple()

    @rule(target=snapshots, stream=streams, uses=st.lists(st.tuples(memories, parts, modes)))
    def issue_several(self, stream, uses):
        _, token = self.pair.issue(
            stream, [(memory, *part, mode) for memory, part, mode in uses[:8]]
        )
        return token or multiple()

    @rule(stream=streams, uses=st.lists(st.tuples(memories, parts, modes), max_size=3))
    def fail(self, stream, uses):
        self.pair.fail(stream, apart(uses))

    @rule(target=snapshots, stream=streams, record=st.booleans())
    def snapshot(self, stream, record):
        return self.pair.snapshot(stream, record)

    @rule(stream=streams, snapshot=snapshots)
    def wait(self, stream, snapshot):
        self.pair.wait(stream, snapshot)

    @rule(stream=streams, other=streams)
    def wait_for_stream(self, stream, other):
        self.pair.wait(stream, self.pair.snapshot(other))

    @rule(snapshot=snapshots)
    def synchronize(self, snapshot):
        self.pair.synchronize(snapshot)

    @rule(target=views, memory=memories, part=parts, mode=modes, policy=policies)
    def export(self, memory, part, mode, policy):
        if mode not in ("read", "write"):  # a host access has only these modes
            return multiple()
        answer, view = self.pair.export(memory, *part, mode, policy)
        return (memory, view) if answer == "ok" else multiple()

    @rule(target=views, stream=streams, memory=memories, part=parts, mode=modes, policy=policies)
    def lend(self, stream, memory, part, mode, policy):
        if mode not in ("read", "write"):  # a loan has only these modes
            return multiple()
        answer, view = self.pair.lend(stream, (memory, *part, mode), policy)
        return (memory, view) if answer == "ok" else multiple()

    @rule(export=consumes(views))
    def close_export(self, export):
        self.pair.close_export(*export)

    @invariant()
    def states_agree(self):
        self.pair.compare(self.open_streams)


def apart(uses):
    """Remove uses that overlap an earlier use in the list."""
    found = []
    for memory, part, mode in uses[:8]:
        access = (memory, *part, mode)
        if not any(referee.overlap(access, other) for other in found):
            found.append(access)
    return found


TestHypothesis = Referee.TestCase
TestHypothesis.settings = settings(
    max_examples=300,
    stateful_step_count=40,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("batch", range(4))
def test_seeded_programs(batch):
    answers = {}
    for seed in range(batch * PROGRAMS // 4, (batch + 1) * PROGRAMS // 4):
        _, found = referee.run(str(seed))
        for answer, count in found.items():
            answers[answer] = answers.get(answer, 0) + count
    # Limits for the share of refused steps: programs with few or no refusals would test little.
    total = sum(answers.values())
    for answer in ("ok", "borrowed", "exported", "host ok", "host borrowed"):
        assert answers[answer] / total > 0.03, answers
    for answer in ("must_wait", "memory_closed", "host must_wait"):
        assert answers[answer] > 20, answers


def test_a_wrong_answer_is_noticed():
    """An oracle that lacks one edge disagrees with the engine, and the program is printed."""

    class Deaf(referee.Program):
        def __init__(self, seed):
            super().__init__(seed)
            self.pair.oracle.wait = lambda stream, snapshot: None

    noticed = []
    for seed in range(100):
        try:
            Deaf(str(seed)).run(50)
        except Disagreement as error:
            noticed.append(str(error))
    assert len(noticed) > 10
    assert any("the engine says 'ok', the oracle 'borrowed'" in error for error in noticed)
