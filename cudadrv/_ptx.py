"""PTX text, as far as a launch needs it: kernels, their parameters, the variables each may touch.

Nothing here judges the text: the driver has taken it. What is not understood is left out, and what
depends on it then takes the safe side.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

NAME = r"[A-Za-z_$%][\w$]*"
_COMMENT = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_BRACE = re.compile(r"[{}]")
_FUNCTION = re.compile(rf"\.(entry|func)\b\s*(?:\([^)]*\)\s*)?({NAME})\s*(?:\(([^)]*)\))?")
_VARIABLE = re.compile(rf"({NAME})\s*(?:\[[^\]]*\]\s*)*$")
_SPACE = re.compile(r"(?<![\w$])\.(global|const)\b")
_PARAMETER = re.compile(
    rf"\s*\.param\s+(?:\.align\s+(\d+)\s*)?\.([a-z]+)(\d+)((?:\s*\.(?:ptr|const|global|local|shared"
    rf"|align\s+\d+)\b)*)\s+({NAME})\s*(?:\[\s*(\d+)\s*\])?\s*"
)
_MENTIONED = re.compile(rf"(?<![\w$%.]){NAME}")
_INDIRECT = re.compile(r"\.call(?:prototype|targets)\b")


class Parameter(NamedTuple):
    """One parameter of a kernel, see `Kernel.parameters`.

    ``type`` is as in PTX without its dot, such as ``"u32"``, or ``"b8[16]"`` for a structure;
    ``name`` and ``type`` are None where only the driver was asked, which knows neither.
    ``offset`` and ``nbytes`` say where it is among all of them.
    """

    name: str | None
    type: str | None
    offset: int
    nbytes: int


class Text:
    """What a PTX text says.

    Attributes
    ----------
    kernels
        The parameters of each kernel; None where they were not understood.
    variables, constants
        Names of the variables, and of those among them that are in constant memory.
    """

    def __init__(self, text: str) -> None:
        self.kernels: dict[str, tuple[Parameter, ...] | None] = {}
        self.constants: set[str] = set()
        self.variables: set[str] = set()
        self._mentioned: dict[str, set[str]] = {}
        self._anything: set[str] = set()  # functions that call what only a register knows
        for head, body in _definitions(_COMMENT.sub(" ", text)):
            self._define(head, body)

    def _define(self, head: str, body: str) -> None:
        function = _FUNCTION.search(head)
        if function:
            name = function[2]
            if function[1] == "entry":
                self.kernels[name] = _parameters(function[3] or "")
            if _INDIRECT.search(body):
                self._anything.add(name)
        else:
            declared, _, body = head.partition("=")
            space, found = _SPACE.search(declared), _VARIABLE.search(declared.rstrip())
            if not space or not found:
                return
            name = found[1]
            self.variables.add(name)
            if space[1] == "const":
                self.constants.add(name)
        self._mentioned.setdefault(name, set()).update(_MENTIONED.findall(body))

    def touched(self, kernel: str) -> set[str] | None:
        """The variables that a kernel may reach by name; None: perhaps all of them."""
        reached: set[str] = set()
        todo = [kernel]
        while todo:
            name = todo.pop()
            if name in reached:
                continue
            if name in self._anything:
                return None
            reached.add(name)
            todo += [other for other in self._mentioned.get(name, ()) if other in self._mentioned]
        return reached & self.variables if kernel in self._mentioned else None


def _definitions(text: str) -> Iterator[tuple[str, str]]:
    """Head and body of each function; statements, with their initial values, have no body."""
    depth, start, opened, head = 0, 0, 0, ""
    for brace in _BRACE.finditer(text):
        if brace[0] == "{":
            if depth == 0:
                *statements, last = text[start : brace.start()].split(";")
                yield from ((statement, "") for statement in statements)
                head, opened = head + last, brace.end()
            depth += 1
        elif depth:
            depth -= 1
            if depth == 0:
                start = brace.end()
                body = text[opened : brace.start()]
                if _FUNCTION.search(head):
                    yield head, body
                    head = ""
                else:  # values of a variable, whose statement goes on
                    head += body
                    end = text.find(";", start)
                    if _BRACE.search(text, start, end if end >= 0 else start) is None:
                        yield head, ""
                        head, start = "", end + 1 if end >= 0 else start
    yield from ((statement, "") for statement in (head + text[start:]).split(";"))


def _parameters(text: str) -> tuple[Parameter, ...] | None:
    """The parameters, each at the next multiple of its alignment."""
    found: list[Parameter] = []
    offset = 0
    for declared in text.split(",") if text.strip() else ():
        match = _PARAMETER.fullmatch(declared)
        if not match:
            return None
        align, letters, bits, _, name, count = match.groups()
        nbytes = int(bits) // 8
        if nbytes == 0:
            return None
        offset += -offset % (int(align) if align else nbytes)
        kind = f"{letters}{bits}" + (f"[{count}]" if count else "")
        nbytes *= int(count or 1)
        found.append(Parameter(name, kind, offset, nbytes))
        offset += nbytes
    return tuple(found)
