"""What operations do to the bytes of their buffers: at once, or at each launch of a graph."""

from dataclasses import dataclass
from typing import Any

import numpy as np

UNKNOWN = -1  # the value of a byte that nobody has written


def an_item(dtype, value):
    """An item of some bytes, as a fill takes it, and the bytes."""
    count_up = value % 4 != 0  # otherwise both halves of 8 bytes are alike
    bytes_ = (np.arange(dtype.itemsize) * count_up + value).astype("u1")
    item = bytes_.view(dtype)[0]
    return int(item) if dtype.kind in "iu" else item, bytes_


@dataclass(eq=False)
class Nothing:
    """What no operation of the device does. Its buffers stay alive all the same."""

    buffers: tuple
    kind = "nothing"

    def __call__(self):
        """Change nothing."""


@dataclass(eq=False)
class Child:
    """All that another graph does."""

    ordered: bool = True  # as for a plan
    streams: tuple = ()
    kind = "graph"


@dataclass(eq=False)
class Condition:
    """A number on the device. Each launch begins with the default."""

    handle: int
    default: int
    used: bool = False  # a node has it
    value: int = 0


@dataclass(eq=False)
class Steer:
    """A launch of a kernel that sets a condition."""

    condition: Condition
    value: int
    kind = "steer"

    def __call__(self):
        self.condition.value = self.value


@dataclass(eq=False)
class Conditional:
    """A node that chooses which of its bodies run."""

    kind: str  # "if", "while" or "switch"
    condition: Condition
    bodies: int

    def chosen(self):
        """Yield the indices of the bodies that run."""
        while self.kind == "while" and self.condition.value:
            yield 0
        index = self.condition.value if self.kind == "switch" else 1 - bool(self.condition.value)
        if self.kind != "while" and index < self.bodies:
            yield index


@dataclass(eq=False)
class Lend:
    """A loan in a capture. What another library does with it is in `Operation.then`."""

    calls: int = 0  # how many operations of the device these are
    loose: bool = False  # whether something that comes after it may be before one of them

    @property
    def kind(self):
        return "lend", self.calls

    def __call__(self, buffer):
        """Change nothing."""


@dataclass(eq=False)
class Copy:
    dtype: np.dtype
    kind = "copy"

    def __call__(self, target, source):
        target.bytes[:] = source.bytes.copy()


@dataclass(eq=False)
class Fill:
    item: Any  # its bytes
    dtype: np.dtype
    parts: int = 0  # how many operations of the device it takes; this cannot change later
    kind = "fill"

    def __post_init__(self):
        self.parts = self.parts or self.halves

    @property
    def halves(self):
        """How many different halves of 4 bytes the item has."""
        wide = len(self.item) == 8
        return 1 + (wide and self.item[:4].tolist() != self.item[4:].tolist())

    def __call__(self, buffer):
        buffer.bytes[:] = np.tile(self.item, buffer.nbytes // len(self.item))


@dataclass(eq=False)
class Add:
    """A launch of `add`. From the use `declared` on, buffers are in its `borrows`."""

    count: int
    declared: int = 3
    kind = "add"

    def __call__(self, out, a, b, *more):
        for i in range(self.count):
            x, y = a.bytes[i], b.bytes[i]
            out.bytes[i] = UNKNOWN if UNKNOWN in (x, y) else (x + y) % 256


@dataclass(eq=False)
class Swap:
    count: int
    kind = "swap"

    def __call__(self, buffer, variable):
        mine, kept = buffer.bytes[: self.count], variable.bytes[: self.count]
        if buffer.memory is variable.memory:  # one byte after the other
            for i in range(self.count):
                mine[i], kept[i] = kept[i], mine[i]
        else:
            mine[:], kept[:] = kept.copy(), mine.copy()


@dataclass(eq=False)
class Peek:
    count: int
    kind = "peek"

    def __call__(self, buffer, variable):
        buffer.bytes[: self.count] = variable.bytes[: self.count]
