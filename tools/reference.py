"""The public API as stubs with docstrings: what the site's reference is made from.

Signatures and types are in ``cudadrv/*.pyi``, docstrings in the compiled modules. Sphinx AutoAPI
reads sources, so this module joins the two to one stub for each public module. ``docs/conf.py``
writes the stubs.
"""

import ast
import builtins
import copy
import importlib
import inspect
import re
import sys
import types
from collections.abc import Collection
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "cudadrv"
MODULES = ["cudadrv", "cudadrv.testing", "cudadrv.toolkit"]
# Inherited members whose docstrings say nothing about the class.
STANDARD = [object, list, dict, int, bytes, tuple, Exception, type(iter([])), types.CoroutineType]
SHOWN = {*dir(builtins), "NamedTuple", "enum.IntEnum"}  # shown bases, besides public classes
SHORTER = {"_Slice": "slice"}  # shown instead of its definition
HEADER = re.compile(r"^-{3,}$")
PAGE = re.compile(r"\bdocs/([\w-]+)\.md")


def names(module: str) -> list[str]:
    """Return the public names of a module, except its version."""
    return [name for name in importlib.import_module(module).__all__ if name[:2] != "__"]


def sections(text: str) -> tuple[list[str], dict[str, list[str]]]:
    """Split a NumPy docstring into its sections and the paragraphs outside of them."""
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
                section = free  # a paragraph after a section is outside of it
            section.append(line)
    return free, found


def attributes(section: list[str]) -> dict[str, str]:
    """Return the texts of an Attributes section, by name."""
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
    """Return a docstring for the site: sections last, pages as links, and no attributes twice."""
    free, found = sections(text)
    found["Attributes"] = without(found.get("Attributes", []), shown)
    lines = "\n".join(free).strip().splitlines()
    for name, section in found.items():
        if not section:
            continue
        lines += ["", name, "-" * len(name), *"\n".join(section).strip("\n").splitlines()]
    return PAGE.sub(r":doc:`/\1`", "\n".join(lines).strip())


def without(section: list[str], shown: Collection[str]) -> list[str]:
    """Return an Attributes section without the attributes that are members with a docstring."""
    kept: list[str] = []
    keep = True
    for line in section:
        if line[:1].strip():
            keep = not set(line.partition(" :")[0].split(", ")) & set(shown)
        kept += [line] if keep else []
    return kept if any(kept) else []


class Types(ast.NodeTransformer):
    """Rewrites annotations for readers: replaces aliases, and the short names `np` and `npt`."""

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
    """The definitions in the package's stubs, and in the sources of modules without a stub."""

    def __init__(self) -> None:
        self.defined: dict[tuple[str, str], ast.stmt] = {}
        self.classes: dict[str, ast.ClassDef] = {}
        aliases: dict[str, ast.expr] = {}
        for path in sorted(PACKAGE.glob("*.py*")):
            if path.suffix == ".py" and path.with_suffix(".pyi").exists():
                continue
            module = "cudadrv" if path.stem == "__init__" else f"cudadrv.{path.stem}"
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
                    self.defined[module, node.name] = node
                if isinstance(node, ast.ClassDef):
                    self.classes[node.name] = node
                if isinstance(node, ast.AnnAssign) and name_of(node.annotation) == "TypeAlias":
                    aliases[name_of(node.target)] = node.value
        # The guide says which objects of other libraries are accepted as streams.
        aliases["_AnyStream"] = ast.Name("Stream")
        self.types = Types(aliases)

    def of(self, thing: object) -> ast.stmt:
        """Return the definition of a thing. Public things say that the package defines them."""
        for (module, name), node in self.defined.items():
            if name == thing.__name__ and getattr(sys.modules.get(module), name, None) is thing:
                return copy.deepcopy(node)
        raise LookupError(thing)

    def spelled_out(self, arguments: ast.arguments) -> None:
        """``**options: Unpack[Options]`` as the keywords that it stands for."""
        options = arguments.kwarg and arguments.kwarg.annotation
        if not options or not ast.unparse(options).startswith("Unpack["):
            return
        definition = self.classes[options.slice.id]
        bases = [self.classes[base.id] for base in definition.bases if base.id in self.classes]
        for field in [field for group in (*bases, definition) for field in group.body]:
            arguments.kwonlyargs.append(ast.arg(field.target.id, copy.deepcopy(field.annotation)))
            arguments.kw_defaults.append(ast.Constant(...))
        arguments.kwarg = None


def with_docstring(node: ast.stmt, text: str | None, shown: Collection[str] = ()) -> ast.stmt:
    node.body = [ast.Expr(ast.Constant(docstring(text, shown) if text else ...))]
    return node


def own_docstring(thing: type, name: str) -> str | None:
    """Return the docstring of a member; None for a docstring that Python gives to every method of
    that name.
    """
    found = inspect.getattr_static(thing, name, None)
    text = getattr(getattr(found, "__func__", found), "__doc__", None)  # not classmethod's
    if any(text == getattr(getattr(other, name, None), "__doc__", None) for other in STANDARD):
        return None
    return inspect.cleandoc(text) if text else None


def function(sources: Sources, node: ast.FunctionDef, text: str | None) -> ast.stmt:
    sources.spelled_out(node.args)
    return sources.types.visit(with_docstring(node, text))


def property_(
    sources: Sources, name: str, annotation: ast.expr, text: str | None, settable: bool
) -> ast.stmt:
    if text and settable and not re.search(r"\bset\b", text):
        text += "\n\nCan be set."
    made = ast.parse(f"@property\ndef {name}(self): ...").body[0]
    made.returns = annotation
    return sources.types.visit(with_docstring(made, told(text)))


def told(text: str | None) -> str | None:
    """The text of an attribute, split so that Napoleon parses no "Its priority: ..." as a type."""
    return text and re.sub(r"\A([^\n]*?:) ", r"\1\n", text)


def constructor(sources: Sources, node: ast.FunctionDef) -> list[ast.stmt]:
    """``__init__``, also made from ``__new__``; nothing for a class that users cannot make."""
    if any(argument.arg == "never" for argument in node.args.posonlyargs):
        return []
    node.name, node.returns = "__init__", None
    (node.args.posonlyargs or node.args.args)[0].arg = "self"
    return [function(sources, node, None)]


def field(sources: Sources, thing: type, node: ast.AnnAssign) -> list[ast.stmt]:
    """A field, with its text if it has one; or a property that the stub declares as a field."""
    name = name_of(node.target)
    if name[0] == "_":
        return []
    if inspect.isgetsetdescriptor(inspect.getattr_static(thing, name, None)):
        text = own_docstring(thing, name)
        return [property_(sources, name, node.annotation, text, settable=True)]
    text = attributes(sections(inspect.getdoc(thing) or "")[1].get("Attributes", [])).get(name)
    made = sources.types.visit(ast.AnnAssign(node.target, node.annotation, None, 1))
    return [made, ast.Expr(ast.Constant(docstring(told(text))))] if text else [made]


def method(
    sources: Sources, thing: type, node: ast.FunctionDef, settable: Collection[str]
) -> list[ast.stmt]:
    """Return a method or a property; nothing for setters and for what is not public."""
    kinds = decorators(node)
    text = own_docstring(thing, node.name)
    if "setter" in kinds or node.name == "__exit__" or (node.name[0] == "_" and not text):
        return []
    if "property" in kinds:
        return [property_(sources, node.name, node.returns, text, node.name in settable)]
    return [function(sources, node, text)]


def joined(functions: list[ast.FunctionDef]) -> list[ast.FunctionDef]:
    """Return overloads as one function, which takes and returns what any of them does."""
    made: dict[str, ast.FunctionDef] = {}
    for node in functions:
        if "overload" not in decorators(node) or node.name not in made:
            made[node.name if "overload" in decorators(node) else str(id(node))] = node
            continue
        first = made[node.name]
        first.returns = ast.BinOp(first.returns, ast.BitOr(), node.returns)
        for one, other in zip(first.args.posonlyargs, node.args.posonlyargs, strict=True):
            if one.annotation and other.annotation:
                one.annotation = ast.BinOp(one.annotation, ast.BitOr(), other.annotation)
    for node in made.values():
        node.decorator_list = [name for name in node.decorator_list if name_of(name) != "overload"]
    return list(made.values())


def members(sources: Sources, thing: type, node: ast.ClassDef) -> list[ast.stmt]:
    """Return the members of a class, and the members of its bases that are not public."""
    made: list[ast.stmt] = []
    for base in thing.__bases__:
        if base.__module__.startswith("cudadrv.") and base.__name__ not in names("cudadrv"):
            made += members(sources, base, sources.of(base))
    functions = joined([one for one in node.body if isinstance(one, ast.FunctionDef)])
    settable = {member.name for member in functions if "setter" in decorators(member)}
    for member in node.body:
        if isinstance(member, ast.AnnAssign):
            made += field(sources, thing, member)
        elif member in functions and member.name in ("__init__", "__new__"):
            made += constructor(sources, member)
        elif member in functions:
            made += method(sources, thing, member, settable)
    return made


def whole_class(sources: Sources, thing: type) -> ast.stmt:
    node = sources.of(thing)
    made = members(sources, thing, node)
    node.bases = [base for base in node.bases if name_of(base) in SHOWN | {*names("cudadrv")}]
    node.decorator_list, node.keywords = [], []
    with_docstring(node, inspect.getdoc(thing), {name_of(member) for member in made})
    node.body += made
    return node


def name_of(node: ast.AST) -> str:
    """The name that a member defines, or the text of an expression."""
    if isinstance(node, ast.AnnAssign):
        return ast.unparse(node.target)
    if isinstance(node, ast.expr):
        return ast.unparse(node)
    return getattr(node, "name", "")


def decorators(node: ast.FunctionDef) -> set[str]:
    return {ast.unparse(decorator).rpartition(".")[2] for decorator in node.decorator_list}


def stub(module: str) -> str:
    """Return the stub of a public module, with signatures of stubs and docstrings of what runs."""
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
