"""Rules for the public classes, and for the signatures of public functions and methods."""

import ast
import inspect
import re
import struct
import weakref
from pathlib import Path

import numpy as np
import pytest
from schedules import one_schedule

import cudadrv as cu
from cudadrv import toolkit

# One schedule suffices: the results do not depend on when GPU work runs.
pytestmark = one_schedule

STUBS = Path(cu.__file__).parent
PTX = ".version 6.4\n.target sm_75\n.address_size 64\n.visible .entry empty() { ret; }"
TAKING = PTX.replace("empty()", "taking(.param .u64 x)")


def launched():
    token = cu.Module(TAKING)["taking"].launch(1, 1, cu.Out(np.zeros(4)), stream=cu.Stream())
    token.wait()
    return token


def captured():
    graph, stream = cu.Graph(), cu.Stream()
    with graph.capture(stream):
        cu.DeviceBuffer(4).fill_async(1, stream)
    return graph


def ticket():
    buffer, stream = cu.DeviceBuffer(4), cu.Stream()
    made = buffer.share(stream)
    buffer.accept(stream=stream)
    return made


OBJECTS = {
    "Device": lambda: cu.Device(0),
    "Context": lambda: cu.Device(0).context,
    "Stream": lambda: cu.Stream(),
    "Event": lambda: cu.Event(),
    "Token": lambda: cu.DeviceBuffer(4).fill_async(1, cu.Stream()),
    "DeviceBuffer": lambda: cu.DeviceBuffer(4),
    "LockedBuffer": lambda: cu.LockedBuffer(4),
    "UnifiedBuffer": lambda: cu.UnifiedBuffer(4),
    "Array": lambda: cu.Array(4),
    "Texture": lambda: cu.Texture(cu.Array(4)),
    "Surface": lambda: cu.Surface(cu.Array(4, surface=True)),
    "ResultToken": launched,
    "offload": lambda: cu.offload(np.zeros(4)),
    "Module": lambda: cu.Module(PTX),
    "Kernel": lambda: cu.Module(PTX)["empty"],
    "Prepared": lambda: cu.Module(PTX)["empty"].prepare(1, 1),
    "Access": lambda: cu.read(cu.DeviceBuffer(4)),
    "AccessWindow": lambda: cu.access_window(cu.DeviceBuffer(4)),
    "ContextLimits": lambda: cu.Device(0).context.limits,
    "capture_profiler": lambda: cu.capture_profiler(),
    "trace": lambda: cu.trace("/dev/null"),
    "guard": lambda: cu.guard(),
    "profile": lambda: cu.profile(),
    "ordering": lambda: cu.ordering("wait"),
    "scalar_access": lambda: cu.scalar_access(False),
    "memory": lambda: cu.memory("locked"),
    "migration_limit": lambda: cu.migration_limit(3),
    "DriverPool": lambda: cu.DriverPool(),
    "Ticket": ticket,
    "Receipt": lambda: cu.Receipt(struct.pack("<8sII16s", b"CUDAREC1", 1, 0, bytes(16))),
    "StreamGroup": lambda: cu.StreamGroup(2),
    "Pipeline": lambda: cu.Pipeline(4),
    "Graph": lambda: cu.Graph(),
    "GraphNode": lambda: captured().nodes[0],
    "JoinedCapture": lambda: cu.joins_capture(cu.Stream()),
    "ExecutableGraph": lambda: captured().instantiate(),
    "ExecutableNode": lambda: captured().instantiate()[0],
    "Signal": lambda: cu.Signal(),
    "MemoryPools": lambda: cu.Device(0).context.pools,
    "MemoryPool": lambda: cu.Device(0).context.pools.device,
}
UNITS = ("_ms", "_s", "_us", "_ns")
TIMES = ("time", "timeout", "elapsed", "duration", "delay", "interval")
# Positional parameters are the things that a call works on. All others are keyword-only options.
POSITIONAL = {
    "access", "action",
    "device", "ordinal", "name", "handle", "owner", "event", "work", "stream", "policy",
    "count", "dtype", "address", "array", "source", "target", "value", "key", "index", "start",
    "self", "cls", "exception", "kind", "traceback", "never", "copy", "flags", "other", "args",
    "buffer", "buffers", "thing", "image", "images", "shape", "peer", "place", "to", "pairs",
    "path", "grid", "block", "shared_bytes", "preference", "destination", "kernel", "child",
    "default", "condition", "bodies", "graph", "data", "ticket", "receipt", "function", "signal",
}  # fmt: skip


@pytest.mark.parametrize("name", OBJECTS)
def test_objects_have_fixed_attributes_a_name_and_weak_references(name):
    thing = OBJECTS[name]()
    with pytest.raises(AttributeError):
        thing.anything_else = 1
    assert weakref.ref(thing)() is thing
    assert type(thing).__repr__ is not object.__repr__
    assert " object at 0x" not in repr(thing)
    if name == "Token":
        thing.wait()


def test_classes_that_can_be_made_are_covered():
    made = {name for name in cu.__all__ if inspect.isclass(getattr(cu, name))}
    others = {name for name in made if issubclass(getattr(cu, name), (Exception, tuple, int))}
    assert made - others - set(OBJECTS) == {"Buffer", "HostBuffer"}


def signatures():
    """The methods and functions of the public stubs, with their names."""
    public = set(cu.__all__)
    for path in sorted(STUBS.glob("_*.pyi")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name in public:
                yield node.name, node
            elif isinstance(node, ast.ClassDef):
                for each in node.body:
                    if isinstance(each, ast.FunctionDef) and node.name in (*public, "Region"):
                        yield f"{node.name}.{each.name}", each


SIGNATURES = list(signatures())


def test_signatures_are_found():
    names = {name for name, _ in SIGNATURES}
    assert {"Stream.wait", "Buffer.fill_async", "Region.chunks", "live_buffers"} <= names


@pytest.mark.parametrize(("name", "node"), SIGNATURES, ids=[name for name, _ in SIGNATURES])
def test_rules_for_signatures(name, node):
    if name.endswith("__") and node.name not in ("__init__", "__new__"):
        return  # Python defines the parameters of special methods
    positional = [*node.args.posonlyargs, *node.args.args]
    every = [*positional, *node.args.kwonlyargs]
    for argument in every:
        word = argument.arg
        assert word not in ("size", "length", "n", "num", "bytes"), "sizes are `count` or `nbytes`"
        # `timeout` is in seconds, as everywhere in Python.
        if word != "timeout" and any(word.startswith(time) for time in TIMES):
            assert word.endswith(UNITS), f"{word} does not say its unit"
    for argument in positional:
        kind = ast.unparse(argument.annotation) if argument.annotation else ""
        word = argument.arg
        named = word not in ("copy", "value") and name != "scalar_access.__new__"
        assert kind != "bool" or not named, f"the flag {word} has to be named"
        if not name.startswith(("Cuda", "ContextLost")) and name != "scalar_access.__new__":
            assert word in POSITIONAL, f"the option {word} has to be keyword-only"
    returns = ast.unparse(node.returns) if node.returns else ""
    if returns == "float" and not node.name.endswith("_ratio"):
        assert node.name.endswith(UNITS), f"{name} does not say the unit of what it gives"


def test_flags_are_keyword_only_in_fact(stream):
    for call in (
        lambda: cu.Stream(True),
        lambda: cu.Event(True),
        lambda: cu.LockedBuffer(4, "u1", True),
        lambda: cu.DeviceBuffer(4, "u1", stream),
        lambda: cu.DeviceBuffer.from_array(np.zeros(4), stream),
        lambda: cu.DeviceBuffer(4).fill(1, stream),
        lambda: cu.DeviceBuffer(4).copy_from(bytes(4), stream),
        lambda: cu.Stream.legacy(cu.Device(0)),
    ):
        with pytest.raises(TypeError):
            call()


REFUSING = {
    "Access": "cudadrv.read(buffer)",
    "AccessWindow": "use cudadrv.access_window(buffer)",
    "ContextLimits": "use context.limits",
    "Buffer": "use DeviceBuffer, LockedBuffer or UnifiedBuffer",
    "Context": "use Device(...).context",
    "HostBuffer": "use DeviceBuffer, LockedBuffer or UnifiedBuffer",
    "Kernel": "kernels come from modules",
    "MemoryPool": "use context.pools.device",
    "MemoryPools": "use context.pools",
    "Prepared": "use kernel.prepare(",
    "ResultToken": "launches with Out or InOut arguments return these",
    "Token": "tokens come from asynchronous methods",
}


@pytest.mark.parametrize("name", REFUSING)
@pytest.mark.parametrize("arguments", [((), {}), ((4, "f4"), {}), ((), {"device": 0})])
def test_what_is_not_made_by_its_class_says_how(name, arguments):
    """Some classes cannot be called. The error says how to get an instance.

    The error does not depend on the arguments.
    """
    positional, named = arguments
    with pytest.raises(TypeError, match=re.escape(REFUSING[name])):
        getattr(cu, name)(*positional, **named)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: cu.Device("cuda:0"), "ordinal"),
        (lambda: cu.DeviceBuffer("4"), "count"),
        (lambda: cu.DeviceBuffer.from_address("x", 4), "address"),
        (lambda: cu.DeviceBuffer(4).split_at(1.5), "index"),
        (lambda: cu.DeviceBuffer(4).chunks(1.5), "count"),
        (lambda: cu.Device(0).context.pools.device.trim(keep_bytes=1.5), "keep_bytes"),
        (lambda: setattr(cu.Device(0).context.pools.device, "limit_bytes", "1G"), "limit_bytes"),
    ],
)
def test_what_is_no_integer_is_named(call, name):
    with pytest.raises(TypeError, match=f"^{name} must be an integer, not "):
        call()


def test_public_names_say_that_the_package_defines_them():
    """Public classes name the package as their module, not the module that defines them."""
    for name in cu.__all__:
        thing = getattr(cu, name)
        if callable(thing):
            assert (thing.__module__, thing.__qualname__) == ("cudadrv", name)
    assert str(cu.Kernel) == "<class 'cudadrv.Kernel'>"
    for name in toolkit.__all__:
        assert getattr(toolkit, name).__module__ == "cudadrv.toolkit"


def test_pickles_and_tracebacks_name_no_module(script):
    """They name the package, even if the program has used no public name before."""
    lines = script.quiet("""
        import pickle
        import traceback
        import cudadrv as cu
        from cudadrv import _errors, _kernel, _records, _sharing, _stream

        for thing in (
            _kernel.Kernel, _stream.Stream, _records.Borrow, _sharing.Ticket,
            _errors.CudaError(2, "cuMemAlloc"), _errors.BufferBorrowedError("why"),
            _records.PoolStats(1, 2, 3, 4, 5),
        ):
            found = pickle.dumps(thing)
            assert b"cudadrv" in found and b"cudadrv._" not in found, found
            assert repr(pickle.loads(found)) == repr(thing)
        try:
            cu.DeviceBuffer()
        except TypeError:
            pass
        print(*traceback.format_exception_only(_errors.OwnershipError("why")))
    """).splitlines()
    assert lines[0] == "cudadrv.OwnershipError: why"
