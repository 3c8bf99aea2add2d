"""The steps of a program in which the host uses a buffer, and the end of the program."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import oracle as model
from oracle import EXPORTED, OK
from session import WAITED
from session_buffers import Buffer, shaped
from session_building import BuildSession
from session_groups import GroupSession
from session_joined import JoinedSession
from session_managed import ManagedSession
from session_offload import OffloadSession
from session_signals import SignalSession
from session_textures import TextureSession
from session_threads import ThreadSession
from session_tickets import TicketSession

import cudadrv as cu
from cudadrv import testing

# The ways to make a host view, with modes: "write" excludes all GPU work, "read" only GPU writes.
WAYS = {
    "with read": "read",
    "with write": "write",
    "memoryview": "write",
    "asarray": "write",
    "readonly": "read",
}


@dataclass(eq=False)
class View:
    """A host view of a buffer: the array of a `with` block, or a memoryview."""

    buffer: Buffer
    model: model.View
    mode: str
    block: Any  # the `with` block, or None
    array: Any
    # An object that refers to the memory after the block: this makes the end of the block fail.
    kept: Any = None

    @property
    def of_part(self):
        """Whether the view refers to a part of the buffer that exists only for the view."""
        return isinstance(self.array, memoryview)

    def let_go(self):
        self.array = self.kept = self.block = None


class FullSession(
    BuildSession,
    JoinedSession,
    ThreadSession,
    ManagedSession,
    TicketSession,
    OffloadSession,
    TextureSession,
    GroupSession,
    SignalSession,
):
    # ---- items and slices ----

    def get_item(self, buffer, index):
        item = item_of(buffer, index)
        if self.host_access("item", item, "read", lambda: items_of(buffer)[index]):
            got = np.array([self.result], buffer.real.dtype)
            self.compare("item", got.view("u1"), item.bytes)

    def set_item(self, buffer, index, values):
        item = item_of(buffer, index)
        value = values[: item.nbytes].view(buffer.real.dtype)[0]
        if self.host_access(
            "item = value", item, "write", lambda: items_of(buffer).__setitem__(index, value)
        ):
            item.bytes[:] = values[: item.nbytes]

    def set_slice(self, buffer, values):
        array = values.view(buffer.real.dtype).reshape(buffer.real.shape)
        call = lambda: buffer.real.__setitem__(slice(None), array)  # noqa: E731
        if self.host_access("slice = array", buffer, "write", call):
            buffer.bytes[:] = values

    def to_numpy(self, buffer):
        if self.host_access("to_numpy", buffer, "read", buffer.real.to_numpy):
            assert self.result.shape == buffer.real.shape
            self.compare("to_numpy", self.result.reshape(-1).view("u1"), buffer.bytes)

    # ---- views ----

    def open_view(self, buffer, way):
        mode = WAYS[way]
        answer = self.judge_host(buffer, mode, lends=way in ("memoryview", "asarray"))
        made = self.call(way, answer, lambda: made_view(buffer.real, way), buffer)
        if answer not in (OK, WAITED):
            return None
        # NumPy keeps no reference to a buffer of 0 bytes.
        if way == "asarray" and made[1].base is None:
            assert not buffer.nbytes
            return None
        export = self.oracle.export(*buffer.use(mode), next(self.sites))
        return View(buffer, export, mode, *made)

    def use_view(self, view, values):
        """Read the whole view, and write it if it is writable."""
        # The bytes of a box are compared in a copy, because its rows have gaps between them.
        box = view.buffer.layout is not None
        bytes_ = bytes_of(np.ascontiguousarray(view.array) if box else view.array)
        self.compare("view", bytes_, view.buffer.bytes)
        if view.mode == "write":
            if box:
                view.array[...] = shaped(values, view.buffer)
            else:
                bytes_[:] = values
            view.buffer.bytes[:] = values

    def keep_view(self, view):
        """Make an object that refers to the array's memory after the end of its block."""
        if view.block is not None and view.kept is None and view.array.size:
            view.kept = view.array.flat  # an iterator; emptying the array does not empty it

    def close_view(self, view):
        """Close a view. Returns False if `view.kept` leaves the buffer borrowed."""
        if view.block is None:
            if isinstance(view.array, memoryview):
                view.array.release()
            view.array = view.kept = None
        else:
            answer = EXPORTED if view.kept is not None else OK
            self.call("end of with", answer, lambda: view.block.__exit__(None, None, None))
            view.block = view.array = None
            if answer == EXPORTED:
                return False
        self.oracle.close_export(view.buffer.memory.model, view.model)
        return True

    # ---- the rest ----

    def compare_borrows(self, buffer):
        """Compare the uses that the library shows for a buffer with the oracle's uses."""
        continued = (buffer.memory.home or buffer.memory).continued
        if buffer.closed or (continued is not None and continued.view is not None):
            return
        borrowed = self.oracle.borrowed_bytes(buffer.memory.model)
        mine = borrowed.intersection(model.span(buffer.start, buffer.stop))
        found = set()
        for borrow in buffer.real.borrows:
            found.update(range(buffer.start + borrow.start, buffer.start + borrow.stop))
        # The range of a box's borrow includes the gaps between its rows.
        gaps = self.oracle.borrowed_gaps(buffer.memory.model)
        self.agree("bytes in buffer.borrows", found - (gaps - mine), mine)
        self.agree("buffer.borrowed", buffer.real.borrowed, bool(mine))

    def reap(self):
        cu.reap()

    def finish(self, buffers, views):
        """End everything.

        All bytes must be as the program wrote them, and there must be no data race.
        """
        for view in views:
            while not self.close_view(view):
                pass
        self.end_blocks()
        for place in self.places:
            self.synchronize_context(place)
        for buffer in buffers:
            if not buffer.closed:
                self.copy_out(buffer)
        for array in self.left_alone:
            self.agree("an array after an interrupted copy", array.any(), False)
        races = testing.races() if self.software else []
        if races and self.ordered:
            self.disagree("\n".join(["races in an accepted program:", *races]))


def items_of(buffer):
    """The buffer; if it is open and has several dimensions, its items with one dimension."""
    several = len(buffer.real.shape) > 1 and not buffer.real.closed
    return buffer.real.flat if several else buffer.real


def item_of(buffer, index):
    """The part of a buffer that is one item, as the library borrows it."""
    size = buffer.real.itemsize
    start = buffer.start + index * size
    return Buffer(buffer.real, buffer.memory, start, size, True, buffer.policy, buffer.moved)


def made_view(buffer, way):
    """Make a view: the `with` block or None, and the array or memoryview."""
    if way == "memoryview":
        return None, memoryview(buffer.view("u1"))  # not every dtype has a buffer format
    if way == "readonly":
        return None, memoryview(buffer.view("u1").readonly())
    if way == "asarray":
        return None, np.asarray(buffer)
    block = buffer.read() if way == "with read" else buffer.write()
    return block, block.__enter__()


def bytes_of(array):
    """The bytes behind an array or a memoryview."""
    return np.asarray(array).reshape(-1).view("u1")
