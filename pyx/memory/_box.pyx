"""Boxes: parts of buffers with two or three dimensions, whose rows have gaps between them.

Computes which bytes an index names, and how boxes are described to the engine and to the driver.
Knows neither buffers nor memory: an array is given by its sizes, and its steps (NumPy's strides).
"""

import operator

import numpy as np

from libc.string cimport memset

from cudadrv._engine cimport own_box

cdef tuple BOOLEANS = (bool, np.bool_)


cdef tuple steps_of(tuple sizes, Py_ssize_t itemsize):
    """Return the steps of an array whose items are contiguous, in C order."""
    steps = []
    step = itemsize
    for size in reversed(sizes):
        steps.append(step)
        step *= max(size, 1)
    return tuple(reversed(steps))


# ---- indices ----

cdef Part part_at(tuple sizes, tuple steps, object key):
    """Return what ``array[key]`` is in NumPy: its sizes and steps, and where it begins.

    Raises IndexError for an integer that is out of range or for too many indices, ValueError for a
    step other than 1, and TypeError for other keys.
    """
    cdef Part part = Part.__new__(Part)
    kept_sizes, kept_steps, ranges = [], [], []
    part.offset = 0
    for axis, (size, step, each) in enumerate(zip(sizes, steps, _per_axis(key, len(sizes)))):
        if isinstance(each, slice):
            start, stop, by = each.indices(size)
            if by != 1:
                raise ValueError(f"the step of a slice must be 1, not {by}")
            stop = max(start, stop)
            kept_sizes.append(stop - start)
            kept_steps.append(step)
            ranges.append((start, stop))
        else:
            start = _index(each, size, axis)
            ranges.append(start)
        part.offset += start * step
    part.sizes, part.steps, part.ranges = tuple(kept_sizes), tuple(kept_steps), tuple(ranges)
    return part


cdef bint is_item(object key, Py_ssize_t dimensions) except -1:
    """Whether an index names a single item: an integer for each dimension.

    Raises TypeError for a key of another kind.
    """
    if type(key) is int:
        return dimensions == 1
    for each in _per_axis(key, dimensions):
        if isinstance(each, slice):
            return False
        _integer(each)
    return True


cdef list _per_axis(object key, Py_ssize_t dimensions):
    """Return an index for each dimension: a slice or an integer."""
    keys = list(key) if isinstance(key, tuple) else [key]
    cdef list places = []
    for place, each in enumerate(keys):
        if each is Ellipsis:
            places.append(place)
    if len(places) > 1:
        raise IndexError("an index has at most one ...")
    missing = dimensions - len(keys) + len(places)
    if missing < 0:
        hint = "; give it its shape first: buffer.reshape(shape)" if dimensions == 1 else ""
        raise IndexError(f"too many indices: {len(keys) - len(places)} for {dimensions}"
                         f" dimension{'s' * (dimensions > 1)}{hint}")
    at = places[0] if places else len(keys)
    return keys[:at] + [slice(None)] * missing + keys[at + 1:]


cdef object _integer(object key):
    if isinstance(key, BOOLEANS):   # NumPy takes them for masks
        raise TypeError(f"indices are integers, slices and ..., not {key}")
    try:
        return operator.index(key)
    except TypeError:
        raise TypeError(f"indices are integers, slices and ..., not {type(key).__name__}; to choose"
                        " items by a list or a mask, copy them to an array: buffer.to_numpy()[...]"
                        ) from None


cdef Py_ssize_t _index(object key, Py_ssize_t size, Py_ssize_t axis) except -1:
    """Return an integer index, from 0 on."""
    index = _integer(key)
    if not -size <= index < size:
        raise IndexError(f"index {index} of dimension {axis}, which has {size}")
    return index % size


cdef tuple ranges_within(tuple outer, tuple inner):
    """Return the ranges of a part of a part, relative to the whole array."""
    found = []
    at = 0
    for each in outer:
        if isinstance(each, tuple):
            one = inner[at]
            at += 1
            each = (each[0] + one[0], each[0] + one[1]) if isinstance(one, tuple) else each[0] + one
        found.append(each)
    return tuple(found)


cdef tuple whole_ranges(tuple sizes):
    """Return the ranges of a whole array."""
    ranges = []
    for size in sizes:
        ranges.append((0, size))
    return tuple(ranges)


cdef str told(tuple ranges):
    """Return ranges as the user writes them: ``[0:480, 3]``."""
    texts = []
    for each in ranges:
        texts.append(f"{each[0]}:{each[1]}" if isinstance(each, tuple) else f"{each}")
    return f"[{', '.join(texts)}]"


# ---- bytes ----

cdef list _joined(tuple sizes, tuple steps, tuple other, Py_ssize_t itemsize):
    """Return the fewest dimensions by which both arrays can be described, the innermost first.

    Each is a list of a size and the steps of both arrays. Dimensions of size 1 are left out. The
    first dimension has the bytes of a row.
    """
    dimensions = [[itemsize, 1, 1]]
    for size, step, step2 in zip(reversed(sizes), reversed(steps), reversed(other)):
        last = dimensions[-1]
        if size == 1:
            continue
        if step == last[0] * last[1] and step2 == last[0] * last[2]:
            last[0] *= size
        else:
            dimensions.append([size, step, step2])
    return dimensions


cdef int lay_out(tuple sizes, tuple steps, Py_ssize_t itemsize, own_box *box) except -1:
    """Set the box of an array with items. Returns whether its items have gaps between them.

    Raises ValueError if the array has more than three dimensions that cannot be joined, or if its
    rows or slices overlap.
    """
    cdef own_box same
    lay_out_both(sizes, steps, steps, itemsize, box, &same)
    return box.rows > 1     # rows without gaps are joined to one


cdef int lay_out_both(
    tuple sizes, tuple steps, tuple other, Py_ssize_t itemsize, own_box *box, own_box *box2
) except -1:
    """Set the boxes of two arrays of the same sizes, such that both have equal rows and slices."""
    dimensions = _joined(sizes, steps, other, itemsize)
    if len(dimensions) > 3:
        raise ValueError(f"an array of shape {sizes} and strides {steps} has {len(dimensions)}"
                         " dimensions that cannot be joined, and a copy has at most 3: use parts"
                         " with fewer")
    dimensions += [[1, 0, 0]] * (3 - len(dimensions))
    _fill_in(dimensions, 1, box, sizes, steps)
    _fill_in(dimensions, 2, box2, sizes, other)
    return 0


cdef int _fill_in(list dimensions, int which, own_box *box, tuple sizes, tuple steps) except -1:
    memset(box, 0, sizeof(own_box))
    box.width, box.rows, box.slices = dimensions[0][0], dimensions[1][0], dimensions[2][0]
    pitch, slice = dimensions[1][which], dimensions[2][which]
    if box.rows > 1 and pitch < <object>box.width or box.slices > 1 and (
            slice < pitch * (<object>box.rows - 1) + <object>box.width or slice % pitch):
        raise ValueError(f"an array of shape {sizes} and strides {steps} (bytes) cannot be used:"
                         " its rows or slices overlap, or slices are not a whole number of rows"
                         " apart")
    box.pitch = pitch if box.rows > 1 else box.width
    box.slice = slice if box.slices > 1 else 0
    return 0
