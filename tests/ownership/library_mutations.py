"""Breaks the library on purpose, one mutation at a time, and prints which random programs notice.

    python tests/ownership/library_mutations.py [name ...]

Each of MUTATIONS is (name, function, old text, new text), as in mutations.py, which does the same
with the engine. If no program notices a mutation, some tests of boxes, batches, functions and
textures run, too.
"""

import os
import re
import subprocess
import sys

from mutations import BUILD, ROOT, build, copy_of, main

NEEDED = [*BUILD, "include", "cudadrv", "pyx", "softdriver", "pytest_cudadrv.py", "tests"]
NEEDED += ["conformance/answers"]
# The programs with a second process come first, because they are short and find most mutations.
PROGRAMS = (
    ["--operations=20000", "--tickets"],
    ["--operations=100000"],
    ["--operations=50000", "--boxes", "--contexts"],
)
# For what programs seldom or never do, such as batches that fail.
TESTS = [
    "tests/buffers/test_boxes.py",
    "tests/buffers/test_copy_batch.py",
    "tests/devices/test_boxes.py",
    "tests/devices/test_current.py",
    "tests/devices/test_graph_copies.py",
    "tests/graphs/test_calls.py",
    "tests/graphs/test_signals.py",
    "tests/unit/test_host_functions.py",
    "tests/unit/test_external_signal.py",
    "tests/unit/test_signal.py",
    "tests/textures",
]
SHARED = "2"  # the engine's number of the mode that conflicts with nothing
RENEWS = """\
            and lent.region is region and lent.readonly == readonly and lent.stream is stream \\
            and lent.borrower == ON_STREAM and lent.event is None and lent.capture is NULL \\
            and stream.capture is NULL and stream.order.state == OWN_OPEN and takes_calls(stream):
"""

MUTATIONS = [
    # ---- what an operation borrows ----
    (
        "a part borrows from the beginning",
        "_region.aim_at",
        "access.start = region.start\n",
        "access.start = 0\n",
    ),
    (
        "a part borrows a byte too few",
        "_region.aim_at",
        "access.stop = region.start + region.nbytes\n",
        "access.stop = region.start + region.nbytes - (1 if region.nbytes else 0)\n",
    ),
    (
        "a part borrows a byte too many",
        "_region.aim_at",
        "access.stop = region.start + region.nbytes\n",
        "access.stop = min(region.start + region.nbytes + 1, region.memory.nbytes)\n",
    ),
    # ---- boxes ----
    (
        "a box borrows the gaps between its rows",
        "_region.aim_at",
        "access.boxed = region.box is not NULL",
        "access.boxed = False",
    ),
    (
        "a part of a box begins where the box begins",
        "Region.indexed",
        "self.part_over(self.start + found.offset, count, self.dtype)",
        "self.part_over(self.start, count, self.dtype)",
    ),
    (
        "a copy takes the rows of its source for those of its target",
        "describe_copy",
        "&copy.to, &copy.of)",
        "&copy.to, &copy.to)",
    ),
    (
        "slices are a row too near",
        "height_of",
        "box.slice // box.pitch if",
        "box.slice // box.pitch - 1 if",
    ),
    (
        "a flat copy has one row less",
        "_call_flat",
        "copy.to.width, copy.to.rows\n",
        "copy.to.width, copy.to.rows - 1\n",
    ),
    (
        "a copy between contexts has one slice",
        "_call_across",
        "copy.to.rows, copy.to.slices",
        "copy.to.rows, 1",
    ),
    (
        "a box of an array is staged with gaps",
        "_packed",
        "packed.pitch, packed.slice = packed.width, packed.width * packed.rows",
        "packed.slice = packed.width * packed.rows",
    ),
    (
        "a copy of a box does not borrow its source",
        "_copy_boxes",
        "borrow(source, &accesses[1], OWN_READ)",
        f"borrow(source, &accesses[1], {SHARED})",
    ),
    (
        "a fill by slices goes by rows",
        "fill_box_call",
        "box.slice if by_slices else box.pitch",
        "box.pitch",
    ),
    (
        "a fill by copies leaves the last rows",
        "_fill_by_copies",
        "done < box.rows:",
        "2 * done <= box.rows:",
    ),
    (
        "a fill by copies leaves the slices",
        "_fill_by_copies",
        "done < box.slices:",
        "False:",
    ),
    (
        "a fill by copies is made in the current context",
        "fill_box_call",
        "status = enter_context(fill.context, &pushed)",
        "status = CUDA_SUCCESS",
    ),
    (
        "a capture takes fills of several operations",
        "fill_region",
        "            refuse_several(&boxes, region)\n",
        "            pass\n",
    ),
    (
        "a capture takes blocking fills of boxes",
        "fill_region",
        "if stream.capture is not NULL and name == FILL_ASYNC:",
        "if stream.capture is not NULL:",
    ),
    (
        "boxes of one start are the same",
        "check_pair",
        "(target.start != source.start or target.steps != source.steps)",
        "target.start != source.start",
    ),
    (
        "a host view of a box ignores its strides",
        "_make_array",
        "view.borrowed, 0, view.buffer.steps)",
        "view.borrowed)",
    ),
    # ---- copies ----
    (
        "a copy does not borrow its source",
        "_copy_plain",
        "borrow(source, &accesses[1], OWN_READ)",
        f"borrow(source, &accesses[1], {SHARED})",
    ),
    (
        "a copy borrows its source as written",
        "_copy_plain",
        "borrow(source, &accesses[1], OWN_READ)",
        "borrow(source, &accesses[1], OWN_WRITE)",
    ),
    (
        "a copy from an array does not borrow its target",
        "prepare_staged",
        "OWN_WRITE if inward else OWN_READ",
        f"{SHARED} if inward else OWN_READ",
    ),
    (
        "a fill does not borrow",
        "fill_region",
        "borrow(region, &access, OWN_WRITE)",
        f"borrow(region, &access, {SHARED})",
    ),
    (
        "allocating and freeing stream-ordered memory are no writes",
        "_write_on",
        "borrow_all(memory.state, &access, OWN_WRITE, policy)",
        f"borrow_all(memory.state, &access, {SHARED}, policy)",
    ),
    (
        "memory of a pool of the driver is allocated on a stream of the library",
        "allocate_from",
        "memory.stream = internal_stream(context) if stream is None else stream",
        "memory.stream = internal_stream(context)",
    ),
    (
        "a prepared launch uses buffers that have been closed",
        "_borrow_operands",
        "        region = <Region>packed.operands[i].region\n        check_region(region)\n",
        "        region = <Region>packed.operands[i].region\n",
    ),
    (
        "arrays are copied for a launch that is refused",
        "_launch_with_arrays",
        "        _ask_without_arrays(kernel, arguments, count, more, packed, stream)\n",
        "        pass\n",
    ),
    (
        "results are brought home after the launch alone",
        "ResultToken.wait",
        "            wait_for_token(self.last, timeout)\n",
        "            wait_for_token(self.launch, timeout)\n",
    ),
    (
        "overlapping parts can be copied",
        "check_pair",
        "if overlap(target, source) and (target",
        "if False and (target",
    ),
    (
        "items of a batch may overlap",
        "_copy_batch._compare",
        "if other != index and overlap(region, others[other]):",
        "if False:",
    ),
    (
        "a batch does not borrow its sources",
        "_put_plain",
        "borrow(source, accesses + 1, OWN_READ)",
        f"borrow(source, accesses + 1, {SHARED})",
    ),
    (
        "a batch does not borrow the sources of its boxes",
        "_put_box",
        "borrow(source, &batch.accesses[batch.access_count + 1], OWN_READ)",
        f"borrow(source, &batch.accesses[batch.access_count + 1], {SHARED})",
    ),
    (
        "a batch leaves out its last copy",
        "_call_plain",
        "batch.sizes, batch.count, &batch",
        "batch.sizes, batch.count - (batch.count > 2), &batch",
    ),
    (
        "a batch whose boxes follow has no more than one of them",
        "_call_all",
        "range(batch.box_count)",
        "range(min(batch.box_count, 1))",
    ),
    (
        "a batch that the driver has begun is undone",
        "_call_all",
        "queued[0] |= i > 0",
        "queued[0] = False",
    ),
    (
        "single copies of a batch are undone after a failure",
        "_call_plain",
        "            break\n        queued[0] = True\n",
        "            break\n",
    ),
    (
        "a function's buffers are not borrowed",
        "_host_function._queue",
        "prepare(&operation, CALL, accesses, <int>count, _queue_call, &queued)",
        "prepare(&operation, CALL, accesses, 0, _queue_call, &queued)",
    ),
    (
        "a captured function's buffers are not borrowed",
        "_host_function._capture",
        "CAPTURED_CALL, <own_access *>room.start, <int>count,",
        "CAPTURED_CALL, <own_access *>room.start, 0,",
    ),
    (
        "an added function's buffers are not borrowed",
        "_call_node.add_call",
        "<own_access *>room.start, <int>len(call.buffers))",
        "<own_access *>room.start, 0)",
    ),
    (
        "a changed function's buffers are not borrowed",
        "change_call",
        "change.node.count = <uint32_t>len(call.buffers)",
        "change.node.count = 0",
    ),
    (
        "a changed function keeps its buffers",
        "changed_calls",
        "if call.index == old.index else call",
        "if False else call",
    ),
    (
        "launches in flight do not keep their functions",
        "Launches.begin",
        "                _in_flight.add(call)\n",
        "                pass\n",
    ),
    (
        "a stream does not wait for its functions",
        "_queue_call",
        "        if not call.slot.blocks:\n",
        "        if False:\n",
    ),
    (
        "a function's array begins where the buffer is when the function runs",
        "view_for_function",
        "    borrowed.first = <void *><size_t>first\n",
        "",
    ),
    (
        "an array that outlives its function does not borrow",
        "end_view_of_function",
        "    own_lend_anyway(engine, &access, view.site, NULL, &borrowed.view)\n"
        "    borrowed.open = True\n",
        "",
    ),
    # ---- policies ----
    (
        "the context's policy comes before the buffer's",
        "policy_in_force",
        "if buffer_policy is not None:",
        "if buffer_policy is not None and context_policy is None:",
    ),
    (
        "a block's policy stays when the block ends",
        "Nesting.leave",
        "        if inner is None and _is_reset(self.current, entry.token):\n            return 0\n"
        "        entry.ended = True",
        "        return 0\n        entry.ended = True",
    ),
    (
        "parts lose the policy",
        "Region.part_over",
        "region.policy = self.policy",
        "region.policy = None",
    ),
    (
        "freeing stream-ordered memory may go unchecked",
        "free_on",
        "OWN_WAIT if policy == OWN_WAIT else OWN_STRICT",
        "policy",
    ),
    # ---- waiting ----
    (
        "a token stands for all that its stream has by then",
        "_new_event_of",
        "token.stream.record_event(event, &issued)",
        "token.stream.record_event(event)",
    ),
    (
        "a token of a closed stream stands for all of it",
        "_farewell",
        "own_record_as(engine, &issued, &event.state)",
        "own_record_as(engine, &ghost.state.snapshot, &event.state)",
    ),
    (
        "every token is taken for complete",
        "_is_known",
        "    return own_known(engine, token.slot, token.seq)",
        "    return True",
    ),
    (
        "a token that was asked is used again as it is",
        "token_put_aside",
        "fields->asked != Py_None || ",
        "",
    ),
    (
        "an event that was never recorded can be waited for",
        "Event.refuse_unrecorded",
        "if not self.state.recorded:",
        "if False:",
    ),
    (
        "a wait of a stream is not noted",
        "_stream._wait",
        "noted[0] = own_wait(engine, stream.order, &event.state.snapshot)",
        "noted[0] = True",
    ),
    (
        "a stream that is done is not taken for done",
        "_is_idle",
        "if reason == 0:\n        own_join_host(engine, snapshot)",
        "if reason == 0:\n        pass",
    ),
    (
        "synchronizing a stream covers nothing of others",
        "Stream.finish",
        "own_snapshot_take(engine, self.order, &snapshot)\n",
        "own_snapshot_take(engine, self.order, &snapshot)\n        snapshot.clock = NULL\n",
    ),
    (
        "synchronizing a context tells the host nothing",
        "Context.finish",
        "            own_join_host(engine, &snapshot)\n",
        "",
    ),
    (
        "a blocking copy does not wait",
        "_copy.copy_and_wait",
        "copy_async(name, target, source, found, None)._finish()",
        "copy_async(name, target, source, found, None)",
    ),
    (
        "closing a stream counts as waiting for it",
        "Stream.close",
        "            outcome = bury_stream(",
        "            self.synchronize()\n            outcome = bury_stream(",
    ),
    (
        "what a closed stream did cannot be waited for",
        "find_user",
        "if ghost.state.snapshot.slot == slot and ghost.state.snapshot.seq >= seq:",
        "if False:",
    ),
    (
        "any dropped stream of another library is continued as any other",
        "take_orphan",
        "(node.identity != identity or node.handle != handle or node.ours",
        "(node.ours",
    ),
    (
        "a pool takes the uses of any stream for those of the new owner's",
        "own_memory_reusable",
        "        own_epochs(memory->ranges)->slot == stream->slot) {",
        "        stream->slot + 1) {",
    ),
    (
        "a loan that is refused counts as begun",
        "issue_unusual",
        "            reason = attempt(operation, stream, runs, apart, False)\n",
        "            reason = attempt(operation, stream, runs, apart, False)\n"
        "            reason = reason if reason >= REFUSED else 0\n",
    ),
    # ---- default streams ----
    (
        "blocking streams are not",
        "Stream.__init__",
        "OWN_BLOCKING if blocking else OWN_NON_BLOCKING",
        "OWN_NON_BLOCKING",
    ),
    (
        "the thread's default stream is not a blocking one",
        "per_thread_stream",
        "_open(stream, reference, OWN_BLOCKING)",
        "_open(stream, reference, OWN_NON_BLOCKING)",
    ),
    (
        "streams of others are all blocking ones",
        "_stream_of_raw",
        "OWN_NON_BLOCKING if flags & CU_STREAM_NON_BLOCKING else OWN_BLOCKING",
        "OWN_BLOCKING",
    ),
    # ---- the host ----
    (
        "a host view is never released",
        "_buffers._release",
        "    own_export_close(engine, &exported.view)\n    free(exported)",
        "    pass",
    ),
    (
        "a view that may be written excludes writes only",
        "HostBuffer.export",
        'self.open_view(&exported.view, "read" if shared else "export")',
        'self.open_view(&exported.view, "read")',
    ),
    (
        "the host writes while the GPU reads",
        "HostBuffer.open_view",
        'OWN_READ if verb == "read" else OWN_WRITE',
        "OWN_READ",
    ),
    (
        "nobody looks for views that escape a block",
        "_end_array",
        "return borrowed if Py_REFCNT(borrowed) > 1 else None",
        "return borrowed if Py_REFCNT(borrowed) > 2 else None",
    ),
    # ---- lifetime ----
    (
        "memory closes while it is borrowed",
        "_memory._end",
        "close, &conflict)\n    if answer == OWN_HELD and memory.context.lost:",
        "close, &conflict)\n    if answer != OWN_OK and answer != OWN_HELD:\n"
        "        memory.state.closed = True\n    elif answer == OWN_HELD and memory.context.lost:",
    ),
    (
        "memory is used again too early",
        "_is_for",
        "own_memory_reusable(engine, stream, block.state)",
        "True",
    ),
    (
        "a closed buffer's memory forgets what it was closed behind",
        "_write_on",
        "        if memory.after is not NULL:",
        "        if False:",
    ),
    (
        "memory goes back while work may use it",
        "shrink_region",
        "        if answer != OWN_OK:\n",
        "        if answer != OWN_OK and answer != 1:\n",
    ),
    (
        "shrinking looks at all bytes",
        "shrink_region",
        "own_memory_cut(engine, memory.state, end, here(), &conflict)",
        "own_memory_cut(engine, memory.state, 0, here(), &conflict)",
    ),
    (
        "bytes that are gone do not come back",
        "grow_region",
        "        own_memory_extend(engine, memory.state, <size_t>number",
        "        if False:\n            own_memory_extend(engine, memory.state, <size_t>number",
    ),
    (
        "a part closes the whole",
        "Buffer._refuse_part",
        "        if self.part:",
        "        if False:",
    ),
    (
        "what was moved still works",
        "Region.usable",
        "        if self.moved:",
        "        if False:",
    ),
    (
        "memory that dies makes blocking copies wait",
        "_free_stream",
        'return _own_stream(context, "freeing")',
        'return _own_stream(context, "internal")',
    ),
    (
        "reaping tells the host what is complete",
        "_release._release",
        "            _await_quietly(work)\n",
        "            (<Event>work).synchronize()\n",
    ),
    # ---- bytes ----
    (
        "a stage is used again too early",
        "Stage.is_free",
        "if self.last.seq == 0 or own_known(engine, self.last.slot, self.last.seq):",
        "if True:",
    ),
    (
        "a fill of 8 bytes writes the lower half only",
        "_fill._fill_call",
        "fill.target + 4 * i, fill.itemsize, words[i]",
        "fill.target, fill.itemsize, words[0]",
    ),
    (
        "a fill of wide items whose words differ fills the first word only",
        "_fill.columns_of",
        "== 0 else words",
        "== 0 else 1",
    ),
    (
        "a fill of many equal bytes fills as many bytes as there are items",
        "_fill.shape_fill",
        "fill.count, fill.itemsize = region.nbytes, 1",
        "fill.itemsize = 1",
    ),
    (
        "the buffer of a window may be closed",
        "_arguments.add_attributes",
        "borrows = borrows + (_access_to((<AccessWindow>window).region, OWN_SHARED),)",
        "pass",
    ),
    (
        "memory of an array is used where it was not registered",
        "_in_place._register_call",
        "memory.address = address",
        "memory.address = address + (size > 8)",
    ),
    (
        "memory of an array is let go before it is unlocked",
        "_in_place._register",
        "    memory.owner = array\n    _refuse_known(memory, array.ctypes.data)\n"
        "    obtain(memory, memory.nbytes, _register_call)\n",
        "    memory.owner = array\n    _refuse_known(memory, array.ctypes.data)\n"
        "    obtain(memory, memory.nbytes, _register_call)\n    memory.owner = None\n",
    ),
    # ---- arrays and textures ----
    (
        "a copy of an array does not borrow its target",
        "copy_texels_async",
        "borrow(target, &accesses[0], OWN_WRITE)",
        f"borrow(target, &accesses[0], {SHARED})",
    ),
    (
        "a copy of an array does not borrow its source",
        "copy_texels_async",
        "borrow(source, &accesses[1], OWN_READ)",
        f"borrow(source, &accesses[1], {SHARED})",
    ),
    (
        "a part of an array borrows from the beginning",
        "Texels.indexed",
        "part = self.part_over(self.start + found.offset, count, self.dtype)",
        "part = self.part_over(self.start, count, self.dtype)",
    ),
    (
        "a part of an array is copied from the beginning",
        "Texels.indexed",
        "part.origin[<int>axis] += each[0]",
        "part.origin[<int>axis] += 0",
    ),
    (
        "a launch does not borrow what a texture reads",
        "add_handle",
        "operand[0] = Operand(<PyObject *>handle.region, argument, handle.mode, False)",
        "operand[0] = Operand(<PyObject *>handle.region, argument, OWN_SHARED, False)",
    ),
    (
        "a surface borrows as a texture does",
        "Surface.__init__",
        "self.mode, self.object = texels, array, OWN_WRITE, made",
        "self.mode, self.object = texels, array, OWN_READ, made",
    ),
    (
        "a launch does not borrow the object of a texture",
        "add_handle",
        "packed.operand_count += MOST_OPERANDS",
        "packed.operand_count += 1",
    ),
    (
        "a copy out hands the bytes over before they are there",
        "_copy_at_once",
        "stream.context.check(wait_for_event(\n"
        "                stream.context.raw, stage.event.raw, &operation.request.issued))",
        "pass",
    ),
    # ---- several contexts, other libraries ----
    (
        "an event of another context can be recorded",
        "Stream.record",
        "if event.context is not self.context:",
        "if False:",
    ),
    (
        "a loan begins whoever uses the memory",
        "Lent.use",
        "operation.request.returns = loan is NULL",
        "operation.request.returns = True",
    ),
    (
        "memory is given away while parts of it are alive",
        "Memory.give_away",
        "if self.regions > 1:",
        "if False:",
    ),
    (
        "memory of another library may go while it is in use",
        "_release._release",
        "or not _users_are_idle(node.state, node.start, node.stop):",
        "or (not node.kind.borrowed and not _users_are_idle(node.state, node.start, node.stop)):",
    ),
    # ---- loans ----
    (
        "an export does not wait",
        "Lent.use",
        "        if waits:\n            access.policy = OWN_WAIT\n        if recorded",
        "        if False:\n            access.policy = OWN_WAIT\n        if recorded",
    ),
    (
        "work on no stream is the host's",
        "Lent.begin",
        "if self.borrower == ON_NOTHING:\n",
        "if False:\n",
    ),
    (
        "a loan has one holder",
        "Loan.hold",
        "self.region, self.stream, self.borrower, self.readonly, False)\n        return lent\n",
        "self.region, self.stream, self.borrower, self.readonly, False)\n"
        "        lent.holders.users = 1\n        return lent\n",
    ),
    (
        "the last array ends nothing",
        "Lent.let_go",
        "        if own_guard_leave_last(&self.holders) and self.live:\n",
        "        own_guard_leave(&self.holders)\n        if False:\n",
    ),
    (
        "what was queued for an array is no use",
        "Lent.let_go",
        " and self.live:\n            try:\n                self.use(NULL)\n",
        " and self.live:\n            try:\n                pass\n",
    ),
    (
        "an export continues the loan to another stream",
        "_loan._renewed",
        " and lent.stream is stream \\\n",
        " \\\n",
    ),
    (
        "an export continues the loan of another part",
        "_loan._renewed",
        "lent.region is region and ",
        "",
    ),
    (
        "an export continues a loan that has other holders",
        "_loan._renewed",
        f"if Py_REFCNT(lent) == 1 and lent.live and lent.holders.users == 1 \\\n{RENEWS}",
        f"if lent.live \\\n{RENEWS}        lent.holders.users = 1\n",
    ),
    (
        "an export after another one ends what the other one lent, uncounted",
        "_loan._renewed",
        "    lent.let_go()\n    return None\n",
        "    return None\n",
    ),
    (
        "the end of a block ends what arrays hold",
        "Loan.__exit__",
        "        if not own_guard_leave_last(&lent.holders) or not lent.live:\n",
        "        own_guard_leave_last(&lent.holders)\n        if not lent.live:\n",
    ),
    (
        "a block ends what was lent last",
        "Loan.__exit__",
        "        cdef Lent lent = self.entered\n",
        "        cdef Lent lent = self.lent\n",
    ),
    (
        "each look at the interface holds the loan",
        "Loan.__cuda_array_interface__",
        "        if self.shown is lent:",
        "        if False:",
    ),
    (
        "the interface of a dead loan holds it",
        "Loan.__dealloc__",
        "        if self.shown is not None:\n",
        "        if False:\n",
    ),
    (
        "what the borrower had queued is no use when the buffer is taken back",
        "Back.__enter__",
        "            lent.use(NULL)\n        except BaseException:\n",
        "            pass\n        except BaseException:\n",
    ),
    (
        "a buffer that cannot be given to its borrower again is free",
        "Back.__exit__",
        "                _lend_anyway(lent)\n                _wait_for_users",
        "                _wait_for_users",
    ),
    (
        "memory that is taken back can be closed",
        "Back.__enter__",
        "        own_keep_open(engine, &access, here(), lent.stream.order, &self.kept)\n",
        "",
    ),
    (
        "the borrower does not wait when it gets the buffer again",
        "Back.__exit__",
        "            lent.begin(True)\n",
        "            lent.begin(False)\n",
    ),
    (
        "what is taken back can be exported",
        "Loan.hold",
        "        if self.turn != FRESH:\n",
        "        if False:\n",
    ),
    (
        "reading borrowers are in the way of reads",
        "Lent.use",
        "OWN_READ if self.readonly else OWN_WRITE)\n        if loan is not NULL:",
        "OWN_WRITE)\n        if loan is not NULL:",
    ),
    (
        "consumers are not told that they may only read",
        "_flags",
        "(DL_READ_ONLY if lent.readonly else 0)",
        "0",
    ),
    (
        "a loan can be taken on any stream",
        "Loan._check_consumer",
        "(1 if stream is None else stream) != protocol_handle(self.stream):\n",
        "False:\n",
    ),
    (
        "an array without a name for its items begins a loan",
        "check_array",
        "    dlpack_dtype(dtype)\n    if shape",
        "    if shape",
    ),
    (
        "loans that were given back go on",
        "attend",
        "        if _end_loans is not NULL:\n",
        "        if False:\n",
    ),
    # ---- imports ----
    (
        "an import by DLPack is no use",
        "_buffer_of",
        "    if stream is not None and count:\n",
        "    if False:\n",
    ),
    (
        "an import by the array interface is no use",
        "_import_interface",
        "    if count and noted:\n",
        "    if False:\n",
    ),
    (
        "the stream that the array interface names is not waited for",
        "_wait_for_named",
        "    if named is not stream:\n",
        "    if False:\n",
    ),
    (
        "an array that names no stream is ordered after nothing",
        "_wait_for_legacy",
        "    if legacy is stream:\n",
        "    if True:\n",
    ),
    (
        "an import that the program has ordered is a use",
        "from_cuda_array",
        "    return _import_interface(array, stream, ordered, not ordered)\n",
        "    return _import_interface(array, stream, ordered, True)\n",
    ),
    (
        "an array that a kernel reads is written",
        "with_regions",
        "                                   (<Access>value).mode)\n",
        "                                   OWN_WRITE)\n",
    ),
    (
        "buffers over one memory have records of their own",
        "adopt_memory",
        "_home_of(context, address, nbytes) if kind.borrowed and nbytes else None",
        "None",
    ),
    (
        "each import of an allocation has records of its own",
        "_known_home",
        "    if first in homes:\n",
        "    if False:\n",
    ),
    (
        "an address in a buffer of ours has records of its own",
        "_known_home",
        "    live = live_memory_around(address, nbytes)\n",
        "    live = None\n",
    ),
    (
        "the uses of an import are noted at the first bytes",
        "fill_in",
        "    region.start = memory.start\n",
        "    region.start = 0\n",
    ),
    (
        "one of several buffers closes under work",
        "_close_in_home",
        "    access.start, access.stop = memory.start, memory.start + memory.nbytes\n",
        "    access.start, access.stop = memory.start, memory.start\n",
    ),
    (
        "an import does not follow what was given back",
        "follow_returns",
        "or stream.capture is not NULL:\n        return 0\n    for",
        "or True:\n        return 0\n    for",
    ),
    (
        "what was given back is forgotten",
        "return_to_owner",
        "        _keep_home(home)\n    home.returns += 1\n",
        "    home.returns += 1\n",
    ),
    (
        "what was given back is forgotten when the driver has completed it",
        "_may_be_unfinished",
        "    if _kept_homes < MANY_HOMES or home.members:\n",
        "    if home.members:\n",
    ),
    (
        "giving back does not wait",
        "note_write",
        "    access.policy = policy\n",
        "    access.policy = 2\n",  # OWN_UNCHECKED
    ),
    (
        "giving back does not wait for shared uses",
        "note_write",
        "    access.effect = OWN_LEAVES if policy == OWN_WAIT else OWN_STAYS\n",
        "    access.effect = OWN_STAYS\n",
    ),
    (
        "what is lent itself is given back",
        "_refuse_lent",
        '    if region.memory.loans:\n        raise BufferExportedError(f"cannot give back',
        '    if False:\n        raise BufferExportedError(f"cannot give back',
    ),
    (
        "what was given back can be used",
        "Buffer.give_back",
        "        return_to_owner(memory, closed)\n",
        "        stay_home(memory)\n        own_memory_end(closed)\n",
    ),
    (
        "memory is given back under its parts",
        "Buffer.give_back",
        "        if self.memory.home is None or self.memory.regions > 1:\n",
        "        if self.memory.home is None:\n",
    ),
    (
        "an overlap of imports is copied",
        "is_usual",
        "        and target.memory.state is not source.memory.state \\\n",
        "        and target.memory is not source.memory \\\n",
    ),
    # ---- kernels ----
    (
        "what is shared is read",
        "shared",
        "return _access(buffer, OWN_SHARED)",
        "return _access(buffer, OWN_READ)",
    ),
    (
        "what a launch writes is not compared with what it reads",
        "_refuse_read_too",
        "    if type(value) is not Access or (<Access>value).mode != OWN_READ:\n",
        "    if True:\n",
    ),
    (
        "what a kernel reaches by pointers is not borrowed",
        "pack_borrows",
        "    for i, each in enumerate(<tuple>packed.borrows):\n        if add_operand(",
        "    for i, each in enumerate(()):\n        if add_operand(",
    ),
    (
        "variables stay open when their module closes",
        "Module.close",
        "close_module(self.code, list(self.variables.values()))",
        "close_module(self.code, [])",
    ),
    # ---- captures ----
    (
        "waits inside a capture order nothing",
        "Capture.wait",
        "        if not own_wait(&self.plan.engine, self.orders[slot], &point.snapshot):\n",
        "        if False:\n",
    ),
    (
        "a token of a capture stands for all that its stream has by then",
        "Capture.event_after",
        "        own_snapshot_copy(&self.plan.engine, &node.snapshot, &point.snapshot)\n",
        "        own_snapshot_take(\n"
        "            &self.plan.engine, self.orders[<size_t>self.slots[node.stream]],\n"
        "            &point.snapshot)\n",
    ),
    (
        "a capture ends although a stream is not joined",
        "own_is_joined",
        "own_clock_at(other->clock, stream->slot) >= stream->seq;",
        "1;",
    ),
    (
        "what a capture refuses is held",
        "Plan.forget",
        "        self.holdings.let_go(held)\n",
        "",
    ),
    (
        "what a graph uses can be closed",
        "own_check_holds_",
        "        if (hold->start < stop && start < hold->stop) {\n",
        "        if (0) {\n",
    ),
    (
        "empty parts are held",
        "Holdings.hold",
        "        if access.start >= access.stop:\n            return 1\n",
        "",
    ),
    (
        "an event of a capture stands for it for ever",
        "_record_or_wait_unusual",
        "    if reason == 0 and event.in_capture:\n        event.leave_capture()\n",
        "",
    ),
    (
        "a captured stream waits for work outside",
        "_event_of_work",
        "        if stream.capture is not NULL:\n            stream.refuse_outside(",
        "        if False:\n            stream.refuse_outside(",
    ),
    (
        "a captured stream of another library is closed",
        "Stream.close",
        "        if outcome == GONE and self.capture is not NULL:\n"
        "            self.refuse_captured()\n",
        "",
    ),
    (
        "blocking copies are captured",
        "operations.h",
        'OPERATION(COPY_FROM, "copy_from", NO_NODE)',
        'OPERATION(COPY_FROM, "copy_from", COPY_NODE)',
    ),
    # ---- launches of graphs ----
    (
        "launches that are repeated are not recorded",
        "own_lock",
        "    if (__builtin_expect(engine->runs != NULL, 0)) {\n",
        "    if (0) {\n",
    ),
    (
        "a repeated launch that fails takes back the launch before it, too",
        "own_catch_up_",
        "        *epoch = own_run_by_(&runs->before, access);\n",
        "",
    ),
    (
        "launches on two streams count as repeated",
        "own_begin",
        "engine->runs == runs && runs->stream == request->stream && apart",
        "engine->runs == runs && apart",
    ),
    (
        "a launch is not ordered after the last one",
        "own_settle",
        "    if (runs) {\n",
        "    if (0) {\n",
    ),
    (
        "a graph writes nothing",
        "own_union_of_",
        "        access->mode = OWN_WRITE;\n",
        "        access->mode = OWN_READ;\n",
    ),
    (
        "a graph does not use its last bytes",
        "own_join_parts_",
        "    for (uint32_t k = 0; k < count; k++) {\n        own_access *last",
        "    for (uint32_t k = 0; k + 1 < count; k++) {\n        own_access *last",
    ),
    (
        "neighbours that are used alike are joined into the first of them",
        "own_join_parts_",
        "            last->stop = access.stop;\n",
        "            ;\n",
    ),
    (
        "an operation writes before it reads",
        "uses_of",
        "        _add_accesses(uses, node, False)\n        _add_accesses(uses, node, True)\n",
        "        _add_accesses(uses, node, True)\n        _add_accesses(uses, node, False)\n",
    ),
    (
        "what a graph writes first is needed",
        "own_join_accesses_",
        "own_add_use_(&parts[k], access, policy, !parts[k].written);",
        "own_add_use_(&parts[k], access, policy, 1);",
    ),
    (
        "launches are not ordered after the last one on another stream",
        "own_follows_",
        "before->seq == 0 || (before->slot == stream->slot && before->seq <= stream->seq)",
        "1",
    ),
    (
        "executables hold nothing",
        "Graph.fill_in",
        "        made.uses, made.holdings = uses, self.plan.holdings.copied(self.label)\n",
        "        made.uses = uses\n",
    ),
    (
        "executables hold what is added to their graph later",
        "Graph.fill_in",
        "self.plan.holdings.copied(self.label)\n",
        "self.plan.holdings\n",
    ),
    (
        "launches ignore the policies of buffers",
        "_policy_of",
        "        None if region is None else region.policy, (",
        "        None, (",
    ),
    (
        "a launch has the policy of any of its buffers",
        "own_add_use_",
        "    if (policy < 0 || access->policy == policy) {\n",
        "    if (1) {\n",
    ),
    # ---- changes of executables ----
    (
        "a change conflicts with nothing",
        "_refuse_conflicts",
        "other.outermost) in ordered:\n",
        "other.outermost) in ordered or other is not None:\n",
    ),
    (
        "what a changed node uses is not held",
        "_following",
        "    holdings = _hold(every, executable, change)\n",
        "    holdings = executable.holdings\n",
    ),
    (
        "launches use what a node has used before its change",
        "_following",
        "    nodes = every = replaced(uses.nodes, old, change.node)\n",
        "    nodes = every = uses.nodes\n",
    ),
    (
        "a launch has the policies of the buffers before a change",
        "_put_in_place",
        "    uses.regions = uses.contexts = None",
        "    pass",
    ),
    (
        "launches use what disabled nodes use",
        "_graph_changes.pyx",
        "uses.names.graph, executable.context, disabled)\n                following",
        "uses.names.graph, executable.context, {})\n                following",
    ),
    (
        "an executable keeps what it used before a change",
        "_take_over",
        "    executable.holdings, following.holdings = following.holdings, executable.holdings\n",
        "",
    ),
    (
        "an update enables all nodes",
        "_update_by",
        "        uses = _with_disabled(executable, uses, changes)\n",
        "        _with_disabled(executable, uses, changes)\n",
    ),
    (
        "an update lets disabled fills run",
        "_update_by",
        "        _disable_again(executable, changes)\n",
        "        pass\n",
    ),
    (
        "a changed fill runs although it is disabled",
        "_graph_changes._set",
        "if old.kind == FILL_NODE and index in executable.uses.disabled:",
        "if False:",
    ),
    (
        "a fill takes memory of another context",
        "_unlike",
        "not known or home_in_nodes(present, context) is home_in_nodes(region, context)\n",
        "True\n",
    ),
    # ---- nodes that are added ----
    (
        "a node is not ordered after others",
        "_add",
        "            if other.plans is not None or other.snapshot.slot != order.slot:\n",
        "            if False:\n",
    ),
    (
        "a node is ordered after all that its branch has",
        "_node._order_after",
        "            if plan.tails.get(other.snapshot.slot) == other.index:\n",
        "            if plan.tails.get(other.snapshot.slot) is not None:\n",
    ),
    (
        "a capture is not ordered after nodes",
        "Capture.begin_after",
        "            self.plan.wait(self.orders[0], node)\n",
        "",
    ),
    # ---- nodes with bodies ----
    (
        "what is in a body is not checked outside",
        "Plan.checks_of",
        "            order, plan = plan.place, <Plan>plan.outer\n",
        "            return checks\n",
    ),
    (
        "what a body writes needs no contents",
        "_add_access",
        "    if in_body and added.effect == OWN_STAYS and added.mode != OWN_READ:\n",
        "    if False:\n",
    ),
    (
        "a body can change when something runs after its node",
        "Plan.follow",
        "            if node.plans is not None and not node.followed:\n",
        "            if node.plans is not None and node.followed:\n",
    ),
    (
        "a body can change when a captured operation runs after its node",
        "Plan.list_all",
        "        for node in found[former:]:\n",
        "        for node in ():\n",
    ),
    (
        "launches do not use what is in bodies",
        "_flatten",
        "            _flatten(body.finished(), ",
        "            _flatten(body.finished()[:0], ",
    ),
    # ---- threads and signals ----
    (
        "a thread's default stream can be used by others",
        "Stream.usable",
        "if self.thread and self.thread != this_thread():",
        "if False:",
    ),
    (
        "the default stream of a thread outlives it",
        "_stream.pyx",
        "                own_stream_close(engine, stream.order)\n\n\n# One stream",
        "                pass\n\n\n# One stream",
    ),
    (
        "who awaits a token learns nothing",
        "Awaited.settled",
        "return self.event.observe(&self.snapshot, 0)",
        "return self._is_complete()",
    ),
    (
        "who awaits a stream learns nothing of others",
        "_end_of_work",
        "own_snapshot_take(engine, stream.order, &snapshot)\n",
        "own_snapshot_take(engine, stream.order, &snapshot)\n    snapshot.clock = NULL\n",
    ),
    (
        "a wait that runs out of time counts",
        "Event.complete",
        "                return UNFINISHED\n",
        "                own_join_host(engine, snapshot)\n                return UNFINISHED\n",
    ),
    (
        "another library's stream is not looked at",
        "known_stream",
        'return stream_from_object(stream, "stream")',
        "return None",
    ),
    (
        "an interrupted wait counts",
        "Event.wait_until",
        "            return self.observe(&snapshot, deadline)\n",
        "            own_join_host(engine, &snapshot)\n"
        "            return self.observe(&snapshot, deadline)\n",
    ),
    (
        "the engine does not look whether a buffer over shared memory is gone",
        "own_check_limits_",
        "if (memory->closed || (access->gone && *access->gone)) {",
        "if (memory->closed) {",
    ),
    (
        "the last user of a loan leaves it open for others",
        "own_guard_leave_last",
        "users == 1 ? OWN_SHUT : users - 1",
        "users - 1",
    ),
    (
        "a module closes although a call uses it",
        "Module.close",
        "        if not own_guard_shut(&self.guard, 0):\n",
        "        if False:\n",
    ),
    # ---- large copies, other items, failures ----
    (
        "a copy in chunks teaches nothing",
        "_staging._run",
        "    own_join_host(engine, &transfer.operation.request.issued)\n",
        "    pass\n",
    ),
    (
        "items at any address are filled",
        "_fill._check_aligned",
        "if address % min(region.itemsize, 4):",
        "if False:",
    ),
    (
        "a move by `to` writes nothing",
        "_managed._queue",
        "ranges.accesses[i].mode = OWN_WRITE if writes else OWN_SHARED",
        "ranges.accesses[i].mode = OWN_WRITE if discards else OWN_SHARED",
    ),
    (
        "host-readable memory is in the order of no stream",
        "_takes_order",
        "return stream.order.order == OWN_NON_BLOCKING and not stream.order.domain.host_excluded",
        "return False",
    ),
    (
        "the host gets a block that work still uses",
        "use_on_host",
        "    if memory.address == 0:\n        other = allocate_memory(",
        "    if memory.nbytes == 0:\n        other = allocate_memory(",
    ),
    (
        "memory of a pool of the driver is not waited for",
        "allocate_from",
        "            memory.stream._finish()\n",
        "            pass\n",
    ),
    (
        "a prefetch writes",
        "_managed._queue",
        "effect = OWN_DISCARDS if discards else OWN_MOVES",
        "effect = OWN_DISCARDS if discards else 0",
    ),
    (
        "a discard is a write and no more",
        "_managed._queue",
        "effect = OWN_DISCARDS if discards else OWN_MOVES",
        "effect = OWN_MOVES",
    ),
    (
        "parts are attached",
        "attach_region",
        "if region.start or memory.start or region.nbytes != memory.state.nbytes",
        "if False",
    ),
    (
        "what is discarded is exported",
        "HostBuffer.open_view",
        "            access.effect = OWN_USES\n",
        "            pass\n",
    ),
    (
        "what is discarded is lent",
        "Lent.use",
        "            access.effect = OWN_USES\n",
        "            pass\n",
    ),
    # ---- loans in captures ----
    (
        "what a borrower does last in a capture does not count",
        "Lent.use",
        "reason = (<Capture>self.capture).count_loan(self.stream, &operation.request)",
        "reason = 0",
    ),
    (
        "a loan ends with its capture",
        "Lent.outlive_capture",
        "if self.holders.users > 0 and not self.stream.context.lost:",
        "if False:",
    ),
    (
        "a loan that goes on after its capture waits for nobody",
        "Lent.follow_users",
        "if self.live and self.region.nbytes:",
        "if False:",
    ),
    (
        "what a borrower does last before its capture ends does not count",
        "Capture.__exit__",
        "            self.count_loans()\n",
        "",
    ),
    (
        "a loan that was given back goes on after its capture",
        "_end_given_back",
        "return 0 if cudadrv_table.forked else attend()",
        "return 0",
    ),
    (
        "what is discarded is lent in a graph",
        "Lent.begin_in_capture",
        "        borrow(self.region, &access, OWN_READ if self.readonly else OWN_WRITE)\n"
        "        access.effect = OWN_USES\n",
        "        borrow(self.region, &access, OWN_READ if self.readonly else OWN_WRITE)\n",
    ),
    (
        "a loan from before a capture is one in it",
        "Loan.hold",
        "and self.lent.capture != self.stream.capture:",
        "and False:",
    ),
    # ---- several devices ----
    (
        "a copy between contexts does not borrow its source",
        "_copy_across",
        "borrow(source, &uses[1], OWN_READ)",
        f"borrow(source, &uses[1], {SHARED})",
    ),
    (
        "a copy between contexts does not borrow its target",
        "_copy_across",
        "borrow(target, &uses[0], OWN_WRITE)",
        f"borrow(target, &uses[0], {SHARED})",
    ),
    (
        "a copy between contexts runs on a stream of any context",
        "_copy._checked",
        "    if not are_apart(target, source) or (",
        "    if not are_apart(target, source) and (",
    ),
    (
        "a copy between contexts uses current streams of one of them only",
        "innermost_stream",
        "if found is context or found is other:",
        "if found is context:",
    ),
    (
        "memory of another device is used without access",
        "refuse_device",
        "    if not reaches(stream.context, region):\n",
        "    if False:\n",
    ),
    (
        "a captured operation uses memory of another device",
        "refuse_device",
        "    if stream.capture is not NULL:\n",
        "    if False:\n",
    ),
    (
        "access ends under unfinished work",
        "_refuse_unfinished",
        "        if works:\n",
        "        if False:\n",
    ),
    (
        "the access to a default pool stays",
        "disable_access",
        "        if last:\n",
        "        if False:\n",
    ),
    (
        "the access to a default pool ends with that of any context",
        "_is_last",
        "and not (each is context and other is peer):\n                return False",
        "and not (each is context and other is peer):\n                pass",
    ),
    # ---- graphs of several devices ----
    (
        "a captured copy between contexts needs no access",
        "_capture_across",
        "    need = access_for_copy(target, source, stream.context, capture.graph)\n",
        "    need = None\n",
    ),
    (
        "an added copy between contexts needs no access",
        "_copy_node.add_copy",
        "need = access_for_copy(target, source, context, graph.label)",
        "need = None",
    ),
    (
        "the access of a captured copy ends before the graph",
        "_capture_across",
        "    holdings.need(need)\n",
        "",
    ),
    (
        "the access of an added copy ends before the graph",
        "_copy_node.add_copy",
        "        graph.plan.holdings.need(need)\n",
        "        pass\n",
    ),
    (
        "the access of a copy ends before the executable",
        "Holdings.copied",
        "        made.needs = self.needs.copy()\n",
        "",
    ),
    (
        "the access of a changed copy ends before the executable",
        "_graph_changes._hold",
        "    holdings.need(change.need)\n",
        "",
    ),
    (
        "the access of a copy ends with a change of a node",
        "_graph_changes._hold",
        "    holdings.needs = executable.holdings.needs.copy()\n",
        "",
    ),
    (
        "the access of a child graph ends before the graph",
        "Graph.add_graph",
        "            self.plan.holdings.need(need)\n",
        "            pass\n",
    ),
    (
        "access ends although a graph needs it",
        "_refuse_needed",
        "        if need is not None and need.pair == pair and need.resets == resets:\n",
        "        if False:\n",
    ),
    (
        "a copy on a stream of another context keeps its access",
        "_capture_across",
        "    if need is not None and stream.context is not home:\n",
        "    if False:\n",
    ),
    (
        "a body copies between contexts",
        "_check_body",
        "is_of_other_context(region, context, is_between(node))",
        "is_of_other_context(region, context, False)",
    ),
    (
        "stream-ordered memory of two devices is alike",
        "home_in_nodes",
        "(region.portable or memory.context.device == context.device)",
        "True",
    ),
    (
        "a copy between contexts is a node of its destination's only",
        "_copy_node._context_of",
        "    if are_apart(target, source) and source.memory.context is graph.context:\n",
        "    if False:\n",
    ),
    (
        "a copy that another context has captured is changed",
        "is_changeable_between",
        "(node.stream is None or node.stream.context is context)",
        "True",
    ),
    (
        "a graph with nodes of a lost context is launched",
        "_launch_specially",
        "        (<Context>context).usable()\n",
        "        pass\n",
    ),
    (
        "a failed launch loses the graph's own context",
        "_find_lost_among",
        "        find_lost(<Context>context)\n",
        "        pass\n",
    ),
    # ---- blocks and groups of streams, times ----
    (
        "the end of a scope does not wait",
        "Scope.__exit__",
        "        try:\n            self.stream._finish()\n",
        "        try:\n            pass\n",
    ),
    (
        "a scope that is left by an exception does not wait",
        "Scope.__exit__",
        "        try:\n            self.stream._finish()\n",
        "        try:\n            if exception is None:\n                self.stream._finish()\n",
    ),
    (
        "the end of an awaited scope does not wait",
        "Scope.__aexit__",
        "            await Completion(self.stream)\n",
        "            pass\n",
    ),
    (
        "a scope that an exception leaves goes on",
        "_stream.pyx",
        '            exception.add_note(f"cudadrv: the work of {self.stream!r} may be unfinished:'
        ' {error}")\n        finally:\n            self.entered -= 1\n'
        "            _blocks.leave(self.stream)\n        if exception is None:\n"
        "            raise_failures()\n\n    async def __aenter__",
        '            exception.add_note(f"cudadrv: the work of {self.stream!r} may be unfinished:'
        ' {error}")\n        finally:\n            self.entered -= 1\n'
        "            exception or _blocks.leave(self.stream)\n        if exception is None:\n"
        "            raise_failures()\n\n    async def __aenter__",
    ),
    (
        "the first stream of a group has all turns",
        "StreamGroup.next",
        "        self._turn += 1\n",
        "",
    ),
    (
        "a group waits with all streams but the last",
        "StreamGroup.wait",
        "        for stream in self._streams:\n            if stream is not work:\n",
        "        for stream in self._streams[:-1]:\n            if stream is not work:\n",
    ),
    (
        "a group waits for all streams but the last",
        "StreamGroup._finish",
        "            stream._finish(timeout=timeout)\n",
        "            stream is self._streams[-1] or stream._finish(timeout=timeout)\n",
    ),
    (
        "the scope of a group does not wait after an exception",
        "StreamGroup.scope",
        "            try:\n                self._finish(None)\n",
        "            try:\n                pass\n",
    ),
    (
        "a group that could not close counts as closed",
        "StreamGroup.close",
        "        for stream in self._streams:\n            stream.close()\n"
        "        self._streams = []\n",
        "        while self._streams:\n            self._streams.pop(0).close()\n",
    ),
    (
        "times are the wrong way round",
        "Event.elapsed_ms",
        "&milliseconds, start.raw, self.raw)",
        "&milliseconds, self.raw, start.raw)",
    ),
    (
        "events of two contexts have a time between them",
        "Event.elapsed_ms",
        "        if start.context is not self.context:\n            raise ValueError("
        '"elapsed_ms needs',
        '        if False:\n            raise ValueError("elapsed_ms needs',
    ),
    # ---- signals ----
    (
        "a set borrows nothing",
        "borrow_set",
        "borrow(signal.word, access, OWN_WRITE)",
        f"borrow(signal.word, access, {SHARED})",
    ),
    (
        "the order of sets is unchecked where that is the policy",
        "borrow_set",
        "    if access.policy == OWN_UNCHECKED:\n        access.policy = OWN_STRICT\n",
        "",
    ),
    (
        "a wait is for the last set",
        "Signal.point_at",
        "range(_first_at(self.points, number), len(self.points))",
        "range(len(self.points) - 1, len(self.points))",
    ),
    (
        "a wait is for a set to less",
        "_first_at",
        ".number < number:",
        ".number + 1 < number:",
    ),
    (
        "a wait is for a set to more",
        "_first_at",
        ".number < number:",
        ".number <= number:",
    ),
    (
        "a number may stay the same",
        "set_on_stream",
        "if number <= (<Signal>signal).last():",
        "if number < (<Signal>signal).last():",
    ),
    (
        "the host may set the same number again",
        "Signal.set",
        "is_larger = number > self.last()",
        "is_larger = number >= self.last()",
    ),
    (
        "the host sets while streams do",
        "Signal.set",
        "    if answer != OWN_OK:\n",
        "    if False:\n",
    ),
    (
        "the event of a set stands for the work before it",
        "_set_call",
        "    status = cuStreamWriteValue64(stream, setting.address, setting.number, 0)\n",
        "    status = cuEventRecord(setting.event, stream)\n"
        "    status = cuStreamWriteValue64(stream, setting.address, setting.number, 0)\n"
        "    queued[0] = True\n    setting.queued[0] = setting.number\n    return status\n",
    ),
    (
        "a set that failed is taken for queued",
        "set_on_stream",
        "        if not issued:\n            (<Signal>signal).drop(point)\n",
        "        if not issued:\n            (<Signal>signal).queued = number\n",
    ),
    (
        "a number that is queued counts as reached",
        "Point.is_known",
        "return self.event.state.recorded and not",
        "return self.event.state.recorded or not",
    ),
    (
        "a set in a lost context counts as reached",
        "Point.is_known",
        "not self.event.context.lost and own_known(",
        "own_known(",
    ),
    (
        "a stream waits behind an open wait",
        "Stream.wait_for",
        "        if unlikely(some_are_open):\n",
        "        if False:\n",
    ),
    (
        "a policy waits behind an open wait",
        "_can_be_waited_for",
        "    if some_are_open:\n        _refuse_open(stream)\n",
        "",
    ),
    (
        "an open wait ends when the number is in memory",
        "Unset.is_open",
        "return self.number > self.signal.seen and",
        "return self.number > self.signal.look() and",
    ),
    (
        "a wait for a signal orders nothing",
        "wait_on_stream",
        "    stream.wait_for(point.event)\n",
        "",
    ),
    (
        "a closed signal can be set",
        "set_on_stream",
        "    (<Signal>signal).usable()\n",
        "",
    ),
    # ---- signals in graphs ----
    (
        "a launch does not wait for the sets that its graph waits for",
        "Turn.begin",
        "            stream.wait_for(point.event)\n",
        "            pass\n",
    ),
    (
        "a launch that is refused has made its stream wait",
        "_launch_with_signals",
        "    if turn.waited is not NULL:\n",
        "    if False:\n",
    ),
    (
        "a launch may set the same number again",
        "Turn.prepare_sets",
        "if number_of(node) <= last.get(",
        "if number_of(node) < last.get(",
    ),
    (
        "the second set of a launch may be less than the first one",
        "Turn.prepare_sets",
        "            last[signal] = added.number\n",
        "",
    ),
    (
        "nobody can wait for the sets of a launch",
        "Turn.end",
        "            own_record_as(engine, &issued, &self.event.state)\n",
        "",
    ),
    (
        "the sets of a launch that has failed stay",
        "Turn.end",
        "                    signal.drop(point)\n",
        "                    pass\n",
    ),
    (
        "the open wait of a launch is not noted",
        "Turn.begin",
        "            open_wait(wait)\n",
        "            pass\n",
    ),
    (
        "a launch on another stream waits behind an open wait",
        "_launch_specially",
        "    if some_are_open:\n",
        "    if False:\n",
    ),
    (
        "a launch does not notice that another thread has set more",
        "are_larger",
        "if turn.sets[i].number <= turn.sets[i].queued[0]:",
        "if False:",
    ),
    (
        "the order of a launch's sets is unchecked where that is the policy",
        "_policy_of",
        "    return OWN_STRICT if policy == OWN_UNCHECKED and type(region) is Word else policy\n",
        "    return policy\n",
    ),
    (
        "a wait for a set of the same graph orders nothing",
        "_order_after_node",
        "    return stream.wait_for(capture.event_after(node))\n",
        "    return 0\n",
    ),
    (
        "a stream of a capture counts as ordered after all sets of the graph",
        "_is_after",
        "    return found\n",
        "    return True\n",
    ),
    (
        "a graph may set less than before",
        "refuse_smaller_in",
        "    if node is not None:\n",
        "    if False:\n",
    ),
    (
        "the driver does not get the new number of a node",
        "change_number",
        "    _describe(&change.item, old.kind, signal, number)\n",
        "    _describe(&change.item, old.kind, signal, number_of(old))\n",
    ),
    (
        "an update puts a wait in the place of a set",
        "_unpaired",
        "    if old.kind != new.kind and (old.signal",
        "    if False and (old.signal",
    ),
    # ---- arrays for a block ----
    (
        "results come home although an exception ended the block",
        "offload.__exit__",
        "            if exception is None:\n                self._bring_home(captures)\n",
        "            self._bring_home(captures)\n",
    ),
    (
        "results are copied on a stream of the library",
        "offload._bring_home",
        "blocking_stream(self.stream, capture.buffer)",
        "blocking_stream(None, capture.buffer)",
    ),
    (
        "the end of a block without results does not wait",
        "offload._bring_home",
        "        if self.stream is not None:\n            self.stream._finish()\n        elif last",
        "        if self.stream is not None and last is not None:\n"
        "            self.stream._finish()\n        elif last",
    ),
    (
        "the end of a block leaves its buffers open",
        "offload.__exit__",
        "        if exception is None:\n            _close_buffers(captures)\n",
        "",
    ),
    # ---- buffers that grow ----
    (
        "loans grow with their buffer",
        "new_loan",
        "    region = of_present_size(region)    # the buffer may grow during the loan\n",
        "",
    ),
    (
        "exports grow with their buffer",
        "export_region",
        "    region = of_present_size(region)\n    check_array(region.dtype, region.sizes)\n"
        "    device",
        "    check_array(region.dtype, region.sizes)\n    device",
    ),
    (
        "captured fills grow with their buffer",
        "fill_region",
        "        region = of_present_size(region)\n",
        "        pass\n",
    ),
    (
        "captured launches grow with their buffers",
        "_launch_captured",
        "    uses = of_present_sizes(uses)\n",
        "    pass\n",
    ),
    (
        "added nodes grow with their buffers",
        "node_region",
        "    return of_present_size(<Region>given)\n",
        "    return given\n",
    ),
    (
        "changed nodes grow with their buffers",
        "changed_region",
        "    region = of_present_size(region)\n",
        "",
    ),
    # ---- captures of other libraries ----
    (
        "a part in an ended capture of another library goes on",
        "_look_at_theirs",
        "if status == CU_STREAM_CAPTURE_STATUS_NONE or theirs != capture.theirs:",
        "if False:",
    ),
    (
        "what joins another library's capture need not be joined again",
        "Capture.leave",
        "            if unjoined is not None:\n",
        "            if False:\n",
    ),
    (
        "a part in another library's graph is closed, and keeps its memory",
        "JoinedCapture.close",
        "self.plan.end() ",
        "pass",
    ),
    (
        "a part in another library's graph is closed in its block",
        "JoinedCapture.close",
        "        if self.capture is not None:\n            raise CaptureError(f",
        "        if False:\n            raise CaptureError(f",
    ),
    (
        "what the driver refused stays borrowed",
        "after_failure",
        "        own_undo(engine, &operation.request)\n",
        "        own_settle(engine, &operation.request, NULL, False)\n",
    ),
    # ---- tickets ----
    (
        "open does not wait for the owner",
        "open",
        "    found.wait_for(opened.event)\n",
        "",
    ),
    (
        "open is no write",
        "open",
        "    note_write(region, found, OPENING, OWN_UNCHECKED)\n",
        "",
    ),
    (
        "an opened event stands for what it stood for before",
        "_opened_event",
        "    own_record_as(engine, &nothing, &event.state)\n",
        "",
    ),
    (
        "accept does not wait for the other process",
        "_sharing._order_after",
        "    stream.wait_for(_for_stream(shared.event, stream))\n",
        "",
    ),
    (
        "accept waits for an event of several processes of another device",
        "_for_stream",
        "    if event.context.device == stream.context.device:\n        return event\n",
        "    return event\n",
    ),
    (
        "accept knows nothing of the work before share",
        "_share",
        "    own_record_as(engine, &operation.request.issued, &shared.event.state)\n",
        "    own_record_as(engine, &shared.event.state.snapshot, &shared.event.state)\n",
    ),
    (
        "what is shared can be used on the stream of share",
        "_share",
        "shared.loan.borrower = (<Stream>lender).order",
        "shared.loan.borrower = stream.order",
    ),
    (
        "what is lent on the stream of share is shared",
        "_share",
        "        access.effect = OWN_SHARES\n",
        "",
    ),
    (
        "a part is shared as its whole",
        "_share",
        "        access.effect = OWN_SHARES\n",
        "        access.effect = OWN_SHARES\n"
        "        access.start, access.stop = 0, region.memory.nbytes\n",
    ),
    (
        "a part is opened where its whole begins",
        "_share",
        "pointer_of(region) - base, region.nbytes, total)",
        "0, region.nbytes, total)",
    ),
    (
        "a ticket is opened twice",
        "_claim",
        "    if claimed:\n        board.store(",
        "    if claimed or board.load(slot) & 0xff == OPEN:\n        board.store(",
    ),
    (
        "a ticket is opened after accept",
        "_check_returned",
        "        and _board.swap(shared.slot * SLOT_BYTES, OFFERED, TAKEN_BACK)\n",
        "        and False\n",
    ),
    (
        "what the other process has is taken back",
        "_check_returned",
        "    if state == OPEN and not _borrower_has_ended(shared):\n",
        "    if False:\n",
    ),
    (
        "what a killed process had cannot be taken back",
        "_check_returned",
        "    if state == OPEN and not _borrower_has_ended(shared):\n",
        "    if state == OPEN:\n",
    ),
    (
        "accept waits for a killed process",
        "_sharing._order_after",
        "    cdef bint killed = state in (OPEN, RETURNED) and _borrower_has_ended(shared)\n",
        "    cdef bint killed = False\n",
    ),
    (
        "give_back does not wait for work on other streams",
        "return_opened",
        "    note_write(region, stream, GIVE_BACK, OWN_WAIT)\n",
        "",
    ),
    (
        "give_back does not tell the owner of its work",
        "return_opened",
        "    stream.record_event(opened.event)\n",
        "",
    ),
    (
        "what was given back to another process can be used",
        "return_opened",
        "    leave_home(memory, closed)\n",
        "    stay_home(memory)\n    own_memory_end(closed)\n",
    ),
]


def prepare(target):
    copy_of(target, [*NEEDED, "build/cython", *map(relative, (ROOT / "build").glob("temp.*"))])
    build(target)


def relative(path):
    return str(path.relative_to(ROOT))


def judge(tree):
    """Run the random programs until one of them finds an error. If none does, run the tests."""
    for options in PROGRAMS:
        found = first_found(tree, options)
        if found:
            return {"programs": found}
    return {"programs": None, "tests": first_failure(tree)}


def first_failure(tree):
    """Return the first test that fails, or None."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-rfE", "--timeout=60"]
    command += ["--cuda-driver=software", "--cuda-schedule=random", "-p", "no:benchmark"]
    ran = subprocess.run(
        [*command, *TESTS],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree)},
        capture_output=True,
        text=True,
        errors="replace",
    )
    if ran.returncode == 0:
        return None
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", ran.stdout, re.MULTILINE)
    return failed[1] if failed else f"exit status {ran.returncode}"


def first_found(tree, options):
    command = [sys.executable, "-W", "ignore", "tests/ownership/library.py", "--stop"]
    try:
        ran = subprocess.run(
            [*command, *options],
            cwd=tree,
            env={**os.environ, "PYTHONPATH": str(tree), "CUDADRV_DRIVER": "software"},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=600,
        )
    except subprocess.TimeoutExpired:
        return "never end"
    if ran.returncode == 0:
        return None
    first = ran.stdout.partition("\n")[0] if ran.returncode == 1 and ran.stdout else ""
    return first or (ran.stderr.splitlines() or [f"status {ran.returncode}"])[-1]


if __name__ == "__main__":
    sys.exit(main(MUTATIONS, prepare, judge, sys.argv[1:]))
