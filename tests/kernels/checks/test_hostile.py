"""All checks at once, on kernels and programs that make it hard for them."""

import resource

import numpy as np
import pytest

import cudadrv as cu
from cudadrv import testing

from . import programs
from .programs import fails, run

pytestmark = [
    pytest.mark.cuda_software,
    pytest.mark.parametrize("cuda_schedule", ["eager"], indirect=True),
    pytest.mark.cuda_allow("hazards"),
]

RACE = "st.shared.u32 [%r9], %r1;"
UNDEFINED = """.local .align 4 .b8 own[4]; ld.local.u32 %r5, [own]; setp.eq.u32 %p1, %r5, 7;
@%p1 bra done;"""
ALONE = "setp.lt.u32 %p2, %r1, 16; @%p2 bar.warp.sync -1; st.global.u32 [%rd3], %r1;"
ALL = RACE + UNDEFINED + ALONE
KINDS = {"race", "uninitialized", "barrier"}


def kinds(hazards):
    return {hazard.kind for hazard in hazards}


def test_1024_threads_make_one_report_of_each_kind(cuda_device):
    found = run(ALL, threads=1024, checks="all")
    assert sorted(hazard.kind for hazard in found) == ["barrier", "race", "uninitialized"]


def test_ptx_without_lines(cuda_device):
    """The places are lines of the PTX, each with an instruction that is wrong."""
    found = run(ALL, checks="all")
    lines = programs.TEXT.format(body=ALL, before="").splitlines()
    assert kinds(found) == KINDS
    for hazard in found:
        for access in (hazard.first, hazard.second):
            assert (access.file, access.line, access.inner) == (None, 0, None)
            assert any(word in lines[access.ptx_line - 1] for word in ("st.", "ld.", "bar.", "bra"))
            assert f" at PTX line {access.ptx_line}" in hazard.text
        assert ":0" not in hazard.text


FAULT = "st.global.u32 [0], %r1;"


@pytest.mark.parametrize(
    ("body", "blocks", "expected"),
    [
        (RACE + UNDEFINED + FAULT, 1, {"race", "uninitialized"}),
        (f"setp.eq.u32 %p3, %r2, 7; @%p3 bra last; {ALL} bra done; last: {FAULT}", 8, KINDS),
    ],
    ids=["in the middle", "in another block"],
)
def test_a_fault_after_the_hazards(cuda_device, body, blocks, expected):
    """The hazards before the fault are kept, and the fault is told as without the checks."""
    found, text = fails(body, blocks=blocks, checks="all")
    assert kinds(found) == expected
    assert "st.global.u32: write of 4 bytes at 0x0" in text


def test_the_shared_memory_of_another_block(cuda_device):
    """The software driver does not have it, with and without checks."""
    body = f"{RACE} mapa.shared::cluster.u32 %r5, %r9, 1;"
    found, text = fails(body, blocks=2, cluster=2, checks="all")
    assert kinds(found) == {"race"}
    assert "block 1 of the cluster, which block 0 cannot reach" in text


def test_a_fault_before_the_others_come(cuda_device):
    """A warp waits at a barrier when another one ends the launch."""
    body = (
        f"{RACE} setp.lt.u32 %p1, %r1, 32; @%p1 bra wait; st.global.u32 [0], %r1; wait: bar.sync 0;"
    )
    found, text = fails(body, checks="all")
    assert kinds(found) == {"race"}
    assert "write of 4 bytes at 0x0" in text


def test_a_million_hazards(cuda_device):
    """The first thousand are kept, the others are counted, and the memory has a limit.

    500 lines write 2000 words each, and each of 2000 lines reads a word of each of these lines.
    """
    stores = "\n".join(f"st.global.u32 [%rd6+{4 * i}], %r1;" for i in range(500))
    loads = "\n".join(f"ld.global.u32 %r6, [%rd6+{2000 * i}];" for i in range(2000))
    body = f"""mov.u64 %rd5, many; cvta.global.u64 %rd6, %rd5; mov.u32 %r5, 0;
    setp.ne.u32 %p1, %r1, 0; @%p1 bra read;
    write: {stores} add.u64 %rd6, %rd6, 2000; add.u32 %r5, %r5, 1; setp.lt.u32 %p2, %r5, 2000;
    @%p2 bra write; bra done;
    read: {loads} add.u64 %rd6, %rd6, 4; add.u32 %r5, %r5, 1; setp.lt.u32 %p2, %r5, 500;
    @%p2 bra read;"""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = run(body, threads=2, checks="all", before=".global .align 4 .b8 many[4000000];")
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert len(found) == 1000
    assert found[-1].text.endswith("(and 999,000 more hazards)")
    assert grown < 400 << 10  # KiB


def test_two_streams(cuda_device):
    """Two kernels that run at the same time have their own hazards."""
    with testing.configured("checks=all,schedule=random,seed=5"):
        testing.forget_hazards()
        buffers = [cu.DeviceBuffer.zeros(64, np.uint32, name=f"of {i}") for i in range(2)]
        wrong = cu.Module(programs.TEXT.format(body="st.global.u32 [%rd1], %r1;" * 50, before=""))
        right = cu.Module(programs.TEXT.format(body="st.global.u32 [%rd3], %r1;" * 50, before=""))
        streams = [cu.Stream() for _ in range(2)]
        for buffer, module, stream in zip(buffers, (wrong, right), streams, strict=True):
            module["k"].launch(1, 64, buffer, stream=stream)
        for stream in streams:
            stream.synchronize()
        found = testing.hazards()
    assert kinds(found) == {"race"}
    assert {hazard.memory for hazard in found} == {"DeviceBuffer 'of 0'"}


@pytest.mark.parametrize("schedule", ["eager", "lazy", "random"])
def test_in_the_body_of_a_conditional_node(cuda_device, schedule):
    with testing.configured(f"checks=all,schedule={schedule}"), cu.Stream() as stream:
        testing.forget_hazards()
        out = cu.DeviceBuffer.zeros(64, np.uint32, name="out")
        module = cu.Module(programs.TEXT.format(body=ALL, before=""))
        with cu.Graph() as graph:
            _, body = graph.add_if(graph.condition(1))
            body.add_launch(module["k"], 1, 64, out)
            with graph.instantiate() as executable:
                for _ in range(3):
                    executable.launch(stream)
                stream.synchronize()
        found = testing.hazards()
    assert sorted(hazard.kind for hazard in found) == sorted(KINDS)
    assert {hazard.count % 3 for hazard in found} == {0}


def test_16_devices(script):
    """The same mistake on all devices is one hazard for each name of memory."""
    done = script.run(
        f"""
        import numpy as np
        import cudadrv as cu
        from cudadrv import testing
        text = {programs.TEXT!r}.format(body="st.global.u32 [%rd1], %r1;", before="")
        for device in cu.Device.all():
            with device:
                out = cu.DeviceBuffer.zeros(64, np.uint32, name=f"of {{device.ordinal}}")
                with cu.Stream() as stream:
                    cu.Module(text)["k"].launch(1, 64, out, stream=stream)
                    stream.synchronize()
        print([(hazard.memory, hazard.count) for hazard in testing.hazards()])
        """,
        CUDADRV_SOFTWARE="devices=16,checks=all",
    )
    wanted = [(f"DeviceBuffer 'of {i}'", 63) for i in range(16)]
    assert done.stdout.strip() == str(wanted), done.stderr


def test_any_number_of_host_threads(cuda_device):
    found = []
    for threads in (1, 4):
        with testing.configured(f"threads={threads}"):
            found.append(run(ALL, blocks=64, checks="all"))
    assert found[0] == found[1]
    assert kinds(found[0]) == KINDS


def test_a_process_that_ends_while_kernels_run(script):
    """The driver's threads go on while the process ends, and what they use must still exist."""
    body = "again: ld.global.u32 %r5, [%rd3]; st.global.u32 [%rd3+4096], %r5; bra again;"
    script.quiet(
        f"""
        import ctypes
        import time
        libc, wait = ctypes.CDLL(None), ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p)
        late = wait(lambda *_: time.sleep(0.3))  # after the driver's own handlers, registered later
        libc.on_exit(late, None)
        import cudadrv as cu
        text = {programs.TEXT!r}.format(body="{body}", before="")
        buffers = [cu.DeviceBuffer(1 << 16, name="given") for _ in range(200)]
        stream = cu.Stream()
        cu.Module(text)["k"].launch(8, 64, buffers[0], stream=stream)
        libc.exit(0)
        """,
        CUDADRV_SOFTWARE="checks=all,schedule=eager",
        MALLOC_PERTURB_="85",  # overwrite what is freed
    )
