"""The choices of random programs that use boxes: parts whose rows have gaps between them.

Steps of other modules use a box of their buffer now and then, instead of the buffer.
"""

from library_tickets import TicketChoices


class BoxChoices(TicketChoices):
    boxes = False  # whether the program uses boxes

    def box_of(self, buffer):
        """Return a box of a buffer, or now and then the buffer itself."""
        if not self.takes_boxes() or buffer.closed:
            return buffer
        found = self.choose_box(buffer.real.count)
        return buffer if found is None else self.cut_box(buffer, *found)

    def boxes_of(self, target, source):
        """Return boxes of the same shape of two buffers with the same items.

        One of them may have no gaps. Returns the buffers themselves where that is not possible.
        """
        if not self.takes_boxes() or target.closed or source.closed:
            return target, source
        count = target.real.count
        found = self.choose_box(count)
        if found is None or source.real.count != count or target.real.dtype != source.real.dtype:
            return target, source
        shape, key = found
        box = self.cut_box(target, shape, key)
        if self.chance(0.3):
            items = self.session.part(source, 0, box.nbytes)
            other = self.session.shape_as(items, box.real.shape)
        else:
            shapes = [shape, *(self.choose_shape(count) for _ in range(3))]
            fits = [(each, self.moved(each, key)) for each in shapes if len(each) == len(shape)]
            fits = [(each, moved) for each, moved in fits if moved is not None]
            other = self.cut_box(source, *self.random.choice(fits))
        swaps = target.memory.place is source.memory.place and self.chance(0.5)
        return (other, box) if swaps else (box, other)

    def takes_boxes(self):
        # For boxes, a program cannot see which bytes stay recorded after a failure.
        return self.boxes and not self.session.failing and self.chance(0.5)

    def choose_box(self, count):
        """Choose a shape for `count` items, and an index into it. None if there is no shape."""
        deep = [shape for shape in shapes_of(count) if len(shape) == 3 and shape[1] > 2]
        if deep and self.chance(0.4):
            shape = self.random.choice(deep)
            return shape, self.choose_slices(*shape)
        shape = self.choose_shape(count)
        return None if shape is None else (shape, self.choose_key(shape))

    def choose_slices(self, slices, rows, columns):
        """Choose an index with gaps between the slices, and between the rows of each slice."""
        most = slices, rows - 1, columns - 1
        counts = map(self.random.randint, (2, 2, 1), most)
        return tuple(map(self.range_of, counts, (slices, rows, columns)))

    def range_of(self, count, size):
        start = self.random.randint(0, size - count)
        return slice(start, start + count)

    def choose_shape(self, count):
        """Choose two or three sizes whose product is `count`. None if there are none."""
        shapes = shapes_of(count)
        return self.random.choice(shapes) if shapes else None

    def choose_key(self, shape):
        """Choose an index that has at least one slice."""
        key = [self.choose_range(size) for size in shape]
        if self.chance(0.3):
            at = self.random.randrange(len(shape))
            key[at] = self.random.randrange(shape[at])
        return tuple(key)

    def choose_range(self, size):
        start = 0 if self.chance(0.3) else self.random.randrange(size)
        return slice(start, size if self.chance(0.3) else self.random.randint(start + 1, size))

    def moved(self, shape, key):
        """Return an index into `shape` with the sizes of `key`, or None if they do not fit."""
        made = []
        for size, each in zip(shape, key, strict=True):
            length = 1 if isinstance(each, int) else each.stop - each.start
            if length > size:
                return None
            at = self.random.randint(0, size - length)
            made.append(at if isinstance(each, int) else slice(at, at + length))
        return tuple(made)

    def cut_box(self, buffer, shape, key):
        self.note("  box", shape, key)
        return self.session.box(buffer, shape, key)


def shapes_of(count):
    """Return the shapes of two or three sizes with `count` items. No size is 1."""
    flat = factors(count)
    return [(rows, *rest) for rows, items in flat for rest in factors(items)] + flat


def factors(count):
    return [(rows, count // rows) for rows in range(2, count) if count % rows == 0]
