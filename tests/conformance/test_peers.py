"""Several devices: access between peers, copies between devices, pools of another device."""

import ctypes

import pytest

from .boxes import DEVICE, UNIFIED, Copy3D, Copy3DPeer
from .client import (
    CAPTURE_INVALIDATED,
    CAPTURE_UNSUPPORTED,
    INVALID_CONTEXT,
    INVALID_DEVICE,
    INVALID_VALUE,
    SUCCESS,
)
from .graphs import IF, captured, conditional, instantiated, new_graph
from .structures import DEVICE_LOCATION, READWRITE, Access, Location, pool_properties

PEER_ACCESS_ALREADY_ENABLED, PEER_ACCESS_NOT_ENABLED, PEER_ACCESS_UNSUPPORTED = 704, 705, 217
CONTEXT_IS_DESTROYED = 709
NOT_FOUND = 500
LAUNCH_FAILED = 719
ACCESS_SUPPORTED = 2
DEVICE_ORDINAL, MEMPOOL_HANDLE = 9, 17


def number(call, name, *arguments):
    value = ctypes.c_int(-7)
    call.ok(name, ctypes.byref(value), *arguments)
    return value.value


class Pair:
    """Contexts of two devices that can be peers."""

    def __init__(self, client):
        self.client, self.lib = client, client.lib
        other = ctypes.c_void_p()
        self.lib.ok("cuDevicePrimaryCtxRetain", ctypes.byref(other), 1)
        self.contexts = [self.lib.primary, other.value]
        self._freed = []
        # JAX may have run in this process: it gives each device access to all others.
        self._had_access = [
            device for device in (0, 1) if self._access("cuCtxDisablePeerAccess", device) == SUCCESS
        ]

    def _access(self, name, device, *arguments):
        with self.on(device):
            return self.lib(name, self.contexts[1 - device], *arguments)

    def close(self):
        for device in self._had_access:
            self._access("cuCtxEnablePeerAccess", device, 0)
        for device, name, handle in reversed(self._freed):
            with self.on(device):
                self.lib.ok(name, handle)
        self.lib.ok("cuDevicePrimaryCtxRelease_v2", 1)

    def on(self, device):
        return On(self, device)

    def memory(self, device, data):
        with self.on(device):
            address = ctypes.c_uint64()
            self.lib.ok("cuMemAlloc_v2", ctypes.byref(address), len(data))
            self.lib.ok("cuMemcpyHtoD_v2", address, data, len(data))
            self.lib.ok("cuCtxSynchronize")
        self._freed.append((device, "cuMemFree_v2", address))
        return address.value

    def stream(self, device):
        with self.on(device):
            stream = ctypes.c_void_p()
            self.lib.ok("cuStreamCreate", ctypes.byref(stream), 1)
        self._freed.append((device, "cuStreamDestroy_v2", stream))
        return stream.value

    def read(self, device, address, size):
        with self.on(device):
            return self.client.read(address, size)


class On:
    """A `with` block in which a device's context is current."""

    def __init__(self, pair, device):
        self._lib, self._context = pair.lib, pair.contexts[device]

    def __enter__(self):
        self._lib.ok("cuCtxPushCurrent_v2", self._context)

    def __exit__(self, *exception):
        self._lib.ok("cuCtxPopCurrent_v2", None)


@pytest.fixture
def pair(client):
    if number(client, "cuDeviceGetCount") < 2:
        pytest.skip("needs two devices")
    if not number(client, "cuDeviceCanAccessPeer", 0, 1):
        pytest.skip("the devices cannot be peers")
    pair = Pair(client)
    yield pair
    pair.close()


def test_who_can_be_peers(pair, client):
    value = ctypes.byref(ctypes.c_int())
    assert number(client, "cuDeviceCanAccessPeer", 1, 0) == 1
    assert number(client, "cuDeviceCanAccessPeer", 0, 0) == 0
    assert number(client, "cuDeviceGetP2PAttribute", ACCESS_SUPPORTED, 0, 1) == 1
    assert client.call("cuDeviceCanAccessPeer", value, 0, 99) == INVALID_DEVICE
    assert client.call("cuDeviceCanAccessPeer", None, 0, 1) == INVALID_VALUE
    assert client.call("cuDeviceGetP2PAttribute", value, ACCESS_SUPPORTED, 0, 0) == INVALID_DEVICE
    assert client.call("cuDeviceGetP2PAttribute", value, 99, 0, 1) == INVALID_VALUE


def test_access_is_enabled_once(pair, client):
    own, other = pair.contexts
    assert client.call("cuCtxDisablePeerAccess", other) == PEER_ACCESS_NOT_ENABLED
    client.ok("cuCtxEnablePeerAccess", other, 0)
    assert client.call("cuCtxEnablePeerAccess", other, 0) == PEER_ACCESS_ALREADY_ENABLED
    with pair.on(1):  # access is enabled in one direction only
        assert client.call("cuCtxDisablePeerAccess", own) == PEER_ACCESS_NOT_ENABLED
    client.ok("cuCtxDisablePeerAccess", other)
    assert client.call("cuCtxDisablePeerAccess", other) == PEER_ACCESS_NOT_ENABLED


def test_refused_access(pair, client):
    own, other = pair.contexts
    assert client.call("cuCtxEnablePeerAccess", other, 1) == INVALID_VALUE
    assert client.call("cuCtxEnablePeerAccess", own, 0) == PEER_ACCESS_UNSUPPORTED
    assert client.call("cuCtxDisablePeerAccess", own) == PEER_ACCESS_NOT_ENABLED
    assert client.call("cuCtxEnablePeerAccess", None, 0) == INVALID_CONTEXT


def test_access_ends_with_the_peer(software, pair, client):
    other = pair.contexts[1]
    client.ok("cuCtxEnablePeerAccess", other, 0)
    client.ok("cuDevicePrimaryCtxReset_v2", 1)
    assert client.call("cuCtxEnablePeerAccess", other, 0) == CONTEXT_IS_DESTROYED
    again = ctypes.c_void_p()
    client.ok("cuDevicePrimaryCtxRetain", ctypes.byref(again), 1)
    assert client.call("cuCtxDisablePeerAccess", again) == PEER_ACCESS_NOT_ENABLED
    client.ok("cuDevicePrimaryCtxRelease_v2", 1)


def test_another_context_of_the_same_device(software, pair, client):
    context = ctypes.c_void_p()
    client.ok("cuCtxCreate_v2", ctypes.byref(context), 0, 0)
    client.ok("cuCtxPopCurrent_v2", None)
    assert client.call("cuCtxEnablePeerAccess", context, 0) == PEER_ACCESS_UNSUPPORTED
    client.ok("cuCtxDestroy_v2", context)


def test_peer_copies(pair, client):
    source, target = pair.memory(0, b"abcdefgh"), pair.memory(1, bytes(8))
    client.ok("cuMemcpyPeer", target, pair.contexts[1], source, pair.contexts[0], 8)
    client.ok("cuCtxSynchronize")
    assert pair.read(1, target, 8) == b"abcdefgh"
    back = pair.memory(0, bytes(8))
    stream = pair.stream(1)
    with pair.on(1):
        arguments = (back, pair.contexts[0], target, pair.contexts[1], 8)
        client.ok("cuMemcpyPeerAsync", *arguments, stream)
        client.ok("cuStreamSynchronize", stream)
    assert pair.read(0, back, 8) == b"abcdefgh"


def test_ordinary_copies_between_devices(pair, client):
    source, target = pair.memory(0, b"abcdefgh"), pair.memory(1, bytes(8))
    stream = client.stream()
    client.ok("cuMemcpyDtoDAsync_v2", target, source, 4, stream)
    client.ok("cuMemcpyAsync", target + 4, source + 4, 4, stream)
    client.ok("cuStreamSynchronize", stream)
    assert pair.read(1, target, 8) == b"abcdefgh"
    host = client.host(8)
    # The memory is on a device whose context is not current.
    client.ok("cuMemcpyDtoH_v2", host, target, 8)
    assert ctypes.string_at(host, 8) == b"abcdefgh"


@pytest.mark.parametrize("kind", [DEVICE, UNIFIED])
def test_boxes_between_devices(pair, client, kind):
    source, target = pair.memory(0, bytes(range(24))), pair.memory(1, bytes(24))
    copy = Copy3DPeer(srcMemoryType=kind, dstMemoryType=kind, srcDevice=source, dstDevice=target)
    copy.srcContext, copy.dstContext = pair.contexts
    copy.srcPitch, copy.srcHeight, copy.srcXInBytes = 4, 3, 1
    copy.dstPitch, copy.dstHeight = 2, 2
    copy.WidthInBytes, copy.Height, copy.Depth = 2, 2, 2
    client.ok("cuMemcpy3DPeerAsync", ctypes.byref(copy), client.stream())
    client.ok("cuCtxSynchronize")
    assert pair.read(1, target, 8) == bytes([1, 2, 5, 6, 13, 14, 17, 18])


def test_named_contexts_do_not_matter(pair, client):
    source, target = pair.memory(0, b"abcdefgh"), pair.memory(1, bytes(8))
    own, other = pair.contexts
    client.ok("cuMemcpyPeer", target, own, source, other, 4)
    client.ok("cuMemcpyPeer", target + 4, None, source + 4, None, 4)
    client.ok("cuCtxSynchronize")
    assert pair.read(1, target, 8) == b"abcdefgh"


def test_a_context_that_is_none(software, pair, client):
    source, target = pair.memory(0, bytes(8)), pair.memory(1, bytes(8))
    arguments = (target, pair.contexts[1], source, 4096, 8)
    assert client.call("cuMemcpyPeer", *arguments) == INVALID_CONTEXT


def test_fills_and_values_need_access(pair, client):
    address, stream = pair.memory(1, bytes(8)), client.stream()
    start, size = ctypes.byref(ctypes.c_uint64()), ctypes.byref(ctypes.c_size_t())
    calls = [
        ("cuMemsetD8_v2", address, 1, 4),
        ("cuMemsetD8Async", address, 1, 4, stream),
        ("cuMemsetD2D8_v2", address, 4, 1, 2, 2),
        ("cuStreamWriteValue32_v2", stream, address, 1, 0),
    ]
    for call in calls:
        assert client.call(*call) == INVALID_VALUE, call
    assert client.call("cuMemGetAddressRange_v2", start, size, address) == NOT_FOUND
    client.ok("cuCtxEnablePeerAccess", pair.contexts[1], 0)
    for call in calls:
        client.ok(*call)
    client.ok("cuMemGetAddressRange_v2", start, size, address)
    client.ok("cuCtxSynchronize")
    client.ok("cuCtxDisablePeerAccess", pair.contexts[1])


def test_pool_memory_needs_access_to_its_pool(pair, client):
    address, target = ctypes.c_uint64(), client.device(64)
    own, other = pair.contexts
    with pair.on(1):
        client.ok("cuMemAllocAsync", ctypes.byref(address), 64, pair.stream(1))
        client.ok("cuCtxSynchronize")
    client.ok("cuCtxEnablePeerAccess", other, 0)  # peer access does not cover memory of a pool
    assert client.call("cuMemcpyDtoD_v2", target, address, 64) == INVALID_VALUE
    assert client.call("cuMemsetD8_v2", address, 0, 64) == INVALID_VALUE
    client.ok("cuMemcpyPeer", target, own, address, other, 64)
    client.ok("cuCtxDisablePeerAccess", other)
    client.ok("cuMemFreeAsync", address, client.stream())
    client.ok("cuCtxSynchronize")


def test_the_current_context_needs_access_to_pool_memory(pair, client):
    """Where a copy runs does not count."""
    addresses, plain = [], [pair.memory(device, bytes(64)) for device in (0, 1)]
    for device in (0, 1):
        address = ctypes.c_uint64()
        with pair.on(device):
            client.ok("cuMemAllocAsync", ctypes.byref(address), 64, pair.stream(device))
            client.ok("cuCtxSynchronize")
        addresses.append(address.value)
    for device, stream in ((0, 0), (0, 1), (1, 0), (1, 1)):
        for other in (0, 1):
            with pair.on(device):
                copy = (plain[1 - other], addresses[other], 64, pair.stream(stream))
                status = client.call("cuMemcpyDtoDAsync_v2", *copy)
                assert status == (SUCCESS if other == device else INVALID_VALUE), copy
    for device in (0, 1):
        with pair.on(device):
            client.ok("cuCtxSynchronize")
            client.ok("cuMemFreeAsync", addresses[device], pair.stream(device))
            client.ok("cuCtxSynchronize")


def test_memory_knows_its_device(pair, client):
    for device in (0, 1):
        address = pair.memory(device, bytes(8))
        assert number(client, "cuPointerGetAttribute", DEVICE_ORDINAL, address) == device


def test_pool_of_another_device(pair, client):
    pool, stream = ctypes.c_void_p(), client.stream()
    client.ok("cuMemPoolCreate", ctypes.byref(pool), pool_properties(device=1))
    assert client.call("cuDeviceSetMemPool", 0, pool) == INVALID_VALUE
    flags, visitor = ctypes.c_int(), Location(DEVICE_LOCATION, 0)
    access = (ctypes.byref(flags), pool, ctypes.byref(visitor))
    client.ok("cuMemPoolGetAccess", *access)
    assert flags.value == 0
    for granted in (READWRITE, 0, READWRITE):
        client.ok("cuMemPoolSetAccess", pool, ctypes.byref(Access(visitor, granted)), 1)
        client.ok("cuMemPoolGetAccess", *access)
        assert flags.value == granted
    address = ctypes.c_uint64()
    client.ok("cuMemAllocFromPoolAsync", ctypes.byref(address), 64, pool, stream)
    client.ok("cuStreamSynchronize", stream)
    assert number(client, "cuPointerGetAttribute", DEVICE_ORDINAL, address) == 1
    client.ok("cuMemFreeAsync", address, stream)
    client.ok("cuStreamSynchronize", stream)
    client.ok("cuMemPoolDestroy", pool)


# ---- graphs ----


def copy_of(kind, target, source, size=8):
    """The parameters of a node that copies bytes. `kind` is the type of memory of both sides."""
    ends = {"dstMemoryType": kind, "srcMemoryType": kind, "dstDevice": target, "srcDevice": source}
    return ctypes.byref(Copy3D(**ends, WidthInBytes=size, Height=1, Depth=1))


def launched(pair, client, device, step):
    with pair.on(device):
        stream = pair.stream(device)
        client.ok("cuGraphLaunch", step, stream)
        client.ok("cuStreamSynchronize", stream)


def ordered(pair, client, device):
    """Memory of a device's default pool, to which the other device has no access."""
    address = ctypes.c_uint64()
    with pair.on(device):
        client.ok("cuMemAllocAsync", ctypes.byref(address), 64, pair.stream(device))
        client.ok("cuCtxSynchronize")
    return address.value


def freed(pair, client, device, address):
    with pair.on(device):
        client.ok("cuMemFreeAsync", address, pair.stream(device))
        client.ok("cuCtxSynchronize")


@pytest.fixture(params=[False, True], ids=["without access", "with access"])
def linked(pair, client, request):
    """The pair, without peer access or with access in both directions."""
    for device in (0, 1) if request.param else ():
        with pair.on(device):
            client.ok("cuCtxEnablePeerAccess", pair.contexts[1 - device], 0)
    yield pair
    for device in (0, 1) if request.param else ():
        with pair.on(device):
            client.ok("cuCtxDisablePeerAccess", pair.contexts[1 - device])


@pytest.mark.parametrize("device", [0, 1])
@pytest.mark.parametrize("call", ["cuMemcpyAsync", "cuMemcpyDtoDAsync_v2"])
def test_a_captured_copy_between_devices(linked, client, call, device):
    """A stream of either device captures a copy by address."""
    source, target = linked.memory(0, b"abcdefgh"), linked.memory(1, bytes(8))
    with linked.on(device):
        stream = linked.stream(device)
        with captured(client, stream) as graph:
            client.ok(call, target, source, 8, stream)
        step = graph.exec()
    launched(linked, client, device, step)
    assert linked.read(1, target, 8) == b"abcdefgh"


@pytest.mark.parametrize("device", [0, 1])
def test_a_captured_peer_copy_ends_the_capture(linked, client, device):
    source, target = linked.memory(0, b"abcdefgh"), linked.memory(1, bytes(8))
    arguments = (target, linked.contexts[1], source, linked.contexts[0], 8)
    graph = ctypes.c_void_p()
    with linked.on(device):
        stream = linked.stream(device)
        client.ok("cuStreamBeginCapture_v2", stream, 2)
        assert client.call("cuMemcpyPeerAsync", *arguments, stream) == CAPTURE_UNSUPPORTED
        ended = client.call("cuStreamEndCapture", stream, ctypes.byref(graph))
    assert (ended, graph.value) == (CAPTURE_INVALIDATED, None)


@pytest.mark.parametrize("device", [0, 1])
def test_a_captured_copy_of_a_box_by_contexts_ends_the_capture(linked, client, device):
    source, target = linked.memory(0, b"abcdefgh"), linked.memory(1, bytes(8))
    copy = Copy3DPeer(
        srcMemoryType=DEVICE,
        srcDevice=source,
        srcContext=linked.contexts[0],
        dstMemoryType=DEVICE,
        dstDevice=target,
        dstContext=linked.contexts[1],
        **{"WidthInBytes": 4, "Height": 2, "Depth": 1, "srcPitch": 4, "dstPitch": 4},
    )
    graph = ctypes.c_void_p()
    with linked.on(device):
        stream = linked.stream(device)
        client.ok("cuStreamBeginCapture_v2", stream, 2)
        status = client.call("cuMemcpy3DPeerAsync", ctypes.byref(copy), stream)
        ended = client.call("cuStreamEndCapture", stream, ctypes.byref(graph))
    assert (status, ended, graph.value) == (CAPTURE_UNSUPPORTED, CAPTURE_INVALIDATED, None)


@pytest.mark.parametrize("kind", [DEVICE, UNIFIED])
@pytest.mark.parametrize("device", [0, 1])
def test_a_node_that_copies_between_devices(linked, client, device, kind):
    """A node with the context of either device. In an executable graph it gets another source."""
    source, target = linked.memory(0, b"abcdefgh"), linked.memory(1, bytes(8))
    other = linked.memory(0, b"ABCDEFGH")
    node, context = ctypes.c_void_p(), linked.contexts[device]
    with linked.on(device):
        graph = new_graph(client)
        place = ctypes.byref(node), graph, None, 0
        client.ok("cuGraphAddMemcpyNode", *place, copy_of(kind, target, source), context)
        _, step = instantiated(client, graph)
    launched(linked, client, device, step)
    assert linked.read(1, target, 8) == b"abcdefgh"
    change = (step, node, copy_of(kind, target, other), context)
    with linked.on(device):
        client.ok("cuGraphExecMemcpyNodeSetParams", *change)
    launched(linked, client, device, step)
    assert linked.read(1, target, 8) == b"ABCDEFGH"


@pytest.mark.parametrize("kind", [DEVICE, UNIFIED])
@pytest.mark.parametrize("device", [0, 1])
def test_a_node_goes_on_copying_between_the_same_devices(linked, client, device, kind):
    """An executable graph takes no memory of another device for a side."""
    near, far = ([linked.memory(each, bytes(8)) for _ in range(2)] for each in (0, 1))
    node, context = ctypes.c_void_p(), linked.contexts[device]
    with linked.on(device):
        graph = new_graph(client)
        place = ctypes.byref(node), graph, None, 0
        client.ok("cuGraphAddMemcpyNode", *place, copy_of(kind, far[0], near[0]), context)
        _, step = instantiated(client, graph)
        sides = (far[1], near[1]), (near[1], near[0]), (far[0], far[1]), (near[0], far[0])
        params = [copy_of(kind, *each) for each in sides]
        call = "cuGraphExecMemcpyNodeSetParams"
        found = [client.call(call, step, node, each, context) for each in params]
    assert found == [SUCCESS, INVALID_VALUE, INVALID_VALUE, INVALID_VALUE]


@pytest.mark.parametrize("to", [0, 1])
def test_a_body_cannot_copy_between_devices(linked, client, to):
    memory = [linked.memory(each, bytes(8)) for each in (0, 1)]
    node, made = ctypes.c_void_p(), ctypes.c_void_p()
    with linked.on(0):
        graph = new_graph(client)
        _, (body,), _ = conditional(client, graph, IF, 1, value=1)
        place = ctypes.byref(node), body, None, 0
        sides = copy_of(DEVICE, memory[to], memory[1 - to])
        client.ok("cuGraphAddMemcpyNode", *place, sides, linked.contexts[0])
        status = client.call("cuGraphInstantiateWithFlags", ctypes.byref(made), graph, 0)
    assert status == INVALID_VALUE


@pytest.mark.parametrize("device", [0, 1])
def test_graphs_copy_pool_memory_only_with_access_to_the_pool(linked, client, device):
    """Peer access of the contexts is not access to the pools."""
    source, target = (ordered(linked, client, each) for each in (0, 1))
    with linked.on(device):
        graph, node, stream = new_graph(client), ctypes.c_void_p(), linked.stream(device)
        place = ctypes.byref(node), graph, None, 0
        for kind in (DEVICE, UNIFIED):
            params = copy_of(kind, target, source)
            context = linked.contexts[device]
            status = client.call("cuGraphAddMemcpyNode", *place, params, context)
            assert status == INVALID_VALUE
        client.ok("cuStreamBeginCapture_v2", stream, 2)
        for call in ("cuMemcpyAsync", "cuMemcpyDtoDAsync_v2"):
            assert client.call(call, target, source, 8, stream) == INVALID_VALUE
        made = ctypes.c_void_p()
        client.call("cuStreamEndCapture", stream, ctypes.byref(made))
        if made.value:
            client.ok("cuGraphDestroy", made)
    for each, address in enumerate((source, target)):
        freed(linked, client, each, address)


def test_a_launch_without_the_access_that_its_graph_had(lost):
    """The access to a pool ends after the graph is instantiated."""
    pair, address, pool = Pair(lost), ctypes.c_uint64(), ctypes.c_void_p()
    target, stream = pair.memory(0, bytes(8)), pair.stream(0)
    visitor = Location(DEVICE_LOCATION, 0)
    with pair.on(1):
        lost.ok("cuMemPoolCreate", ctypes.byref(pool), pool_properties(device=1))
        lost.ok("cuMemAllocFromPoolAsync", ctypes.byref(address), 8, pool, pair.stream(1))
        lost.ok("cuCtxSynchronize")
    lost.ok("cuMemPoolSetAccess", pool, ctypes.byref(Access(visitor, READWRITE)), 1)
    with captured(lost, stream) as graph:
        lost.ok("cuMemcpyDtoDAsync_v2", target, address, 8, stream)
    step = graph.exec()
    lost.ok("cuGraphLaunch", step, stream)
    lost.ok("cuStreamSynchronize", stream)
    lost.ok("cuMemPoolSetAccess", pool, ctypes.byref(Access(visitor, 0)), 1)
    lost.ok("cuGraphLaunch", step, stream)
    assert lost.call("cuStreamSynchronize", stream) == LAUNCH_FAILED


@pytest.mark.parametrize("device", [0, 1])
def test_a_stream_of_another_device_joins_a_capture(linked, client, device):
    source, target = linked.memory(0, b"abcdefgh"), linked.memory(1, bytes(8))
    near, far = linked.stream(device), linked.stream(1 - device)
    events = []
    for each in (device, 1 - device):
        with linked.on(each):
            events.append(client.event())
    with linked.on(device), captured(client, near) as graph:
        client.ok("cuEventRecord", events[0], near)
        client.ok("cuStreamWaitEvent", far, events[0], 0)
        with linked.on(1 - device):
            client.ok("cuMemcpyDtoDAsync_v2", target, source, 8, far)
            client.ok("cuEventRecord", events[1], far)
        client.ok("cuStreamWaitEvent", near, events[1], 0)
    with linked.on(device):
        step = graph.exec()
    launched(linked, client, device, step)
    assert linked.read(1, target, 8) == b"abcdefgh"
