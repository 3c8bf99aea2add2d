"""Random programs through the public API.

The oracle predicts the outcome of each call and the bytes, and there are no races.
"""

import gc
from collections import Counter
from pathlib import Path

import library
import oracle
import pytest
import session
from library_programs import POLICIES, Program
from library_shared import Register
from library_tickets import Partner
from pair import Disagreement
from session_host import FullSession

import cudadrv as cu

FOLDER = Path(__file__).parent
PROGRAMS = 120  # number of programs for each policy, under each schedule
PROGRAMS_OF_TWO = 120  # of two processes: fewer, because each takes five times as long
# The minimal share of each answer that is in neither SELDOM nor RARE: about a dozen calls. On a GPU
# the shares are different, because no calls fail there and the steps differ. The smallest share
# there was 0.0017.
LEAST = 0.0015
# Refusals that need no oracle. Each has to happen at least once.
SELDOM = {
    session.DEAD,
    session.SMALLER,
    session.IS_PART,
    session.DEFAULT_STREAM,
    session.NOT_ORDERED,
    session.OVERLAP,
}
# Refusals of which more than half have to happen.
RARE = {session.OTHER_CONTEXT, session.LENT, session.PARTS_LIVE, session.LIVE, session.NOT_OURS}
RARE |= {
    session.NO_SUCH_FILL,
    session.FILL_BY_PARTS,
    session.NO_SUCH_CHANGE,
    session.ENDED,
    oracle.OTHER_THREAD,
}
RARE |= {session.TAKEN, session.NOT_LENT, session.NO_TURNS, session.NO_NAME, session.USED_PARTS}
RARE |= {session.UNFINISHED, session.OTHER_CONSUMER, session.NOT_THEIRS, session.READ_ONLY}
RARE |= {session.NO_ACCESS}  # needs two devices
RARE |= {
    session.FILL_BY_PARTS,
    session.NOT_WHOLE,
    session.OF_POOL,
    oracle.DISCARDED,
    oracle.CAPTURED,
    oracle.HELD,
    session.THEIRS,
    session.GRAPH_CLOSED,
    session.NO_TIMING,
    session.UNREADY,
    session.LATER,
}
# Refusals of programs with a second process, and answers that the second process must have given.
OF_TICKETS = {session.NOT_SHAREABLE, session.NOT_SHARED, session.OWN_TICKET, session.NO_TICKET}
THERE = {oracle.OK, oracle.EXPORTED, oracle.MEMORY_CLOSED, session.NO_TICKET, session.USED_PARTS}
RAISED = session.RAISED.keys() - OF_TICKETS


@pytest.mark.parametrize("policy", POLICIES)
def test_seeded_programs(driver, policy):
    answers = Counter()
    for seed in range(PROGRAMS):
        answers.update(library.run(f"{policy}.{seed}", policy)[1])
    # Limits for the share of accepted calls: programs with few or no refusals would test little.
    assert answers.keys() >= RAISED - RARE
    assert len(answers.keys() & RARE) > len(RARE) / 2
    shares = {answer: count / answers.total() for answer, count in answers.items()}
    assert 0.6 < shares[oracle.OK] < 0.9, shares
    for answer in RAISED - SELDOM - RARE:
        assert shares[answer] > LEAST, shares
    if policy != "strict":
        assert shares[session.WAITED] > LEAST, shares


@pytest.fixture
def partner(driver, monkeypatch):
    """A second process, to which programs lend buffers."""
    partner = Partner()
    monkeypatch.setattr(Program, "partner", partner)
    monkeypatch.setattr(Program, "with_tickets", 1)
    yield partner
    assert partner.stop() == 0


@pytest.mark.parametrize("policy", POLICIES)
def test_programs_of_two_processes(partner, policy):
    answers = Counter()
    for seed in range(PROGRAMS_OF_TWO):
        answers.update(library.run(f"tickets.{policy}.{seed}", policy)[1])
    assert answers.keys() >= {*OF_TICKETS - {session.NO_TICKET}, *(f"there {x}" for x in THERE)}
    assert answers["there ok"] > answers[oracle.OK] / 10


def test_programs_that_await(driver):
    """Programs with tokens that are awaited. From then on, a second thread watches tokens."""
    for seed in range(20):
        library.run(f"await.{seed}", awaits=True)


def first_lines(programs=150, policy="strict"):
    """The first lines of disagreements, in a run in which the oracle or a model is wrong."""
    for seed in range(programs):
        try:
            library.run(str(seed), policy)
        except Disagreement as error:
            yield str(error).splitlines()[0]


def is_noticed(text):
    """Whether a program disagrees in these words. Ends the contexts that this program has made."""
    found = any(text in line for line in first_lines())
    gc.collect()
    cu.reap()  # the contexts can be collected only after their memory is freed
    return found


lazily = pytest.mark.parametrize("cuda_schedule", ["lazy"], indirect=True)


@lazily
@pytest.mark.cuda_software
@pytest.mark.parametrize(
    "operations", ["3000", "6000 --contexts", "4000 --tickets", "4000 --guard"]
)
def test_programs_on_two_devices(driver, script, operations):
    said = script.run(
        f"import sys; sys.argv[1:] = '--operations {operations} --schedule all'.split();"
        f" sys.path.insert(0, {str(FOLDER)!r}); import library; sys.exit(library.main())",
        CUDADRV_SOFTWARE="devices=2",
    )
    assert "\n0 disagreements" in said.stdout, said.stdout + said.stderr


@lazily
@pytest.mark.cuda_software
@pytest.mark.parametrize("threads", ["2", "8", "4 --guard"])
def test_programs_of_several_threads(driver, script, threads):
    said = script.run(
        f"import sys; sys.argv[1:] = '--operations 4000 --threads {threads}'.split();"
        f" sys.path.insert(0, {str(FOLDER)!r}); import library; sys.exit(library.main())",
        CUDADRV_SOFTWARE="devices=2",
    )
    assert "\n0 disagreements" in said.stdout, said.stdout + said.stderr


@lazily
@pytest.mark.cuda_software
def test_the_programs_that_are_replayed(driver, script):
    """The programs run here without a record: calls are accepted or refused, and nothing races."""
    said = script.run(
        f"""
        import sys, warnings
        sys.path.insert(0, {str(FOLDER)!r})
        import library, library_replayed, library_shared
        # A driver call that fails may be one that ends a closed stream.
        warnings.simplefilter("ignore", library_replayed.cu.CudaWarning)
        library_shared.begin()
        answers = set()
        for number, policy in enumerate([*library.POLICIES] * 5):
            program = library_replayed.ReplayedProgram(str(number), policy, 4)
            program.run()
            program.end()
            answers |= program.calls.keys()
        print(*sorted(answers))
        """
    )
    assert said.stdout == "accepted failed refused\n", said.stdout + said.stderr


def test_reads_that_no_order_of_the_calls_explains_are_noticed():
    register = Register(None, writes={1: (1, 2), 2: (3, 4), 3: (6, 9)})
    register.check({2}, 5, 6)  # 3 may come before or after the read
    register.check({3}, 5, 7)
    for values in ({1}, {2, 3}, {4}):
        with pytest.raises(Disagreement):
            register.check(values, 5, 7)
    with pytest.raises(Disagreement):  # the write of 3 has not begun
        register.check({3}, 4, 5)


@lazily
def test_a_call_that_is_wrongly_accepted_is_noticed(driver, monkeypatch):
    monkeypatch.setattr(oracle.Oracle, "wait", lambda self, stream, snapshot: None)
    assert is_noticed("gives 'ok', expected 'borrowed'")


@lazily
def test_a_call_that_is_wrongly_refused_is_noticed(driver, monkeypatch):
    def everything(self, stream, passive=False):
        return [self.host, *(other.last for other in stream.domain.streams)]

    monkeypatch.setattr(oracle.Oracle, "before", everything)
    assert is_noticed("gives 'borrowed', expected 'ok'")


@lazily
@pytest.mark.cuda_software
def test_wrong_bytes_and_races_are_noticed(driver, monkeypatch):
    """The comparison notices wrong bytes and races.

    The operations are unchecked and not ordered, and the session is told that they are ordered.
    """
    always = property(lambda self: True, lambda self, ordered: None)
    monkeypatch.setattr(FullSession, "ordered", always, raising=False)
    lines = list(first_lines(policy="unchecked"))
    assert any(line.startswith("bytes of") for line in lines)
    assert any(line.startswith("races in an accepted program") for line in lines)
