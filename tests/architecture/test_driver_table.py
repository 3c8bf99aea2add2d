"""Every module that calls the driver has bound the call table: a call through NULL is a crash."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(ROOT.glob("pyx/_*.pyx"))
# `enter_context` and `leave_context` are inlined, so their driver calls are the module's own.
CALLS = re.compile(r"\b(cu[A-Z]\w+|enter_context|leave_context)\(|\bcudadrv_table\.")


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_table_is_bound(source):
    text = source.read_text(encoding="utf-8")
    if source.stem != "_driver" and CALLS.search(text):
        assert re.search(r"^bind_driver\(&cudadrv_table\)", text, re.MULTILINE)
