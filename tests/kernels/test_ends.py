"""Kernels at the end of a process or a context, and while another library captures a stream."""

import ctypes

import numpy as np
import pytest
from results import PTX, array_of

import cudadrv as cu

HEAD = f"""
    import os, sys
    import numpy as np
    import cudadrv as cu
    stream, other = cu.Stream(), cu.Stream()
    module = cu.Module.from_file({str(PTX)!r})
    x, y = cu.DeviceBuffer.zeros(64, "f4"), cu.LockedBuffer.zeros(64, "f4")
    saxpy, counter = module["saxpy"], module.global_("counter")
    ready = saxpy.prepare(1, 64, 2.0, cu.read(x), y, 64)
    ready.launch(stream).wait()
"""
CALLS = """
    cu.Module.from_file(module_path) | module["saxpy"] | module["count"] | "saxpy" in module
    list(module) | module.global_("scale") | module.close() | module.__enter__() | saxpy.attributes
    saxpy.launch(1, 64, 2.0, cu.read(x), y, 64, stream=stream) | ready.launch(stream)
    saxpy.prepare(1, 64, 2.0, cu.read(x), y, 64) | saxpy.occupancy(32) | saxpy.suggest_block()
    saxpy.prefer_cache("l1") | saxpy.preferred_shared_carveout | counter.fill(0)
"""


@pytest.mark.cuda_software
def test_every_call_is_refused_in_a_forked_child(script):
    script.refused_after_fork(
        HEAD + f"    module_path = {str(PTX)!r}",
        CALLS,
        "repr(module), repr(saxpy), repr(ready); del saxpy, ready, module, counter",
        "assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0",
    )


@pytest.mark.cuda_software
@pytest.mark.parametrize("schedule", ["eager", "lazy", "random"])
def test_a_kernel_that_loses_the_context(script, schedule):
    """After a kernel loses the context, the suspects are the launches not known to be complete.

    The software driver describes the kernel's error on stderr.
    """
    done = script.run(
        HEAD
        + """
    token = module["count"].launch(1, 1, 1, stream=other)
    bad = module["out_of_bounds"].launch(1, 1, x, stream=stream)
    try:
        stream.synchronize()
        raise AssertionError("not lost")
    except cu.ContextLostError as error:
        assert error.status == 700, error
        assert any("launch of out_of_bounds on Stream" in text for text in error.suspects)
        assert any("launch of count on Stream" in text for text in error.suspects)
        assert not any("saxpy" in text for text in error.suspects)
    for call in (lambda: ready.launch(stream), lambda: module["count"], lambda: saxpy.attributes,
                 lambda: cu.Module("text"), lambda: module.global_("scale")):
        try:
            call()
            raise AssertionError("went on")
        except (cu.ContextLostError, ValueError) as error:
            assert "lost" in str(error) or "neither PTX" in str(error)
    module.close()
    assert module.closed and counter.closed
""",
        CUDADRV_SOFTWARE=f"schedule={schedule}",
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("kernel 'out_of_bounds'")
    assert len(done.stderr.splitlines()) == 1


def test_quiet_at_the_end_of_the_process(script):
    """A process with modules, kernels and launches in all states ends quietly."""
    script.quiet(
        HEAD
        + """
    keep = [module, saxpy, ready, counter]
    keep.append(keep)
    ready.launch(stream)
    module["count"].launch(1, 1, 1, stream=other)
"""
    )


@pytest.mark.cuda_software
def test_beside_a_capture(module, saxpy, vectors, stream, other):
    """Launches on other streams take no part in a capture. Dropped modules do not invalidate it."""
    x, y = vectors
    library = ctypes.CDLL(cu.driver_info().path)
    handle = ctypes.c_void_p(stream.handle)
    dying = cu.Module.from_file(PTX)
    with cu.Device(0):
        assert library.cuStreamBeginCapture_v2(handle, 0) == 0
    try:
        with pytest.raises(cu.OwnershipError, match="is capturing a graph"):
            saxpy.launch(1, 1, 2.0, cu.read(x), y, 1, stream=stream)
        assert not y.borrowed
        del dying
        cu.reap()
        state = ctypes.c_int()
        assert library.cuStreamIsCapturing(handle, ctypes.byref(state)) == 0
        assert state.value == 1, "it goes on"
    finally:
        graph = ctypes.c_void_p()
        library.cuStreamEndCapture(handle, ctypes.byref(graph))
        if graph.value:
            library.cuGraphDestroy(graph)
    saxpy.launch(1, 32, 2.0, cu.read(x), y, 32, stream=stream).wait()
    assert array_of(y)[3] == 7


@pytest.mark.cuda_software
@pytest.mark.parametrize(
    ("call", "use"),
    [
        ("cuModuleGetFunction", lambda module: module["saxpy"]),
        ("cuModuleGetFunction", lambda module: "saxpy" in module),
        ("cuFuncGetAttribute", lambda module: module["saxpy"]),
        ("cuFuncGetAttribute", lambda module: module["saxpy"].attributes),
        ("cuModuleGetGlobal_v2", lambda module: module.global_("counter")),
        (
            "cuOccupancyMaxActiveBlocksPerMultiprocessor",
            lambda module: module["saxpy"].occupancy(32),
        ),
        ("cuOccupancyMaxPotentialBlockSize", lambda module: module["saxpy"].suggest_block()),
        ("cuFuncSetCacheConfig", lambda module: module["saxpy"].prefer_cache("l1")),
        (
            "cuFuncSetAttribute",
            lambda module: setattr(module["saxpy"], "max_dynamic_shared_bytes", 64),
        ),
    ],
)
def test_driver_calls_that_fail(module, call, use):
    from cudadrv import testing

    testing.fail(call, 800)
    with pytest.raises(cu.CudaError) as caught:
        use(module)
    assert caught.value.call == call.removesuffix("_v2")
    assert caught.value.status is cu.CUresult.CUDA_ERROR_NOT_PERMITTED
    use(module)


@pytest.mark.cuda_software
@pytest.mark.parametrize(("status", "error"), [(2, cu.CudaOutOfMemoryError), (801, cu.CudaError)])
def test_loading_that_fails_for_another_reason(driver, status, error):
    from cudadrv import testing

    testing.fail("cuModuleLoadDataEx", status)
    with pytest.raises(error, match=r"^cuModuleLoadDataEx: ") as caught:
        cu.Module.from_file(PTX)
    assert type(caught.value) is error


def test_threads_launch_at_once(module, stream):
    """Each thread launches and also asks for a variable, so launches and look-ups overlap."""
    from threading import Thread

    counter = module.global_("counter", "u4")
    counter.fill(0)
    count = module["count"]

    def work():
        own = cu.Stream()
        with cu.ordering("unchecked"):
            for _ in range(50):
                count.launch(1, 2, 1, stream=own)
        module.global_("scale")
        own.synchronize()

    threads = [Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert np.array_equal(array_of(counter), [400, 0, 0, 0])
