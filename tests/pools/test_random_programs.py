"""Random programs on pools, compared with a model that keeps all uses and their order.

The model says which memory each allocation must get: never a block that is still in use, and a free
block if it is among those at which the pool looks. So the answers are the same under all schedules
of the driver. If the pool gave out memory too early, the fixture `driver` would report a data race.
"""

import random
from dataclasses import dataclass, field

import pytest

import cudadrv as cu

LOOKS = 4  # number of blocks that a pool looks at, from each end of a size class
SIZES = (100, 300, 512, 700, 5000, 5100)
STEPS = 150


def size_class(nbytes):
    """The number of bytes in the blocks of a size class, for the sizes in SIZES."""
    return 512 * -(-nbytes // 512) if nbytes <= 4096 else 5120 if nbytes > 4608 else 4608


@dataclass(eq=False)
class Queue:
    real: cu.Stream
    order: str
    before: set = field(default_factory=set)  # uses that the next operation is ordered after
    # The uses in `before` that a default stream's implicit order passes on to later work of other
    # queues.
    ordered: set = field(default_factory=set)


@dataclass(eq=False)
class Memory:
    nbytes: int
    address: int
    uses: set = field(default_factory=set)


class Program:
    def __init__(self, seed):
        self.random = random.Random(seed)
        orders = ["plain", "plain", "plain", "blocking", "blocking", "legacy"]
        self.queues = [self.queue(order) for order in orders]
        self.known = set()  # uses that the host knows to be complete
        self.count = 0
        self.alive = []  # tuples (buffer, memory, shelf)
        self.kept = {}  # blocks in the pools, by shelf and size class, the newest first
        self.hits = self.misses = 0

    def queue(self, order):
        if order == "legacy":
            return Queue(cu.Stream.legacy(), order)
        return Queue(cu.Stream(blocking=order == "blocking"), order)

    def view(self, queue):
        """The uses that the queue's next operation is ordered after."""
        found = queue.before | self.known
        for other in self.queues:
            if {queue.order, other.order} <= {"blocking", "legacy"} and "legacy" in (
                queue.order,
                other.order,
            ):
                found |= other.ordered
        return found

    def touch(self, queue):
        """Note work of the queue in the driver: a record, a wait or an operation."""
        queue.before = self.view(queue)
        queue.ordered = set(queue.before)

    def use(self, queue, memory):
        self.touch(queue)
        self.note(queue, memory)
        queue.ordered = set(queue.before)

    def note(self, queue, memory):
        self.count += 1
        queue.before.add(self.count)
        memory.uses.add(self.count)

    # ---- steps ----

    def allocate(self):
        queue = self.random.choice([None, None, *self.queues])
        nbytes = self.random.choice(SIZES)
        shelf = "device" if queue is None else "ordered"
        row = self.kept.setdefault((shelf, size_class(nbytes)), [])
        pooled = queue is None or queue.order == "plain"
        wanted = None
        if pooled:
            free = self.known if queue is None else self.view(queue)
            looked = row[:LOOKS] + row[LOOKS:][: -LOOKS - 1 : -1]
            fits = [m for m in looked if m.nbytes >= nbytes and m.uses <= free]
            wanted = fits[0] if fits else None
        real = {} if queue is None else {"stream": queue.real}
        buffer = cu.DeviceBuffer(nbytes, **real)
        taken = [memory for row in self.kept.values() for memory in row]
        if wanted is None:
            assert buffer.address not in [memory.address for memory in taken]
            grown = bool(row) and row[0].nbytes < nbytes
            memory = Memory(size_class(nbytes) if grown else nbytes, buffer.address)
            self.misses += pooled
        else:
            assert buffer.address == wanted.address
            memory = Memory(wanted.nbytes, buffer.address)
            row.remove(wanted)
            self.hits += 1
        if queue is not None:
            # An allocation may queue nothing, so the default streams do not pass on its order.
            self.note(queue, memory)
        self.alive.append((buffer, memory, shelf if pooled else None))

    def fill(self):
        if not self.alive:
            return
        buffer, memory, _ = self.random.choice(self.alive)
        queue = self.random.choice(self.queues)
        if memory.uses <= self.view(queue):
            buffer.fill_async(1, queue.real)
            self.use(queue, memory)
        else:
            with pytest.raises(cu.BufferBorrowedError):
                buffer.fill_async(1, queue.real)

    def end(self):
        if not self.alive:
            return
        buffer, memory, shelf = self.alive.pop(self.random.randrange(len(self.alive)))
        if shelf is not None:
            self.kept.setdefault((shelf, size_class(memory.nbytes)), []).insert(0, memory)
        if shelf == "device" and memory.uses <= self.known and self.random.random() < 0.5:
            buffer.close()

    def wait(self):
        queue, other = self.random.sample(self.queues, 2)
        queue.real.wait(other.real)
        self.touch(other)
        self.touch(queue)
        queue.before |= other.before
        queue.ordered = set(queue.before)

    def synchronize(self):
        queue = self.random.choice(self.queues)
        queue.real.synchronize()
        self.known |= queue.before

    def run(self):
        steps = [self.allocate, self.fill, self.end, self.wait, self.synchronize]
        for step in self.random.choices(steps, weights=[6, 6, 5, 2, 1], k=STEPS):
            step()


class HostProgram(Program):
    """A program with page-locked or managed memory, whose address is chosen at its first use."""

    def __init__(self, seed, cls):
        super().__init__(seed)
        self.cls = cls

    def obtain(self, row, nbytes, free):
        """The memory for an allocation: a block whose uses are all in `free`, or new memory."""
        looked = row[:LOOKS] + row[LOOKS:][: -LOOKS - 1 : -1]
        for memory in looked:
            if memory.nbytes >= nbytes and memory.uses <= free:
                row.remove(memory)
                self.hits += 1
                return memory
        self.misses += 1
        grown = bool(row) and row[0].nbytes < nbytes
        return Memory(size_class(nbytes) if grown else nbytes, 0)

    def allocate(self):
        queue = self.random.choice([None, *self.queues])
        nbytes = self.random.choice(SIZES)
        row = self.kept.setdefault(("device", size_class(nbytes)), [])
        buffer = self.cls(nbytes, stream=queue and queue.real)
        if queue is not None and queue.order != "plain":
            queue = None  # default and blocking streams do not order allocations of this memory
        block = self.obtain(row, nbytes, self.view(queue) if queue else self.known)
        uses = set()
        if queue:
            self.note(queue, Memory(0, 0, uses))
            first = self.random.choice(["host", "stream", "nobody"])
            if first == "nobody" and block.address:
                del buffer
                row.insert(0, block)
                return
            if first == "stream":
                buffer.fill_async(1, queue.real)
                self.use(queue, Memory(0, 0, uses))
            else:
                if not block.uses <= self.known:
                    self.hits -= 1
                    other = self.obtain(row, nbytes, self.known)
                    row.insert(0, block)
                    block = other
                buffer[:] = 1
                uses = set()
        if block.address:
            assert buffer.address == block.address
        else:
            taken = [memory.address for row in self.kept.values() for memory in row]
            assert buffer.address not in taken
        self.alive.append((buffer, Memory(block.nbytes, buffer.address, uses), "device"))


def check(program, pool):
    before = pool.stats
    program.run()
    after = pool.stats
    assert (after.hits - before.hits, after.misses - before.misses) == (
        program.hits,
        program.misses,
    )
    assert program.hits > 2
    cached = sum(memory.nbytes for row in program.kept.values() for memory in row)
    used = sum(memory.nbytes for _, memory, shelf in program.alive if shelf)
    assert (after.used_bytes - before.used_bytes, after.cached_bytes) == (used, cached)


@pytest.mark.parametrize("seed", range(12))
def test_memory_goes_to_whoever_is_ordered_after_its_uses(pools, seed):
    check(Program(seed), pools.device)


@pytest.mark.parametrize("kind", ["locked", "unified"])
@pytest.mark.parametrize("seed", range(12))
def test_so_does_memory_of_the_host(pools, seed, kind):
    cls = {"locked": cu.LockedBuffer, "unified": cu.UnifiedBuffer}[kind]
    check(HostProgram(seed, cls), getattr(pools, kind))
