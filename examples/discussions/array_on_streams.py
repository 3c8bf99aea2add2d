"""One array on several streams: parts overlap, conflicts are refused, the check can be off."""

from pathlib import Path

import numpy as np

import cudadrv as cu

COLUMNS, ROWS = 4, 1 << 14
SAXPY = Path(__file__).parents[1] / "kernels" / "saxpy.ptx"
saxpy = cu.Module.from_file(SAXPY)["saxpy"]

array = cu.DeviceBuffer.from_array(np.ones(COLUMNS * ROWS, "f4"), name="array")
columns = array.chunks(ROWS)
streams = cu.StreamGroup(COLUMNS)


def double(column: cu.DeviceBuffer, stream: cu.Stream, count: int = ROWS) -> None:
    """Queue column += column, for the first items."""
    saxpy.launch(-(-count // 256), 256, 1.0, cu.read(column), column, count, stream=stream)


# Columns of one array on different streams do not conflict: what counts are the bytes. Nothing is
# synchronized, and nothing has to be switched off.
for column, stream in zip(columns, streams, strict=True):
    double(column, stream)

# Two streams on the same column conflict. A library that silently waits here makes programs slow; a
# library that does nothing makes them wrong. This is an error, with both lines.
try:
    double(columns[0], streams[1])
except cu.BufferBorrowedError as error:
    print(f"{error}\n")

# With the policy "wait", cudadrv inserts the missing wait: the second stream waits for an event
# of the first one, and the host goes on.
with cu.ordering("wait"):
    double(columns[0], streams[1])

# Reading does not conflict with reading: all streams add the same column to their own sums.
streams.wait(streams[1])
sums = [cu.DeviceBuffer.zeros(ROWS, "f4", name="sum") for _ in streams]
for total, stream in zip(sums, streams, strict=True):
    saxpy.launch(-(-ROWS // 256), 256, 1.0, cu.read(columns[0]), total, ROWS, stream=stream)

# If the program knows more than the arguments say, it can disable the check for a block: the first
# kernel gets a whole column, and uses half of it.
double(columns[1], streams[1], ROWS // 2)
with cu.ordering("unchecked"):
    double(columns[1][ROWS // 2 :], streams[2], ROWS // 2)

streams.synchronize()
found = array.to_numpy().reshape(COLUMNS, ROWS)
assert [column.tolist() for column in found] == [[number] * ROWS for number in (4, 4, 2, 2)]
assert all((total.to_numpy() == 4).all() for total in sums)
print(f"columns are {found[:, 0].tolist()}")
