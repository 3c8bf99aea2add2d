"""How fast the software driver runs kernels: thread-instructions per second on one core, also with
the checks inside kernels, and how much memory these take.

    CUDADRV_DRIVER=software python benchmarks/interpreter.py [--elements N] [--threads N]
        [--json FILE]

A thread-instruction is one PTX instruction for one thread of the kernel, including those that a
predicate disables. Each kernel is launched alone, and timed until the host knows that it is
complete, with the race detector (the default) and without; the median of the rounds counts. On a
machine with other work, processor time is the meaningful figure. It is the sum over all threads:
with --threads, also compare the milliseconds, which show how much work ran at the same time.

The memory of a check is the difference between the peak memory of a process that launches a kernel
once with the check and of one without it, for each byte that the kernel accesses.
"""

import argparse
import datetime
import json
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import cudadrv as cu
from cudadrv import testing

ROUNDS = 7
CHECKS = ("off", "race", "init", "sync", "all")
BLOCK = 256
STEPS = 64
SAXPY = Path(__file__).resolve().parents[1] / "examples" / "kernels" / "saxpy.ptx"
LOOP = f"""\
.version 6.4
.target sm_52
.address_size 64
.visible .entry loop(.param .u32 count, .param .f32 factor, .param .u64 x, .param .u64 y)
{{
    .reg .b32 %r<8>;
    .reg .f32 %f<4>;
    .reg .b64 %rd<4>;
    .reg .pred %p;
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.u32 %r4, %r1, %r2, %r3;
    mov.u32 %r5, 0;
    cvt.rn.f32.u32 %f1, %r4;
again:
    BODY
    add.u32 %r5, %r5, 1;
    setp.lt.u32 %p, %r5, {STEPS};
    @%p bra again;
    ld.param.u64 %rd1, [y];
    cvta.to.global.u64 %rd2, %rd1;
    mul.wide.u32 %rd3, %r4, 4;
    add.u64 %rd2, %rd2, %rd3;
    st.global.RESULT [%rd2];
    ret;
}}
"""
BODIES = {
    "float loop": (["fma.rn.f32 %f1, %f1, 0f3F000000, 0f3F800000;"] * 4, "f32 [%rd2], %f1"),
    "integer loop": (
        ["shl.b32 %r6, %r4, 13;", "xor.b32 %r4, %r4, %r6;", "shr.u32 %r6, %r4, 17;",
         "xor.b32 %r4, %r4, %r6;"],
        "u32 [%rd2], %r3",
    ),
}  # fmt: skip


def kernels():
    """Return ``{name: (kernel, thread-instructions of one thread)}``."""
    text = SAXPY.read_text(encoding="utf-8")
    body = text[text.index("{") :]
    found = {"saxpy": (cu.Module(text)["saxpy"], len(re.findall(r"^\s[^.{}/$].*;", body, re.M)))}
    for name, (body, result) in BODIES.items():
        text = LOOP.replace("BODY", "\n    ".join(body)).replace("RESULT [%rd2]", result)
        instructions = 6 + STEPS * (len(body) + 3) + 6
        found[name] = (cu.Module(text)["loop"], instructions)
    return found


def accessed_bytes(name, count):
    """The bytes of global memory that a kernel of kernels() accesses."""
    return count * (8 if name == "saxpy" else 4)


def buffers(count):
    x = cu.DeviceBuffer.from_array(np.ones(count, np.float32))
    return x, cu.DeviceBuffer.zeros(count, np.float32)


def print_peak(name, checks, count):
    """Launch a kernel once, and print the peak memory of this process, in bytes."""
    testing.configure(f"checks={checks},threads=1")
    kernel, _ = kernels()[name]
    timed(kernel, count, *buffers(count), cu.Stream())
    # Not ru_maxrss, which a new process takes over from the one that has started it.
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    print(int(re.search(r"VmHWM:\s*(\d+)", status)[1]) * 1024)


def peak(name, checks, count):
    """Return the peak memory of a process that launches a kernel once."""
    command = [sys.executable, __file__, "--elements", str(count), "--peak", name, checks]
    peaks = [int(subprocess.run(command, capture_output=True, check=True).stdout) for _ in range(3)]
    return statistics.median(peaks)


def timed(kernel, count, x, y, stream):
    """Return the seconds, and seconds of processor time, of one launch."""
    start, busy = time.perf_counter(), time.process_time()
    kernel.launch(count // BLOCK, BLOCK, *arguments(kernel, count, x, y), stream=stream)
    stream.synchronize()
    return time.perf_counter() - start, time.process_time() - busy


def arguments(kernel, count, x, y):
    """Return the arguments in the order of the kernel's parameters."""
    values = {"u32": count, "f32": 0.5}
    buffers = iter((cu.read(x), y))
    return [
        values[each.type] if each.type in values else next(buffers) for each in kernel.parameters
    ]


def measure(count, threads, settings):
    """Time all kernels with these settings: of the race detector, and of the checks."""
    stream = cu.Stream()
    rows = []
    for races, checks in settings:
        testing.configure(f"races={races},checks={checks},threads={threads}")
        x, y = buffers(count)  # the check has to see how the memory is written
        for name, (kernel, instructions) in kernels().items():
            rounds = [timed(kernel, count, x, y, stream) for _ in range(ROUNDS)]
            wall, busy = (statistics.median(each) for each in zip(*rounds, strict=True))
            rows.append(
                {"kernel": name, "races": races, "checks": checks,
                 "instructions": instructions * count,
                 "seconds": wall, "processor_seconds": busy}
            )  # fmt: skip
    testing.configure("races=record,checks=off")
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--elements", type=int, default=1 << 20, help="default: %(default)s")
    parser.add_argument("--threads", default="1", help="of a launch; default: %(default)s")
    parser.add_argument("--json", help="also write the figures here")
    parser.add_argument("--peak", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not cu.driver_info().is_software:
        parser.error("this is about the software driver: CUDADRV_DRIVER=software")
    count = options.elements // BLOCK * BLOCK
    if options.peak:
        return print_peak(*options.peak, count)
    rows = measure(count, options.threads, [("record", "off"), ("off", "off")])
    checked = measure(count, options.threads, [("record", checks) for checks in CHECKS])
    for row in checked:
        extra = peak(row["kernel"], row["checks"], count) - peak(row["kernel"], "off", count)
        row["bytes_per_byte"] = max(0, extra) / accessed_bytes(row["kernel"], count)
    print(f"{count:,} threads, {datetime.date.today()}, medians of {ROUNDS} rounds")
    print("| kernel | race detector | ms | ms of processor time | G thread-instructions a second |")
    print("|---|---|---|---|---|")
    for row in rows:
        rate = row["instructions"] / row["processor_seconds"] / 1e9
        print(
            f"| {row['kernel']} | {row['races']} | {row['seconds'] * 1e3:.1f}"
            f" | {row['processor_seconds'] * 1e3:.1f} | {rate:.2f} |"
        )
    print("\n| kernel | checks | ms | G thread-instructions a second | times | bytes per byte |")
    print("|---|---|---|---|---|---|")
    unchecked = {row["kernel"]: row for row in checked if row["checks"] == "off"}
    for row in checked:
        busy = row["processor_seconds"]
        print(
            f"| {row['kernel']} | {row['checks']} | {row['seconds'] * 1e3:.1f}"
            f" | {row['instructions'] / busy / 1e9:.2f}"
            f" | {busy / unchecked[row['kernel']]['processor_seconds']:.1f}"
            f" | {row['bytes_per_byte']:.1f} |"
        )
    if options.json:
        Path(options.json).write_text(json.dumps(rows + checked, indent=1) + "\n")


if __name__ == "__main__":
    main()
