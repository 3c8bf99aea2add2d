"""Docstrings and signatures, as help(), inspect and editors show them, agree with the stubs."""

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import cudadrv as cu
from cudadrv import testing, toolkit

STUBS = Path(cu.__file__).parent
SOURCES = STUBS.parent / "pyx"
# Special methods that need no docstring of their own: Python documents them.
PYTHONS_OWN = {"__init__", "__new__", "__reduce__", "__repr__", "__str__", "__getattr__", "__dir__"}
# Classes of objects that public methods return, but that have no public name.
RETURNED = {
    "Loan": "_loan",
    "HostView": "_buffers",
    "ReadOnly": "_buffers",
    "Scope": "_stream",
    "Bound": "_bound",
}


def load(name: str, module: str) -> type:
    return getattr(__import__(f"cudadrv.{module}", fromlist=[name]), name)


def public() -> dict[str, object]:
    """All public functions and classes, and the classes in RETURNED."""
    found = {f"cudadrv.{name}": getattr(cu, name) for name in cu.__all__ if name[0] != "_"}
    for module in (toolkit, testing):
        found |= {f"{module.__name__}.{name}": getattr(module, name) for name in module.__all__}
    return found | {name: load(name, module) for name, module in RETURNED.items()}


def attributes(kind: type) -> dict[str, object]:
    """The public attributes and special methods that a class and its bases in cudadrv define."""
    found: dict[str, object] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.partition(".")[0] == "cudadrv":
            for name, value in vars(base).items():
                special = name.startswith("__") and callable(value) and name not in PYTHONS_OWN
                if name[0] != "_" or special:
                    found[name] = value
    return found


PUBLIC = public()
CLASSES = {name: found for name, found in PUBLIC.items() if inspect.isclass(found)}
ORDINARY = {
    name: found
    for name, found in CLASSES.items()
    if not issubclass(found, (tuple, int)) and found.__module__.partition(".")[0] == "cudadrv"
}


def test_all_are_found():
    assert {"cudadrv.Stream", "cudadrv.read", "cudadrv.toolkit.compile", "Loan"} <= set(PUBLIC)
    assert {"record", "context", "__enter__", "closed"} <= set(attributes(cu.Stream))


@pytest.mark.parametrize("name", PUBLIC)
def test_docstring(name):
    text = inspect.getdoc(PUBLIC[name])
    assert text
    assert "\n--\n" not in text
    assert re.match(r".*[.:]$", text.partition("\n\n")[0], re.DOTALL), text


@pytest.mark.parametrize("name", ORDINARY)
def test_docstring_of_each_attribute(name):
    """Each public attribute has a docstring of its own, also properties and special methods."""
    found = attributes(ORDINARY[name])
    without = [each for each, value in found.items() if not getattr(value, "__doc__", None)]
    # Constants would only have the docstring of their type, so classes must not have any.
    constants = [each for each, value in found.items() if isinstance(value, (bool, int, str))]
    assert (without, constants) == ([], [])


@pytest.mark.parametrize("name", [name for name in CLASSES if hasattr(CLASSES[name], "_fields")])
def test_docstring_names_each_field(name):
    text = inspect.getdoc(CLASSES[name])
    assert [field for field in CLASSES[name]._fields if not re.search(rf"\b{field}\b", text)] == []


def parameters(function: object) -> list[tuple[str, str, object]]:
    """Name, kind and default of each parameter of a function, as Python finds them."""
    return [
        (each.name, each.kind.name, each.default)
        for each in inspect.signature(function).parameters.values()
    ]


def defined(arguments: ast.arguments, skip: int) -> list[tuple[str, str, object]]:
    """Name, kind and default of each parameter in a definition, without the first `skip` ones.

    A definition with a parameter of type `Never` stands for a class that cannot be called.
    """

    def default(node: ast.expr | None) -> object:
        return inspect.Parameter.empty if node is None else ast.literal_eval(node)

    plain = [*arguments.posonlyargs, *arguments.args]
    if any(each.annotation and ast.unparse(each.annotation) == "Never" for each in plain):
        return parameters(lambda *args, **kwargs: None)
    defaults = [None] * (len(plain) - len(arguments.defaults)) + arguments.defaults
    found = []
    for at, (each, value) in enumerate(zip(plain, defaults, strict=True)):
        if at >= skip:
            only = at < len(arguments.posonlyargs)
            kind = "POSITIONAL_ONLY" if only else "POSITIONAL_OR_KEYWORD"
            found.append((each.arg, kind, default(value)))
    if arguments.vararg:
        found.append((arguments.vararg.arg, "VAR_POSITIONAL", inspect.Parameter.empty))
    for each, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        found.append((each.arg, "KEYWORD_ONLY", default(value)))
    if arguments.kwarg:
        found.append((arguments.kwarg.arg, "VAR_KEYWORD", inspect.Parameter.empty))
    return found


def stubs() -> dict[str, tuple[object, ast.FunctionDef, int]]:
    """Public functions, methods and constructors with stubs.

    Each comes with its stub, and with the number of parameters that callers do not pass.
    """
    named = {found.__name__: found for found in PUBLIC.values() if hasattr(found, "__name__")}
    named |= {base.__name__: base for kind in ORDINARY.values() for base in kind.__mro__}
    found: dict[str, tuple[object, ast.FunctionDef, int]] = {}
    for path in sorted(STUBS.glob("_*.pyi")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name in named:
                found[node.name] = named[node.name], node, 0
            if isinstance(node, ast.ClassDef) and node.name in named:
                kind = named[node.name]
                for each in node.body:
                    if not isinstance(each, ast.FunctionDef) or decorators(each) & {"property"}:
                        continue
                    if each.name in ("__init__", "__new__"):
                        found[node.name] = kind, each, 1
                    elif each.name[0] != "_" and "setter" not in decorators(each):
                        static = bool(decorators(each) & {"staticmethod"})
                        bound = bool(decorators(each) & {"classmethod"})
                        skip = 1 if bound else 0
                        assert not (static and bound)
                        found[f"{node.name}.{each.name}"] = getattr(kind, each.name), each, skip
    return found


def decorators(node: ast.FunctionDef) -> set[str]:
    return {
        each.id if isinstance(each, ast.Name) else each.attr
        for each in node.decorator_list
        if isinstance(each, (ast.Name, ast.Attribute))
    }


STUBBED = stubs()


def test_stubs_are_found():
    assert {"Stream", "Stream.record", "DeviceBuffer", "Buffer.zeros", "reap", "ordering"} <= set(
        STUBBED
    )


@pytest.mark.parametrize("name", STUBBED)
def test_signature_is_that_of_the_stub(name):
    thing, node, skip = STUBBED[name]
    assert parameters(thing) == defined(node.args, skip)


def constructors() -> dict[str, ast.arguments]:
    """The parameters of each class in a .pyx file, from its source and without C types."""
    found = {}
    for path in sorted(SOURCES.rglob("_*.pyx")):
        source = path.read_text(encoding="utf-8")
        classes = re.split(r"^(?:cdef )?class (\w+)", source, flags=re.M)
        for name, body in zip(classes[1::2], classes[2::2], strict=True):
            # Only one of `__cinit__` and `__init__` has parameters.
            for match in re.finditer(r"    def __c?init__\(\s*self,?\s*([^)]*?)\s*\):", body):
                text = re.sub(r"\w+ (?=\w)", "", match[1].replace(" not None", ""))
                if text or name not in found:
                    node = ast.parse(f"def f({text}): pass").body[0]
                    found[name] = node.args
        refusal = ast.parse("def f(*args, **kwargs): pass").body[0].args
        found |= dict.fromkeys(re.findall(r"^only_made_by\((\w+),", source, re.M), refusal)
    return found


@pytest.mark.parametrize("name", ORDINARY)
def test_signature_of_a_class_is_what_it_takes(name):
    """The signature in the docstring of a class agrees with its constructor in the source."""
    kind = ORDINARY[name]
    made = constructors()
    if kind.__name__ in made:
        assert parameters(kind) == defined(made[kind.__name__], 0)
    elif not issubclass(kind, Exception):  # exceptions of Python have no signature either
        inspect.signature(kind)


@pytest.mark.parametrize("name", ORDINARY)
def test_each_method_has_a_signature(name):
    for each in attributes(ORDINARY[name]):
        if callable(getattr(ORDINARY[name], each)):
            inspect.signature(getattr(ORDINARY[name], each))


@pytest.mark.parametrize("module", [cu, testing, toolkit], ids=lambda module: module.__name__)
def test_dir_has_what_is_public(module):
    # Names that begin with @ are pytest's.
    names = {name for name in dir(module) if name[0] not in "_@"}
    others = names - set(module.__all__)
    submodules = {name for name in others if isinstance(getattr(module, name), ModuleType)}
    if module is cu:
        assert others == submodules <= {"testing", "toolkit"}
    assert {name for name in module.__all__ if name[0] != "_"} <= names


def test_dir_right_after_the_import():
    """dir(cudadrv) shows no imported modules, and shows names that are imported on first use."""
    program = "import cudadrv; print([n for n in dir(cudadrv) if n[:1] != '_'])"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        cwd=STUBS.parent,
    )
    assert set(ast.literal_eval(done.stdout)) == {name for name in cu.__all__ if name[0] != "_"}
