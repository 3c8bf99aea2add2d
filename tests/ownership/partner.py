"""What the other process of random programs with tickets runs: a random program, step by step.

It opens the tickets of the owner's program, uses the buffers in its steps beside buffers of its
own, and gives them back. Its own oracle judges every answer, and what the bytes must be comes with
each ticket. `Partner` in library_tickets.py calls these functions.
"""

import gc
import time

import library_programs
from library_tickets import OF_TICKETS

import cudadrv as cu
from cudadrv import testing

# Steps that would end buffers of the owner without a receipt, or have no place here.
LEFT_OUT = (*OF_TICKETS, "await_something", "interrupt")
program = None


class OtherProgram(library_programs.Program):
    """The program of the other process. `lent` are the buffers of the owner, by their tickets."""

    def __init__(self, seed, policies, several):
        self.devices = 2 if several and cu.Device.count() > 1 else 1
        super().__init__(seed)
        self.policies = policies
        self.lent = {}
        for step in LEFT_OUT:
            self.weights[step] = 0

    def contexts(self):
        """Tickets are opened in the primary contexts of devices."""
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
            return False  # the driver would refuse the wait when the memory is mapped
        self.note("open", at, "which is not valid" * (not valid), self.at(stream, self.streams))
        buffer = self.session.open_ticket(ticket, kind, place, stream, valid, start, bytes_)
        if buffer is None:
            return False
        self.session.ordered = self.session.ordered and ordered
        self.add(buffer, "opened")
        self.lent[at] = buffer
        if self.chance(0.3):
            made, what = self.cut(buffer)
            self.add(made, "part of", self.buffers.index(buffer), *what)
        return True

    def return_opened(self, at):
        """Give a buffer back. Returns the receipt, or None if that was refused."""
        buffer = self.lent[at]
        if not self.chance(0.2):
            self.forget_parts(buffer)
        parts = self.has_parts(buffer)
        stream = self.maybe_stream(False, buffer.memory.place)
        self.note("return", at, self.at(stream, self.streams), "with parts" * parts)
        receipt = self.session.return_opened(buffer, stream, parts)
        if receipt is not None:
            del self.lent[at]
            if self.chance(0.3):
                self.session.copy_out(buffer)  # which is refused
            self.replace()
        return receipt


def begin(seed, policies, several, settings):
    global program
    if settings:
        testing.configure(settings)
    program = OtherProgram(seed, policies, several)
    noting(program.begin)


def noting(step, *arguments):
    """Make a step. If it fails, the exception says what the program did until then."""
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
    """Returns the receipt or None, the bytes, and whether the program has ordered all its work."""
    bytes_ = program.lent[at].bytes.copy()
    return noting(program.return_opened, at), bytes_, program.session.ordered


def end():
    """End the program. Returns the bytes of the buffers that it drops now, and as `give_back`; and
    its answers.
    """
    global program
    try:
        noting(program.finish)
        left = {at: buffer.bytes.copy() for at, buffer in program.lent.items()}
        session = program.session
    finally:
        drop()
    # After a disagreement, its traceback may keep buffers alive.
    assert not count_mapped(), "memory stays mapped that no buffer has"
    return left, session.ordered, session.answers


def drop():
    """End the program, whatever state it is in, and unmap the memory of the owner."""
    global program
    if program is not None:
        program.lent.clear()
        program.end()
        program = None
        patience = 100  # threads of the program may just be letting go of what they used
        gc.collect()
        cu.reap()
        while patience and count_mapped():
            time.sleep(0.01)
            cu.reap()
            patience -= 1


def count_mapped():
    """How much memory of several processes is mapped. Unknown on a real driver."""
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
