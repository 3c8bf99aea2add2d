"""checks=race on block algorithms of CUB, and on these without one of their barriers.

Whether a barrier matters is decided without the check: by the results, when the warps of the block
run in other orders.
"""

import functools
import re
from pathlib import Path

import numpy as np
import pytest

import cudadrv as cu
from cudadrv import testing, toolkit

pytestmark = [
    pytest.mark.cuda_software,
    pytest.mark.slow,
    pytest.mark.parametrize("cuda_schedule", ["eager"], indirect=True),
    pytest.mark.cuda_allow("hazards", "leaks"),
]

SOURCE = Path(__file__).with_name("blocks_of_cub.cu")
KERNELS = re.findall(r"^KERNEL\((\w+)\)", SOURCE.read_text("utf-8"), re.M)
BARRIER = re.compile(r"bar(?:rier)?\.(?:cta\.|warp\.)?(?:sync|red)[^;]*;")
ENTRY = re.compile(r"^\.visible \.entry (\w+)\(.*?^\}", re.M | re.S)
THREADS, ITEMS = 64, 2048
ORDERS = range(1, 7)  # seeds, which give both orders of the two warps
MOST = 3_000_000  # instructions: without its barrier, a kernel may not end


@functools.cache
def texts():
    """The PTX of each kernel."""
    try:
        whole = toolkit.compile(
            SOURCE, arch="compute_90", options=["--extended-lambda", "-std=c++17"], compiler="nvcc"
        )
    except (toolkit.CompilerNotFoundError, toolkit.CompileError) as error:
        pytest.skip(f"needs nvcc and CUB: {str(error)[:200]}")
    others = ENTRY.sub("", whole)
    return {entry[1]: others + entry[0] for entry in ENTRY.finditer(whole)}


def run(name, text, checks, seed=1):
    """Run a kernel. Return what it has written, or None if it failed, and the hazards."""
    testing.forget_hazards()
    settings = f"checks={checks},seed={seed},instructions={MOST},kernel_faults=record"
    try:
        with testing.configured(settings), cu.Module(text) as module, cu.Stream() as stream:
            numbers = (np.arange(ITEMS) * 7919 % 251).astype(np.int32)
            source, out = cu.DeviceBuffer.from_array(numbers), cu.DeviceBuffer.zeros(ITEMS, "i4")
            module[name].launch(1, THREADS, out, source, stream=stream)
            stream.synchronize()
            return out.to_numpy().tobytes(), testing.hazards()
    except cu.CudaError:
        hazards = testing.hazards()
        testing.reset_device()
        return None, hazards


@pytest.mark.parametrize("name", KERNELS)
def test_nothing_is_found(cuda_device, name):
    results = {run(name, texts()[name], "all", seed)[0] for seed in ORDERS}
    assert len(results) == 1
    assert run(name, texts()[name], "all")[1] == []


@pytest.mark.parametrize("name", KERNELS)
def test_a_missing_barrier_that_matters_is_found(cuda_device, name):
    text = texts()[name]
    right, _ = run(name, text, "off")
    barriers = list(BARRIER.finditer(text))
    assert barriers
    for place in barriers:
        mutated = text[: place.start()] + text[place.end() :]
        _, hazards = run(name, mutated, "race")
        assert all(hazard.kind == "race" for hazard in hazards)
        if not hazards:
            assert {run(name, mutated, "off", seed)[0] for seed in ORDERS} == {right}
