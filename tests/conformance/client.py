"""A small client of the CUDA driver API, by ctypes: raw calls, and cleanup after a test."""

import contextlib
import ctypes
import json
import threading
import time
from pathlib import Path

PATIENCE = 1800  # seconds; the value of tests/limits.py, which programs of tests cannot import

SUCCESS = 0
INVALID_VALUE = 1
OUT_OF_MEMORY = 2
NOT_INITIALIZED = 3
INVALID_DEVICE = 101
INVALID_CONTEXT = 201
INVALID_HANDLE = 400
ILLEGAL_STATE = 401
NOT_READY = 600
ILLEGAL_ADDRESS = 700
CONTEXT_IS_DESTROYED = 709
ALREADY_REGISTERED = 712
NOT_REGISTERED = 713
NOT_PERMITTED = 800
CAPTURE_UNSUPPORTED = 900
CAPTURE_INVALIDATED = 901
CAPTURE_UNJOINED = 904
CAPTURE_ISOLATION = 905
CAPTURE_IMPLICIT = 906
CAPTURED_EVENT = 907

LEGACY, PER_THREAD = 1, 2
NON_BLOCKING = 1
DISABLE_TIMING = 2
GEQ = 0

HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class SharedHandle(ctypes.Structure):
    """An IPC handle of memory or of an event, which is passed to another process."""

    _fields_ = [("bytes", ctypes.c_ubyte * 64)]


_TYPES = {
    "H": SharedHandle,
    "i": ctypes.c_int,
    "u": ctypes.c_uint,
    "z": ctypes.c_size_t,
    "p": ctypes.c_void_p,  # pointers and handles
    "d": ctypes.c_uint64,  # device addresses
    "q": ctypes.c_uint64,
    "b": ctypes.c_ubyte,
    "h": ctypes.c_ushort,
    "s": ctypes.c_char_p,
    "f": ctypes.c_float,
}

_SIGNATURES = """
cuInit u|cuDriverGetVersion p|cuGetErrorName ip|cuGetErrorString ip|cuGetProcAddress_v2 spiqp
cuDeviceGet pi|cuDeviceGetCount p|cuDeviceGetName pii|cuDeviceTotalMem_v2 pi
cuDeviceGetAttribute pii|cuDeviceGetUuid_v2 pi|cuDevicePrimaryCtxRetain pi
cuDevicePrimaryCtxRelease_v2 i|cuDevicePrimaryCtxReset_v2 i|cuDevicePrimaryCtxGetState ipp
cuCtxCreate_v2 pui|cuCtxDestroy_v2 p|cuCtxSetCurrent p|cuCtxGetCurrent p|cuCtxPushCurrent_v2 p
cuCtxPopCurrent_v2 p|cuCtxGetDevice p|cuCtxSynchronize |cuCtxGetStreamPriorityRange pp
cuCtxGetId pp|cuMemGetInfo_v2 pp|cuMemAlloc_v2 pz|cuMemFree_v2 d|cuMemAllocAsync pzp
cuMemFreeAsync dp|cuMemHostAlloc pzu|cuMemAllocHost_v2 pz|cuMemFreeHost p|cuMemAllocManaged pzu
cuMemHostRegister_v2 pzu|cuMemHostUnregister p|cuMemHostGetDevicePointer_v2 ppu
cuMemHostGetFlags pp|cuMemGetAddressRange_v2 ppd|cuPointerGetAttribute pid
cuPointerGetAttributes uppd|cuMemPrefetchAsync dzip|cuMemcpy ddz|cuMemcpyAsync ddzp
cuMemcpyHtoD_v2 dpz|cuMemcpyDtoH_v2 pdz|cuMemcpyDtoD_v2 ddz|cuMemcpyHtoDAsync_v2 dpzp
cuMemcpyDtoHAsync_v2 pdzp|cuMemcpyDtoDAsync_v2 ddzp|cuMemsetD8_v2 dbz|cuMemsetD16_v2 dhz
cuMemsetD32_v2 duz|cuMemsetD2D8_v2 dzbzz|cuMemsetD2D32_v2 dzuzz|cuMemsetD8Async dbzp
cuMemsetD16Async dhzp|cuMemsetD32Async duzp|cuMemsetD2D32Async dzuzzp|cuStreamCreate pu
cuStreamCreateWithPriority pui|cuStreamDestroy_v2 p|cuStreamSynchronize p|cuStreamQuery p
cuStreamQuery_ptsz p|cuStreamWaitEvent ppu|cuStreamGetFlags pp|cuStreamGetPriority pp
cuStreamGetId pp|cuStreamGetCtx pp|cuStreamIsCapturing pp|cuStreamBeginCapture_v2 pi
cuStreamEndCapture pp|cuGraphDestroy p|cuThreadExchangeStreamCaptureMode p
cuStreamWaitValue32_v2 pduu|cuStreamWriteValue32_v2 pduu|cuLaunchHostFunc ppp|cuEventCreate pu
cuEventDestroy_v2 p|cuEventRecord pp|cuEventQuery p|cuEventSynchronize p|cuEventElapsedTime ppp
cuDeviceGetPCIBusId pii|cuDeviceGetByPCIBusId ps|cuDeviceGetProperties pi
cuDeviceComputeCapability ppi|cuDeviceGetTexture1DLinearMaxWidth piui
cuDeviceGetExecAffinitySupport pii|cuDevicePrimaryCtxSetFlags_v2 iu|cuCtxGetLimit pi
cuCtxSetLimit iz|cuCtxGetCacheConfig p|cuCtxSetCacheConfig i|cuCtxGetSharedMemConfig p
cuCtxSetSharedMemConfig i|cuCtxGetFlags p|cuCtxSetFlags u|cuCtxAttach pu|cuCtxDetach p
cuCtxRecordEvent pp|cuCtxWaitEvent pp|cuCtxResetPersistingL2Cache |cuProfilerStart |cuProfilerStop
cuStreamGetAttribute pip|cuStreamSetAttribute pip|cuStreamCopyAttributes pp
cuStreamGetCtx_v2 ppp|cuStreamBatchMemOp_v2 pupu|cuStreamBatchMemOp pupu
cuStreamGetCaptureInfo_v2 pppppp|cuStreamGetCaptureInfo_v3 ppppppp
cuStreamUpdateCaptureDependencies pppu|cuEventRecordWithFlags ppu
cuMemcpy2D_v2 p|cuMemcpy2DUnaligned_v2 p|cuMemcpy2DAsync_v2 pp|cuMemcpy3D_v2 p|cuMemcpy3DPeer p
cuMemcpy3DAsync_v2 pp|cuMemcpy3DPeerAsync pp|cuMemAllocPitch_v2 ppzzu|cuMemcpyPeer dpdpz
cuMemcpyPeerAsync dpdpzp|cuDeviceCanAccessPeer pii|cuDeviceGetP2PAttribute piii
cuCtxEnablePeerAccess pu|cuCtxDisablePeerAccess p|cuStreamAttachMemAsync pdzu
cuMemAdvise dzii|cuMemAdvise_v2 dziq|cuMemPrefetchAsync_v2 dzqup
cuMemRangeGetAttribute pzidz|cuMemRangeGetAttributes pppzdz
cuPointerSetAttribute pid|cuMemPoolCreate pp|cuMemPoolDestroy p|cuMemPoolSetAttribute pip
cuMemPoolGetAttribute pip|cuMemPoolTrimTo pz|cuMemPoolSetAccess ppz|cuMemPoolGetAccess ppp
cuMemAllocFromPoolAsync pzpp|cuDeviceGetDefaultMemPool pi|cuDeviceGetMemPool pi
cuDeviceSetMemPool ip|cuMemGetDefaultMemPool ppi|cuMemGetMemPool ppi|cuMemSetMemPool pip
cuModuleLoad ps|cuModuleLoadData ps|cuModuleLoadDataEx psupp|cuModuleLoadFatBinary pp
cuModuleUnload p|cuModuleGetFunction pps|cuModuleGetGlobal_v2 ppps|cuModuleGetFunctionCount pp
cuFuncGetAttribute pip|cuFuncSetAttribute pii|cuFuncGetParamInfo pzpp|cuFuncGetName pp
cuLaunchKernel puuuuuuuppp|cuLaunchKernel_ptsz puuuuuuuppp|cuLaunchCooperativeKernel puuuuuuupp
cuFuncSetBlockShape piii|cuFuncSetSharedSize pu|cuParamSetSize pu|cuParamSeti piu|cuParamSetf pif
cuParamSetv pipu|cuLaunch p|cuLaunchGrid pii|cuLaunchGridAsync piip
cuLibraryLoadData pspppppu|cuLibraryUnload p|cuLibraryGetKernel pps|cuLibraryGetGlobal ppps
cuKernelGetFunction pp|cuLinkCreate_v2 uppp|cuLinkAddData_v2 pipzsupp|cuLinkComplete ppp
cuGraphCreate pu|cuGraphInstantiateWithFlags ppq|cuGraphExecDestroy p|cuGraphLaunch pp
cuGraphUpload pp|cuGraphGetNodes ppp|cuGraphClone pp|cuGraphExecUpdate_v2 ppp
cuGraphNodeSetEnabled ppu|cuGraphAddBatchMemOpNode pppzp|cuGraphExecBatchMemOpNodeSetParams ppp
cuGraphAddChildGraphNode pppzp|cuGraphAddEmptyNode pppz
cuGraphGetId pp|cuGraphExecGetId pp|cuGraphNodeGetLocalId pp|cuGraphNodeGetToolsId pp
cuGraphNodeGetContainingGraph pp|cuGraphDestroyNode p
cuGraphAddMemFreeNode pppzd|cuFuncGetParamCount pp|cuKernelGetParamCount pp
cuCoredumpGetAttribute ipp|cuCoredumpSetAttribute ipp|cuCoredumpGetAttributeGlobal ipp
cuCoredumpSetAttributeGlobal ipp
cuGraphDebugDotPrint psu|cuUserObjectCreate pppuu|cuUserObjectRelease pu
cuGraphRetainUserObject ppuu|cuGraphConditionalHandleCreate pppuu|cuGraphAddNode_v2 ppppzp
cuStreamBeginCaptureToGraph ppppzi|cuGraphAddMemcpyNode pppzpp|cuGraphAddMemsetNode pppzpp
cuGraphExecMemcpyNodeSetParams pppp|cuGraphExecMemsetNodeSetParams pppp
cuGraphNodeGetParams pp|cuGraphNodeSetParams pp|cuGraphExecNodeSetParams ppp
cuGraphChildGraphNodeGetGraph pp|cuGraphGetEdges_v2 ppppp|cuLaunchKernelEx pppp
cuDeviceGetGraphMemAttribute iip|cuDeviceGraphMemTrim i
cuMemGetAllocationGranularity ppi|cuMemAddressReserve pzzdq|cuMemAddressFree dz|cuMemCreate pzpq
cuMemRelease q|cuMemMap dzzqq|cuMemUnmap dz|cuMemSetAccess dzpz|cuMemGetAccess ppd
cuMemRetainAllocationHandle pp|cuMemGetAllocationPropertiesFromHandle pq
cuIpcGetMemHandle pd|cuIpcOpenMemHandle_v2 pHu|cuIpcCloseMemHandle d|cuIpcGetEventHandle pp
cuIpcOpenEventHandle pH|cuMemPoolExportToShareableHandle ppiq|cuMemPoolExportPointer pd
cuMemPoolImportFromShareableHandle ppiq|cuMemPoolImportPointer ppp
cuMemExportToShareableHandle pqiq|cuMemImportFromShareableHandle ppi
cuLinkDestroy p|cuOccupancyMaxActiveBlocksPerMultiprocessor ppiz
cuMemcpyBatchAsync pppzppzpp|cuMemcpyBatchAsync_v2 pppzppzp|cuMemcpy3DBatchAsync_v2 zpqp
cuMemcpy3DBatchAsync zppqp|cuMemcpyWithAttributesAsync ddzpp|cuMemcpy3DWithAttributesAsync pqp
cuDeviceGetDevResource ipi|cuCtxGetDevResource ppi|cuGreenCtxGetDevResource ppi
cuStreamGetDevResource ppi|cuDevSmResourceSplitByCount ppppuu|cuDevSmResourceSplit puppup
cuDevResourceGenerateDesc ppu
cuGreenCtxCreate ppiu|cuGreenCtxDestroy p|cuCtxFromGreenCtx pp|cuGreenCtxGetId pp
cuGreenCtxStreamCreate ppui|cuGreenCtxRecordEvent pp|cuGreenCtxWaitEvent pp
cuStreamGetGreenCtx pp|cuLogsCurrent pu|cuLogsDumpToMemory pppu|cuLogsDumpToFile psu
cuLogsUnregisterCallback p
cuArrayCreate_v2 pp|cuArray3DCreate_v2 pp|cuArrayGetDescriptor_v2 pp|cuArray3DGetDescriptor_v2 pp
cuArrayDestroy p|cuArrayGetPlane ppu|cuArrayGetSparseProperties pp
cuArrayGetMemoryRequirements ppi|cuMipmappedArrayCreate ppu|cuMipmappedArrayDestroy p
cuCtxCreate_v3 ppiui|cuCtxCreate_v4 ppui
cuMipmappedArrayGetLevel ppu|cuMipmappedArrayGetSparseProperties pp
cuMipmappedArrayGetMemoryRequirements ppi|cuMemcpyHtoA_v2 pzpz|cuMemcpyAtoH_v2 ppzz
cuMemcpyDtoA_v2 pzdz|cuMemcpyAtoD_v2 dpzz|cuMemcpyAtoA_v2 pzpzz|cuMemcpyHtoAAsync_v2 pzpzp
cuMemcpyAtoHAsync_v2 ppzzp|cuTexObjectCreate pppp|cuTexObjectDestroy q
cuTexObjectGetResourceDesc pq|cuTexObjectGetTextureDesc pq|cuTexObjectGetResourceViewDesc pq
cuSurfObjectCreate pp|cuSurfObjectDestroy q|cuSurfObjectGetResourceDesc pq
cuModuleGetTexRef pps|cuModuleGetSurfRef pps|cuParamSetTexRef pip|cuTexRefCreate p|cuTexRefDestroy p
cuTexRefSetArray ppu|cuTexRefSetMipmappedArray ppu|cuTexRefSetAddress_v2 ppdz
cuTexRefSetAddress2D_v2 ppdz|cuTexRefSetAddress2D_v3 ppdz|cuTexRefSetFormat pii
cuTexRefSetAddressMode pii|cuTexRefSetFilterMode pi|cuTexRefSetMipmapFilterMode pi
cuTexRefSetMipmapLevelBias pf|cuTexRefSetMipmapLevelClamp pff|cuTexRefSetMaxAnisotropy pu
cuTexRefSetBorderColor pp|cuTexRefSetFlags pu|cuTexRefGetAddress_v2 pp|cuTexRefGetArray pp
cuTexRefGetMipmappedArray pp|cuTexRefGetFormat ppp|cuTexRefGetAddressMode ppi
cuTexRefGetFilterMode pp|cuTexRefGetMipmapFilterMode pp|cuTexRefGetMipmapLevelBias pp
cuTexRefGetMipmapLevelClamp ppp|cuTexRefGetMaxAnisotropy pp|cuTexRefGetBorderColor pp
cuTexRefGetFlags pp|cuSurfRefSetArray ppu|cuSurfRefGetArray pp
"""

COUNTED = [
    "device",
    "async",
    "host",
    "managed",
    "registered",
    "arrays",
    "textures",
    "surfaces",
    "reservations",
    "backings",
    "streams",
    "events",
    "graphs",
    "execs",
    "objects",
    "modules",
    "libraries",
    "links",
    "pools",
    "contexts",
    "primary",
    "bytes",
]


class Library:
    """A driver library: ``library(name, ...)`` calls a function and returns its status."""

    primary = None

    def __init__(self, path):
        self.path = path
        self._lib = ctypes.CDLL(path)
        for entry in _SIGNATURES.replace("\n", "|").split("|"):
            if entry:
                name, _, types = entry.partition(" ")
                if hasattr(self._lib, name):  # a real driver may lack newer functions
                    getattr(self._lib, name).argtypes = [_TYPES[letter] for letter in types]
        self.software = hasattr(self._lib, "cudadrvSoftConfigure")
        if self.software:
            for name in ("Count", "Calls", "Pending"):
                getattr(self._lib, f"cudadrvSoft{name}").restype = ctypes.c_ulonglong
            self._lib.cudadrvSoftError.restype = ctypes.c_char_p
            self._lib.cudadrvSoftSettings.restype = ctypes.c_char_p
            self._lib.cudadrvSoftUnsupported.restype = ctypes.c_char_p
            self._lib.cudadrvSoftUnsupported.argtypes = [ctypes.c_ulonglong]
            self._lib.cudadrvSoftRaces.restype = ctypes.c_ulonglong
            self._lib.cudadrvSoftRaceText.argtypes = [ctypes.c_ulonglong]
            self._lib.cudadrvSoftRaceText.restype = ctypes.c_char_p
            self._lib.cudadrvSoftFaultText.restype = ctypes.c_char_p

    def __call__(self, name, *arguments):
        return getattr(self._lib, name)(*arguments)

    def has(self, name):
        """Whether the library exports a function: a real driver may be too old for it."""
        return hasattr(self._lib, name)

    def ok(self, name, *arguments):
        status = self(name, *arguments)
        assert status == SUCCESS, f"{name} returned {status}"

    # The rest works on the software driver only:

    def configure(self, settings):
        status = self._lib.cudadrvSoftConfigure(settings.encode())
        assert status == SUCCESS, self.error()

    def settings(self):
        return self._lib.cudadrvSoftSettings().decode()

    @contextlib.contextmanager
    def checking(self, checks):
        """Turn on checks inside kernels, and yield a list that receives the hazards at the end."""
        self.configure(f"checks={checks}")
        self._lib.cudadrvSoftForgetHazards()
        self._lib.cudadrvSoftHazard.restype = ctypes.c_char_p
        hazards = []
        try:
            yield hazards
            for index in range(self._lib.cudadrvSoftHazards()):
                hazards.append(json.loads(self._lib.cudadrvSoftHazard(ctypes.c_uint64(index))))
        finally:
            self._lib.cudadrvSoftForgetHazards()
            self.configure("checks=off")

    def error(self):
        return self._lib.cudadrvSoftError().decode()

    def count(self, kind):
        return self._lib.cudadrvSoftCount(kind.encode())

    def calls(self, name=""):
        return self._lib.cudadrvSoftCalls(name.encode())

    def unsupported(self):
        """The names of the functions that were called and are not implemented."""
        found = []
        while name := self._lib.cudadrvSoftUnsupported(len(found)):
            found.append(name.decode())
        return found

    def pending(self):
        return self._lib.cudadrvSoftPending()

    def races(self):
        count = self._lib.cudadrvSoftRaces()
        return [self._lib.cudadrvSoftRaceText(index).decode() for index in range(count)]

    def forget_races(self):
        self._lib.cudadrvSoftForgetRaces()

    def fault_text(self):
        """The text that describes the error of the last kernel that failed, or None."""
        text = self._lib.cudadrvSoftFaultText()
        return text and text.decode()

    def counts(self):
        return {kind: self.count(kind) for kind in COUNTED} if self.software else {}


class Client:
    """Makes streams, events and memory in the primary context, and destroys them in `close`."""

    def __init__(self, lib):
        self.lib = lib
        self.call = lib
        self.ok = lib.ok
        self._undo = []
        self._gates = []

    def __enter__(self):
        self.ok("cuCtxSetCurrent", self.lib.primary)
        return self

    def __exit__(self, *exception):
        self.close()

    def close(self):
        for gate in self._gates:
            gate.open()
        self._gates.clear()
        while self._undo:
            name, *arguments = self._undo.pop()
            self.call(name, *arguments)

    def require(self, name):
        """Skip the test if the driver lacks a function: a real driver may be too old for it."""
        if not self.lib.has(name):
            import pytest  # programs of tests import this module, too

            pytest.skip(f"the driver has no {name}")

    def forget(self, name, value):
        """Do not destroy this object in `close`: the test has destroyed it."""
        self._undo.remove((name, value))

    def _make(self, undo, kind, name, *arguments):
        handle = kind()
        self.ok(name, ctypes.byref(handle), *arguments)
        self._undo.append((undo, handle.value))
        return handle.value

    def stream(self, flags=NON_BLOCKING):
        return self._make("cuStreamDestroy_v2", ctypes.c_void_p, "cuStreamCreate", flags)

    def event(self, flags=0):
        return self._make("cuEventDestroy_v2", ctypes.c_void_p, "cuEventCreate", flags)

    def device(self, size):
        return self._make("cuMemFree_v2", ctypes.c_uint64, "cuMemAlloc_v2", size)

    def managed(self, size):
        return self._make("cuMemFree_v2", ctypes.c_uint64, "cuMemAllocManaged", size, 1)

    def module(self, text):
        return self._make("cuModuleUnload", ctypes.c_void_p, "cuModuleLoadData", text)

    def function(self, module, name):
        handle = ctypes.c_void_p()
        self.ok("cuModuleGetFunction", ctypes.byref(handle), module, name.encode())
        return handle.value

    def variable(self, module, name):
        """Return the address and the size of a variable of a module."""
        address, size = ctypes.c_uint64(), ctypes.c_size_t()
        found = ctypes.byref(address), ctypes.byref(size)
        self.ok("cuModuleGetGlobal_v2", *found, module, name.encode())
        return address.value, size.value

    def launch(self, function, stream, *arguments, grid=1, block=1, shared=0):
        """Launch a kernel and return the status.

        Arguments are ctypes values, or integers as addresses.
        """
        cells = [ctypes.c_uint64(a) if isinstance(a, int) else a for a in arguments]
        array = (ctypes.c_void_p * max(1, len(cells)))(*map(ctypes.addressof, cells))
        sizes = (grid, 1, 1, block, 1, 1, shared)
        return self.call("cuLaunchKernel", function, *sizes, stream, array, None)

    def host(self, size, fill=0):
        address = self._make("cuMemFreeHost", ctypes.c_void_p, "cuMemHostAlloc", size, 0)
        ctypes.memset(address, fill, size)
        return address

    def gate(self):
        gate = Gate(self)
        self._gates.append(gate)
        return gate

    def read(self, address, size):
        """Return bytes of device memory, after all queued work has run."""
        self.ok("cuCtxSynchronize")
        data = ctypes.create_string_buffer(size)
        self.ok("cuMemcpyDtoH_v2", data, address, size)
        return data.raw

    def write(self, address, data):
        self.ok("cuMemcpyHtoD_v2", address, data, len(data))
        self.ok("cuCtxSynchronize")

    def finish(self, stream):
        """Poll until the stream is idle."""
        return poll(lambda: self.call("cuStreamQuery", stream))


class Flag:
    """A word of page-locked memory that a kernel or a stream waits for."""

    def __init__(self, address):
        self._word = ctypes.c_uint32.from_address(address)

    def open(self):
        self._word.value = 1


class Gate(Flag):
    """A gate blocks streams until it is opened: they wait until its word in memory is 1."""

    def __init__(self, client):
        self._client = client
        self._address = client.host(4)
        super().__init__(self._address)

    def hold(self, stream):
        self._client.ok("cuStreamWaitValue32_v2", stream, self._address, 1, GEQ)
        return self


def poll(query):
    """Repeat a query while its status is NOT_READY. Returns the first other status."""
    end = time.monotonic() + PATIENCE
    while (status := query()) == NOT_READY:
        assert time.monotonic() < end, "polling did not end"
        time.sleep(0.0002)
    return status


# A call whose thread still runs after this many seconds counts as blocked: a driver may wait in a
# loop. Even a busy machine gives each thread a processor within this time.
BUSY = 3


def wants_processor(thread):
    """Whether a thread runs, or would run if it got a processor."""
    try:
        stat = Path(f"/proc/self/task/{thread.native_id}/stat").read_text()
    except OSError:  # the thread has just ended
        return False
    return stat.rpartition(")")[2].split()[0] not in "St"


def blocks(client, gate, name, *arguments, busy=BUSY):
    """Make a call in another thread. Returns whether the call blocks until the gate is opened.

    `busy`: for how many seconds the call may work before it counts as one that blocks.
    """
    result = []

    def run():
        client.ok("cuCtxSetCurrent", client.lib.primary)
        result.append(client.call(name, *arguments))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(0.05)
    end = time.monotonic() + busy
    while thread.is_alive() and wants_processor(thread) and time.monotonic() < end:
        thread.join(0.05)
    blocked = thread.is_alive()
    gate.open()
    thread.join(PATIENCE)
    assert not thread.is_alive(), f"{name} did not return"
    assert result == [SUCCESS], f"{name} returned {result}"
    return blocked
