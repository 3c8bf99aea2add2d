"""Tensors in global memory, tensor maps, and the boxes that copies of tensors move."""

import ctypes
from dataclasses import dataclass
from itertools import product

import numpy as np

CHUNK = 16
TYPES = {"u1": 0, "u2": 1, "u4": 2, "i4": 3, "u8": 4, "i8": 5, "f2": 6, "f4": 7, "f8": 8}
SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}  # the value of CUtensorMapSwizzle by the bytes of a row


@dataclass
class Tensor:
    """A tensor whose dimensions are listed from the innermost one, as in a tensor map."""

    sizes: tuple[int, ...]
    box: tuple[int, ...]
    dtype: str = "f2"
    swizzle: int = 0
    steps: tuple[int, ...] = ()
    padding: int = 0  # bytes behind each row of the tensor

    def __post_init__(self):
        self.steps = self.steps or (1,) * len(self.sizes)
        self.width = np.dtype(self.dtype).itemsize
        self.strides = []
        stride = -(-self.sizes[0] * self.width // CHUNK) * CHUNK + self.padding
        for size in (*self.sizes[1:], 1):
            self.strides.append(stride)
            stride *= size
        self.bytes = self.strides[-1]
        self.counts = [self.box[0]]
        self.counts += [
            -(-box // step) for box, step in zip(self.box[1:], self.steps[1:], strict=True)
        ]
        self.row_bytes = self.box[0] * self.width
        self.pitch = self.swizzle or self.row_bytes
        self.rows = int(np.prod(self.counts[1:], dtype=int))

    def encode(self, client, place: int, **changes) -> tuple[int, bytes]:
        """The status of cuTensorMapEncodeTiled, and the map."""
        memory = ctypes.create_string_buffer(256)
        target = -(-ctypes.addressof(memory) // 128) * 128
        values = {
            "target": target,
            "dtype": TYPES[self.dtype],
            "rank": len(self.sizes),
            "address": place,
            "sizes": self.sizes,
            "strides": self.strides[:-1],
            "box": self.box,
            "steps": self.steps,
            "interleave": 0,
            "swizzle": SWIZZLES[self.swizzle],
            "promotion": 0,
            "fill": 0,
        }
        values |= changes

        def array(kind, items):
            return None if items is None else (kind * 5)(*items)

        status = client.call(
            "cuTensorMapEncodeTiled",
            ctypes.c_void_p(values["target"]),
            values["dtype"],
            values["rank"],
            ctypes.c_void_p(values["address"]),
            array(ctypes.c_uint64, values["sizes"]),
            array(ctypes.c_uint64, values["strides"]),
            array(ctypes.c_uint32, values["box"]),
            array(ctypes.c_uint32, values["steps"]),
            *(values[name] for name in ("interleave", "swizzle", "promotion", "fill")),
        )
        return status, ctypes.string_at(target, 128)

    def places(self, corner, chunks=False):
        """For each element of the box: its bytes in shared and in global memory.

        Elements outside of the tensor have no place in global memory: None. With `chunks`, the rest
        of a chunk in which a row of the tensor ends counts as inside.
        """
        sizes = list(self.sizes)
        if chunks:
            sizes[0] = -(-sizes[0] * self.width // CHUNK) * CHUNK // self.width
        rows = product(*(range(count) for count in reversed(self.counts[1:])))
        for row, position in enumerate(rows):
            at = [
                first + step * index
                for first, step, index in zip(
                    corner[1:], self.steps[1:], reversed(position), strict=True
                )
            ]
            for column in range(self.box[0]):
                byte = column * self.width
                chunk = byte // CHUNK
                if self.swizzle:
                    chunk ^= row % 8 * self.swizzle // 128
                shared = row * self.pitch + chunk * CHUNK + byte % CHUNK
                where = [corner[0] + column, *at]
                inside = all(0 <= x < size for x, size in zip(where, sizes, strict=True))
                place = where[0] * self.width
                place += sum(x * stride for x, stride in zip(where[1:], self.strides, strict=False))
                yield shared, place if inside else None
