"""There are few ways to begin an operation, and few to refuse one."""

import importlib.util
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HEADERS = sorted(ROOT.glob("include/cudadrv/*.h"))
CYTHON = sorted([*ROOT.glob("pyx/*/_*.pyx"), *ROOT.glob("cudadrv/_*.pxd")])
MOST_ENTRIES = 9
# Functions that call `issue` and raise the exception for its reason themselves, and why `queue`
# cannot do it for them.
BY_HAND = {
    "_signal._capture_set": "the capture issues it",
    "_signal._capture_wait": "the capture issues it",
    "_signal._queue_set": "another thread may have set a larger number",
    "_array_copy.copy_texels_async": "looks for the context that is lost",
    "_copy._copy_across": "looks for the context that is lost",
    "_copy_batch._queue": "finds the regions of the accesses only for a refusal",
    "_custom._issue": "begins again if the variables of a kernel have changed",
    "_graph._refuse_unordered": "asks, and then another function issues it",
    "_graph._launch": "has runs, and names the nodes of the graph",
    "_graph.ExecutableGraph.upload": "uses no memory, so only the driver or a capture refuses it",
    "_host_function._capture": "the capture issues it",
    "_kernel._ask_without_arrays": "names arguments, and says how to declare them",
    "_kernel.launch_packed": "begins again if the module has changed; names arguments",
    "_loan.Lent.begin_in_capture": "the capture issues it",
    "_loan.Lent.use": "the capture may issue it, and a loan never takes the fast path",
    "_memory._write_on": "returns some reasons to its caller",
    "_staging._run": "issues in a loop without the GIL",
}


def load_sources():
    path = ROOT / "tests" / "ownership" / "sources.py"
    spec = importlib.util.spec_from_file_location("sources", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SOURCES = load_sources()


def functions(path, text=None):
    """Return the text of each function of a file by its name, without comments and strings."""
    text = path.read_text(encoding="utf-8") if text is None else text
    find = SOURCES.in_c if path.suffix == ".h" else SOURCES.in_cython
    comments = r"/\*.*?\*/" if path.suffix == ".h" else r'""".*?"""|#[^\n]*'
    return {
        f"{path.stem}.{name}": re.sub(comments, "", text[begin:end], flags=re.DOTALL)
        for name, begin, end in find(text)
    }


def calls(text, names):
    """Whether the body of a function calls one of the functions."""
    return any(re.search(rf"\b{name}\(", text.partition(")")[2]) for name in names)


def closure(found, first):
    """Return the functions that satisfy `first`, and those that call them, directly or not."""
    entries = {name for name, text in found.items() if first(text)}
    while True:
        last = {name.rpartition(".")[2] for name in entries}
        more = {name for name, text in found.items() if calls(text, last)}
        if more <= entries:
            return entries
        entries |= more


def entries_of(headers, cython):
    """Return the entries of begin, among functions by their names.

    An entry is a function that begins or settles an operation:
    - in the engine, a function of a request that gives the operation its number (`own_number_`), or
      that counts the number as settled; and each function that calls one of these;
    - in Cython, each function that calls one of these entries; and in `_operation`, each function
      that calls one of those.
    Functions that undo an operation are no entries. `queue` is none either: it only raises the
    exception for a reason that `issue` returns.
    """
    engine = closure(
        headers,
        lambda text: re.search(r"\bown_number_\(|settled = \w+->issued", text.partition("{")[2]),
    )
    names = {name.rpartition(".")[2] for name in engine}
    direct = {name for name, text in cython.items() if calls(text, names)}
    order = {name: text for name, text in cython.items() if name.startswith("_operation.")}
    return engine | direct | closure(order, lambda text: calls(text, names))


def all_functions(paths):
    return {name: text for path in paths for name, text in functions(path).items()}


def test_few_functions_begin_or_settle_an_operation():
    entries = entries_of(all_functions(HEADERS), all_functions(CYTHON))
    assert {"borrow.own_begin", "borrow.own_settle", "_operation.issue"} <= entries
    assert len(entries) <= MOST_ENTRIES, sorted(entries)


def test_other_entries_are_found():
    header = """static inline int own_start(own_engine *engine, own_request *request) {
    own_number_(request, NULL);
    return 0;
}

static inline int own_start_slowly(own_engine *engine, own_request *request) {
    return own_start(engine, request); /* own_other( */
}

static inline void own_finish(own_request *request) {
    request->stream->settled = request->issued.seq;
}
"""
    module = '''cdef int begin(Operation *operation) except -1:
    """Not own_finish()."""
    return own_start_slowly(engine, &operation.request)


cdef int again(Operation *operation) except -1:
    return begin(operation)
'''
    order = functions(Path("_operation.pyx"), module)
    entries = entries_of(functions(Path("new.h"), header), order)
    assert entries == {
        "new.own_start", "new.own_start_slowly", "new.own_finish", "_operation.begin",
        "_operation.again",
    }  # fmt: skip
    other = functions(Path("_other.pyx"), module)
    assert entries_of(functions(Path("new.h"), header), other) == {
        "new.own_start", "new.own_start_slowly", "new.own_finish", "_other.begin",
    }  # fmt: skip


def test_refusals_by_hand_are_listed():
    refuse = {"refuse_operation", "refuse_regions"}
    found = {name for name, text in all_functions(CYTHON).items() if calls(text, refuse)}
    ours = {"_region.queue", "_region.check_queue", "_region.refuse_regions"}
    assert ours <= found
    assert found - ours == BY_HAND.keys()


def test_one_loop_finds_all_that_a_request_has_to_wait_for():
    found = {name for name, text in all_functions(CYTHON).items() if calls(text, ["own_foresee"])}
    assert found == {"_waits.users_in_the_way"}
