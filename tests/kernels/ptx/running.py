"""Runs short PTX texts on arrays of the host."""

import numpy as np
import pytest

import cudadrv as cu

# Puts the address of the thread's word of the result into %rd3.
WORD = "mul.wide.u32 %rd3, %r1, 4; add.u64 %rd3, %rd1, %rd3;"

TEXT = """.version {version}
.target sm_{target}
.address_size 64
{before}
.visible .entry k(.param .u64 out, .param .u64 in) {directives}
{{
    .reg .pred %p<8>; .reg .b16 %h<16>; .reg .b32 %r<64>; .reg .b64 %rd<32>; .reg .f32 %f<16>;
    {declared}
    ld.param.u64 %rd1, [out]; cvta.to.global.u64 %rd1, %rd1;
    ld.param.u64 %rd2, [in]; cvta.to.global.u64 %rd2, %rd2;
    mov.u32 %r1, %tid.x;
    {body}
    ret;
}}
"""


def require(capability: int, only: bool = False) -> None:
    """Skip the test if the GPU is older or, with `only`, newer.

    The software driver runs all instructions that it supports.
    """
    device = cu.Device(0)
    major, minor = device.compute_capability
    found = 10 * major + minor
    if not cu.driver_info().is_software and (found < capability or (only and found > capability)):
        pytest.skip(f"the GPU has compute capability {major}.{minor}")


def run(
    body: str,
    given,
    result,
    *,
    threads: int = 32,
    blocks: int = 1,
    shared: int = 0,
    capability: int = 80,
    target: str = "",
    version: str = "8.0",
    declared: str = "",
    before: str = "",
    directives: str = "",
) -> np.ndarray:
    """Run a kernel on a copy of `result`, and return the copy.

    In `body`, %rd1 is the address of the copy, %rd2 the address of `given`, and %r1 the index of
    the thread in its block. `directives` are inserted after the list of parameters. `target` is an
    architecture such as "100a", whose code other devices do not run.
    """
    require(capability, only=bool(target))
    target = target or str(capability)
    if cu.driver_info().is_software and capability > 90:
        target = "90"
    parts = {"declared": declared, "before": before, "directives": directives, "body": body}
    text = TEXT.format(version=version, target=target, **parts)
    given, result = np.ascontiguousarray(given), np.array(result)
    with cu.Module(text) as module, cu.Stream() as stream:
        out, source = (
            cu.DeviceBuffer.from_array(np.frombuffer(array.tobytes(), "u1"))
            for array in (result, given)
        )
        module["k"].launch(
            blocks, threads, out, cu.read(source), stream=stream, shared_bytes=shared
        )
        stream.synchronize()
        raw = np.empty(result.nbytes, "u1")
        out.copy_to(raw)
    return np.frombuffer(raw.tobytes(), result.dtype).reshape(result.shape)
