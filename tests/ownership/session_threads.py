"""Two threads make calls at once: some order of the calls must explain the outcome of each call."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from effects import UNKNOWN, Add
from oracle import OK
from session import Stream
from session_imports import ImportSession
from session_kernels import MODES

import cudadrv as cu


@dataclass(eq=False)
class Operation:
    """An asynchronous operation on usable buffers and a stream; `effect` sets their bytes."""

    stream: Stream
    uses: list
    call: Callable
    effect: Callable
    answer: str = OK

    @property
    def accesses(self):
        return [buffer.use(mode) for buffer, mode in self.uses]


class ThreadSession(ImportSession):
    def fill_at_once(self, buffer, value, stream):
        self.take_address(buffer)

        def effect():
            buffer.bytes[:] = value

        call = lambda: buffer.real.view("u1").fill_async(value, stream.real)  # noqa: E731
        return Operation(stream, [(buffer, "write")], call, effect)

    def add_at_once(self, out, a, b, stream):
        count = min(out.nbytes, a.nbytes, b.nbytes)
        for buffer in (out, a, b):
            self.take_address(buffer)
        kernel = self.kernel(stream.place)
        args = out.real, MODES["read"](a.real), MODES["read"](b.real), count
        call = lambda: kernel.launch(1, 1, *args, stream=stream.real)  # noqa: E731
        uses = [(out, "write"), (a, "read"), (b, "read")]
        return Operation(stream, uses, call, lambda: Add(count)(out, a, b))

    def can_be_at_once(self, first, second, thread):
        """Whether the oracle can judge these calls afterwards, for every order of the calls.

        No call may wait. The rules of the default streams may not order operations of the two
        threads, because that order would depend on the order of the calls.
        """
        strict = self._all_strict(first)
        self.be_in(thread)
        strict = self._all_strict(second) and strict
        self.be_in(self.main)
        models = [{op.stream.model for op in side} for side in (first, second)]
        apart = all(
            x is y or x.domain is not y.domain or {x.kind, y.kind} != {"legacy", "blocking"}
            for x in models[0]
            for y in models[1]
        )
        return strict and apart

    def _all_strict(self, operations):
        return all(self.policy_of(buffer) == "strict" for op in operations for buffer, _ in op.uses)

    def at_once(self, first, second, worker):
        """Make the calls of two threads at the same time.

        Each thread makes its own calls in order.
        """
        orders = {}
        for order in merges(first, second):
            answers = self._answers(order)
            orders.setdefault(tuple(answers[op] for op in (*first, *second)), []).append(order)
        worker.start(lambda: self._make(second))
        try:
            self._make(first)
        finally:
            worker.finish()
        got = tuple(op.answer for op in (*first, *second))
        if got not in orders:
            self.disagree(f"calls of two threads give {got}, expected one of {set(orders)}")
        self.answers.update(got)
        self._apply(orders[got])

    def _make(self, operations):
        for op in operations:
            try:
                op.call()
                op.answer = OK
            except (cu.OwnershipError, ValueError, TypeError) as error:
                op.answer = self._named("a call at once with others", error)

    def _answers(self, order):
        """The answer to each operation if the calls come in this order. Changes nothing."""
        before = self.oracle.order()
        uses = [
            (memory, len(memory.accesses), memory.discarded.copy())
            for memory in self.oracle.memories
        ]
        answers = {op: self._judge_and_issue(op) for op in order}
        self.oracle.restore(before)
        for memory, length, discarded in uses:
            del memory.accesses[length:]
            memory.discarded = discarded
        return answers

    def _judge_and_issue(self, op):
        answer = self.oracle.judge(op.stream.model, op.accesses, "strict").answer
        if answer == OK:
            self.oracle.issue(op.stream.model, op.accesses, next(self.sites))
        return answer

    def _apply(self, orders):
        """Apply the effects of one possible order.

        Bytes that depend on the order become unknown.
        """
        order = orders[0]
        accepted = [op for op in order if op.answer == OK]
        memories = {buffer.memory for op in accepted for buffer, _ in op.uses}
        before = [(memory, memory.bytes.copy()) for memory in memories]
        found = []
        for each in orders:
            for memory, bytes_ in before:
                memory.bytes[:] = bytes_
            for op in each:
                if op.answer == OK:
                    op.effect()
            found.append([memory.bytes.copy() for memory, _ in before])
        for at, (memory, _) in enumerate(before):
            same = np.all([bytes_[at] == found[0][at] for bytes_ in found], axis=0)
            memory.bytes[:] = np.where(same, found[0][at], UNKNOWN)
        for op in accepted:
            self._judge_and_issue(op)


def merges(first, second):
    """All orders of two threads' operations that keep the order of each thread."""
    total = len(first) + len(second)
    for places in combinations(range(total), len(first)):
        mine, others = iter(first), iter(second)
        yield [next(mine) if at in places else next(others) for at in range(total)]
