"""The public API as stubs with docstrings: what the site's reference is made from.

Signatures and types are in ``cudadrv/*.pyi``, docstrings in the compiled modules. Sphinx AutoAPI
reads sources, so this joins the two: one stub for each public module. ``docs/conf.py`` writes them.
"""

import ast
import builtins
import copy
import importlib
import inspect
import re
from collections.abc import Collection
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "cudadrv"
MODULES = ["cudadrv", "cudadrv.testing", "cudadrv.toolkit"]
# Members that a class has from others; their standard docstrings say nothing of this class.
STANDARD = [object, list, dict, int, Exception, tuple, type(iter([]))]
SHORTER = {"_Slice": "slice"}  # instead of its definition
HEADER = re.compile(r"^-{3,}$")
PAGE = re.compile(r"\bdocs/([\w-]+)\.md")


def names(module: str) -> list[str]:
    """What a module publishes, but for its version."""
    return [name for name in importlib.import_module(module).__all__ if name[:2] != "__"]


def sections(text: str) -> tuple[list[str], dict[str, list[str]]]:
    """The paragraphs of a NumPy docstring, wherever they stand, and its sections."""
    free: list[str] = []
    found: dict[str, list[str]] = {}
    section = free
    lines = text.splitlines()
    for number, line in enumerate(lines):
        following = lines[number + 1] if number + 1 < len(lines) else ""
        if HEADER.match(following):
            section = found.setdefault(line, [])
        elif HEADER.match(line):
            continue
        else:
            item = line[:1].strip() and following[:1].isspace()
            if section is not free and line[:1].strip() and not item and not lines[number - 1]:
                section = free  # a paragraph after a section is not the section's
            section.append(line)
    return free, found


def attributes(section: list[str]) -> dict[str, str]:
    """The texts of an Attributes section, by name."""
    found: dict[str, list[str]] = {}
    current: list[str] = []
    for line in section:
        if line[:1].strip():
            current = []
            found |= dict.fromkeys(line.partition(" :")[0].split(", "), current)
        else:
            current.append(line.strip())
    return {name: " ".join(lines).strip() for name, lines in found.items()}


def docstring(text: str, shown: Collection[str] = ()) -> str:
    """A docstring for the site: sections last, pages as links, and no attributes twice."""
    free, found = sections(text)
    found["Attributes"] = without(found.get("Attributes", []), shown)
    lines = "\n".join(free).strip().splitlines()
    for name, section in found.items():
        if not section:
            continue
        lines += ["", name, "-" * len(name), *"\n".join(section).strip("\n").splitlines()]
    return PAGE.sub(r":doc:`/\1`", "\n".join(lines).strip())


def without(section: list[str], shown: Collection[str]) -> list[str]:
    """An Attributes section without those that are members with a text of their own."""
    kept: list[str] = []
    keep = True
    for line in section:
        if line[:1].strip():
            keep = not set(line.partition(" :")[0].split(", ")) & set(shown)
        kept += [line] if keep else []
    return kept if any(kept) else []


class Types(ast.NodeTransformer):
    """Annotations as readers know them: aliases replaced, without modules' short names."""

    def __init__(self, aliases: dict[str, ast.expr]):
        self.aliases = aliases

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in SHORTER:
            return ast.Name(SHORTER[node.id])
        alias = self.aliases.get(node.id)
        return self.visit(copy.deepcopy(alias)) if alias else node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        if isinstance(node.value, ast.Name) and node.value.id == "npt":
            return ast.Name(node.attr)
        if isinstance(node.value, ast.Name) and node.value.id == "np":
            node.value.id = "numpy"
        return node


class Sources:
    """The stubs of the package, or the sources of modules in Python."""

    def __init__(self) -> None:
        self.defined: dict[tuple[str, str], ast.stmt] = {}
        self.options: dict[str, ast.ClassDef] = {}
        aliases: dict[str, ast.expr] = {}
        for path in sorted(PACKAGE.glob("*.py*")):
            if path.suffix == ".py" and path.with_suffix(".pyi").exists():
                continue
            module = "cudadrv" if path.stem == "__init__" else f"cudadrv.{path.stem}"
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
                    self.defined[module, node.name] = node
                    self.options[node.name] = node
                elif (
                    isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation) == "TypeAlias"
                ):
                    aliases[ast.unparse(node.target)] = node.value
        self.types = Types(aliases)

    def of(self, thing: object) -> ast.stmt:
        return copy.deepcopy(self.defined[thing.__module__, thing.__name__])

    def spelled_out(self, arguments: ast.arguments) -> None:
        """``**options: Unpack[Options]`` as the keywords that it stands for."""
        options = arguments.kwarg and arguments.kwarg.annotation
        if not options or not ast.unparse(options).startswith("Unpack["):
            return
        definition = self.options[options.slice.id]
        for group in [
            *(self.options[base.id] for base in definition.bases if base.id in self.options),
            definition,
        ]:
            for field in group.body:
                arguments.kwonlyargs.append(
                    ast.arg(field.target.id, copy.deepcopy(field.annotation))
                )
                arguments.kw_defaults.append(ast.Constant(...))
        arguments.kwarg = None


def with_docstring(node: ast.stmt, text: str | None, shown: Collection[str] = ()) -> ast.stmt:
    node.body = [ast.Expr(ast.Constant(docstring(text, shown) if text else ...))]
    return node


def own_docstring(thing: type, name: str) -> str | None:
    """The docstring of a member; None for one that Python gives to every such method."""
    found = inspect.getattr_static(thing, name, None)
    text = getattr(getattr(found, "__func__", found), "__doc__", None)  # of a classmethod, its own
    if any(text == getattr(getattr(other, name, None), "__doc__", None) for other in STANDARD):
        return None
    return inspect.cleandoc(text) if text else None


def function(sources: Sources, node: ast.FunctionDef, text: str | None) -> ast.stmt:
    sources.spelled_out(node.args)
    return sources.types.visit(with_docstring(node, text))


def members(sources: Sources, thing: type, node: ast.ClassDef) -> list[ast.stmt]:
    """What a class has, and what its bases without a name in the API have."""
    made: list[ast.stmt] = []
    for base in thing.__bases__:
        if (base.__module__, base.__name__) in sources.defined and base.__name__ not in names(
            "cudadrv"
        ):
            made += members(sources, base, sources.of(base))
    described = attributes(sections(inspect.getdoc(thing) or "")[1].get("Attributes", []))
    settable = {
        member.name
        for member in node.body
        if isinstance(member, ast.FunctionDef) and "setter" in map(last_name, member.decorator_list)
    }
    for member in node.body:
        if isinstance(member, ast.AnnAssign) and isinstance(member.target, ast.Name):
            name = member.target.id
            text = described.get(name)
            if inspect.isgetsetdescriptor(inspect.getattr_static(thing, name, None)):
                text = own_docstring(thing, name)
                settable.add(name)
                made.append(as_property(sources, name, member.annotation, text, True))
            elif name[0] != "_":
                made.append(
                    sources.types.visit(ast.AnnAssign(member.target, member.annotation, None, 1))
                )
                made += [ast.Expr(ast.Constant(docstring(text)))] if text else []
        elif isinstance(member, ast.FunctionDef):
            name = member.name
            if name in ("__init__", "__new__"):
                if not any(argument.arg == "never" for argument in member.args.posonlyargs):
                    member.name, member.returns = "__init__", None
                    (member.args.posonlyargs or member.args.args)[0].arg = "self"
                    made.append(function(sources, member, None))
                continue
            kinds = [last_name(decorator) for decorator in member.decorator_list]
            if (
                "setter" in kinds
                or name == "__exit__"
                or (name[0] == "_" and not own_docstring(thing, name))
            ):
                continue
            text = own_docstring(thing, name) or described.get(name)
            if "property" in kinds:
                made.append(as_property(sources, name, member.returns, text, name in settable))
            else:
                made.append(function(sources, member, text))
    return made


def name_of(member: ast.stmt) -> str:
    if isinstance(member, ast.AnnAssign):
        return ast.unparse(member.target)
    return member.name if isinstance(member, ast.FunctionDef) else ""


def last_name(decorator: ast.expr) -> str:
    return ast.unparse(decorator).rpartition(".")[2]


def as_property(
    sources: Sources, name: str, annotation: ast.expr, text: str | None, settable: bool
) -> ast.stmt:
    if text and settable and not re.search(r"\bset\b", text):
        text += "\n\nCan be set."
    made = ast.parse(f"@property\ndef {name}(self): ...").body[0]
    made.returns = annotation
    return sources.types.visit(with_docstring(made, text))


def whole_class(sources: Sources, thing: type) -> ast.stmt:
    node = sources.of(thing)
    made = members(sources, thing, node)
    public = {*names("cudadrv"), *dir(builtins)}
    node.bases = [base for base in node.bases if is_shown(base, public)]
    node.decorator_list, node.keywords = [], []
    shown = {name_of(member) for member in made}
    with_docstring(node, inspect.getdoc(thing), shown)
    node.body += made
    return node


def is_shown(base: ast.expr, public: set[str]) -> bool:
    return ast.unparse(base) in public or ast.unparse(base) in ("NamedTuple", "enum.IntEnum")


def stub(module: str) -> str:
    """A module of the API: signatures and types of its stubs, docstrings of what runs."""
    sources = Sources()
    found = importlib.import_module(module)
    body = []
    for name in names(module):
        thing = getattr(found, name)
        if isinstance(thing, type):
            body.append(whole_class(sources, thing))
        else:
            body.append(function(sources, sources.of(thing), inspect.getdoc(thing)))
    tree = ast.Module([ast.Expr(ast.Constant(docstring(inspect.getdoc(found)))), *body], [])
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def write(folder: Path) -> None:
    """One stub for each public module, below a folder."""
    for module in MODULES:
        name = "__init__" if module == "cudadrv" else module.rpartition(".")[2]
        path = folder / "cudadrv" / f"{name}.pyi"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(stub(module), encoding="utf-8")
