"""A forked child of a process that has used the driver: all calls are refused, it ends quietly."""

from pathlib import Path

import pytest

TESTS = str(Path(__file__).parents[1])
HEAD = """
    import gc, os, sys
    import cudadrv as cu
    stream, event, timed = cu.Stream(), cu.Event(), cu.Event(timing=True)
    stream.record(event)
    stream.record(timed)
    locked, device = cu.LockedBuffer.zeros(16), cu.DeviceBuffer(16)
    token = locked.fill_async(1, stream)
    context = stream.context
    held = cu.DeviceBuffer(16)
    signal = cu.Signal()
    stream.set(signal, 1)
    graph = cu.Graph()
    node = graph.add_fill(held, 1)
    _, body = graph.add_if(graph.condition(1), after=[node])
    body.add_fill(held, 2)
    step = graph.instantiate()
    step_node = step[0]

    class Theirs:
        def __cuda_stream__(self):
            return 0, 1

    def end(child):
        "Nothing of the child's may have gone wrong."
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        stream.synchronize()
        assert locked[0] == 1
        assert status == 0, status
"""

# Calls that a child may make, separated by `|`.
CALLS = """
    cu.driver_info() | cu.Device(0) | cu.Device.count() | cu.Device.name.__get__(stream.device)
    stream.device.attribute("warp_size") | stream.device.synchronize() | stream.device.total_memory
    context.synchronize() | context.priority_range | context.__enter__()
    cu.Context.create(stream.device) | cu.Stream() | cu.Stream.legacy() | cu.Stream.per_thread()
    cu.Stream.from_handle(2) | stream.synchronize() | stream.done | stream.record() | stream.handle
    stream.record(event) | stream.wait(event) | stream.wait(token) | stream.wait(stream)
    stream.close() | stream.__enter__() | cu.Event() | event.synchronize() | event.done
    stream.synchronize(timeout=1) | event.synchronize(timeout=1) | token.wait(timeout=1)
    cu.Device() | cu.Device.current() | cu.Device.all() | cu.Device.memory_info(stream.device)
    cu.Device.pci_bus_id.__get__(stream.device) | cu.Stream.from_object(Theirs())
    locked.fill_async(1, Theirs()) | stream.wait(Theirs()) | device.to_numpy() | context.handle
    event.close() | timed.elapsed_ms(timed) | token.done | token.wait() | cu.DeviceBuffer(4)
    cu.LockedBuffer(4) | cu.UnifiedBuffer(4) | locked.fill_async(1, stream) | locked.fill(1)
    device.fill(1) | device.copy_from(locked) | locked.copy_to(device) | locked[0]
    locked.close() | device.close() | cu.reap()
    cu.Signal() | stream.set(signal, 2) | stream.wait(signal, 1) | signal.set(2) | signal.wait(1)
    signal.at(1) | signal.value | signal.address | signal.__enter__() | signal.close()
    graph.add_copy(held, device) | graph.add_fill(held, 1, after=[node]) | graph.add_graph(graph)
    graph.condition() | graph.add_if(1) | graph.add_while(1) | graph.add_switch(1, 2)
    graph.nodes | graph.edges | graph.capture(stream) | graph.instantiate() | graph.close()
    body.add_fill(held, 1) | body.nodes | step.launch(stream) | step.nodes | step[0] | len(step)
    step.update(graph) | step_node.set(value=2) | setattr(step_node, "enabled", False)
    step.close() | step_node.node | step_node.enabled
"""


def test_every_call_is_refused(script):
    script.refused_after_fork(HEAD, CALLS, "pass", "end(child)")


# A program with a graph that keeps objects, and with a joined capture of another library.
GRAPHS = (
    HEAD
    + """
    import ctypes
    library, raw = ctypes.CDLL(cu.driver_info().path), ctypes.c_void_p()
    graph, new = cu.Graph(), cu.Graph()
    with graph.capture(stream):
        device.copy_from_async(graph.constant(bytearray(16)), stream)
        with device.lend(stream):
            pass
    step = graph.instantiate()

    def begin():
        with stream.device:
            assert library.cuStreamBeginCapture_v2(ctypes.c_void_p(stream.handle), 0) == 0

    def finish():
        with stream.device:
            handle = ctypes.c_void_p(stream.handle)
            assert library.cuStreamEndCapture(handle, ctypes.byref(raw)) == 0
            assert library.cuGraphDestroy(raw) == 0

    begin()
    with cu.joins_capture(stream) as kept:
        device.fill_async(1, stream)
    finish()
"""
)


def test_every_call_of_graphs_is_refused(script):
    calls = """
        graph.nodes | graph.edges | graph.to_svg() | graph.to_dot() | graph.instantiate()
        graph.capture(stream) | graph.constant(bytearray(4)) | graph.close() | step.launch(stream)
        step.nodes | step.close() | cu.joins_capture(stream) | kept.nodes | kept.close()
        kept.__enter__() | new.capture(stream) | device.explain()
    """
    script.refused_after_fork(GRAPHS, calls, "pass", "kept.close(); end(child)")


@pytest.mark.parametrize("ending", ["os._exit(0)", "sys.exit(0)", "del graph, step, kept, device"])
@pytest.mark.parametrize("block", ["new.capture(stream)", "cu.joins_capture(stream)"])
def test_a_fork_during_a_capture(script, block, ending):
    script.quiet(
        GRAPHS
        + f"""
    kept.close()
    joins = {"joins" in block}
    if joins:
        begin()
    with {block} as kept, device.lend(stream):
        device.fill_async(1, stream)
        child = os.fork()
        if child == 0:
            {ending}
            sys.exit(0)
    if joins:
        finish()
        kept.close()
    end(child)
    step.launch(stream).wait()
    """
    )


# Arguments of methods that need some, and calls that are not refused because they make no driver
# call.
ARGUMENTS = """{
    "wait": [(event,)], "record": [(), (event,)], "elapsed_ms": [(timed,)], "create": [(device0,)],
    "copy_from": [(b"x" * 16,), (locked,)], "copy_to": [(bytearray(16),), (locked,)],
    "copy_from_async": [(b"x" * 16, stream), (locked, stream)], "fill": [(1,)],
    "copy_to_async": [(device, stream)], "fill_async": [(1, stream)], "split_at": [(3,)],
    "chunks": [(3,)], "view": [("u2",)], "attribute": [("warp_size",)], "from_array": [(b"abc",)],
    "from_memory": [(b"abc",)],
    "zeros": [(3,)], "from_raw": [(4096, 1)], "from_address": [(4096, 1)], "from_handle": [(1,)],
    "from_object": [(stream,)], "__getitem__": [(0,), (slice(0, 2),)], "lend": [(stream,), (None,)],
    "reshape": [(-1,)], "give_back": [(stream,)],
    "bind": [(locked,)], "prefetch": [("host", stream), ("host",)], "discard": [(stream,)],
    "discard_and_prefetch": [("host", stream)], "attach": [(stream,), ("host", stream)],
    "to": [("host",)], "capture": [(stream,)], "launch": [(stream,)], "update": [(graph,)],
    "set": [(), (1,), (signal, 2)], "at": [(1,)],
    "add_copy": [(held, device)], "add_fill": [(held, 1)],
    "add_call": [(len, locked)], "add_graph": [(graph,)],
    "add_if": [(1,)], "add_launch": [(kernel, 1, 1)],
    "grow": [(32,)], "shrink": [(8,)], "share": [(stream,)], "accept": [()],
    "enable_access": [(peer,), (context,)], "disable_access": [(peer,), (context,)],
    "from_memory": [(bytearray(8192),)], "pitched": [((3, 4),)], "add_switch": [(1, 2)],
    "add_while": [(1,)], "constant": [(b"abc",)], "call": [(len, locked)],
}"""
MAY_ANSWER = """
    blocking bind can_access closed context count current device dtype external from_object handle
    itemsize limits link_to migrations name nbytes ordering ordinal peers primary priority reads
    scalar_access scope shape site stream stream_ordered strides timing writes __len__
"""


def test_every_attribute_refuses_or_needs_no_driver(script):
    script.quiet(
        HEAD
        + f"""
    managed, ordered = cu.UnifiedBuffer(16), cu.DeviceBuffer(16, stream=stream)
    device0 = peer = stream.device
    kernel = cu.Module.from_file({str(Path(TESTS) / "kernels" / "kernels.ptx")!r})["count"]
    things = [stream, event, timed, locked, device, managed, ordered, token, context, device0]
    things += [graph, step, step_node, signal]
    special = "__enter__ __getitem__ __int__ __cuda_stream__ __array__ __len__ __await__".split()
    arguments, may_answer = {" ".join(ARGUMENTS.split())}, {MAY_ANSWER.split()}

    def answer(thing, name, *given):
        try:
            found = getattr(thing, name)
            found = found(*given) if callable(found) else found
            return list(found) if name == "__await__" else found
        except cu.ForkedError:
            return "refused"
        except TypeError as error:  # the host never reads a DeviceBuffer
            words = "has no access to single items", "is no array", "exactly 0 positional"
            words += ("positional argument", "number of a signal")  # of other classes
            words += ("has incorrect type",)  # Context instead of Device, or the reverse
            return "refused" if any(word in str(error) for word in words) else error

    child = os.fork()
    if child == 0:
        missed = []
        for thing in things:
            for name in dir(thing):
                if name in may_answer or (name.startswith("_") and name not in special):
                    continue
                for given in arguments.get(name, [()]):
                    found = answer(thing, name, *given)
                    if not (isinstance(found, str) and found == "refused"):
                        missed.append((type(thing).__name__, name, found))
        for miss in missed:
            print(*miss)
        sys.stdout.flush()
        os._exit(bool(missed))
    end(child)
    """
    )


def test_views_are_refused_and_reports_answer(script):
    script.quiet(
        HEAD
        + """
    child = os.fork()
    if child == 0:
        for view in (memoryview, lambda it: memoryview(it.readonly())):
            try:
                view(locked)
            except cu.ForkedError:
                continue
            os._exit(1)
        cu.memory_report(), cu.live_buffers(), repr(locked), repr(token), locked.name
        os._exit(0)
    end(child)
    """
    )


@pytest.mark.parametrize("ending", ["os._exit(0)", "sys.exit(0)", "pass"])
def test_destructors_are_quiet(script, ending):
    script.quiet(
        HEAD
        + f"""
    child = os.fork()
    if child == 0:
        del stream, event, timed, locked, device, token
        gc.collect()
        {ending}
    else:
        end(child)
    """
    )


def test_blocks_are_left_quietly(script):
    script.quiet(
        HEAD
        + """
    with stream.device, stream:
        child = os.fork()
        if child == 0:
            sys.exit(0)
    end(child)
    """
    )


def test_exports_end_in_the_child_and_in_the_parent(script):
    script.quiet(
        HEAD
        + """
    import numpy
    host = cu.LockedBuffer.zeros(16)
    array, capsule = numpy.from_dlpack(host), device.__dlpack__(stream=stream.handle)
    imported = cu.from_dlpack(device.lend(stream), stream)
    child = os.fork()
    if child == 0:
        del array, capsule, imported  # their deleters run here, too
        try:
            host.fill_async(1, stream)
        except cu.ForkedError:
            os._exit(0)
    end(child)
    try:
        host.fill_async(1, stream)
        sys.exit("it is lent")
    except cu.BufferExportedError:
        pass
    del array, capsule, imported
    host.fill_async(1, stream)
    device.fill_async(1, stream)
    stream.synchronize()
    """
    )


@pytest.mark.parametrize("end", ["end", "end_without_the_gil", "end_as_the_process_ends"])
def test_deleters_in_the_child_end_nothing_of_the_parent(script, end):
    script.quiet(
        HEAD
        + f"""
    sys.path.insert(0, {TESTS!r})
    from capsules import Consumer
    consumer = Consumer(device.__dlpack__(stream=stream.handle))
    other = cu.Stream()
    child = os.fork()
    if child == 0:
        consumer.{end}()
        try:
            device.fill_async(1, stream)
        except cu.ForkedError:
            sys.exit(0)
        os._exit(1)
    end(child)
    try:
        device.fill_async(1, other)
        sys.exit("it is lent")
    except cu.BufferExportedError:
        pass
    consumer.end_without_the_gil()
    other.wait(stream)
    device.fill_async(1, other)
    other.synchronize()
    """
    )


def test_what_needs_no_driver_still_answers(script):
    script.quiet(
        HEAD
        + """
    child = os.fork()
    if child == 0:
        print(repr(stream), repr(event), repr(context), repr(stream.device), stream.closed)
        os._exit(0)
    end(child)
    """
    )


def test_a_fork_while_threads_work(script):
    """A lock that another thread holds at the fork does not block the child."""
    script.quiet(
        HEAD
        + """
    import threading
    stop = []
    def work():
        mine, buffer = cu.Stream(), cu.LockedBuffer.zeros(16)
        while not stop:
            mine.wait(buffer.fill_async(1, mine))
            mine.record().synchronize()
    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads: thread.start()
    for _ in range(20):
        child = os.fork()
        if child == 0:
            del stream, event, timed, locked, device, token
            gc.collect()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    stop.append(True)
    for thread in threads: thread.join()
    """
    )
