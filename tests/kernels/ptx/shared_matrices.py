"""Matrices in shared memory, as the descriptors of wgmma describe them.

A matrix has an outer dimension (M or N) and an inner one (K), of 32 bytes. It consists of patterns
of 8 rows; a row has 1, 2, 4 or 8 chunks of 16 bytes. In a matrix that is not transposed, a row of
the pattern has items along K, and in a transposed one, items along M or N.
"""

from typing import NamedTuple

import numpy as np

from .fragments import BITS, encode

CHUNK = 16
CODES = {0: 0, 128: 1, 64: 2, 32: 3}  # how a descriptor says which swizzling there is


class Layout(NamedTuple):
    swizzle: int = 0  # bytes in a row of the pattern; 0: 16 bytes, and no swizzling
    transposed: bool = False
    leading: int = 128
    stride: int = 256
    part: int = 0  # which 32 bytes of the rows of the pattern the matrix has
    base: int = 0  # the pattern begins this number of 128 bytes behind a multiple of 1024

    def descriptor(self) -> int:
        """The descriptor of a matrix at address 0."""
        bits = self.leading >> 4 << 16 | self.stride >> 4 << 32
        start = self.base * 128 + self.part * 32
        return start >> 4 | bits | self.base << 49 | CODES[self.swizzle] << 62

    def offsets(self, outer: np.ndarray, byte: np.ndarray) -> np.ndarray:
        """The offsets of chunks, by their positions in the matrix.

        If the matrix is transposed, `byte` counts bytes along M or N, otherwise along K. `outer`
        is the position in the other direction.
        """
        group, row = outer // 8, outer % 8
        chunk = byte // CHUNK
        if not self.swizzle:
            along, across = self.leading, self.stride
            if self.transposed:
                along, across = self.stride, self.leading
            return group * across + row * CHUNK + chunk * along
        wide = self.swizzle // CHUNK
        chunk = chunk + 2 * self.part
        swizzled = (chunk % wide) ^ (row * wide // 8)
        return (
            self.base * 128
            + group * self.stride
            + chunk // wide * self.leading
            + row * self.swizzle
            + swizzled * CHUNK
        )

    def place(self, matrix: np.ndarray, item: str, memory: np.ndarray) -> None:
        """Write a matrix with the axes (outer, inner) into the bytes of `memory`."""
        bits = encode(matrix, item)
        if self.transposed:
            bits = bits.T
        if item == "b1":
            rows = np.packbits(bits.astype("u1"), axis=1, bitorder="little")
        else:
            rows = np.ascontiguousarray(bits.astype(f"u{BITS[item] // 8}")).view("u1")
        outer, chunk = np.ix_(np.arange(rows.shape[0]), np.arange(rows.shape[1] // CHUNK))
        begins = self.offsets(outer, chunk * CHUNK)
        assert len(np.unique(begins)) == begins.size  # no two chunks at the same place
        memory[begins[:, :, None] + np.arange(CHUNK)] = rows.reshape(*begins.shape, CHUNK)
