"""The steps of random programs that share memory with other libraries."""

import contextlib

from library_signals import SignalChoices
from session_buffers import is_filled
from session_loans import NOBODY

NBYTES_OF_OTHERS = 40
SHAPES = ((8,), (16,), (2, 4), (1, 12), (2, 2, 4), (24,))


class InteropChoices(SignalChoices):
    # ---- loans ----

    def lend(self):
        buffer, readonly = self.pick_buffer(), self.chance(0.3)
        borrower = NOBODY if self.chance(0.2) else self.maybe_stream(False, buffer.memory.place)
        if self.is_of_one_thread(borrower):
            return
        device = "cpu" if borrower is NOBODY and buffer.on_host and self.chance(0.7) else None
        told = self.buffers.index(buffer), self.told_borrower(borrower)
        self.note("lend", *told, "readonly" * readonly, device)
        loan = self.session.lend(buffer, borrower, readonly, device)
        if loan is not None:
            self.loans.append(loan)
            if not self.interop or self.chance(0.5):
                self.enter(loan)

    def is_of_one_thread(self, borrower):
        """Whether only the thread that begins this loan can end it."""
        if borrower is NOBODY or not self.workers:
            return False
        return borrower is None or borrower.kind == "per_thread"

    def told_borrower(self, borrower):
        return borrower if borrower is NOBODY else self.at(borrower, self.streams)

    def enter(self, loan):
        self.note("  and enter it")
        if not self.session.enter(loan) and not self.interop:
            self.loans.remove(loan)

    def hold(self):
        """Let another library take the array interface, a capsule or the block of a loan."""
        loans = [loan for loan in self.loans if loan.real is not None]
        if not loans:
            return
        loan = self.pick(loans)
        ways = [self.export_loan]
        if loan.borrower is not NOBODY or not loan.buffer.on_host:
            ways.append(self.show)
        elif not loan.buffer.closed:
            ways = [self.look, self.take_numpy, self.take_numpy]
        if loan.entered is None and not loan.left:
            ways.append(self.enter)
        way = self.random.choice(ways)
        self.note(way.__name__, self.loans.index(loan))
        self.keep_holder(way(loan))

    def keep_holder(self, holder):
        if holder is not None:
            self.note("  as holder", len(self.holders))
            self.holders.append(holder)

    def export_loan(self, loan):
        stream = loan.borrower
        if stream is not NOBODY and self.chance(0.12):
            stream = self.pick_stream(loan.buffer.memory.place) or stream
            stream = stream if self.is_usable(stream) else loan.borrower
        return self.session.export(loan, stream)

    def show(self, loan):
        for _ in range(self.random.choice((1, 1, 2))):
            self.session.show(loan)

    def look(self, loan):
        return self.session.memoryview(loan)

    def take_numpy(self, loan):
        return self.session.numpy(loan)

    def export(self):
        """Let another library take a buffer by DLPack."""
        buffer = self.pick_buffer()
        place = buffer.memory.place
        borrower, word = NOBODY, -1
        way = self.random.choice(("stream", "stream", "stream", "default", "nobody", "host"))
        if way == "host" and buffer.memory.kind == "locked":
            self.note("numpy takes", self.buffers.index(buffer))
            self.keep_holder(self.session.numpy_of_buffer(buffer))
            return
        if way == "default" and place.context.primary and buffer.memory.kind != "locked":
            word = self.random.choice((None, 1) if self.workers else (None, 1, 2))
            kind = "per_thread" if word == 2 else "legacy"
            borrower = self.session.open_stream(kind, place)
        elif way != "nobody":
            borrower = self.pick_stream(place)
            if (
                borrower is None
                or not self.is_usable(borrower)
                or not buffer.fits(borrower.model)
                or borrower.kind in ("legacy", "per_thread")
            ):
                return
            word = borrower.real.handle
        told = way, borrower and self.told_borrower_of_export(borrower)
        self.note("export", self.buffers.index(buffer), *told)
        self.keep_holder(self.session.export_buffer(buffer, borrower, word))

    def told_borrower_of_export(self, borrower):
        return (
            borrower.kind
            if borrower not in self.streams and borrower is not NOBODY
            else (self.told_borrower(borrower))
        )

    def use_loan(self):
        lents = [each for loan in self.loans for each in (loan.entered, loan.shown) if each]
        lents += [holder.lent for holder in self.holders]
        if lents:
            lent, value = self.pick(lents), self.random.randrange(256)
            self.note("use lent", lents.index(lent), value)
            self.session.use_lent(lent, value)

    def turns(self):
        """Take a lent buffer back for a block, or end that block."""
        loans = [loan for loan in self.loans if loan.real is not None]
        taken = [loan for loan in loans if loan.back is not None]
        if taken and self.chance(0.7):
            loan = self.pick(taken)
            self.note("give again", self.loans.index(loan))
            self.session.give_again(loan)
        elif loans:
            loan = self.pick_usable(loans, lambda loan: loan.lent and loan.lent.view)
            self.note("take back", self.loans.index(loan))
            self.session.take_back(loan)
            if loan.back is not None:
                self.use_taken(loan)

    def use_taken(self, loan):
        """Fill a buffer that was taken back.

        The borrower's stream later waits for the fill's stream.
        """
        stream = self.pick_stream(loan.buffer.memory.place)
        if stream is None or not all(map(self.is_usable, (stream, loan.stream))):
            return
        if self.chance(0.7) and loan.buffer.fits(stream.model) and is_filled(loan.buffer):
            self.note("wait and fill", self.streams.index(stream), "while it is taken back")
            self.session.wait_for_stream(stream, loan.stream)
            self.keep(self.session.fill(loan.buffer, 7, stream))

    def stay_taken(self):
        """End the block of `loan.back()` while a host view of the buffer still exists."""
        loans = [x for x in self.loans if x.real and x.entered and x.buffer.on_host and x.stream]
        loan = self.pick(loans) if loans else None
        if loan is None or loan.back is not None or not self.is_usable(loan.stream):
            return
        self.note("a view of loan", self.loans.index(loan), "while it is taken back")
        self.session.take_back(loan)
        if loan.back is None:
            return
        self.session.synchronize_stream(loan.stream)
        view = self.session.open_view(loan.buffer, "readonly")
        self.session.give_again(loan)
        if view is not None:
            self.session.close_view(view)
        self.note("  and another array of it")
        self.keep_holder(self.export_loan(loan))
        if self.chance(0.5):
            self.note("  and leave it")
            self.session.leave(loan)

    def end_loan(self):
        """End a part of a loan: an array, the block, or the `Loan` object."""
        if self.holders and self.chance(0.5):
            at = self.random.randrange(len(self.holders))
            if not self.holders[at].lent.is_reachable:
                return
            way = "end_without_the_gil" if self.chance(0.1) else "end"
            self.note("end holder", at, way)
            holder = self.holders.pop(at)
            anew = self.choose_export_anew(holder) if self.chance(0.6) else None
            self.session.end_holder(holder, way)
            if anew:
                # What the end has changed stays, even if the export makes no call.
                with self.no_call_if_ambiguous():
                    self.note("  and export anew", *anew[0])
                    self.keep_holder(self.session.export_anew(*anew[1]))
        elif self.loans:
            loan = self.random.choice(self.loans)
            at = self.loans.index(loan)
            if loan.shown is not None and not loan.shown.is_reachable:
                # This would end the loan, and the borrower's work is not known before the capture
                # ends.
                return
            if loan.entered is not None:
                self.note("leave", at)
                self.session.leave(loan)
            if loan.entered is None and loan.back is None and self.chance(0.7):
                self.note("drop loan", at)
                del self.loans[at]
                self.session.drop_loan(loan)

    def choose_export_anew(self, holder):
        """Choose an export right after an array has ended, mostly of the same buffer and stream.

        The array's loan is still open then, because no call has ended it yet.
        """
        buffer = holder.buffer if self.chance(0.8) else self.pick_buffer()
        stream = holder.stream if self.chance(0.8) else self.pick_stream(buffer.memory.place)
        if (
            stream is None
            or buffer not in self.buffers
            or not self.is_usable(stream)
            or not buffer.fits(stream.model)
            or stream.kind in ("legacy", "per_thread")
        ):
            return None
        told = self.buffers.index(buffer), self.told_borrower_of_export(stream)
        return told, (buffer, stream, stream.real.handle)

    def end_loans(self):
        while self.loans:
            loan = self.loans.pop()
            if loan.back is not None:
                self.session.give_again(loan)
            if loan.entered is not None:
                self.session.leave(loan)
            self.session.drop_loan(loan)
        while self.holders:
            self.session.end_holder(self.holders.pop())
        self.session.settle()

    def drop_loans(self):
        """End all loans and arrays after a disagreement."""
        for loan in self.loans:
            # After a disagreement, the library may have entered the block though the model has not.
            for block in (loan.back, loan.real):
                with contextlib.suppress(Exception):
                    block.__exit__(None, None, None)
            loan.real = loan.back = None
        for holder in self.holders:
            for end in ("end", "release"):
                with contextlib.suppress(AttributeError):
                    getattr(holder.real, end)()
            holder.real = None
        self.holders.clear()
        self.session.settle()

    # ---- memory of others ----

    def open_theirs(self):
        stream = self.their_stream(self.pick_place())
        if stream is None or len(self.theirs) > 1:
            return
        kind, value = self.random.choice(self.memories), self.random.randrange(256)
        self.note("theirs", len(self.theirs), kind, self.streams.index(stream), value)
        size = NBYTES_OF_OTHERS
        self.theirs.append(self.session.open_theirs(kind, size, stream, value))
        self.session.keep_records(self.theirs[-1])

    def their_stream(self, place):
        """Choose a stream on which another library may work, or None."""
        found = self.pick_stream(place)
        if found is None or found.place is not place or not place.context.primary:
            return None
        usable = self.is_usable(found) and found.kind != "per_thread"
        return found if usable else None

    def pick_theirs(self):
        """Choose memory of another library whose stream can be used, or None."""
        if not self.theirs:
            self.open_theirs()
        if not self.theirs:
            return None
        theirs = self.pick(self.theirs)
        if not self.is_usable(theirs.stream):
            self.session.wait_raw(theirs)
            stream = self.their_stream(theirs.memory.place)
            if stream is None:
                return None
            theirs.stream = stream
        return theirs

    def import_array(self):
        theirs = self.pick_theirs()
        if theirs is None:
            return
        place = theirs.memory.place
        stream = self.maybe_stream(True, place)
        if not self.is_usable(self.session._stream_of_import(stream, place)):
            return
        if stream is not None and stream.place is not place:
            return
        shape = self.random.choice(SHAPES)
        size = 1
        for each in shape:
            size *= each
        start = self.random.choice((0, 0, 4, 8, 12, 16))
        start = min(start, NBYTES_OF_OTHERS - size)
        told = self.theirs.index(theirs), start, shape, self.at(stream, self.streams)
        readonly, ordered = self.chance(0.2), self.chance(0.2)
        told = *told, "ordered" * ordered
        if self.chance(0.5):
            what = ("from dlpack", *told)
            made = self.session.from_dlpack(theirs, start, shape, stream, readonly, ordered)
        else:
            named = theirs.stream if self.chance(0.7) else None
            what = "from cuda array", *told, named and self.at(named, self.streams)
            made = self.session.from_cuda_array(
                theirs, start, shape, stream, named, readonly, ordered
            )
        if not readonly:
            self.add(made, *what)
        elif made is not None:
            self.note("constant", len(self.constants), *what)
            self.constants.append(made)

    def round_trips(self):
        """Import an array, use it and give it back, several times.

        The program has no other buffer over the array. Between the imports, only the library keeps
        records of the allocation.
        """
        place = self.pick_place()
        if len(self.travellers) < 2:
            stream = self.their_stream(place)
            if stream is not None:
                kind = self.random.choice(self.memories)
                self.note("traveller", len(self.travellers), kind, self.at(stream, self.streams))
                self.travellers.append(self.session.open_theirs(kind, 16, stream, 1))
        here = [each for each in self.travellers if each.memory.place is place]
        theirs = self.random.choice(here) if here else None
        for _ in range(self.random.choice((1, 2, 3))):
            streams = [self.their_stream(place) for _ in range(3)]
            if theirs in self.travellers and None not in streams:
                self.round_trip(theirs, *streams)
                self.session.settle()  # the library may forget what is complete

    def round_trip(self, theirs, stream, user, owners):
        ordered, value = self.chance(0.4), self.random.randrange(256)
        user = user if ordered else stream
        told = [self.at(each, self.streams) for each in (stream, user, owners)]
        self.note("round trip", self.travellers.index(theirs), *told, value, "ordered" * ordered)
        self.session.wait_raw(theirs)  # streams may have been closed since that library's work
        if self.chance(0.5):
            buffer = self.session.from_dlpack(theirs, 0, (16,), stream, ordered=ordered)
        else:
            buffer = self.session.from_cuda_array(theirs, 0, (16,), stream, None, ordered=ordered)
        token = buffer and self.session.fill(buffer, value, user)
        del token
        if buffer and not self.session.give_back(buffer, owners, False):
            self.session.keep_records(theirs)
            self.travellers.remove(theirs)
            self.theirs.append(theirs)
            self.add(buffer, "that was not given back")

    def use_constant(self):
        """Use memory that another library exported as read-only."""
        if not self.constants:
            return
        constant = self.pick(self.constants)
        at, place = self.constants.index(constant), constant.memory.place
        stream = self.pick_stream(place)
        if stream is None or not self.is_usable(stream) or stream.place is not place:
            return
        if self.chance(0.3):
            way = self.random.choice(("fill", "part", "lend", "export"))
            self.note("write constant", at, self.streams.index(stream), way)
            self.session.write_constant(constant, stream, way)
        elif self.chance(0.2):
            del self.constants[at]
            self.note("give back constant", at, self.streams.index(stream))
            if not self.session.give_back(constant, stream, self.has_parts(constant)):
                self.constants.append(constant)
        else:
            target = self.pick_buffer(place=self.mostly_place_of(constant))
            told = self.at(target, self.buffers), self.streams.index(stream)
            if target is not None and target.nbytes >= constant.nbytes:
                target, cut = self.like(target, constant)
                if target is not None:
                    self.note("copy of constant", at, *told, cut)
                    self.keep(self.session.copy(target, constant, stream))

    def overlay(self):
        """Make a second buffer over the bytes of a buffer, by their address."""
        buffer = self.pick_buffer()
        if not buffer.closed and buffer.nbytes and not buffer.memory.opened:
            self.add(self.session.overlay(buffer), "overlay of", self.buffers.index(buffer))

    def give_back(self):
        shared = [b for b in self.buffers if b.memory.shares and not b.part and not b.closed]
        buffer = self.pick(shared) if shared and self.chance(0.9) else self.pick_buffer()
        del shared  # a reference would keep the dropped parts alive
        if buffer.memory.opened:  # the owner of shared memory needs a receipt
            return
        stream = self.maybe_stream(False, buffer.memory.place)
        theirs = [each for each in self.theirs if each.memory.model is buffer.memory.model]
        if theirs and self.is_usable(theirs[0].stream) and self.chance(0.7):
            stream = theirs[0].stream
        if not buffer.closed and not self.chance(0.2):
            self.forget_parts(buffer)
        parts = self.has_parts(buffer)
        told = self.at(stream, self.streams), "with parts" * parts
        self.note("give back", self.buffers.index(buffer), *told)
        given = self.session.give_back(buffer, stream, parts)
        if given and theirs and stream is theirs[0].stream and not self.is_used(buffer):
            value = self.random.randrange(256)
            self.note("  they fill it", value)
            start, stop = buffer.start, buffer.start + buffer.nbytes
            self.session.work_raw(theirs[0], start, stop, value)
        self.replace()

    def is_used(self, ended):
        """Whether another buffer has some of the bytes of a closed import."""
        return any(
            buffer.memory.model is ended.memory.model
            and not buffer.closed
            and buffer.start < ended.start + ended.nbytes
            and ended.start < buffer.start + buffer.nbytes
            for buffer in (*self.buffers, *self.constants)
        )

    def has_parts(self, whole):
        """Whether the program has another buffer over the same memory."""
        held = [each.buffer for each in (*self.views, *self.loans, *self.holders)]
        if any(view.of_part and view.buffer.memory is whole.memory for view in self.views):
            return True
        tokens = [*self.tokens, *(results.token for results in self.results)]
        held += [*self.buffers, *(each for token in tokens for each in token.buffers)]
        held += [each for block in self.offloads for each in block.buffers]
        return any(
            each.memory is whole.memory and not each.is_object(whole.real) and not each.moved
            for each in held
        )

    def launch_theirs(self):
        theirs = self.pick_theirs()
        if theirs is None:
            return
        place = theirs.memory.place
        out, b = (self.pick_buffer(place=place) for _ in range(2))
        stream = self.pick_stream(place)
        if None in (out, b, stream) or not self.is_usable(stream) or stream.place is not place:
            return
        if out.closed or b.closed:
            return
        start, mode = self.random.choice((0, 4, 8, 16)), self.random.choice(("read", "write"))
        tensor = self.chance(0.5)
        told = [self.buffers.index(out), self.theirs.index(theirs), start, self.buffers.index(b)]
        self.note("launch with theirs", *told, self.streams.index(stream), mode, "dlpack" * tensor)
        token = self.session.launch_theirs(out, theirs, start, b, stream, mode, tensor)
        self.keep(token)

    def reshape(self):
        buffer = self.pick_buffer()
        self.add(self.session.reshape(buffer), "reshaped", self.buffers.index(buffer))


OF_LOANS = ("hold", "export", "turns", "stay_taken")
OF_IMPORTS = ("open_theirs", "import_array", "use_constant", "overlay", "give_back")
OF_IMPORTS += ("launch_theirs", "round_trips", "reshape")
WEIGHTS = {
    "lend": 3,
    "use_loan": 3,
    "end_loan": 3,
    "hold": 10,
    "export": 5,
    "turns": 4,
    "stay_taken": 2,
    "open_theirs": 1,
    "import_array": 5,
    "use_constant": 2,
    "overlay": 2,
    "give_back": 3,
    "launch_theirs": 4,
    "round_trips": 1,
    "reshape": 1,
}
