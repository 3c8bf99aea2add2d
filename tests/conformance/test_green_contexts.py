"""Green contexts: streams that share a part of a device's multiprocessors."""

import ctypes

import pytest

from .client import (
    CAPTURE_UNSUPPORTED,
    CONTEXT_IS_DESTROYED,
    INVALID_CONTEXT,
    INVALID_DEVICE,
    INVALID_HANDLE,
    INVALID_VALUE,
    NON_BLOCKING,
    NOT_READY,
    SUCCESS,
)

# These tests check the rules of cuda.h. No answers of a GPU are recorded.
pytestmark = pytest.mark.cuda_software

INVALID_TYPE, INVALID_CONFIGURATION = 914, 915
PROCESSORS, QUEUE_CONFIG, QUEUE = 1, 1000, 10000  # types of resources
BACKFILL = 1  # the flag of a group that need not have a multiple of what is scheduled together
BALANCED = 1  # the scope of queues that green contexts do not share
DEFAULT_STREAM = 1  # the flag that cuGreenCtxCreate requires
ALONE = 1  # the flag that splits into single multiprocessors
SIZE = 256


class Resource(ctypes.Structure):
    _fields_ = [
        ("type", ctypes.c_int),
        ("internal", ctypes.c_ubyte * 92),
        ("count", ctypes.c_uint),
        ("minimum", ctypes.c_uint),
        ("alignment", ctypes.c_uint),
        ("more", ctypes.c_ubyte * 36),
    ]


class QueueConfig(ctypes.Structure):
    """A resource of the type QUEUE_CONFIG."""

    _fields_ = [
        ("type", ctypes.c_int),
        ("internal", ctypes.c_ubyte * 92),
        ("device", ctypes.c_int),
        ("limit", ctypes.c_uint),
        ("scope", ctypes.c_int),
        ("more", ctypes.c_ubyte * 36),
    ]


class Group(ctypes.Structure):
    """A CU_DEV_SM_RESOURCE_GROUP_PARAMS."""

    _fields_ = [
        ("count", ctypes.c_uint),
        ("together", ctypes.c_uint),
        ("preferred", ctypes.c_uint),
        ("flags", ctypes.c_uint),
        ("domain", ctypes.c_uint),
        ("reserved", ctypes.c_uint * 11),
    ]


def whole(client, device=0):
    resource = Resource()
    client.ok("cuDeviceGetDevResource", device, ctypes.byref(resource), PROCESSORS)
    return resource


def split(client, resource, *, wanted=2, least=1, flags=ALONE):
    parts, groups, rest = (Resource * wanted)(), ctypes.c_uint(wanted), Resource()
    status = client.call(
        "cuDevSmResourceSplitByCount",
        parts,
        ctypes.byref(groups),
        ctypes.byref(resource),
        ctypes.byref(rest),
        flags,
        least,
    )
    return status, list(parts)[: groups.value], rest


def split_groups(client, resource, *groups, discover=False):
    """Split as the groups say. Return the status, the parts, the rest and the groups' counts."""
    parts, rest = (Resource * len(groups))(), Resource()
    array = (Group * len(groups))(*groups)
    status = client.call(
        "cuDevSmResourceSplit",
        None if discover else parts,
        len(groups),
        ctypes.byref(resource),
        ctypes.byref(rest),
        0,
        array,
    )
    return status, list(parts), rest, [group.count for group in array]


def queues(client, device=0):
    config = QueueConfig()
    client.ok("cuDeviceGetDevResource", device, ctypes.byref(config), QUEUE_CONFIG)
    return config


def describe(client, *resources):
    description = ctypes.c_void_p()
    array = (Resource * len(resources))(
        *(Resource.from_buffer_copy(bytes(resource)) for resource in resources)
    )
    status = client.call(
        "cuDevResourceGenerateDesc", ctypes.byref(description), array, len(resources)
    )
    return status, description.value


@pytest.fixture
def make(client):
    """A function that makes a green context of resources. The client destroys the context."""

    def make(*resources):
        _, description = describe(client, *(resources or [whole(client)]))
        arguments = description, 0, DEFAULT_STREAM
        return client._make("cuGreenCtxDestroy", ctypes.c_void_p, "cuGreenCtxCreate", *arguments)

    return make


def stream_of(client, green):
    arguments = green, NON_BLOCKING, 0
    return client._make("cuStreamDestroy_v2", ctypes.c_void_p, "cuGreenCtxStreamCreate", *arguments)


def read(client, function, *arguments, kind=ctypes.c_void_p):
    value = kind()
    client.ok(function, *arguments, ctypes.byref(value))
    return value.value


def test_the_whole_device(client):
    count = ctypes.c_int()
    client.ok("cuDeviceGetAttribute", ctypes.byref(count), 16, 0)
    resource = whole(client)
    assert (resource.type, resource.count) == (PROCESSORS, count.value)
    assert resource.count % resource.alignment == 0
    for other in (0, 2, 1000):
        answer = client.call("cuDeviceGetDevResource", 0, ctypes.byref(resource), other)
        assert answer == INVALID_TYPE
    nothing = client.call("cuDeviceGetDevResource", 0, None, PROCESSORS)
    assert nothing == INVALID_VALUE
    unknown = client.call("cuDeviceGetDevResource", 9, ctypes.byref(resource), PROCESSORS)
    assert unknown == INVALID_DEVICE


def test_splits(client):
    resource = whole(client)
    status, parts, rest = split(client, resource, flags=0)
    assert (status, [part.count for part in parts], rest.type) == (SUCCESS, [2], 0)
    status, parts, rest = split(client, resource)
    assert (status, [part.count for part in parts], rest.type) == (SUCCESS, [1, 1], 0)
    status, parts, rest = split(client, resource, wanted=1)
    assert (status, [part.count for part in parts], rest.count) == (SUCCESS, [1], 1)
    groups = ctypes.c_uint()
    question = None, ctypes.byref(groups), ctypes.byref(resource), None, ALONE, 0
    client.ok("cuDevSmResourceSplitByCount", *question)
    assert groups.value == 2
    assert split(client, resource, least=3)[0] == INVALID_VALUE
    assert split(client, resource, flags=4)[0] == INVALID_VALUE
    assert split(client, Resource())[0] == INVALID_TYPE
    # Parts of a split cannot be split again.
    assert split(client, parts[0])[0] == INVALID_CONFIGURATION


def test_descriptions(client):
    resource = whole(client)
    _, parts, _ = split(client, resource)
    _, others, _ = split(client, resource)
    status, description = describe(client, *parts)
    assert status == SUCCESS
    assert describe(client, *others) == (SUCCESS, description)
    for wrong in ((parts[0], others[1]), (parts[0], parts[0]), (resource, parts[0])):
        assert describe(client, *wrong)[0] == INVALID_CONFIGURATION
    assert describe(client, whole(client), whole(client, 1))[0] == INVALID_CONFIGURATION
    assert describe(client, Resource())[0] == INVALID_TYPE
    assert (
        client.call("cuDevResourceGenerateDesc", None, ctypes.byref(resource), 1) == INVALID_VALUE
    )


def test_groups(client):
    resource = whole(client)
    status, (part,), rest, counts = split_groups(client, resource, Group(count=2))
    assert (status, part.count, rest.type, counts) == (SUCCESS, 2, 0, [2])
    assert part.count % part.alignment == 0
    # A count of 0 asks for all that is left.
    status, (part,), _, counts = split_groups(client, resource, Group())
    assert (status, part.count, counts) == (SUCCESS, resource.count, [resource.count])
    assert describe(client, part)[0] == SUCCESS
    # A part cannot be split again.
    assert split_groups(client, part, Group(count=2))[0] == INVALID_CONFIGURATION


def test_groups_without_parts(client):
    """Without an array for the parts, a group may turn out to be empty."""
    resource = whole(client)
    all_and_none = Group(), Group()
    status, _, _, counts = split_groups(client, resource, *all_and_none, discover=True)
    assert (status, counts) == (SUCCESS, [resource.count, 0])
    assert split_groups(client, resource, *all_and_none)[0] == INVALID_CONFIGURATION


def test_groups_that_cannot_be_made(client):
    resource = whole(client)
    for group, expected in (
        (Group(count=1), INVALID_VALUE),
        (Group(count=resource.count + 2), INVALID_VALUE),
        (Group(count=2, together=3), INVALID_VALUE),
        (Group(count=2, together=34), INVALID_VALUE),
        (Group(count=2, flags=8), INVALID_VALUE),
        (Group(count=2, together=4), INVALID_CONFIGURATION),
        (Group(count=2, flags=2), INVALID_CONFIGURATION),  # no locality domain has multiprocessors
    ):
        status, _, _, counts = split_groups(client, resource, group)
        assert (status, counts) == (expected, [group.count])
    # The parts are fewer than are scheduled together.
    too_few = Group(count=2, together=4, flags=BACKFILL)
    assert split_groups(client, resource, too_few)[0] == INVALID_CONFIGURATION
    assert split_groups(client, resource, too_few, discover=True)[0] == SUCCESS
    assert split_groups(client, resource, Group(count=2), Group(count=2))[0] == (
        INVALID_CONFIGURATION
    )
    assert split_groups(client, Resource(), Group(count=2))[0] == INVALID_TYPE
    nothing = None, 1, ctypes.byref(resource), None, 0, None
    assert client.call("cuDevSmResourceSplit", *nothing) == INVALID_VALUE


@pytest.fixture
def new_driver(client):
    """A driver of CUDA 13.5, which has queues."""
    client.lib.configure("driver=13.5")
    yield
    client.lib.configure("driver=13.0")


@pytest.mark.usefixtures("new_driver")
def test_queues(client):
    config = queues(client)
    assert (config.type, config.device, config.limit, config.scope) == (QUEUE_CONFIG, 0, 8, 0)
    config.limit, config.scope = 3, BALANCED
    status, description = describe(client, whole(client), config)
    assert status == SUCCESS
    arguments = description, 0, 0
    green = client._make("cuGreenCtxDestroy", ctypes.c_void_p, "cuGreenCtxCreate", *arguments)
    found = QueueConfig()
    for kind in (QUEUE_CONFIG, QUEUE):
        client.ok("cuGreenCtxGetDevResource", green, ctypes.byref(found), kind)
        assert (found.type, found.limit, found.scope) == (kind, 3, BALANCED)
        stream = stream_of(client, green), ctypes.byref(found), kind
        assert client.call("cuStreamGetDevResource", *stream) == INVALID_TYPE
    # The queues of one green context can be those of another one.
    assert describe(client, whole(client), found)[0] == SUCCESS
    client.ok("cuDeviceGetDevResource", 0, ctypes.byref(found), QUEUE)
    assert (found.type, found.limit, found.scope) == (QUEUE, 8, 0)


@pytest.mark.usefixtures("new_driver")
def test_queues_that_cannot_be_described(client):
    resource = whole(client)
    wrong = {"device": 1, "limit": 0, "scope": 2}
    for field, value in wrong.items():
        config = queues(client)
        setattr(config, field, value)
        assert describe(client, resource, config)[0] == INVALID_CONFIGURATION
    config = queues(client)
    assert describe(client, resource, config, config)[0] == INVALID_CONFIGURATION
    assert describe(client, resource, queues(client, 1))[0] == INVALID_CONFIGURATION


def test_an_old_driver_has_no_queues(client):
    arguments = 0, ctypes.byref(QueueConfig()), QUEUE_CONFIG
    assert client.call("cuDeviceGetDevResource", *arguments) == INVALID_TYPE


def test_what_cannot_be_made(client):
    _, description = describe(client, whole(client))
    green = ctypes.byref(ctypes.c_void_p())
    for arguments, status in {
        (description, 9, DEFAULT_STREAM): INVALID_DEVICE,
        (description, 1, DEFAULT_STREAM): INVALID_VALUE,  # the description is of another device
        (description, 0, 0): INVALID_VALUE,
        (12345, 0, DEFAULT_STREAM): INVALID_VALUE,
    }.items():
        assert client.call("cuGreenCtxCreate", green, *arguments) == status
    for name in ("cuGreenCtxDestroy",):
        assert client.call(name, 12345) == INVALID_CONTEXT


def test_contexts(client, make):
    _, parts, _ = split(client, whole(client))
    greens = [make(part) for part in parts]
    assert len({read_id(client, green) for green in greens}) == 2
    found = Resource()
    client.ok("cuGreenCtxGetDevResource", greens[0], ctypes.byref(found), PROCESSORS)
    assert found.count == 1
    # A resource that a green context returns can be split.
    assert split(client, found, wanted=1)[0] == SUCCESS
    context = ctypes.c_void_p()
    client.ok("cuCtxFromGreenCtx", ctypes.byref(context), greens[0])
    client.ok("cuCtxGetDevResource", context, ctypes.byref(found), PROCESSORS)
    assert found.count == 1
    client.ok("cuCtxGetDevResource", client.lib.primary, ctypes.byref(found), PROCESSORS)
    assert found.count == 2


def test_a_green_context_is_current(client, make):
    """A green context has a CUcontext of its own, in which streams belong to it."""
    green, primary = make(), client.lib.primary
    contexts = []
    for _ in range(2):
        context = ctypes.c_void_p()
        client.ok("cuCtxFromGreenCtx", ctypes.byref(context), green)
        contexts.append(context.value)
    assert contexts[0] == contexts[1] != primary
    client.ok("cuCtxPushCurrent_v2", contexts[0])
    assert read(client, "cuCtxGetCurrent") == contexts[0]
    stream, memory = client.stream(), client.device(SIZE)
    client.ok("cuMemsetD8Async", memory, 5, SIZE, stream)
    assert client.read(memory, SIZE) == b"\x05" * SIZE
    assert read(client, "cuCtxPopCurrent_v2") == contexts[0]
    assert read(client, "cuCtxGetCurrent") == primary
    assert read(client, "cuStreamGetGreenCtx", stream) == green
    assert read(client, "cuStreamGetCtx", stream) == contexts[0]
    client.ok("cuGreenCtxDestroy", green)
    client.forget("cuGreenCtxDestroy", green)
    client.forget("cuStreamDestroy_v2", stream)
    assert client.call("cuCtxPushCurrent_v2", contexts[0]) == INVALID_CONTEXT
    client.ok("cuMemFree_v2", memory)
    client.forget("cuMemFree_v2", memory)
    client.ok("cuDevicePrimaryCtxReset_v2", 0)
    client.ok("cuDevicePrimaryCtxRetain", ctypes.byref(ctypes.c_void_p()), 0)
    client.ok("cuDevicePrimaryCtxRelease_v2", 0)


def read_id(client, green):
    number = ctypes.c_ulonglong()
    client.ok("cuGreenCtxGetId", green, ctypes.byref(number))
    return number.value


def test_streams(client, make):
    green = make(split(client, whole(client))[1][0])
    stream, usual = stream_of(client, green), client.stream()
    assert read(client, "cuStreamGetGreenCtx", stream) == green
    assert read(client, "cuStreamGetGreenCtx", usual) is None
    context, told = ctypes.c_void_p(), ctypes.c_void_p()
    client.ok("cuStreamGetCtx_v2", stream, ctypes.byref(context), ctypes.byref(told))
    assert (context.value, told.value) == (client.lib.primary, green)
    found = Resource()
    for handle, count in ((stream, 1), (usual, 2)):
        client.ok("cuStreamGetDevResource", handle, ctypes.byref(found), PROCESSORS)
        assert found.count == count
    memory = client.device(SIZE)
    client.ok("cuMemsetD8Async", memory, 7, SIZE, stream)
    assert client.read(memory, SIZE) == b"\x07" * SIZE
    for flags in (0, 2):
        arguments = ctypes.byref(ctypes.c_void_p()), green, flags, 0
        assert client.call("cuGreenCtxStreamCreate", *arguments) == INVALID_VALUE


def test_streams_of_a_destroyed_one(client, make):
    before = client.lib.count("primary")
    green = make()
    assert client.lib.count("primary") == before + 1
    stream = stream_of(client, green)
    client.ok("cuGreenCtxDestroy", green)
    client.forget("cuGreenCtxDestroy", green)
    assert client.lib.count("primary") == before
    assert client.call("cuStreamQuery", stream) == CONTEXT_IS_DESTROYED
    assert client.call("cuStreamDestroy_v2", stream) == CONTEXT_IS_DESTROYED
    assert (
        client.call("cuGreenCtxGetId", green, ctypes.byref(ctypes.c_ulonglong())) == INVALID_CONTEXT
    )
    # As the documentation says, the stream is lost. It ends only with the primary context.
    client.forget("cuStreamDestroy_v2", stream)
    client.ok("cuDevicePrimaryCtxReset_v2", 0)
    client.ok("cuDevicePrimaryCtxRetain", ctypes.byref(ctypes.c_void_p()), 0)
    client.ok("cuDevicePrimaryCtxRelease_v2", 0)


def test_events(client, make):
    """A record on a green context waits for all its streams.

    A wait holds all its streams, also later ones.
    """
    green = make()
    streams, usual, event = (
        [stream_of(client, green) for _ in range(2)],
        client.stream(),
        client.event(),
    )
    gate = client.gate()
    gate.hold(streams[1])
    client.ok("cuGreenCtxRecordEvent", green, event)
    client.ok("cuGreenCtxWaitEvent", green, event)
    later = stream_of(client, green)
    assert client.call("cuEventQuery", event) == NOT_READY
    for stream in (streams[0], later):
        assert client.call("cuStreamQuery", stream) == NOT_READY
    assert client.call("cuStreamQuery", usual) == SUCCESS
    gate.open()
    client.ok("cuEventSynchronize", event)
    client.ok("cuCtxSynchronize")
    assert client.call("cuGreenCtxRecordEvent", green, 12345) == INVALID_HANDLE


def test_events_order_for_the_race_detector(program, make_green):
    memory, event = program.device(SIZE), program.event()
    first, second = make_green(), make_green()
    program.fill(memory, stream_of(program, first))
    program.ok("cuGreenCtxRecordEvent", first, event)
    program.ok("cuGreenCtxWaitEvent", second, event)
    program.fill(memory, stream_of(program, second))
    program.ok("cuCtxSynchronize")
    assert program.lib.races() == []


@pytest.fixture
def make_green(program):
    def make_green():
        _, description = describe(program, whole(program))
        arguments = description, 0, DEFAULT_STREAM
        return program._make("cuGreenCtxDestroy", ctypes.c_void_p, "cuGreenCtxCreate", *arguments)

    return make_green


def test_capture(client, make):
    green, event, graph = make(), client.event(), ctypes.c_void_p()
    for name in ("cuGreenCtxRecordEvent", "cuGreenCtxWaitEvent"):
        stream = stream_of(client, green)
        client.ok("cuStreamBeginCapture_v2", stream, 2)
        assert client.call(name, green, event) == CAPTURE_UNSUPPORTED
        assert client.call("cuStreamEndCapture", stream, ctypes.byref(graph)) == 901
