"""Rewrites links to files of the repository, for pages that are read outside of it."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# [text](path#heading). Does not match pictures, URLs, and headings of the same page.
LINK = re.compile(
    r"(?<!!)\[(?P<text>[^\]]*)\]\((?!\w+:|#)(?P<path>[^)#\s]+)(?P<heading>#[^)\s]*)?\)"
)


def repository() -> str | None:
    """Return the repository's URL in pyproject.toml, or None if that has none."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        return tomllib.load(file)["project"].get("urls", {}).get("Source")


def rewritten(page: Path, inside: Path | None, source: str | None) -> str:
    """Return the page. Links to files outside a folder become URLs of the repository, or text."""

    def one(found: re.Match[str]) -> str:
        target = (page.parent / found["path"]).resolve()
        if inside and target.is_relative_to(inside):
            return found[0]
        if source is None:
            return found["text"]
        path = f"{target.relative_to(ROOT)}{found['heading'] or ''}"
        return f"[{found['text']}]({source.rstrip('/')}/blob/HEAD/{path})"

    return LINK.sub(one, page.read_text(encoding="utf-8"))
