"""What it costs to hand arrays over: from and to PyTorch and CuPy, and as arguments of kernels.

    python benchmarks/interop.py [--json FILE]

The calls are timed as by calls.py, in one process, in turn. All work is on one stream of PyTorch,
which is also the current stream of CuPy. Needs a GPU, PyTorch and CuPy; cuda.core and numba-cuda
are measured if they are installed.
"""

import argparse
import sys

import numpy as np
import tables
from calls import ROUNDS, measure, prepared, show, stay_on_the_quickest_processor, timers
from machine import about
from peers import KERNEL, NBYTES, PTX, Peer

import cudadrv as cu

COUNT = NBYTES // 4


def arrays():
    """Return PyTorch, CuPy, the one stream of all, and arrays of each library."""
    import cupy
    import torch

    torch.set_grad_enabled(False)
    theirs = torch.cuda.Stream()
    torch.cuda.set_stream(theirs)
    ours = cupy.cuda.Stream
    current = ours.from_external(theirs) if hasattr(ours, "from_external") else None
    (current or cupy.cuda.ExternalStream(theirs.cuda_stream)).use()
    tensors = [torch.zeros(COUNT, device="cuda") for _ in range(2)]
    stream = cu.Stream.from_object(theirs)
    buffers = [cu.DeviceBuffer.zeros(COUNT, "f4") for _ in range(2)]
    return torch, cupy, theirs, stream, buffers, tensors, cupy.zeros(COUNT, "f4")


def peers():
    """Return the rows of each column: handing arrays over, launches with two PyTorch tensors."""
    torch, cupy, theirs, stream, (a, b), (x, y), array = arrays()
    kernel = cu.Module(PTX)[KERNEL]
    yield (
        "cudadrv, its own buffers",
        Peer(
            stream.synchronize,
            {"launch": "kernel.launch(1, 32, 32, 2.0, a, b, stream=stream)"},
            kernel=kernel, a=a, b=b, stream=stream,
        ),
    )  # fmt: skip
    lend = "with buffer.lend(stream): pass"
    rows = {
        "to PyTorch": "torch.from_dlpack(buffer)",
        "to CuPy": "cupy.from_dlpack(buffer)",
        "from PyTorch": "cu.from_dlpack(tensor, stream)",
        "from CuPy": ["cu.from_dlpack(array, stream)", "cu.from_cuda_array(array, stream)"],
        "loan": lend,
        "launch": "kernel.launch(1, 32, 32, 2.0, x, y, stream=stream)",
    }
    buffer = cu.DeviceBuffer.zeros(COUNT, "f4")
    yield (
        "cudadrv",
        Peer(
            stream.synchronize, rows, torch=torch, cupy=cupy, cu=cu, buffer=buffer, tensor=x,
            array=array, x=x, y=y, kernel=kernel, stream=stream,
        ),
    )  # fmt: skip
    raw = cupy.RawModule(
        code=f'extern "C" __global__ void {KERNEL}(int, float, float *, float *) {{}}'
    )
    rows = {
        "to PyTorch": "torch.from_dlpack(array)",
        "from PyTorch": ["cupy.from_dlpack(tensor)", "cupy.asarray(tensor)"],
        "launch": "kernel((1,), (32,), (count, factor, asarray(x), asarray(y)))",
    }
    yield (
        "CuPy",
        Peer(
            theirs.synchronize, rows, torch=torch, cupy=cupy, array=array, tensor=x, x=x, y=y,
            asarray=cupy.asarray, kernel=raw.get_function(KERNEL), count=np.int32(32),
            factor=np.float32(2),
        ),
    )  # fmt: skip
    rows = {"to CuPy": "cupy.from_dlpack(tensor)", "from CuPy": "torch.from_dlpack(array)"}
    yield (
        "PyTorch",
        Peer(theirs.synchronize, rows, torch=torch, cupy=cupy, tensor=x, array=array),
    )
    for name, peer in (("cuda.core", cuda_core), ("numba-cuda", numba)):
        try:
            yield name, peer(theirs, x, y)
        except Exception as error:
            print(f"without {name}: {type(error).__name__}: {error}", file=sys.stderr)


def cuda_core(theirs, x, y):
    """Launches with addresses as arguments: cuda.core takes no arrays of other libraries."""
    import cuda.core as core

    unit = core.Device(0)
    unit.set_current()
    kernel = core.ObjectCode.from_ptx(PTX.encode()).get_kernel(KERNEL)
    rows = {
        "launch": "launch(stream, config, kernel, count, factor, x.data_ptr(), y.data_ptr())",
    }
    return Peer(
        theirs.synchronize, rows, launch=core.launch, stream=unit.create_stream(theirs),
        config=core.LaunchConfig(grid=1, block=32), kernel=kernel, x=x, y=y, count=np.int32(32),
        factor=np.float32(2),
    )  # fmt: skip


def numba(theirs, x, y):
    import warnings

    if not hasattr(np, "row_stack"):
        np.row_stack = np.vstack  # numba-cuda uses the name, which NumPy 2.5 no longer has
    from numba import cuda

    warnings.simplefilter("ignore")  # about small grids
    nothing = cuda.jit("void(int32, float32, float32[::1], float32[::1])")(lambda n, a, x, y: None)
    kernel = nothing[1, 32, cuda.external_stream(theirs.cuda_stream)]
    return Peer(theirs.synchronize, {"launch": "kernel(32, 2.0, x, y)"}, kernel=kernel, x=x, y=y)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", help="also write the figures, with machine and versions, here")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"default {ROUNDS}")
    options = parser.parse_args()
    if cu.driver_info().is_software:
        print("not measured: the other libraries need a GPU", file=sys.stderr)
        return
    try:
        columns = dict(peers())
    except ImportError as missing:
        print(f"not measured: {missing}", file=sys.stderr)
        return
    table = prepared({name: timers(peer) for name, peer in columns.items()}, tables.INTEROP)
    machine = about()
    stay_on_the_quickest_processor()
    measure(table, options.rounds)
    show(table, machine, options, tables.interop)


if __name__ == "__main__":
    main()
