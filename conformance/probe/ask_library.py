"""Before and without devices: versions, names of errors, initialising."""

import ctypes

from driver import INT, OUT
from section import NOTHING, Section

section = Section("library", setup=NOTHING)
ask, question = section.ask, section.question

section.calls("""
    version before init | cuDriverGetVersion out
    version null | cuDriverGetVersion 0
    error name null | cuGetErrorName 0, 0
    error string null | cuGetErrorString 0, 0
    error name unknown | cuGetErrorName 123456, out
    error string unknown | cuGetErrorString 123456, out
    error name -1 | cuGetErrorName -1, out
    count before init | cuDeviceGetCount out
    device before init | cuDeviceGet out, 0
    device before init, null | cuDeviceGet 0, 0
    attribute before init | cuDeviceGetAttribute out, 1, 0
    get current before init | cuCtxGetCurrent out
    get current null before init | cuCtxGetCurrent 0
    set current null before init | cuCtxSetCurrent 0
    pop before init | cuCtxPopCurrent_v2 out
    create context before init | cuCtxCreate_v2 out, 0, 0
    destroy null context before init | cuCtxDestroy_v2 0
    synchronize before init | cuCtxSynchronize
    primary retain before init | cuDevicePrimaryCtxRetain out, 0
    primary state before init | cuDevicePrimaryCtxGetState 0, out, out
    primary release before init | cuDevicePrimaryCtxRelease_v2 0
    primary reset before init | cuDevicePrimaryCtxReset_v2 0
    primary flags before init | cuDevicePrimaryCtxSetFlags_v2 0, 0
    alloc before init | cuMemAlloc_v2 out, 4
    alloc null before init | cuMemAlloc_v2 0, 0
    free null before init | cuMemFree_v2 0
    host alloc before init | cuMemHostAlloc out, 4, 0
    host free null before init | cuMemFreeHost 0
    managed before init | cuMemAllocManaged out, 4, 1
    register before init | cuMemHostRegister_v2 4096, 4096, 0
    alloc async before init | cuMemAllocAsync out, 4, 0
    default pool before init | cuDeviceGetDefaultMemPool out, 0
    copy before init | cuMemcpy 0, 0, 0
    fill before init | cuMemsetD8_v2 0, 0, 0
    pointer attribute before init | cuPointerGetAttribute out, 2, 0
    stream before init | cuStreamCreate out, 0
    stream query before init | cuStreamQuery 0
    stream synchronize before init | cuStreamSynchronize 0
    stream destroy null before init | cuStreamDestroy_v2 0
    event before init | cuEventCreate out, 0
    event query null before init | cuEventQuery 0
    event destroy null before init | cuEventDestroy_v2 0
    capture begin before init | cuStreamBeginCapture_v2 1, 0
    exchange capture mode before init | cuThreadExchangeStreamCaptureMode out
    capture state before init | cuStreamIsCapturing 0, out
    host function before init | cuLaunchHostFunc 0, 0, 0
    wait value before init | cuStreamWaitValue32_v2 0, 0, 0, 0
    graph before init | cuGraphCreate out, 0
    module before init | cuModuleLoadData out, 0
    priority range before init | cuCtxGetStreamPriorityRange out, out
    can access peer before init | cuDeviceCanAccessPeer out, 0, 0
    proc address before init | cuGetProcAddress_v2 b"cuInit", out, 12000, 0, 0
    export table null before init | cuGetExportTable 0, 0
""")


def _text(function):
    def ask(p, code):
        text = ctypes.c_char_p()
        status = p(function, code, ctypes.byref(text))
        return text.value.decode() if status == "SUCCESS" and text.value else status

    return ask


_KNOWN = [*range(0, 20), *range(34, 38), 46, *range(100, 103), *range(200, 229), 300, 301, 302]
_KNOWN += [303, 304, 400, 401, 402, 500, 600, *range(700, 722), *range(800, 813), *range(900, 918)]
for code in [*_KNOWN, 999, 1000]:
    ask(f"name of {code}", lambda p, code=code: _text("cuGetErrorName")(p, code))


@question("an error string exists wherever a name does")
def _(p):
    return all(
        (_text("cuGetErrorName")(p, code) == "INVALID_VALUE")
        == (_text("cuGetErrorString")(p, code) == "INVALID_VALUE")
        for code in _KNOWN
    )


@question("pointer after the name of an unknown error")
def _(p):
    text = ctypes.c_char_p(b"kept")
    p("cuGetErrorName", 123456, ctypes.byref(text))
    return (text.value or b"null").decode()


section.calls("""
    init with flags | cuInit 1
    init with flags -1 | cuInit -1
    init | cuInit 0
    init again | cuInit 0
    init again with flags | cuInit 1
""")


@question("version", setup="initialised")
def _(p):
    return p.get("cuDriverGetVersion", INT)


@question("get current after init", setup="initialised")
def _(p):
    return p.get("cuCtxGetCurrent", OUT)


@question("init in another thread", setup="initialised")
def _(p):
    return p.thread(lambda: p("cuInit", 0), context=False)


@question("init after init with bad flags", alone=True)
def _(p):
    return p("cuInit", 1), p("cuInit", 0), p.get("cuDeviceGet", INT, 0)
