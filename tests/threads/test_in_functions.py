"""Calls of every public method inside a function that a stream calls.

A call that uses the driver is refused there, because it could wait for ever. All other calls are
allowed.
"""

import gc
import threading

import pytest

import cudadrv as cu
from cudadrv import testing

from .rows import KINDS, World, close, rows_of

# These only ask the driver about devices or the calling thread, and wait for nothing.
ASKS = {
    *("Device.name", "Device.uuid", "Device.pci_bus_id", "Device.compute_capability"),
    *("Device.total_memory", "Device.attribute", "Device.all", "Device.count", "Device.current"),
    *("Device.can_access", "Device.link_to", "Device.__repr__"),
}

pytestmark = [
    pytest.mark.cuda_software,
    pytest.mark.usefixtures("driver"),
    pytest.mark.parametrize("cuda_schedule", ["eager"], indirect=True),
]


def outcomes(rows, thing, w):
    """What calls do in a function: their exception or None, and how often they use the driver."""
    found = {}

    def function():
        for row, call in rows.items():
            before, error = testing.calls(""), None
            try:
                call(thing, w)
            except Exception as raised:
                error = raised
            found[row] = (error, testing.calls("") - before)
        over.set()

    over = threading.Event()
    with cu.Stream() as stream:
        token = stream.call(function)
        assert over.wait(60)  # a wait for the token would use the driver, too
        token.wait()
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_calls_in_a_function(kind):
    w = World()
    things = list(KINDS[kind].make(w))
    gc.collect()
    wrong = {}
    for row, (error, calls) in outcomes(rows_of(kind), things[0], w).items():
        if "there is no device 1" in str(error):
            continue
        if calls and row not in ASKS and not isinstance(error, cu.HostFunctionError):
            wrong[row] = (error, calls)
    assert not wrong
    close(things, w)
    w.end()
