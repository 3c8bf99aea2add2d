"""Reads PTX texts: finds the kernels, their parameters, and the variables that each may use.

The text is not validated, because the driver has accepted it. Code that the parser does not
understand is assumed to use all variables.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from cudadrv._cpp_names import noted_names

NAME = r"[A-Za-z_$%][\w$]*"
_ATTRIBUTE = r"\.attribute\s*\((?:[^()]|\([^()]*\))*\)"
_COMMENT = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_STOP = re.compile(r"[{};]")
_BRACE = re.compile(r"[{}]")
_SEPARATOR = re.compile(r"[][{}(),]")
# What may precede a definition: directives that have no semicolon, and the linkage.
_BEFORE = re.compile(
    r"(?:\s*(?:\.version\s+[\d.]+|\.target\s+\w+(?:\s*,\s*\w+)*|\.address_size\s+\d+"
    r"|\.file\s+\d+(?:\s*,\s*\d+)*|\.(?:visible|extern|weak|common)\b))*\s*"
)
_FUNCTION = re.compile(
    rf"\.(entry|func)\b\s*(?:{_ATTRIBUTE}\s*)*(?:\(([^()]*)\)\s*)?({NAME})\s*(?:\(([^()]*)\))?"
)
# What follows the declaration of a function, if the declaration ends without a semicolon.
_NEXT = re.compile(r"\.(?:visible|extern|weak|common|entry|func|global|const|alias|reg)\b")
_ALIAS = re.compile(rf"\.alias\s+({NAME})\s*,\s*({NAME})\s*")
_SPACE = re.compile(r"\.(global|const)\b")
_INNER = re.compile(r"(?<![\w$.])\.(?:global|const)\b[^;]*")  # variables declared in a function
_TYPE = re.compile(rf"(?:\s*(?:\.align\s+\d+|{_ATTRIBUTE}|\.[a-z]\w*))*\s*")
_VARIABLE = re.compile(
    rf"\s*({NAME})\s*(?:<\s*(\d+)\s*>\s*)?(?:\[[^\]]*\]\s*)*(?:=(.*))?", re.DOTALL
)
_NO_DEFINITION = re.compile(r"\.(?:section|pragma|shared|local|tex)\b|$")
_PARAMETER = re.compile(
    r"\s*\.param\s+(?:\.align\s+(\d+)\s*)?\.([a-z]+)(\d+)((?:\s*\.(?:ptr|const|global|local"
    rf"|shared|align\s+\d+)\b)*)\s+({NAME})\s*(?:\[\s*(\d+)\s*\])?\s*"
)
_NUMBER = r"(0[xX][\da-fA-F]+|0[bB][01]+|\d+)U?"
_DIRECTIVE = re.compile(
    rf"\.(?:(reqntid|maxclusterrank)\s+{_NUMBER}(?:\s*,\s*{_NUMBER})?(?:\s*,\s*{_NUMBER})?"
    r"|(blocksareclusters)\b)"
)
_MENTIONED = re.compile(rf"(?<![\w$%.]){NAME}")
# Unlike _MENTIONED, this does not match instructions that have a suffix.
_NAMED = re.compile(rf"(?<![\w$%.]){NAME}(?![\w$.])")
# Variables that compilers generate and programs never modify, such as literals and virtual tables.
_LITERAL = re.compile(r"_ZT[ISTV]|\$str|_\$_str|__unnamed_|__cudart_")
_INDIRECT = re.compile(r"\.call(?:prototype|targets)\b")
# What may precede an instruction: labels and source line directives.
_LABELS = re.compile(
    rf"(?:\s*(?:{NAME}\s*:(?!:)|\.loc(?:\s+\d+){{3}}(?:\s*,\s*function_name\s+{NAME}"
    rf"(?:\s*\+\s*\d+)?\s*,\s*inlined_at(?:\s+\d+){{3}})?))*\s*"
)
_LABEL = re.compile(rf"({NAME})\s*:")
_INSTRUCTION = re.compile(rf"(?:@\s*!?\s*{NAME}\s*)?([a-z]\w*)((?:\.\w+|::\w+)*)", re.ASCII)
_LOCAL = re.compile(r"\.(reg|param|local|shared)\b")
_CALL = re.compile(rf"\s*(?:\([^()]*\)\s*,\s*)?({NAME})")

SLOT = "#slot"  # marks the .param variables that a function declares for its calls

# Instructions that compute their first operand from the others, and access no memory.
_COMPUTING = frozenset(
    re.findall(
        r"\w+",
        "abs add addc and bfe bfi bfind brev clz cnot copysign cos cvt cvta div dp2a dp4a ex2 fma"
        " fns isspacep lg2 lop3 mad mad24 madc mapa match max min mov mul mul24 neg not or popc"
        " prmt rcp rem rsqrt sad selp set setp shf shfl shl shr sin slct sqrt sub subc szext tanh"
        " testp vote xor",
    )
)
# Other instructions that access no memory, or only the shared memory of their block.
_LOCAL_ONLY = frozenset(
    re.findall(
        r"\w+",
        "activemask bar barrier createpolicy elect fence griddepcontrol ldmatrix mapa mbarrier"
        " membar mma movmatrix nanosleep prefetch prefetchu redux setmaxnreg stmatrix",
    )
)
# Suffixes of loads, stores and atomics that do not access global memory.
_LOCAL_SPACES = re.compile(r"\.(?:shared|local|param|const)\b")
_ADDRESSING = frozenset(["atom", "ld", "red", "st"])
_LEAVING = frozenset(["exit", "ret", "trap"])
# Instructions that only read through an address, and functions of the driver that only read.
_READING = frozenset(["ld", "ldu", "prefetch", "prefetchu", "suld", "suq", "tex", "tld4", "txq"])
_READING_FUNCTIONS = frozenset(("vprintf", "__assertfail"))


class Parameter(NamedTuple):
    """One parameter of a kernel: see `Kernel.parameters`.

    ``type`` is the PTX type without its dot, such as ``"u32"``, or ``"b8[16]"`` for a structure.
    ``name`` and ``type`` are None if the image is not PTX. ``offset`` is the parameter's place
    among all parameters, and ``nbytes`` its size, both in bytes.
    """

    name: str | None
    type: str | None
    offset: int
    nbytes: int


class Directives(NamedTuple):
    """The directives of a kernel that launches have to obey, and that the driver does not tell.

    Attributes
    ----------
    block
        The only block that can be launched (.reqntid), or None.
    most_in_cluster
        The most blocks of a cluster (.maxclusterrank), or None.
    grid_of_clusters
        Whether the grid of a launch counts clusters, not blocks (.blocksareclusters).
    """

    block: tuple[int, int, int] | None = None
    most_in_cluster: int | None = None
    grid_of_clusters: bool = False


class _Use(NamedTuple):
    """The variables that a function uses (True: it may write it), and the functions it may call."""

    variables: dict[str, bool]
    functions: set[str]


class Text:
    """A parsed PTX text.

    Attributes
    ----------
    kernels
        The parameters of each kernel, by name; None if they were not understood.
    directives
        The directives of each kernel, by name.
    names
        The mangled names of kernels, by the names that a compiler was asked for.
    variables, constants
        The names of the program's variables, and of everything in constant memory.
    """

    def __init__(self, text: str) -> None:
        self.kernels: dict[str, tuple[Parameter, ...] | None] = {}
        self.directives: dict[str, Directives] = {}
        self.names = noted_names(text)
        self.variables: set[str] = set()
        self.constants: set[str] = set()
        self._bodies: dict[str, list[tuple[str, str]]] = {}  # (parameters, body) by function
        self._named: dict[str, set[str]] = {}  # names in the value of each variable or alias
        self._uses: dict[str, _Use] = {}
        self._early: dict[str, str | None] = {}  # by kernel: what `early_access` returned
        self._understood = True
        for head, body in _definitions(_COMMENT.sub(" ", text)):
            self._understood &= self._define(head[_before(head) :], body)

    def _define(self, head: str, body: str | None) -> bool:
        """Record a definition. Returns whether it was understood."""
        if function := _FUNCTION.match(head):
            kind, results, name, parameters = function.groups()
            if kind == "entry":
                self.kernels[name] = _parameters(parameters or "")
                known = self.directives.get(name, Directives())  # the directives of its declaration
                self.directives[name] = _directives(head[function.end() :], known)
            bodies = self._bodies.setdefault(name, [])
            if body is None:
                return True
            bodies.append((f"{results or ''} {parameters or ''}", body))
            found = [self._define(inner[0], None) for inner in _INNER.finditer(body)]
            return all(found)
        if space := _SPACE.match(head):
            declared = _declarators(head[space.end() :])
            # A list and not a generator, so that all variables are recorded before `all` runs.
            found = [self._declare(space[1], each) for each in declared]
            return all(found)
        if alias := _ALIAS.fullmatch(head):
            self._bodies.setdefault(alias[1], [])
            self._named.setdefault(alias[1], set()).add(alias[2])
            return True
        return _NO_DEFINITION.match(head) is not None

    def _declare(self, space: str, declared: str) -> bool:
        variable = _VARIABLE.fullmatch(declared)
        if not variable or int(variable[2] or 0) > 1000:
            return False
        base, count, values = variable.groups()
        for name in [base] if count is None else [f"{base}{i}" for i in range(int(count))]:
            if not _LITERAL.match(name):
                self.variables.add(name)
            if space == "const":
                self.constants.add(name)
            self._named.setdefault(name, set()).update(_MENTIONED.findall(values or ""))
        return True

    def reached(self, kernel: str) -> dict[str, bool]:
        """Return the variables that a kernel may use, by name.

        The value is True if the kernel may write the variable.
        """
        reached: dict[str, bool] = {}
        if not self._understood or not self._bodies.get(kernel):
            return {name: name not in self.constants for name in self.variables}
        seen: set[str] = set()
        todo = [kernel]
        while todo:
            name = todo.pop()
            if name in seen:
                continue
            seen.add(name)
            named = self._named.get(name, set())
            todo += named
            # If a variable contains the address of another one, the kernel may write the other one.
            reached.update((other, True) for other in named & self.variables)
            if name in self._bodies:
                use = self._use_of(name)
                todo += use.functions
                todo += use.variables
                for variable, written in use.variables.items():
                    reached[variable] = written or reached.get(variable, False)
        return {name: reached[name] and name not in self.constants for name in reached}

    def early_access(self, kernel: str) -> str | None:
        """Return a statement of a kernel that may access memory before griddepcontrol.wait.

        Each path through the kernel is followed up to its first ``griddepcontrol.wait``. Calls, and
        branches whose target is not known, count as accesses. Returns None if there is no such
        statement.
        """
        if kernel not in self._early:
            found = (_early_access([*_labelled(body)]) for _, body in self._bodies[kernel])
            self._early[kernel] = next(filter(None, found), None)
        return self._early[kernel]

    def _use_of(self, function: str) -> _Use:
        if function not in self._uses:
            variables: dict[str, bool] = {}
            functions: set[str] = set()
            known = self._bodies.keys() | self._named.keys()
            for given, body in self._bodies[function]:
                functions |= known.intersection(_NAMED.findall(body))
                if _INDIRECT.search(body):  # the function may call every function except kernels
                    functions |= self._bodies.keys() - self.kernels.keys()
                if touched := self.variables.intersection(_MENTIONED.findall(body)):
                    written = _written(given, body, touched)
                    for name in touched:
                        variables[name] = name in written or variables.get(name, False)
            self._uses[function] = _Use(variables, functions)
        return self._uses[function]


# ---- definitions ----


def _before(head: str) -> int:
    found = _BEFORE.match(head)
    return found.end() if found else 0


def _definitions(text: str) -> Iterator[tuple[str, str | None]]:
    """Yield (head, body) of each function or section, and (statement, None) of each statement."""
    at = 0
    while stop := _STOP.search(text, at):
        head = text[at : stop.start()]
        while end := _end_of_declaration(head):
            yield head[:end], None
            head = head[end:]
        at = stop.end()
        if stop[0] == ";":
            yield head, None
        elif stop[0] == "}":
            yield "}", None
        elif head.startswith((".entry", ".func", ".section"), _before(head)):
            end = _end_of_block(text, at)
            yield head, text[at:end]
            at = end + 1
        else:  # a variable with values in braces
            end = stop.start()
            while (stop := _STOP.search(text, end)) and stop[0] == "{":
                end = _end_of_block(text, stop.end()) + 1
            end = stop.start() if stop else len(text)
            yield text[at - len(head) - 1 : end], None
            at = end + 1
    yield text[at:], None


def _end_of_declaration(head: str) -> int:
    """Return where the declaration of a function ends, if it ends without a semicolon; else 0."""
    function = _FUNCTION.match(head, _before(head))
    following = function and _NEXT.search(head, function.end())
    return following.start() if following else 0


def _end_of_block(text: str, at: int) -> int:
    """Return the position of the brace that closes the block which begins at `at`."""
    depth = 1
    for brace in _BRACE.finditer(text, at):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return brace.start()
    return len(text)


def _declarators(text: str) -> list[str]:
    """Return the variables of one declaration as texts, each with its sizes and values."""
    kind = _TYPE.match(text)
    return _separated(text, kind.end() if kind else 0)


def _separated(text: str, start: int) -> list[str]:
    """Split a text from `start` on at each comma that is not in brackets."""
    found, depth = [], 0
    for separator in _SEPARATOR.finditer(text, start):
        if separator[0] in "[{(":
            depth += 1
        elif separator[0] in "]})":
            depth -= 1
        elif depth == 0:
            found.append(text[start : separator.start()])
            start = separator.end()
    return [*found, text[start:]]


# ---- bodies ----


def _written(given: str, body: str, variables: Iterable[str]) -> set[str]:
    """Return the variables that a function may write, or whose address unknown code may get.

    Addresses are followed from name to name, through registers and the parameters of calls. An
    address that is only used for reads does no harm. Code that calls the function is not known, so
    an address that gets into the function's own parameters or results counts as written.
    """
    follows: dict[str, set[str]] = {}
    escapes = set(_MENTIONED.findall(given))
    for into, names in _flows(body):
        if into is None:
            escapes |= names
        else:
            for name in names:
                follows.setdefault(name, set()).update(into)
    return {name for name in variables if not _followed(name, follows).isdisjoint(escapes)}


def _followed(name: str, follows: dict[str, set[str]]) -> set[str]:
    seen, todo = {name}, [name]
    while todo:
        fresh = follows.get(todo.pop(), set()) - seen
        seen |= fresh
        todo += fresh
    return seen


def _flows(body: str) -> Iterator[tuple[set[str] | None, set[str]]]:
    """Yield for each statement the names that get a value, and the names that the value depends on.

    The first is None if the values go to unknown code.
    """
    scopes: list[dict[str, str]] = [{}]
    number = 0

    def names(text: str) -> set[str]:
        """Return the names in a text. Names that a block declares are made unique."""
        found = set()
        for name in _MENTIONED.findall(text):
            scope = next((scope for scope in reversed(scopes) if name in scope), {})
            found.add(scope.get(name, name))
        return found

    for statement in _statements(body):
        if statement == "{":
            scopes.append({})
        elif statement == "}":
            del scopes[max(1, len(scopes) - 1) :]
        elif local := _LOCAL.match(statement):
            number += 1
            mark = SLOT if local[1] == "param" else "#"
            for name in _MENTIONED.findall(statement):
                scopes[-1][name] = f"{name}{mark}{number}"
        else:
            yield from _flow(statement, names)


def _flow(
    statement: str, names: Callable[[str], set[str]]
) -> Iterator[tuple[set[str] | None, set[str]]]:
    code = _INSTRUCTION.match(statement)
    if code is None:
        yield None, names(statement)
        return
    instruction, suffix = code.groups()
    rest = statement[code.end() :]
    first = _separated(rest, 0)[0]
    others = rest[len(first) + 1 :]
    if instruction in _COMPUTING:
        sources = names(others)
        yield names(first), sources
        yield None, {name for name in sources if SLOT in name}  # the address of a call's parameter
    elif ".param" in suffix and instruction in ("ld", "st"):
        yield names(first), names(others)
    elif instruction == "call":
        called = _CALL.match(rest)
        if not called or called[1] not in _READING_FUNCTIONS:
            yield None, names(rest)
    elif instruction not in _READING:
        yield None, names(rest)


def _statements(body: str) -> Iterator[str]:
    """Yield the statements of a body without labels, and "{" and "}" of its blocks."""
    for _, statement in _labelled(body):
        if statement:
            yield statement


def _labelled(body: str) -> Iterator[tuple[str, str]]:
    """Yield the text with the labels of each statement, and the statement, which may be empty.

    "{" and "}" of the blocks are statements, too.
    """
    start = skip = 0
    for stop in _STOP.finditer(body):
        if stop.start() < skip:
            continue
        labels, statement = _split_labels(body[start : stop.start()])
        if stop[0] == "{" and statement:  # these braces contain the registers of a vector
            skip = body.find("}", stop.end()) + 1 or len(body)
            continue
        yield labels, statement
        if stop[0] != ";":
            yield "", stop[0]
        start = stop.end()
    yield _split_labels(body[start:])


def _split_labels(text: str) -> tuple[str, str]:
    labels = _LABELS.match(text)
    end = labels.end() if labels else 0
    return text[:end], text[end:]


# ---- what runs before griddepcontrol.wait ----


def _early_access(code: list[tuple[str, str]]) -> str | None:
    """Return a statement that may access memory before griddepcontrol.wait, or None."""
    # A label of an inner block may have the name of another one: then both are followed.
    places: dict[str, list[int]] = {}
    for index, (labels, _) in enumerate(code):
        for label in _LABEL.findall(labels):
            places.setdefault(label, []).append(index)
    seen: set[int] = set()
    todo = [0]
    while todo:
        index = todo.pop()
        if index in seen or index >= len(code):
            continue
        seen.add(index)
        statement = code[index][1].strip()
        following = _runs_after(statement, places)
        if following is None:
            return " ".join(statement.split())
        goes_on, targets = following
        todo += targets
        if goes_on:
            todo.append(index + 1)
    return None


def _runs_after(statement: str, places: dict[str, list[int]]) -> tuple[bool, list[int]] | None:
    """Return what runs after a statement: whether the next one does, and the targets of a branch.

    Returns None if the statement may access memory, or if it is not known what follows.
    """
    if not statement or statement[0] in "{}.":  # a block, or a directive
        return True, []
    code = _INSTRUCTION.match(statement)
    if code is None:
        return None
    instruction, suffix = code.groups()
    guarded = statement.startswith("@")
    if (instruction == "griddepcontrol" and suffix == ".wait") or instruction in _LEAVING:
        return guarded, []
    if instruction == "bra":
        targets = places.get(statement[code.end() :].strip())
        return (guarded, targets) if targets else None
    computes = instruction in _COMPUTING or instruction in _LOCAL_ONLY
    if computes or (instruction in _ADDRESSING and _LOCAL_SPACES.search(suffix)):
        return True, []
    return None


# ---- directives and parameters ----


def _directives(text: str, known: Directives) -> Directives:
    """Return the directives in a text, and the directives in `known` that the text lacks."""
    found = known
    for name, *numbers, other in _DIRECTIVE.findall(text):
        x, y, z = (_number(number) if number else 1 for number in numbers)
        if other:
            found = found._replace(grid_of_clusters=True)
        elif name == "reqntid":
            found = found._replace(block=(x, y, z))
        else:
            found = found._replace(most_in_cluster=x)
    return found


def _number(text: str) -> int:
    """Return the value of an integer of PTX, which is octal if it begins with 0."""
    is_octal = text.startswith("0") and text.isdecimal()
    return int(text, 8 if is_octal else 0)


def _parameters(text: str) -> tuple[Parameter, ...] | None:
    """Return the parameters, each at the next multiple of its alignment; None if not understood."""
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
