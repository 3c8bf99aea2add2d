"""Breaks the checks inside kernels on purpose, one mutation at a time, and prints what notices.

    nice python -m tests.kernels.checks.mutations [--jobs N] [name ...]

Each of MUTATIONS is (name, function, old text, new text). The old text occurs once in the functions
of softdriver/check with this name, of which there may be several. It needs `make build`. Each
mutation takes about ten seconds of processor time, and a minute if no test notices it.
"""

import argparse
import collections
import functools
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
import cuda_header
import setup

ROOT = Path(__file__).resolve().parents[3]
CHECK = ROOT / "softdriver" / "check"
TESTS = Path(__file__).parent
# The name of a function that begins in the first column, or in a class.
FUNCTION = re.compile(
    r"^( *)(?![#/}{ ]|return\b|if\b|for\b|while\b|switch\b|case\b|else\b)[^\n;{}()=]*?([\w:~]+)"
    r"\([^;{}]*?\)[ \w]*(?: :[^;]*?)? \{(?:[^\n]*\}$|\n.*?^\1\}|$)",
    re.MULTILINE | re.DOTALL,
)

RACES = [
    # ---- barriers ----
    (
        "a barrier orders nothing",
        "KernelRaces::completes",
        "        block.clocks.meet_all();\n",
        "",
    ),
    (
        "a barrier orders what threads did before they ended",
        "KernelRaces::completes",
        "arrivals.waiting[i] == lanes_in(of, unsigned(i))",
        "arrivals.waiting[i] == of.warps[i]->live",
    ),
    (
        "a barrier ends what copies of the async proxy do",
        "KernelRaces::completes",
        "!roles_.any_async() && ",
        "",
    ),
    (
        "a barrier ends what cp.async does",
        "KernelRaces::completes",
        " && !block.groups.any_pending(block.clocks)",
        "",
    ),
    (
        "who waits at a counted barrier learns nothing",
        "KernelRaces::completes",
        "learn(block, i, arrivals.waiting[i], arrivals.told);",
        ";",
    ),
    (
        "who waits at a counted barrier tells nothing",
        "KernelRaces::completes",
        "arrivals.told.learn(block.clocks.tell(i, arrivals.waiting[i]));",
        ";",
    ),
    (
        "who only arrives tells nothing",
        "KernelRaces::arrives",
        "    arrivals.told.learn(block.clocks.tell(warp.number, arrival.lanes));\n",
        "",
    ),
    ("who only arrives waits", "KernelRaces::arrives", "if (arrival.waits) {", "if (1) {"),
    (
        "a barrier tells nothing of what threads have learned of other blocks",
        "Clocks::meet_all",
        "        others_.learn(thread.others);\n",
        "",
    ),
    (
        "a thread of the block knows what another one does next",
        "Clocks::meet_all",
        "warp = {0, latest_, true};",
        "warp = {0, base_, true};",
    ),
    (
        "the barrier of a cluster orders nothing",
        "KernelRaces::completes_cluster",
        "learn(block, i, std::exchange(block.at_cluster[i], 0), cluster.over);",
        "block.at_cluster[i] = 0;",
    ),
    (
        "who comes late to the barrier of a cluster learns nothing",
        "KernelRaces::uses_cluster",
        "return learn(block, warp.number, use.lanes, cluster.over);",
        "return;",
    ),
    (
        "a relaxed arrival at the barrier of a cluster releases",
        "KernelRaces::uses_cluster",
        "if (use.releases)",
        "if (true)",
    ),
    (
        "a fence before a relaxed arrival at the barrier of a cluster counts for nothing",
        "KernelRaces::uses_cluster",
        "uint32_t left = use.lanes; left; left &= left - 1) // a",
        "uint32_t left = 0; left;) // a",
    ),
    # ---- warps ----
    (
        "__syncwarp orders nothing",
        "KernelRaces::meets",
        "    block.clocks.meet(warp.number, members, lanes_in(warp.block, warp.number));\n",
        "",
    ),
    (
        "__syncwarp is for all lanes",
        "KernelRaces::meets",
        "block.clocks.meet(warp.number, members, lanes_in(warp.block, warp.number));",
        "block.clocks.meet(warp.number, lanes_in(warp.block, warp.number), "
        "lanes_in(warp.block, warp.number));",
    ),
    (
        "__syncwarp orders what lanes did before they ended",
        "KernelRaces::meets",
        "    members &= warp.live;\n",
        "",
    ),
    (
        "lanes of other masks have not met in between",
        "KernelRaces::meets",
        "met = (met & ~members) | (members & ~warp.active);",
        "met = members & ~warp.active;",
    ),
    (
        "the lanes of a mask learn nothing",
        "Clocks::meet",
        "            own->later.emplace_back(thread, now(thread));\n",
        "            (void)thread;\n",
    ),
    (
        "the lanes of a mask tell nothing of what they have learned of the block",
        "Clocks::meet",
        "        more = joined(more, thread.more);\n",
        "",
    ),
    (
        "the lanes of a mask tell nothing of what they have learned of other blocks",
        "Clocks::meet",
        "        others.learn(thread.others);\n",
        "",
    ),
    (
        "a lane knows what another one does behind the mask",
        "Clocks::meet",
        "        advance(number, lanes);\n",
        "",
    ),
    (
        "the lanes of a warp know each other",
        "Clocks::unknown",
        "(here && other == thread)",
        "(here && other / warp_lanes == thread / warp_lanes)",
    ),
    (
        "rows of a warp are in order",
        "KernelRaces::is_clearly_behind",
        "span.has_threads(old))",
        "true)",
    ),
    # ---- scopes ----
    (
        "an atomic is one for all blocks",
        "is_morally_strong",
        " &&\n               (block == other.block || !(only_block || other.only_block))",
        "",
    ),
    (
        "a row of atomics is one for all blocks",
        "are_atomic",
        " &&\n           (one.block == other.block || !(one.only_block || other.only_block))",
        "",
    ),
    (
        "an atomic of an independent block is one for all",
        "may_race",
        " && !one.only_block && !other.only_block",
        "",
    ),
    (
        "who reads sees writes of a smaller scope",
        "Signals::sees",
        "return in_scope && ",
        "return ",
    ),
    ("an acquire of the block is one of the GPU", "Clocks::take_in", "if (!only_block)", ""),
    ("a release of the block is one of the GPU", "Clocks::told", "if (!only_block)", ""),
    (
        "a release fence of the block is one of the GPU",
        "Clocks::release",
        "    if (!only_block)\n",
        "",
    ),
    (
        "a read does not see what its block alone was told",
        "Signals::seen_by",
        "        told.block = block->second;\n",
        "",
    ),
    # ---- releases ----
    (
        "a fence releases nothing",
        "KernelRaces::before",
        "            if (effect.releases)\n"
        "                clocks.release(thread, is_block_scope(effect));\n",
        "",
    ),
    (
        "an acquire fence releases",
        "KernelRaces::before",
        "            if (effect.releases)\n",
        "",
    ),
    (
        "two fences order their threads without an access to a flag",
        "KernelRaces::before",
        "            if (effect.releases)\n"
        "                clocks.release(thread, is_block_scope(effect));\n",
        "            static Known all;\n            clocks.learn(thread, all);\n"
        "            all.learn(clocks.tell(warp.number, 1u << thread % warp_size));\n"
        "            if (effect.releases)\n"
        "                clocks.release(thread, is_block_scope(effect));\n",
    ),
    ("a write releases nothing", "Clocks::told", "    if (!releases)\n", ""),
    (
        "a later write to a word is no part of its release",
        "Clocks::told",
        "        told.add(known->second.released);\n",
        "        ;\n",
    ),
    (
        "all writes of a thread are part of a release",
        "KernelRaces::for_each_element",
        "address << 6 | effect.item_bytes << 1 | access.shared",
        "0",
    ),
    (
        "a weak write leaves what was told",
        "KernelRaces::forget",
        "        signals.overwrite(addresses_[unsigned(__builtin_ctz(left))], now.bytes);",
        "        ;",
    ),
    (
        "a weak write of an unusual size leaves what was told",
        "KernelRaces::signal",
        "return signals.overwrite(access.address, access.now.bytes);",
        "return;",
    ),
    ("a write passes on what was told", "Signals::write", "        updates && ", "        "),
    (
        "a read-modify-write ends what was told",
        "Signals::write",
        "        updates && ",
        "        !updates && ",
    ),
    (
        "a write of other bytes is seen",
        "Signals::sees",
        " && word.last.bytes == access.bytes",
        "",
    ),
    (
        "a write leaves what was told by a longer one before it",
        "Signals::overwrite",
        "before->first + before->second.last.bytes > address",
        "false",
    ),
    # ---- acquires ----
    (
        "a fence acquires nothing",
        "KernelRaces::before",
        "            if (effect.acquires)\n"
        "                clocks.acquire(thread, is_block_scope(effect));\n",
        "",
    ),
    (
        "a release fence acquires",
        "KernelRaces::before",
        "            if (effect.acquires)\n",
        "",
    ),
    ("a read acquires nothing", "Clocks::see", "acquires && ", "false && "),
    ("every strong read acquires", "Clocks::see", "acquires && ", ""),
    (
        "an earlier read of a word is no part of its acquire",
        "Clocks::see",
        "own.words[word].seen.add(told)",
        "own.words[word].seen = told",
    ),
    (
        "a fence acquires only what the last read has seen",
        "Clocks::see",
        "own.seen.add(told)",
        "own.seen = told",
    ),
    (
        "a fence acquires nothing of the block",
        "Clocks::take_in",
        "        learn(thread, told.block);\n",
        "        ;\n",
    ),
    (
        "an atomic whose result nobody uses learns",
        "KernelRaces::see",
        " || effect.blind",
        "",
    ),
    # ---- observation ----
    (
        "who has read a value is not behind its write",
        "KernelRaces::unordered",
        "!knows_who_has_seen(one, cell, earlier)",
        "true",
    ),
    (
        "an atomic whose result nobody uses has seen a write",
        "has_seen",
        "sees && ",
        "",
    ),
    (
        "a read has seen all writes",
        "has_met",
        " && first <= write.number &&\n               write.number < number + !writes",
        "",
    ),
    (
        "a read has seen only the last write",
        "KernelRaces::number",
        "    entry.first = last->first;\n",
        "    entry.first = last->number;\n",
    ),
    (
        "a read has seen writes of other sizes",
        "KernelRaces::number",
        "if (!last || !last->is_morally_strong(entry))",
        "if (!last)",
    ),
    # ---- elements and bytes ----
    (
        "accesses of other elements are atomic",
        "is_morally_strong",
        "bytes == other.bytes && size == other.size &&",
        "bytes == other.bytes &&",
    ),
    (
        "rows of other elements are atomic",
        "are_atomic",
        "one.strong && one.strong == other.strong",
        "one.strong && other.strong",
    ),
    (
        "atomics of other sizes of independent blocks are atomic",
        "may_race",
        "one.strong && one.strong == other.strong",
        "one.strong && other.strong",
    ),
    (
        "a vector is one element",
        "KernelRaces::entry_of",
        "effect.strong ? effect.item_bytes : 0",
        "uint8_t(effect.strong ? effect.item_bytes * effect.count : 0)",
    ),
    (
        "a flag is the first element of a vector",
        "KernelRaces::for_each_element",
        "i < effect.count",
        "i < 1",
    ),
    ("other bytes of a word race", "overlaps", "return bytes & other.bytes;", "return true;"),
    (
        "rows with gaps are whole",
        "Span::lanes_at",
        "unsigned first = from < begin + unsigned(size) ? 0 :",
        "unsigned first = from < begin + unsigned(size) ? 0 : stride > size ? 0 :",
    ),
    (
        "an atomic of a word races with nobody",
        "are_blind_like",
        "are_blind_ && ",
        "",
    ),
    # ---- what is kept ----
    (
        "a write replaces accesses that it is not behind",
        "KernelRaces::keep",
        "(!apart && unordered(access, old).second < 0)",
        "!apart",
    ),
    (
        "an access replaces one of more bytes",
        "KernelRaces::keep",
        "if ((old.bytes & ~entry.bytes) || (old.writes && !entry.writes))\n            continue;\n"
        "        if (is_crowded",
        "if (old.writes && !entry.writes)\n            continue;\n        if (is_crowded",
    ),
    (
        "a read replaces a write",
        "KernelRaces::keep",
        "if ((old.bytes & ~entry.bytes) || (old.writes && !entry.writes))\n            continue;\n"
        "        if (is_crowded",
        "if (old.bytes & ~entry.bytes)\n            continue;\n        if (is_crowded",
    ),
    (
        "a strong access replaces a weak one",
        "KernelRaces::keep",
        " || !entry.is_as_weak_as(old))",
        ")",
    ),
    (
        "strong reads of other blocks stand for a weak one",
        "KernelRaces::keep",
        "readers += apart && !old.writes && old.is_as_weak_as(entry);",
        "readers += apart && !old.writes;",
    ),
    (
        "reads of other bytes of other blocks stand for a read",
        "KernelRaces::add_span",
        "spans[i].block != span.block && spans[i].covers(span) &&",
        "spans[i].block != span.block &&",
    ),
    (
        "a row replaces one of more bytes",
        "KernelRaces::drop_superfluous",
        "if (replaces && span.covers(spans[i]))",
        "if (replaces)",
    ),
    (
        "a row of atomics replaces a weak one",
        "KernelRaces::drop_superfluous",
        "bool as_weak = !span.strong ||",
        "bool as_weak = true ||",
    ),
    (
        "a row that is in order with one of its lanes is so with all",
        "KernelRaces::is_behind",
        "behind = clocks.unknown(thread, old.block, old.warp, others, old.epoch) < 0;",
        "behind = clocks.unknown(thread, old.block, old.warp, others & -others, old.epoch) < 0;",
    ),
    (
        "one read of another block is enough",
        "KernelRaces::add_span",
        "enough = span.writes ? most_entries : most_readers",
        "enough = 1",
    ),
    # ---- between blocks ----
    (
        "accesses of one independent block are compared with its own",
        "may_race",
        "one.block != other.block && ",
        "",
    ),
    (
        "reads of independent blocks race",
        "may_race",
        "(one.writes || other.writes) && ",
        "",
    ),
    (
        "the accesses of other host threads are lost",
        "BetweenBlocks::join",
        "            own.add(access, room_);",
        "            (void)own, (void)access;",
    ),
    (
        "no line has accesses of several blocks",
        "BlockAccesses::add",
        "several_ || (count_ && first_->accesses[0].block != access.block)",
        "several_",
    ),
    (
        "no line has a write",
        "BlockAccesses::add",
        "    writes_ = writes_ || access.writes;\n",
        "",
    ),
    (
        "an access that is dropped takes another one with it",
        "BlockAccesses::drop",
        "    (*this)[i] = (*this)[--count_];\n",
        "    --count_;\n",
    ),
    (
        "one earlier block is enough",
        "BetweenBlocks::is_needless",
        "same >= 2",
        "same >= 1",
    ),
    (
        "blocks store the same if their lanes do",
        "BlockAccess::stores_the_same",
        "!is_weak_write() || !other.is_weak_write() || value() != other.value() ||",
        "!is_weak_write() || !other.is_weak_write() ||",
    ),
    (
        "a row that stores the same elsewhere is the same",
        "BlockAccess::stores_the_same",
        "return !(value() & differs_bit) ||\n",
        "return true ||\n",
    ),
    (
        "an independent block gets the line of one that runs",
        "KernelRaces::own_line",
        "bool is_taken = active_.size() > 1 &&",
        "bool is_taken = false &&",
    ),
    # ---- benign races ----
    (
        "a read is benign",
        "KernelRaces::found",
        "clash.benign = earlier.writes && ",
        "clash.benign = ",
    ),
    (
        "a strong write is benign",
        "KernelRaces::found",
        "!later.strong &&",
        "true &&",
    ),
    (
        "lanes of a step store what is there",
        "KernelRaces::stores_the_same",
        "    if (in_this_step) {",
        "    if (false) {",
    ),
    # ---- which threads are reported ----
    (
        "a hazard has the threads that ran first",
        "KernelRaces::report",
        "if (known && lowest_[places] <= threads)",
        "if (known)",
    ),
    # ---- copies by threads ----
    (
        "a wait does not end copies",
        "KernelRaces::groups",
        "        block.clocks.finish(actor, effect.copies ? block.groups.close(counted)\n"
        "                                                 : "
        "block.groups.waited(counted, effect.count));",
        "        (void)actor, (void)counted;",
    ),
    (
        "a wait is for all groups",
        "Groups::waited",
        "found->second.ends[found->second.ends.size() - 1 - left]",
        "found->second.ends.back()",
    ),
    (
        "a wait for groups ends copies that are in none",
        "KernelRaces::groups",
        "effect.copies ? block.groups.close(counted)",
        "true ? block.groups.close(counted)",
    ),
    (
        "a wait for reads is one for writes",
        "KernelRaces::groups",
        "if (bulk && !effect.only_reads)",
        "if (bulk)",
    ),
    (
        "all threads know what a thread has waited for",
        "Clocks::known_of_actor",
        "    uint32_t time = finished.block;\n",
        "    uint32_t time = std::max(finished.block, finished.own);\n",
    ),
    (
        "a barrier says nothing of copies",
        "Clocks::meet_all",
        "        known.block = std::max(known.block, finished(actor));\n",
        "        ;\n",
    ),
    (
        "a barrier says nothing of copies that an mbarrier has told of",
        "Clocks::meet_all",
        "                known = std::max(known, time);\n",
        "",
    ),
    (
        "__syncwarp says nothing of copies",
        "Clocks::meet",
        "                finished.warp = std::max(finished.warp, finished.own);\n",
        "                (void)finished;\n",
    ),
    (
        "a thread tells nothing of its copies",
        "Clocks::snapshot",
        "            own->later.emplace_back(actor, time);\n    for (uint32_t left",
        "            (void)time;\n    for (uint32_t left",
    ),
    # ---- mbarriers ----
    (
        "an arrival tells nothing",
        "KernelRaces::uses_mbarrier",
        "    phase.arriving.add(told);\n",
        "",
    ),
    (
        "copies that arrive tell what their thread has done",
        "KernelRaces::uses_mbarrier",
        "if (effect.copies) {",
        "if (effect.copies && (phase.arriving.add(block.clocks.told(thread, "
        "Clocks::of_mbarriers, true, true)), true)) {",
    ),
    (
        "copies that arrive tell nothing",
        "KernelRaces::uses_mbarrier",
        "told.block = block.clocks.only(actor, block.groups.close(actor));",
        "block.groups.close(actor);",
    ),
    (
        "who waits for a phase learns nothing",
        "KernelRaces::see_phases",
        "phase->over, true, true",
        "Told(), true, true",
    ),
    (
        "who waits for a phase learns of the next one",
        "KernelRaces::see_phases",
        "if (const Phases::Phase *phase = block.phases.find(address))",
        "if (Phases::Phase *phase = block.phases.find(address); phase && "
        "(phase->over.add(phase->arriving), true))",
    ),
    (
        "a false test orders",
        "KernelRaces::after",
        "testing_ & warp.predicate(step.rows[0])",
        "testing_",
    ),
    (
        "a phase ends without its bulk copies",
        "Phases::look",
        "if (phase.last_copy == phase.time)",
        "if (false)",
    ),
    (
        "an mbarrier that is made again keeps what it was told",
        "Phases::forget",
        "        phase->arriving = phase->over = {};\n",
        "",
    ),
    (
        "a bulk copy is over with its phase or the next one",
        "Phases::look",
        "    phase.time++;\n    return phase;",
        "    return phase;",
    ),
    # ---- proxies ----
    (
        "the async proxy needs no fence",
        "KernelRaces::unfenced",
        "if (by.fenced.empty() || ",
        "if (true || ",
    ),
    (
        "a write behind a read needs a fence",
        "KernelRaces::unfenced",
        "!earlier.writes || ",
        "",
    ),
    (
        "cp.async needs a fence",
        "KernelRaces::unfenced",
        " || actor_of(earlier, 0) >= roles_.actors.stride)",
        " || is_async(earlier))",
    ),
    (
        "a fence for global memory is one for shared memory",
        "ProxyFences::add",
        "fence.shared = space != ptx::Space::Global",
        "fence.shared = true",
    ),
    (
        "a fence for shared memory is one for global memory",
        "ProxyFences::add",
        "fence.global = space != ptx::Space::Shared",
        "fence.global = true",
    ),
    (
        "a fence that nobody knows counts",
        "ProxyFences::for_each_known",
        "if (known[warp * warp_lanes + lane] > fence.known_behind[lane])",
        "",
    ),
    (
        "a fence is only for what its own thread has written",
        "ProxyFences::fenced",
        "        const Epochs *others = fence.others.find(block);\n        for",
        "        const Epochs *others = nullptr;\n        for",
    ),
    (
        "a fence is also for what comes behind it",
        "ProxyFences::fenced",
        "time = std::max(time, fence.times[lane]);",
        "time = ~0u;",
    ),
    (
        "an old fence is forgotten",
        "ProxyFences::add",
        "        fences[1].known_behind = fences[0].known_behind;\n"
        "        fences[1].lanes |= fences[0].lanes;\n",
        "",
    ),
    (
        "the fence of another block does not count",
        "KernelRaces::unfenced",
        "if (apart && fenced_blocks_.count(earlier.block))",
        "if (false)",
    ),
    (
        "an atomic and a reduction of a copy are atomic",
        "KernelRaces::look",
        "(earlier.is_morally_strong(entry) && !is_async(earlier))",
        "earlier.is_morally_strong(entry)",
    ),
    (
        "a reduction of a copy and an atomic are atomic",
        "KernelRaces::look",
        " && is_async(earlier) == is_async(by.entry);",
        ";",
    ),
    (
        "reductions of copies are not atomic",
        "KernelRaces::look",
        "        if (strong)\n",
        "        if (false)\n",
    ),
    (
        "equal bulk copies of a warp are several",
        "KernelRaces::take_equal_uses",
        "            lanes |= 1u << other;",
        "            lanes |= other == lane ? 1u << other : 0;",
    ),
    # ---- what a warp does together ----
    (
        "only the time of an access together is that of the latest lane",
        "Clocks::level",
        "        epochs_[first + unsigned(__builtin_ctz(left))] = latest;\n",
        "        ;\n",
    ),
    (
        "ldmatrix is behind what one lane knows",
        "KernelRaces::finish_together",
        "block.clocks.known_to_all(warp.number, running_)",
        "block.clocks.known_to_any(warp.number, running_)",
    ),
    (
        "wmma does not know its own fragments",
        "KernelRaces::is_same_fragment",
        "if (!by.fragment || ",
        "if (true || ",
    ),
    (
        "wmma knows the fragments of other warps",
        "KernelRaces::is_same_fragment",
        " || earlier.warp != by.entry.warp",
        "",
    ),
    (
        "wmma knows fragments of another form",
        "KernelRaces::is_same_fragment",
        "a.item == b.item && a.rows == b.rows && a.columns == b.columns &&\n           "
        "a.by_columns == b.by_columns && a.registers.size() == b.registers.size()",
        "(void)a, (void)b, true",
    ),
    (
        "a wait for wgmma is for the matrices of one warp",
        "Clocks::known_of_actor",
        "return of / product_warps == warp / product_warps",
        "return of == warp",
    ),
    (
        "a wait for wgmma is for all warpgroups",
        "Clocks::known_of_actor",
        "return of / product_warps == warp / product_warps",
        "return true",
    ),
    (
        "the block learns of a product of the warp that has waited only",
        "Clocks::meet_all",
        "known.block = std::max(known.block, finished(actor));",
        "known.block = std::max(known.block, known.own);",
    ),
    (
        "wgmma is behind what one of its warps knows",
        "KernelRaces::finish_products",
        "known[j] = std::min(known[j], one[j]);",
        "known[j] = std::max(known[j], one[j]);",
    ),
    (
        "wgmma is behind the fence of one of its warps",
        "KernelRaces::finish_products",
        "fenced[j] = std::min(fenced[j], behind[j]);",
        "fenced[j] = std::max(fenced[j], behind[j]);",
    ),
    # ---- reads that may miss writes ----
    (
        "ld.global.nc sees all writes",
        "KernelRaces::access",
        "    if (effect.noncoherent)\n        find_unseen_writes(now, lanes);\n",
        "",
    ),
    (
        "textures see all writes",
        "KernelRaces::finish_alone",
        "effect.noncoherent && !use.writes",
        "false",
    ),
    (
        "surfaces write past each other",
        "KernelRaces::finish_alone",
        "by.entry.writes = use.writes;",
        "by.entry.writes = false;",
    ),
]

SYNC = [
    # ---- masks ----
    (
        "a warp goes on with what an earlier block did last",
        "KernelSync::WarpState::begin",
        "    if (apart)\n        std::fill(std::begin(last_of), std::end(last_of), Last());\n",
        "",
    ),
    (
        "a warp goes on with what all lanes of an earlier block did last",
        "KernelSync::WarpState::begin",
        "    last_of_all = {};\n",
        "",
    ),
    (
        "a lane may leave its mask alone",
        "KernelSync::meet_in_tile",
        "    look_at_ended(warp, wait);\n",
        "",
    ),
    (
        "a lane may call it with a mask that it is not in",
        "KernelSync::look_at_masks",
        "if (!(masks[lane] & bit(lane))) {",
        "if (false) {",
    ),
    (
        "lanes of a mask may pass different masks",
        "KernelSync::look_at_masks",
        "if (masks[lane] != mask && (mask & bit(lane) || masks[lane] & first)) {",
        "if (false) {",
    ),
    (
        "only the mask of the first lane may have both lanes",
        "KernelSync::look_at_masks",
        " || masks[lane] & first",
        "",
    ),
    (
        "a shuffle at two places is one",
        "KernelSync::look_at_others",
        "if (is_warp_barrier(written) &&\n            is_warp_barrier(",
        "if (true || is_warp_barrier(",
    ),
    (
        "__syncwarp at two places is wrong",
        "KernelSync::look_at_others",
        "        if (is_warp_barrier(written) &&",
        "        if (false &&",
    ),
    (
        "a shuffle may read a lane that is not in its mask",
        "KernelSync::look_at_sources",
        "bool named = from < 0 || !masks || masks[lane] & bit(unsigned(from));",
        "bool named = true;",
    ),
    (
        "a shuffle may read a lane that does not call it",
        "KernelSync::look_at_sources",
        "(named && lanes & bit(unsigned(from)))",
        "named",
    ),
    (
        "a mistake of a warp is told several times",
        "KernelSync::left_alone",
        "    if (std::exchange(state_of(warp).confused, true))\n        return;\n",
        "",
    ),
    (
        "lanes that ended without waiting have gone on",
        "KernelSync::is_behind",
        "flow_.leads_to(step, last.step) &&\n           (later || "
        "!flow_.leads_to(last.step, step))",
        "true",
    ),
    (
        "what comes before in a loop is behind",
        "KernelSync::is_behind",
        "(later || !flow_.leads_to(last.step, step))",
        "true",
    ),
    (
        "what comes later in a loop is not behind",
        "KernelSync::is_behind",
        "later || ",
        "",
    ),
    (
        "merged code is looked at",
        "KernelSync::is_behind",
        "(!source.file || source.line) && ",
        "",
    ),
    # ---- barriers ----
    (
        "a barrier may wait for any number",
        "KernelSync::look_at_count",
        "if (expected % unsigned(warp_size)) {",
        "if (false) {",
    ),
    (
        "a barrier may wait for more than the block has",
        "KernelSync::look_at_count",
        "if (expected > all) {",
        "if (false) {",
    ),
    (
        "a barrier may have several numbers",
        "KernelSync::look_at_count",
        "if (!is_new && phase->expected != expected) {",
        "if (false) {",
    ),
    (
        "an aligned barrier at two places is one",
        "KernelSync::wait_at_barrier",
        "if (wait.place != place_of(warp, step))",
        "if (false)",
    ),
    (
        "barriers for single threads are for warps",
        "KernelSync::arrives",
        "if (code.effects[size_t(&arrival.step - code.body.data())].aligned)",
        "(void)code;",
    ),
    (
        "lanes that have ended may leave a barrier alone",
        "KernelSync::completes",
        "        look_at_ended(*of.warps[i], *wait);\n",
        "",
    ),
    (
        "warps may leave a barrier alone",
        "KernelSync::completes",
        "if (phase->for_all && !reported)",
        "if (false)",
    ),
    (
        "a counted barrier is for all warps",
        "KernelSync::completes",
        "if (phase->for_all && !reported)",
        "if (!reported)",
    ),
    (
        "a barrier that never completes is not told",
        "KernelSync::hangs",
        "                return hangs_at(*each, barrier);",
        "            return;",
    ),
    (
        "a mask that never completes is not told",
        "KernelSync::hangs_in_warps",
        "state_of(*warp).confused || hangs_in_warp(*warp)",
        "state_of(*warp).confused",
    ),
    (
        "a part of a warp may come to the aligned barrier of a cluster",
        "KernelSync::uses_cluster",
        "if (code.effects[size_t(&use.step - code.body.data())].aligned)",
        "if (false)",
    ),
    (
        "a thread may arrive twice at the barrier of a cluster",
        "KernelSync::uses_cluster",
        "arrives ? at_cluster : ~at_cluster",
        "arrives ? 0 : ~at_cluster",
    ),
    (
        "a thread may wait at the barrier of a cluster without arriving",
        "KernelSync::uses_cluster",
        "arrives ? at_cluster : ~at_cluster",
        "arrives ? at_cluster : 0",
    ),
    (
        "lanes that end instead of arriving at the barrier of a cluster",
        "KernelSync::completes_cluster",
        "            look_at_ended(*warp, *wait);\n",
        "",
    ),
    (
        "the other blocks of a cluster that hangs",
        "KernelSync::hangs",
        "    if (block.cluster)\n",
        "    if (false)\n",
    ),
    # ---- mbarriers ----
    (
        "an mbarrier needs no initialization",
        "KernelSync::uses_mbarrier",
        "if (!state || !state->valid) {",
        "if (state && !state->valid) {",
    ),
    (
        "an mbarrier stays valid",
        "KernelSync::uses_mbarrier",
        "block.mbarriers.set(use.address, use.kind == Kind::Initializes, here)",
        "block.mbarriers.set(use.address, true, here)",
    ),
    (
        "an mbarrier is never valid again",
        "Mbarriers::set",
        "    state.valid = valid;\n",
        "    state.valid = valid && !state.phase;\n",
    ),
    (
        "an mbarrier may change too often",
        "KernelSync::uses_mbarrier",
        "if (use.kind == Kind::Fails) {",
        "if (use.kind == Kind::Fails)\n        return;\n    if (false) {",
    ),
    # ---- unfinished copies ----
    (
        "a block may end before its copies",
        "KernelSync::before",
        "for_each_thread([&](unsigned thread) { copies.begin({place_of(warp, step), thread}); });",
        ";",
    ),
    (
        "a block may end before its bulk copies",
        "KernelSync::uses_mbarrier",
        "        block.copies.begin(here, use.address, state->phase);\n",
        "        ;\n",
    ),
    (
        "copies are never waited for",
        "UnfinishedCopies::await",
        "    while (of.groups.size() > groups_left)\n        of.groups.pop_front();\n",
        "",
    ),
    (
        "a wait for groups ends them all",
        "UnfinishedCopies::await",
        "of.groups.size() > groups_left",
        "of.groups.size()",
    ),
    (
        "a wait for groups ends copies that are in none, for the block",
        "UnfinishedCopies::await",
        "if (also_open)",
        "",
    ),
    (
        "copies that an mbarrier waits for are unfinished",
        "KernelSync::after",
        "            block.copies.ended(address, state->phase);",
        "            ;",
    ),
    (
        "a phase ends the copies of the next one",
        "UnfinishedCopies::ended",
        "return one.phase < phase;",
        "return true;",
    ),
    (
        "copies are not handed over to an mbarrier",
        "UnfinishedCopies::hand_over",
        "    threads_.erase(found);\n",
        "",
    ),
    (
        "a hazard has the threads of the block that ran first",
        "KernelSync::report",
        "if (!is_new && known->second <= where)",
        "if (!is_new)",
    ),
]

INIT = [
    # ---- how bits go through instructions ----
    ("a sum is exact to the bit", "Lane::low", "bits | -(bits & -bits)", "bits"),
    (
        "a choice is defined",
        "Lane::selected",
        "return source(0) | source(1) | (value(1, width) ^ value(2, width));",
        "return source(0) | source(1);",
    ),
    (
        "a choice has both values",
        "Lane::selected",
        "return value(3, 0) ? source(0) : source(1);",
        "return source(0) | source(1);",
    ),
    (
        "a comparison ignores defined bits that differ",
        "Lane::compared",
        "            return 0; // two defined bits differ",
        "            ;",
    ),
    (
        "a comparison by order ignores what it is",
        "Lane::compared",
        "if (flow_.detail && flow_.sources == 2) {",
        "if (flow_.sources == 2) {",
    ),
    (
        "a conjunction is undefined",
        "Lane::conjunction",
        "(a & may_hold_b) | (b & may_hold_a)",
        "a | b",
    ),
    (
        "a disjunction is a conjunction",
        "Lane::conjunction",
        "negated ? ~uint64_t{0} : 0",
        "0",
    ),
    ("a table has every value", "Lane::lookup", "return zero & one;", "return any();"),
    ("an unknown distance shifts by itself", "Lane::shifted", "if (source(1))", "if (false)"),
    (
        "a shift drops the sign",
        "Lane::shifted",
        "        mask = sign_extended(mask, bits);\n",
        "        ;\n",
    ),
    (
        "a shift of all bits is defined",
        "Lane::shifted",
        "return !left && flow_.is_signed && mask >> (bits - 1) & 1 ? all_bits(width) : 0;",
        "return 0;",
    ),
    (
        "a field has no sign",
        "Lane::extracted",
        "bool sign = flow_.is_signed && mask >> highest & 1;",
        "bool sign = false;",
    ),
    (
        "a field at an unknown place is defined",
        "Lane::extracted",
        "if (source(1) || source(2))",
        "if (false)",
    ),
    (
        "a field that is inserted is lost",
        "Lane::inserted",
        "(at < 64 ? source(0) << at & field : 0)",
        "0",
    ),
    (
        "a field that is replaced stays",
        "Lane::inserted",
        "(source(1) & ~field)",
        "source(1)",
    ),
    (
        "a permutation drops the sign",
        "Lane::permuted",
        "byte = byte & 0x80 ? 0xff : 0;",
        "byte = 0;",
    ),
    ("an unknown permutation is defined", "Lane::permuted", "if (source(2))", "if (false)"),
    (
        "a shuffle is from the own lane",
        "Lane::shuffled",
        "from < 0 ? lane_ : unsigned(from)",
        "lane_",
    ),
    (
        "a shuffle from an unknown lane is defined",
        "Lane::shuffled",
        "if (source(1) || source(2))",
        "if (false)",
    ),
    (
        "a vote counts lanes that are not in its mask",
        "Lane::of_warp",
        "& warp_.active & members",
        "& warp_.active",
    ),
    (
        "a ballot is undefined as a whole",
        "Lane::of_warp",
        "ballot ? undefined : ",
        "",
    ),
    ("a pack has only its first part", "Lane::packed", "<< bits * i", "<< 0"),
    (
        "a conversion drops the sign",
        "Lane::by_rule",
        "flow_.is_signed ? sign_extended(source(0) & kept, bits) : source(0) & kept",
        "source(0) & kept",
    ),
    (
        "a conversion keeps all bits",
        "Lane::by_rule",
        "bits >= 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;\n        return flow_",
        "~uint64_t{0};\n        return flow_",
    ),
    ("other results are defined", "Lane::by_rule", "return whole(width);", "return 0;"),
    (
        "a result has no origin",
        "propagate",
        "                result.origin = origin;",
        "                ;",
    ),
    (
        "a result that is not written under a condition is defined",
        "KernelInit::after",
        "unsure = registers.lanes(guard) & warp.mask;",
        "unsure = 0;",
    ),
    # ---- memory ----
    ("shared memory is defined", "KernelInit::starts", "begin(machine_.shared_bytes)", "begin(0)"),
    (
        "reserved shared memory is undefined",
        "KernelInit::starts",
        "        shared.write(machine_.reserved_begin, defined.size(), defined.data(), 0);\n",
        "",
    ),
    (
        "shared memory keeps what an earlier block wrote",
        "UndefinedBytes::begin",
        "masks_.assign(bytes, 0xff);",
        "if (masks_.size() != bytes)\n        masks_.assign(bytes, 0xff);",
    ),
    (
        "local memory is defined",
        "KernelInit::read",
        "local_[now_.warp].lanes[bytes.lane].read(bytes.address, bytes.count, masks, origin)",
        "false",
    ),
    (
        "local memory keeps what an earlier call wrote",
        "KernelInit::calls",
        "            local->second.lanes[lane].undefine(frame.local_begin,\n"
        "                                               "
        "frame.local_begin + frame.code->local_bytes);",
        "            ;",
    ),
    (
        "local memory keeps what an earlier block wrote",
        "KernelInit::calls",
        "            local->second.lanes[lane].begin(0);",
        "            ;",
    ),
    ("a load is defined", "KernelInit::load", "results_[i].origin = origin;", ";"),
    (
        "a load has no sign",
        "KernelInit::load",
        "mask = sign_extended(mask, 8u * effect.item_bytes);",
        ";",
    ),
    (
        "a store of undefined bits is defined",
        "KernelInit::store",
        "store.origin = mask ? now_.registers->origin(now_.sources[i]) : store.origin;",
        ";",
    ),
    (
        "an atomic may update what nobody wrote",
        "KernelInit::update",
        'found(origin, lane, "update", !stored);',
        ";",
    ),
    (
        "an exchange is an update",
        "KernelInit::update",
        "if (!exchanges)",
        "if (true)",
    ),
    (
        "an exchange returns what is defined",
        "KernelInit::update",
        "                give_back(store, origin);\n",
        "                ;\n",
    ),
    (
        "an atomic with an undefined operand stores what is defined",
        "KernelInit::update",
        "                store.masks.fill(0xff);\n",
        "",
    ),
    (
        "a copy of undefined bytes is defined",
        "KernelInit::copy",
        "            store.origin = origin_of(source, store.masks.data(), stored);\n",
        "            store.masks.fill(0);\n",
    ),
    (
        "clean pages stay clean",
        "KernelInit::is_clean",
        "if (known.page == page && known.version == version)",
        "if (known.page == page && known.version != ~uint64_t{0})",
    ),
    (
        "a write of hardware leaves memory undefined",
        "KernelInit::uses",
        "write(warp, {lane, space, address + done, std::min(bytes - done, sizeof zeros)}, "
        "zeros, 0);",
        ";",
    ),
    # ---- matrices ----
    (
        "a product depends on B and C only",
        "KernelInit::multiply_matrices",
        "        look_at_fragment(*now_.registers, a, matrix, rows, rows_of(a));\n",
        "",
    ),
    (
        "a product depends on A and C only",
        "KernelInit::multiply_matrices",
        "        look_at_fragment(*now_.registers, b, matrix, columns, columns_of(b));\n",
        "",
    ),
    (
        "a product depends on A and B only",
        "KernelInit::multiply_matrices",
        "        look_at_fragment(*now_.registers, c, matrix, sums, same);\n",
        "",
    ),
    (
        "an undefined row of A is all of A",
        "multiply",
        "a.any[row] ",
        "a.origin ",
    ),
    (
        "the four matrices of a warp are one",
        "look_at_fragment",
        "fragment.matrix_of(lane) != matrix ||",
        "",
    ),
    (
        "ldmatrix ignores .trans",
        "KernelInit::load_rows",
        "ptx::small_place(lane, which, transposes)",
        "ptx::small_place(lane, which, false)",
    ),
    (
        "stmatrix ignores .trans",
        "KernelInit::store_rows",
        "ptx::small_place(lane, which, transposes)",
        "ptx::small_place(lane, which, false)",
    ),
    (
        "what stmatrix stores is defined",
        "KernelInit::write_used",
        "    write(*now_.warp, written, masks, origin);\n",
        "",
    ),
    (
        "movmatrix does not transpose",
        "KernelInit::transpose_matrix",
        "    each(true, ",
        "    each(false, ",
    ),
    (
        "items of wmma are undefined as a whole",
        "KernelInit::load_fragment",
        "bits < 8 ? whole : ",
        "true ? whole : ",
    ),
    (
        "wgmma always adds to D",
        "KernelInit::multiply_together",
        "        if (adds)\n",
        "",
    ),
    (
        "wgmma never adds to D",
        "KernelInit::multiply_together",
        "        if (adds)\n",
        "        if (false)\n",
    ),
    (
        "a transposed matrix of wgmma is not",
        "note",
        "transposed ? first + i / bytes : row",
        "row",
    ),
    (
        "wgmma takes A from memory",
        "KernelInit::multiply_together",
        "        if (!a_in_memory)\n",
        "        if (false)\n",
    ),
    (
        "what a bulk copy copies is defined",
        "KernelInit::moves",
        "            write(*now_.warp, to, masks.data(), origin_of(from, masks.data(), stored));",
        "            ;",
    ),
    (
        "a bulk reduction may update what nobody wrote",
        "KernelInit::update_items",
        'found(origin_of(to, masks.data(), stored, true), move.lane, "update", !stored);',
        ";",
    ),
    (
        "a bulk reduction with undefined items stores what is defined",
        "KernelInit::update_items",
        "            masks.fill(0xff);\n",
        "            ;\n",
    ),
    (
        "addresses of matrices may be undefined",
        "items_among_sources",
        "        return 0;",
        "        return 255;",
    ),
    (
        "items of stmatrix must be defined",
        "items_among_sources",
        "        return step.detail & ptx::matrices_mask;",
        "        return 0;",
    ),
    # ---- what is reported ----
    (
        "a branch may have an undefined condition",
        "KernelInit::before",
        "        check_guard();\n",
        "",
    ),
    (
        "any condition matters",
        "KernelInit::check_guard",
        "if (undefined && now_.flow->decides)",
        "if (undefined)",
    ),
    (
        "addresses may be undefined",
        "KernelInit::check_sources",
        "if (accesses && !flow.needs_all && now_.effect->space != Space::Param)",
        "if (false)",
    ),
    (
        "operands of barriers may be undefined",
        "KernelInit::check_sources",
        "i + items < flow.sources",
        "i + 1 < 1",
    ),
    (
        "one bug is told again and again",
        "KernelInit::check_register",
        "        now_.registers->define(part, undefined);\n",
        "        ;\n",
    ),
    (
        "what is printed may be undefined",
        "KernelInit::prints",
        '        found(origin_of(part, masks.data(), stored), lane, "argument of printf");\n',
        "",
    ),
    (
        "an argument of a function is defined",
        "KernelInit::passes",
        "target.set(row, 1u << lane, origin ? all : Masks{}, origin);",
        ";",
    ),
    (
        "an argument of a function in memory is defined",
        "KernelInit::passes",
        "local.lanes[lane].write(to.local_begin + part.to, bytes, masks.data(), origin);",
        ";",
    ),
]

KINDS = {"race": RACES, "sync": SYNC, "init": INIT}  # by the beginning of the tests' names
MUTATIONS = RACES + SYNC + INIT


@functools.cache
def functions():
    """By the name of a function: the path, the text, and where the function begins and ends."""
    found = collections.defaultdict(list)
    for path in sorted(CHECK.iterdir()):
        text = path.read_text(encoding="utf-8")
        for each in FUNCTION.finditer(text):
            found[each[2]].append((path, text, each.start(), each.end()))
    return found


def changed(function, old, new):
    """Return the path and the text of a source with a change in one function, or None.

    It returns None unless the functions of this name contain the old text exactly once.
    """
    made = []
    for path, text, begin, end in functions()[function]:
        count = text[begin:end].count(old)
        made += [(path, text[:begin] + text[begin:end].replace(old, new) + text[end:])] * count
    return made[0] if len(made) == 1 else None


class Tree:
    """The software driver of this checkout, of whose folder `check` a file may be exchanged."""

    def __init__(self, folder, jobs):
        self.folder = folder
        self.compiler = os.environ.get("CXX", "g++").split()
        # The build compiles the folder as one file, in which this header comes first, so it is
        # included first here, too.
        self.flags = [*setup.CXX_FLAGS, "-O1", "-fPIC", "-w", "-include", "base/cuda_api.h"]
        self.flags += ["-isystem", str(cuda_header.find_cuda_header().folder)]
        self.flags += ["-isystem", sysconfig.get_path("include")]
        (built,) = (ROOT / "build").glob(f"temp.*-{sys.implementation.cache_tag}")
        units = setup.units(setup.SOFTDRIVER, str(built.relative_to(ROOT)))
        names = [name for name in units if Path(name).stem != "check"]
        self.others = [str(built / name.replace(".cpp", ".o")) for name in names]
        with ThreadPoolExecutor(jobs) as pool:
            sources = sorted(CHECK.glob("*.cpp"))
            compiled = pool.map(lambda path: self._compile(path, folder, ROOT), sources)
            self.objects = dict(zip(sources, compiled, strict=True))

    def build(self, folder, path=None, text=""):
        """Build the driver in a folder, with another text of one file. Return its path."""
        objects = dict(self.objects)
        if path:
            Path(folder, "check").mkdir()
            for other in CHECK.iterdir():  # a source finds the headers that are beside it first
                Path(folder, "check", other.name).write_bytes(other.read_bytes())
            Path(folder, "check", path.name).write_text(text, encoding="utf-8")
            for source in [path] if path.suffix == ".cpp" else objects:
                objects[source] = self._compile(Path(folder, "check", source.name), folder, folder)
        driver = Path(folder, "libcuda.so.1")
        linked = [*setup.CXX_LINK_FLAGS, "-shared", "-ldl", "-o", str(driver)]
        self._run([*self.compiler, *self.others, *map(str, objects.values()), *linked])
        return driver

    def _compile(self, source, folder, first):
        target = Path(folder, f"{source.stem}.o")
        command = [*self.compiler, "-iquote", str(first), *self.flags, "-c", str(source)]
        self._run([*command, "-o", str(target)])
        return target

    def _run(self, command):
        made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if made.returncode:
            raise RuntimeError(made.stderr[-2000:])


def first_failure(driver, names=("",)):
    """The first test that fails with a driver, or None. `names` are beginnings of files."""
    files = [str(path) for name in names for path in sorted(TESTS.glob(f"test_{name}*.py"))]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-n", "0"]
    command += [f"--cuda-driver={driver}", "--timeout=60", "-rf", *files]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, errors="replace")
    if ran.returncode == 0:
        return None
    failed = re.search(
        r"^(?:FAILED|ERROR) \S*?(test_\w+\.py::.*?)(?: - |$)", ran.stdout, re.MULTILINE
    )
    return failed[1] if failed else f"exit status {ran.returncode}"


def tried(tree, mutation):
    name, function, old, new = mutation
    made = changed(function, old, new)
    if not made:
        return name, "does not apply"
    with tempfile.TemporaryDirectory() as folder:
        try:
            driver = tree.build(folder, *made)
        except RuntimeError as error:
            return name, f"does not compile: {error}"
        own = next(key for key, each in KINDS.items() if mutation in each)
        return name, first_failure(driver, [own]) or first_failure(driver)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    chosen = [each for each in MUTATIONS if not args.names or each[0] in args.names]
    missed = 0
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(args.jobs) as pool:
        tree = Tree(folder, args.jobs)
        if found := first_failure(tree.build(folder)):
            sys.exit(f"the tests fail without a mutation: {found}")
        for name, found in pool.map(lambda mutation: tried(tree, mutation), chosen):
            missed += not found or found.startswith("does not")
            print(f"{name}\n    {found or 'NOT NOTICED'}", flush=True)
    print(f"{len(chosen)} mutations, {missed} not caught")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
