"""The objects that random programs choose from, and how often they choose unusable ones."""

import random

import numpy as np

CUTS = (0, 2, 4, 8, 12, 16)
MORE_CUTS = (24, 32, 40)
ODD = (1, 3, 7, 13)
NBYTES = CUTS[-1]
SIZES = (NBYTES, NBYTES, NBYTES, 8, 24, 40)
# Enough items of 8 bytes for several slices that have gaps.
SIZES_OF_BOXES = (48, 96, 144)
DTYPES = tuple(map(np.dtype, ("u1", "u2", "u4", "u8", "i4")))
WIDE_DTYPES = (np.dtype("u8"),)  # the device fills boxes of such items by copies
# Dtypes of other kinds, and dtypes whose sizes the device cannot fill.
MORE_DTYPES = tuple(
    map(
        np.dtype,
        ("f4", "f8", ">u4", "M8[s]", "c8", "u1,u2", "u2,u2", "V4", "c16", "u4,u4,u4", "S3", "V6"),
    )
)


def divides(buffer, dtype):
    """Whether a buffer can be viewed as items of a dtype: its size and its offset must fit.

    The address of the memory itself is aligned enough for all dtypes.
    """
    return buffer.nbytes % dtype.itemsize == 0 and buffer.start % dtype.alignment == 0


def is_open(event):
    return event.model.open


class Choices:
    """The objects of a program, and random choices among them."""

    def __init__(self, seed):
        self.seed, self.random = seed, random.Random(seed)
        self.streams, self.events, self.tokens = [], [], []
        self.buffers, self.views, self.loans, self.raws = [], [], [], []
        self.holders, self.theirs, self.constants, self.modules = [], [], [], []
        self.travellers = []  # arrays of other libraries that no buffer of the program covers
        self.prepared, self.results = [], []
        self.several = False  # whether the program has several contexts

    def chance(self, probability):
        return self.random.random() < probability

    def pick(self, things):
        """Choose a random thing.

        Recent ones are more frequent, because they are more often in use.
        """
        at = min(self.random.randrange(len(things)), self.random.randrange(len(things)))
        return things[-1 - at]

    def pick_usable(self, things, usable):
        """Choose a random thing, seldom one that is no longer usable.

        Returns None if there are none.
        """
        wanted = not self.chance(0.09)
        found = [thing for thing in things if bool(usable(thing)) == wanted]
        return self.pick(found or things) if things else None

    def pick_buffer(self, on_host=False, place=None):
        found = [
            buffer
            for buffer in self.buffers
            if (buffer.on_host or not on_host) and (place is None or buffer.goes_to(place))
        ]
        return self.pick_usable(found, lambda buffer: not buffer.closed)

    def pick_stream(self, place=None):
        """Choose a stream of a context.

        In a few cases, choose a usable stream of any context. Returns None if there is none.
        """
        if place is not None and self.several:
            there = [stream for stream in self.streams if stream.place is place]
            if there and not self.chance(0.03):
                return self.pick_usable(there, self.is_usable)
            usable = [stream for stream in self.streams if self.is_usable(stream)]
            return self.pick(usable) if usable else None
        return self.pick_usable(self.streams, self.is_usable)

    def is_usable(self, stream):
        return stream.model.open and stream.model.thread in (None, self.session.here)

    def pick_event(self, place=None):
        if place is not None and self.several and not self.chance(0.05):
            there = [event for event in self.events if event.place is place]
            return self.pick_usable(there, is_open)
        return self.pick_usable(self.events, is_open)

    def at(self, thing, things):
        return None if thing is None else things.index(thing)

    def bytes(self, size):
        return np.frombuffer(self.random.randbytes(size), "u1").copy()
