"""Makes the source tree of cudadrv-software: ``python tools/software_tree.py FOLDER``.

The tree has the software driver, the modules of ``python -m cudadrv run`` under another package's
name, and what builds them. ``pip wheel FOLDER`` and ``python -m build FOLDER`` build the package.
"""

import re
import shutil
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MODULES = ("_environment", "_libcuda", "_nvrtc_search", "_run", "_run_report", "_software_commands")
COPIED = {"LICENSE": "LICENSE", "cuda_header.py": "cuda_header.py", "setup.py": "cudadrv_setup.py"}
NAME = re.compile(r"\bcudadrv(?=\._)")  # the package in the name of a module: cudadrv._libcuda


def make_tree(folder: Path) -> None:
    """Make the tree. ``FOLDER/build`` keeps its contents, so that a build can use them again."""
    for name in ("softdriver", "cudadrv_software"):
        shutil.rmtree(folder / name, ignore_errors=True)
    ignored = shutil.ignore_patterns("__pycache__", "*.so", "*.o")
    shutil.copytree(ROOT / "software", folder, ignore=ignored, dirs_exist_ok=True)
    shutil.copytree(ROOT / "softdriver", folder / "softdriver", ignore=ignored)
    for source, target in COPIED.items():
        shutil.copy2(ROOT / source, folder / target)
    for module in MODULES:
        text = (ROOT / "cudadrv" / f"{module}.py").read_text(encoding="utf-8")
        target = folder / "cudadrv_software" / f"{module}.py"
        target.write_text(NAME.sub("cudadrv_software", text), encoding="utf-8")
    settings = folder / "pyproject.toml"
    line = re.compile(r'^version = "0".*$', re.MULTILINE)
    text, count = line.subn(f'version = "{version()}"', settings.read_text(encoding="utf-8"))
    assert count == 1, settings
    settings.write_text(text, encoding="utf-8")


def version() -> str:
    with (ROOT / "pyproject.toml").open("rb") as file:
        return str(tomllib.load(file)["project"]["version"])


if __name__ == "__main__":
    make_tree(Path(sys.argv[1]))
