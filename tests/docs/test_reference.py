"""Lists in the documentation agree with the sources."""

import ast
import importlib.util
import re
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest

import cudadrv as cu

ROOT = Path(__file__).resolve().parents[2]


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def load(tool: Path):
    spec = importlib.util.spec_from_file_location(tool.stem, tool)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_driver_functions_are_listed():
    used = re.findall(
        r"^CUDADRV_FUNCTION\((\w+),", text("include/cudadrv/driver_functions.h"), re.M
    )
    section = text("docs/driver.md").partition("## The functions that are used")[2]
    assert re.findall(r"`(cu[A-Z]\w+)`", section) == used


def test_software_driver_functions_are_listed():
    tool = ROOT / "tools" / "driver_names.py"
    assert load(tool).table_text() == text("docs/software-driver-functions.md"), f"run {tool} table"


def test_pictures_are_what_the_tool_makes():
    tool = ROOT / "tools" / "ownership_pictures.py"
    made = load(tool).files()
    assert set(made) == set((ROOT / "docs" / "pictures").iterdir())
    for path, picture in made.items():
        assert picture == path.read_text(encoding="utf-8"), f"run {tool}"


def test_pictures_can_be_read_aloud():
    """Each picture has a title and a description, and its page describes it beside it."""
    pages = "ownership boxes textures signals interop managed pipelines graphs functions"
    pages += " kernel-checks explore"
    page = "".join(text(f"docs/{name}.md") for name in pages.split())
    for path in (ROOT / "docs" / "pictures").iterdir():
        image = ElementTree.parse(path).getroot()
        for name in ("title", "desc"):
            assert image.findtext(f"{{http://www.w3.org/2000/svg}}{name}")
        assert re.search(rf"^!\[[^\]]{{20,}}\]\(pictures/{path.name}\)$", page, re.M), path.name


def test_errors_are_explained():
    """The page of errors names each exception.

    Errors of ownership have a section with an example.
    """
    page = text("docs/errors.md")
    for name in [name for name in cu.__all__ if name.endswith("Error")]:
        assert f"`{name}`" in page or f"\n## {name}" in page, name
        derived = issubclass(getattr(cu, name), cu.OwnershipError)
        if derived and name != "OwnershipError":
            assert f"\n## {name}\n" in page
            assert f"\n{name}: " in page


@pytest.fixture(scope="module")
def reference():
    return load(ROOT / "tools" / "reference.py")


def test_each_public_name_has_a_place_in_the_reference(reference):
    shown = Counter(
        name
        for page in (ROOT / "docs" / "api").glob("*.md")
        for name in re.findall(r"^\.\. autoapi\w+:: (\S+)$", page.read_text("utf-8"), re.M)
    )
    public = [
        f"{module}.{name}" for module in reference.MODULES for name in reference.names(module)
    ]
    assert shown == Counter(public)


def test_pages_of_the_reference_are_listed():
    index = text("docs/api/index.md")
    pages = {path.name for path in (ROOT / "docs" / "api").glob("*.md")} - {"index.md"}
    assert {
        page for page in pages if f"]({page})" not in index or f"\n{page[:-3]}\n" not in index
    } == set()


def untold(node: ast.stmt, following: ast.stmt | None, of_class: str) -> bool:
    """Whether the reference lacks the type or the text of a function or a field."""
    if isinstance(node, ast.FunctionDef):
        return node.name != "__init__" and not (node.returns and ast.get_docstring(node))
    if isinstance(node, ast.AnnAssign):
        return not isinstance(following, ast.Expr) and f"``{node.target.id}``" not in of_class
    return False


@pytest.mark.parametrize("module", ["cudadrv", "cudadrv.testing", "cudadrv.toolkit"])
def test_the_reference_has_types_and_texts(reference, module):
    found = ast.parse(reference.stub(module)).body[1:]
    lacking = [node.name for node in found if not ast.get_docstring(node)]
    lacking += [node.name for node in found if untold(node, None, "")]
    for node in (node for node in found if isinstance(node, ast.ClassDef)):
        text = ast.get_docstring(node)
        pairs = zip(node.body, [*node.body[1:], None], strict=True)
        members = [member for member, following in pairs if untold(member, following, text)]
        lacking += [f"{node.name}: {ast.unparse(member)}" for member in members]
    assert lacking == []


def test_texts_of_the_reference_keep_their_sections(reference):
    """The reference keeps the sections of docstrings.

    A paragraph after a section is not part of the section. A documented attribute is not listed
    again.
    """
    docstring = reference.docstring
    assert docstring(
        "One.\n\nRaises\n------\nValueError\n    Why.\n\nAfter all of docs/errors.md."
    ) == ("One.\n\nAfter all of :doc:`/errors`.\n\nRaises\n------\nValueError\n    Why.")
    listed = "One.\n\nAttributes\n----------\na, b : int\n    Two.\nc : str\n    Three."
    assert docstring(listed, {"a", "b"}) == "One.\n\nAttributes\n----------\nc : str\n    Three."
    assert docstring(listed, {"a", "b", "c"}) == "One."


def test_the_reference_says_what_the_stubs_say(reference):
    found = {getattr(node, "name", ""): node for node in ast.parse(reference.stub("cudadrv")).body}
    functions = [node for node in found["Buffer"].body if isinstance(node, ast.FunctionDef)]
    members = {member.name: member for member in functions}
    signature = ast.unparse(members["copy_from_async"].args)
    assert signature.endswith("stream: Stream | None=None")
    # `count` is defined in a base class that is not public.
    assert ast.unparse(members["count"].decorator_list) == "property"
    options = ast.unparse(members["from_array"].args)
    assert "pooled: bool=..." in options
    assert "Can be set." in ast.get_docstring(members["ordering"])
    (priority,) = [node for node in found["Stream"].body if reference.name_of(node) == "priority"]
    assert ast.get_docstring(priority) == (
        "The priority of the stream:\nlower numbers run first."  # the text begins without the type
    )
    items = [node for node in found["HostBuffer"].body if reference.name_of(node) == "__getitem__"]
    (key,) = [ast.unparse(node.args) for node in items]
    assert key.startswith("self, key: slice | (SupportsIndex | EllipsisType | tuple[")
    assert ast.unparse(items[0].returns) == "Self | Any"


def test_links_of_a_page_lead_to_the_repository_or_nowhere():
    links = load(ROOT / "tools" / "links.py")
    page = ROOT / "docs" / "driver.md"
    header = "include/cudadrv/driver_functions.h"
    assert f"](../{header})" in page.read_text(encoding="utf-8")
    assert "[driver_functions.h]" not in links.rewritten(page, page.parent, None)
    text = links.rewritten(page, page.parent, "https://example.org/cudadrv/")
    assert f"[driver_functions.h](https://example.org/cudadrv/blob/HEAD/{header})" in text
    assert "](ownership.md)" in text
    assert "](ownership.md)" not in links.rewritten(page, None, None)


def test_changelog_has_this_version():
    assert re.search(rf"^## \[{re.escape(cu.__version__)}\] - ", text("CHANGELOG.md"), re.M)
