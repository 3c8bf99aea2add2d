"""The steps of a program in which another library captures a graph, and cudadrv joins in."""

import ctypes
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import oracle_graphs
from oracle import CAPTURED, OK
from oracle_graphs import leaves
from session import THEIRS, Stream
from session_buffers import Buffer
from session_graphs import entered
from session_loans import LoanSession, driver, handle_of

import cudadrv as cu

RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED: any thread may allocate during the capture


@dataclass(eq=False)
class Joined:
    """A graph that another library captures, and the operations that cudadrv adds to it."""

    stream: Stream
    part: Any = None  # the library's `JoinedCapture`
    real: Any = None  # the same object as `part` until its block ends, then None
    model: oracle_graphs.Capture | None = None
    capturing: bool = True  # whether the other library's capture has not ended
    driver_graph: Any = field(default_factory=ctypes.c_void_p)
    executable: Any = field(default_factory=ctypes.c_void_p)
    closed: bool = False
    graph = None  # the graph of another library has no `cu.Graph`

    @property
    def kept(self):
        return self.model.plan


class JoinedSession(LoanSession):
    def __init__(self, *contexts):
        super().__init__(*contexts)
        self.joined = []  # the graphs of other libraries that still exist
        # Closed `JoinedCapture` objects of destroyed graphs; they must keep nothing alive.
        self.let_go = []

    def theirs(self, joined, name, *arguments):
        """Make a call to the driver as another library does. Returns the status."""
        with joined.stream.place.context:
            return getattr(driver(), name)(*arguments)

    # ---- captures ----

    def begin_theirs(self, stream):
        """Let another library begin a capture of a stream."""
        self.settle()
        joined = Joined(stream)
        handle = ctypes.c_void_p(handle_of(stream))
        assert self.theirs(joined, "cuStreamBeginCapture_v2", handle, RELAXED) == 0
        self.joined.append(joined)
        return joined

    def join(self, joined):
        """Begin the block that joins the capture."""
        stream = joined.stream
        join = lambda: self.begun.append(entered(cu.joins_capture(stream.real)))  # noqa: E731
        self.call("joins_capture", OK, join)
        joined.part = joined.real = self.begun[-1]
        joined.model = oracle_graphs.Capture(stream.model, oracle_graphs.Plan())
        joined.model.joined = True

    def join_nobody(self, stream):
        """Try to join the capture of a stream that no other library captures."""
        self.call("joins_capture", CAPTURED, lambda: cu.joins_capture(stream.real).__enter__())

    def use_theirs(self, joined):
        """Try to use the stream of another library's capture outside the joining block."""
        self.call("record", THEIRS, joined.stream.real.record)

    def close_early(self, joined):
        """Try to close the `JoinedCapture` inside its block, which is refused."""
        self.call("kept.close()", CAPTURED, joined.part.close)

    def use_ended(self, joined):
        """Try to capture something after the other library has ended its capture."""
        self.call("record", CAPTURED, joined.stream.real.record)

    def leave_theirs(self, joined, way):
        """End the joining block. The other library's capture goes on."""
        answer = CAPTURED if way == "block" and not joined.model.is_joined() else OK
        self._leave(joined, way, answer)
        joined.model.end()
        self.outlive(joined.model)
        self.agree("number of nodes", len(joined.part.nodes), len(joined.kept.operations))

    def end_theirs(self, joined):
        """Let the other library end its capture.

        The driver makes no graph if a stream is not joined.
        """
        joined.capturing = False
        handle, made = ctypes.c_void_p(handle_of(joined.stream)), ctypes.byref(joined.driver_graph)
        status = self.theirs(joined, "cuStreamEndCapture", handle, made)
        assert bool(joined.driver_graph) == (status == 0)
        if status == 0:
            made = ctypes.byref(joined.executable)
            options = joined.driver_graph, ctypes.c_ulonglong(0)
            assert self.theirs(joined, "cuGraphInstantiateWithFlags", made, *options) == 0

    # ---- graphs ----

    def launch_theirs_graph(self, joined, stream, loans):
        """Let the other library launch its graph. Buffers of cudadrv's operations are lent to it.

        `loans` is the program's list of loans. After a disagreement, the program ends the loans in
        it. After a disagreement, the program ends the loans in it.
        """
        before = len(loans)
        if all(self._lend_to(stream, use, loans) for use in self._uses(joined)):
            handle = ctypes.c_void_p(handle_of(stream))
            assert self.theirs(joined, "cuGraphLaunch", joined.executable, handle) == 0
            self.ordered = self.ordered and joined.kept.ordered
            for operation in joined.kept.operations:
                operation.act()
        while len(loans) > before:
            if loans[-1].entered is not None:
                self.leave(loans[-1])
            self.drop_loan(loans.pop())

    def _uses(self, joined):
        return [use for leaf in leaves(joined.kept.operations) for use in leaf.uses]

    def _lend_to(self, stream, use, loans):
        """Lend the bytes that an operation uses, and note the loan.

        Returns whether it was accepted.
        """
        kept, mode = use
        real = kept.reference()
        if kept.closed or real is None or real.closed:
            return False
        if kept.memory.grows:
            real = real[: kept.nbytes // real.itemsize]
        buffer = Buffer(real, kept.memory, kept.start, kept.nbytes, True, real.ordering)
        buffer.layout = kept.layout
        loan = self.lend(buffer, stream, readonly=mode == "read")
        if loan is None:
            return False
        loans.append(loan)
        return self.enter(loan)

    def close_theirs(self, joined):
        """Destroy a graph of another library after its launches, and close the `JoinedCapture`."""
        self._destroy(joined)
        self.call("kept.close()", OK, joined.part.close)
        joined.kept.holding.let_go()
        joined.kept.ended = joined.closed = True
        self.joined.remove(joined)
        self.let_go.append(joined.part)
        joined.stream.kept = True

    def _destroy(self, joined):
        assert self.theirs(joined, "cuCtxSynchronize") == 0
        if joined.executable:
            assert self.theirs(joined, "cuGraphExecDestroy", joined.executable) == 0
        if joined.driver_graph:
            assert self.theirs(joined, "cuGraphDestroy", joined.driver_graph) == 0

    def end_all_theirs(self):
        """Destroy all graphs of other libraries, even after a disagreement."""
        self.let_go.clear()
        for joined in [each for each in self.joined if each.capturing]:
            self.end_theirs(joined)  # no context can be synchronized before
        while self.joined:
            joined = self.joined.pop()
            self._destroy(joined)
            if joined.part is not None:
                with suppress(ValueError):
                    joined.part.close()
