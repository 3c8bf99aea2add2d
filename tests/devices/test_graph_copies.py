"""Graphs that copy between devices.

Tests run on the software driver and, unless they are marked, on two GPUs.
"""

import pytest

from .test_peers import KERNEL

software = pytest.mark.cuda_software

BUFFERS = """
items = np.arange(1024, dtype="u4")
a = cu.DeviceBuffer.from_array(items, device=zero, name="a")
b = cu.DeviceBuffer.zeros(1024, "u4", device=one, name="b")

def captured(stream, *copies, name=None):
    'A graph of copies that a stream captures, each as a pair of its target and its source.'
    graph = cu.Graph(name=name)
    with graph.capture(stream):
        for target, source in copies:
            target.copy_from_async(source, stream)
    return graph
"""


# ---- captures and nodes ----


def test_captured_copies(pair):
    """A stream of either device captures copies in both directions; launches borrow both sides."""
    pair(
        BUFFERS
        + """
for stream in (near, far):
    for target, source in ((a, b), (b, a)):
        with captured(stream, (target, source), name="step") as graph:
            (node,) = graph.nodes
            assert (node.reads, node.writes) == ((source,), (target,))
            assert not source.borrowed and not target.borrowed
            step = graph.instantiate()
        step.upload(stream).wait()
        for turn in range(3):
            source.copy_from(items + turn)
            target.fill(0)
            token = step.launch(stream)
            assert (token.reads, token.writes) == ((source,), (target,))
            words = "it is being written by copy_from_async at"
            found = refused(cu.BufferBorrowedError, words, lambda: target.fill(1))
            assert "in graph 'step' on Stream" in found, found
            words = "cannot write DeviceBuffer '" + source.name
            refused(cu.BufferBorrowedError, words, lambda: source.fill(1))
            token.wait()
            assert (target.to_numpy() == items + turn).all()
        step.close()
""",
    )


def test_added_copies(pair):
    """A graph without a context gets that of the destination."""
    pair(
        BUFFERS
        + """
c = cu.DeviceBuffer.zeros(1024, "u4", device=zero, name="c")
for target, source, stream, other in ((a, b, near, far), (b, a, far, near)):
    source.copy_from(items)
    graph = cu.Graph(name="step")
    first = graph.add_copy(target, source)
    assert repr(first).startswith("<GraphNode 0 of graph 'step': add_copy at")
    back = graph.add_copy(source, target, after=[graph.add_fill(target[:512], 7, after=[first])])
    step = graph.instantiate()
    refused(ValueError, "use a stream of the graph's context", lambda: step.launch(other))
    step.launch(stream).wait()
    assert source.to_numpy().tolist() == [7] * 512 + items[512:].tolist()
graph = cu.Graph()
ahead = graph.add_copy(c, a)                        # the context of device 0
refused(cu.BufferBorrowedError, "it is being read by add_copy", lambda: graph.add_copy(a, b))
refused(cu.BufferBorrowedError, "it is being written by", lambda: graph.add_copy(b, c))
graph.add_copy(b, c, after=[ahead])
refused(ValueError, "use another graph", lambda: graph.add_copy(b[:512], b[512:], after=[ahead]))
assert len(graph.nodes) == 2
graph.instantiate().launch(near).wait()
""",
    )


def test_order_inside_of_a_graph(pair):
    pair(
        BUFFERS
        + """
graph = cu.Graph(name="step")
with graph.capture(near):
    far.wait(near)
    b.copy_from_async(a, near)
    words = "it is being written by copy_from_async on Stream 1, captured at"
    refused(cu.BufferBorrowedError, words, lambda: b.fill_async(0, far))
    refused(cu.BufferBorrowedError, "cannot write DeviceBuffer 'b'",
            lambda: b.copy_from_async(a, far))
    far.wait(near)
    b[:512].fill_async(3, far)
    a[:512].copy_from_async(b[:512], far)           # captured on a stream of the other device
    a[512:].copy_from_async(b[:512], far)
    near.wait(far)
    with cu.ordering("wait"):
        b[512:].copy_from_async(a[512:], near)
step = graph.instantiate()
step.launch(near).wait()
assert (a.to_numpy() == 3).all() and (b.to_numpy() == 3).all()
""",
    )


def test_sizes_boxes_and_batches(pair):
    pair(
        """
bytes_ = np.random.default_rng(1).integers(0, 256, (3 << 20) + 5, dtype="u1")
here = cu.DeviceBuffer.from_array(bytes_, device=zero)
there = cu.DeviceBuffer.zeros(bytes_.size, device=one)
for size in (0, 1, 3, 4097, bytes_.size - 7):
    for stream in (near, far):
        graph = cu.Graph()
        with graph.capture(stream):
            there[:size].copy_from_async(here[7:7 + size], stream)
            here[:0].copy_to_async(there[:0], stream)
        graph.add_copy(there[:0], here[:0], after=graph.nodes)
        assert len(graph.nodes) == 1 + (size > 0)
        there.fill(0)
        graph.instantiate().launch(stream).wait()
        assert (there[:size].to_numpy() == bytes_[7:7 + size]).all()
        assert (there[size:].to_numpy() == 0).all()
cube = np.arange(4 * 6 * 8, dtype="u4").reshape(4, 6, 8)
near_cube = cu.DeviceBuffer.from_array(cube, device=zero, name="near_cube")
far_cube = cu.DeviceBuffer.zeros(cube.size, "u4", device=one, name="far_cube").reshape(cube.shape)
for way in ("captured", "added"):
    for stream, boxes in ((near, np.s_[1:3, 2:5, 3:7]), (far, np.s_[2, 1:4, 2:6])):
        far_cube.fill(0)
        graph = cu.Graph()
        if way == "captured":
            with graph.capture(stream):
                far_cube[boxes].copy_from_async(near_cube[boxes], stream)
        else:
            graph.add_fill(far_cube if stream is far else here[-1:], 0)
            graph.add_copy(far_cube[boxes], near_cube[boxes], after=graph.nodes)
        step = graph.instantiate()
        step.launch(stream).wait()
        expected = np.zeros_like(cube)
        expected[boxes] = cube[boxes]
        assert (far_cube.to_numpy() == expected).all(), (way, boxes)
        step.close()
graph = cu.Graph()
with graph.capture(near):
    token = cu.copy_batch([(there[:64], here[:64]), (here[64:128], there[64:128])], near)
assert [node.operation for node in graph.nodes] == ["copy_batch"] * 2
there.fill(5)
graph.instantiate().launch(near).wait()
assert (here[64:128].to_numpy() == 5).all()
assert (there[:64].to_numpy() == bytes_[:64]).all()
""",
    )


def test_contexts_that_are_made(pair):
    """Copies between contexts of one device, and between two others; both end before the work."""
    pair(
        BUFFERS
        + """
third = cu.Context.create(zero)
with third:
    stream, mine = cu.Stream(), cu.DeviceBuffer.zeros(1024, "u4", name="mine")
graph = cu.Graph(name="step")
with graph.capture(stream):
    for call in (lambda: b.copy_from_async(a, stream), lambda: b.fill_async(1, stream),
                 lambda: b.copy_from_async(cu.LockedBuffer(1024, "u4"), stream)):
        refused(ValueError, "and one side of a copy has to be such memory", call)
    mine.copy_from_async(a, stream)
    b.copy_from_async(mine, stream)
refused(ValueError, "use another graph", lambda: graph.add_copy(b, a, after=graph.nodes))
step = graph.instantiate()
graph.close()
token = step.launch(stream)
del step, graph, mine, stream, third, call
gc.collect()
token.wait()
assert (b.to_numpy() == items).all()
del token
gc.collect()
""",
    )


# ---- changes ----


def test_changes_of_nodes(pair):
    pair(
        BUFFERS
        + """
other = cu.DeviceBuffer.from_array(items + 1, device=zero, name="other")
wrong = cu.DeviceBuffer.from_array(items, device=one, name="wrong")
last = cu.DeviceBuffer.zeros(1024, "u4", device=one, name="last")
built = cu.Graph(name="built")
built.add_copy(b, a)
for graph, stream in ((captured(near, (b, a)), near), (built, far)):
    step = graph.instantiate()
    step.launch(stream).wait()
    assert (b.to_numpy() == items).all()
    step[0].set(source=other)
    step.launch(stream).wait()
    assert (b.to_numpy() == items + 1).all()
    words = "and cannot become DeviceBuffer 'wrong'[0:1024] (uint32), device or managed memory of"
    refused(ValueError, words, lambda: step[0].set(source=wrong))
    refused(ValueError, "cannot become DeviceBuffer 'other'",
            lambda: step[0].set(source=a, target=other))
    token = step.launch(stream)
    step[0].set(source=a, target=last)
    token.wait()
    step.launch(stream).wait()
    assert (last.to_numpy() == items).all()
    step[0].enabled = False
    last.fill(0)
    token = step.launch(stream)
    assert not (token.reads or token.writes or last.borrowed)
    step[0].enabled = True
    step.launch(stream).wait()
    assert (last.to_numpy() == items).all()
    graph.close()
    b.fill(0)
    step.close()
for buffer in (a, b, other, wrong, last):
    buffer.close()                      # nothing holds them
""",
    )


def test_nodes_that_cannot_be_changed(pair):
    pair(
        BUFFERS
        + """
other = cu.DeviceBuffer.from_array(items + 1, device=zero, name="other")
graph = cu.Graph(name="step")
with graph.capture(near):
    far.wait(near)
    b.copy_from_async(a, far)           # on a stream of another context than the graph's
    near.wait(far)
    b.reshape(32, 32)[:16, :16].copy_from_async(a.reshape(32, 32)[:16, :16], near)
step = graph.instantiate()
refused(ValueError, "graph 'step' to another context", lambda: step[0].set(source=other))
refused(ValueError, "", lambda: step[1].set(source=other))
step.launch(near).wait()
assert (b.to_numpy() == items).all()
""",
    )


def test_updates(pair):
    pair(
        BUFFERS
        + """
c = cu.DeviceBuffer.from_array(items + 1, device=zero, name="c")
d = cu.DeviceBuffer.zeros(1024, "u4", device=one, name="d")
step = captured(near, (b, a)).instantiate()
step.update(captured(near, (d, c)))
a.close()                               # only the graph that is gone has used it
step.launch(near).wait()
assert (d.to_numpy() == items + 1).all()
words = "and cannot become DeviceBuffer"
refused(cu.CaptureError, words, lambda: step.update(captured(near, (c, d))))
refused(cu.CaptureError, words, lambda: step.update(captured(near, (c[:512], c[512:]))))
refused(ValueError, "and this executable of", lambda: step.update(captured(far, (d, c))))
step.update(captured(near, (b, c)))
step.launch(near).wait()
assert (b.to_numpy() == items + 1).all()
""",
    )


# ---- access ----

POOLS = """
ordered = cu.DeviceBuffer(1024, "u4", stream=far, name="ordered")
pool = cu.DriverPool("device", one)
with pool:
    of_pool = cu.DeviceBuffer(1024, "u4", stream=far, name="of_pool")
far.synchronize()
"""


def test_memory_of_pools_needs_access(pair):
    """The graph's device needs access to the pool, which does not end before the graph."""
    pair(
        BUFFERS
        + POOLS
        + """
def built(buffer):
    graph = cu.Graph(name="step")
    graph.add_copy(a, buffer)
    return graph

ways = built, lambda buffer: captured(near, (a, buffer), name="step")
plain = captured(near, (a, b)).instantiate()
for buffer, words, give, end in (
    (ordered, "enable_access(cudadrv.Device(1))",
     lambda: zero.enable_access(one), lambda: zero.disable_access(one)),
    (of_pool, "pool.allow_access(cudadrv.Device(0))",
     lambda: pool.allow_access(zero), lambda: pool.allow_access(zero, None)),
):
    for way in ways:
        found = refused(ValueError, words, lambda: way(buffer))
        assert "can copy such memory in <Context primary, device 0> only with access" in found
    captured(far, (buffer, a)).close()  # a stream of the pool's device needs no access
    buffer.fill(4)
    give()
    for way in ways:
        graph = way(buffer)
        step = graph.instantiate()
        a.fill(0)
        step.launch(near).wait()
        assert (a.to_numpy() == 4).all()
        found = refused(cu.OwnershipError, "cannot end the access of", end)
        assert "graph 'step' copies memory for which it needs this access" in found
        graph.close()
        refused(cu.OwnershipError, "graph.close(), step.close()", end)
        step.close()
    end()
    refused(ValueError, words, lambda: built(buffer))
plain.launch(near).wait()               # other memory needs no access
""",
    )


def test_a_graph_that_is_dropped_needs_no_access(pair):
    pair(
        BUFFERS
        + POOLS
        + """
zero.enable_access(one)
parent = cu.Graph(name="parent")
parent.add_graph(captured(near, (a, ordered), name="child"))
refused(cu.OwnershipError, "graph 'child' copies", lambda: zero.disable_access(one))
step = parent.instantiate()
node = parent.nodes[0]
parent.close()
refused(cu.OwnershipError, "graph 'child' copies", lambda: zero.disable_access(one))
del step
gc.collect()
zero.disable_access(one)
assert node.writes == (a,)
with cu.Graph().capture(near):
    refused(ValueError, "only with access", lambda: a.copy_from_async(ordered, near))
""",
    )


@software  # driver 580 compares the access at a change with that when the graph was made
def test_changes_need_access(machine):
    machine(
        "devices=2",
        BUFFERS
        + POOLS
        + """
zero.enable_access(one)
step = captured(near, (a, ordered), name="step").instantiate()
words = "pool.allow_access(cudadrv.Device(0))"
refused(ValueError, words, lambda: step[0].set(source=of_pool))
mine = cu.DeviceBuffer(1024, "u4", stream=near, name="mine")
words = "and cannot become DeviceBuffer 'mine'"
refused(ValueError, words, lambda: step[0].set(source=mine))
refused(cu.CaptureError, words, lambda: step.update(captured(near, (a, mine))))
other = captured(near, (a, ordered))
pool.allow_access(zero)
step[0].set(source=of_pool)
of_pool.fill(5)
step.launch(near).wait()
assert (a.to_numpy() == 5).all()
refused(cu.OwnershipError, "graph 'step' copies", lambda: pool.allow_access(zero, None))
step.update(other)
pool.allow_access(zero, None)
step.close()
other.close()
with captured(near, (a[:512], ordered[:512]), (a[512:], b[512:]), name="two") as graph:
    step = graph.instantiate()
step[1].set(source=cu.DeviceBuffer(512, "u4", device=one))     # the other copy needs the access
refused(cu.OwnershipError, "graph 'two' copies", lambda: zero.disable_access(one))
step.close()
zero.disable_access(one)
""",
    )


def test_access_is_kept_for_streams_of_the_graphs_context(pair):
    """On a stream of another context, the end of the access would not wait for a launch."""
    pair(
        BUFFERS
        + """
mine = cu.DeviceBuffer(1024, "u4", stream=near, name="mine")
one.enable_access(zero)
near.synchronize()
with cu.Graph(name="step").capture(near):
    mine.fill_async(1, near)
    far.wait(near)
    words = "Capture the copy on a stream of <Context primary, device 0>"
    refused(cu.CaptureError, words, lambda: b.copy_from_async(mine, far))
    near.wait(far)
    b.copy_from_async(mine, near)
one.disable_access(zero)
""",
    )


def test_memory_that_grows(pair):
    pair(
        BUFFERS
        + """
closed = cu.DeviceBuffer(1024, "u4", capacity=4096, device=one, name="closed")
opened = cu.DeviceBuffer(
    1024, "u4", capacity=4096, device=one, accessible_by=[zero], name="opened")
words = "or name the device when the buffer is made: accessible_by=[cudadrv.Device(0)]"
refused(ValueError, words, lambda: captured(near, (a, closed)))
refused(ValueError, words, lambda: cu.Graph().add_copy(a, closed))
captured(far, (closed, a))
opened.fill(6)
step = captured(near, (a, opened)).instantiate()
opened.grow(2048)
step.launch(near).wait()
assert (a.to_numpy() == 6).all()
""",
    )


def test_a_thread_that_ends_access_while_others_capture(pair):
    """A graph has access as long as it lives: either the capture is refused, or ending access."""
    pair(
        BUFFERS
        + POOLS
        + """
import sys
import threading

sys.setswitchinterval(1e-5)
counts = {"captured": 0, "refused": 0, "ended": 0, "kept": 0}
stop = False

def capture(way):
    with cu.Stream(device=zero).scope() as stream:
        out = cu.DeviceBuffer.zeros(1024, "u4", device=zero)
        while not stop:
            try:
                graph = way(stream, out)
            except ValueError as error:
                assert "only with access" in str(error), error
                counts["refused"] += 1
                continue
            step = graph.instantiate()
            graph.close()
            assert pool.access(zero) == "readwrite"
            step.launch(stream).wait()
            assert pool.access(zero) == "readwrite"
            step.close()
            counts["captured"] += 1

def built(stream, out):
    graph = cu.Graph()
    graph.add_copy(out, of_pool)
    return graph

ways = built, lambda stream, out: captured(stream, (out, of_pool))
threads = [threading.Thread(target=capture, args=(way,)) for way in ways]
pool.allow_access(zero)
for thread in threads:
    thread.start()
turn = 0
while turn < 300 or not (counts["captured"] and counts["ended"] and counts["refused"]):
    turn += 1
    try:
        pool.allow_access(zero, None)
        counts["ended"] += 1
        pool.allow_access(zero)
    except cu.OwnershipError:
        counts["kept"] += 1
stop = True
for thread in threads:
    thread.join()
""",
    )


# ---- bodies ----


def test_no_body_copies_between_devices(pair):
    pair(
        BUFFERS
        + """
def branched(fill):
    graph = cu.Graph(name="branches")
    before = graph.add_copy(a, b)
    node, body = graph.add_if(graph.condition(1), after=[before])
    fill(body)
    return graph

def capture(body):
    with body.capture(near):
        a.copy_from_async(b, near)

def capture_beside(body):
    with body.capture(near):
        far.wait(near)
        b.copy_from_async(a, far)
        near.wait(far)

def child(body):
    inner = cu.Graph()
    inner.add_copy(a, b)
    body.add_graph(inner)

words = "In a body, copies and fills can only use memory of that context"
for fill in (capture, capture_beside, child, lambda body: body.add_copy(a, b)):
    with branched(fill) as graph:
        found = refused(ValueError, words, graph.instantiate)
        assert "uses DeviceBuffer" in found
        assert "and the graph to <Context primary, device 0>" in found
b.fill(2)
with branched(lambda body: body.add_fill(a[:512], 1)) as graph, graph.instantiate() as step:
    step.launch(near).wait()            # the copy is beside the node with the body
    assert a.to_numpy().tolist() == [1] * 512 + [2] * 512
""",
    )


# ---- the driver, and the ends of things ----


@software
def test_driver_calls(machine):
    """A captured copy is a copy by address. Drivers do not capture cuMemcpyPeerAsync."""
    machine(
        "devices=2",
        BUFFERS
        + """
NAMES = "cuMemcpyDtoDAsync_v2", "cuMemcpy2DAsync_v2", "cuMemcpyPeerAsync", "cuMemcpy3DPeerAsync"
def calls():
    return [testing.calls(name) for name in NAMES]

before = calls()
graph = captured(near, (b, a))
with cu.Graph().capture(near):
    b.reshape(32, 32)[:3, :4].copy_from_async(a.reshape(32, 32)[:3, :4], near)
assert [now - then for now, then in zip(calls(), before)] == [1, 1, 0, 0]
""",
    )


@software
def test_calls_that_fail(machine):
    machine(
        "devices=2",
        BUFFERS
        + POOLS
        + """
zero.enable_access(one)
graph = cu.Graph(name="step")
with graph.capture(near):
    for name, buffer in (("cuMemcpyDtoDAsync_v2", b), ("cuPointerGetAttribute", ordered),
                         ("cuMemPoolGetAccess", ordered), ("cuMemcpyDtoDAsync_v2", ordered)):
        testing.fail(name, 2)
        refused(cu.CudaError, name[:17], lambda: a.copy_from_async(buffer, near))
    a.copy_from_async(b, near)
for name, buffer in (("cuGraphAddMemcpyNode", b), ("cuGraphAddMemcpyNode", ordered),
                     ("cuPointerGetAttribute", ordered), ("cuMemPoolGetAccess", ordered)):
    testing.fail(name, 2)
    refused(cu.CudaError, name, lambda: graph.add_copy(a, buffer, after=graph.nodes))
assert len(graph.nodes) == 1
zero.disable_access(one)                # no failed call needs it
step = graph.instantiate()
testing.fail("cuGraphExecMemcpyNodeSetParams", 1)
refused(cu.CudaError, "", lambda: step[0].set(source=cu.DeviceBuffer(1024, "u4", device=one)))
step.launch(near).wait()
""",
    )


@software
def test_a_lost_device(machine):
    """A graph that uses memory of a lost context is not launched. Its own device still works."""
    machine(
        "devices=2",
        BUFFERS
        + """
graph = captured(near, (a, b))
step, later = graph.instantiate(), graph.instantiate()
joined = cu.Graph(name="joined")
with joined.capture(near):
    far.wait(near)
    b[:4].fill_async(1, far)
    near.wait(far)
beside = joined.instantiate()
parent = cu.Graph()
parent.add_graph(graph)
with one:
    testing.fail("cuMemsetD32Async", 700)
    refused(cu.ContextLostError, "cuMemsetD32Async", lambda: b.fill_async(0, far))
other = cu.DeviceBuffer(1024, "u4", device=zero)
for call in (lambda: step.launch(near), lambda: beside.launch(near),
             lambda: parent.instantiate().launch(near), lambda: step[0].set(target=other),
             lambda: graph.add_copy(other, b, after=graph.nodes)):
    refused(cu.ContextLostError, "lost by an earlier error", call)
with cu.Graph().capture(near):
    refused(cu.ContextLostError, "", lambda: a.copy_from_async(b, near))
step[0].enabled = False
step.launch(near).wait()                # runs nothing of that device
a.fill_async(3, near)
assert (a.to_numpy(stream=near) == 3).all()
for each in (step, later, graph, beside, joined, parent, b):
    each.close()
""",
        tail="\nnear.synchronize()\nassert not testing.races()\n",
    )


@software
def test_a_launch_finds_that_the_other_device_is_lost(machine):
    """If a launch fails because another context is lost, the graph's own stays usable."""
    machine(
        "devices=2,kernel_faults=record",
        BUFFERS
        + KERNEL.replace("with zero", "with one")
        + """
graph = cu.Graph(name="joined")
with graph.capture(near):
    far.wait(near)
    b.copy_from_async(a, far)
    near.wait(far)
step = graph.instantiate()
nothing = ctypes.c_uint64(8)            # an illegal address
add.launch(1, 1, nothing, nothing, 1, stream=far)
driver = ctypes.CDLL(cu.driver_info().path)
with one:
    driver.cuCtxSynchronize()           # the library does not learn of the error
found = refused(cu.ContextLostError, "cuGraphLaunch: CUDA", lambda: step.launch(near))
assert "launch of add on Stream" in found
a.fill_async(3, near)
assert (a.to_numpy(stream=near) == 3).all()
refused(cu.ContextLostError, "lost by an earlier error", lambda: b.fill_async(0, far))
""",
        tail="\nnear.synchronize()\nassert not testing.races()\n",
    )


@software
def test_a_reset_device(machine):
    machine(
        "devices=2",
        BUFFERS
        + POOLS
        + """
zero.enable_access(one)
graph = captured(near, (a, b), (a, ordered))
step = graph.instantiate()
testing.reset_device()
words = "The device was reset"
for call in (lambda: step.launch(near), lambda: step[0].set(source=b), graph.instantiate):
    refused(cu.ContextLostError, words, call)
zero, one = cu.Device(0), cu.Device(1)
zero.enable_access(one)
zero.disable_access(one)                # what was reset needs no access
for each in (step, graph, a, b):
    each.close()
""",
    )


def test_memory_outlives_the_graph(pair):
    pair(
        BUFFERS
        + """
last = cu.DeviceBuffer.zeros(1024, "u4", device=zero)
for turn in range(30):
    source = cu.DeviceBuffer(1024, "u4", device=zero)
    target = cu.DeviceBuffer(1024, "u4", device=one, pooled=turn % 2 == 0)
    source.fill_async(turn, near)
    step = captured(near, (target, source), (last, target)).instantiate()
    step.launch(near)
    del source, target, step            # their memory must not be used again before the copies
    cu.DeviceBuffer(1024, "u4", device=zero).fill_async(999, near)
    cu.DeviceBuffer(1024, "u4", device=one).fill_async(999, far)
    near.synchronize()
    assert (last.to_numpy() == turn).all(), turn
far.synchronize()
cu.reap()
graph = captured(near, (b, a), name="step")
step = graph.instantiate()
for buffer in (a, b):
    refused(cu.BufferBorrowedError, "graph 'step' uses it", buffer.close)
graph.close()
refused(cu.BufferBorrowedError, "graph 'step' uses it", b.close)
step.launch(near)
step.close()
refused(cu.BufferBorrowedError, "being written by launch of graph 'step' on", b.close)
near.synchronize()
b.close()
""",
    )


def test_a_capture_of_another_library(pair):
    pair(
        BUFFERS
        + """
driver = ctypes.CDLL(cu.driver_info().path)
step, raw, stream = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p(near.handle)
with zero:
    assert driver.cuStreamBeginCapture_v2(stream, 2) == 0
    with cu.joins_capture(near) as kept:
        b.copy_from_async(a, near)
    assert driver.cuStreamEndCapture(stream, ctypes.byref(raw)) == 0
    assert driver.cuGraphInstantiateWithFlags(ctypes.byref(step), raw, ctypes.c_ulonglong(0)) == 0
    refused(cu.BufferBorrowedError, "uses it", a.close)
    refused(cu.BufferBorrowedError, "uses it", b.close)
    with a.lend(near, readonly=True), b.lend(far):
        assert driver.cuGraphLaunch(step, stream) == 0
        near.synchronize()
    assert driver.cuGraphExecDestroy(step) == 0 and driver.cuGraphDestroy(raw) == 0
kept.close()
far.synchronize()
assert (b.to_numpy() == items).all()
""",
    )


@software
def test_a_forked_child_is_refused(script, driver, monkeypatch):
    monkeypatch.setenv("CUDADRV_SOFTWARE", "devices=2")
    script.refused_after_fork(
        """
    import os, sys
    import cudadrv as cu
    zero, one = cu.Device(0), cu.Device(1)
    far = cu.Stream(device=one)
    a, b = cu.DeviceBuffer(8, device=zero), cu.DeviceBuffer(8, device=one)
    graph = cu.Graph()
    graph.add_copy(b, a)
    step = graph.instantiate()
""",
        """graph.add_copy(b, a) | step.launch(far) | step[0].set(source=a)""",
        "",
        "assert os.waitpid(child, 0)[1] == 0",
    )
