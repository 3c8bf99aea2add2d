"""The other process of random programs with tickets: it runs a random program step by step.

It opens the tickets of the owner's program, uses these buffers in its steps beside buffers of its
own, and gives them back. Its own oracle judges every answer. Each ticket comes with the bytes that
the buffer must have. `Partner` in library_tickets.py calls these functions.
"""

import gc
import time

import library_programs
from library_tickets import OF_TICKETS

import cudadrv as cu
from cudadrv import testing

# Steps that would end the owner's buffers without a receipt, and steps that cannot run here.
LEFT_OUT = (*OF_TICKETS, "await_something", "interrupt")
program = None


class OtherProgram(library_programs.Program):
    """The program of the other process. `lent` maps tickets to the owner's buffers."""

    def __init__(self, seed, policies, several):
        self.devices = 2 if several and cu.Device.count() > 1 else 1
        super().__init__(seed)
        self.policies = policies
        self.lent = {}
        for step in LEFT_OUT:
            self.weights[step] = 0

    def contexts(self):
        """The primary contexts of the devices: tickets can be opened only in these."""
        return [cu.Device(ordinal).context for ordinal in range(self.devices)]

    # ---- tickets ----

    def open_ticket(self, at, ticket, kind, ordinal, valid, start, bytes_, ordered):
        """Open a ticket of the owner. Returns whether it was opened."""
        place = self.session.places[ordinal if kind == "device" else 0]
        stream = self.maybe_stream(True, place)
        if stream is not None and kind == "locked":
            place = stream.place
        on = self.session._stream_of_import(stream, place)
        if on.model.in_capture and on.model.capture is None:
            return False  # mapping the memory needs a wait that the driver would refuse now
        self.note("open", at, "which is not valid" * (not valid), self.at(stream, self.streams))
        buffer = self.session.open_ticket(ticket, kind, place, stream, valid, start, bytes_)
        if buffer is None:
            return False
        self.session.ordered = self.session.ordered and ordered
        self.add(buffer, "opened")
        self.lent[at] = buffer
        if self.chance(0.4):
            made, what = self.cut(buffer)
            self.add(made, "part of", self.buffers.index(buffer), *what)
        return True

    def return_opened(self, at):
        """Give a buffer back. Returns the receipt, or None if that was refused."""
        buffer = self.lent[at]
        if not self.chance(0.35):
            self.forget_parts(buffer)
        parts = self.has_parts(buffer)
        stream = self.maybe_stream(False, buffer.memory.place)
        self.note("return", at, self.at(stream, self.streams), "with parts" * parts)
        receipt = None
        with self.no_call_if_ambiguous():
            receipt = self.session.return_opened(buffer, stream, parts)
        if receipt is not None:
            del self.lent[at]
            if self.chance(0.3):
                # This call is refused, because the buffer is given back.
                self.session.copy_out(buffer)
            self.replace()
        return receipt


def begin(seed, policies, several, settings):
    global program
    if settings:
        testing.configure(settings)
    program = OtherProgram(seed, policies, several)
    noting(program.begin)


def noting(step, *arguments):
    """Run a step. If it fails, the exception lists the steps of the program so far."""
    try:
        return step(*arguments)
    except Exception as error:
        lines = [f"in the other process: {error!r}", *map(repr, program.log), "in the owner:"]
        raise library_programs.Disagreement("\n  ".join(lines)) from None


def open(*what):
    return noting(program.open_ticket, *what)


def steps(count):
    for name in program.choose_steps(count):
        noting(program.step, name)


def give_back(at):
    """Give a buffer back.

    Returns the receipt or None, the buffer's bytes, and whether the program has ordered all its
    work.
    """
    bytes_ = program.lent[at].bytes.copy()
    return noting(program.return_opened, at), bytes_, program.session.ordered


def end():
    """End the program.

    Returns the bytes of each buffer that is still open, whether the program has ordered all its
    work, and how often each answer occurred.
    """
    global program
    try:
        noting(program.finish)
        left = {at: buffer.bytes.copy() for at, buffer in program.lent.items()}
        session = program.session
    finally:
        drop()
    # After a disagreement, the exception's traceback may keep buffers alive.
    assert not count_mapped(), "memory stays mapped that no buffer has"
    return left, session.ordered, session.answers


def drop():
    """End the program, whatever state it is in, and unmap the memory of the owner."""
    global program
    if program is not None:
        program.lent.clear()
        program.end()
        program = None
        patience = 100  # threads of the program may still hold references for a moment
        gc.collect()
        cu.reap()
        while patience and count_mapped():
            time.sleep(0.01)
            cu.reap()
            patience -= 1


def count_mapped():
    """The number of mapped allocations that several processes share.

    0 if the driver cannot tell.
    """
    if not cu.driver_info().is_software:
        return 0
    pairs = (
        ("cuIpcOpenMemHandle_v2", "cuIpcCloseMemHandle"),
        (
            "cuMemHostRegister_v2",
            "cuMemHostUnregister",
        ),
    )
    return sum(testing.calls(begin) - testing.calls(end) for begin, end in pairs)
