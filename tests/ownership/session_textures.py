"""The steps of a program that use arrays: copies, and kernels with textures and surfaces."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import oracle as model
from effects import Copy, Move
from oracle import MEMORY_CLOSED, OK
from session import IS_PART, WAITED, Failed, Place, Token
from session_buffers import Buffer, Layout, Memory, name_of, stream_option
from session_kernels import KernelSession

import cudadrv as cu

# One thread goes byte after byte: `read` copies texels to a buffer, and `paint` the other way.
KERNELS = """
.version 7.5
.target sm_75
.address_size 64
.visible .entry read(.param .u64 texture, .param .u64 out, .param .u32 width, .param .u32 count)
{
    .reg .pred %done; .reg .u32 %i, %x, %y, %width, %count, %v, %a, %b, %c;
    .reg .u64 %texture, %out;
    ld.param.u64 %texture, [texture]; ld.param.u64 %out, [out];
    ld.param.u32 %width, [width]; ld.param.u32 %count, [count]; mov.u32 %i, 0;
LOOP:
    setp.eq.u32 %done, %i, %count;
    @%done ret;
    rem.u32 %x, %i, %width; div.u32 %y, %i, %width;
    tex.2d.v4.u32.s32 {%v, %a, %b, %c}, [%texture, {%x, %y}];
    st.global.u8 [%out], %v;
    add.u64 %out, %out, 1; add.u32 %i, %i, 1;
    bra LOOP;
}
.visible .entry paint(.param .u64 surface, .param .u64 given, .param .u32 width, .param .u32 count)
{
    .reg .pred %done; .reg .u32 %i, %x, %y, %width, %count; .reg .u16 %v;
    .reg .u64 %surface, %given;
    ld.param.u64 %surface, [surface]; ld.param.u64 %given, [given];
    ld.param.u32 %width, [width]; ld.param.u32 %count, [count]; mov.u32 %i, 0;
LOOP:
    setp.eq.u32 %done, %i, %count;
    @%done ret;
    rem.u32 %x, %i, %width; div.u32 %y, %i, %width;
    ld.global.u8 %v, [%given];
    sust.b.2d.b8.trap [%surface, {%x, %y}], %v;
    add.u64 %given, %given, 1; add.u32 %i, %i, 1;
    bra LOOP;
}
"""


@dataclass(eq=False)
class Handle:
    """A texture or a surface over an array, and the driver's object, which launches borrow, too."""

    real: Any
    array: Buffer
    object: model.Memory
    place: Place
    mode: str  # how its kernel uses the array

    @property
    def closed(self):
        return self.object.closed


class TextureSession(KernelSession):
    def new_array(self, rows, width, place):
        """Make an array of bytes."""
        make = lambda: self.new(place, cu.Array, (rows, width), "u1", surface=True)  # noqa: E731
        made = self.call("Array", OK, make)
        memory = Memory(self.oracle.open_memory(rows * width, False), "device", place)
        memory.shape = rows, width
        return Buffer(made, memory, 0, rows * width, part=False)

    def part_of_array(self, array, key):
        """Make a part by an index. It borrows the bytes of its texels in C order."""
        answer = MEMORY_CLOSED if array.closed else OK
        made = self.call("part of an array", answer, lambda: array.real[key], array)
        if made is None:
            return None
        rows, width = array.memory.shape
        places = np.arange(rows * width).reshape(rows, width)[key].reshape(-1)
        start = int(places[0])
        part = Buffer(made, array.memory, start, len(places), True, array.policy)
        if int(places[-1]) - start + 1 != len(places):
            part.layout, array.memory.model.boxed = Layout(places), True
        return part

    def copy_array(self, array, other, stream, blocking, inward, subject):
        """Copy between a part of an array and a buffer of as many bytes, or another array."""
        target, source = (array, other) if inward else (other, array)
        into = subject is target
        method = getattr(subject.real, name_of("copy_from" if into else "copy_to", blocking))
        given = source if into else target
        uses = [(target, "write"), (source, "read")]
        call = lambda: method(given.real, **stream_option(stream))  # noqa: E731
        effect = Copy(np.dtype("u1"))
        effect.kind = "copy of an array"
        _, token = self._operate(method.__name__, stream, uses, blocking, call, effect)
        return token

    def copy_into_array(self, array, content, stream, blocking):
        """Copy from a NumPy array. The program changes that one after the call."""
        method = getattr(array.real, name_of("copy_from", blocking))
        items = content.reshape(array.real.shape)
        call = lambda: method(items, **stream_option(stream))  # noqa: E731
        uses = [(array, "write")]
        done, token = self._operate(method.__name__, stream, uses, blocking, call)
        if done:
            array.bytes[:] = content
        content[:] = 0
        return token

    def copy_out_of_array(self, array, stream):
        found = np.zeros(array.nbytes, "u1")
        items = found.reshape(array.real.shape)
        call = lambda: array.real.copy_to(items, **stream_option(stream))  # noqa: E731
        done, _ = self._operate("copy_to", stream, [(array, "read")], True, call)
        if done and self.waited:
            self.compare("copy_to of an array", found, array.bytes)
        elif done:
            self.left_alone.append(found)

    def close_array(self, array):
        answer = OK
        if not array.closed:
            answer = IS_PART if array.part else self.oracle.close_memory(array.memory.model)
        self.call("close of an array", answer, array.real.close, array)

    # ---- textures and surfaces ----

    def new_handle(self, array, mode):
        """Make a texture, which reads the array, or a surface, which writes it."""
        make = {"read": cu.Texture, "write": cu.Surface}[mode]
        answer = MEMORY_CLOSED if array.closed else OK
        made = self.call(make.__name__, answer, lambda: make(array.real), array)
        if made is None:
            return None
        return Handle(made, array, self.oracle.open_memory(1, False), array.memory.place, mode)

    def launch_with_handle(self, handle, buffer, stream):
        """Copy bytes between an array and a buffer by a kernel, which borrows all of both."""
        _, width = handle.array.memory.shape
        count = min(buffer.run, handle.array.nbytes)
        kernel = self.kernel_of(handle)
        modes = ("read", "write") if handle.mode == "read" else ("write", "read")
        uses = list(zip((handle.array, buffer), modes, strict=True))
        argument = buffer.real if modes[1] == "write" else cu.read(buffer.real)
        answer, on = self._judge_launch(handle.place, stream, uses)
        if handle.closed and answer in (OK, WAITED):
            raise AssertionError("the caller passes open handles")
        options = stream_option(stream)
        call = lambda: kernel.launch(  # noqa: E731
            1, 1, handle.real, argument, width, count, **options
        )
        try:
            result = self.call("launch", answer, call, handle.array, buffer)
        except Failed:
            self.after_failure(on, uses)
            return None
        self.after_use(buffer)
        if answer not in (OK, WAITED):
            return None
        effect = Move(count, inward=handle.mode == "write")
        node = self.issue(on, uses, effect, [(handle.object, 0, 1, "shared")])
        return Token(result, node, [handle.array, buffer], on, capture=on.capture)

    def kernel_of(self, handle):
        key = handle.place, handle.mode
        if key not in self.kernels:
            name = "read" if handle.mode == "read" else "paint"
            self.kernels[key] = self.new(handle.place, cu.Module, KERNELS)[name]
        return self.kernels[key]

    def close_handle(self, handle):
        answer = OK if handle.closed else self.oracle.close_memory(handle.object)
        self.call("close of a handle", answer, handle.real.close)

    def captured(self, stream, place):
        """Whether a call with this stream argument would be captured."""
        current = self.current(stream, place)
        return current is not None and current.model.in_capture
