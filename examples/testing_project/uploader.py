"""Copies arrays of any size to the device through two page-locked halves, used in turn."""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

import cudadrv as cu


class Uploader:
    """Sends arrays in chunks. The caller's array is free again when `upload` returns."""

    def __init__(self, chunk: int, dtype: npt.DTypeLike = "f4") -> None:
        self.chunk = chunk
        self.stream = cu.Stream()
        self.halves = [cu.LockedBuffer(chunk, dtype, name=f"half {turn}") for turn in range(2)]
        self.sent: list[cu.Token | None] = [None, None]

    def upload(self, target: cu.DeviceBuffer, array: npt.NDArray[np.generic]) -> list[cu.Token]:
        """Queue the copies of an array. Returns a token for each chunk."""
        tokens = []
        for turn, start in enumerate(range(0, array.size, self.chunk)):
            items = array[start : start + self.chunk]
            half = self.halves[turn % 2]
            self.make_free(turn % 2)
            half[: items.size] = items
            part = target[start : start + items.size]
            self.sent[turn % 2] = part.copy_from_async(half[: items.size], self.stream)
            tokens.append(self.sent[turn % 2])
        return tokens

    def make_free(self, turn: int) -> None:
        """Wait until the device has read what is in this half."""
        if (token := self.sent[turn]) is not None:
            token.wait()

    def close(self) -> None:
        """Wait for everything, and give the memory back."""
        self.stream.synchronize()
        for half in self.halves:
            half.close()
        self.stream.close()


class CarelessUploader(Uploader):
    """An Uploader with a forgotten wait and without checks, like a program that was written in C.

    With its default policy, cudadrv would refuse the missing wait.
    """

    def upload(self, target: cu.DeviceBuffer, array: npt.NDArray[np.generic]) -> list[cu.Token]:
        with cu.ordering("unchecked"):
            return super().upload(target, array)

    def make_free(self, turn: int) -> None:
        pass


def arrived(tokens: Iterable[cu.Token]) -> int:
    """Wait for all chunks. Returns how many have arrived on the device."""
    return sum(token.wait() is None for token in tokens)


def arrived_careless(tokens: Iterable[cu.Token]) -> int:
    """Like `arrived`, without a wait: on a fast GPU, all copies happen to be complete."""
    return sum(token.done for token in tokens)
