"""Code that must not be in the Cython sources."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = re.compile(
    r'"""(?:[^\\]|\\.)*?"""|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'|#[^\n]*', re.DOTALL
)
WORD = re.compile(r"[\[\](){},*]|\bfor\b|[^\s\[\](){},*]+")


def dangerous_lists(source):
    """The lines of a source with `[... for ...]` or `[*several, one]`."""
    found, open_brackets = [], []
    source = TEXT.sub(lambda text: "T" + "\n" * text[0].count("\n"), source)
    for word in WORD.finditer(source):
        line = source.count("\n", 0, word.start()) + 1
        if word[0] in "[({":
            open_brackets.append([word[0], 0, True, line])
        elif word[0] in "])}":
            kind, stars, _, first = open_brackets.pop()
            if kind == "[" and stars > 1:
                found.append(first)
        elif not open_brackets:
            continue
        elif word[0] == "for" and open_brackets[-1][0] == "[":
            found.append(line)
        elif (word[0] == "*" and open_brackets[-1][2]) or (word[0] == "," and open_brackets[-1][1]):
            open_brackets[-1][1] += 1
        if open_brackets and word[0] not in "[({":
            open_brackets[-1][2] = word[0] == ","
    return found


def test_what_is_dangerous():
    assert dangerous_lists("a = [f(x)\n for x in y]") == [2]
    assert dangerous_lists("a = f([*b, c])") == [1]
    assert dangerous_lists("for i in a[1]:\n  b = [0] # [x for x in y]\n") == []
    assert dangerous_lists("c = '[x for x in y]'") == []
    assert dangerous_lists("a = tuple(b for b in c); d = [*e]; f = g[h * i, j * k]") == []


@pytest.mark.parametrize("path", sorted((ROOT / "pyx").rglob("*.pyx")), ids=lambda path: path.name)
def test_no_list_is_made_of_a_loop(path):
    """No .pyx file has a list comprehension: use a loop and `append`.

    Cython 3.3.1 releases an item twice if such a list cannot grow.
    """
    assert dangerous_lists(path.read_text()) == []
