"""Host functions: functions of the program that a stream calls."""

import ctypes

from .client import HOST_FUNCTION, NOT_PERMITTED, NOT_READY, SUCCESS


def run(client, stream, function):
    callback = HOST_FUNCTION(function)
    client.ok("cuLaunchHostFunc", stream, callback, None)
    client.ok("cuStreamSynchronize", stream)


def test_order(client):
    stream, target, back = client.stream(), client.device(64), client.host(64)
    seen = []
    client.ok("cuMemsetD8Async", target, 5, 64, stream)
    client.ok("cuMemcpyDtoHAsync_v2", back, target, 64, stream)
    run(client, stream, lambda data: seen.append(ctypes.string_at(back, 1)))
    assert seen == [b"\x05"]


def test_driver_calls_inside(client):
    stream, idle, event = client.stream(), client.stream(), client.event()
    number, pointer = ctypes.c_int(), ctypes.c_void_p()
    answers = {}

    def function(data):
        call = client.call
        answers["version"] = call("cuDriverGetVersion", ctypes.byref(number))
        answers["current"] = call("cuCtxGetCurrent", ctypes.byref(pointer))
        answers["count"] = call("cuDeviceGetCount", ctypes.byref(number))
        answers["alloc"] = call("cuMemAlloc_v2", ctypes.byref(pointer), 64)
        answers["query"] = call("cuStreamQuery", stream)
        answers["event"] = call("cuEventQuery", event)
        answers["synchronize"] = call("cuCtxSynchronize")
        answers["free"] = call("cuMemFree_v2", 16)
        answers["destroy"] = call("cuStreamDestroy_v2", idle)
        answers["freehost"] = call("cuMemFreeHost", 16)

    client.forget("cuStreamDestroy_v2", idle)
    run(client, stream, function)
    assert answers == {
        "version": SUCCESS,
        "current": NOT_PERMITTED,
        "count": NOT_PERMITTED,
        "alloc": NOT_PERMITTED,
        "query": NOT_READY,
        "event": SUCCESS,
        "synchronize": NOT_PERMITTED,
        "free": NOT_PERMITTED,
        "destroy": SUCCESS,
        "freehost": NOT_PERMITTED,
    }
