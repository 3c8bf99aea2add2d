"""The steps of random programs that use arrays, textures and surfaces."""

import numpy as np
from library_boxes import BoxChoices
from library_choices import divides

WEIGHTS = {
    "make_array": 3,
    "cut_array": 6,
    "copy_array": 20,
    "copy_array_on_host": 8,
    "make_handle": 5,
    "launch_with_handle": 16,
    "close_handle": 4,
    "close_array": 4,
    "forget_array": 2,
    "policy_of_array": 1,
}
OF_TEXTURES = tuple(WEIGHTS)
# For each kind of step, the driver functions that may fail.
FAILURES = {
    "copy_array": ("cuMemcpy3DAsync_v2",),
    "copy_array_on_host": ("cuMemcpy3DAsync_v2", "cuEventRecord"),
    "make_array": ("cuArray3DCreate_v2",),
    "make_handle": ("cuTexObjectCreate", "cuSurfObjectCreate"),
    "launch_with_handle": ("cuLaunchKernelEx",),
}
MOST_ARRAYS = 6
BYTES = np.dtype("u1")


class TextureChoices(BoxChoices):
    """The arrays of a program, whole or parts, and its textures and surfaces."""

    def __init__(self, seed):
        super().__init__(seed)
        self.arrays, self.handles = [], []

    def make_array(self):
        if len(self.arrays) < MOST_ARRAYS:
            rows, width = self.random.choice(((2, 8), (4, 4), (1, 16), (3, 8)))
            self.note("array", len(self.arrays), rows, width)
            self.arrays.append(self.session.new_array(rows, width, self.session.places[0]))

    def pick_array(self):
        arrays = self.arrays
        if self.session.failing:  # as in `takes_boxes`
            arrays = [array for array in arrays if array.layout is None]
        return self.pick_usable(arrays, lambda array: not array.closed)

    def cut_array(self):
        whole = self.pick_usable(
            [each for each in self.arrays if not each.part], lambda array: not array.closed
        )
        if whole is not None and len(self.arrays) < 2 * MOST_ARRAYS:
            key = self.choose_key(whole.memory.shape)
            self.note("part of array", self.arrays.index(whole), key)
            part = self.session.part_of_array(whole, key)
            self.arrays += [part] if part else []

    def free_stream(self, blocking):
        """Choose a stream argument. Returns whether a call with it is not captured, and it."""
        place = self.session.places[0]
        stream = self.maybe_stream(blocking, place)
        return not self.session.captured(stream, place), stream

    def copy_array(self):
        array = self.pick_array()
        if array is None:
            return
        blocking = self.chance(0.3)
        free, stream = self.free_stream(blocking)
        other = self.other_side(array)
        if other is None or not free:
            return
        inward = self.chance(0.5)
        subject = other if other in self.arrays and self.chance(0.5) else array
        told = self.arrays.index(array), self.at(stream, self.streams), "inward" * inward
        self.note("copy array", *told, "and wait" * blocking)
        self.keep(self.session.copy_array(array, other, stream, blocking, inward, subject))

    def other_side(self, array):
        """Choose a part of a buffer, or another array, for a copy from or to an array."""
        same = [each for each in self.arrays if each.real.shape == array.real.shape]
        if self.chance(0.3):
            other = self.pick(same)
            self.note("  other array", self.arrays.index(other))
            return other
        buffer = self.pick_buffer()
        if buffer.closed or not divides(buffer, BYTES) or buffer.nbytes < array.nbytes:
            return None
        self.note("  buffer", self.buffers.index(buffer))
        buffer = self.session.view_as(buffer, BYTES)
        if len(buffer.real.shape) > 1:
            buffer = self.session.shape_as(buffer, (buffer.nbytes,))
        start = self.random.randint(0, buffer.nbytes - array.nbytes)
        return self.session.part(buffer, start, start + array.nbytes)

    def copy_array_on_host(self):
        array = self.pick_array()
        if array is None:
            return
        write, blocking = self.chance(0.5), self.chance(0.4)
        free, stream = self.free_stream(blocking or not write)
        if not free:
            return
        told = self.arrays.index(array), self.at(stream, self.streams)
        self.note("copy into array" if write else "copy out of array", *told)
        if write:
            content = self.bytes(array.nbytes)
            self.keep(self.session.copy_into_array(array, content, stream, blocking))
        else:
            self.session.copy_out_of_array(array, stream)

    def make_handle(self):
        wholes = [array for array in self.arrays if not array.part]
        array = self.pick_usable(wholes, lambda array: not array.closed)
        if array is not None and len(self.handles) < MOST_ARRAYS:
            mode = self.random.choice(("read", "read", "write"))
            self.note("handle", len(self.handles), mode, self.arrays.index(array))
            handle = self.session.new_handle(array, mode)
            self.handles += [handle] if handle else []

    def launch_with_handle(self):
        handles = [handle for handle in self.handles if not handle.closed]
        free, stream = self.free_stream(False)
        buffer = self.pick_buffer()
        if handles and free and buffer.layout is None:
            handle = self.pick(handles)
            told = self.handles.index(handle), self.buffers.index(buffer)
            self.note("launch with handle", *told, self.at(stream, self.streams))
            self.keep(self.session.launch_with_handle(handle, buffer, stream))

    def close_handle(self):
        if self.handles:
            handle = self.pick(self.handles)
            self.note("close handle", self.handles.index(handle))
            self.session.close_handle(handle)
            if handle.closed and self.chance(0.5):
                self.handles.remove(handle)

    def close_array(self):
        array = self.pick_array()
        if array is not None:
            self.note("close array", self.arrays.index(array))
            self.session.close_array(array)

    def forget_array(self):
        """Drop all references to an array. Its memory stays until its work is complete."""
        if self.arrays:
            memory = self.pick(self.arrays).memory
            gone = [at for at, array in enumerate(self.arrays) if array.memory is memory]
            self.note("forget arrays", *gone, "their textures, and their tokens")
            self.handles = [each for each in self.handles if each.array.memory is not memory]
            self.arrays = [array for array in self.arrays if array.memory is not memory]
            self.tokens = [
                token
                for token in self.tokens
                if not any(buffer.memory is memory for buffer in token.buffers)
            ]

    def policy_of_array(self):
        if self.arrays:
            policy = self.random.choice((*self.policies, None))
            array = self.pick(self.arrays)
            self.note("policy of array", self.arrays.index(array), policy)
            self.session.set_policy(array, policy)

    def end_arrays(self):
        """Compare the bytes of all arrays, when all work is complete."""
        for array in self.arrays:
            if not array.closed:
                self.session.copy_out_of_array(array, None)
