"""JoinedCapture: operations that become a part of a graph which another library captures.

State that outlives a call: the plans of joined captures that were dropped without `close` (the GIL
guards them).
"""

cimport cython

from cudadrv._capture cimport Capture, Plan, new_capture, new_holdings
from cudadrv._driver cimport cudadrv_table
from cudadrv._errors cimport only_made_by, refuse_if_forked, report_text
from cudadrv._names cimport number_of_graph
from cudadrv._stream cimport Stream, known_stream

from cudadrv._errors import CaptureError, OwnershipError

cdef list _forgotten = []   # plans of joined captures that were dropped without `close`


@cython.final
@cython.no_gc   # otherwise the collector would first clear the list of nodes that keep the memory
cdef class JoinedCapture:
    """JoinedCapture(*args, **kwargs)\n--\n
    cudadrv's part in a graph that another library captures: what `joins_capture` returns.

    From the beginning of its block until `close`, the buffers and modules of the operations cannot
    be closed, moved or given away, because the library can launch its graph at any time. The
    library's launches borrow nothing: lend it the buffers for each launch.
    """

    def __dealloc__(self):
        if self.plan is None or self.closed or cudadrv_table.ending or cudadrv_table.forked:
            return
        if self.plan.nodes:
            _forgotten.append(self.plan)
            report_text(f"the buffers of {self.label} stay open until the program ends, because"
                        " nobody can close it: keep what `with joins_capture(stream) as kept:`"
                        " gives, and call kept.close() when that library's graph is gone")

    @property
    def closed(self):
        """Whether `close` was called."""
        return self.closed

    @property
    def nodes(self):
        """The operations that were captured in the block, a tuple of `GraphNode` in their order.

        It is empty until the block has ended.
        """
        _usable(self)
        return () if self.plan is None else self.plan.finished()

    def __enter__(self):
        """Begin to take part in the capture."""
        cdef Capture capture = new_capture(self.stream, self.label)
        cdef Plan plan = Plan.__new__(Plan)
        _usable(self)       # from here on no other thread runs until the block is marked as begun
        if self.plan is not None:
            raise CaptureError(f"the block of {self.label} has begun already; call joins_capture"
                               " again")
        capture.busy = True
        self.capture, self.plan, capture.plan = capture, plan, plan
        try:
            plan.graph = self.label
            plan.holdings = new_holdings(
                self.number, self.label, None, "When the library's graph, and all that was made of"
                " it, is gone, let go of what it used: kept.close().")
            capture.join()
        except BaseException:
            self.capture = self.plan = None
            raise
        finally:
            capture.busy = False
        return self

    def __exit__(self, kind, exception, traceback):
        """Leave the capture. The library continues the capture, and ends it."""
        cdef Capture capture = self.capture
        if capture is None or capture.busy:
            raise RuntimeError("this block is not entered, or has ended already")
        capture.busy = True     # before any step that lets other threads run
        try:
            capture.leave(exception is None)
        finally:
            try:
                self.plan.list_all()
            finally:
                self.capture = None     # from here on another thread can close this object

    def close(self):
        """Stop keeping the buffers and modules open. Closing twice does nothing. Does not block.

        Call this method when the library's graph and everything made of that graph are gone, and
        their launches are complete: afterwards the buffers and modules can be closed.

        Raises CaptureError inside the block.
        """
        if self.closed:
            return
        _usable(self)
        if self.capture is not None:
            raise CaptureError(f"{self.label} is being captured; leave the block of joins_capture"
                               " first")
        self.closed = True
        if self.plan is not None:
            self.plan.end()     # events of the block may keep the plan

    def __repr__(self):
        state = "closed" if self.closed else "not begun" if self.plan is None \
            else "open" if self.capture is not None else "ended, 1 operation" \
            if self.plan.listed == 1 else f"ended, {self.plan.listed} operations"
        return f"<JoinedCapture of {self.label}, {state}>"


only_made_by(JoinedCapture, "use joins_capture(stream)")


cdef int _usable(JoinedCapture joined) except -1:
    refuse_if_forked()
    if joined.closed:
        raise ValueError(f"the part in {joined.label} is closed")
    return 0


def joins_capture(stream not None):
    """Return a context manager: take part in a capture that another library has begun.

    In ``with joins_capture(stream) as kept:`` operations on the stream become a part of the
    library's graph. They are checked against each other, as in `Graph.capture`, and what cannot be
    captured is refused in the same way. They are not checked against what the library itself
    captures: lend it the buffers that it uses, in the block. Other streams that join in the block
    must be joined again at its end.

    The buffers and modules of the operations cannot be closed until ``kept.close()``. Call that
    when the library's graph is gone. A launch by the library borrows nothing: lend it the buffers,
    ``with buffer.lend(stream):``, around the launch.

    Parameters
    ----------
    stream : Stream
        A stream that another library is capturing. If it is that library's own stream, make its
        `Stream` before the capture begins: ``Stream.from_object(stream)``.

    Returns
    -------
    JoinedCapture

    Raises
    ------
    CaptureError
        At the beginning of the block: no library is capturing the stream, or cudadrv captures it.
        In the block: the library has ended its capture; see also docs/graphs.md. At its end: the
        work of a stream is not joined. The library's capture goes on in any case.
    CudaError
        The driver has invalidated the capture.
    TypeError, ValueError
        There is no such stream, or it is closed.

    Driver function: cuStreamGetCaptureInfo.
    """
    cdef JoinedCapture joined
    cdef Stream found
    try:
        found = known_stream(stream)
    except OwnershipError:
        raise CaptureError(
            "the driver tells nothing of a stream during a capture: make the Stream before the"
            " library's capture begins, with Stream.from_object(stream), and pass that") from None
    found.usable()
    joined = JoinedCapture.__new__(JoinedCapture)
    joined.stream, joined.number = found, number_of_graph()
    joined.label = f"graph {joined.number} of another library"
    return joined
