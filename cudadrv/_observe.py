"""Values that must be the same in all schedules: `cudadrv.testing.observe`."""

import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

from cudadrv import _environment

MOST_SHOWN = 200


class Observed(NamedTuple):
    digest: str
    shown: str


class _Observations:
    """The values of the first run, with which the values of later runs are compared."""

    def __init__(self) -> None:
        self.first: list[Observed] | None = None  # None if nothing is explored
        self.run: list[Observed] = []

    def start(self) -> None:
        """Begin the first run of a test."""
        self.first, self.run = [], []

    def next_run(self) -> None:
        self.first = self.first or self.run
        self.run = []

    def stop(self) -> None:
        self.first = None

    def add(self, value: Any) -> None:
        seen = _observed(value)
        file = _environment.observed()
        if file:
            self.first = _read(Path(file))
        elif self.first is None:
            return
        at = len(self.run)
        self.run.append(seen)
        if file and at >= len(self.first):
            _write(Path(file), [*self.first, seen])
        if at < len(self.first) and self.first[at].digest != seen.digest:
            raise AssertionError(
                f"the value that was observed is {seen.shown}, and in the first schedule it was"
                f" {self.first[at].shown}"
            )


def _observed(value: Any) -> Observed:
    shown = repr(value)
    content = shown.encode()
    if hasattr(value, "tobytes") and hasattr(value, "dtype"):
        content = f"{value.dtype} {value.shape} ".encode() + value.tobytes()
    if len(shown) > MOST_SHOWN:
        shown = shown[:MOST_SHOWN] + "..."
    return Observed(hashlib.sha256(content).hexdigest(), shown)


def _read(file: Path) -> list[Observed]:
    if not file.exists():
        return []
    return [Observed(*entry) for entry in json.loads(file.read_text("utf-8"))]


def _write(file: Path, values: list[Observed]) -> None:
    file.write_text(json.dumps(values), encoding="utf-8")


observations = _Observations()
