"""The client of a question: it calls the driver, and destroys what the question has made."""

import ctypes
import threading
import time

from driver import GEQ, INT, NON_BLOCKING, OUT, OutType
from section import SetupFailed

SUCCESS = "SUCCESS"


UNDO = {
    "cuMemAlloc_v2": "cuMemFree_v2",
    "cuMemAllocPitch_v2": "cuMemFree_v2",
    "cuMemAllocManaged": "cuMemFree_v2",
    "cuMemAllocAsync": "cuMemFree_v2",
    "cuMemAllocFromPoolAsync": "cuMemFree_v2",
    "cuMemHostAlloc": "cuMemFreeHost",
    "cuMemAllocHost_v2": "cuMemFreeHost",
    "cuMemHostRegister": "cuMemHostUnregister",
    "cuMemHostRegister_v2": "cuMemHostUnregister",
    "cuMemPoolCreate": "cuMemPoolDestroy",
    "cuStreamCreate": "cuStreamDestroy_v2",
    "cuStreamCreateWithPriority": "cuStreamDestroy_v2",
    "cuEventCreate": "cuEventDestroy_v2",
    "cuCtxCreate_v2": "cuCtxDestroy_v2",
    "cuCtxCreate_v4": "cuCtxDestroy_v2",
    "cuArrayCreate_v2": "cuArrayDestroy",
    "cuArray3DCreate_v2": "cuArrayDestroy",
    "cuMipmappedArrayCreate": "cuMipmappedArrayDestroy",
    "cuTexObjectCreate": "cuTexObjectDestroy",
    "cuSurfObjectCreate": "cuSurfObjectDestroy",
    "cuGraphCreate": "cuGraphDestroy",
    "cuGraphClone": "cuGraphDestroy",
    "cuGraphInstantiateWithFlags": "cuGraphExecDestroy",
    "cuModuleLoad": "cuModuleUnload",
    "cuModuleLoadData": "cuModuleUnload",
    "cuModuleLoadDataEx": "cuModuleUnload",
    "cuModuleLoadFatBinary": "cuModuleUnload",
    "cuLibraryLoadData": "cuLibraryUnload",
    "cuLibraryLoadFromFile": "cuLibraryUnload",
}


class Client:
    def __init__(self, library, patience):
        self.library = library
        self.patience = patience
        self.primary = None
        self._undo = []  # (kind, handle, context current when it was made)
        self._gates = []
        self._keep = []

    # Calls

    def __call__(self, name, *arguments):
        return self.library(name, *arguments)

    def must(self, name, *arguments):
        status = self(name, *arguments)
        if status != SUCCESS:
            raise SetupFailed(f"{name} {status}")

    def get(self, name, *arguments):
        """Returns what a successful call wrote to its `OutType` arguments: one value, or a tuple.

        Returns the status of a call that failed.
        """
        cells = [a.kind() if isinstance(a, OutType) else None for a in arguments]
        pairs = zip(arguments, cells, strict=True)
        status = self(name, *(a if c is None else ctypes.byref(c) for a, c in pairs))
        values = tuple(cell.value for cell in cells if cell is not None)
        if status != SUCCESS:
            return status
        return values[0] if len(values) == 1 else values

    def need(self, name, *arguments):
        value = self.get(name, *arguments)
        if isinstance(value, str):
            raise SetupFailed(f"{name} {value}")
        return value

    def cell(self, value=0, kind=ctypes.c_uint64):
        """Makes a variable for a result of a call, and returns a reference to it."""
        self._keep.append(kind(value))
        return ctypes.byref(self._keep[-1])

    def keep(self, thing):
        self._keep.append(thing)
        return thing

    # Setup

    def initialise(self):
        self.must("cuInit", 0)

    def start(self):
        self.initialise()
        self.primary = self.need("cuDevicePrimaryCtxRetain", OUT, 0)
        self.must("cuCtxSetCurrent", self.primary)

    # Making things

    def _made(self, undo, handle):
        context = self.get("cuCtxGetCurrent", OUT)
        self._undo.append((undo, handle, context))
        return handle

    def make(self, undo, name, *arguments):
        return self._made(undo, self.need(name, *arguments))

    def stream(self, flags=NON_BLOCKING):
        return self.make("cuStreamDestroy_v2", "cuStreamCreate", OUT, flags)

    def event(self, flags=0):
        return self.make("cuEventDestroy_v2", "cuEventCreate", OUT, flags)

    def device(self, size=4096):
        return self.make("cuMemFree_v2", "cuMemAlloc_v2", OUT, size)

    def managed(self, size=4096, flags=1):
        return self.make("cuMemFree_v2", "cuMemAllocManaged", OUT, size, flags)

    def ordered(self, size=4096, stream=None):
        """Allocates stream-ordered memory, and waits until any stream can use it."""
        stream = self.stream() if stream is None else stream
        address = self.make("cuMemFree_v2", "cuMemAllocAsync", OUT, size, stream)
        self.must("cuStreamSynchronize", stream)
        return address

    def host(self, size=4096, flags=0):
        address = self.make("cuMemFreeHost", "cuMemHostAlloc", OUT, size, flags)
        ctypes.memset(address, 0, size)
        return address

    def pageable(self, size=4096, align=4096):
        """Allocates pageable memory in pages of its own."""
        size = (size + 4095) // 4096 * 4096
        buffer = self.keep(ctypes.create_string_buffer(size + 2 * 4096))
        return (ctypes.addressof(buffer) + 4095) // 4096 * 4096

    def registered(self, size=4096, flags=0):
        address = self.pageable(size)
        self.must("cuMemHostRegister_v2", address, size, flags)
        return self._made("cuMemHostUnregister", address)

    def memory(self, kind, size=4096):
        return getattr(self, kind)(size)

    def context(self, flags=0, device=0):
        """Creates a context, which is then current."""
        handle = self.need("cuCtxCreate_v2", OUT, flags, device)
        self._undo.append(("cuCtxDestroy_v2", handle, None))
        return handle

    def tried(self, name, *arguments):
        """Makes a call and returns its status. What the call made is destroyed in the end."""
        status = self(name, *arguments)
        if status == SUCCESS and name in UNDO and arguments[0]:
            first = arguments[0]
            handle = first if isinstance(first, int) else first._obj.value
            context = None if "Ctx" in name else self.get("cuCtxGetCurrent", OUT)
            self._undo.append((UNDO[name], handle, context))
        return status

    def release(self, handle):
        """Frees or destroys something that this client made. Returns the status."""
        entry = next(entry for entry in self._undo if entry[1] == handle)
        status = self(*entry[:2])
        if status == SUCCESS:
            self._undo.remove(entry)
            if entry[0] == "cuCtxDestroy_v2":  # the call also destroys what was made in it
                self._undo = [other for other in self._undo if other[2] != handle]
        return status

    def forget(self, handle):
        """Forgets a handle that the question itself destroyed.

        If it is the handle of a context, also forgets what was made in this context.
        """
        self._undo = [entry for entry in self._undo if handle not in entry[1:]]

    # Data

    def bytes_at(self, address, size):
        """Reads bytes from memory that the host can access."""
        return ctypes.string_at(address, size)

    def fill_host(self, address, content):
        ctypes.memmove(address, content, len(content))

    def read(self, address, size):
        """Reads bytes from device memory after all work of the context is complete."""
        self.must("cuCtxSynchronize")
        buffer = ctypes.create_string_buffer(size)
        self.must("cuMemcpyDtoH_v2", buffer, address, size)
        return buffer.raw

    def write(self, address, content):
        self.must("cuMemcpyHtoD_v2", address, bytes(content), len(content))
        self.must("cuCtxSynchronize")

    # Time

    def gate(self, *streams):
        """Makes a gate. It holds the streams until it is opened."""
        gate = Gate(self)
        self._gates.append(gate)
        for stream in streams:
            gate.hold(stream)
        return gate

    def open_gates(self):
        for gate in self._gates:
            gate.open()

    def thread(self, function, context=True):
        """Runs a function in another thread, by default with the primary context current."""
        result = []

        def run():
            if context:
                self("cuCtxSetCurrent", self.primary)
            result.append(function())

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        return result[0] if result else "failed"

    def blocks(self, name, *arguments):
        """Makes a call in another thread. Returns whether it blocks until the gates are opened."""
        return self.function_blocks(lambda: self.tried(name, *arguments))

    def function_blocks(self, function):
        result = []
        context = self.get("cuCtxGetCurrent", OUT)

        def run():
            self("cuCtxSetCurrent", context)
            result.append(function())

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(self.patience)
        word = "blocks" if thread.is_alive() else "returns"
        self.open_gates()
        thread.join()
        status = result[0] if result else "failed"
        return word if status == SUCCESS else f"{word} {status}"

    def later(self, query, seconds=5.0):
        """Repeats a query until its status is no longer NOT_READY."""
        end = time.monotonic() + seconds
        while (status := query()) == "NOT_READY":
            if time.monotonic() > end:
                return "NOT_READY for ever"
            time.sleep(0.0005)
        return status

    # The end of a question

    def close(self):
        """Destroys what the question made. Returns the status of the context after that."""
        self.open_gates()
        self._gates.clear()
        if not self.primary:
            self._keep.clear()
            return SUCCESS
        mode = self.cell(2)
        self("cuThreadExchangeStreamCaptureMode", mode)
        self._end_captures()
        for undo, handle, context in reversed(self._undo):
            if context:
                self("cuCtxSetCurrent", context)
            self(undo, handle)
        self._undo.clear()
        while self.get("cuCtxPopCurrent_v2", OUT) not in ("INVALID_CONTEXT", 0):
            pass
        status = self("cuCtxSetCurrent", self.primary)
        if status == SUCCESS:
            status = self("cuCtxSynchronize")
        self("cuThreadExchangeStreamCaptureMode", self.cell(0))
        self._keep.clear()
        return status

    def _end_captures(self):
        for undo, handle, context in self._undo:
            if undo == "cuStreamDestroy_v2":
                if context:
                    self("cuCtxSetCurrent", context)
                if self.get("cuStreamIsCapturing", handle, INT) in (1, 2):
                    graph = self.get("cuStreamEndCapture", handle, OUT)
                    if isinstance(graph, int) and graph:
                        self("cuGraphDestroy", graph)


class Gate:
    """A word of page-locked memory that streams wait for."""

    def __init__(self, client):
        self._client = client
        context = client.get("cuCtxGetCurrent", OUT)
        client("cuCtxSetCurrent", client.primary)
        self.address = client.host(64, flags=1)
        client("cuCtxSetCurrent", context)
        self._word = ctypes.c_uint32.from_address(self.address)
        self._closed = True

    def hold(self, stream):
        self._client.must("cuStreamWaitValue32_v2", stream, self.address, 1, GEQ)
        return self

    def open(self):
        """Opens the gate. A second call does not write, because the memory may be freed by then."""
        if self._closed:
            self._word.value = 1
        self._closed = False
