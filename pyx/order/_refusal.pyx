"""Refusal: the exceptions that say which work uses a buffer, and what to do about it.

Every message has the same four parts: what was requested; which work conflicts with it, and the
line that queued that work; that nothing orders the two; and the calls that resolve the conflict.
"""

from libc.stdint cimport uint32_t

from cudadrv._engine cimport (
    OWN_ATTACHED, OWN_CUT, OWN_DEFAULT, OWN_DISCARDED, OWN_ELSEWHERE, OWN_ENDED, OWN_EXPORTED,
    OWN_HELD, OWN_INTERNAL, OWN_LEGACY, OWN_MEMORY_CLOSED, OWN_MUST_WAIT, OWN_NON_BLOCKING,
    OWN_NO_MEMORY, OWN_PER_THREAD, OWN_PLAIN, OWN_READ, OWN_STREAM_CLOSED, OWN_WRITE,
    own_access, own_conflict, own_request,
)
from cudadrv._names cimport (
    RELEASE, doing, graph_end, graph_name, host_wait, operation_name, parts_of, stream_name,
    stream_variable, work_text,
)
from cudadrv._operation cimport REFUSED, Operation
from cudadrv._site cimport place
from cudadrv._stream cimport CAPTURE_HAS_ENDED, STREAM_IS_CLOSED, Capturing, Stream

from cudadrv._errors import (
    BufferBorrowedError, BufferClosedError, BufferExportedError, CaptureError,
    ContentsDiscardedError,
    OwnershipError,
)

cdef str READ_ONLY = "This view may write, and so counts as a write. To read only:" \
                     " buffer.read(), buffer.readonly() or buffer.to_numpy()."
cdef str FOREIGN_WAITS = "\n  Waits that another library has made are not known here. One that" \
                         " is: cudadrv.Stream.from_object(its_stream).wait(token)"
cdef str CANNOT_WAIT = "ordering('wait') cannot wait for it: that is the default stream of" \
                       " another thread,\n  or a foreign stream that is gone." \
                       " context.synchronize() can."
cdef str WHERE = "(concurrent_managed_access is 0)"
cdef str WRITE_FIRST = "Write them first: by a fill, by a copy to them, by a kernel that gets the" \
                       " buffer without cu.read, or on\n  the host with buffer[a:b] = array, or" \
                       " with buffer.write() as array"
cdef str END_LOAN = "Use it on that stream, or once the loan has ended: its `with` block is left," \
                    " and the last\n  array that another library made of it is gone"
cdef str END_OWN_LOAN = "End the loan first: leave its `with` block, and drop the last array that" \
                        " another library made of it"
cdef str END_SHARE = "Take it back with the receipt of give_back(stream) in that process:" \
                     " buffer.accept(receipt).\n  Without one: buffer.accept(), once that process" \
                     " has dropped the buffer or has ended, or if it\n  never opened the ticket"
cdef str END_VIEW = "Release it: leave its `with` block, delete the array that refers to it, or" \
                    " call release() on the memoryview"


cdef int refuse_operation(
    Operation *operation, int reason, Stream stream, tuple targets, str advice=""
) except -1:
    """Raise the exception for a reason that `issue` returned.

    `targets` has a description of the memory of each access. `advice` is appended to the message if
    the reason is a conflict with other work.
    """
    cdef own_conflict *conflict = &operation.request.conflict
    if reason == CAPTURE_HAS_ENDED:
        raise CaptureError(f"another thread or library has ended the capture of {stream.called()}"
                           " before this call")
    if reason > REFUSED:
        return stream.refuse(reason)
    answer = REFUSED - reason
    if answer == OWN_STREAM_CLOSED:
        return stream.refuse(STREAM_IS_CLOSED)
    if answer == OWN_NO_MEMORY:
        raise MemoryError("no host memory to note who uses the buffer")
    target = targets[conflict.access]
    if answer == OWN_MEMORY_CLOSED:
        return refuse_closed(target)
    if answer == OWN_CUT:
        return refuse_cut(target, conflict.site)
    if answer == OWN_DISCARDED:
        return _refuse_reading(
            conflict, f"cannot read {target} by {operation_name(operation.request.operation)} on"
                      f" {stream.called()}")
    ours = stream.order.kind == OWN_INTERNAL
    if answer == OWN_HELD:
        return _refuse_held(conflict, f"cannot close {target}")
    if stream.capture is not NULL:
        return _refuse_in_capture(operation, answer, stream, target, advice)
    wanted = f"cannot {_request(&operation.request, conflict, target)} on" \
             f" {'a stream of its own' if ours else stream.called()}"
    if answer == OWN_EXPORTED:
        end = view_end(conflict)
        if conflict.loan and end is END_LOAN and conflict.kind == stream.order.kind \
                and conflict.number == stream.order.number:
            end = END_OWN_LOAN      # the request is on the loan's own stream
        raise BufferExportedError(f"{wanted}:\n{view_line(conflict)}\n  {end}.")
    if answer == OWN_ATTACHED:
        return _refuse_attached(conflict, wanted)
    raise BufferBorrowedError(
        f"{wanted}:\n{_user(conflict)}\n"
        "  and nothing orders this operation after it.\n"
        f"{_why_unordered(answer, conflict, stream)}"
        f"  Order it with: {_stream_wait(conflict, stream)}"
        f"{_separator(conflict.kind)}"
        f"{host_wait(conflict.number, conflict.kind)}.{_foreign(conflict, stream)}"
        + ("\n  Or free it behind that work: buffer.close(stream)."
           if operation.request.operation == RELEASE else advice))


cdef int _refuse_in_capture(
    Operation *operation, int answer, Stream stream, str target, str advice
) except -1:
    """Raise the exception for an operation that conflicts with another one of its capture."""
    cdef own_conflict *conflict = &operation.request.conflict
    wanted = f"cannot {_request(&operation.request, conflict, target)} on {stream.called()}" \
             f" in {(<Capturing>stream.capture).called()}"
    if answer == OWN_EXPORTED:
        raise BufferExportedError(f"{wanted}:\n{_view(conflict)}")
    order = f"{_wait_call(conflict, stream)} before it"
    if conflict.number == 0:
        order = "graph.capture(stream, after=[node])"
    raise BufferBorrowedError(
        f"{wanted}:\n"
        f"{_node(&operation.request, conflict)}  Order it with: {order}.{advice}")


cdef int refuse_node(
    own_request *request, int reason, str graph, tuple targets, str advice
) except -1:
    """Raise the exception for a node that cannot be added to a graph.

    `reason` is not a status of the driver. `targets` and `advice` are as for `refuse_operation`.
    """
    cdef own_conflict *conflict = &request.conflict
    answer = REFUSED - reason
    if answer == OWN_NO_MEMORY:
        raise MemoryError("no host memory to note who uses the buffer")
    target = targets[conflict.access]
    if answer == OWN_MEMORY_CLOSED:
        return refuse_closed(target)
    raise BufferBorrowedError(
        f"cannot {_request(request, conflict, target)} in {graph}:\n"
        f"{_node(request, conflict)}"
        f"  Order it with: after=[node], with the node of that operation.{advice}")


cdef str _node(own_request *request, own_conflict *conflict):
    """Return the lines of a message that name the conflicting operation of the same graph."""
    cdef own_access *access = &request.accesses[conflict.access]
    parts = parts_of(conflict.epoch.operation)
    part = None if parts is None else parts.part_at(
        <size_t>access.memory, access.start, access.stop, conflict.epoch.mode)
    where = f"at {place(conflict.epoch.site)}"
    if part is not None:
        where = f"{part}, added {where}"
    elif conflict.number:
        where = f"{operation_name(conflict.epoch.operation)} on" \
                f" {stream_name(conflict.number, conflict.kind)}, captured {where}"
    else:
        where = f"{operation_name(conflict.epoch.operation)} {where}"
    return f"  it {doing(conflict)} by {where},\n" \
           "  and nothing in the graph orders this operation after it.\n"


cdef int _refuse_held(own_conflict *conflict, str wanted) except -1:
    """Raise the exception for memory that a graph uses."""
    raise BufferBorrowedError(
        f"{wanted}:\n"
        f"  {graph_name(conflict.number)} uses it, in"
        f" {operation_name(conflict.epoch.operation)} at {place(conflict.site)}.\n"
        f"  {graph_end(conflict.number)}"
        + ("\n  Or drop the last reference instead: its memory then lives as long as the graph."
           if wanted.startswith("cannot close ") else ""))


cdef int refuse_host(
    int answer, own_conflict *conflict, str verb, str target
) except -1:
    """Raise the exception for a host access that the engine refused.

    `verb` is the kind of the access: "read", "write", "export" or "lend".
    """
    if answer == OWN_MEMORY_CLOSED:
        return refuse_closed(target)
    if answer == OWN_CUT:
        return refuse_cut(target, conflict.site)
    if answer == OWN_NO_MEMORY:
        raise MemoryError("no host memory to note who uses the buffer")
    if answer == OWN_DISCARDED and verb != "lend":
        return _refuse_reading(conflict, f"cannot read {target} from the host")
    wanted = f"cannot {'write' if verb == 'export' else verb} {target}" \
             f" {'to work on no stream' if verb == 'lend' else 'from the host'}"
    if answer == OWN_DISCARDED:
        return _refuse_reading(conflict, wanted)
    if answer == OWN_ATTACHED:
        return _refuse_attached(conflict, wanted)
    if answer == OWN_EXPORTED:
        raise BufferExportedError(f"{wanted}:\n{_view(conflict)}")
    why = excluding_work(conflict) if conflict.excluded \
        else f"{_user(conflict)}\n  and nothing orders this access after it."
    raise BufferBorrowedError(
        f"{wanted}:\n{why}\n"
        f"  Release it with: {host_wait(conflict.number, conflict.kind)}."
        + (f"\n  {READ_ONLY}" if verb == "export" and conflict.epoch.mode == OWN_READ else ""))


cdef int _refuse_reading(own_conflict *conflict, str wanted) except -1:
    """Raise the exception for bytes whose contents were discarded."""
    raise ContentsDiscardedError(
        f"{wanted}:\n  the contents of its bytes {conflict.start}:{conflict.stop} were discarded"
        f" at {place(conflict.site)}, and nothing has written them since.\n"
        f"  {WRITE_FIRST}.")


cdef int _refuse_attached(own_conflict *conflict, str wanted) except -1:
    """Raise the exception for memory that is attached to another stream, or to the host."""
    to, others = "the host", "no stream"
    if conflict.number:
        to, others = stream_name(conflict.number, conflict.kind), "no other stream"
    raise OwnershipError(
        f"{wanted}:\n  it is attached to {to}, at {place(conflict.site)}, and the device lets"
        f" {others} use it {WHERE}.\n"
        "  Attach it anew first: buffer.attach(stream), or buffer.attach('global').")


cdef str excluding_work(own_conflict *conflict):
    """Return the lines about device work that excludes the host from all managed memory."""
    return f"  {work_text(conflict)} may be unfinished, and work of that device\n" \
           f"  excludes the host from all managed memory {WHERE}."


cdef int refuse_close(int answer, own_conflict *conflict, str verb, str target) except -1:
    """Raise the exception for memory that is still in use and cannot be closed or given away.

    `verb` is "close", "give away", "move" or "shrink".
    """
    if answer == OWN_MEMORY_CLOSED:
        return refuse_closed(target)
    if answer == OWN_NO_MEMORY:
        raise MemoryError("no host memory to note how long the buffer is")
    if answer == OWN_HELD:
        return _refuse_held(conflict, f"cannot {verb} {target}")
    if answer == OWN_EXPORTED:
        raise BufferExportedError(f"cannot {verb} {target}:\n{_view(conflict)}")
    raise BufferBorrowedError(
        f"cannot {verb} {target}:\n{_user(conflict)}\n"
        "  and that is not known to be complete.\n"
        f"  Release it with: {host_wait(conflict.number, conflict.kind)}."
        + ("\n  Or drop the last reference instead: its memory then outlives the work."
           if verb == "close" else ""))


cdef int refuse_cut(str target, uint32_t site) except -1:
    """Raise the exception for bytes that are gone. `site` is the line that called `shrink`."""
    raise BufferClosedError(f"{target} was given back by shrink() at {place(site)}; grow the buffer"
                            " first, or use a part of what is left")


cdef int refuse_closed(str target, uint32_t site=0) except -1:
    """Raise BufferClosedError. `site` is the line that closed the memory, or 0 if it is not known.

    The line is not known if another thread closed the memory during this call.
    """
    when = f"was closed at {place(site)}" if site else "is closed"
    raise BufferClosedError(f"{target} {when}; its memory is no longer there")


cdef str _stream_wait(own_conflict *conflict, Stream stream):
    """Return the part of a message that says how a stream can wait for the conflicting work."""
    if conflict.kind == OWN_INTERNAL:
        return "a wait of the host,"
    if stream.order.kind != OWN_INTERNAL:
        recorded = ", for an event that its own thread recorded" \
            if conflict.kind == OWN_PER_THREAD else ""
        return f"{_wait_call(conflict, stream)} before it{recorded}, or on the host with"
    if conflict.kind in (OWN_ENDED, OWN_PER_THREAD):
        return "a wait of the host,"
    return f"stream={stream_variable(conflict.number, conflict.kind)}, or on the host with"


cdef str _separator(int kind):
    """Return what separates the two remedies: a line, if the second one is long."""
    return " " if kind in (OWN_PLAIN, OWN_DEFAULT) else "\n  "


cdef str _wait_call(own_conflict *conflict, Stream stream):
    mine = stream_variable(stream.order.number, stream.order.kind)
    if conflict.kind == OWN_ENDED:
        return f"{mine}.wait(token)"
    if conflict.kind == OWN_PER_THREAD:
        return f"{mine}.wait(event)"
    theirs = stream_variable(conflict.number, conflict.kind)
    return f"{mine}.wait({'other_stream' if theirs == mine else theirs})"


cdef str _foreign(own_conflict *conflict, Stream stream):
    """Return a line about waits of other libraries, if one of the streams is theirs."""
    if stream.order.kind == OWN_PLAIN and not stream.ours:
        return FOREIGN_WAITS
    for other in stream.context.streams.all():
        if (<Stream>other).order.number == conflict.number and not (<Stream>other).ours \
                and conflict.kind == OWN_PLAIN:
            return FOREIGN_WAITS
    return ""


cdef str _request(own_request *request, own_conflict *conflict, str target):
    """Return what the refused operation would have done, such as "read ... by copy_to_async"."""
    mode = request.accesses[conflict.access].mode
    if request.operation == RELEASE:
        return f"close {target}"
    verb = "read" if mode == OWN_READ else "write" if mode == OWN_WRITE else "use"
    return f"{verb} {target} by {operation_name(request.operation)}"


cdef str _why_unordered(int answer, own_conflict *conflict, Stream stream):
    """Return a line that explains the refusal where the reason is easily overlooked, else ""."""
    if {stream.order.order, conflict.order} == {OWN_LEGACY, OWN_NON_BLOCKING}:
        return "  The legacy default stream is ordered with blocking streams only:" \
               " Stream(blocking=True).\n"
    return f"  {CANNOT_WAIT}\n" if answer == OWN_MUST_WAIT else ""


cdef str _user(own_conflict *conflict):
    """Return the line of a message that says which operation uses the memory, and how."""
    return f"  it {doing(conflict)} by {work_text(conflict)},"


cdef str view_line(own_conflict *conflict):
    """Return the lines of a message about the host view or the loan that causes the conflict."""
    where = place(conflict.site)
    if conflict.loan and conflict.kind == OWN_ELSEWHERE:
        return f"  it is shared with another process, at {where}."
    if conflict.loan:
        stream = "work on no stream" if conflict.kind == OWN_INTERNAL \
            else stream_name(conflict.number, conflict.kind)
        return f"  memory is lent to {stream}, at {where}, and what is queued there\n" \
               f"  excludes the host from all managed memory {WHERE}." \
            if conflict.excluded else f"  it is lent to {stream}, at {where}."
    return f"  a host view of a UnifiedBuffer is alive, made at {where},\n" \
           f"  and excludes all work of this device {WHERE}." \
        if conflict.excluded else f"  a host view of it is alive, made at {where}."


cdef str view_end(own_conflict *conflict):
    """Return the part of a message that says how to end the view or the loan."""
    if conflict.loan and conflict.kind == OWN_ELSEWHERE:
        return END_SHARE
    return END_LOAN if conflict.loan else END_VIEW


cdef str _view(own_conflict *conflict):
    return f"{view_line(conflict)}\n  {view_end(conflict)}."
