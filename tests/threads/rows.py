"""The rows of the pair matrix: a call of each public method and property of each class.

The stubs list the members. Properties and methods without arguments need nothing here; every other
method has a line in ARGUMENTS, and every class a line in KINDS, or in INTERNAL. Something new that
has no line fails test_rows.py.
"""

import ast
import asyncio
import ctypes
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from capsules import new_capsule
from other_library import Library

import cudadrv as cu

PACKAGE = Path(cu.__file__).parent
PTX = (Path(__file__).parents[1] / "kernels" / "kernels.ptx").read_bytes()
COUNT = 64
HOST = np.arange(COUNT, dtype="u1")
GRANULE = 2 << 20

# Classes that a program does not meet, or that nothing changes: named tuples and protocols.
INTERNAL = {
    *(
        "Access",
        "AccessWindow",
        "Borrowed",
        "Completion",
        "ExchangeTable",
        "Filling",
        "KernelAttributes",
    ),
    *(
        "Limits",
        "Migrations",
        "PipelineReport",
        "Reached",
        "Receipt",
        "Signature",
        "Tensor",
        "Ticket",
        "Turn",
    ),
}


class World:
    """Objects that are used beside the shared one. They last for many rounds."""

    def __init__(self) -> None:
        self.library = Library()
        self.device = cu.Device(0)
        self.context = self.device.context
        self.streams = [cu.Stream(), cu.Stream(), cu.Stream(blocking=True)]
        self.stream, self.side, self.blocking = self.streams
        self.start, self.event = cu.Event(timing=True), self.stream.record()
        self.stream.record(self.start)
        self.signal = cu.Signal()
        self.source = cu.DeviceBuffer.from_array(HOST)
        self.target = cu.LockedBuffer.zeros(COUNT)
        self.token = self.target.fill_async(0, self.stream)
        self.module = cu.Module(PTX)
        self.kernel = self.module["scaled"]
        self.floats = self.source[:16].view("f4")
        self.pause: Callable[[], Any] = lambda: time.sleep(0)

    def graph(self) -> cu.Graph:
        """A graph with nodes: a fill, a launch and a copy."""
        graph = cu.Graph()
        fill = graph.add_fill(self.source, 1)
        launch = graph.add_launch(self.kernel, 1, 1, self.floats, after=[fill])
        graph.add_copy(self.target, self.source, after=[launch])
        return graph

    def end(self) -> None:
        self.device.synchronize()
        del self.floats
        for thing in (
            self.source,
            self.target,
            self.module,
            self.event,
            self.signal,
            *self.streams,
        ):
            thing.close()
        self.library.end()


# ---- what the stubs say ----


class Member:
    """A method or a property of a class in a stub."""

    def __init__(self, owner: str, name: str, node: ast.stmt) -> None:
        self.owner, self.name = owner, name
        self.setter, self.needs_arguments = name.endswith("="), False
        self.property = not isinstance(node, ast.FunctionDef)
        if isinstance(node, ast.FunctionDef):
            decorators = [ast.unparse(each) for each in node.decorator_list]
            self.property = "property" in decorators
            self.setter = any(each.endswith(".setter") for each in decorators)
            given = node.args.posonlyargs + node.args.args
            bound = 0 if "staticmethod" in decorators else 1
            required = len(given) - len(node.args.defaults) - bound
            required += sum(each is None for each in node.args.kw_defaults)
            self.needs_arguments = bool(required) or node.args.vararg is not None
            self.name += "=" * self.setter

    @property
    def row(self) -> str:
        return f"{self.owner}.{self.name}"


# Other modules with public classes.
IN_PYTHON = ("_group.py", "_pipeline.py", "_tracing.py", "_guarding.py")


def members() -> dict[str, dict[str, Member]]:
    """The members of each public class, by name."""
    classes = {
        node.name: node
        for path in [*PACKAGE.glob("*.pyi"), *(PACKAGE / name for name in IN_PYTHON)]
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef) and ast.unparse(node.body) != "..."
    }
    public = {name: node for name, node in classes.items() if name[0] != "_"}
    found = {name: dict(_members_of(node, classes)) for name, node in public.items()}
    left = [name for name in found if name.endswith("Error") or name in INTERNAL]
    return {name: found[name] for name in found if found[name] and name not in left}


def _members_of(node: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> Iterator[Any]:
    for base in node.bases:
        if ast.unparse(base) in classes:
            for name, member in _members_of(classes[ast.unparse(base)], classes):
                if member.owner[0] == "_":  # a reader knows the class that he uses
                    member.owner = node.name
                yield name, member
    for child in node.body:
        if isinstance(child, ast.AnnAssign) and isinstance(child.target, ast.Name):
            if "ClassVar" not in ast.unparse(child.annotation):
                yield child.target.id, Member(node.name, child.target.id, child)
                yield child.target.id + "=", Member(node.name, child.target.id + "=", child)
        elif isinstance(child, ast.FunctionDef):
            special = child.name.startswith("__") and child.name.endswith("__")
            # __exit__: see __enter__
            if child.name in ("__init__", "__new__", "__exit__", "__del__"):
                continue
            if special or child.name[0] != "_":
                member = Member(node.name, child.name, child)
                yield member.name, member


def rows_of(kind: str) -> dict[str, Callable[[Any, World], Any]]:
    """The calls of a kind of object, by name: its methods, and functions that take it."""
    of = KINDS[kind].of
    calls = {
        member.row: call_of(member)
        for member in members()[of].values()
        if member.row not in EXCLUDED
    }
    return calls | (FUNCTIONS if issubclass(getattr(cu, of, object), cu.Buffer) else {})


def call_of(member: Member) -> Callable[[Any, World], Any]:
    name = member.name
    if member.row in ARGUMENTS:
        return ARGUMENTS[member.row]
    if member.needs_arguments or member.setter:
        raise KeyError(f"{member.row} needs a line in ARGUMENTS of {Path(__file__).name}")
    if member.property:
        return lambda thing, w: getattr(thing, name)
    if name == "__enter__":
        return _in_a_block
    if name == "__await__":
        return lambda thing, w: asyncio.run(_awaited(thing))
    return lambda thing, w: getattr(thing, name)()


def _in_a_block(thing: Any, w: World) -> None:
    with thing:
        w.pause()


async def _awaited(thing: Any) -> Any:
    return await thing


# ---- arguments ----

# These end the process, its driver, or other rows of the same kind.
EXCLUDED = {
    "HostBuffer.__delitem__",  # always raises TypeError
    "DeviceBuffer.__iter__",
    "DeviceBuffer.__array__",
    "Buffer.__cuda_array_interface__",
}


def _share(buffer: cu.Buffer, w: World) -> None:
    buffer.share(w.stream)
    w.pause()
    buffer.accept(stream=w.stream)


def _capture(graph: cu.Graph, w: World) -> None:
    with cu.Stream() as stream, graph.capture(stream, after=[]):
        w.pause()
        w.source.fill_async(1, stream)


def _copy_batch(buffer: Any, w: World) -> None:
    source, target = (each.reshape(buffer.shape) for each in (w.source, w.target))
    half = len(buffer) // 2
    cu.copy_batch([(buffer[:half], source[:half]), (target[half:], buffer[half:])], w.stream)


# Functions that take several buffers.
FUNCTIONS: dict[str, Callable[[Any, World], Any]] = {"copy_batch": _copy_batch}

ARGUMENTS: dict[str, Callable[[Any, World], Any]] = {
    # buffers
    "Region.ordering=": lambda t, w: setattr(t, "ordering", "wait"),
    "Region.__getitem__": lambda t, w: t[8:16],
    "HostBuffer.__getitem__": lambda t, w: (t[8:16], t[3]),
    "Region.split_at": lambda t, w: t.split_at(8),
    "Region.chunks": lambda t, w: t.chunks(16),
    "Region.reshape": lambda t, w: t.reshape(8, -1),
    "Region.view": lambda t, w: t.view("u4"),
    "Buffer.from_array": lambda t, w: t.from_array(HOST),
    "LockedBuffer.from_array": lambda t, w: t.from_array(HOST),
    "LockedBuffer.from_memory": lambda t, w: t.from_memory(np.ones(8, "f4")),
    "Buffer.zeros": lambda t, w: t.zeros(COUNT),
    "LockedBuffer.zeros": lambda t, w: t.zeros(COUNT),
    "Buffer.from_raw": lambda t, w: t.from_raw(type(t)(COUNT).into_raw(), COUNT),
    "Buffer.from_address": lambda t, w: t.from_address(t.address, COUNT, owner=t),
    "Buffer.into_raw": lambda t, w: type(t).from_raw(t.into_raw(), COUNT),
    "Buffer.copy_from": lambda t, w: t.copy_from(HOST, stream=w.stream),
    "Buffer.copy_to": lambda t, w: t.copy_to(np.empty_like(HOST), stream=w.stream),
    "Buffer.copy_from_async": lambda t, w: t.copy_from_async(w.source, w.stream),
    "Buffer.copy_to_async": lambda t, w: t.copy_to_async(w.target, w.stream),
    "Buffer.fill": lambda t, w: t.fill(1, stream=w.side),
    "Buffer.fill_async": lambda t, w: t.fill_async(2, w.stream),
    "Buffer.to": lambda t, w: t.to(w.device, copy=True, stream=w.stream),
    "Buffer.lend": lambda t, w: _in_a_block(t.lend(w.blocking), w),
    "Buffer.give_back": lambda t, w: t.give_back(w.stream),
    "Buffer.share": _share,
    "Buffer.accept": lambda t, w: t.accept(stream=w.stream),
    "Buffer.__dlpack__": lambda t, w: t.__dlpack__(stream=w.blocking.handle),
    "HostBuffer.scalar_access=": lambda t, w: setattr(t, "scalar_access", True),
    "HostBuffer.__setitem__": lambda t, w: t.__setitem__(slice(0, 8), 5),
    "HostBuffer.read": lambda t, w: _in_a_block(t.read(), w),
    "HostBuffer.write": lambda t, w: _in_a_block(t.write(), w),
    "HostBuffer.__array__": lambda t, w: t.__array__(copy=True),
    "HostBuffer.__buffer__": lambda t, w: memoryview(t),
    "ReadOnly.__array__": lambda t, w: np.asarray(t),
    "ReadOnly.__buffer__": lambda t, w: memoryview(t),
    "DeviceBuffer.pitched": lambda t, w: t.pitched((4, 8)),
    "DeviceBuffer.grow": lambda t, w: t.grow(2 * GRANULE),
    "DeviceBuffer.shrink": lambda t, w: t.shrink(COUNT),
    "DeviceBuffer.to_numpy": lambda t, w: t.to_numpy(stream=w.stream),
    "UnifiedBuffer.prefetch": lambda t, w: t.prefetch(w.device, w.stream),
    "UnifiedBuffer.discard": lambda t, w: t.discard(w.stream),
    "UnifiedBuffer.discard_and_prefetch": lambda t, w: t.discard_and_prefetch(w.device, w.stream),
    "UnifiedBuffer.attach": lambda t, w: t.attach(w.stream),
    "UnifiedBuffer.advise": lambda t, w: t.advise(read_mostly=True, preferred="host"),
    "Loan.__buffer__": lambda t, w: memoryview(t),
    "Loan.__dlpack__": lambda t, w: t.__dlpack__(stream=w.blocking.handle),
    "Loan.back": lambda t, w: _in_a_block(t.back(), w),
    # arrays and textures
    "Array.ordering=": lambda t, w: setattr(t, "ordering", "wait"),
    "Array.__getitem__": lambda t, w: t[2:4].to_numpy(),
    "Array.level": lambda t, w: t.level(0).shape,
    "Array.from_array": lambda t, w: t.from_array(HOST),
    "Array.copy_from": lambda t, w: t.copy_from(HOST.reshape(8, 8), stream=w.stream),
    "Array.copy_to": lambda t, w: t.copy_to(w.target, stream=w.stream),
    "Array.copy_from_async": lambda t, w: t.copy_from_async(w.source, w.stream),
    "Array.copy_to_async": lambda t, w: t.copy_to_async(w.target, w.stream),
    # streams and events
    "Stream.from_handle": lambda t, w: t.from_handle(w.side.handle),  # this stream stays open
    "Stream.from_object": lambda t, w: t.from_object(t),
    "Stream.wait": lambda t, w: t.wait(w.event),
    "Stream.set": lambda t, w: t.set(w.signal, w.signal.value + 1),
    "Signal.set": lambda t, w: t.set(t.value + 1),
    "Signal.wait": lambda t, w: t.wait(t.value),
    "Signal.at": lambda t, w: t.at(t.value),
    "Stream.call": lambda t, w: t.call(len, cu.read(w.target)),
    "Stream.bind": lambda t, w: t.bind(w.target).fill_async(1),
    "Event.elapsed_ms": lambda t, w: (t.synchronize(), t.elapsed_ms(w.start)),
    "StreamGroup.wait": lambda t, w: t.wait(w.stream),
    "StreamGroup.__iter__": lambda t, w: list(t),
    "StreamGroup.__getitem__": lambda t, w: t[0],
    "StreamGroup.scope": lambda t, w: _in_a_block(t.scope(), w),
    # devices and pools
    "Device.attribute": lambda t, w: t.attribute("warp_size"),
    "Device.can_access": lambda t, w: t.can_access(cu.Device(1)),
    "Device.enable_access": lambda t, w: t.enable_access(cu.Device(1)),
    "Device.disable_access": lambda t, w: (t.synchronize(), t.disable_access(cu.Device(1))),
    "Device.link_to": lambda t, w: t.link_to(cu.Device(1)),
    "Device.__eq__": lambda t, w: t == w.device,
    "Context.create": lambda t, w: t.create(w.device),
    "Context.ordering=": lambda t, w: setattr(t, "ordering", None),
    "Context.enable_access": lambda t, w: t.enable_access(cu.Device(1).context),
    "Context.disable_access": lambda t, w: (
        t.synchronize(),
        t.disable_access(cu.Device(1).context),
    ),
    "DriverPool.release_threshold=": lambda t, w: setattr(t, "release_threshold", 1 << 20),
    "DriverPool.reuse_follow_event_dependencies=": lambda t, w: setattr(
        t, "reuse_follow_event_dependencies", True
    ),
    "DriverPool.reuse_allow_opportunistic=": lambda t, w: setattr(
        t, "reuse_allow_opportunistic", True
    ),
    "DriverPool.reuse_allow_internal_dependencies=": lambda t, w: setattr(
        t, "reuse_allow_internal_dependencies", True
    ),
    "DriverPool.allow_access": lambda t, w: t.allow_access(cu.Device(1)),
    "DriverPool.access": lambda t, w: t.access(w.device),
    "MemoryPool.limit_bytes=": lambda t, w: setattr(t, "limit_bytes", 1 << 20),
    "MemoryPool.driver_pool=": lambda t, w: setattr(t, "driver_pool", None),
    "MemoryPools.on_out_of_memory=": lambda t, w: setattr(t, "on_out_of_memory", None),
    # modules, kernels, graphs
    "Module.from_file": lambda t, w: t.from_file(Path(__file__).parents[1] / "kernels/kernels.ptx"),
    "Module.link": lambda t, w: t.link([PTX]),
    "ContextLimits.printf_bytes=": lambda t, w: setattr(t, "printf_bytes", 1 << 21),
    "ContextLimits.heap_bytes=": lambda t, w: setattr(t, "heap_bytes", 1 << 24),
    "ContextLimits.stack_bytes=": lambda t, w: setattr(t, "stack_bytes", 2048),
    "ContextLimits.persisting_bytes=": lambda t, w: setattr(t, "persisting_bytes", 0),
    "Module.__getitem__": lambda t, w: t["saxpy"],
    "Module.__contains__": lambda t, w: "saxpy" in t,
    "Module.__iter__": lambda t, w: list(t),
    "Module.global_": lambda t, w: t.global_("counter", "u4"),
    "Kernel.launch": lambda t, w: t.launch(1, 1, w.floats, stream=w.stream),
    "Kernel.prepare": lambda t, w: t.prepare(1, 1, w.floats),
    "Kernel.occupancy": lambda t, w: t.occupancy(32),
    "Kernel.max_dynamic_shared_bytes=": lambda t, w: setattr(t, "max_dynamic_shared_bytes", 64),
    "Kernel.preferred_shared_carveout=": lambda t, w: setattr(t, "preferred_shared_carveout", 50),
    "Kernel.prefer_cache": lambda t, w: t.prefer_cache("l1"),
    "Prepared.launch": lambda t, w: t.launch(w.stream),
    "Graph.capture": _capture,
    "Graph.constant": lambda t, w: t.constant(HOST),
    "Graph.add_copy": lambda t, w: t.add_copy(w.target, w.source),
    "Graph.add_fill": lambda t, w: t.add_fill(w.source, 1),
    "Graph.add_launch": lambda t, w: t.add_launch(w.kernel, 1, 1, w.floats),
    "Graph.add_call": lambda t, w: t.add_call(len, cu.read(w.target)),
    "Graph.add_set": lambda t, w: t.add_set(w.signal, 2**40),
    "Graph.add_wait": lambda t, w: t.add_wait(w.signal, 0),
    "Graph.add_graph": lambda t, w: t.add_graph(w.graph()),
    "Graph.add_if": lambda t, w: t.add_if(t.condition(1)),
    "Graph.add_while": lambda t, w: t.add_while(t.condition(0)),
    "Graph.add_switch": lambda t, w: t.add_switch(t.condition(0), 2),
    "ExecutableGraph.launch": lambda t, w: t.launch(w.stream),
    "ExecutableGraph.upload": lambda t, w: t.upload(w.stream),
    "ExecutableGraph.update": lambda t, w: t.update(w.graph()),
    "ExecutableGraph.__getitem__": lambda t, w: t[0],
    "ExecutableNode.set": lambda t, w: t.set(value=3),
    "ExecutableNode.enabled=": lambda t, w: setattr(t, "enabled", False),
    "Pipeline.run": lambda t, w: t.run(HOST),
}


# Rows whose result takes the place of the object.
MOVES = {"Buffer.take", "Buffer.into_raw"}

# OwnershipErrors are allowed everywhere, and so is what a call alone raises for the same kind of
# object. Other errors, by their message: everywhere, and of single rows.
ENDED = "was closed|is closed|has been entered already"
REFUSALS = {
    "Loan.__enter__": "is taken back for a block",
    "Loan.back": "taken back|to take back",
    "Back.__enter__": "to take back",
    "Loan.__dlpack__": "is taken back for a block",
    "Loan.__cuda_array_interface__": "is taken back for a block|this is lent to the host",
    "Timed.ms": "has no time yet",  # the other thread has entered the block
    "Pipeline.run": "is running already",
    "Pipeline.close": "it can be closed afterwards",
    "Pipeline.__enter__": "it can be closed afterwards",
    "capture_profiler.__enter__": "entered",
    "trace.__enter__": "has not ended",
    "profile.__enter__": "has not ended",
    "guard.__enter__": "is entered already",
    "StreamGroup.__getitem__": "index out of range",  # a closed group has no streams
    "Buffer.accept": "is not shared",
    "Buffer.share": "is not shared",  # the other thread has accepted it
    # The other thread has closed the buffer, so the driver no longer knows the address.
    "Buffer.from_address": "it is none of the driver's memory",
    "Buffer.give_back": "parts of it are alive|was given back",
    # The graph was closed between the calls of condition() and of these.
    **{f"Graph.add_{name}": "is not a condition of" for name in ("if", "while", "switch")},
    **{  # a buffer grows meanwhile
        f"Buffer.copy_{name}": "has [0-9]+ items"
        for name in ("from", "to", "from_async", "to_async")
    },
}

# The errors that a call may raise on its own for some objects of the class, but not for others.
REFUSED_ALONE = (cu.OwnershipError, ValueError, BufferError)


def is_refusal(row: str, error: Exception) -> bool:
    """Whether a call may raise this because of what another thread does."""
    if isinstance(error, cu.OwnershipError):
        return True
    if type(error) not in (ValueError, RuntimeError, IndexError, AttributeError):
        return False
    return re.search(f"{ENDED}|{REFUSALS.get(row, ENDED)}", str(error)) is not None


# ---- objects ----


class Kind(NamedTuple):
    """A kind of object: its class, and how it is made.

    `make` returns a tuple that begins with the object. Functions in the tuple are called with the
    object before the object is closed. Other objects in the tuple are closed after it.
    """

    of: str
    make: Callable[[World], tuple[Any, ...]]


def finish(things: list[Any]) -> None:
    """Call the functions that have to be called before an object is closed."""
    for end in [each for each in things if callable(each) and type(each) is not cu.Kernel]:
        things.remove(end)
        end(things[0])


def close(things: list[Any], w: World) -> None:
    """Close an object and those on which it depends, when all work is complete."""
    finish(things)
    if isinstance(things[0], cu.Buffer):
        with suppress(ValueError):  # the buffer is closed, or not shared
            things[0].accept(stream=w.stream)
    while things:
        thing = None  # dropping the object may end a loan
        w.device.synchronize()
        thing = things.pop(0)
        if hasattr(thing, "close"):
            try:
                thing.close()
            except ValueError as error:
                if "is a part" not in str(error):
                    raise


class Held:
    """An array of another library."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def close(self) -> None:
        self.array = None


class Array:
    """An array of another library with the CUDA Array Interface."""

    def __init__(self, address: int) -> None:
        about = {"shape": (COUNT,), "typestr": "|u1", "stream": 1, "version": 3}
        self.__cuda_array_interface__ = {**about, "data": (address, False)}


class Exporter:
    """An array of another library with DLPack."""

    def __init__(self, address: int) -> None:
        self.address = address

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __dlpack__(self, **options: Any) -> Any:
        return new_capsule(self.address, (2, 0), (COUNT,), 1)


def _in_a_pool(w: World) -> tuple[Any, ...]:
    pool = cu.DriverPool()
    with pool:
        return cu.DeviceBuffer(COUNT, stream=w.stream), pool


def _part(w: World) -> tuple[Any, ...]:
    whole = cu.DeviceBuffer(2 * COUNT)
    return whole[:COUNT], whole


def _box(w: World) -> tuple[Any, ...]:
    """A box with as many items as other buffers, but not their shape."""
    whole = cu.DeviceBuffer.zeros(2 * COUNT).reshape(8, 16)
    return whole[:, 4:12], whole


def _image() -> cu.Array:
    return cu.Array.from_array(HOST.reshape(8, 8), surface=True)


def _texture(w: World) -> tuple[Any, ...]:
    image = _image()
    return cu.Texture(image), image


def _texture_of_a_buffer(w: World) -> tuple[Any, ...]:
    buffer = cu.DeviceBuffer.zeros(COUNT)
    return cu.Texture(buffer), buffer


def _surface(w: World) -> tuple[Any, ...]:
    image = _image()
    return cu.Surface(image), image


def _shared(w: World) -> tuple[Any, ...]:
    buffer = cu.DeviceBuffer(COUNT)
    buffer.share(w.stream)

    return (buffer,)


def _lent(w: World) -> tuple[Any, ...]:
    buffer = cu.DeviceBuffer(COUNT)
    loan = buffer.lend(w.blocking)
    return loan, Held(loan.__dlpack__(stream=w.blocking.handle)), buffer


def _back(w: World) -> tuple[Any, ...]:
    loan, held, buffer = _lent(w)
    return loan.back(), held, buffer


def _capture_block(w: World) -> tuple[Any, ...]:
    graph, stream = cu.Graph(), cu.Stream()
    return graph.capture(stream), graph, stream


def _calling(w: World) -> tuple[Any, ...]:
    graph = cu.Graph()
    graph.add_call(len, cu.read(w.target))
    return graph.instantiate(), graph


def _setting(w: World) -> tuple[Any, ...]:
    graph = cu.Graph()
    graph.add_set(cu.Signal(), 1)
    return graph.instantiate(), graph


def _captured(w: World) -> tuple[cu.Graph, cu.Stream, Callable[[Any], None]]:
    graph, stream = cu.Graph(), cu.Stream()
    block = graph.capture(stream)
    block.__enter__()
    return graph, stream, lambda thing: block.__exit__(None, None, None)


def _captured_graph(w: World) -> tuple[Any, ...]:
    graph, stream, end = _captured(w)
    return graph, end, stream


def _captured_stream(w: World) -> tuple[Any, ...]:
    graph, stream, end = _captured(w)
    return stream, end, graph


def _joined(w: World) -> tuple[Any, ...]:
    stream, graph, driver = cu.Stream(), ctypes.c_void_p(), w.library.driver
    handle = ctypes.c_void_p(stream.handle)
    with w.device:
        assert driver.cuStreamBeginCapture_v2(handle, 2) == 0

    def end(joined: cu.JoinedCapture) -> None:
        with w.device:
            assert driver.cuStreamEndCapture(handle, ctypes.byref(graph)) == 0
            assert driver.cuGraphDestroy(graph) == 0

    return cu.joins_capture(stream), end, stream


def _condition(w: World) -> tuple[Any, ...]:
    graph = w.graph()
    return graph.condition(1), graph


def _timed(w: World) -> tuple[Any, ...]:
    timed = w.stream.timed()
    with timed:
        pass
    return (timed,)


def _executable(w: World) -> tuple[Any, ...]:
    graph = w.graph()
    return graph.instantiate(), graph


def _executable_node(w: World) -> tuple[Any, ...]:
    graph = w.graph()
    executable = graph.instantiate()
    return executable[0], executable, graph


def _token_with_results(w: World) -> tuple[Any, ...]:
    token = w.kernel.launch(1, 1, cu.InOut(np.zeros(4, "f4")), stream=w.stream)
    return token, cu.ResultToken.wait


def _with_module(make: Callable[[cu.Module], Any]) -> Callable[[World], tuple[Any, ...]]:
    def with_module(w: World) -> tuple[Any, ...]:
        module = cu.Module(PTX)
        return make(module), module

    return with_module


def _prepared(w: World) -> tuple[Any, ...]:
    module, buffer = cu.Module(PTX), cu.DeviceBuffer.zeros(4, "f4")
    return module["scaled"].prepare(1, 1, buffer), buffer, module


def _with_buffer(
    make: Callable[[cu.LockedBuffer, World], Any],
) -> Callable[[World], tuple[Any, ...]]:
    def with_buffer(w: World) -> tuple[Any, ...]:
        buffer = cu.LockedBuffer.zeros(COUNT)
        return make(buffer, w), buffer

    return with_buffer


def _recorded(w: World) -> tuple[Any, ...]:
    event = cu.Event(timing=True)
    w.stream.record(event)
    return (event,)


def _set_signal(w: World) -> tuple[Any, ...]:
    signal = cu.Signal()
    w.stream.set(signal, 1)
    return (signal,)


def _scope(w: World) -> tuple[Any, ...]:
    stream = cu.Stream()
    return stream.scope(), stream


KINDS = {
    "device": Kind("DeviceBuffer", lambda w: (cu.DeviceBuffer.zeros(COUNT),)),
    "ordered": Kind("DeviceBuffer", lambda w: (cu.DeviceBuffer(COUNT, stream=w.stream),)),
    "growing": Kind("DeviceBuffer", lambda w: (cu.DeviceBuffer(COUNT, capacity=4 * GRANULE),)),
    "in a pool": Kind("DeviceBuffer", _in_a_pool),
    "part": Kind("DeviceBuffer", _part),
    "box": Kind("DeviceBuffer", _box),
    "by address": Kind(
        "DeviceBuffer", lambda w: (cu.DeviceBuffer.from_address(w.library.address, COUNT),)
    ),
    "by interface": Kind(
        "DeviceBuffer", lambda w: (cu.from_cuda_array(Array(w.library.address), w.stream),)
    ),
    "by dlpack": Kind(
        "DeviceBuffer", lambda w: (cu.from_dlpack(Exporter(w.library.address), w.stream),)
    ),
    "shared": Kind("DeviceBuffer", _shared),
    "locked": Kind("LockedBuffer", lambda w: (cu.LockedBuffer.zeros(COUNT),)),
    "shareable": Kind("LockedBuffer", lambda w: (cu.LockedBuffer(COUNT, shareable=True),)),
    "locked in place": Kind(
        "LockedBuffer", lambda w: (cu.LockedBuffer.from_memory(np.zeros(COUNT, "u1")),)
    ),
    "unified": Kind("UnifiedBuffer", lambda w: (cu.UnifiedBuffer.zeros(COUNT),)),
    "array": Kind("Array", lambda w: (_image(),)),
    "array with levels": Kind("Array", lambda w: (cu.Array((8, 8), "u1", mipmaps=2),)),
    "texture": Kind("Texture", _texture),
    "texture of a buffer": Kind("Texture", _texture_of_a_buffer),
    "surface": Kind("Surface", _surface),
    "readonly": Kind("ReadOnly", _with_buffer(lambda buffer, w: buffer.readonly())),
    "read": Kind("HostView", _with_buffer(lambda buffer, w: buffer.read())),
    "write": Kind("HostView", _with_buffer(lambda buffer, w: buffer.write())),
    "loan": Kind("Loan", _with_buffer(lambda buffer, w: buffer.lend(w.blocking))),
    "loan to the host": Kind("Loan", _with_buffer(lambda buffer, w: buffer.lend(None))),
    "loan with arrays": Kind("Loan", _lent),
    "back": Kind("Back", _back),
    "stream": Kind("Stream", lambda w: (cu.Stream(),)),
    "blocking stream": Kind("Stream", lambda w: (cu.Stream(blocking=True),)),
    "captured stream": Kind("Stream", _captured_stream),
    "scope": Kind("Scope", _scope),
    "timed block": Kind("Timed", _timed),
    "group": Kind("StreamGroup", lambda w: (cu.StreamGroup(2),)),
    "event": Kind("Event", _recorded),
    "signal": Kind("Signal", _set_signal),
    "external signal": Kind("Signal", lambda w: (cu.Signal(external=True),)),
    "token": Kind("Token", _with_buffer(lambda buffer, w: buffer.fill_async(1, w.stream))),
    "token with results": Kind("ResultToken", _token_with_results),
    "argument": Kind("ArrayArgument", lambda w: (cu.In(HOST),)),
    "offload": Kind("offload", lambda w: (cu.offload(HOST, inout=[HOST.copy()]),)),
    "ordering": Kind("ordering", lambda w: (cu.ordering("wait"),)),
    "scalar access": Kind("scalar_access", lambda w: (cu.scalar_access(True),)),
    "memory": Kind("memory", lambda w: (cu.memory("locked"),)),
    "migration limit": Kind("migration_limit", lambda w: (cu.migration_limit(5),)),
    "device itself": Kind("Device", lambda w: (cu.Device(0),)),
    "context": Kind("Context", lambda w: (w.context,)),
    "created context": Kind("Context", lambda w: (cu.Context.create(w.device),)),
    "driver pool": Kind("DriverPool", lambda w: (cu.DriverPool(),)),
    "memory pool": Kind("MemoryPool", lambda w: (w.context.pools.device,)),
    "limits": Kind("ContextLimits", lambda w: (w.context.limits,)),
    "profiler": Kind("capture_profiler", lambda w: (cu.capture_profiler(),)),
    "trace": Kind("trace", lambda w: (cu.trace("/dev/null"),)),
    "profile": Kind("profile", lambda w: (cu.profile(),)),
    "guard": Kind("guard", lambda w: (cu.guard(),)),
    "memory pools": Kind("MemoryPools", lambda w: (w.context.pools,)),
    "module": Kind("Module", lambda w: (cu.Module(PTX),)),
    "kernel": Kind("Kernel", _with_module(lambda module: module["scaled"])),
    "prepared": Kind("Prepared", _prepared),
    "graph": Kind("Graph", lambda w: (w.graph(),)),
    "empty graph": Kind("Graph", lambda w: (cu.Graph(),)),
    "captured graph": Kind("Graph", _captured_graph),
    "condition": Kind("Condition", _condition),
    "node": Kind("GraphNode", lambda w: (w.graph().nodes[0],)),
    "capture": Kind("Capture", _capture_block),
    "executable": Kind("ExecutableGraph", _executable),
    "executable with a function": Kind("ExecutableGraph", _calling),
    "executable with a signal": Kind("ExecutableGraph", _setting),
    "executable node": Kind("ExecutableNode", _executable_node),
    "joined": Kind("JoinedCapture", _joined),
    "pipeline": Kind("Pipeline", lambda w: (cu.Pipeline(COUNT // 2),)),
}
