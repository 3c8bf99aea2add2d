"""Every driver call that the small programs make fails, one at a time: see cases.py.

A case is the software driver's words for a fault, such as "cuMemAlloc_v2:1:2".
"""

import re
from contextlib import nullcontext
from pathlib import Path

import cases

import cudadrv as cu
from cudadrv import testing

NOT_SUPPORTED = 801
INVALID, MEMORY, NOT_READY, LAUNCH_FAILED, UNKNOWN = STATUSES = (1, 2, 600, 719, 999)
MOST_OPERATIONS = 100
LOOK_UP = "cuGetProcAddress_v2"
LIST = (Path(__file__).parents[2] / "softdriver" / "base" / "functions.def").read_text()
# The name that errors say, by the exported one.
FUNCTIONS = {
    symbol: base for base, symbol in re.findall(r"^SOFT_FUNCTION\((\w+), \d+, (\w+)", LIST, re.M)
}
# What stays where giving it back was what failed.
ENDS = {
    "cuStreamDestroy_v2": ("streams",),
    "cuEventDestroy_v2": ("events",),
    "cuModuleUnload": ("modules",),
    "cuMemFree_v2": ("device", "managed"),
    "cuMemFreeAsync": ("async",),
    "cuMemFreeHost": ("host",),
    "cuCtxDestroy_v2": ("contexts", "streams", "events", "device"),
    # In a destructor, before the destroying call.
    **dict.fromkeys(("cuCtxGetCurrent", "cuCtxSetCurrent", "cuCtxPushCurrent_v2"), testing.KINDS),
}


def counted_calls():
    calls = {symbol: testing.calls(symbol) for symbol in FUNCTIONS}
    return {"calls": {symbol: count for symbol, count in calls.items() if count}}


def run(name, fault, left, show=False):
    """Run a program with a fault."""

    def run():
        what, nth, status = fault.split(":")
        driver = cases.begin(fault)
        answer = cases.run_program(name, nullcontext(), show)
        calls = driver.cudadrvSoftCalls(what.encode())
        driver.cudadrvSoftConfigure(b"fault=none")
        said = [str(answer.error or "").partition("\n")[0], *answer.unraised]
        if what == LOOK_UP:
            return {"struck": True, "wrong": wrong_without(answer), "said": said}
        testing.drain()
        struck = cases.is_lost() if what == "operation" else calls >= int(nth)
        if not struck:
            wrong = [] if answer.is_success() else [f"without a fault: {answer}"]
        elif what == "operation":
            wrong = wrong_loss(answer)
        else:
            wrong = wrong_answer(answer, FUNCTIONS[what], int(status))
        wrong += cases.wrong_afterwards(answer, left, ENDS.get(what, ()))
        return {"struck": struck, "wrong": wrong, "said": said}

    return cases.in_a_child(run)


def wrong_without(answer):
    """The driver lacks a function, for good."""
    error, answer.error = answer.error, None
    if error is None or getattr(error, "status", None) == NOT_SUPPORTED:
        return []
    return [f"raised {error!r}"]


def wrong_loss(answer):
    """The device was lost meanwhile: the program says so, unless it had nothing more to ask."""
    if answer.error is None or isinstance(answer.error, cu.ContextLostError):
        return []
    return [f"lost, and raised {answer.error!r}"]


# Where a failing call need not be an error of the program, with the status, or all of them.
HARMLESS = {
    ("cuThreadExchangeStreamCaptureMode", None),  # protects captures of others, if there are any
    # The library asks these for itself, and asks again.
    ("cuCtxGetCurrent", None),
    ("cuCtxSetCurrent", None),
    ("cuStreamIsCapturing", None),
    ("cuStreamQuery", None),
    ("cuEventQuery", None),
    *(("cuStreamDestroy", NOT_READY), ("cuEventRecord", NOT_READY)),
    # Where there are no more parameters. Elsewhere the PTX says that there are more: an error.
    ("cuFuncGetParamInfo", INVALID),
    # Of constant memory, which the PTX knows. Of other variables it is an error.
    ("cuPointerGetAttribute", INVALID),
    ("cuMemGetAddressRange", INVALID),  # it knows no bounds: the buffer shares no records
    # Tried again, when what has died is freed.
    *((name, MEMORY) for name in ("cuMemAlloc", "cuMemAllocAsync", "cuMemHostAlloc")),
    ("cuMemHostRegister", MEMORY),
    ("cuMemAllocFromPoolAsync", MEMORY),
    ("cuMemAllocManaged", MEMORY),
    *((name, MEMORY) for name in ("cuMemCreate", "cuMemMap", "cuMemRelease", "cuMemSetAccess")),
}


def wrong_answer(answer, function, status):
    """The answer must be an error or a warning that names the function, or the case is harmless."""
    error = answer.error
    warned = any(f"{function}:" in each for each in answer.unraised)
    harmless = not HARMLESS.isdisjoint({(function, status), (function, None)})
    if error is None:
        return [] if warned or harmless else [f"nobody says that {function} fails: {answer}"]
    if (function, status) == ("cuPointerGetAttribute", INVALID) and isinstance(error, ValueError):
        return []  # how the driver says that it does not know the address
    if status == LAUNCH_FAILED and warned and isinstance(error, AssertionError):
        return []  # page-locked memory stays readable, and a destructor found out first
    if not isinstance(error, cu.CudaError):
        return [f"raised {error!r}"]
    if error.call == function and error.status == status:
        return []
    if status == LAUNCH_FAILED and (warned or harmless) and cases.is_sticky(error):
        return []  # the next call was the first that could raise
    return [f"{error!r} does not say {function} and {status}"]


def all_cases(calls):
    for symbol, count in calls.items():
        for nth in range(1, count + 1):
            for status in STATUSES:
                yield f"{symbol}:{nth}:{status}"


def sampled_cases(calls):
    """The first and the last call of each function, with two statuses; others by turns."""
    for index, (symbol, count) in enumerate(calls.items()):
        for nth in sorted({1, count}):
            for turn in range(2):
                status = STATUSES[(index + 2 * nth + 3 * turn) % len(STATUSES)]
                yield f"{symbol}:{nth}:{status}"


def cases_of(name, thorough):
    found = cases.usual(name, counted_calls)
    for fault in (all_cases if thorough else sampled_cases)(found["calls"]):
        yield fault, run(name, fault, found["left"])
    for nth in range(1, MOST_OPERATIONS):
        fault = f"operation:{nth}:{LAUNCH_FAILED}"
        result = run(name, fault, found["left"])
        yield fault, result
        if not result.get("struck", True):
            break


if __name__ == "__main__":
    cases.main(run, cases_of)
