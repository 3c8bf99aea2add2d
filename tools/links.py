"""Links of a page to other files of the repository, for places where the repository is not."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# [text](path#heading), but neither a picture nor an address nor a heading of the same page.
LINK = re.compile(
    r"(?<!!)\[(?P<text>[^\]]*)\]\((?!\w+:|#)(?P<path>[^)#\s]+)(?P<heading>#[^)\s]*)?\)"
)


def repository() -> str | None:
    """The address of the repository, as pyproject.toml says it; None: nobody has said it yet."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        return tomllib.load(file)["project"].get("urls", {}).get("Source")


def rewritten(page: Path, inside: Path | None, source: str | None) -> str:
    """A page whose links to files outside a folder lead to the repository, or are only text."""

    def one(found: re.Match[str]) -> str:
        target = (page.parent / found["path"]).resolve()
        if inside and target.is_relative_to(inside):
            return found[0]
        if source is None:
            return found["text"]
        path = f"{target.relative_to(ROOT)}{found['heading'] or ''}"
        return f"[{found['text']}]({source.rstrip('/')}/blob/HEAD/{path})"

    return LINK.sub(one, page.read_text(encoding="utf-8"))
