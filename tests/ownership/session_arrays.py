"""The steps of a program that launch kernels with NumPy arrays, and copy results back to them."""

import contextlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from effects import UNKNOWN, Add
from oracle import OK
from session import WAITED, Token
from session_buffers import Buffer, stream_option
from session_kernels import MODES, KernelSession

import cudadrv as cu

WAYS = {"in": cu.In, "in and out": cu.InOut, "out": cu.Out}


@dataclass(eq=False)
class Array:
    """An array as an argument of a launch. `bytes` are the bytes that the array must have after the
    launch.
    """

    items: Any
    way: str
    bytes: Any = None

    def __post_init__(self):
        self.before = self.items.copy()
        self.bytes = self.items.astype("i2")
        if self.way == "out":
            self.bytes[:] = UNKNOWN

    @property
    def nbytes(self):
        return self.items.nbytes

    @property
    def real(self):
        return WAYS[self.way](self.items)


@dataclass(eq=False)
class Results:
    """The token that copies the results of a launch back to arrays."""

    token: Token
    arrays: list


class ArraySession(KernelSession):
    launched = None  # the return value of a launch that should have been refused

    def launch_with_arrays(self, operands, stream):
        """Launch out[i] = a[i] + b[i]. Each operand is a buffer or an array.

        Returns the token of the launch, and the results if there are any.
        """
        modes, size = ("write", "read", "read"), min(each.nbytes for each in operands)
        both = [(each, mode) for each, mode in zip(operands, modes, strict=True)]
        uses = [(each, mode) for each, mode in both if isinstance(each, Buffer)]
        arrays = [each for each in operands if isinstance(each, Array)]
        buffers = [buffer for buffer, _ in uses]
        answer, on = self._judge_launch(stream.place, stream, uses)
        add, options = self.kernel(stream.place), stream_option(stream)
        args = [each.real if each in arrays else MODES[mode](each.real) for each, mode in both]

        def call():
            self.launched = add.launch(1, 1, *args, size, **options)
            return self.launched

        result = self.call("launch with arrays", answer, call, *buffers)
        self.launched = None
        if answer not in (OK, WAITED):
            for array in arrays:
                self._compare_array(array, array.before, True)
        self.after_use(*buffers)
        if answer not in (OK, WAITED):
            return None, None
        node = self.oracle.issue(on, [buffer.use(mode) for buffer, mode in uses], next(self.sites))
        Add(size)(*operands)
        for array in arrays:
            if array.way == "in":  # the array's items were copied
                array.items[:] = 0
        if isinstance(result, cu.Token):
            return Token(result, node, buffers, on), None
        copies = self.oracle.issue(on, [], next(self.sites))
        results = Results(
            Token(result, copies, buffers, on), [each for each in arrays if each.way != "in"]
        )
        self._compare_results(results, False)
        return Token(result.token, node, buffers, on), results

    def bring_home(self, results, verb):
        """Wait for results, or ask for them. Returns whether the arrays must have them now."""
        answer = self.judge_token(results.token)
        getattr(self, f"{verb}_token")(results.token)
        home = answer == OK and self.is_known(results.token)
        self._compare_results(results, home)
        return home

    def drop_results(self, every):
        """Copy results back, whatever has happened: otherwise the library warns."""
        for token in (self.launched, *(results.token.real for results in every)):
            with contextlib.suppress(Exception):
                token.wait()
        self.launched = None

    def _compare_results(self, results, home):
        for array in results.arrays:
            self._compare_array(array, array.bytes if home else array.before, home)

    def _compare_array(self, array, expected, writeable):
        self.compare("an array of a launch", array.items, np.asarray(expected, "i2"))
        self.agree("whether an array is writable", array.items.flags.writeable, writeable)
