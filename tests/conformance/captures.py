"""A capture in progress, and the ways in which it can end."""

import ctypes

from .client import CAPTURE_INVALIDATED, SUCCESS

NONE, ACTIVE, INVALIDATED = 0, 1, 2


class Capture:
    def __init__(self, client, mode, flags=1):
        self.client = client
        self.stream = client.stream(flags)
        self.device = client.device(4096)
        self.locked = client.host(4096)
        self.event = client.event()
        self.other = client.stream()
        client.ok("cuCtxSynchronize")
        client.ok("cuStreamBeginCapture_v2", self.stream, mode)

    def status(self):
        status = ctypes.c_int(-1)
        self.client.ok("cuStreamIsCapturing", self.stream, ctypes.byref(status))
        return status.value

    def end(self):
        graph = ctypes.c_void_p()
        status = self.client.call("cuStreamEndCapture", self.stream, ctypes.byref(graph))
        if graph.value:
            self.client.ok("cuGraphDestroy", graph)
        assert bool(graph.value) == (status == SUCCESS)
        return status


def intact(capture):
    assert capture.status() == ACTIVE
    assert capture.end() == SUCCESS
    assert capture.status() == NONE
    return True


def broken(capture):
    assert capture.status() == INVALIDATED
    assert capture.end() == CAPTURE_INVALIDATED
    assert capture.status() == NONE
    return True
