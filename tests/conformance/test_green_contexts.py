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

# These tests check what cuda.h documents. They have not run on a GPU yet.
unasked = pytest.mark.cuda_software
# These tests need a device with two multiprocessors, such as the software driver's device.
two_processors = pytest.mark.cuda_software

INVALID_TYPE, INVALID_CONFIGURATION = 914, 915
PROCESSORS, QUEUE_CONFIG, QUEUE = 1, 1000, 10000  # types of resources
BACKFILL = 1  # a flag: the size of a group need not be a multiple of coscheduledSmCount
FIRST_WITH_QUEUES = 13010  # the version of CUDA 13.1
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
    """Split by these groups. Return the status, the parts, the rest and the groups' counts."""
    client.require("cuDevSmResourceSplit")
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


def test_resources_that_no_device_has(client):
    resource = Resource()
    for other in (0, 2, 1000):
        answer = client.call("cuDeviceGetDevResource", 0, ctypes.byref(resource), other)
        assert answer == INVALID_TYPE
    nothing = client.call("cuDeviceGetDevResource", 0, None, PROCESSORS)
    assert nothing == INVALID_VALUE
    unknown = client.call("cuDeviceGetDevResource", 9, ctypes.byref(resource), PROCESSORS)
    assert unknown == INVALID_DEVICE


@pytest.mark.parametrize("flags", [0, ALONE])
def test_splits(client, flags):
    """A split makes parts of equal size. The other multiprocessors are the rest."""
    resource = whole(client)
    status, parts, rest = split(client, resource, flags=flags)
    assert status == SUCCESS
    assert 1 <= len(parts) <= 2
    assert len({part.count for part in parts}) == 1
    if not flags:
        assert parts[0].count % resource.alignment == 0
    left = resource.count - sum(part.count for part in parts)
    assert rest.type == (PROCESSORS if left else 0)


@two_processors
def test_splits_of_a_small_device(client):
    resource = whole(client)
    assert resource.count % resource.alignment == 0
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


def test_a_part_is_not_larger_than_the_whole(client):
    resource = whole(client)
    assert split(client, resource, least=resource.count + 1)[0] == INVALID_CONFIGURATION


@unasked
def test_splits_that_cannot_be_made(client):
    resource = whole(client)
    _, parts, _ = split(client, resource)
    assert split(client, resource, flags=4)[0] == INVALID_VALUE
    assert split(client, Resource())[0] == INVALID_TYPE
    # Parts of a split cannot be split again.
    assert split(client, parts[0])[0] == INVALID_CONFIGURATION


def test_descriptions(client):
    resource = whole(client)
    for _ in range(2):
        _, parts, _ = split(client, resource)
        assert describe(client, *parts)[0] == SUCCESS


def test_descriptions_of_two_splits(client):
    """Parts of two splits can be described together, although cuda.h documents an error."""
    resource = whole(client)
    _, parts, _ = split(client, resource)
    _, others, _ = split(client, resource)
    assert describe(client, parts[0], others[1])[0] == SUCCESS


@unasked
def test_a_green_context_of_two_splits(client, make):
    """A green context can have parts of two splits, although cuda.h allows no such description."""
    resource, found = whole(client), Resource()
    _, parts, _ = split(client, resource)
    _, others, _ = split(client, resource)
    green = make(parts[0], others[1])
    client.ok("cuGreenCtxGetDevResource", green, ctypes.byref(found), PROCESSORS)
    assert found.count == parts[0].count + others[1].count


@unasked
def test_descriptions_that_cannot_be_made(client):
    resource = whole(client)
    _, (first, second), _ = split(client, resource)
    _, (same, _), _ = split(client, resource)
    for wrong in (
        (first, first),
        (first, same),
        (resource, first),
        (resource, second),
        (second, resource),
    ):
        assert describe(client, *wrong)[0] == INVALID_CONFIGURATION
    assert describe(client, whole(client), whole(client, 1))[0] == INVALID_CONFIGURATION
    assert describe(client, Resource())[0] == INVALID_TYPE
    assert (
        client.call("cuDevResourceGenerateDesc", None, ctypes.byref(resource), 1) == INVALID_VALUE
    )


@two_processors
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


@two_processors
def test_groups_without_parts(client):
    """Without an array for the parts, a group may turn out to be empty."""
    resource = whole(client)
    all_and_none = Group(), Group()
    status, _, _, counts = split_groups(client, resource, *all_and_none, discover=True)
    assert (status, counts) == (SUCCESS, [resource.count, 0])
    assert split_groups(client, resource, *all_and_none)[0] == INVALID_CONFIGURATION


@two_processors
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
    # The group has fewer multiprocessors than it schedules together.
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
def new_driver(client, software):
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
    # Another green context can use the same queues.
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
    if read(client, "cuDriverGetVersion", kind=ctypes.c_int) >= FIRST_WITH_QUEUES:
        pytest.skip("the driver has queues")
    arguments = 0, ctypes.byref(QueueConfig()), QUEUE_CONFIG
    assert client.call("cuDeviceGetDevResource", *arguments) == INVALID_TYPE


def test_a_green_context_needs_a_device(client):
    _, description = describe(client, whole(client))
    count = read(client, "cuDeviceGetCount", kind=ctypes.c_int)
    green = ctypes.byref(ctypes.c_void_p())
    for device in (count, count + 8):
        arguments = green, description, device, DEFAULT_STREAM
        assert client.call("cuGreenCtxCreate", *arguments) == INVALID_DEVICE


@pytest.mark.cuda_software  # a real driver reads memory at a number that is no handle
def test_what_cannot_be_made(client):
    _, description = describe(client, whole(client))
    green = ctypes.byref(ctypes.c_void_p())
    for arguments in (
        (description, 1, DEFAULT_STREAM),  # the description is of another device
        (description, 0, 0),
        (12345, 0, DEFAULT_STREAM),
    ):
        assert client.call("cuGreenCtxCreate", green, *arguments) == INVALID_VALUE
    assert client.call("cuGreenCtxDestroy", 12345) == INVALID_CONTEXT


def test_contexts(client, make):
    _, parts, _ = split(client, whole(client))
    greens = [make(part) for part in parts]
    assert len({read_id(client, green) for green in greens}) == 2
    found = Resource()
    client.ok("cuGreenCtxGetDevResource", greens[0], ctypes.byref(found), PROCESSORS)
    assert found.count == parts[0].count


def test_resources_of_contexts(client, make):
    all_of_it, (part, _) = whole(client), split(client, whole(client))[1]
    green, found, context = make(part), Resource(), ctypes.c_void_p()
    client.ok("cuGreenCtxGetDevResource", green, ctypes.byref(found), PROCESSORS)
    # A resource that a green context returns can be split.
    assert split(client, found, wanted=1)[0] == SUCCESS
    client.ok("cuCtxFromGreenCtx", ctypes.byref(context), green)
    client.ok("cuCtxGetDevResource", context, ctypes.byref(found), PROCESSORS)
    assert found.count == part.count
    client.ok("cuCtxGetDevResource", client.lib.primary, ctypes.byref(found), PROCESSORS)
    assert found.count == all_of_it.count


def context_of(client, green):
    context = ctypes.c_void_p()
    client.ok("cuCtxFromGreenCtx", ctypes.byref(context), green)
    return context.value


def test_a_green_context_is_current(client, make):
    """A green context has its own CUcontext. Streams made in it belong to the green context."""
    green, primary = make(), client.lib.primary
    context = context_of(client, green)
    assert context == context_of(client, green) != primary
    client.ok("cuCtxPushCurrent_v2", context)
    assert read(client, "cuCtxGetCurrent") == context
    stream, memory = client.stream(), client.device(SIZE)
    client.ok("cuMemsetD8Async", memory, 5, SIZE, stream)
    assert client.read(memory, SIZE) == b"\x05" * SIZE
    assert read(client, "cuCtxPopCurrent_v2") == context
    assert read(client, "cuCtxGetCurrent") == primary
    assert read(client, "cuStreamGetGreenCtx", stream) == green
    assert read(client, "cuStreamGetCtx", stream) == context


@pytest.mark.cuda_software  # a real driver lets a destroyed context be current, and then aborts
def test_a_destroyed_green_context_cannot_be_current(client, make):
    green = make()
    context = context_of(client, green)
    client.ok("cuGreenCtxDestroy", green)
    client.forget("cuGreenCtxDestroy", green)
    assert client.call("cuCtxPushCurrent_v2", context) == INVALID_CONTEXT


def read_id(client, green):
    number = ctypes.c_ulonglong()
    client.ok("cuGreenCtxGetId", green, ctypes.byref(number))
    return number.value


@unasked
def test_streams(client, make):
    part = split(client, whole(client))[1][0]
    green = make(part)
    stream, usual = stream_of(client, green), client.stream()
    assert read(client, "cuStreamGetGreenCtx", stream) == green
    assert read(client, "cuStreamGetGreenCtx", usual) is None
    context, told = ctypes.c_void_p(), ctypes.c_void_p()
    client.ok("cuStreamGetCtx_v2", stream, ctypes.byref(context), ctypes.byref(told))
    assert (context.value, told.value) == (client.lib.primary, green)
    found = Resource()
    for handle, count in ((stream, part.count), (usual, whole(client).count)):
        client.ok("cuStreamGetDevResource", handle, ctypes.byref(found), PROCESSORS)
        assert found.count == count
    memory = client.device(SIZE)
    client.ok("cuMemsetD8Async", memory, 7, SIZE, stream)
    assert client.read(memory, SIZE) == b"\x07" * SIZE
    for flags in (0, 2):
        arguments = ctypes.byref(ctypes.c_void_p()), green, flags, 0
        assert client.call("cuGreenCtxStreamCreate", *arguments) == INVALID_VALUE


@pytest.mark.cuda_software  # the test counts references, and resets the primary context
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


def test_a_record_waits_for_all_streams_of_a_green_context(client, make):
    green, event, gate = make(), client.event(), client.gate()
    streams = [stream_of(client, green) for _ in range(2)]
    gate.hold(streams[1])
    client.ok("cuGreenCtxRecordEvent", green, event)
    assert client.call("cuEventQuery", event) == NOT_READY
    gate.open()
    client.ok("cuEventSynchronize", event)


def test_a_wait_holds_all_later_work_of_a_green_context(client, make):
    """The wait also blocks the work of streams that are made after the wait.

    On an H100, a stream of the green context that gets no work after the wait may be idle.
    """
    green, usual, event = make(), client.stream(), client.event()
    streams = [stream_of(client, green) for _ in range(2)]
    gate, memory = client.gate(), client.device(SIZE)
    client.write(memory, bytes(SIZE))
    gate.hold(usual)
    client.ok("cuEventRecord", event, usual)
    client.ok("cuGreenCtxWaitEvent", green, event)
    streams.append(stream_of(client, green))
    free = client.stream()
    for i, stream in enumerate(streams):
        client.ok("cuMemsetD8Async", memory + i, 1, 1, stream)
    assert [client.call("cuStreamQuery", stream) for stream in streams] == [NOT_READY] * 3
    assert client.call("cuStreamQuery", free) == SUCCESS
    gate.open()
    assert client.read(memory, 3) == b"\1\1\1"


@pytest.mark.cuda_software  # a real driver reads memory at a number that is no handle
def test_a_record_needs_an_event(client, make):
    assert client.call("cuGreenCtxRecordEvent", make(), 12345) == INVALID_HANDLE


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
