"""Uses of a buffer that grows or shrinks in another thread, at every moment of the use.

    CUDADRV_DRIVER=.../interposed.so python sizes.py grow slice split_at

Each use finds the size before or the size after the other call, and not both: known_faults.py
has more of such tests.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
from known_faults import GRANULE, PTX, begin, done_or_refused, is_free, run
from windows import Case

import cudadrv as cu

SMALL, LARGE = 64, GRANULE + 64
GUARD = 64  # bytes behind the other buffer
MANY = [1] * 20  # sizes, so many that Python makes a new tuple for them
FREELIST = 64  # maximum number of unused Region objects that are kept: pyx/memory/_region.pyx
ROUNDS = 2


class World:
    """Objects that all uses need, and that do not change."""

    def __init__(self) -> None:
        self.stream = cu.Stream()
        self.kernel = cu.Module(PTX.read_bytes())["scaled"]  # uses the first bytes of a buffer
        self.devices = cu.Device.all()
        with self.devices[-1]:
            self.far = cu.Stream()


def growing(count: int) -> cu.DeviceBuffer:
    return cu.DeviceBuffer(count, capacity=2 * GRANULE, accessible_by=w.devices)


class Resized:
    """A buffer that can grow and shrink, and another one of its size."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.buffer = growing(count)
        self.room = cu.DeviceBuffer.zeros(count + GUARD)
        self.other, self.guard = self.room.split_at(count)
        self.array = np.empty(count, "u1")
        self.buffer.fill(7)
        # Then no unused object is left for the parts that a use makes, so these parts cause
        # collections.
        self.parts = [self.room[:0] for _ in range(FREELIST)]

    def imported(self, lent: Any) -> int:
        """Return the number of items of what another library makes of the buffer."""
        return cu.from_dlpack(lent, w.stream).count

    def captured(self, queue: Callable[[], Any]) -> list[int]:
        with cu.Graph() as graph:
            with graph.capture(w.stream):
                queue()
            return self.sizes_in(graph)

    def added(
        self, add: Callable[[cu.Graph], Any], change: Callable[[Any], Any] = lambda node: None
    ) -> list[int]:
        with cu.Graph() as graph:
            add(graph)
            return self.sizes_in(graph, change)

    def sizes_in(
        self, graph: cu.Graph, change: Callable[[Any], Any] = lambda node: None
    ) -> list[int]:
        """Return how many bytes a node and a launch use of the buffer."""
        with graph.instantiate() as step:
            change(step[0])
            token = step.launch(w.stream)
            used = {each.stop for each in self.buffer.borrows}
            for node in graph.nodes:
                for each in (*node.reads, *node.writes):
                    if each.address == self.buffer.address:
                        used.add(each.nbytes)
            token.wait()
        return list(used)

    def prepared(self) -> list[int]:
        ready = w.kernel.prepare(1, 1, self.buffer)
        return self.captured(lambda: ready.launch(w.stream))

    def copied(self, target: cu.Buffer, source: cu.Buffer, stream: cu.Stream | None) -> list[int]:
        """Return how many bytes a copy uses of the two buffers."""
        token = target.copy_from_async(source, stream)
        used = [each.stop for buffer in (target, source) for each in buffer.borrows]
        token.wait()
        return used

    def copied_far(self, *, back: bool) -> list[int]:
        """Like `copied`, for memory of another device."""
        with w.devices[-1]:
            far = cu.DeviceBuffer.zeros(self.count)
        both = (self.buffer, far) if back else (far, self.buffer)
        return self.copied(*both, w.far)

    def copied_by_a_peer(self) -> list[int]:
        """Like `copied`, by a stream of another device. The driver is asked if that is possible."""
        if len(w.devices) > 1 and not w.devices[-1].peers:
            w.devices[-1].enable_access(w.devices[0])
        return self.copied(self.buffer, self.other, w.far)

    def copied_in_a_block(self) -> list[int]:
        with w.stream:
            return self.copied(self.buffer, self.other, None)


# Each use returns sizes that it has met.
PARTS: dict[str, Callable[[Resized], list[int]]] = {
    "slice": lambda t: [t.buffer[:].count],
    "split_at": lambda t: [sum(len(each) for each in t.buffer.split_at(t.count // 4 * 3))],
    "chunks": lambda t: [sum(len(each) for each in t.buffer.chunks(t.count // 3))],
    "view": lambda t: [t.buffer.view("u4").nbytes],
    "reshape": lambda t: _shape_of(t.buffer.reshape(2, -1, *MANY)),
    "repr": lambda t: [int(repr(t.buffer).split(" x ")[0].split()[-1])],
    "explain": lambda t: [t.buffer.explain() and t.buffer.nbytes],
}
COPIES: dict[str, Callable[[Resized], list[int]]] = {
    "to_numpy": lambda t: [len(t.buffer.to_numpy())],
    "copy_to": lambda t: _done(t.buffer.copy_to(t.array)),
    "copy_from": lambda t: _done(t.buffer.copy_from(t.array)),
    "copy_from_async": lambda t: _done(t.buffer.copy_from_async(t.array, w.stream).wait()),
    "copy_to_a_buffer": lambda t: _done(t.buffer.copy_to(t.other)),
    "copy_of_a_buffer": lambda t: _done(t.other.copy_from(t.buffer)),
    "copies_of_a_stream": lambda t: t.copied(t.other, t.buffer, w.stream),
    "copy_in_a_block": lambda t: t.copied_in_a_block(),
    "fill": lambda t: _done(t.buffer.fill(3)),
    "fill_async": lambda t: _done(t.buffer.fill_async(3, w.stream).wait()),
    "to_the_host": lambda t: [t.buffer.to("host").count],
    "to_its_device": lambda t: [t.buffer.to(w.devices[0], copy=True).count],
    "to_a_device": lambda t: [t.buffer.to(w.devices[-1], copy=True).count],
    "copy_to_another_device": lambda t: t.copied_far(back=False),
    "copy_of_another_device": lambda t: t.copied_far(back=True),
    "copy_by_a_peer": lambda t: t.copied_by_a_peer(),
}
LOANS: dict[str, Callable[[Resized], list[int]]] = {
    "dlpack": lambda t: [t.imported(t.buffer)],
    "lend": lambda t: [t.imported(t.buffer.lend(w.stream))],
    "copy": lambda t: _done(t.buffer.__dlpack__(stream=w.stream.handle, copy=True)),
    "interface": lambda t: list(t.buffer.lend(w.stream).__cuda_array_interface__["shape"]),
    "launch": lambda t: _done(w.kernel.launch(1, 1, t.buffer, stream=w.stream).wait()),
    "prepare": lambda t: _done(w.kernel.prepare(1, 1, t.buffer).launch(w.stream).wait()),
}
GRAPHS: dict[str, Callable[[Resized], list[int]]] = {
    "captured_copy": lambda t: t.captured(lambda: t.buffer.copy_from_async(t.other, w.stream)),
    "captured_fill": lambda t: t.captured(lambda: t.buffer.fill_async(3, w.stream)),
    "captured_launch": lambda t: t.captured(
        lambda: w.kernel.launch(1, 1, t.buffer, stream=w.stream)
    ),
    "captured_borrows": lambda t: t.captured(
        lambda: w.kernel.launch(1, 1, t.other, stream=w.stream, borrows=[cu.read(t.buffer)])
    ),
    "captured_prepared": lambda t: t.prepared(),
    "added_copy": lambda t: t.added(lambda graph: graph.add_copy(t.other, t.buffer)),
    "added_fill": lambda t: t.added(lambda graph: graph.add_fill(t.buffer, 3)),
    "added_launch": lambda t: t.added(lambda graph: graph.add_launch(w.kernel, 1, 1, t.buffer)),
    "set_source": lambda t: t.added(
        lambda graph: graph.add_copy(t.other, growing(t.count)),
        lambda node: node.set(source=t.buffer),
    ),
    "set_target": lambda t: t.added(
        lambda graph: graph.add_copy(growing(t.count), t.other),
        lambda node: node.set(target=t.buffer),
    ),
    "set_fill": lambda t: t.added(
        lambda graph: graph.add_fill(t.other, 0), lambda node: node.set(target=t.buffer)
    ),
    "set_launch": lambda t: t.added(
        lambda graph: graph.add_launch(w.kernel, 1, 1, t.other),
        lambda node: node.set(t.buffer),
    ),
    "set_grid": lambda t: t.added(
        lambda graph: graph.add_launch(w.kernel, 1, 1, t.buffer),
        lambda node: node.set(block=2),
    ),
}
USES = {"parts": PARTS, "copies": COPIES, "loans": LOANS, "graphs": GRAPHS}


def _done(_: Any) -> list[int]:
    return []


def _shape_of(buffer: cu.Buffer) -> list[int]:
    return [buffer.shape[0] * buffer.shape[1], buffer.count]


def case_of(use: Callable[[Resized], list[int]], *, grows: bool) -> Callable[[], Case]:
    before, after = (SMALL, LARGE) if grows else (LARGE, SMALL)

    def case() -> Case:
        t = Resized(before)

        def check(found: Any, changed: Any) -> None:
            done_or_refused((found, changed), " items, ", "cannot split")
            if isinstance(found, list):
                assert set(found) in ({before}, {after}, set()), found
            cu.Device(0).synchronize()
            assert not t.guard.to_numpy().any(), "bytes behind the other buffer were written"
            found = None
            is_free(t.buffer)

        return Case(
            lambda: use(t), lambda: (t.buffer.grow if grows else t.buffer.shrink)(after), check
        )

    return case


def main(change: str, *names: str) -> None:
    uses = {name: use for group in USES.values() for name, use in group.items()}
    # To map memory takes milliseconds on a GPU, and longer while other processes do it, too.
    step = 1 if cu.driver_info().is_software else 3
    for name in names:
        run(moments, name, case_of(uses[name], grows=change == "grow"), ("lazy",), ROUNDS, step)


if __name__ == "__main__":
    moments, w = begin(), World()
    main(*sys.argv[1:])
