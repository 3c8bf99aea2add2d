"""Random programs through the public API, which run on the library and on the oracle."""

import asyncio
import contextvars
import sys
import threading
import time
import traceback
import weakref
from contextlib import contextmanager, suppress
from functools import cache
from random import Random

import library_graphs
import library_groups
import library_interop
import library_joined
import library_managed
import library_offload
import library_peers
import library_signals
import library_textures
import library_tickets
from library_choices import (
    CUTS,
    DTYPES,
    MORE_CUTS,
    MORE_DTYPES,
    NBYTES,
    ODD,
    SIZES,
    SIZES_OF_BOXES,
    WIDE_DTYPES,
    divides,
)
from library_graphs import OF_GRAPHS
from library_groups import OF_GROUPS
from library_interop import OF_IMPORTS, OF_LOANS
from library_joined import OF_JOINED
from library_textures import OF_TEXTURES, TextureChoices
from library_threads import Worker
from library_tickets import OF_TICKETS
from oracle import Ambiguous
from pair import Disagreement  # noqa: F401
from session import DEFAULTS, ORDERS, Failed, Thread
from session_arrays import Array
from session_buffers import CLASSES, is_filled, relation
from session_host import WAYS, FullSession
from session_kernels import MODES, WAYS_TO_LAUNCH

import cudadrv as cu
from cudadrv import _staging

LONGEST = 80
POLICIES = {
    "strict": ("strict",),
    "wait": ("wait", "wait", "strict"),
    "unchecked": ("unchecked", "strict", "wait"),
}


@contextmanager
def switching_often():
    """Make threads lose the GIL after every few instructions."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


@cache
def the_loop():
    # The loop keeps the contextvars.Context in which it is made, with the streams of its blocks.
    return contextvars.Context().run(asyncio.new_event_loop)


class Program(TextureChoices):
    """One random program.

    `run` makes its steps and logs them; the log is printed if a step fails.
    """

    with_graphs = 0.25  # share of the programs that capture graphs
    with_contexts = 0.25  # share of the programs that have several contexts
    with_boxes = 0.4  # share of the programs whose operations use boxes
    with_textures = 0.25  # share of the programs with one context that use arrays and textures
    with_functions = 0.2  # share of the programs whose streams call functions
    with_signals = 0.2  # share of the programs with signals
    with_tickets = 0  # share of the programs that lend buffers to another process

    def __init__(self, seed, policy="strict", awaits=False):
        super().__init__(seed)
        self.session = FullSession(*self.contexts())
        self.several = len(self.session.places) > 1
        self.policies = POLICIES[policy]
        # On devices where unfinished work excludes the host from managed memory, the software
        # driver counts pending records and waits as work. The library does not count them, so it
        # would accept a host access that ends the process.
        excluded = any(place.domain.host_excluded for place in self.session.places)
        self.memories = [kind for kind in CLASSES if not (excluded and kind == "unified")]
        # Many pools of managed memory damage real drivers (docs/memory-pools.md).
        self.driver_pools = self.memories if self.session.software else ("device", "locked")
        self.kinds = self.random.choice((("non_blocking",) * 3 + ("foreign",), tuple(ORDERS)))
        # Some programs have memory of several sizes, and some have items of many dtypes.
        self.sizes = SIZES if self.chance(0.4) else (NBYTES,)
        self.dtypes = (*DTYPES, *MORE_DTYPES) if self.chance(0.3) else DTYPES
        self.plan = _staging.plan()
        if self.chance(0.2):
            self.copy_in_chunks()
        self.log = []
        self.workers = []
        if self.chance(0.15):
            self.workers = [self.new_worker() for _ in range(self.random.choice((1, 2)))]
            self.kinds += ("per_thread",)
        self.interop, self.imports = self.chance(0.4), self.chance(0.3)
        self.captures = self.chance(self.with_graphs)
        if self.captures:
            self.imports = False
        # It is not known how real drivers change graphs with growing buffers.
        grows = self.session.software or not self.captures
        self.grows = grows and self.chance(0.6)
        self.uses_groups = self.chance(0.25)
        self.boxes = self.chance(self.with_boxes)
        if self.boxes and self.chance(0.5):
            self.sizes += SIZES_OF_BOXES
        self.tickets = self.with_tickets > 0 and self.chance(self.with_tickets)
        self.textures = not self.several and self.chance(self.with_textures)
        # Not drawn, so that the other programs stay as they are.
        self.calls_functions = Random(f"functions {seed}").random() < self.with_functions
        self.uses_signals = Random(f"signals {seed}").random() < self.with_signals
        self.weights = dict(self.choose_weights(awaits))

    def contexts(self):
        """The contexts of the program: the first device's context, and sometimes others, too."""
        found = [cu.Device(0).context]
        if self.chance(self.with_contexts):
            if cu.Device.count() > 1 and self.chance(0.8):
                found.append(cu.Device(1).context)
            create = 1 if len(found) == 1 else 0.25
            # Creating a context takes long on a GPU.
            if self.chance(create if cu.driver_info().is_software else 0.08 * create):
                found.append(cu.Context.create(self.random.choice(found).device))
        return found

    def copy_in_chunks(self):
        """Make blocking copies of arrays go in chunks of a few bytes."""
        size = self.random.choice((4, 4, 8, 12))
        _staging.plan(
            threshold=size, chunk=size, least=size, piece=4, ring=self.random.choice((2, 3))
        )

    def choose_weights(self, awaits):
        """Choose which kinds of steps are frequent in this program, and which are rare."""
        modules = self.chance(0.12)
        for step, weight in WEIGHTS.items():
            if step in library_peers.WEIGHTS and not self.several:
                weight = 0
            if self.several:
                weight *= BETWEEN_CONTEXTS.get(step, 1)
            if step in OF_THREADS and not self.workers:
                weight = 0
            if step in OF_MODULES and not modules:
                weight = 0
            if step in OF_LOANS and not self.interop:
                weight = 0
            if step == "end_loan" and self.interop:
                weight *= 4
            if step in OF_IMPORTS and not self.imports:
                weight = 0
            if step in OF_GROWING and not self.grows:
                weight = 0
            if step in OF_GROUPS and not self.uses_groups:
                weight = 0
            if step in OF_TICKETS and not self.tickets:
                weight = 0
            if step in OF_TEXTURES and not self.textures:
                weight = 0
            if step in (*OF_GRAPHS, *OF_JOINED) and not self.captures:
                weight = 0
            if step in library_graphs.MORE and self.captures:
                weight *= 3
            if step == "fail" and not self.session.software:
                weight = 0
            if step == "await_something" and not awaits:
                weight = 0
            yield step, weight * self.random.choice((0.3, 1, 1, 2))
        if self.calls_functions:
            yield "call_function", 20
        if self.uses_signals:
            yield from library_signals.WEIGHTS.items()

    # ---- threads ----

    def new_worker(self):
        return Worker(), Thread()

    def do(self, step):
        """Do a step, perhaps in another thread."""
        if self.workers and self.chance(0.5):
            at = self.random.randrange(len(self.workers))
            self.note(" in thread", at)
            self.do_in(at, step)
        else:
            step()

    def do_in(self, at, step):
        worker, thread = self.workers[at]
        self.session.be_in(thread)
        try:
            worker.do(step)
        finally:
            self.session.be_in(self.session.main)

    def at_once(self):
        """Make calls in this thread and in another one at the same time."""
        if not self.workers or self.session.here is not self.session.main:
            return
        sides = [[self.one_at_once() for _ in range(self.random.randint(1, 2))] for _ in range(2)]
        worker, thread = self.workers[0]
        self.session.settle()
        if None in (*sides[0], *sides[1]) or not self.session.can_be_at_once(*sides, thread):
            return
        with switching_often():
            self.session.at_once(*sides, worker)
        # The order of two operations of one stream is not known if they are of two threads. Later
        # work may be ordered after one of them only.
        streams = [{id(op.stream) for op in side} for side in sides]
        for stream in [each for each in self.streams if id(each) in streams[0] & streams[1]]:
            self.note("synchronize", "stream", self.streams.index(stream))
            self.session.synchronize_stream(stream)

    def one_at_once(self):
        """Choose a fill or a launch that is refused only for a missing order.

        None if there is none.
        """
        streams = [s for s in self.streams if s.model.open and s.model.thread is None]
        stream = self.pick(streams) if streams else None
        if stream is None:
            return None
        buffers = [b for b in self.buffers if b.goes_to(stream.place) and not b.closed and b.nbytes]
        if not buffers:
            return None
        out, a, b = (self.pick(buffers) for _ in range(3))
        told = [self.buffers.index(buffer) for buffer in (out, a, b)]
        self.note("at once with others", self.streams.index(stream), *told)
        if self.chance(0.5):
            return self.session.fill_at_once(out, self.random.randrange(256), stream)
        return self.session.add_at_once(out, a, b, stream)

    def end_thread(self):
        """End a thread, and start another one."""
        if self.workers and self.session.here is self.session.main:
            at = self.random.randrange(len(self.workers))
            self.note("end thread", at)
            if self.chance(0.7):
                self.do_in(at, self.leave_work)
            self.stop(at)
            self.workers.append(self.new_worker())
            if self.tokens and self.chance(0.4):
                self.note("wait for the last token")
                self.session.synchronize_token(self.tokens[-1])

    def leave_work(self):
        """Queue work on the thread's default stream. The caller then ends the thread."""
        buffer = self.pick_buffer()
        stream = self.session.open_stream("per_thread", buffer.memory.place)
        if stream not in self.streams:
            self.streams.append(stream)
        self.note("  which fills", self.buffers.index(buffer), self.streams.index(stream))
        if is_filled(buffer):
            token = self.session.fill(buffer, self.random.randrange(256), stream)
            self.tokens += [token] if token else []

    def stop(self, at):
        self.do_in(at, self.session.leave_blocks)
        worker, thread = self.workers.pop(at)
        worker.end()
        self.session.end_thread(thread)

    # ---- running ----

    def run(self, steps):
        self.begin()
        for step in self.choose_steps(steps):
            self.step(step)
        self.finish()

    def choose_steps(self, count):
        return self.random.choices(list(self.weights), list(self.weights.values()), k=count)

    def step(self, name):
        with self.no_call_if_ambiguous():
            self.do(getattr(self, name))
        if self.buffers and self.random.random() < 0.1:
            arrays = [array for array in self.arrays if array.layout is None]
            self.session.compare_borrows(self.pick([*self.buffers, *arrays]))

    def calls(self):
        return self.session.answers.total()

    @contextmanager
    def no_call_if_ambiguous(self):
        oracle, before, calls = self.session.oracle, self.session.oracle.order(), self.calls()
        try:
            yield
        except Ambiguous as error:
            # From Python 3.12 on, the frames and their objects live on until a collection.
            traceback.clear_frames(error.__traceback__)
            if self.calls() == calls:  # a step may record events before it judges its call
                oracle.restore(before)
            self.note("  and makes no call: it could wait for any of several streams first")

    def begin(self):
        for place in self.session.places:
            self.open_stream(place)
        for _ in range(self.random.randint(1, 2)):
            self.open_stream()
        for _ in range(self.random.randint(2, 3)):
            self.allocate()
        for _ in range(1 + self.captures if self.grows else 0):
            self.allocate_growing()
        if self.uses_groups:
            self.open_group()
        if self.policies != ("strict",):
            self.change_policy()

    def finish(self):
        self.note("end")
        while self.workers:
            self.stop(0)
        if self.boxes:  # the end of a block could wait for any of several streams first
            for place in self.session.places:
                self.session.synchronize_context(place)
        self.end_shares()
        self.end_loans()
        self.leave_groups()
        self.end_offloads()
        while self.raws:
            self.buffers.append(self.session.from_raw(self.raws.pop()))
        self.session.finish([*self.buffers, *self.constants], self.views)
        self.end_arrays()
        for results in self.results:
            self.session.agree("results are home", self.session.bring_home(results, "ask"), True)

    def end(self):
        """Drop all objects, even after a disagreement, so that created contexts are destroyed."""
        _staging.plan(**self.plan)
        while self.workers:
            self.do_in(0, self.session.drop_blocks)
            self.stop(0)
        if self.session.gate:
            self.session.gate.open()
        self.session.end_captures()
        self.session.end_all_theirs()
        self.drop_shares()
        self.drop_loans()
        for each in (*self.graphs, *self.executables):
            if each.holding and each.holding.needs:  # access does not end before these graphs
                with suppress(Exception):
                    each.real.close()
        self.session.end_work()
        self.session.drop_results(self.results)
        for raw in self.raws:
            self.session.from_raw(raw)
        for view in self.views:
            view.let_go()
        things = [self.modules, self.views, self.loans, self.raws, self.buffers, self.tokens]
        things += [self.theirs, self.travellers, self.constants, self.graphs, self.executables]
        things += [self.prepared, self.results, self.groups, self.offloads]
        things += [self.handles, self.arrays, self.signals]
        for each in (*things, self.events, self.streams):
            each.clear()

    # ---- notes and arguments ----

    def note(self, *what):
        self.log.append(what)

    def keep(self, token):
        if token is not None and self.chance(0.5):
            self.tokens.append(token)
            self.note("  keep its token")

    def maybe_stream(self, blocking, place):
        """Choose a stream argument.

        None means that the call uses the current stream, if there is one.
        """
        left_out = 0.4 if blocking else 0.5 if self.session.currents else 0.05
        return None if self.chance(left_out) else self.pick_stream(place)

    def pick_place(self):
        return self.random.choice(self.session.places) if self.several else self.session.places[0]

    # ---- streams and events ----

    def open_stream(self, place=None):
        kind, place = self.random.choice(self.kinds), place or self.pick_place()
        stream = self.session.open_stream(kind, place)
        if stream not in self.streams:
            self.streams.append(stream)
        self.note("stream", self.streams.index(stream), kind, *self.where(place))

    def where(self, place):
        """The index of a context, for the log, if there are several contexts."""
        return ("in context", self.session.places.index(place)) if self.several else ()

    def close_stream(self):
        stream = self.pick(self.streams)
        self.note("close stream", self.streams.index(stream))
        self.session.close_stream(stream)

    def forget_stream(self):
        """Drop the last reference to a stream. Its work may be unfinished."""
        stream = self.pick(self.streams)
        others = [
            token
            for token in self.tokens
            if token.real.stream is not stream.real and stream.model not in token.streams
        ]
        buffers = [*self.buffers, *(buffer for token in others for buffer in token.buffers)]
        threads = [self.session.main, *(thread for _, thread in self.workers)]
        used = stream.kind in DEFAULTS or stream.kept or self.is_of_graph(stream)
        used = used or any(stream in thread.currents for thread in threads)
        used = used or any(stream in group.streams for group in self.groups)
        used = used or any(block.stream is stream for block in self.offloads)
        users = [*self.loans, *self.holders, *self.theirs, *self.travellers]
        users += [buffer.memory for buffer in buffers]
        users += [b.memory.home for b in buffers if b.memory.home]
        used = used or any(each.stream is stream for each in users)
        used = used or any(each.token.stream is stream.model for each in self.results)
        if len(self.streams) > 2 and not used:
            self.note("forget stream", self.streams.index(stream), "and its tokens")
            self.streams.remove(stream)
            self.tokens = others
            self.session.drop_stream(stream)

    def make_event(self):
        place, timing = self.pick_place(), self.chance(0.4)
        self.events.append(self.session.make_event(place, timing))
        self.note("event", len(self.events) - 1, "with timing" * timing, *self.where(place))

    def record(self):
        stream = self.pick_stream()
        event = self.pick_event(stream.place) if self.chance(0.5) else None
        self.note("record", self.streams.index(stream), self.at(event, self.events))
        made = self.session.record(stream, event)
        if made is not None and made is not event:
            self.events.append(made)

    def close_event(self):
        if self.events:
            event = self.pick_event()
            self.note("close event", self.events.index(event))
            self.session.close_event(event)

    def wait(self):
        stream, other = self.pick_stream(), self.pick_stream()
        ways = [(self.streams, other, self.session.wait_for_stream)]
        if self.events:
            ways += [(self.events, self.pick_event(), self.session.wait_for_event)] * 3
        if self.tokens:
            ways += [(self.tokens, self.pick(self.tokens), self.session.wait_for_token)] * 2
        things, thing, step = self.random.choice(ways)
        self.note("stream", self.streams.index(stream), step.__name__, things.index(thing))
        step(stream, thing)

    def on_host(self, verb, *arguments):
        """Wait for a stream, an event or a token, or await it, or ask whether it is done."""
        things, kind = self.random.choice(
            [(self.streams, "stream"), (self.events, "event"), (self.tokens, "token")]
        )
        if things:
            thing = self.pick_event() if kind == "event" else self.pick(things)
            self.note(verb, kind, things.index(thing))
            getattr(self.session, f"{verb}_{kind}")(thing, *arguments)

    def synchronize(self):
        self.on_host("synchronize")

    def await_something(self):
        if self.session.here is not self.session.main:
            return
        if self.chance(0.4):
            self.await_scope(the_loop())
        else:
            self.on_host("await", the_loop())

    def fail(self):
        """Make a step in which a driver call fails.

        Work that was not queued must leave no trace.
        """
        failures = {**FAILURES, **library_tickets.FAILURES} if self.tickets else FAILURES
        failures = {**failures, **library_textures.FAILURES} if self.textures else failures
        failures = {**failures, **library_signals.FAILURES} if self.uses_signals else failures
        step, functions = self.random.choice(tuple(failures.items()))
        self.session.failing = self.random.choice(functions), self.random.choice((1, 2))
        self.note("fails in the next one:", *self.session.failing)
        try:
            getattr(self, step)()
        except Failed:
            self.note("  and did")
        finally:
            self.session.failing = None

    def wait_for_an_event(self):
        if self.events:
            self.session.wait_for_event(self.pick_stream(), self.pick_event())

    def interrupt(self):
        """Press Ctrl-C in the middle of a call that waits for a stopped stream."""
        stream = self.pick_stream()
        # Python delivers all signals to this thread.
        first = threading.current_thread() is threading.main_thread()
        if not self.is_usable(stream) or not first:
            return
        self.note("interrupt, while these do not go on:", self.streams.index(stream))
        calls = [self.session.synchronize_stream, self.synchronize_record]
        calls += [self.work_and_wait, self.work_and_wait, self.interrupt_scope]
        call = self.random.choice(calls)
        self.session.hold(stream)
        self.session.interrupting = True
        try:
            call(stream)
        finally:
            self.session.interrupting = False
            self.session.gate.open()

    def synchronize_record(self, stream):
        """Interrupt a wait for a token of a stopped stream, or for an event recorded on it."""
        tokens = [token for token in self.tokens if token.stream is stream.model]
        if tokens and self.chance(0.7):
            self.session.synchronize_token(self.pick(tokens))
            return
        self.session.interrupting = False
        event = self.session.record(stream)
        self.session.interrupting = True
        self.session.synchronize_event(event)

    def work_and_wait(self, stream):
        """Interrupt a blocking fill or copy on a stopped stream. The queued work stays queued."""
        buffer = self.pick_buffer(place=stream.place)
        # The first host access to a buffer may allocate it, and on a GPU that may block.
        if buffer is None or not is_filled(buffer) or buffer.memory.unused is not None:
            return
        self.note("  buffer", self.buffers.index(buffer))
        ways = [self.fill_and_wait]
        whole = self.plan["threshold"] == _staging.plan()["threshold"]
        # On a GPU, allocating a stage may block while the stream is stopped, and a copy between two
        # host buffers blocks in the driver.
        if whole and self.session.software and not buffer.on_host:
            ways += [self.copy_out_and_wait, self.copy_in_and_wait]
        self.random.choice(ways)(buffer, stream)
        self.session.compare_borrows(buffer)

    def fill_and_wait(self, buffer, stream):
        self.session.fill(buffer, self.random.randrange(256), stream, blocking=True)

    def copy_in_and_wait(self, buffer, stream):
        self.session.copy_in(buffer, self.bytes(buffer.nbytes), stream, blocking=True)

    def copy_out_and_wait(self, buffer, stream):
        self.session.copy_out(buffer, stream)

    def ask(self):
        self.on_host("ask" if self.chance(0.5) else "try")

    def synchronize_context(self):
        place = self.pick_place()
        self.note("synchronize context", *self.where(place))
        self.session.synchronize_context(place)

    # ---- policies and blocks ----

    def change_policy(self):
        policy = self.random.choice((*self.policies, None))
        where = self.random.choice(("context", "buffer", "block", "block"))
        self.note("policy of", where, policy)
        if where == "context":
            place = self.pick_place()
            self.note("  ", *self.where(place))
            self.session.set_context_policy(policy, place)
        elif where == "buffer" and self.buffers:
            self.session.set_policy(self.pick(self.buffers), policy)
        elif where == "block" and self.session.orderings:
            self.session.leave_ordering()
        elif where == "block" and policy is not None:
            self.session.enter_ordering(policy)

    # ---- buffers ----

    def add(self, buffer, *what):
        self.note("buffer", *what, len(self.buffers) if buffer is not None else "refused")
        if buffer is not None:
            self.buffers.append(buffer)

    def allocate(self):
        # With several contexts, choose page-locked and device memory more often: all contexts can
        # use page-locked memory, and only some can use device memory.
        more = ("locked", "device") if self.several else ("device",)
        kind, stream = self.random.choice((*self.memories, *more)), None
        driver_pool = kind in self.driver_pools and self.chance(0.12)
        share = 0.6 if kind == "device" or driver_pool else 0.3
        if self.streams and self.chance(share):
            stream = self.pick_stream()
        size = 0 if self.chance(0.02) else self.random.choice(self.sizes)
        place = stream.place if stream else self.pick_place()
        options = {"driver_pool": True} if driver_pool else {}
        if not driver_pool and self.chance(0.1):
            options["pooled"] = False
        if not driver_pool and kind == "locked" and self.chance(0.05):
            options["write_combined"] = True
        if self.tickets and kind == "locked" and not options and self.chance(0.7):
            options["shareable"], options["pooled"], stream = True, False, None
        if kind == "locked" and not options and self.chance(0.1):
            options["in_place"], stream = True, None
        made = self.session.allocate(kind, size, stream, place, **options)
        self.add(made, kind, size, self.at(stream, self.streams), *self.where(place), *options)

    def allocate_growing(self):
        place, size = self.pick_place(), self.random.choice(CUTS)
        self.add(
            self.session.allocate_growing(size, 40, place), "growing", size, *self.where(place)
        )

    def resize(self):
        """Grow or shrink a buffer; sometimes the new size equals the old one."""
        growing = [buffer for buffer in self.buffers if buffer.grows]
        if not growing:
            return
        buffer = self.pick_usable(growing, lambda buffer: not buffer.closed)
        size = self.random.choice((*CUTS, *MORE_CUTS))
        verb = "grow" if size > buffer.nbytes or self.chance(0.02) else "shrink"
        size = max(size, buffer.nbytes) if verb == "grow" else size
        self.note(verb, self.buffers.index(buffer), size)
        getattr(self.session, verb)(buffer, size)
        if self.chance(0.5):
            self.use_older(buffer)

    def use_older(self, buffer):
        """Use or end what was made of a buffer before its size changed."""
        found = [each for each in self.holders if each.buffer.memory is buffer.memory]
        if found and found[-1].lent.is_reachable:
            self.note("  and end holder", self.holders.index(found[-1]))
            self.holders.remove(found[-1])
            self.session.end_holder(found[-1])
            self.session.compare_borrows(buffer)
        elif self.captures:
            self.compare_sizes()
            self.random.choice((self.set_node, self.enable_node, self.launch_graph))()

    def reuse(self):
        """Drop a buffer that a stream still uses, and allocate on that stream again."""
        streams = [s for s in self.streams if self.is_usable(s) and s.model.kind == "non_blocking"]
        stream = self.pick(streams) if streams else None
        kinds = [kind for kind in self.memories if kind != "device"]
        if stream is None or not kinds or stream.model.in_capture:
            return
        kind, size, value = self.random.choice(kinds), self.sizes[0], self.random.randrange(256)
        told = kind, size, self.streams.index(stream)
        self.note("fill and forget", *told, value)
        self.session.fill(self.session.allocate(kind, size, stream), value, stream)
        made = self.session.allocate(kind, size, stream)
        self.add(made, *told, "after that")
        if self.chance(0.5):
            self.note("host first")
            self.session.set_slice(made, self.bytes(size))

    def from_address(self):
        kind, size = self.random.choice(self.memories), self.random.choice(self.sizes)
        place = self.pick_place()
        self.add(self.session.from_address(kind, size, place), kind, "from address", size)

    def into_raw(self):
        """Call `into_raw`.

        It is sometimes called while parts of the memory are alive, and is then refused.
        """
        buffer = self.pick_buffer()
        memory = buffer.memory
        if memory.model.end is not None or memory.was_shared or memory.shareable:
            return  # memory that grows or that other processes may have mapped cannot be given away
        if memory.in_place:
            return  # nor can memory of an array
        if not buffer.part and not buffer.closed:
            if not self.chance(0.4):
                self.forget_parts(buffer)
            elif self.chance(0.3):
                self.note("part of", self.buffers.index(buffer))
                self.buffers.append(self.session.part(buffer, 0, 0))
            elif self.chance(0.5):
                self.note("from_raw of a live one", self.buffers.index(buffer))
                if buffer.nbytes and buffer.memory.owned:
                    self.session.from_raw_of_live(buffer)
                return
        parts = not buffer.part and not buffer.closed and self.has_parts(buffer)
        self.note("into_raw", self.buffers.index(buffer), "with parts" * parts)
        raw = self.session.into_raw(buffer, parts)
        if raw is not None:
            self.raws.append(raw)
            self.replace()

    def forget_parts(self, whole):
        def is_other(buffer):
            return buffer.memory is whole.memory and not buffer.is_object(whole.real)

        self.note("forget parts of", self.buffers.index(whole), "and their tokens")
        parts = [weakref.ref(buffer.real) for buffer in self.buffers if is_other(buffer)]
        self.buffers = [buffer for buffer in self.buffers if not is_other(buffer)]
        self.forget_prepared()
        self.tokens = [token for token in self.tokens if not any(map(is_other, token.buffers))]
        patience = 100  # the thread that watches tokens may still refer to one for a moment
        while self.session.awaited and patience and any(part() is not None for part in parts):
            time.sleep(0.001)
            patience -= 1

    def from_raw(self):
        if self.raws:
            self.add(self.session.from_raw(self.raws.pop()), "from raw")

    def cut(self, buffer, size=None):
        """Make a part of a buffer, of `size` bytes if `size` is given."""
        step = buffer.real.itemsize
        cuts = (*CUTS, *ODD) if buffer.nbytes <= NBYTES else (*CUTS, *ODD, *MORE_CUTS)
        cuts = [cut for cut in cuts if cut <= buffer.nbytes and cut % step == 0]
        if size is None:
            start, stop = sorted(self.random.choices(cuts, k=2))
        else:
            starts = [cut for cut in cuts if cut + size <= buffer.nbytes]
            start = self.random.choice(starts)
            stop = start + size
        how = self.random.choice(("slice", "split", "chunks"))
        return self.session.part(buffer, start, stop, how), (start, stop, how)

    def part(self):
        buffer = self.pick_buffer()
        made, what = self.cut(buffer)
        self.add(made, "part of", self.buffers.index(buffer), *what)

    def view_as(self):
        self.view_of(self.pick_buffer(), self.dtypes)

    def view_of(self, buffer, dtypes):
        """Make a view as items of one of these dtypes. Returns the buffer itself if none fits."""
        fitting = [dtype for dtype in dtypes if divides(buffer, dtype)]
        if not fitting:
            return buffer
        dtype = self.random.choice(fitting)
        made = self.session.view_as(buffer, dtype)
        self.add(made, "view of", self.buffers.index(buffer), str(dtype))
        return made

    def take(self):
        buffer = self.pick_buffer()
        if buffer.memory.opened or buffer in [share.buffer for share in self.shares]:
            return  # the share refers to this buffer object
        made = self.session.take(buffer)
        self.add(made, "taken from", self.buffers.index(buffer))

    def close_buffer(self):
        wholes = [b for b in self.buffers if not b.part and not b.closed]
        buffer = self.pick(wholes) if wholes and self.chance(0.8) else self.pick_buffer()
        if buffer.memory.opened:  # the owner of shared memory needs a receipt
            return
        given = 0.5 if buffer.memory.stream else 0.09
        stream = self.pick_stream(buffer.memory.place) if self.chance(given) else None
        self.note("close", self.buffers.index(buffer), self.at(stream, self.streams))
        self.session.close(buffer, stream)
        self.replace()

    def replace(self):
        while sum(not buffer.closed for buffer in self.buffers) < 3:
            self.allocate()

    def forget_buffer(self):
        """Drop all references to a buffer.

        Its memory must stay allocated until its work is complete.
        """
        memory = self.pick(self.buffers).memory
        kept = [buffer for buffer in self.buffers if buffer.memory is not memory]
        held = (*self.views, *self.loans, *self.holders, *self.shares)
        held = [each.buffer.memory for each in held]
        held += [buffer.memory for each in self.results for buffer in each.token.buffers]
        held += [buffer.memory for block in self.offloads for buffer in block.buffers]
        if memory.opened:
            return
        if memory.home is not None and memory.home.stream is not None:
            return  # its home refers to the stream until work on these bytes is complete
        if len(kept) > 1 and memory not in held:
            gone = [at for at, buffer in enumerate(self.buffers) if buffer not in kept]
            self.note("forget buffers", *gone, "and their tokens")
            self.buffers = kept
            self.forget_prepared()
            self.tokens = [
                token
                for token in self.tokens
                if not any(buffer.memory is memory for buffer in token.buffers)
            ]
            if self.chance(0.3):
                self.reap()
            self.replace()

    def forget_token(self):
        if self.tokens:
            self.note("forget token", len(self.tokens) - 1)
            self.tokens.pop()

    def reap(self):
        self.note("reap")
        self.session.reap()

    # ---- operations ----

    def mostly_place_of(self, buffer):
        """Choose the context for the operation's other buffers.

        None means any context; the operation may then be refused.
        """
        share = 0.3 if self.session.access or self.session.admitted else 0.03
        if buffer.on_host or not self.several or self.chance(share):
            return None
        return buffer.memory.place

    def copy(self):
        target = self.pick_buffer()
        source = self.pick_elsewhere(target) if self.several and self.chance(0.6) else None
        source = source or self.pick_buffer(place=self.mostly_place_of(target))
        if source is None:
            return
        told = self.buffers.index(target), self.buffers.index(source)
        if target.nbytes <= source.nbytes:
            source, cut = self.like(source, target)
        else:
            target, cut = self.like(target, source)
        if source is None or target is None:
            return
        blocking = self.chance(0.2)
        place = self.any_user_of(target, source)
        target, source = self.boxes_of(target, source)
        stream, inward = self.maybe_stream(blocking, place), self.chance(0.5)
        models = target.memory.model, source.memory.model  # an overlay has the same one
        apart = models[0] is not models[1] and not (target.closed or source.closed)
        if apart and stream and not blocking and self.chance(0.3):
            self.note("copy in a batch", *told, cut, self.at(stream, self.streams))
            pairs = [(target, source)]
            if target.nbytes and stream.place is place and not stream.model.in_capture:
                self.add_pairs(pairs, place)
            self.keep(self.session.copy_in_a_batch(pairs, stream))
            return
        if stream and stream.model.capture:
            self.give_access_for(stream.place, target, source)
        self.note("copy", *told, cut, "blocking" * blocking, self.at(stream, self.streams))
        self.keep(self.session.copy(target, source, stream, blocking, inward))

    def add_pairs(self, pairs, place):
        """Add items to a batch. They write no memory that another item uses."""
        if not any(buffer.goes_to(place) for buffer in self.buffers):
            return
        for _ in range(self.random.choice((0, 4, 8, 16))):  # most pairs do not fit
            target, source = self.pick_buffer(place=place), self.pick_buffer(place=place)
            if target.closed or source.closed:
                continue
            told = self.buffers.index(target), self.buffers.index(source)
            if target.nbytes <= source.nbytes:
                source, cut = self.like(source, target)
            else:
                target, cut = self.like(target, source)
            if source is None or target is None or not target.nbytes:
                continue
            target, source = self.boxes_of(target, source)
            written = {pair[0].memory.model for pair in pairs}
            used = {buffer.memory.model for pair in pairs for buffer in pair}
            to, of = target.memory.model, source.memory.model
            if to is of or to in used or of in written:
                continue
            self.note("  and", *told, cut)
            pairs.append((target, source))

    def call_function(self):
        """Let a stream call a function with buffers of the host."""
        if stream := self.maybe_stream(False, None):
            hosts, told = self.pick_hosts()
            if hosts is not None:
                self.note("call", *told, self.at(stream, self.streams))
                self.keep(self.session.call_function(*hosts, stream))

    def pick_hosts(self):
        """Choose the buffers of a call: a target, and a source or None; and how to tell of them."""
        hosts = [
            buffer
            for buffer in self.buffers
            if isinstance(buffer.real, cu.HostBuffer) and buffer.layout is None and buffer.nbytes
        ]
        if not hosts:
            return None, ()
        target, source, cut = self.pick(hosts), self.pick(hosts), None
        told = self.buffers.index(target), self.buffers.index(source)
        if target.closed or source.closed or target.memory is source.memory or self.chance(0.3):
            source = None
        elif target.nbytes <= source.nbytes:
            source, cut = self.like(source, target)
        else:
            target, cut = self.like(target, source)
        if target is None or (source is None and cut is not None):
            return None, ()
        if source is not None and any(relation(target, source)):
            return None, ()
        return (target, source), (*told, cut, "with both" * (source is not None))

    def like(self, buffer, other):
        """Make a part of a buffer with the dtype and the size of another buffer, or None."""
        dtype = other.real.dtype
        if buffer.closed or other.closed:
            return buffer, None
        if not divides(buffer, dtype):
            return None, None
        if buffer.real.dtype != dtype:
            buffer = self.session.view_as(buffer, dtype)
        if buffer.nbytes != other.nbytes:
            return self.cut(buffer, other.nbytes)
        return buffer, None

    def fill(self):
        buffer, blocking, value = self.pick_buffer(), self.chance(0.15), self.random.randrange(256)
        if len(self.dtypes) > len(DTYPES) and not buffer.closed and self.chance(0.2):
            buffer = self.view_of(buffer, MORE_DTYPES)
        elif self.boxes and not buffer.closed and self.chance(0.3):
            buffer = self.view_of(buffer, WIDE_DTYPES)
        stream = self.maybe_stream(blocking, self.any_user_of(buffer))
        told = self.buffers.index(buffer), self.at(stream, self.streams)
        self.note("fill", *told, value, "blocking" * blocking)
        buffer = self.box_of(buffer)
        self.keep(self.session.fill(buffer, value, stream, blocking))

    def copy_in(self):
        buffer, blocking = self.pick_buffer(), self.chance(0.4)
        stream = self.maybe_stream(blocking, buffer.memory.place)
        told = self.buffers.index(buffer), self.at(stream, self.streams)
        self.note("copy from array", *told, "blocking" * blocking)
        buffer = self.box_of(buffer)
        array = self.bytes(buffer.nbytes)
        self.keep(self.session.copy_in(buffer, array, stream, blocking))

    def copy_out(self):
        buffer = self.pick_buffer()
        stream = self.maybe_stream(True, buffer.memory.place)
        told = self.buffers.index(buffer), self.at(stream, self.streams)
        self.note("copy to array", *told)
        buffer = self.box_of(buffer)
        self.session.copy_out(buffer, stream)

    def launch(self):
        out = self.pick_buffer()
        a, b = (self.pick_buffer(place=self.mostly_place_of(out)) or out for _ in range(2))
        if self.session.access and self.chance(0.5):
            a = self.pick_elsewhere(out) or a
        place = self.any_user_of(out, a, b)
        stream, way = self.maybe_stream(False, place), self.random.choice(WAYS_TO_LAUNCH)
        modes = ("read", "read") if self.chance(0.7) else self.random.choices(tuple(MODES), k=2)
        # A shared use of `a` or `b` would be a data race.
        modes = ["write" if mode == "shared" else mode for mode in modes]
        if way != "pointers":
            modes = self.declared(modes)
        more = []
        while self.chance(0.2):
            more.append((self.pick_buffer(place=place) or out, self.random.choice(tuple(MODES))))
        told = [self.buffers.index(buffer) for buffer in (out, a, b)]
        told += [self.at(stream, self.streams), way, *modes]
        self.note("launch", *told, *((self.buffers.index(each), mode) for each, mode in more))
        closed = any(buffer.closed for buffer in (out, a, b, *(each for each, _ in more)))
        if way == "plain" or not closed:
            out, a, b = map(self.box_of, (out, a, b))
            more = [(self.box_of(each), mode) for each, mode in more]
            self.keep(self.session.launch(out, a, b, stream, way, modes, more))

    def declared(self, modes):
        """The modes of arguments. Some written arguments are passed as `cu.write`, and not bare."""
        return ["written" if mode == "write" and self.chance(0.5) else mode for mode in modes]

    # ---- arrays as arguments ----

    def launch_arrays(self):
        """Launch a kernel with arrays among its arguments."""
        stream = self.pick_stream(self.pick_place())
        if stream is None or not self.is_usable(stream) or stream.model.in_capture:
            return
        ways = [self.random.choice(("in and out", "out")), *self.random.choices(ROLES, k=2)]
        array = self.random.randrange(3)  # at least this operand is an array
        operands, told = [], []
        for at, way in enumerate(ways):
            buffer = self.pick_buffer(place=stream.place)
            if at == array or buffer is None or self.chance(0.3):
                operands.append(Array(self.bytes(self.random.choice((NBYTES, 8))), way))
                told.append(way)
            else:
                operands.append(buffer)
                told.append(self.buffers.index(buffer))
        self.note("launch with arrays", *told, self.streams.index(stream))
        token, results = self.session.launch_with_arrays(operands, stream)
        self.keep(token)
        if results is not None:
            self.note("  results", len(self.results))
            self.results.append(results)

    def bring_home(self):
        """Wait for the results of a launch, or ask for them."""
        if self.results:
            results = self.pick(self.results)
            verb = self.random.choice(("synchronize", "ask", "try"))
            self.note(verb, "results", self.results.index(results))
            if self.session.bring_home(results, verb):
                self.results.remove(results)

    # ---- prepared launches ----

    def prepare(self):
        """Prepare a launch. It keeps its buffers, whatever the program then does with them."""
        module = self.pick(self.modules) if self.modules and self.chance(0.6) else None
        out = self.pick_buffer(place=module and module.place)
        if out is None or (module and not self.session.can_swap(out, module.kept)):
            return
        a, b = (self.pick_buffer(place=self.mostly_place_of(out)) or out for _ in range(2))
        more = [(self.pick_buffer(), self.random.choice(tuple(MODES)))] if self.chance(0.3) else []
        if any(buffer.closed for buffer in (out, a, b, *(each for each, _ in more))):
            return
        modes = self.declared(self.random.choices(("read", "write"), (4, 1), k=2))
        told = [self.buffers.index(buffer) for buffer in (out, a, b, *(each for each, _ in more))]
        self.note("prepare", *(told[:1] if module else (*told, *modes)))
        if module is None:
            ready = self.session.prepare(out, a, b, modes, more)
            self.prepared += [ready] if ready else []
        elif not module.closed:
            self.prepared.append(self.session.prepare_swap(module, out))

    def launch_prepared(self):
        fitting = [ready for ready in self.prepared if ready.fits]
        if self.session.failing:
            fitting = [ready for ready in fitting if ready.module is None]
        if fitting:
            ready = self.pick(fitting)
            stream = self.maybe_stream(False, ready.place)
            told = self.prepared.index(ready), self.at(stream, self.streams)
            self.note("launch prepared", *told)
            self.keep(self.session.launch_prepared(ready, stream))

    def forget_prepared(self):
        """Drop the prepared launches that keep buffers which the program has dropped."""
        self.prepared = [
            ready
            for ready in self.prepared
            if all(buffer in self.buffers for buffer in ready.buffers)
        ]

    # ---- modules ----

    def load(self):
        if len(self.modules) < 2:
            place = self.pick_place()
            self.note("module", len(self.modules), *self.where(place))
            self.modules.append(self.session.load(place))

    def global_(self):
        module = self.pick_usable(self.modules, lambda module: not module.closed)
        if module is not None:
            at = self.modules.index(module)
            self.add(self.session.global_(module), "of module", at)

    def launch_of_module(self):
        module = self.pick_usable(self.modules, lambda module: not module.closed)
        buffer = self.pick_buffer(place=module and module.place)
        if module is not None and buffer is not None:
            stream = self.maybe_stream(False, module.place)
            step = self.random.choice((self.session.swap, self.session.swap, self.session.peek))
            if not self.session.can_swap(buffer, module.kept):
                step = self.session.peek
            told = self.modules.index(module), self.buffers.index(buffer)
            self.note(step.__name__, *told, self.at(stream, self.streams))
            self.keep(step(module, buffer, stream))

    def close_module(self):
        if self.modules:
            module = self.pick(self.modules)
            self.note("close module", self.modules.index(module))
            self.session.close_module(module)
            self.replace()

    # ---- the host ----

    def access(self):
        """Read or write an item, a slice or the whole buffer on the host."""
        buffer = self.pick_buffer(on_host=True)
        if buffer is None:
            return
        at, how = self.buffers.index(buffer), self.random.choice(("item", "slice", "numpy"))
        write = self.chance(0.5)
        self.note("host", at, how, "write" * write)
        box = self.box_of(buffer)
        if box.layout:
            buffer, how = box, "slice"
        if how == "item" and buffer.nbytes:
            index = self.random.randrange(buffer.real.count)
            if write:
                self.session.set_item(buffer, index, self.bytes(NBYTES))
            else:
                self.session.get_item(buffer, index)
        elif write:
            self.session.set_slice(buffer, self.bytes(buffer.nbytes))
        else:
            self.session.to_numpy(buffer)

    def open_view(self):
        buffer = self.pick_buffer(on_host=True)
        if buffer is None:
            return
        way = self.random.choice(tuple(WAYS))
        self.note("view", self.buffers.index(buffer), way)
        box = self.box_of(buffer)
        if box.layout:
            buffer, way = box, self.random.choice(("with read", "with write", "asarray"))
        view = self.session.open_view(buffer, way)
        if view is not None:
            self.views.append(view)

    def use_view(self):
        live = [view for view in self.views if view.array is not None]
        if live:
            view = self.pick(live)
            self.note("use view", self.views.index(view))
            self.session.use_view(view, self.bytes(view.buffer.nbytes))
            if self.chance(0.3):
                self.note("  and keep a part of it")
                self.session.keep_view(view)

    def close_view(self):
        if self.views:
            at = self.random.randrange(len(self.views))
            self.note("close view", at)
            if self.session.close_view(self.views[at]):
                del self.views[at]


ROLES = ("in", "in", "in and out")  # ways to pass an array that a kernel reads
# Factors by which these steps are more frequent if there are several contexts.
BETWEEN_CONTEXTS = {"synchronize_context": 6, "forget_stream": 3, "open_stream": 2}
COPIES = (
    *("cuMemcpyAsync", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuMemcpyDtoDAsync_v2"),
    "cuMemcpyPeerAsync",
)
FILLS = ("cuMemsetD8Async", "cuMemsetD16Async", "cuMemsetD32Async", "cuMemsetD2D32Async")
# For each kind of step, the driver functions that may fail.
FAILURES = {
    "copy": COPIES,
    "call_function": ("cuLaunchHostFunc", "cuStreamWaitValue64_v2"),
    "fill": FILLS,
    "launch": ("cuLaunchKernelEx",),
    "launch_prepared": ("cuLaunchKernelEx",),
    "launch_graph": ("cuGraphLaunch",),
    "set_node": tuple(
        f"cuGraphExec{kind}NodeSetParams" for kind in ("Kernel", "Memcpy", "Memset", "Host")
    ),
    "enable_node": ("cuGraphNodeSetEnabled",),
    "update": ("cuGraphExecUpdate",),
    "add_node": (
        *(
            f"cuGraphAdd{kind}Node"
            for kind in ("Memcpy", "Memset", "Kernel", "Host", "Empty", "ChildGraph")
        ),
        "cuGraphCreate",
    ),
    "prefetch": ("cuMemPrefetchAsync",),
    "move_to": ("cuMemPrefetchAsync",),
    "discard": ("cuMemDiscardBatchAsync", "cuMemDiscardAndPrefetchBatchAsync"),
    "attach": ("cuStreamAttachMemAsync",),
    "lend": ("cuEventRecord", "cuEventCreate"),
    "end_loan": ("cuEventRecord",),
    "copy_in": (*COPIES, "cuEventRecord"),
    "copy_out": (*COPIES, "cuEventRecord"),
    "record": ("cuEventRecord", "cuEventCreate"),
    "wait_for_an_event": ("cuStreamWaitEvent",),
    "make_event": ("cuEventCreate",),
    "elapsed": ("cuEventElapsedTime",),
    "open_group": ("cuStreamCreateWithPriority",),
    "open_stream": ("cuStreamCreateWithPriority",),
    "allocate": (
        "cuMemAlloc_v2",
        "cuMemHostAlloc",
        "cuMemAllocAsync",
        "cuMemAllocManaged",
        "cuMemAllocFromPoolAsync",
    ),
}
OF_THREADS = ("end_thread", "at_once")
OF_MODULES = ("load", "global_", "launch_of_module", "close_module")
OF_GROWING = ("allocate_growing", "resize")
WEIGHTS = {
    "copy": 24,
    "fill": 14,
    "launch": 10,
    "prepare": 5,
    "launch_prepared": 14,
    "launch_arrays": 4,
    "bring_home": 5,
    "copy_in": 6,
    "copy_out": 5,
    "record": 8,
    "wait": 14,
    "synchronize": 7,
    "ask": 6,
    "interrupt": 0.1,
    "await_something": 1,
    "fail": 1.5,
    "synchronize_context": 0.7,
    "make_event": 5,
    "close_event": 8,
    "open_stream": 3,
    "close_stream": 3,
    "forget_stream": 2,
    "change_policy": 4,
    "current_stream": 5,
    "end_thread": 2,
    "at_once": 20,
    "allocate": 2,
    "allocate_growing": 3,
    "resize": 20,
    "reuse": 0.7,
    "part": 5,
    "view_as": 3,
    "take": 2,
    "from_address": 0.7,
    "into_raw": 2,
    "from_raw": 1,
    "close_buffer": 6,
    "forget_buffer": 3,
    "forget_token": 4,
    "reap": 0.5,
    "load": 5,
    "global_": 5,
    "launch_of_module": 16,
    "close_module": 3,
    "access": 10,
    "open_view": 8,
    "use_view": 5,
    "close_view": 5,
    **library_interop.WEIGHTS,
    **library_groups.WEIGHTS,
    **library_managed.WEIGHTS,
    **library_offload.WEIGHTS,
    **library_graphs.WEIGHTS,
    **library_joined.WEIGHTS,
    **library_peers.WEIGHTS,
    **library_textures.WEIGHTS,
    **library_tickets.WEIGHTS,
}
