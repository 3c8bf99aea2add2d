"""Removes the rules of exploring, one at a time, and prints which tests notice.

    python tests/explore/mutations.py [name ...]

Each of MUTATIONS is (name, file, old text, new text). The old text occurs once in the file. For
each mutation, a copy of the tree gets the software driver with this mutation. There the comparisons
of all orders with the orders of the search run again, and the tests of limits and of failures.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import cuda_header
import setup

ROOT = Path(__file__).resolve().parents[2]
STEPS, RUN, SEARCH = "work/steps.cpp", "explore/run.cpp", "explore/search.cpp"
CHOOSE, CHOOSER = "work/choose.cpp", "explore/chooser.cpp"
COPIED = ["cudadrv", "softdriver", "tests", "pytest_cudadrv.py", "pyproject.toml"]
# The tests of choices and of the search are quick, and find most mutations of RULES. For mutations
# of LIMITS they run last.
TESTS = [
    f"tests/explore/test_{name}.py"
    for name in (
        *("choices", "search", "free_choices", "limits"),
        *("left_behind", "host_uses", "failures"),
    )
]
TESTS += [
    f"tests/explore/test_plugin.py::test_{name}"
    for name in (
        "a_run_that_differs",
        "a_script_that_does_not_fit",
        "a_wait_that_never_ends_in_the_first_order",
    )
]
# Tests of what else the plugin does take long, and one test reads only the names in the sources.
LEFT_OUT = "without_an_end or no_run_ends or interrupt or json or in_another_order or set_of_texts"
LEFT_OUT += " or set_in_one_way"
PATIENCE = 600

RULES = [
    ("two writes commute", RUN, "overlap(writes, other.writes) || ", ""),
    ("a write and a later read commute", RUN, "overlap(writes, other.reads) ||\n", "\n"),
    ("a read and a later write commute", RUN, " ||\n           overlap(reads, other.writes)", ""),
    ("an end changes nothing", STEPS, "    touched.writes.push_back(end_of(operation));\n", ""),
    (
        "a query asks for nothing",
        STEPS,
        "        step.touched.reads.push_back(end_of(*operation));\n",
        "        static_cast<void>(operation);\n",
    ),
    (
        "a host function shares nothing with the host",
        STEPS,
        "        touched.writes.push_back(explore::mark_of_host);\n",
        "",
    ),
    (
        "the host sees nothing of host functions",
        STEPS,
        "    step.touched.reads.push_back(explore::mark_of_host);\n",
        "",
    ),
    (
        "a conditional node reads no value",
        STEPS,
        "        touched.reads.push_back(condition(number));\n",
        "        static_cast<void>(number);\n",
    ),
    (
        "a kernel sets no value of a conditional node",
        STEPS,
        "        touched.writes.push_back(condition(number));\n",
        "        static_cast<void>(number);\n",
    ),
    (
        "output of kernels commutes",
        STEPS,
        "    if (outcome.prints)\n        touched.writes.push_back(explore::mark_of_output);\n",
        "",
    ),
    (
        "malloc of kernels commutes",
        STEPS,
        "    if (outcome.allocates)\n        touched.writes.push_back(explore::mark_of_heap);\n",
        "",
    ),
    ("atomic accesses commute", STEPS, "    add(touched.writes, outcome.updates);\n", ""),
    (
        "a kernel uses nothing before it lets the next one begin",
        STEPS,
        "    add_outcome(step.touched, operation, outcome);\n",
        "",
    ),
    (
        "a kernel uses nothing before it waits for the one before",
        STEPS,
        "    add_early(step.touched, outcome);\n",
        "",
    ),
    (
        "an error of a kernel commutes",
        STEPS,
        "    (fails ? touched.writes : touched.reads).push_back(device);\n",
        "    touched.reads.push_back(device);\n",
    ),
    (
        "a long kernel commutes",
        CHOOSE,
        "            unknown.status = CUDA_ERROR_UNKNOWN;\n",
        "",
    ),
    (
        "uses of registered memory by the host are seen",
        STEPS,
        "        if (!memory || memory->on_device() ||",
        "        if (!memory || memory->kind == MemoryKind::Registered || memory->on_device() ||",
    ),
    (
        "a wait tells the host nothing",
        STEPS,
        "    known_.join(*operation.before);\n"
        "    known_.raise(operation.track->slot, operation.tick - !itself);\n",
        "    static_cast<void>(itself);\n",
    ),
    (
        "work is not behind the host's last look",
        STEPS,
        "        after.push_back(operation.behind - 1);\n",
        "        static_cast<void>(after);\n",
    ),
    (
        "the program's memory is where it was",
        RUN,
        "            range = {of_program, of_program};\n",
        "            static_cast<void>(range);\n",
    ),
    (
        "a copy reads its source in its turn",
        "stream/copy_batch.cpp",
        "    return copy.order == Order::Any && state().chooser.replays() &&\n",
        "    return copy.order == Order::Any && state().chooser.replays() && false &&\n",
    ),
    (
        "a sleeper never wakes",
        SEARCH,
        "sleeper.actor != node.chosen && !sleeper.next.conflicts(node.made.touched)",
        "sleeper.actor != node.chosen",
    ),
    (
        "nobody sleeps",
        SEARCH,
        "        node.explored.push_back({node.chosen, node.made.touched.in_any_run()});\n",
        "        node.explored.push_back({node.chosen, {{}, {{0, ~size_t(0)}}}});\n",
    ),
    # ---- what steps use ----
    ("reads commute with what they read", STEPS, "        foreseen.reads = operation.reads;\n", ""),
    ("copies and fills write nothing", STEPS, "        foreseen.writes = operation.writes;\n", ""),
    (
        "a kernel uses nothing",
        STEPS,
        "    if (outcome)\n        add_outcome(touched, operation, *outcome);\n",
        "",
    ),
    ("a kernel reads nothing", STEPS, "    add(touched.reads, outcome.reads);\n", ""),
    ("a kernel writes nothing", STEPS, "    add(touched.writes, outcome.writes);\n", ""),
    (
        "a condition is not set before the graph begins",
        STEPS,
        "    foreseen.conditions_set = operation.conditions_set;\n",
        "",
    ),
    (
        "a host function reads nothing",
        STEPS,
        "        add(touched.reads, state().host_uses.reads_of_function());\n",
        "        state().host_uses.reads_of_function();\n",
    ),
    (
        "a host function writes nothing",
        STEPS,
        "        add(touched.writes, state().host_uses.writes_of_function());\n",
        "        state().host_uses.writes_of_function();\n",
    ),
    (
        "a kernel reads nothing before it waits for the one before",
        STEPS,
        "    add(touched.reads, outcome.early_reads);\n",
        "",
    ),
    (
        "a kernel writes nothing before it waits for the one before",
        STEPS,
        "    add(touched.writes, outcome.early_writes);\n",
        "",
    ),
    (
        "a kernel changes nothing atomically before it waits for the one before",
        STEPS,
        "    add(touched.writes, outcome.early_updates);\n",
        "",
    ),
    (
        "what a kernel has used before it waited is used later, too",
        STEPS,
        "    if (outcome && !operation.chain)\n",
        "    if (outcome)\n",
    ),
    (
        "a kernel without a chain uses nothing before it waits",
        STEPS,
        "        add_early(touched, *outcome);\n",
        "        static_cast<void>(outcome);\n",
    ),
    (
        "a part of a kernel comes behind an error, too",
        STEPS,
        "    step.touched.reads.push_back(explore::mark_of_device(device.ordinal));\n"
        "    Outcome outcome",
        "    static_cast<void>(device);\n    Outcome outcome",
    ),
    (
        "work that an error drops is no step",
        STEPS,
        "        made(*operation, std::move(step));\n",
        "        static_cast<void>(step);\n",
    ),
    (
        "work that an error drops commutes with the error",
        STEPS,
        "        step.touched.reads.push_back(explore::mark_of_device(device.ordinal));\n"
        "        if (",
        "        static_cast<void>(device);\n        if (",
    ),
    (
        "a wait for a value that an error drops reads nothing",
        STEPS,
        "        if (step.waits_for_value)\n"
        "            add(step.touched.reads, operation->reads);\n",
        "",
    ),
    (
        "work that a program leaves behind is no step",
        "api/explore_process.cpp",
        "    state().scheduler.record_left();\n",
        "",
    ),
    (
        "work that a test leaves behind is no step",
        "api/explore.cpp",
        "    driver.scheduler.record_left();\n",
        "",
    ),
    (
        "a kernel that is left behind uses nothing",
        STEPS,
        "operation.pieces ? &unknown : nullptr",
        "nullptr",
    ),
    (
        "the host uses no memory",
        STEPS,
        "    add(writes ? step.touched.writes : step.touched.reads, {page});\n",
        "    static_cast<void>(page);\n",
    ),
    (
        "the host writes no memory",
        STEPS,
        "add(writes ? step.touched.writes :",
        "add(false ? step.touched.writes :",
    ),
    # ---- the names of memory ----
    (
        "freed memory has another name in each run",
        STEPS,
        "        if (next == freed_.begin())\n",
        "        if (next == freed_.begin() || true)\n",
    ),
    (
        "memory has its address",
        STEPS,
        "    if (number < first_.allocation)\n        return range;\n",
        "    if (number + 1)\n        return range;\n",
    ),
    (
        "conditions and operations have other names in each run",
        STEPS,
        "return number >= first ? number - first : of_earlier_runs + number;",
        "return number >= first ? number : of_earlier_runs + number;",
    ),
    # ---- what is ordered ----
    (
        "the host knows what was before, and not the operation itself",
        STEPS,
        "    known_.raise(operation.track->slot, operation.tick - !itself);\n",
        "    static_cast<void>(itself);\n",
    ),
    (
        "a wait is not behind its operations",
        STEPS,
        "            step.after.push_back(operation->step - 1);\n    look",
        "            static_cast<void>(operation);\n    look",
    ),
    (
        "the program orders nothing",
        STEPS,
        "    if (mark.before)\n        add_ordered(after, *mark.before);\n",
        "    static_cast<void>(mark);\n",
    ),
    (
        "the parts of an operation are not ordered",
        STEPS,
        "        if (!wait->mark.track && in_run(*wait) && wait->step)\n"
        "            after.push_back(wait->step - 1);\n",
        "        static_cast<void>(wait);\n",
    ),
    (
        "an early kernel is behind the whole one before",
        STEPS,
        "kernel.first_pause ? kernel.first_pause : kernel.step",
        "kernel.step",
    ),
    (
        "operations of an earlier run are of this one",
        STEPS,
        "    return operation.run == state().chooser.run_number();\n",
        "    return operation.run + 1;\n",
    ),
    # ---- which choices there are ----
    (
        "a query never answers early",
        CHOOSE,
        "        if (choose_next(lock, !polls, ready))\n",
        "        if (choose_next(lock, !polls && (done || ready.empty()), ready))\n",
    ),
    (
        "the host goes on when its wait is over",
        CHOOSE,
        "            if (choose_next(lock, done, ready))\n",
        "            if (done || choose_next(lock, done, ready))\n",
    ),
    (
        "the host uses memory at once",
        CHOOSE,
        "        if (choose_next(lock, !waits, ready))\n",
        "        if (!waits || choose_next(lock, !waits, ready))\n",
    ),
    (
        "early answers are counted over the whole run",
        CHOOSE,
        "    early_answers_ = 0;\n    runs_again();\n",
        "    runs_again();\n",
    ),
    (
        "a kernel does not begin before the previous one has ended",
        CHOOSE,
        "            if (i && (next->predecessor",
        "            if (i || (next->predecessor",
    ),
    (
        "a kernel is one step up to its end",
        CHOOSE,
        "                     (lets_next && !operation->let_next_begin);\n",
        "                     (lets_next && false);\n",
    ),
    (
        "a kernel does not stop where it waits",
        CHOOSE,
        "(waits && !operation->has_waited) ||",
        "(waits && false) ||",
    ),
    (
        "work that is required comes in any place",
        CHOOSE,
        "        return std::make_pair(!required, operation->turn);\n",
        "        return std::make_pair(required && false, operation->turn);\n",
    ),
    (
        "a query asks for the work that is left",
        "stream/stream.cpp",
        "known ? awaited : stream_targets(*stream)",
        "known && false ? awaited : stream_targets(*stream)",
    ),
    (
        "a kernel in a body does not begin early",
        "graph/branches.cpp",
        "(!whole_ || state().chooser.replays())",
        "!whole_",
    ),
    (
        "the copies of a batch are one operation",
        "stream/copy_batch.cpp",
        "parts.size() <= most_apart && state().chooser.replays();",
        "parts.size() <= most_apart && false;",
    ),
    (
        "a kernel that begins early is not split",
        "code/kernel_run.cpp",
        "    splits_ = state().chooser.replays();\n",
        "    splits_ = false;\n",
    ),
    # ---- the search ----
    ("the other order of a new step is not looked for", SEARCH, "i >= branch_", "i > branch_"),
    (
        "the orders of the program may be reversed",
        SEARCH,
        "            join(order, orders[earlier]);\n        // A wait",
        "            static_cast<void>(earlier);\n        // A wait",
    ),
    (
        "a conflict orders nothing",
        SEARCH,
        "            join(order, orders[earlier]);\n            if (",
        "            if (",
    ),
    (
        "a wait for a value is behind what has let it run",
        SEARCH,
        "if (!step.waits_for_value || contains(other.options, step.actor))",
        "if (true)",
    ),
    (
        "the later step is always first",
        SEARCH,
        "    if (is_first)\n        initials",
        "    if (is_first || true)\n        initials",
    ),
    (
        "a step that depends on others is first",
        SEARCH,
        "other < i && before(other, i)",
        "other < i && before(other, i) && false",
    ),
    (
        "a plan forgets who slept before",
        SEARCH,
        "            for (const auto *list : {&node.sleepers, &node.explored})\n"
        "                plan.sleepers",
        "            for (const auto *list : {&node.explored})\n                plan.sleepers",
    ),
    (
        "a sleeper is forgotten after one step",
        SEARCH,
        "    for (const auto *list : {&node.sleepers, &node.explored})\n        for (const Sleeper",
        "    for (const auto *list : {&node.explored})\n        for (const Sleeper",
    ),
    (
        "a run may use other memory than the one before",
        SEARCH,
        "run.steps[i].name == node.made.name &&\n"
        "                                      run.steps[i].touched == node.made.touched",
        "run.steps[i].name == node.made.name",
    ),
    (
        "a run may make other calls than the one before",
        SEARCH,
        "run.steps[i].name == node.made.name &&\n"
        "                                      run.steps[i].touched",
        "run.steps[i].touched",
    ),
    (
        "a run may have other choices than the one before",
        SEARCH,
        "run.steps[i].options == node.options &&\n                    ",
        "",
    ),
    (
        "limits of runs are forgotten",
        SEARCH,
        "    limits_.insert(run.limits.begin(), run.limits.end());\n",
        "",
    ),
    (
        "a test with many steps is complete",
        SEARCH,
        "        limits_.insert(text_of(Limit::Steps));\n",
        "",
    ),
    (
        "a redundant run is a new one",
        CHOOSER,
        "        redundant_ |= slept;\n",
        "        static_cast<void>(slept);\n",
    ),
    (
        "sleepers are chosen",
        CHOOSER,
        "priorities_ ? of_priority(options) : first_awake(options)",
        "priorities_ ? of_priority(options) : 0",
    ),
    (
        "a choice that is not there is the first one",
        CHOOSER,
        "            if (!run_.stopped && run_.misfit.empty())\n",
        "            if (false)\n",
    ),
    (
        "a script may be too long",
        CHOOSER,
        "    if (!run_.stopped && run_.misfit.empty() && next_ < script_.size())\n",
        "    if (false)\n",
    ),
    (
        "sleepers wake before their state",
        CHOOSER,
        "    if (next_ == script_.size()) {\n",
        "    if (next_ <= script_.size()) {\n",
    ),
]

LIMITS = [
    # ---- the run with all waits ----
    (
        "the run with all waits has none for freed memory",
        CHOOSER,
        "strongest_ && is_weakest_first(choice) ? count - 1 : 0",
        "0",
    ),
    (
        "the run with all waits has none for small sources",
        "stream/transfer.cpp",
        "        snapshot = !state().chooser.is_strongest();\n",
        "",
    ),
    (
        "a copy from a small source may not wait",
        "stream/transfer.cpp",
        "        state().chooser.may_wait();\n",
        "",
    ),
    (
        "a copy from a small source may wait for nothing",
        "stream/transfer.cpp",
        "    if (snapshot && state().scheduler.pending()) {\n",
        "    if (snapshot) {\n",
    ),
    (
        "a free may not wait",
        "memory/device_memory.cpp",
        "            state().chooser.may_wait();\n",
        "            static_cast<void>(0);\n",
    ),
    (
        "a free may wait for nothing",
        "memory/device_memory.cpp",
        "        if (state().scheduler.pending())\n            state()",
        "            state()",
    ),
    (
        "the script of the run with all waits has no s",
        CHOOSER,
        "        run_.choices.push_back(strongest);\n",
        "        static_cast<void>(0);\n",
    ),
    ("the s of a script is a choice", CHOOSER, "    next_ = strongest_;\n", "    next_ = 0;\n"),
    (
        "no run has all waits",
        "cudadrv/_explore.py",
        "self.waits_less and self.has_time()",
        "False",
    ),
    (
        "a run with all waits comes after each test",
        "cudadrv/_explore.py",
        "self.waits_less and self.has_time()",
        "self.has_time()",
    ),
    # ---- what forbids "complete" ----
    (
        "a draw that a search does not know is no limit",
        CHOOSER,
        "        limit(Limit::Unlogged);\n",
        "        static_cast<void>(0);\n",
    ),
    (
        "a draw of the weakest is a limit",
        CHOOSER,
        "count > 1 && !is_weakest_first(choice)",
        "count > 1",
    ),
    (
        "threads are no limit",
        CHOOSE,
        "        chooser.stop(Limit::Threads);\n",
        "        static_cast<void>(0);\n",
    ),
    (
        "threads are a limit, but what they do is learned from",
        CHOOSE,
        "        chooser.stop(Limit::Threads);\n",
        "        chooser.limit(Limit::Threads);\n",
    ),
    (
        "threads of an earlier run are of this one",
        CHOOSE,
        "threaded_run_ != chooser.run_number()",
        "!threaded_run_",
    ),
    (
        "a long kernel is no limit",
        CHOOSE,
        "            state().chooser.limit(Limit::LongKernel);\n",
        "",
    ),
    (
        "a function that waits is no limit",
        CHOOSE,
        "            state().chooser.stop(Limit::FunctionWaits);\n",
        "",
    ),
    (
        "polling is no limit",
        CHOOSE,
        "            chooser.limit(Limit::Asks);\n",
        "            static_cast<void>(0);\n",
    ),
    (
        "functions that Python keeps waiting are no limit",
        CHOOSE,
        "            chooser.limit(Limit::FunctionBeforeUse);\n",
        "",
    ),
    (
        "polling memory is no limit",
        CHOOSE,
        "            chooser.stop(Limit::Polls);\n",
        "            static_cast<void>(0);\n",
    ),
    (
        "polling memory is a limit, but what follows is learned from",
        CHOOSE,
        "            chooser.stop(Limit::Polls);\n",
        "            chooser.limit(Limit::Polls);\n",
    ),
    (
        "a wait that does not end is no limit",
        CHOOSE,
        "        chooser.limit(Limit::Wait);\n",
        "        static_cast<void>(0);\n",
    ),
    (
        "a deadlock is a wait that does not end",
        CHOOSE,
        "    bool never = never_ends();\n",
        "    bool never = false;\n",
    ),
    (
        "work of other processes is a deadlock",
        CHOOSE,
        "run.stopped || run.limits.count(text_of(Limit::Shared))",
        "run.stopped",
    ),
    (
        "work of other threads is a deadlock",
        CHOOSE,
        "run.stopped || run.limits.count",
        "run.limits.count",
    ),
    (
        "the time of an event is no limit",
        "stream/event.cpp",
        "    state().chooser.limit(explore::Limit::EventTime);\n",
        "",
    ),
    (
        "the time in a kernel is no limit",
        "code/launch.cpp",
        "        driver.chooser.limit(explore::Limit::KernelTime);\n",
        "        static_cast<void>(0);\n",
    ),
    (
        "a function of a user object is no limit",
        "graph/user_object.cpp",
        "    state().chooser.limit(explore::Limit::UserObject);\n",
        "",
    ),
    (
        "memory in many pieces is no limit",
        "memory/host_uses.cpp",
        "        state().chooser.limit(explore::Limit::Pieces);\n",
        "        static_cast<void>(0);\n",
    ),
    (
        "other processes are no limit",
        "api/explore_process.cpp",
        "        run.limits.insert(text_of(explore::Limit::Processes));\n",
        "        static_cast<void>(0);\n",
    ),
    (
        "an event that is given away is no limit",
        "stream/shared_event.cpp",
        "        return CUDA_ERROR_INVALID_HANDLE;\n"
        "    state().chooser.limit(explore::Limit::Shared);\n",
        "        return CUDA_ERROR_INVALID_HANDLE;\n",
    ),
    (
        "an event of another process is no limit",
        "stream/shared_event.cpp",
        "    event->shared = std::move(shared);\n"
        "    state().chooser.limit(explore::Limit::Shared);\n",
        "    event->shared = std::move(shared);\n",
    ),
    (
        "memory that is given away is no limit",
        "memory/ipc.cpp",
        "    state().chooser.limit(explore::Limit::Shared);\n    handle = ",
        "    handle = ",
    ),
    (
        "memory of another process is no limit",
        "memory/ipc.cpp",
        "imported = true;\n    state().chooser.limit(explore::Limit::Shared);\n",
        "imported = true;\n",
    ),
    (
        "virtual memory that is given away is no limit",
        "memory/virtual_share.cpp",
        "sizeof(file));\n    state().chooser.limit(explore::Limit::Shared);\n",
        "sizeof(file));\n",
    ),
    (
        "virtual memory of another process is no limit",
        "memory/virtual_share.cpp",
        "    *handle = backing->handle;\n    state().chooser.limit(explore::Limit::Shared);\n",
        "    *handle = backing->handle;\n",
    ),
]

MUTATIONS = RULES + LIMITS


def changed(file, old, new):
    """Return the text of a file with the mutation. Files are those of the software driver."""
    text = source_of(ROOT, file).read_text(encoding="utf-8")
    if text.count(old) != 1:
        raise ValueError(f"{file} has the old text {text.count(old)} times: {old!r}")
    return text.replace(old, new)


def source_of(tree, file):
    return tree / file if file.endswith(".py") else tree / "softdriver" / file


def copy_of(tree):
    """Copy what the tests need, because programs that they start look for the driver, too."""
    tree.mkdir()
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(
                ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__", "external")
            )
        else:
            shutil.copy2(ROOT / name, tree / name)


def build(tree, file):
    """Build the software driver of a tree, with the objects of the last build for the rest."""
    unit = file.partition("/")[0]
    everything = tree / "unit.cpp"
    sources = sorted((tree / "softdriver" / unit).glob("*.cpp"))
    sources = [path for path in sources if path.stem not in setup.ALONE]
    everything.write_text("".join(f'#include "{path}"\n' for path in sources))
    mutated = tree / f"{unit}.o"
    compiler = os.environ.get("CXX", "g++").split()
    flags = [*setup.CXX_FLAGS, "-O1", "-fPIC", "-w", "-iquote", str(tree / "softdriver")]
    flags += ["-isystem", str(cuda_header.find_cuda_header().folder)]
    flags += ["-isystem", sysconfig.get_path("include")]
    subprocess.run([*compiler, *flags, "-c", everything, "-o", mutated], cwd=tree, check=True)
    objects = [path for path in ROOT.glob("build/temp*/build/temp*/*.o") if path.stem != unit]
    objects += ROOT.glob("build/temp*/softdriver/*/*.o")  # files that are no part of a unit
    (driver,) = (tree / "cudadrv").glob("_softdriver.*.so")
    driver.unlink()
    linked = [*setup.CXX_LINK_FLAGS, "-shared", "-ldl", "-o", driver]
    subprocess.run([*compiler, mutated, *objects, *linked], cwd=tree, check=True)


def first_failure(tree, tests):
    command = [sys.executable, "-m", "pytest", "-q", "-x", "--tb=no", "-p", "no:benchmark"]
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    try:
        done = subprocess.run(
            [*command, "-k", f"not ({LEFT_OUT})", *tests],
            cwd=tree,
            env=environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
    except subprocess.TimeoutExpired:
        return "never end"
    lines = done.stdout.splitlines()
    failed = next((line for line in lines if line.startswith(("FAILED", "ERROR"))), None)
    if done.returncode < 0:
        return f"signal {-done.returncode}"
    if failed is None and done.returncode:
        raise RuntimeError(f"pytest ended with status {done.returncode}:\n{done.stdout[-2000:]}")
    return failed


def tried(file, text, tests=TESTS):
    """Return the first test that notices that a file has another text, or None."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder, "tree")
        copy_of(tree)
        source_of(tree, file).write_text(text, encoding="utf-8")
        if not file.endswith(".py"):
            build(tree, file)
        return first_failure(tree, tests)


def main(names):
    if failure := tried(CHOOSER, source_of(ROOT, CHOOSER).read_text(encoding="utf-8")):
        sys.exit(f"the tests fail without a mutation: {failure}")
    unnoticed = []
    for name, file, old, new in MUTATIONS:
        if names and name not in names:
            continue
        tests = TESTS if (name, file, old, new) in RULES else TESTS[2:] + TESTS[:2]
        failure = tried(file, changed(file, old, new), tests)
        print(f"{name}: {failure or 'NOT NOTICED'}", flush=True)
        if failure is None:
            unnoticed.append(name)
    return len(unnoticed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
