"""Lists in the documentation say what the sources say."""

import importlib.util
import re
from pathlib import Path
from xml.etree import ElementTree

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
    """Each says by itself what it shows, and the page says so beside it."""
    page = text("docs/ownership.md")
    for path in (ROOT / "docs" / "pictures").iterdir():
        image = ElementTree.parse(path).getroot()
        for name in ("title", "desc"):
            assert image.findtext(f"{{http://www.w3.org/2000/svg}}{name}")
        assert re.search(rf"^!\[[^\]]{{20,}}\]\(pictures/{path.name}\)$", page, re.M), path.name


def test_errors_are_explained():
    """Each by a program that ends with it; those of ownership have a section of their own."""
    page = text("docs/errors.md")
    for name in [name for name in cu.__all__ if name.endswith("Error")]:
        assert f"`{name}`" in page or f"\n## {name}" in page, name
        derived = issubclass(getattr(cu, name), cu.OwnershipError)
        if derived and name != "OwnershipError":
            assert f"\n## {name}\n" in page
            assert f"\n{name}: " in page


def test_environment_variables_are_explained():
    used = set()
    for pattern in ("pyx/*.pyx", "cudadrv/*.py", "softdriver/**/*.cpp"):
        for path in ROOT.glob(pattern):
            used |= set(re.findall(r"\bCUDADRV_(?:DRIVER|SOFTWARE)\b", path.read_text("utf-8")))
    assert [name for name in used if name not in text("docs/driver.md")] == []


def test_changelog_has_this_version():
    assert re.search(rf"^## \[{re.escape(cu.__version__)}\] - ", text("CHANGELOG.md"), re.M)
