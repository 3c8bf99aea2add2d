"""Every driver call of the small programs fails, one at a time: see cases.py.

A case is the software driver's text for a fault, such as "cuMemAlloc_v2:1:2".
"""

import re
from collections import Counter
from contextlib import nullcontext
from pathlib import Path

import cases

import cudadrv as cu
from cudadrv import testing
from cudadrv._errors import STICKY

NOT_SUPPORTED = 801
INVALID, MEMORY, NOT_READY, LAUNCH_FAILED, UNKNOWN = STATUSES = (1, 2, 600, 719, 999)
MOST_OPERATIONS = 100
LOOK_UP = "cuGetProcAddress_v2"
LIST = (Path(__file__).parents[2] / "softdriver" / "base" / "functions.def").read_text()
# For each exported name of a function, its name in errors.
FUNCTIONS = {
    symbol: base for base, symbol in re.findall(r"^SOFT_FUNCTION\((\w+), \d+, (\w+)", LIST, re.M)
}
# For each function that releases things, the kinds of things that may be left if it fails.
ENDS = {
    "cuStreamDestroy_v2": ("streams",),
    "cuEventDestroy_v2": ("events",),
    "cuModuleUnload": ("modules",),
    "cuLinkDestroy": ("links",),
    "cuMemHostUnregister": ("registered",),
    "cuMemFree_v2": ("device", "managed"),
    "cuMemFreeAsync": ("async",),
    "cuMemFreeHost": ("host",),
    "cuArrayDestroy": ("arrays",),
    "cuMipmappedArrayDestroy": ("arrays",),
    "cuTexObjectDestroy": ("textures",),
    "cuSurfObjectDestroy": ("surfaces",),
    "cuCtxDestroy_v2": ("contexts", "streams", "events", "device"),
}


def counted_calls():
    calls = {symbol: testing.calls(symbol) for symbol in FUNCTIONS}
    return {"calls": {symbol: count for symbol, count in calls.items() if count}}


def run(name, fault, left, show=False):
    """Run a program in which a driver call fails."""

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
    """Errors in the answer of a program whose driver does not have a function."""
    error, answer.error = answer.error, None
    if error is None or getattr(error, "status", None) == NOT_SUPPORTED:
        return []
    return [f"raised {error!r}"]


def wrong_loss(answer):
    """Errors in the answer of a program whose device was lost.

    A ContextLostError is expected, unless the program made no driver calls after the loss.
    """
    if answer.error is None or isinstance(answer.error, cu.ContextLostError):
        return []
    return [f"lost, and raised {answer.error!r}"]


# Pairs of function and status (None: any status) whose failure need not be an error of the program.
HARMLESS = {
    ("cuGetErrorString", None),  # the message then has no text of the driver
    ("cuLogsRegisterCallback", None),  # errors then have no notes
    # Protects captures of other libraries, if there are any.
    ("cuThreadExchangeStreamCaptureMode", None),
    # cudadrv makes these calls for its own bookkeeping. After a failure, it tries again later.
    ("cuCtxGetCurrent", None),
    ("cuCtxSetCurrent", None),
    # Nothing can be undone after it, and each later call makes its own context current.
    ("cuCtxPopCurrent", None),
    ("cuStreamIsCapturing", None),
    ("cuStreamQuery", None),
    ("cuEventQuery", None),
    *(("cuStreamDestroy", NOT_READY), ("cuEventRecord", NOT_READY)),
    # The driver's answer after the last parameter. It is an error if the PTX has more parameters.
    ("cuFuncGetParamInfo", INVALID),
    # The driver's answer for constant memory, which the PTX knows. It is an error for other
    # variables.
    ("cuPointerGetAttribute", INVALID),
    ("cuMemGetAddressRange", INVALID),  # the bounds are unknown, so the buffer shares no records
    # These are tried again after dropped memory has been freed.
    *((name, MEMORY) for name in ("cuMemAlloc", "cuMemAllocAsync", "cuMemHostAlloc")),
    ("cuMemHostRegister", MEMORY),
    ("cuMemAllocFromPoolAsync", MEMORY),
    ("cuMemAllocManaged", MEMORY),
    *(("cuArray3DCreate", MEMORY), ("cuMipmappedArrayCreate", MEMORY)),
    ("cuMipmappedArrayGetLevel", MEMORY),
    *((name, MEMORY) for name in ("cuMemCreate", "cuMemMap", "cuMemRelease", "cuMemSetAccess")),
}


def wrong_answer(answer, function, status):
    """Errors in the answer of a program in which a driver call has failed.

    An error or a warning must name the function, unless the failure is harmless.
    """
    error = answer.error
    warned = any(f"{function}:" in each for each in answer.unraised)
    harmless = not HARMLESS.isdisjoint({(function, status), (function, None)})
    if error is None:
        return [] if warned or harmless else [f"nobody says that {function} fails: {answer}"]
    if (function, status) == ("cuPointerGetAttribute", INVALID) and isinstance(error, ValueError):
        return []  # the driver says in this way that it does not know the address
    if status == LAUNCH_FAILED and warned and isinstance(error, AssertionError):
        # A destructor met the loss, and could only warn. The program then read wrong data from
        # page-locked memory, which stays readable.
        return []
    if not isinstance(error, cu.CudaError):
        return [f"raised {error!r}"]
    known = isinstance(error, cu.ContextLostError | cu.DriverNotFoundError)
    if status in STICKY and not known:
        return [f"{error!r} does not say that the context is lost"]
    if error.call == function and error.status == status:
        return []
    if status == LAUNCH_FAILED and (warned or harmless) and cases.is_sticky(error):
        return []  # the failing call could only warn; the next call raised
    return [f"{error!r} does not say {function} and {status}"]


def all_cases(calls):
    for symbol, count in calls.items():
        for nth in range(1, count + 1):
            for status in STATUSES:
                yield f"{symbol}:{nth}:{status}"


tried = Counter()  # for each function, how many of its failures were sampled in this process


def sampled_cases(calls):
    """Cases of each function: its first and its last call. The statuses take turns.

    Most programs call the same functions. When a function has failed with each status, one more
    case is enough in each program.
    """
    for symbol, count in calls.items():
        found = sorted({1, count})
        if tried[symbol] >= len(STATUSES):
            found = [found[tried[symbol] % len(found)]]
        for nth in found:
            yield f"{symbol}:{nth}:{STATUSES[tried[symbol] % len(STATUSES)]}"
            tried[symbol] += 1


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
