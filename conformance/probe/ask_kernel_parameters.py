"""What the driver returns about a kernel's parameters, with and without a context."""

import ctypes

from driver import OUT
from kernels import LAYOUT, function, image, launch_on, load_library
from section import Section

section = Section("kernel_parameters")
question = section.question

PARAMETERS = LAYOUT.count(".param")
CALLS = """
    no place | {0} k, 0, 0, 0
    no place, beyond the last | {0} k, 2, 0, 0
    no offset | {0} k, 0, 0, out
    no offset, beyond the last | {0} k, 2, 0, out
    no size | {0} k, 0, out, 0
    both | {0} k, 1, out, out
    beyond the last | {0} k, 2, out, out
    index -1 | {0} k, -1, out, out
    of null | {0} 0, 0, out, out
    of null, no place | {0} 0, 0, 0, 0
    of a kernel without any | {0} empty, 0, out, out
"""


def _kernels(p):
    library = load_library(p)
    names = {"k": b"store", "empty": b"empty", "layout": b"layout"}
    return {key: p.need("cuLibraryGetKernel", OUT, library, name) for key, name in names.items()}


def _functions(p):
    return {key: p.need("cuKernelGetFunction", OUT, k) for key, k in _kernels(p).items()}


def each_call(prefix, name, handles, before=lambda p: None, **options):
    """Asks a question for each of the calls above. `before` runs before the call."""
    for line in filter(None, map(str.strip, CALLS.format(name).splitlines())):
        what, _, call = map(str.strip, line.partition("|"))
        arguments = call.partition(" ")[2]

        def ask(p, arguments=arguments):
            found = handles(p)
            before(p)
            return p(name, *eval(f"({arguments},)", {"out": p.cell(), **found}))

        section.ask(f"{prefix}: {what}", ask, **options)


def no_context(p):
    p.must("cuCtxSetCurrent", 0)


each_call("kernel", "cuKernelGetParamInfo", _kernels)
each_call("kernel, nothing loaded yet", "cuKernelGetParamInfo", _kernels, setup="initialised")
each_call("kernel, none current", "cuKernelGetParamInfo", _kernels, no_context)
each_call("function", "cuFuncGetParamInfo", _functions)
each_call("function, none current", "cuFuncGetParamInfo", _functions, no_context)
section.calls(
    """
    a kernel as a function | cuFuncGetParamInfo k, 0, out, out
    a function as a kernel | cuKernelGetParamInfo f, 0, out, out
""",
    lambda p: {"k": _kernels(p)["k"], "f": function(p, "store")},
)


def layout(p, name, kernel):
    """The offset, the size and the status for each parameter, and for one index too many."""
    found = []
    for index in range(PARAMETERS + 1):
        offset, size = ctypes.c_size_t(77), ctypes.c_size_t(77)
        status = p(name, kernel, index, ctypes.byref(offset), ctypes.byref(size))
        found.append(f"{offset.value}+{size.value} {status}")
    return found


@question("layout")
def _(p):
    return layout(p, "cuKernelGetParamInfo", _kernels(p)["layout"])


@question("layout, nothing loaded yet", setup="initialised")
def _(p):
    return layout(p, "cuKernelGetParamInfo", _kernels(p)["layout"])


@question("layout, none current")
def _(p):
    kernel = _kernels(p)["layout"]
    no_context(p)
    return layout(p, "cuKernelGetParamInfo", kernel)


@question("layout, another context current")
def _(p):
    kernel = _kernels(p)["layout"]
    p.context()
    return layout(p, "cuKernelGetParamInfo", kernel)


@question("layout of a function, another context current")
def _(p):
    found = _functions(p)["layout"]
    p.context()
    return layout(p, "cuFuncGetParamInfo", found)


@question("before cuInit", setup="nothing", alone=True)
def _(p):
    return p("cuKernelGetParamInfo", 0, 0, 0, 0), p("cuFuncGetParamInfo", 0, 0, 0, 0)


@question("a lost device", alone=True)
def _(p):
    kernel, found = _kernels(p)["k"], _functions(p)["k"]
    launch_on(p, "fault_trap", p.device())
    p("cuCtxSynchronize")
    out = p.cell()
    return (
        p("cuKernelGetParamInfo", kernel, 0, out, out),
        p("cuFuncGetParamInfo", found, 0, out, out),
    )


@question("after the primary context went", setup="initialised", alone=True)
def _(p):
    context = p.need("cuDevicePrimaryCtxRetain", OUT, 0)
    p.must("cuCtxSetCurrent", context)
    kernel = _kernels(p)["k"]
    p.must("cuCtxSetCurrent", 0)
    p.must("cuDevicePrimaryCtxRelease_v2", 0)
    out = p.cell()
    return p("cuKernelGetParamInfo", kernel, 0, out, out)


@question("a library that cannot run here", setup="initialised")
def _(p):
    text = p.keep(image(".version 7.5\n.target sm_75\n.address_size 64\nthis is no PTX"))
    return p("cuLibraryLoadData", p.cell(), text, 0, 0, 0, 0, 0, 0)
