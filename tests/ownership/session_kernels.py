"""The steps of a program that launch a kernel: several buffers, which may be the same memory."""

from functools import cached_property

from oracle import MEMORY_CLOSED, OK
from session import NO_STREAM, OTHER_CONTEXT, WAITED, Token
from session_buffers import UNKNOWN, BufferSession, stream_option

import cudadrv as cu

# How a kernel is told what it does with a buffer.
MODES = {"read": cu.read, "write": lambda buffer: buffer, "shared": cu.shared}
WAYS_TO_LAUNCH = ("plain", "plain", "prepared", "pointers")
# One thread adds byte after byte, so that the result is clear where the buffers overlap, too.
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


class KernelSession(BufferSession):
    def kernel(self, place):
        """The kernel of a context. Loading it calls the driver."""
        if place not in self.kernels:
            self.kernels[place] = self.new(place, cu.Module, ADD)["add"]
        return self.kernels[place]

    @cached_property
    def kernels(self):
        return {}

    def launch(self, out, a, b, stream=None, way="plain", modes=("read", "read"), more=()):
        """out[i] = a[i] + b[i], for as many bytes as all of them have; all of each is borrowed.

        `more` are buffers and modes of which the kernel, as declared, reaches some by pointers.
        """
        count = min(out.nbytes, a.nbytes, b.nbytes)
        uses = [(out, "write"), *zip((a, b), modes, strict=True), *more]
        buffers = [buffer for buffer, _ in uses]
        place = stream.place if stream else out.memory.place
        answer, on = self._judge_launch(place, stream, uses)
        add = self.kernel(place)
        options = stream_option(stream)

        def call():
            operands = [MODES[mode](buffer.real) for buffer, mode in uses]
            args, borrows = (*operands[:3], count), operands[3:]
            if way == "pointers":
                args, borrows = (*(buffer.real.address for buffer in buffers[:3]), count), operands
            if way == "prepared":
                return add.prepare(1, 1, *args, borrows=borrows).launch(**options)
            return add.launch(1, 1, *args, borrows=borrows, **options)

        result = self.call("launch", answer, call, *buffers)
        if answer not in (OK, WAITED):
            return None
        accesses = [buffer.use(mode) for buffer, mode in uses]
        node = self.oracle.issue(on, accesses, next(self.sites))
        for i in range(count):
            x, y = a.bytes[i], b.bytes[i]
            out.bytes[i] = UNKNOWN if UNKNOWN in (x, y) else (x + y) % 256
        return Token(result, node, buffers, on)

    def _judge_launch(self, place, stream, uses):
        """The answer, and the oracle's stream. What the policies wait for has been waited for."""
        stream = self.current(stream, place)
        closed = any(buffer.closed for buffer, _ in uses)
        if stream is None:
            return NO_STREAM, None
        if (usable := self._usable(stream)) != OK:
            return usable, None
        if closed:
            return MEMORY_CLOSED, None
        if not all(buffer.fits(stream.model) for buffer, _ in uses):
            return OTHER_CONTEXT, None
        return self._judge_order(stream.model, uses), stream.model
