"""The reserved part of shared memory, where cooperative_groups keeps barriers of several warps."""

from pathlib import Path

import numpy as np
import pytest
from results import array_of

import cudadrv as cu
from cudadrv import testing, toolkit

from .ptx.running import require, run

SOURCE = Path(__file__).with_name("large_tiles.cu")


@pytest.fixture(params=["kept", "compiled"])
def module(driver, request):
    """The module, from the PTX file beside the source and from the source itself by nvcc."""
    require(80)
    if request.param == "kept":
        return cu.Module.from_file(SOURCE.with_suffix(".ptx"))
    try:
        text = toolkit.compile(SOURCE, compiler="nvcc", arch="compute_80", cache=False)
    except (toolkit.CompilerNotFoundError, toolkit.PTXVersionError) as error:
        pytest.skip(str(error))
    return cu.Module(text)


def sums_of_tiles(module, stream, blocks=3):
    items = np.arange(blocks * 256, dtype="i4") ** 2
    sums, neighbours = (cu.DeviceBuffer.zeros(items.size, "i4") for _ in range(2))
    given = cu.DeviceBuffer.from_array(items)
    module["sums"].launch(blocks, 256, sums, neighbours, cu.read(given), stream=stream)
    stream.synchronize()
    tiles = items.reshape(-1, 64)
    assert np.array_equal(array_of(sums).reshape(-1, 64), tiles.sum(1, keepdims=True) + 0 * tiles)
    assert np.array_equal(array_of(neighbours), (tiles[:, ::-1] + 2).ravel())


def test_tiles_of_two_warps(module, stream):
    sums_of_tiles(module, stream)


@pytest.mark.cuda_software
@pytest.mark.cuda_allow("hazards")
def test_tiles_under_all_checks(module, stream):
    """tile.sync() orders shared memory, and cg::reduce misses an order: a finding.

    Its last warp reads what the others have stored in reserved memory behind a shuffle, and only
    lane 0 of the warp has acquired it. A shuffle orders nothing.
    """
    with testing.configured("checks=all"):
        sums_of_tiles(module, stream)
    found = testing.hazards()
    assert {hazard.memory for hazard in found} == {"reserved shared memory"}
    assert {hazard.kind for hazard in found} == {"race"}


REGISTERS = ("begin", "end", "cap", "0", "1")
PLACES = "".join(
    f"mov.u32 %r2, %reserved_smem_offset_{name}; st.global.u32 [%rd1+{4 * i}], %r2;"
    for i, name in enumerate(REGISTERS)
)
SIZES = "".join(
    f"mov.u32 %r2, %{name}_smem_size; st.global.u32 [%rd1+{20 + 4 * i}], %r2;"
    for i, name in enumerate(("total", "aggr", "dynamic"))
)


@pytest.mark.parametrize("dynamic", [0, 52])
def test_places(driver, dynamic):
    """The reserved part is apart from what the kernel declares.

    On an H200 it comes first, and only 288 of its 1024 bytes are in use.
    """
    tile = ".shared .align 16 .b8 tile[80];"
    use = "mov.u32 %r3, tile; st.shared.u32 [%r3], %r1;"
    found = run(use + PLACES, np.zeros(1), np.zeros(5, "u4"), declared=tile, shared=dynamic)
    begin, end, cap, first, second = found.tolist()
    assert cap == 1024
    if cu.driver_info().is_software:
        assert end - begin == cap
        assert 80 + dynamic <= begin <= first < second
        assert second + 288 <= end  # the part for cooperative_groups
    else:
        assert (begin, end) == (0, 288)


def test_sizes(driver):
    options = {"version": "8.1", "capability": 90, "shared": 52}
    found = run(PLACES + SIZES, np.zeros(1), np.zeros(8, "u4"), **options)
    assert found[5:].tolist() == [128, 52 + found[2], 52]


@pytest.mark.parametrize("blocks", [1, 40])
def test_zeros_when_a_block_starts(driver, blocks):
    """The words for barriers are zeros in each block, whatever earlier blocks have written."""
    body = """mov.u32 %r2, %reserved_smem_offset_1; mad.lo.u32 %r2, %r1, 4, %r2;
    ld.shared.u32 %r3, [%r2]; st.shared.u32 [%r2], 7; mov.u32 %r4, %ctaid.x;
    mad.lo.u32 %r4, %r4, 5, %r1; mul.wide.u32 %rd3, %r4, 4; add.u64 %rd3, %rd1, %rd3;
    st.global.u32 [%rd3], %r3;"""
    out = np.ones(5 * blocks, "u4")
    assert not run(body, np.zeros(1), out, threads=5, blocks=blocks).any()


@pytest.mark.cuda_software
def test_kernels_without_it_have_less_memory(driver):
    """An access behind the kernel's own shared memory still ends the kernel."""
    with pytest.raises(cu.CudaError):
        run("mov.u32 %r2, 256; st.shared.u32 [%r2], 1;", np.zeros(1), np.zeros(1), shared=128)
    assert "which has 128 bytes" in testing.kernel_fault()
    testing.reset_device()


@pytest.mark.cuda_software
def test_a_number_that_ptx_does_not_have(driver):
    with pytest.raises(cu.CudaError, match="reserved_smem_offset_2 cannot be read"):
        run("mov.u32 %r2, %reserved_smem_offset_2;", np.zeros(1), np.zeros(1))
