"""Measures growing a buffer of a device in steps, beside allocating, copying and freeing.

    python benchmarks/grow.py [--largest MIB] [--step MIB] [--rounds N] [--json FILE]

Both ways make a buffer of `--step` MiB longer by a step at a time, up to `--largest` MiB; the items
stay. "grow" is `DeviceBuffer.grow`. "copy" allocates a longer buffer without a pool, copies, waits
and closes the old one; "copy, doubling" only does so when the size has doubled. Then each way
writes all items once, to see whether mapped memory is slower. "shrink" gives back a step at a time.
"""

import argparse
import json
import time
from pathlib import Path

import machine

import cudadrv as cu

MIB = 1 << 20


def grown(sizes, stream):
    buffer = cu.DeviceBuffer(sizes[0], capacity=sizes[-1])
    for size in sizes[1:]:
        buffer.grow(size)
    return buffer


def copied(sizes, stream):
    buffer = cu.DeviceBuffer(sizes[0], pooled=False)
    for size in sizes[1:]:
        longer = cu.DeviceBuffer(size, pooled=False)
        longer[: len(buffer)].copy_from_async(buffer, stream)
        stream.synchronize()
        buffer.close()
        buffer = longer
    return buffer


def doubled(sizes, stream):
    some = [size for size in sizes if size & (size - 1) == 0]
    return copied([*some, sizes[-1]] if some[-1] < sizes[-1] else some, stream)


WAYS = {"grow": grown, "copy": copied, "copy, doubling": doubled}


def seconds(function):
    begin = time.perf_counter()
    result = function()
    return time.perf_counter() - begin, result


def measure(way, sizes, stream):
    """Return the seconds for growing, for filling the result, for shrinking and for closing it."""
    growing, buffer = seconds(lambda: way(sizes, stream))
    buffer.fill_async(1, stream).wait()  # the first use of memory is slower
    filling, _ = seconds(lambda: buffer.fill_async(2, stream).wait())
    found = {"grow": growing, "fill": filling}
    if way is grown:
        found["shrink"], _ = seconds(lambda: [buffer.shrink(size) for size in reversed(sizes[:-1])])
    found["close"], _ = seconds(buffer.close)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--largest", type=int, default=1024)
    parser.add_argument("--step", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    step = options.step * MIB
    sizes = list(range(step, options.largest * MIB + 1, step))
    results = {}
    with cu.Stream() as stream:
        for name, way in WAYS.items():
            measure(way, sizes, stream)
            runs = [measure(way, sizes, stream) for _ in range(options.rounds)]
            best = {part: min(run[part] for run in runs) for part in runs[0]}
            results[name] = best
            per_step = best["grow"] / len(sizes)
            print(
                f"{name:15} {len(sizes)} steps {best['grow'] * 1e3:9.2f} ms"
                f" ({per_step * 1e6:7.1f} us each), fill {best['fill'] * 1e3:6.2f} ms,"
                f" close {best['close'] * 1e3:6.2f} ms"
                + (f", shrink {best['shrink'] * 1e3:.2f} ms" if "shrink" in best else "")
            )
    if options.json:
        options.json.write_text(json.dumps({**machine.about(), "rows": results}))


if __name__ == "__main__":
    main()
