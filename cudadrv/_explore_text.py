"""The text about a run that failed in one order of its work and not in another."""

import re
from collections import Counter
from typing import Any, NamedTuple

from cudadrv._explore import Failure, Step, Verdict

HOST = 0
MOST_COLUMNS = 30
WAITED = "the host has waited"  # the driver's words (softdriver/work/steps.cpp)


class Pair(NamedTuple):
    """Two steps of a failing run: in a run that passed, ``later`` came before ``earlier``."""

    earlier: int
    later: int


def told_of(failure: Failure[Any]) -> str:
    """Return the text about a failure: the missing order in words, and the run as lanes."""
    if failure.verdict == Verdict.RACED:
        return "\n".join(lanes(failure.steps))
    pair = missing_order(failure)
    parts = [failure.cause] if failure.cause else []
    if pair is not None:
        parts.append(advice(failure.steps, pair))
    return "\n".join([*parts, *lanes(failure.steps, pair)])


def failure_as_json(failure: Failure[Any]) -> dict[str, Any]:
    """Return the failure for a file, with the steps that lanes() draws.

    ``missing`` has the indices of the steps of which the order matters.
    """
    pair, steps = missing_order(failure), failure.steps
    shown = shown_of(steps, pair)
    return {
        "script": failure.script,
        "told": told_of(failure),
        "missing": pair and [shown.index(at) for at in pair],
        "steps": [
            {"actor": steps[at].actor, "stream": title_of(steps[at]), "what": words_for(steps[at])}
            for at in shown
        ],
    }


def missing_order(failure: Failure[Any]) -> Pair | None:
    """Find two conflicting, unordered steps whose order made the difference between failure and
    success.

    In the failing run their order is the reverse of their order in the run that passed. None if
    there is no such pair, for example because no run has passed.
    """
    if failure.passing is None:
        return None
    failing = failure.steps
    known = {name: at for at, name in enumerate(_identities(failure.passing))}
    names = _identities(failing)
    found = []
    for later, step in enumerate(failing):
        for earlier in range(later):
            if not conflict(failing[earlier], step):
                continue
            first, second = known.get(names[earlier]), known.get(names[later])
            if first is not None and second is not None and second < first:
                found.append(Pair(earlier, later))
    if not found:
        return None
    # Choose the steps that are closest together: the search changed their order last. If the same
    # stream should have made several steps before, choose its last one: a wait for it is enough.
    nearest = min(found, key=lambda pair: pair.later - pair.earlier)
    actor = failing[nearest.later].actor
    return max(
        pair
        for pair in found
        if pair.earlier == nearest.earlier and failing[pair.later].actor == actor
    )


def _identities(steps: list[Step]) -> list[tuple[int, str, str, int]]:
    """Give each step a name that is the same in other runs."""
    counts: Counter[tuple[int, str, str]] = Counter()
    names = []
    for step in steps:
        # Streams and graphs without a name have another number in each run.
        name = (step.actor, step.name, re.sub(r"(Stream|graph) \d+", r"\1", step.what))
        names.append((*name, counts[name]))
        counts[name] += 1
    return names


def conflict(one: Step, other: Step) -> bool:
    """Whether the order of two steps of different actors matters."""
    return one.actor != other.actor and (
        _overlap(one.writes, other.writes)
        or _overlap(one.writes, other.reads)
        or _overlap(one.reads, other.writes)
    )


def _overlap(some: list[tuple[int, int]], others: list[tuple[int, int]]) -> bool:
    return any(a[0] < b[1] and b[0] < a[1] for a in some for b in others)


def words_for(step: Step) -> str:
    if step.what:
        return _demangled(step.what)
    return step.name if step.actor == HOST else _demangled(f"{step.name} on {step.stream}")


def _demangled(words: str) -> str:
    """Shorten the name of a kernel from C++ or numba to its names: ``__main__::blur``."""
    return re.sub(r"kernel '(_Z\w+)'", lambda found: f"kernel '{_names_in(found[1])}'", words)


def _names_in(mangled: str) -> str:
    rest, names = mangled.removeprefix("_Z").removeprefix("N"), []
    while number := re.match(r"\d+", rest):
        end = number.end() + int(number[0])
        names.append(rest[number.end() : end])
        rest = rest[end:]
    return "::".join(names) or mangled


def _is_of_cudadrv(step: Step) -> bool:
    return bool(step.what) and not step.what.startswith(step.name)


def advice(steps: list[Step], pair: Pair) -> str:
    """Say which order is missing: the later step of the failing run should come first."""
    second, first = steps[pair.earlier], steps[pair.later]
    if second.actor == HOST:
        first = _work_before(steps, pair.later)
        return (
            f"{words_for(second)} came before the end of\n  {words_for(first)}\n"
            f"Wait for this work ({_host_wait(first)}) before using its results"
        )
    if first.actor == HOST:
        return f"{words_for(first)} came after the end of\n  {words_for(second)}"
    return (
        f"nothing orders\n  {words_for(first)}\nbefore\n  {words_for(second)}\n"
        f"Let {title_of(second)} wait for the first one before it gets the second one:"
        f" {_wait(first)}"
    )


def _work_before(steps: list[Step], at: int) -> Step:
    """Return the step, or for an event that cudadrv has recorded the operation before it."""
    step = steps[at]
    if step.what or not step.name.startswith("cuEventRecord"):
        return step
    before = (steps[i] for i in range(at - 1, -1, -1) if steps[i].actor == step.actor)
    return next((earlier for earlier in before if earlier.what), step)


def _wait(first: Step) -> str:
    if _is_of_cudadrv(first):
        return "stream.wait(token or event)"
    return f"cuStreamWaitEvent, for an event recorded on {title_of(first)} behind the first one"


def _host_wait(first: Step) -> str:
    if _is_of_cudadrv(first):
        return "synchronize(), or wait() of its token"
    return "cuStreamSynchronize or cuEventSynchronize, or what calls them"


def title_of(step: Step) -> str:
    """The name of a step's stream: in the words of the program, if there are any."""
    if step.actor == HOST:
        return "host"
    words = re.search(r" on (.+?), queued at ", step.what)
    return words[1] if words else step.stream


def lanes(steps: list[Step], pair: Pair | None = None) -> list[str]:
    """Draw a run: a lane for the host and for each stream, time to the right.

    Each step is a number, and a list below says what it is. The steps of `pair` are marked.
    """
    shown = shown_of(steps, pair)
    marked = set(pair or ())
    actors = sorted({steps[at].actor for at in shown})
    titles = {actor: title_in(steps, actor) for actor in actors}
    width = max(map(len, titles.values()), default=0)
    numbers = {at: number for number, at in enumerate(shown, 1)}
    column = len(str(len(shown))) + 2
    lines = []
    for actor in actors:
        cells = [
            (f"{numbers[at]}" + ("*" if at in marked else "")) if steps[at].actor == actor else "."
            for at in shown
        ]
        lines.append(f"  {titles[actor]:<{width}}  " + "".join(f"{c:<{column}}" for c in cells))
    lines += [
        f"  {numbers[at]}{'*' if at in marked else ''}: {words_for(steps[at])}" for at in shown
    ]
    return lines


def title_in(steps: list[Step], actor: int) -> str:
    """Prefer a step that the program named: the driver's own steps of a stream have no names."""
    own = [step for step in steps if step.actor == actor]
    return title_of(next((step for step in own if step.what), own[0]))


def _does_something(steps: list[Step], at: int) -> bool:
    step = steps[at]
    if step.actor != HOST:
        return not step.name.startswith(("cuEventRecord", "cuStreamWaitEvent"))
    # A wait that follows another one, with nothing between them, shows nothing new.
    waits_again = step.what.startswith(WAITED) and (at == 0 or steps[at - 1].actor == HOST)
    return bool(step.what) and not waits_again


def shown_of(steps: list[Step], pair: Pair | None) -> list[int]:
    """Return the steps to draw: in a long run the steps around the pair, or the last steps."""
    does = [at for at in range(len(steps)) if _does_something(steps, at)]
    does = sorted({*does, *(pair or ())})
    if len(does) <= MOST_COLUMNS:
        return does
    middle = does.index(pair.earlier) if pair else len(does)
    start = max(0, min(middle - MOST_COLUMNS // 2, len(does) - MOST_COLUMNS))
    return sorted({*does[start : start + MOST_COLUMNS], *(pair or ())})
