"""What operations do to the bytes of their buffers.

An effect runs once, or at each graph launch.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

UNKNOWN = -1  # the value of a byte that nobody has written


def an_item(dtype, value):
    """Return an item of this dtype, as `fill` takes it, and its bytes."""
    count_up = value % 4 != 0  # with equal bytes, all words of an item would be equal
    bytes_ = (np.arange(dtype.itemsize) * count_up + value).astype("u1")
    item = bytes_.view(dtype)[0]
    return int(item) if dtype.kind in "iu" else item, bytes_


@dataclass(eq=False)
class Nothing:
    """The effect of a node that does nothing on the device. It still keeps its buffers alive."""

    buffers: tuple
    kind = "nothing"

    def __call__(self):
        """Change nothing."""


@dataclass(eq=False)
class Child:
    """The effect of a child graph: the effects of all its nodes."""

    ordered: bool = True  # whether the policy "strict" would accept all operations in the graph
    streams: tuple = ()
    kind = "graph"


@dataclass(eq=False)
class Condition:
    """A number on the device. Each launch begins with the default value."""

    handle: int
    default: int
    used: bool = False  # whether a node uses the condition
    value: int = 0


@dataclass(eq=False)
class Steer:
    """The effect of a kernel that sets a condition."""

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
    """A loan in a capture. What the borrower does with the memory is in `Operation.then`."""

    calls: int = 0  # number of device operations that the borrower has queued
    # Whether an operation that is ordered after the loan may run before an operation of the
    # borrower.
    loose: bool = False

    @property
    def kind(self):
        return "lend", self.calls

    def __call__(self, buffer):
        """Change nothing."""


def of_box(effect, *buffers):
    """If the effect uses a box, note this. Nodes of graphs cannot get other boxes."""
    if any(buffer.layout for buffer in buffers):
        effect.kind = f"box {effect.kind}"
    return effect


@dataclass(eq=False)
class Copy:
    dtype: np.dtype
    kind = "copy"

    def __call__(self, target, source):
        target.bytes[:] = source.bytes.copy()


def all_of(copy):
    """The effect of a batch on its targets and sources, in turn."""

    def effect(*buffers):
        for target, source in zip(buffers[::2], buffers[1::2], strict=True):
            copy(target, source)

    return effect


@dataclass(eq=False)
class Fill:
    item: Any  # the bytes of the item
    dtype: np.dtype
    parts: int = 0  # number of device operations of this fill; an update cannot change it
    kind = "fill"

    def __post_init__(self):
        self.parts = self.parts or self.words

    @property
    def words(self):
        """Number of 4-byte words of the item; 1 if they are equal."""
        words = {self.item[at : at + 4].tobytes() for at in range(0, len(self.item), 4)}
        return 1 if len(words) == 1 else len(self.item) // 4

    def __call__(self, buffer):
        buffer.bytes[:] = np.tile(self.item, buffer.nbytes // len(self.item))


@dataclass(eq=False)
class Invert:
    """The effect of a function of the host that inverts the bits of a buffer."""

    kind = "invert"

    def __call__(self, buffer):
        known = buffer.bytes != UNKNOWN
        buffer.bytes[known] ^= 0xFF


@dataclass(eq=False)
class SetNumber:
    """The effect of a set of a signal, on a stream of the oracle if it was captured."""

    signal: Any
    number: int
    stream: Any = None
    kind = "set of a signal"

    def __call__(self, signal):
        """Change nothing: a launch notes the number (`_take_turn`)."""


@dataclass(eq=False)
class WaitForNumber(SetNumber):
    """The effect of a wait for a number that is set outside of the graph."""

    kind = "wait for a signal"


@dataclass(eq=False)
class Called:
    """The effect of a function of the host: in a graph, another kind of node than a copy."""

    effect: Copy | Invert
    kind = "call"

    def __call__(self, *buffers):
        self.effect(*buffers)


@dataclass(eq=False)
class Add:
    """The effect of the kernel `add`.

    The uses with index `declared` and higher are those that the argument `borrows` declares.
    """

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
        # Buffer and variable may overlap, so exchange byte after byte, as the kernel does.
        if buffer.memory is variable.memory:
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


@dataclass(eq=False)
class Move:
    """The effect of a kernel that copies bytes from an array to a buffer, or the other way."""

    count: int
    inward: bool
    kind = "move"

    def __call__(self, array, buffer):
        target, source = (array, buffer) if self.inward else (buffer, array)
        target.bytes[: self.count] = source.bytes[: self.count].copy()
