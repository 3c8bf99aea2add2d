"""Gets answers to the probe, reads recorded ones, and compares them by a list of differences."""

import fnmatch
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
PROBE = HERE / "probe"
RECORDED = HERE / "answers"
LIST = HERE / "differences.txt"
ENVIRONMENT = dict(os.environ)  # a copy, because pytest changes os.environ while threads read it
TIMING, UNDEFINED, UNRECORDED = "timing", "undefined", "unrecorded"
# Seconds after which a call counts as blocked. The first value is short even for an idle machine: a
# question that may only have been slow is asked again with the next value. The last value is enough
# for any load.
QUICK, *PATIENT = "0.03", "1", "10", "60"
SLOW = (("blocks", "returns"), ("waits", "goes on"), ("waits", "passes"))
SILENT = "did not return"  # an answer did not come within the probe's --timeout


def parse(lines):
    """Parse the lines of a file of answers. Returns its header, and its answers by question."""
    header, answers = {}, {}
    for line in lines:
        if line.startswith("#"):
            name, _, value = line.removeprefix("#").partition(":")
            header[name.strip()] = value.strip()
        else:
            question, _, answer = line.partition(" = ")
            answers[question] = answer
    return header, answers


def recorded():
    """The recorded answers of real devices: (name, header, answers) of each file."""
    for path in sorted(RECORDED.glob("*.txt")):
        yield path.name, *parse(path.read_text(encoding="utf-8").splitlines())


def of_section(answers, section):
    return {key: answers[key] for key in answers if key.startswith(f"{section} / ")}


def ask(library, section, settings="", *options):
    """Run one section in a process of its own. Returns its header and answers."""
    environment = {**ENVIRONMENT, "CUDADRV_SOFTWARE": settings}
    command = [sys.executable, str(PROBE), "--library", library, "--sections", section, *options]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return parse(done.stdout.splitlines())


def ask_quickly(library, section, settings, expected):
    """Ask as ``ask`` does, but with short timeouts.

    Repeat questions that may only have been slow, except if the list states the answer.
    """
    header, answers = ask(library, section, settings, "--patience", QUICK)
    listed = differences()
    for question in answers:
        name, wanted = question.partition(" / ")[2], expected.get(question, "")
        named = [entry for entry in listed if entry.names(question)]
        if any(entry.kind == TIMING and not entry.answer for entry in named):
            continue  # any answer is right
        for patience in PATIENT[:1] if named else PATIENT:
            answer = answers[question]
            stated = any(entry.answer and entry.allows(question, answer) for entry in listed)
            if stated or not may_be_slow(answer, wanted):
                break
            options = ["--question", name, "--patience", patience, "--timeout", f"{patience}0"]
            answers[question] = ask(library, section, settings, *options)[1][question]
    return header, answers


def may_be_slow(answer, wanted):
    """Whether `answer` is acceptable on a busy machine, for a driver whose answer should be
    `wanted`.
    """
    if answer == wanted:  # check this first: one answer may have both a slow and a quick word
        return False
    silent = SILENT in answer and SILENT not in wanted
    return silent or any(slow in answer and quick in wanted for slow, quick in SLOW)


class Difference:
    """A line of the list: which questions may be answered differently, and why.

    With a second pattern after `` = ``, only answers of the software driver that match it are
    allowed.
    """

    def __init__(self, kind, pattern, reason):
        self.kind, self.pattern, self.reason = kind, pattern, reason
        self._question, _, self.answer = pattern.partition(" = ")

    @property
    def section(self):
        return self.pattern.partition(" / ")[0]

    def names(self, question):
        return fnmatch.fnmatchcase(question, self._question)

    def allows(self, question, answer):
        return self.names(question) and fnmatch.fnmatchcase(answer, self.answer or "*")


def differences(path=LIST):
    """Read the list:

    ``== kind: explanation`` lines, each followed by ``pattern | reason`` lines.
    """
    kind, found = None, []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("=="):
            kind = line.removeprefix("==").partition(":")[0].strip()
        elif line.strip() and not line.startswith("#"):
            pattern, _, reason = map(str.strip, line.partition(" | "))
            assert kind, f"no heading above: {line}"
            assert reason, f"no reason: {line}"
            found.append(Difference(kind, pattern, reason))
    return found


class Comparison:
    """Answers of the software driver, or of another machine, compared with recorded ones."""

    def __init__(self, real, asked, listed):
        self.real, self.asked = real, asked
        self.questions = list(dict.fromkeys([*real, *asked]))
        self.different = [q for q in self.questions if real.get(q) != asked.get(q)]
        self.listed = listed

    def unlisted(self):
        """Questions with different answers that no entry of the list allows."""
        hidden = {question for entry in self.listed for question in self.hidden(entry)}
        return [question for question in self.different if question not in hidden]

    def unexpected(self):
        """Questions that two runs of the same real driver answer differently, although they should
        not.

        Where an answer is undefined, depends on time or was never recorded, any answer is right.
        """
        kinds = (TIMING, UNDEFINED, UNRECORDED)
        entries = [entry for entry in self.listed if entry.kind in kinds]
        return [q for q in self.different if not any(entry.names(q) for entry in entries)]

    def hidden(self, entry):
        return [q for q in self.different if entry.allows(q, self.asked.get(q, ""))]

    def agreeing(self, entry):
        """Questions that match an entry although their answers agree."""
        different = set(self.different)
        return [q for q in self.questions if entry.names(q) and q not in different]

    def wrong(self):
        """Yield the errors in the list: entries that allow nothing, or would allow too much."""
        for entry in self.listed:
            named, agreeing = self.hidden(entry), self.agreeing(entry)
            if entry.kind == TIMING:
                if not named and not agreeing:
                    yield f"{entry.pattern}: stale, there is no such question"
            elif not named:
                yield f"{entry.pattern}: stale, no answer differs"
            elif agreeing and not entry.answer:
                yield f"{entry.pattern}: too wide, {len(agreeing)} agree, such as: {agreeing[0]}"

    def explain(self, question, command):
        name = question.partition(" / ")[2]
        return (
            f"{question}\n    real:     {self.real.get(question)}\n"
            f"    this one: {self.asked.get(question)}\n"
            f'    ask only this: {command} --question "{name}"'
        )
