"""The steps of a program that launch kernels with several buffers, which may overlap."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import oracle as model
from effects import Add, Peek, Swap
from oracle import BORROWED, EXPORTED, HELD, MEMORY_CLOSED, OK
from session import NO_STREAM, OTHER_CONTEXT, OVERLAP, WAITED, Failed, Place, Token
from session_buffers import Buffer, BufferSession, Memory, stream_option

import cudadrv as cu

# For each mode, the function that declares it for an argument of a launch. A buffer is "written" if
# the program says so: then the launch must not get bytes of it as "read".
MODES = {"read": cu.read, "write": lambda buffer: buffer, "shared": cu.shared}
DECLARED = {**MODES, "written": cu.write}
ARGUMENTS = 3  # number of arguments of a launch that are buffers
WAYS_TO_LAUNCH = ("plain", "plain", "prepared", "pointers")
# One thread adds byte after byte, so that the result is defined even if the buffers overlap.
ADD = """
.version 6.4
.target sm_75
.address_size 64
.visible .entry add(.param .u64 out, .param .u64 a, .param .u64 b, .param .u32 count)
{
    .reg .pred %done;
    .reg .u32 %left, %x, %y;
    .reg .u64 %out, %a, %b;
    ld.param.u64 %out, [out];
    ld.param.u64 %a, [a];
    ld.param.u64 %b, [b];
    ld.param.u32 %left, [count];
LOOP:
    setp.eq.u32 %done, %left, 0;
    @%done ret;
    ld.global.u8 %x, [%a];
    ld.global.u8 %y, [%b];
    add.u32 %x, %x, %y;
    st.global.u8 [%out], %x;
    add.u64 %out, %out, 1;
    add.u64 %a, %a, 1;
    add.u64 %b, %b, 1;
    sub.u32 %left, %left, 1;
    bra LOOP;
}
"""

# Like `add`, these kernels go byte after byte: `swap` exchanges the bytes of a buffer and a
# variable, and `peek` copies the bytes of a constant to a buffer.
VARIABLES = """
.version 6.4
.target sm_75
.address_size 64
.global .align 16 .b8 kept[16];
.const .align 16 .b8 fixed[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
.visible .entry swap(.param .u64 data, .param .u32 count)
{
    .reg .pred %done;
    .reg .u32 %left, %x, %y;
    .reg .u64 %data, %kept;
    ld.param.u64 %data, [data];
    ld.param.u32 %left, [count];
    mov.u64 %kept, kept;
LOOP:
    setp.eq.u32 %done, %left, 0;
    @%done ret;
    ld.global.u8 %x, [%data];
    ld.global.u8 %y, [%kept];
    st.global.u8 [%data], %y;
    st.global.u8 [%kept], %x;
    add.u64 %data, %data, 1;
    add.u64 %kept, %kept, 1;
    sub.u32 %left, %left, 1;
    bra LOOP;
}
.visible .entry peek(.param .u64 data, .param .u32 count)
{
    .reg .pred %done;
    .reg .u32 %left, %x;
    .reg .u64 %data, %fixed;
    ld.param.u64 %data, [data];
    ld.param.u32 %left, [count];
    mov.u64 %fixed, fixed;
LOOP:
    setp.eq.u32 %done, %left, 0;
    @%done ret;
    ld.const.u8 %x, [%fixed];
    st.global.u8 [%data], %x;
    add.u64 %data, %data, 1;
    add.u64 %fixed, %fixed, 1;
    sub.u32 %left, %left, 1;
    bra LOOP;
}
"""
VARIABLE_BYTES = 16


@dataclass(eq=False)
class Module:
    """A loaded module. Its launches borrow the module's code and the variables that they use."""

    real: cu.Module
    place: Place
    code: model.Memory
    kept: Buffer
    fixed: Buffer
    kernels: dict

    @property
    def closed(self):
        return self.code.closed


@dataclass(eq=False)
class Ready:
    """A prepared launch, its uses of buffers and their effect, and the module of a variable."""

    real: cu.Prepared
    place: Place
    uses: list
    effect: Any
    module: Module | None = None

    @property
    def buffers(self):
        """The buffers that the program has passed."""
        return [buffer for buffer, _ in (self.uses if self.module is None else self.uses[:1])]

    @property
    def fits(self):
        """Whether the kernel stays inside its buffers, which may have shrunk."""
        return all(buffer.run >= self.effect.count for buffer in self.buffers[:ARGUMENTS])


class KernelSession(BufferSession):
    # ---- modules ----

    def load(self, place):
        real = self.new(place, cu.Module, VARIABLES)
        kept, fixed = (self._variable(real, name, place) for name in ("kept", "fixed"))
        kept.bytes[:], fixed.bytes[:] = 0, range(1, VARIABLE_BYTES + 1)
        kernels = {name: real[name] for name in ("swap", "peek")}
        return Module(real, place, self.oracle.open_memory(1, False), kept, fixed, kernels)

    def _variable(self, module, name, place):
        model = self.oracle.open_memory(VARIABLE_BYTES, False)
        memory = Memory(model, "device", place, of_module=True)
        return Buffer(module.global_(name), memory, 0, VARIABLE_BYTES, part=True)

    def global_(self, module):
        """Make a buffer over the writable variable. All these buffers share one memory."""
        answer = MEMORY_CLOSED if module.closed else OK
        made = self.call("global_", answer, lambda: module.real.global_("kept"))
        return made and Buffer(made, module.kept.memory, 0, VARIABLE_BYTES, part=True)

    def close_module(self, module):
        answer = self._judge_close_module(module)
        self.call("module.close()", answer, module.real.close, module.kept)
        if answer == OK:
            for memory in (module.kept.memory.model, module.fixed.memory.model, module.code):
                memory.closed = True

    def _judge_close_module(self, module):
        memories = [module.code, module.kept.memory.model, module.fixed.memory.model]
        if module.closed:
            return OK
        for memory in memories:
            if memory.views:
                return EXPORTED
            if memory.holds:
                return HELD
            if self.oracle.borrowed_bytes(memory):
                return BORROWED
        return OK

    def can_swap(self, buffer, variable):
        """Whether the result of `swap` is defined.

        If buffer and variable overlap, the bytes depend on the order of the GPU's loads and stores.
        """
        return self.software or buffer.memory is not variable.memory

    def swap(self, module, buffer, stream):
        """Exchange the bytes of a buffer and a variable, up to the end of the smaller one."""
        return self._launch_of(module, Swap, buffer, stream, (module.kept, "write"))

    def peek(self, module, buffer, stream):
        return self._launch_of(module, Peek, buffer, stream, (module.fixed, "read"))

    def _launch_of(self, module, effect, buffer, stream, variable):
        count = min(buffer.nbytes, VARIABLE_BYTES)
        options, kernel = stream_option(stream), module.kernels[effect.kind]
        call = lambda: kernel.launch(1, 1, buffer.real, count, **options)  # noqa: E731
        return self._call_of(call, module, effect(count), stream, [(buffer, "write"), variable])

    def _call_of(self, call, module, effect, stream, uses):
        """Make a call that launches a kernel of a module. The kernel uses a variable, too."""
        answer, on, buffer = MEMORY_CLOSED, None, uses[0][0]
        if not module.closed:
            answer, on = self._judge_launch(module.place, stream, uses)
        result = self.call(f"launch of {effect.kind}", answer, call, buffer)
        self.after_use(buffer)
        if answer not in (OK, WAITED):
            return None
        node = self.issue(on, uses, effect, [(module.code, 0, 1, "shared")])
        return Token(result, node, [buffer], on, capture=on.capture)

    # ---- launches ----

    def kernel(self, place):
        """The kernel of a context. The first call loads it, which calls the driver."""
        if place not in self.kernels:
            self.kernels[place] = self.new(place, cu.Module, ADD)["add"]
        return self.kernels[place]

    @cached_property
    def kernels(self):
        return {}

    def launch(self, out, a, b, stream=None, way="plain", modes=("read", "read"), more=()):
        """Launch out[i] = a[i] + b[i] for the bytes of the smallest buffer. It borrows all bytes.

        `more` are buffers that the kernel reaches through pointers, each with its declared mode.
        """
        count = min(out.run, a.run, b.run)
        declared = [(out, "write"), *zip((a, b), modes, strict=True), *more]
        uses, buffers = modelled(declared), [buffer for buffer, _ in declared]
        place = stream.place if stream else out.memory.place
        if way == "pointers":
            for buffer in buffers[:ARGUMENTS]:
                self.take_address(buffer)
        answer, on = self._judge_launch(place, stream, declared)
        if way == "prepared" and contradict(declared):  # `prepare` does not look for a stream
            answer = OVERLAP
        add = self.kernel(place)
        options = stream_option(stream)

        def call():
            operands = [DECLARED[mode](buffer.real) for buffer, mode in declared]
            args, borrows = (*operands[:3], count), operands[3:]
            if way == "pointers":
                args, borrows = (*(buffer.real.address for buffer in buffers[:3]), count), operands
            shape = {}
            if way != "pointers" and more and can_be_window(*more[-1]):
                shape = {"window": cu.access_window(more[-1][0].real), "domain": "remote"}
                borrows = borrows[:-1]  # the window keeps its buffer open as `shared` does
            if way == "prepared":
                return add.prepare(1, 1, *args, borrows=borrows, **shape).launch(**options)
            return add.launch(1, 1, *args, borrows=borrows, **shape, **options)

        effect = Add(count, 0 if way == "pointers" else ARGUMENTS)
        return self._call_add(call, effect, uses, answer, on)

    def _call_add(self, call, effect, uses, answer, on):
        """Make a call that launches `add`. Its answer and the oracle's stream are given."""
        buffers = [buffer for buffer, _ in uses]
        try:
            result = self.call("launch", answer, call, *buffers)
        except Failed:
            self.after_failure(on, uses)
            return None
        self.after_use(*buffers)
        if answer not in (OK, WAITED):
            return None
        node = self.issue(on, uses, effect)
        return Token(result, node, buffers, on, capture=on.capture)

    # ---- prepared launches ----

    def prepare(self, out, a, b, modes, more):
        """Prepare out[i] = a[i] + b[i]. This borrows nothing, but chooses addresses."""
        count = min(out.run, a.run, b.run)
        uses = [(out, "write"), *zip((a, b), modes, strict=True), *more]
        place, operands = out.memory.place, [DECLARED[mode](buffer.real) for buffer, mode in uses]
        add, args = self.kernel(place), (*operands[:ARGUMENTS], count)
        call = lambda: add.prepare(1, 1, *args, borrows=operands[ARGUMENTS:])  # noqa: E731
        answer = OVERLAP if contradict(uses) else OK
        real = self.call("prepare", answer, call)
        self.after_use(*(buffer for buffer, _ in uses))
        if answer != OK:
            return None
        return Ready(real, place, modelled(uses), Add(count))

    def prepare_swap(self, module, buffer):
        """Prepare an exchange of the bytes of a buffer and a variable."""
        effect, kernel = Swap(min(buffer.nbytes, VARIABLE_BYTES)), module.kernels["swap"]
        call = lambda: kernel.prepare(1, 1, buffer.real, effect.count)  # noqa: E731
        real = self.call("prepare", OK, call)
        self.after_use(buffer)
        return Ready(
            real, module.place, [(buffer, "write"), (module.kept, "write")], effect, module
        )

    def launch_prepared(self, ready, stream):
        options = stream_option(stream)
        call = lambda: ready.real.launch(**options)  # noqa: E731
        if ready.module is not None:
            return self._call_of(call, ready.module, ready.effect, stream, ready.uses)
        answer, on = self._judge_launch(ready.place, stream, ready.uses, prepared=True)
        return self._call_add(call, ready.effect, ready.uses, answer, on)

    def _judge_launch(self, place, stream, uses, prepared=False):
        """The answer after the waits of the policies, and the oracle's stream of the launch."""
        stream = self.current(stream, place)
        # A launch looks at all its arguments, then at one buffer after the other.
        wrong = OK if prepared else judge_arguments(uses)
        if stream is None:
            return NO_STREAM, None
        if (usable := self._usable(stream)) != OK:
            return usable, None
        if stream.place is not place:
            return OTHER_CONTEXT, None
        if wrong != OK:
            return wrong, None
        for buffer, _ in uses:  # the library checks buffers in `borrows` one by one
            if buffer.closed:
                return MEMORY_CLOSED, None
            if not self.can_use(buffer, stream.model):
                return OTHER_CONTEXT, None
        return self._judge_order(stream.model, modelled(uses)), stream.model


def can_be_window(buffer, mode):
    """Whether a launch can have a shared buffer as a window of the cache, with the same answers."""
    return mode == "shared" and not buffer.closed and buffer.memory.unused is None


def modelled(uses):
    """The uses of a launch, with the oracle's names for the modes."""
    return [(buffer, "write" if mode == "written" else mode) for buffer, mode in uses]


def judge_arguments(uses):
    """The answer of a launch to its arguments, which it checks one after the other."""
    for use in uses[:ARGUMENTS]:
        if contradict([use, *(other for other in uses if other[1] == "read")]):
            return OVERLAP
        if use[0].closed:
            return MEMORY_CLOSED
    return OK


def contradict(uses):
    """Whether a buffer that is "written" has bytes of one that is "read"."""
    written, read = (
        [buffer for buffer, its in uses if its == mode and not buffer.closed]
        for mode in ("written", "read")
    )
    return any(
        one.memory.model is other.memory.model and model.overlap(one, other)
        for one in written
        for other in read
    )
