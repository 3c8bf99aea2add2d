"""checks=race: the pipelines of CUDA's C++ library, with and without their waits."""

import functools
from pathlib import Path

import numpy as np
import pytest

import cudadrv as cu
from cudadrv import testing, toolkit

pytestmark = [
    pytest.mark.cuda_software,
    pytest.mark.parametrize("cuda_schedule", ["eager"], indirect=True),
    pytest.mark.cuda_allow("hazards"),
]

SOURCE = Path(__file__).with_name("pipelines.cu")
BATCHES, THREADS = 6, 128
# What the advice names, for the kernels that end without their waits, too.
REMEDIES = {
    "thread_pipeline": "cp.async.wait_group",
    "group_copy": "cp.async.wait_group",
    "primitives": "cp.async.wait_group",
    "barrier_copy": "cp.async.wait_group",
    "bulk_copy": "fence.proxy.async",
}
KERNELS = ["block_pipeline", "warp_roles", *REMEDIES]


@functools.cache
def compiled(waits):
    try:
        return toolkit.compile(
            SOURCE,
            compiler="nvcc",
            arch="compute_90",
            options=[f"-DWAIT={waits:d}", "-std=c++17", "-w", "-lineinfo"],
        )
    except (toolkit.CompilerNotFoundError, toolkit.PTXVersionError) as error:
        pytest.skip(str(error))


def run(name, waits):
    given = cu.DeviceBuffer.from_array(np.arange(BATCHES * THREADS, dtype="i4"), name="given")
    out = cu.DeviceBuffer.zeros(BATCHES * THREADS, np.int32, name="out")
    testing.forget_hazards()
    with testing.configured("checks=race"), cu.Module(compiled(waits)) as module, cu.Stream() as s:
        module[name].launch(1, THREADS, out, given, stream=s)
        s.synchronize()
    return testing.hazards()


@pytest.mark.parametrize("name", KERNELS)
def test_with_waits(cuda_device, name):
    assert run(name, waits=True) == []


@pytest.mark.parametrize("name", REMEDIES)
def test_without_waits(cuda_device, name):
    found = run(name, waits=False)
    assert any(REMEDIES[name] in hazard.text for hazard in found)
    assert all(hazard.first.file and hazard.first.line for hazard in found)
