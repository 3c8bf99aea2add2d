"""Random programs through the public API. Hypothesis shrinks a failing program to a few calls."""

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    multiple,
    rule,
    run_state_machine_as_test,
)
from library_choices import CUTS, NBYTES
from session import ORDERS
from session_buffers import CLASSES
from session_host import WAYS, FullSession

import cudadrv as cu

policies = st.sampled_from(["strict", "wait", "unchecked", None])
sides = st.sampled_from([(0, 8), (8, 16), (4, 12), (2, 10)])
cuts = st.sampled_from(CUTS)
values = st.integers(0, 255)
# Indices of contexts: the first device's primary context, and a created one.
places = st.sampled_from([0, 0, 1])
PROGRAMS = 60


def bytes_like(buffer, value):
    return np.full(buffer.nbytes, value, "u1")


class Machine(RuleBasedStateMachine):
    streams = Bundle("streams")
    events = Bundle("events")
    tokens = Bundle("tokens")
    buffers = Bundle("buffers")
    views = Bundle("views")

    def __init__(self):
        super().__init__()
        device = cu.Device(0)
        contexts = [device.context]
        if cu.driver_info().is_software:  # creating a context takes long on a GPU
            contexts.append(cu.Context.create(device))
        self.session = FullSession(*contexts)
        self.all_buffers, self.all_views = [], []

    def place(self, at):
        return self.session.places[at % len(self.session.places)]

    def made(self, thing, kept=None):
        """The objects for a bundle: none if the call was refused."""
        if thing is None:
            return multiple()
        if kept is not None:
            kept.append(thing)
        return thing

    # ---- streams, events and buffers ----

    @initialize(target=buffers)
    def first_buffers(self):
        made = [self.session.allocate(kind, NBYTES) for kind in ("device", "locked")]
        self.all_buffers += made
        return multiple(*made)

    @initialize(target=streams)
    def first_streams(self):
        return multiple(*(self.session.open_stream("non_blocking") for _ in range(2)))

    @rule(target=streams, kind=st.sampled_from(tuple(ORDERS)), at=places)
    def open_stream(self, kind, at):
        return self.session.open_stream(kind, self.place(at))

    @rule(stream=streams)
    def close_stream(self, stream):
        self.session.close_stream(stream)

    @rule(target=events, at=places)
    def make_event(self, at):
        return self.session.make_event(self.place(at))

    @rule(target=buffers, kind=st.sampled_from(tuple(CLASSES)), at=places)
    def allocate(self, kind, at):
        place = self.place(at)
        return self.made(self.session.allocate(kind, NBYTES, place=place), self.all_buffers)

    @rule(target=buffers, stream=streams)
    def allocate_on(self, stream):
        return self.made(self.session.allocate("device", NBYTES, stream), self.all_buffers)

    @rule(
        target=buffers, buffer=buffers, cuts=st.tuples(st.sampled_from(CUTS), st.sampled_from(CUTS))
    )
    def part(self, buffer, cuts):
        start, stop = sorted(min(cut, buffer.nbytes) for cut in cuts)
        return self.made(self.session.part(buffer, start, stop), self.all_buffers)

    @rule(target=buffers, buffer=buffers)
    def take(self, buffer):
        return self.made(self.session.take(buffer), self.all_buffers)

    @rule(buffer=buffers, stream=streams | st.none())
    def close(self, buffer, stream):
        self.session.close(buffer, stream)

    # ---- order ----

    @rule(target=events, stream=streams)
    def record(self, stream):
        return self.made(self.session.record(stream))

    @rule(stream=streams, event=events)
    def record_again(self, stream, event):
        self.session.record(stream, event)

    @rule(event=events)
    def close_event(self, event):
        self.session.close_event(event)

    @rule(stream=streams, event=events)
    def wait_for_event(self, stream, event):
        self.session.wait_for_event(stream, event)

    @rule(stream=streams, token=tokens)
    def wait_for_token(self, stream, token):
        self.session.wait_for_token(stream, token)

    @rule(stream=streams, other=streams)
    def wait_for_stream(self, stream, other):
        self.session.wait_for_stream(stream, other)

    @rule(stream=streams, ask=st.booleans())
    def synchronize_stream(self, stream, ask):
        (self.session.ask_stream if ask else self.session.synchronize_stream)(stream)

    @rule(event=events, ask=st.booleans())
    def synchronize_event(self, event, ask):
        (self.session.ask_event if ask else self.session.synchronize_event)(event)

    @rule(token=tokens, ask=st.booleans())
    def synchronize_token(self, token, ask):
        (self.session.ask_token if ask else self.session.synchronize_token)(token)

    @rule(buffer=buffers, policy=policies)
    def set_policy(self, buffer, policy):
        self.session.set_policy(buffer, policy)

    @rule(policy=policies, at=places)
    def set_context_policy(self, policy, at):
        self.session.set_context_policy(policy, self.place(at))

    @rule(at=places)
    def synchronize_context(self, at):
        self.session.synchronize_context(self.place(at))

    # ---- operations ----

    @rule(target=tokens, buffer=buffers, value=values, stream=streams)
    def fill(self, buffer, value, stream):
        return self.made(self.session.fill(buffer, value, stream))

    @rule(
        target=tokens,
        into=buffers,
        source=buffers,
        sides=sides,
        stream=streams | st.none(),
        blocking=st.booleans(),
    )
    def copy(self, into, source, sides, stream, blocking):
        """Copy whole buffers if they have the same size, else parts of the same size."""
        if into.nbytes != source.nbytes or into is source:
            size = min(8, into.nbytes, source.nbytes)
            into = self.session.part(into, 0, size) or into
            source = self.session.part(source, *self._side(source, sides, size)) or source
        return self.made(self.session.copy(into, source, stream, blocking))

    def _side(self, buffer, sides, size):
        start = min(sides[0], buffer.nbytes - size)
        return start, start + size

    @rule(
        target=tokens,
        buffer=buffers,
        value=values,
        stream=streams | st.none(),
        blocking=st.booleans(),
    )
    def copy_in(self, buffer, value, stream, blocking):
        array = bytes_like(buffer, value)
        return self.made(self.session.copy_in(buffer, array, stream, blocking))

    @rule(buffer=buffers, stream=streams | st.none())
    def copy_out(self, buffer, stream):
        self.session.copy_out(buffer, stream)

    # ---- the host ----

    @rule(buffer=buffers, value=values, write=st.booleans())
    def access(self, buffer, value, write):
        if not buffer.on_host:
            return
        if write:
            self.session.set_slice(buffer, bytes_like(buffer, value))
        else:
            self.session.to_numpy(buffer)

    @rule(target=views, buffer=buffers, way=st.sampled_from(tuple(WAYS)))
    def open_view(self, buffer, way):
        if not buffer.on_host:
            return multiple()
        return self.made(self.session.open_view(buffer, way), self.all_views)

    @rule(view=views, value=values, keep=st.booleans())
    def use_view(self, view, value, keep):
        if view.array is not None:
            self.session.use_view(view, bytes_like(view.buffer, value))
            if keep:
                self.session.keep_view(view)

    @rule(view=consumes(views))
    def close_view(self, view):
        if self.session.close_view(view):
            self.all_views.remove(view)

    def teardown(self):
        try:
            if not self.session.disagreed:
                self.session.finish(self.all_buffers, self.all_views)
        finally:
            self.session.end_work()
            for view in self.all_views:
                view.let_go()
            self.bundles.clear()
            self.names_to_values.clear()
            self.all_buffers.clear()


@pytest.mark.cuda_allow("races")  # operations under the policy "unchecked" may race
def test_machine(driver):
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=PROGRAMS,
            stateful_step_count=40,
            deadline=None,
            database=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
