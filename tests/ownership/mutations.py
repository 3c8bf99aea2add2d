"""Breaks the engine on purpose, one mutation at a time, and prints which tests notice.

    python tests/ownership/mutations.py [name ...]

Each of MUTATIONS is (name, function, old text, new text). The old text occurs once in the
function. For text outside of functions, the name of the file is given instead.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sources import ROOT, changed

BUILD = ["setup.py", "cuda_header.py", "pyproject.toml", "tools/links.py", "README.md"]
NEEDED = [*BUILD, "include", "pyx/order/_engine.pyx", "pyx/library.c"]
NEEDED += ["cudadrv/_engine.pxd", "cudadrv/_finder.py"]
NEEDED += ["tests/limits.py", "tests/in_threads.py", "tests/ownership"]
DOES_NOT_APPLY = "does not apply"
STANDS_FOR = (
    "int stands_for = (epoch->mode == OWN_WRITE || old->mode == epoch->mode) &&\n"
    "                         own_covers_(memory, epoch, old);"
)
WRITE = "epoch->mode == OWN_WRITE"

MUTATIONS = [
    # ---- contents and attachments ----
    (
        "discarded memory is usual",
        "own_usual_",
        "unusual = memory->unusual |",
        "unusual = memory->closed |",
    ),
    (
        "discarded bytes are read",
        "own_reads_",
        "(access->mode == OWN_READ && access->effect != OWN_MOVES) || access->effect == OWN_USES",
        "0",
    ),
    (
        "discarded bytes are lent",
        "own_reads_",
        "access->effect != OWN_MOVES) || access->effect == OWN_USES",
        "access->effect != OWN_MOVES)",
    ),
    (
        "a move writes",
        "own_writes_",
        "access->mode != OWN_READ && access->effect != OWN_MOVES &&",
        "access->mode != OWN_READ &&",
    ),
    (
        "an attachment writes",
        "own_writes_",
        " &&\n           access->effect != OWN_ATTACHES;",
        ";",
    ),
    (
        "a write of a part writes nothing",
        "own_reserve_contents_",
        "!own_cut_discards_(memory, rows.start) ||",
        "",
    ),
    (
        "a write that ends inside writes nothing",
        "own_reserve_contents_",
        "|| !own_cut_discards_(memory, rows.stop)",
        "",
    ),
    (
        "a write of a part writes all",
        "own_commit_effect_",
        "own_overwrites_(access, each)",
        "own_writes_(access)",
    ),
    (
        "a write that failed has written",
        "own_undo_effect_",
        "        own_unmark_written_(each, by);\n",
        "",
    ),
    (
        "a discard that failed discards",
        "own_undo_effect_",
        "if (own_same_id_(each->made, by)) {",
        "if (0) {",
    ),
    (
        "what a write in flight has written is forgotten",
        "own_is_settled_",
        "return !stream || stream->settled >= id.seq;",
        "return 1;",
    ),
    (
        "discards of different lines are joined",
        "own_join_discards_",
        " || each->site != next->site ||",
        " ||",
    ),
    (
        "what was written is kept for ever",
        "own_commit_effect_",
        "} else if (own_stays_written_(engine, each)) {",
        "} else if (0) {",
    ),
    (
        "the host writes in vain",
        "own_export_open",
        "if (answer == OWN_OK && access->memory->limited && !own_write_on_host_(access)) {",
        "if (0) {",
    ),
    (
        "the host writes beside the bytes",
        "own_write_on_host_",
        "own_is_discarded_(each) && own_overwrites_(access, each)",
        "1",
    ),
    (
        "a loan to the stream is not in the way of its discard",
        "own_check_exports_",
        "(access->effect >= OWN_ATTACHES && access->effect <= OWN_CLOSES)",
        "access->effect == OWN_CLOSES",
    ),
    (
        "other streams use attached memory",
        "own_check_limits_",
        "!own_may_use_(engine, memory, stream)) {\n        own_blame",
        "0) {\n        own_blame",
    ),
    (
        "an attachment matters where access is concurrent",
        "own_check_limits_",
        "stream->domain->host_excluded && access->effect < OWN_ATTACHES",
        "access->effect < OWN_ATTACHES",
    ),
    (
        "attached memory cannot be attached anew",
        "own_check_limits_",
        "access->effect < OWN_ATTACHES &&",
        "access->effect < OWN_DISCARDS &&",
    ),
    (
        "an attachment ends when its stream is closed",
        "own_attached_stream_",
        "(stream->state != OWN_OPEN && own_known_(engine, stream->slot, stream->seq))",
        "stream->state != OWN_OPEN",
    ),
    (
        "another stream inherits an attachment",
        "own_attached_stream_",
        "own_tag(stream) != tag ||",
        "0 ||",
    ),
    (
        "an attachment does not end",
        "own_may_use_",
        "return only ? only == stream : !own_is_for_host_(memory);",
        "return only == stream;",
    ),
    (
        "work of other streams excludes the host from attached memory",
        "own_excluded_",
        "if (own_may_use_(engine, memory, stream) &&\n",
        "if (\n",
    ),
    (
        "loans to other streams exclude the host from attached memory",
        "own_lent_where_excluded_",
        "stream->loans > stream->taken && own_may_use_(engine, memory, stream)",
        "stream->loans > stream->taken",
    ),
    (
        "views of attached memory exclude other streams",
        "own_excluding_view_",
        "!own_may_use_(engine, view->memory, stream)",
        "0",
    ),
    (
        "an attachment that failed attaches",
        "own_undo_effect_",
        "own_undo_attach_(memory, by);",
        "",
    ),
    (
        "a failure forgets what was written meanwhile",
        "own_unmark_written_",
        "discard->written = discard->again;",
        "discard->written = (own_id){0, 0};",
    ),
    (
        "a failure takes back the newest attachment",
        "own_undo_attach_",
        "while (each < last && !own_same_id_(each->by, by)) {",
        "while (0) {",
    ),
    # ---- boxes ----
    (
        "gaps are used, too",
        "own_uses_bytes_",
        "own_meet(bytes, own_bytes_at_(memory, index, epoch))",
        "1",
    ),
    (
        "a box hides what is beside it",
        "own_covers_",
        "!epoch->box || epoch->box == old->box ||",
        "1 ||",
    ),
    ("boxes take the fast path", "own_usual_", "| access->boxed |", "|"),
    (
        "boxes beside those of other streams are usual",
        "own_left_",
        "old->slot != request->stream->slot",
        "0",
    ),
    (
        "a box that ends inside a range is usual",
        "own_usual_boxed_",
        " ||\n        own_range_stop(memory, (uint32_t)(end - 1 - memory->ranges)) != access->stop",
        "",
    ),
    (
        "a box that begins inside a range is usual",
        "own_usual_boxed_",
        "first->start != access->start || ",
        "",
    ),
    ("boxes that the host sees are usual", "own_usual_boxed_", " || memory->exports", ""),
    ("boxes of closed memory are usual", "own_usual_boxed_", "memory->closed || ", ""),
    (
        "discarded boxes are usual",
        "own_usual_boxed_",
        "(memory->limited & ~OWN_HAS_BOXES) || ",
        "",
    ),
    (
        "a box that is still to be recorded is forgotten",
        "own_commit_boxed_",
        " &&\n        !own_asks_for_box_(request)",
        "",
    ),
    ("runs with boxes are renewed", "own_begin", "runs && apart && !limited", "runs && apart"),
    (
        "requests with many accesses have no boxes",
        "own_most_uses_",
        "boxes += access->boxed;",
        "boxes = 0;",
    ),
    ("a full table forgets a box", "own_unused_box_", ": OWN_BY_ROWS;", ": 1;"),
    (
        "boxes that are in use are forgotten",
        "own_drop_boxes_",
        "if (!own_boxes_used_(memory))",
        "if (1)",
    ),
    ("a view of a box has no gaps", "own_export_link_", ".boxed = access->boxed", ".boxed = 0"),
    # ---- which uses a range keeps ----
    (
        "a read hides other streams' reads",
        "own_replace_",
        STANDS_FOR,
        f"{STANDS_FOR} if (epoch->mode == OWN_READ && old->mode == OWN_READ) continue;",
    ),
    ("a read hides the writes before it", "own_replace_", STANDS_FOR, "int stands_for = 1;"),
    (
        "a write hides uses that it did not wait for",
        "own_replace_",
        STANDS_FOR,
        f"{STANDS_FOR} if ({WRITE}) continue;",
    ),
    (
        "a cut loses a use on its right",
        "own_range_cut_inside_",
        "right.start = at;",
        "right.start = at; right.count -= right.count > 1;",
    ),
    (
        "a read and a write of one operation are joined",
        "own_range_same",
        " || x[i].mode != y[i].mode",
        "",
    ),
    (
        "neighbours are never joined",
        "own_join_ranges_",
        "own_range_shrink(range);\n    }\n    own_ranges_join(memory, first, end);",
        "own_range_shrink(range);\n    }",
    ),
    (
        "ranges are joined before all accesses are committed",
        "own_commit_all_",
        "        own_commit_(engine, request, &request->accesses[i]);\n",
        "        own_commit_(engine, request, &request->accesses[i]);\n"
        "        own_join_ranges_(&request->accesses[i]);\n",
    ),
    (
        "what may have queued nothing has waited by the rules",
        "own_view_of_",
        "    if (request->passive) {\n        *view",
        "    if (0) {\n        *view",
    ),
    (
        "what may have queued nothing is work that the rules count",
        "own_order_later_",
        "    if (request->passive) {\n        own_count_passive_",
        "    if (0) {\n        own_count_passive_",
    ),
    (
        "others come after what may have queued nothing",
        "own_settled_by_rules_",
        "return stream->passive == stream->uses + 1 ? stream->before : stream->settled;",
        "return stream->settled;",
    ),
    (
        "the second that may have queued nothing hides the first",
        "own_count_passive_",
        "if (stream->passive != stream->uses + 1) {",
        "if (1) {",
    ),
    (
        "what may have queued nothing is never work",
        "own_settled_by_rules_",
        "return stream->passive == stream->uses + 1 ? stream->before : stream->settled;",
        "return stream->passive ? stream->before : stream->settled;",
    ),
    # ---- the usual operation ----
    (
        "what another stream uses is usual",
        "own_usual_",
        "old->slot != stream->slot && !own_known_(engine, old->slot, old->seq)",
        "0",
    ),
    ("what the host sees is usual", "own_usual_", "(uintptr_t)memory->exports", "0"),
    (
        "closed memory is usual",
        "own_usual_",
        "unusual = memory->unusual |",
        "unusual = memory->limited |",
    ),
    (
        "memory with space for many uses is never usual again",
        "own_range_shrink",
        "range->capacity && range->count <= OWN_FEW",
        "0",
    ),
    ("freeing memory is usual", "own_usual_", "(access->effect >= OWN_ATTACHES)", "0"),
    (
        "parts are usual",
        "own_usual_",
        "access->start | (access->stop ^ memory->nbytes)",
        "0",
    ),
    (
        "the beginning of a range is usual",
        "own_only_range_",
        " && own_range_stop(memory, i) == access->stop",
        "",
    ),
    (
        "a usual part is recorded at the first range",
        "own_commit_usual_",
        "range = own_only_range_(access);\n    }\n    access->undo",
        "}\n    access->undo",
    ),
    (
        "whoever alone uses memory is taken for the stream",
        "own_usual_",
        "range->count == 1 && range->few->slot == stream->slot",
        "range->count == 1",
    ),
    (
        "memory that an operation names twice is usual",
        "own_all_usual_",
        "(access[0].mode | access[1].mode) > OWN_WRITE",
        "0",
    ),
    (
        "memory that an operation of many accesses names twice is usual",
        "own_may_need_malloc_",
        "((asked | now) & 1)",
        "(asked & now & 1)",
    ),
    (
        "memory that an operation of many accesses reaches twice is usual",
        "own_may_need_malloc_",
        "((asked | now) & 1)",
        "((asked ^ now) & 1)",
    ),
    (
        "the usual read hides the write before it",
        "own_commit_usual_",
        "(range->count != 1 || range->few->mode != access->mode)",
        "range->count != 1",
    ),
    (
        "the usual read hides the write before another one",
        "own_keep_others_",
        "if (mode != old->mode && !own_known_(",
        "if (0 && !own_known_(",
    ),
    (
        "what the only thread handed over is not settled",
        "own_settle",
        "    stream->settled = request->issued.seq;\n",
        "    if (!alone) {\n        stream->settled = request->issued.seq;\n    }\n",
    ),
    (
        "a usual operation cannot be undone",
        "own_commit_usual_",
        "access->undo = 1;",
        "access->undo = 0;",
    ),
    ("loans are usual", "own_all_usual_", "request->loan ||", ""),
    (
        "work of blocking streams is usual",
        "own_all_usual_",
        "stream->order != OWN_NON_BLOCKING || ",
        "",
    ),
    (
        "work under a view of managed memory is usual",
        "own_all_usual_",
        "(stream->domain->host_excluded && engine->managed)",
        "0",
    ),
    # ---- checks ----
    (
        "a write ignores readers",
        "own_check_epochs_",
        "? epoch->mode != OWN_SHARED || access->effect >= OWN_CLOSES",
        "? epoch->mode == OWN_WRITE",
    ),
    (
        "what may be a use ignores reads",
        "own_excludes_read_",
        "(other == OWN_READ && mode == OWN_REACH)",
        "(other == OWN_READ && mode == OWN_WRITE)",
    ),
    (
        "reads ignore what may be a write",
        "own_excludes_read_",
        "(other == OWN_REACH && mode == OWN_READ)",
        "(other == OWN_REACH && mode == OWN_WRITE)",
    ),
    (
        "memory is freed under a shared use",
        "own_check_epochs_",
        "epoch->mode != OWN_SHARED || access->effect >= OWN_CLOSES",
        "epoch->mode != OWN_SHARED",
    ),
    (
        "the check reaches one byte too far",
        "own_check_epochs_",
        "access->stop, &last);",
        "access->stop + 1, &last);",
    ),
    (
        "a view reaches one byte too far",
        "own_check_exports_",
        "own_meet(own_bytes_of_view_(view), own_bytes_of(access))",
        "view->start <= access->stop && access->start < view->stop",
    ),
    (
        "exclusive views do not exclude reads",
        "own_check_exports_",
        "(view->exclusive || access->mode != OWN_READ)",
        "(access->mode != OWN_READ)",
    ),
    (
        "unchecked gets past views",
        "own_check_",
        "found = own_check_exports_(request->stream, access, &conflict);",
        "if (access->policy != OWN_UNCHECKED)"
        " found = own_check_exports_(request->stream, access, &conflict);",
    ),
    (
        "waiting comes before refusing",
        "own_check_",
        "if (found != OWN_OK && (answer == OWN_OK || answer == OWN_MUST_WAIT))",
        "if (found != OWN_OK && answer == OWN_OK)",
    ),
    (
        "close does not see shared uses",
        "own_bytes_known_",
        "if (!own_known_(engine, epochs[k].slot, epochs[k].seq) &&",
        "if (epochs[k].mode != OWN_SHARED && !own_known_(engine, epochs[k].slot, epochs[k].seq) &&",
    ),
    (
        "work in flight does not exclude the host",
        "own_excluded_",
        "                !own_known_(engine, stream->slot, stream->seq) &&\n",
        "                0 &&\n",
    ),
    (
        "a view without bytes excludes all work",
        "own_excludes_",
        "return view->memory->managed && view->start < view->stop && !view->borrower;",
        "return view->memory->managed && !view->borrower;",
    ),
    (
        "a loan excludes all work",
        "own_excludes_",
        "return view->memory->managed && view->start < view->stop && !view->borrower;",
        "return view->memory->managed && view->start < view->stop;",
    ),
    (
        "a loan is in the way of its borrower",
        "own_check_exports_",
        "(!view->keeps && view->borrower != stream)",
        "!view->keeps",
    ),
    (
        "a loan is not in the way of the host",
        "own_check_host_",
        "int answer = own_check_exports_(NULL, access, conflict);",
        "int answer = OWN_OK;",
    ),
    (
        "a loan is not counted",
        "own_export_link_",
        "        memory->loans++;\n",
        "",
    ),
    (
        "host views are not in the way of work on no stream",
        "own_lend_open",
        "answer = own_check_exports_(&nobody, access, conflict);",
        "",
    ),
    (
        "work on no stream is ordered after all",
        "own_lend_open",
        "            answer = own_check_host_(engine, NULL, access, conflict);\n",
        "",
    ),
    (
        "work on no stream is a host view",
        "own_lend_open",
        "        own_export_link_(engine, access, site, borrower, view);",
        "        own_export_link_(engine, access, site, NULL, view);",
    ),
    (
        "closed memory is lent",
        "own_lend_open",
        "access->memory->unusual ? own_check_limits_(engine, borrower, access, conflict) : OWN_OK",
        "OWN_OK",
    ),
    (
        "the end of a loan is checked",
        "own_check_",
        "if (request->returns) {",
        "if (0) {",
    ),
    (
        "memory closes under a loan to the stream that closes it",
        "own_check_exports_",
        "access->effect <= OWN_CLOSES)",
        "access->effect < OWN_CLOSES)",
    ),
    (
        "bytes that leave close all of the memory",
        "own_commit_effect_",
        "memory->closed |= access->effect == OWN_CLOSES;",
        "memory->closed |= access->effect >= OWN_CLOSES;",
    ),
    (
        "a view of other bytes keeps some",
        "own_bytes_free_",
        "        if (own_meet(own_bytes_of_view_(view), (own_bytes){start, stop, NULL})) {",
        "        if (1) {",
    ),
    (
        "a view does not keep its bytes",
        "own_bytes_free_",
        "        if (own_meet(own_bytes_of_view_(view), (own_bytes){start, stop, NULL})) {",
        "        if (0) {",
    ),
    (
        "work does not keep its bytes",
        "own_bytes_free_",
        "if (answer == OWN_OK && !own_bytes_known_(engine, memory, start, stop, conflict)) {",
        "if (0) {",
    ),
    (
        "work on other bytes keeps some",
        "own_bytes_free_",
        "if (answer == OWN_OK && !own_bytes_known_(engine, memory, start, stop, conflict)) {",
        "if (answer == OWN_OK && !own_memory_known_(engine, memory, conflict)) {",
    ),
    (
        "a refused loan stays",
        "own_undo",
        "own_export_unlink_(engine, request->loan);",
        "",
    ),
    (
        "a lost context's work stays unfinished",
        "own_domain_lose",
        "    domain->lost = 1;\n    for",
        "    for",
    ),
    (
        "what is on its way into a lost context is over too early",
        "own_over_if_lost_",
        "slot->done < stream->settled) {\n        slot->done = stream->settled;",
        "slot->done < stream->seq) {\n        slot->done = stream->seq;",
    ),
    # ---- clocks ----
    (
        "a join changes the clock that others share",
        "own_clock_join",
        "    own_clock *result = malloc(",
        "    if (clock && clock->size >= size) {\n"
        "        for (uint32_t i = 0; i < size; i++) {\n"
        "            uint64_t b = own_clock_at(news->clock, i);\n"
        "            b = i == news->slot && news->seq > b ? news->seq : b;\n"
        "            clock->seq[i] = clock->seq[i] > b ? clock->seq[i] : b;\n"
        "        }\n"
        "        *joined = own_clock_share(clock);\n"
        "        return 1;\n"
        "    }\n"
        "    own_clock *result = malloc(",
    ),
    (
        "a wait is not transitive",
        "own_clock_join",
        "b = own_clock_at(news->clock, i);",
        "b = 0;",
    ),
    (
        "the host learns only of the stream itself",
        "own_join_host_",
        "news->clock && i < news->clock->size; i++) {\n        if (engine->slots[i].done",
        "0 && i < news->clock->size; i++) {\n        if (engine->slots[i].done",
    ),
    (
        "known up to, but not with",
        "own_known_",
        "slots[slot].done >= seq",
        "slots[slot].done > seq",
    ),
    (
        "snapshots cover what the driver does not have",
        "own_snapshot_of_",
        "snapshot->seq = stream->settled;",
        "snapshot->seq = stream->seq;",
    ),
    (
        "the host forgets",
        "own_join_host_",
        "if (news->seq && engine->slots[news->slot].done < news->seq) {",
        "if (1) {",
    ),
    # ---- all work of a context ----
    (
        "synchronizing a context forgets what its streams have waited for",
        "own_domain_snapshot",
        "            own_clock_raise_(clock, stream->clock);\n",
        "",
    ),
    (
        "synchronizing a context forgets what its dead streams have waited for",
        "own_domain_snapshot",
        "        own_clock_raise_(clock, domain->inherited);\n",
        "",
    ),
    (
        "only the last dead stream of a context leaves what it has waited for",
        "own_bequeath_",
        "own_clock_join(stream->domain->inherited, &waited, &joined)",
        "own_clock_join(NULL, &waited, &joined)",
    ),
    (
        "synchronizing a context covers what the driver does not have",
        "own_domain_snapshot",
        "clock->seq[stream->slot] = stream->settled;",
        "clock->seq[stream->slot] = stream->seq;",
    ),
    # ---- default streams ----
    (
        "legacy work ignores blocking streams",
        "own_view_",
        "other = stream->domain->streams;",
        "other = NULL;",
    ),
    (
        "blocking streams ignore legacy work",
        "own_view_",
        "stream->legacy_seen < legacy->uses",
        "stream->legacy_seen > legacy->uses",
    ),
    (
        "blocking streams see only the first legacy work",
        "own_view_",
        "stream->legacy_seen < legacy->uses",
        "stream->legacy_seen == 0",
    ),
    (
        "legacy work waits for non-blocking streams",
        "own_view_",
        "other->order != OWN_NON_BLOCKING && other != stream",
        "other != stream",
    ),
    (
        "legacy work waits for closed streams",
        "own_view_",
        " && other->state == OWN_OPEN",
        "",
    ),
    (
        "default streams' order leaves what it orders",
        "own_order_later_",
        "if (request->issued.clock != stream->clock) {",
        "if (0) {",
    ),
    (
        "a wait is no work of default streams",
        "own_wait",
        "int ok = own_use_unchecked_(stream) && own_join_(stream, news);",
        "int ok = own_join_(stream, news);",
    ),
    (
        "a record is no work of default streams",
        "own_record",
        "int ok = own_use_unchecked_(stream);",
        "int ok = 1;",
    ),
    (
        "a refused operation has waited",
        "own_begin_unusual_",
        "    } else {\n        own_clock_drop(view);\n",
        "    } else {\n        own_learn_(request->stream, view);\n",
    ),
    # ---- failures ----
    (
        "a failure leaves its borrow",
        "own_undo",
        "range->count = access->undo_count;",
        "",
    ),
    (
        "a failure takes back what others borrowed",
        "own_undoable_",
        "last->seq == issued->seq &&\n           last->slot == issued->slot;",
        "1;",
    ),
    (
        "a failure uses up a number",
        "own_undo",
        "stream->seq--;",
        "stream->settled = stream->seq;",
    ),
    # ---- streams and slots ----
    (
        "closed streams are forgotten too early",
        "own_retire_finished_",
        "stream->state == OWN_CLOSED && engine->slots[i].done >= stream->seq",
        "stream->state == OWN_CLOSED",
    ),
    (
        "closing forgets unfinished work",
        "own_stream_close",
        "if (own_known_(engine, stream->slot, stream->seq)) {\n        own_retire_",
        "if (1) {\n        own_retire_",
    ),
    (
        "closed streams are never forgotten",
        "own_retire_finished_",
        "stream->state == OWN_CLOSED && engine->slots[i].done >= stream->seq",
        "0",
    ),
    (
        "a slot's numbers begin again",
        "own_retire_",
        "slot->seq = stream->seq;",
        "slot->seq = 0;",
    ),
    (
        "closed streams take work",
        "own_check_",
        "if (request->stream->state != OWN_OPEN) {",
        "if (0) {",
    ),
]

# Tests that make one call at a time do not notice these mutations, which are part of MUTATIONS.
IN_THREADS = [
    (
        "an operation is recorded after another lock than it was checked under",
        "own_begin_unusual_",
        "    if (answer == OWN_OK) {\n        own_number_(request, view);",
        "    if (answer == OWN_OK) {\n        own_unlock(engine);\n        own_lock(engine);\n"
        "        own_number_(request, view);",
    ),
    (
        "a view of the host is checked before the lock is taken",
        "own_export_open",
        "    own_lock(engine);\n    int answer = own_check_host_(engine, NULL, access, conflict);\n"
        "    if (answer == OWN_OK && access->memory->limited",
        "    int answer = own_check_host_(engine, NULL, access, conflict);\n    own_lock(engine);\n"
        "    if (answer == OWN_OK && access->memory->limited",
    ),
    (
        "memory is closed under another lock than its uses are checked",
        "own_memory_free",
        "    } else if (close) {\n        memory->closed = 1;",
        "    } else if (close) {\n        own_unlock(engine);\n        own_lock(engine);\n"
        "        memory->closed = 1;",
    ),
    (
        "the host joins a clock that was read before the lock is taken",
        "own_join_host",
        "    own_lock_clocks(engine);\n",
        "    const uint64_t done = engine->slots[news->slot].done;\n    own_lock_clocks(engine);\n"
        "    engine->slots[news->slot].done = done;\n",
    ),
]
MUTATIONS += IN_THREADS


def copy_of(target, needed):
    """Copy these files and folders of the project to a folder."""
    for name in needed:
        path = Path(target, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, path, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(ROOT / name, path)


def prepare(target):
    """Make a tree that contains only the engine, and build it."""
    begin(target)
    build(target)


def begin(target):
    copy_of(target, NEEDED)
    Path(target, "cudadrv", "__init__.py").write_text("from cudadrv import _finder\n")


def build(tree):
    command = [sys.executable, "-W", "ignore", "setup.py", "-q", "build_ext", "--inplace"]
    built = subprocess.run(command, cwd=tree, capture_output=True, text=True)
    if built.returncode:
        raise RuntimeError(built.stdout + built.stderr)


def first_failure(tree, *names):
    """The first test that fails, or None."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    command += ["-k", "not Hypothesis"]  # Hypothesis would spend minutes on shrinking
    command += ["-W", "ignore::pytest.PytestConfigWarning"]  # options of missing plugins
    command += ["-m", "not slow", "--timeout=60", "-o", "addopts=--import-mode=importlib -rf"]
    ran = subprocess.run(
        [*command, *(f"tests/ownership/{name}.py" for name in names)],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree)},
        capture_output=True,
        text=True,
        errors="replace",
    )
    if ran.returncode == 0:
        return None
    failed = re.search(r"^FAILED \S*?(test_\w+\.py::\S+)", ran.stdout, re.MULTILINE)
    return failed[1] if failed else f"exit status {ran.returncode}"


def judge(tree):
    """The first failure of the examples, of the tests with the oracle, and of those in threads."""
    examples = sorted(path.stem for path in Path(tree, "tests/ownership").glob("test_engine_*.py"))
    return {
        "example": first_failure(tree, *examples),
        "oracle": first_failure(tree, "test_referee", "test_exhaustive"),
        "threads": first_failure(tree, "test_replay"),
    }


def try_mutation(base, judge, function, old, new):
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder, "tree")
        shutil.copytree(base, tree)
        made = changed(function, old, new, tree)
        if made is None:
            return {DOES_NOT_APPLY: None}
        path, text = made
        path.write_text(text, encoding="utf-8")
        later = time.time() + 2  # later than the object files, even if times are rounded
        os.utime(path, (later, later))
        build(tree)
        return judge(tree)


def main(mutations, prepare, judge, names):
    """Try the mutations with these names, or all. Print which tests notice each of them."""
    chosen = [mutation for mutation in mutations if not names or mutation[0] in names]
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder, "base")
        prepare(base)
        found = judge(base)
        if any(found.values()):
            sys.exit(f"the tests fail without a mutation: {found}")
        missed = 0
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            results = pool.map(lambda mutation: try_mutation(base, judge, *mutation[1:]), chosen)
            for (name, *_), found in zip(chosen, results, strict=True):
                missed += not any(found.values())
                print(name, *(f"    {who}: {what}" for who, what in found.items()), sep="\n")
                sys.stdout.flush()
    print(f"{len(chosen)} mutations, {missed} not caught")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(MUTATIONS, prepare, judge, sys.argv[1:]))
