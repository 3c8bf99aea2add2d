"""Kernels whose directives allow only some shapes of launches. Others do not reach the driver."""

import itertools

import numpy as np
import pytest
from ptx.running import require

import cudadrv as cu

TEXT = """.version 8.0
.target sm_{target}
.address_size 64
.visible .entry k(.param .u64 out) {directives}
{{
    .reg .b32 %r<4>; .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [out]; mov.u32 %r1, %ntid.x; mov.u32 %r2, %ntid.y;
    mad.lo.u32 %r1, %r1, 100, %r2; st.global.u32 [%rd1], %r1; ret;
}}
"""


@pytest.fixture
def kernel(driver):
    """A function that returns a kernel with these directives."""

    def kernel(directives, target=75):
        require(target)
        return cu.Module(TEXT.format(directives=directives, target=target))["k"]

    return kernel


@pytest.fixture
def out(driver):
    return cu.DeviceBuffer.zeros(1, "u4")


def ways(kernel, out, stream):
    """Ways to launch a kernel. Each takes grid, block and options."""
    executable = None

    def change(grid, block, **options):
        return executable[0].set(grid=grid, block=block, **options)

    found = {
        "launch": lambda *shape, **o: kernel.launch(*shape, out, stream=stream, **o),
        "prepare": lambda *shape, **o: kernel.prepare(*shape, out, **o),
        "add_launch": lambda *shape, **o: cu.Graph().add_launch(kernel, *shape, out, **o),
    }
    if kernel.suggest_block()[1]:
        block, _ = kernel.suggest_block()
        graph = cu.Graph()
        graph.add_launch(kernel, 1, block, out)
        executable = graph.instantiate()
        found["set"] = change
    return found


WRONG = [64, 32, (32, 4), (2, 32), (32, 1, 2), 1]


@pytest.mark.parametrize("written", [".reqntid 32, 2, 1", ".reqntid 0x20,2", ".reqntid 040U ,0b10"])
def test_a_block_that_the_kernel_requires(kernel, out, stream, written):
    kernel = kernel(written)
    for way, launch in ways(kernel, out, stream).items():
        for block in WRONG:
            with pytest.raises(ValueError) as caught:
                launch(1, block)
            assert "k can only be launched with (32, 2, 1), as .reqntid in its PTX" in str(
                caught.value
            ), way
        launch(1, (32, 2))
    with pytest.raises(ValueError, match=r"^block is \(64, 1, 1\), and k can only be"):
        kernel.launch(1, 64, out, stream=stream)
    stream.synchronize()
    assert out.to_numpy()[0] == 3202
    with pytest.raises(ValueError, match=r"only be launched with \(32, 2, 1\)"):
        kernel.occupancy(64)
    assert kernel.occupancy((32, 2)) >= 1


def test_a_cooperative_launch_of_another_block(kernel, out, stream):
    kernel = kernel(".reqntid 32, 2")
    if not kernel.module.device.attribute("cooperative_launch"):
        pytest.skip("the device has no cooperative launches")
    with pytest.raises(ValueError, match=r"only be launched with \(32, 2, 1\)"):
        kernel.launch(1, 64, out, stream=stream, cooperative=True)
    kernel.launch(1, (32, 2), out, stream=stream, cooperative=True).wait()


@pytest.mark.parametrize("directives", [".reqntid 32, 2", ".maxntid 16, 2"])
def test_a_capture_goes_on_after_a_refused_block(kernel, out, stream, directives):
    kernel, graph = kernel(directives), cu.Graph()
    with graph.capture(stream):
        out.fill_async(5, stream)
        for block in (64, (64, 2), 1025):
            with pytest.raises(ValueError, match="block is"):
                kernel.launch(1, block, out, stream=stream)
    with graph.instantiate() as step:
        step.launch(stream).wait()
    assert out.to_numpy()[0] == 5


def test_a_suggested_block_can_be_launched(kernel, out, stream):
    for directives, expected in (
        (".reqntid 32, 2", (32, 2, 1)),
        (".reqntid 96", 96),
        (".reqntid 1, 1, 64", (1, 1, 64)),
    ):
        each = kernel(directives)
        block, blocks = each.suggest_block()
        assert block == expected
        most = each.module.device.attribute("multiprocessor_count")
        assert blocks == most * each.occupancy(block)
        each.launch(blocks, block, out, stream=stream)
        threads = int(np.prod(expected))
        assert each.suggest_block(limit=threads)[0] == expected
        with pytest.raises(ValueError, match=f"limit is {threads - 1}, and k can only be launched"):
            each.suggest_block(limit=threads - 1)
    bounded = kernel(".maxntid 64, 2, 1")
    block, blocks = bounded.suggest_block()
    assert block <= 128
    bounded.launch(blocks, block, out, stream=stream)
    with pytest.raises(ValueError, match="shared_bytes is 1099511627776, and k takes at most"):
        bounded.suggest_block(shared_bytes=1 << 40)
    stream.synchronize()


def test_a_declaration_can_have_the_directives(driver, out, stream):
    """The last definition counts, and another kernel's directives do not."""
    text = TEXT.format(target=75, directives="").replace(
        ".visible",
        ".visible .entry other(.param .u64 out) .reqntid 8 { ret; }\n"
        "// .entry k .reqntid 16\n.visible",
    )
    module = cu.Module(text)
    module["k"].launch(1, 32, out, stream=stream).wait()
    with pytest.raises(ValueError, match=r"other can only be launched with \(8, 1, 1\)"):
        module["other"].launch(1, 32, out, stream=stream)


# ---- clusters ----

CLUSTERED = {
    ".reqnctapercluster 2, 1, 1": (1, 3),
    ".reqnctapercluster 2, 2, 1": (2, (2, 1), (3, 2)),
}


@pytest.mark.parametrize("directives", CLUSTERED)
def test_a_grid_that_cannot_be_cut_into_required_clusters(kernel, out, stream, directives):
    kernel, graph = kernel(directives, 90), cu.Graph()
    for grid in CLUSTERED[directives]:
        for call in (
            lambda grid=grid: kernel.launch(grid, 32, out, stream=stream),
            lambda grid=grid: kernel.prepare(grid, 32, out),
            lambda grid=grid: graph.add_launch(kernel, grid, 32, out),
        ):
            with pytest.raises(ValueError, match=r"cannot be cut into clusters of \(2, ., 1\)"):
                call()
    kernel.launch((4, 2), 32, out, stream=stream).wait()
    assert kernel.occupancy(32) >= 1
    assert kernel.suggest_block()[1] % 2 == 0


def test_other_clusters_than_the_required_ones(kernel, out, stream):
    kernel = kernel(".reqnctapercluster 2, 1, 1", 90)
    if not kernel.module.device.attribute("cluster_launch"):
        pytest.skip("the device has no clusters")
    for cluster in (1, 4, (1, 2)):
        with pytest.raises(ValueError, match=r"k can only be launched with \(2, 1, 1\), for whi"):
            kernel.launch((4, 2), 32, out, stream=stream, cluster=cluster)
    kernel.launch(4, 32, out, stream=stream, cluster=2).wait()


def test_a_kernel_that_needs_clusters(kernel, out, stream):
    kernel = kernel(".explicitcluster", 90)
    graph = cu.Graph()
    with graph.capture(stream):
        out.fill_async(0, stream)
        with pytest.raises(ValueError, match=r"only be launched with clusters .* pass cluster="):
            kernel.launch(2, 32, out, stream=stream)
    if kernel.module.device.attribute("cluster_launch"):
        kernel.launch(2, 32, out, stream=stream, cluster=2).wait()


@pytest.mark.parametrize(
    "directives, most", [("", 8), (".maxclusterrank 4", 4), (".maxclusterrank 16", 8)]
)
def test_clusters_that_are_too_large(kernel, out, stream, directives, most):
    kernel = kernel(directives, 90)
    if not kernel.module.device.attribute("cluster_launch"):
        pytest.skip("the device has no clusters")
    for cluster in (16, (8, 2), 2 * most):
        with pytest.raises(ValueError, match=rf"blocks, and k takes at most {most}"):
            kernel.launch((16, 16), 32, out, stream=stream, cluster=cluster)
    kernel.launch((16, 16), 32, out, stream=stream, cluster=most).wait()


# ---- all of them ----

DIRECTIVES = [
    "",
    ".maxntid 64",
    ".maxntid 16, 4, 2",
    ".maxntid 64 .minnctapersm 4",
    ".reqntid 64",
    ".reqntid 8, 4, 2",
    ".maxnreg 32",
    ".reqnctapercluster 2, 1, 1",
    ".reqntid 64 .reqnctapercluster 2, 2, 1",
    ".explicitcluster",
    ".explicitcluster .reqnctapercluster 2, 1, 1",
    ".maxclusterrank 2",
]
GRIDS = [1, 2, (2, 2), (3, 2), (1, 1, 4)]
BLOCKS = [1, 32, 64, (64, 2), (8, 4, 2), (8, 8, 2), 1024, (1, 1, 64), (1, 1, 65)]


@pytest.mark.parametrize("directives", DIRECTIVES)
def test_the_driver_takes_every_shape_that_is_not_refused(kernel, out, stream, directives):
    """A launch of any shape is queued, or is a ValueError. It is never an error of the driver."""
    kernel = kernel(directives, 90)
    clusters = [None]
    if kernel.module.device.attribute("cluster_launch"):
        clusters += [1, 2, (2, 2), (1, 1, 2), 16]
    accepted = 0
    for grid, block, cluster in itertools.product(GRIDS, BLOCKS, clusters):
        try:
            kernel.launch(grid, block, out, stream=stream, cluster=cluster)
        except ValueError:
            continue
        accepted += 1
    stream.synchronize()
    assert accepted or directives == ".explicitcluster"
