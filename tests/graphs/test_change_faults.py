"""Driver calls that fail while a graph is captured or an executable is changed."""

import pytest

import cudadrv as cu

pytestmark = [
    pytest.mark.cuda_software,
    pytest.mark.parametrize("cuda_schedule", ["lazy"], indirect=True),
]
INVALID, NOT_PERMITTED, UPDATE_FAILURE = 1, 800, 910
SET = {
    "cuGraphExecKernelNodeSetParams": "cuGraphExecKernelNodeSetParams_v2",
    "cuGraphExecUpdate": "cuGraphExecUpdate_v2",
    "cuStreamGetCaptureInfo": "cuStreamGetCaptureInfo_v2",
}


@pytest.fixture
def fault(driver):
    """A function that makes the nth call of a driver function fail, counted from now on."""
    from cudadrv import testing

    def fault(function, nth=1, status=NOT_PERMITTED):
        testing.configure(f"fault={SET.get(function, function)}:{nth}:{status}")

    yield fault
    testing.configure("fault=none")


USUAL = [2 * i + 1 for i in range(16)]
CHANGES = {
    "cuGraphExecUpdate": lambda w, step, other: step.update(w.graph),
    "cuGraphExecKernelNodeSetParams": lambda w, step, other: step[2].set(
        3.0, cu.read(w.work), w.out, 16
    ),
    "cuGraphExecMemcpyNodeSetParams": lambda w, step, other: step[3].set(target=other),
    "cuGraphExecMemsetNodeSetParams": lambda w, step, other: step[1].set(value=7),
    "cuGraphNodeSetEnabled": lambda w, step, other: setattr(step[2], "enabled", False),
}


@pytest.mark.parametrize("status", [INVALID, NOT_PERMITTED])
@pytest.mark.parametrize("function", CHANGES)
def test_a_change_that_fails_changes_nothing(world, step, fault, function, status):
    other = cu.LockedBuffer.zeros(16, "f4", name="other")
    nodes = step.nodes
    fault(function, status=status)
    with pytest.raises(cu.CudaError) as caught:
        CHANGES[function](world, step, other)
    assert (caught.value.call, caught.value.status) == (function, status)
    assert step.nodes == nodes
    assert step[2].enabled
    assert world.result_of(step) == USUAL
    other.close()
    other = cu.LockedBuffer.zeros(16, "f4")
    CHANGES[function](world, step, other)  # a change works after a failed one


@pytest.mark.parametrize("function", CHANGES)
def test_names_of_failed_changes_are_used_again(world, graph, step, fault, function):
    other = cu.LockedBuffer.zeros(16, "f4", name="other")
    for _ in range(50):
        fault(function)
        with pytest.raises(cu.CudaError):
            CHANGES[function](world, step, other)
    step.launch(world.main)
    with pytest.raises(cu.BufferBorrowedError, match=r"written by copy_from_async at .* in graph"):
        world.result[0] = 1


def test_a_refusal_without_a_reason(world, graph, step, fault):
    fault("cuGraphExecUpdate", status=UPDATE_FAILURE)
    with pytest.raises(cu.CaptureError, match=r"CUgraphExecUpdateResult 0\. Instantiate that"):
        step.update(graph)
    assert world.result_of(step) == USUAL


@pytest.fixture(params=["f8", "c16"])
def wide(world, request):
    return cu.LockedBuffer.zeros(4, request.param, name="wide")


@pytest.fixture
def filling(world, wide):
    """An executable with one fill, which takes two or four calls of the driver."""
    graph = cu.Graph(name="wide")
    with graph.capture(world.main):
        wide.fill_async(1.5, world.main)
    return graph.instantiate()


def change_value(step):
    step[0].set(value=2.1)


def disable(step):
    step[0].enabled = False


PART = "cuGraphExecMemsetNodeSetParams"


@pytest.mark.parametrize("change", [change_value, disable])
@pytest.mark.parametrize("nth", [1, 2, "last"])
def test_a_part_of_a_change_fails(world, wide, filling, fault, change, nth):
    nth = wide.itemsize // 4 if nth == "last" else nth
    fault(PART, nth)
    with pytest.raises(cu.CudaError, match=PART):
        change(filling)
    filling.launch(world.main).wait()
    assert list(wide) == [1.5] * 4
    change(filling)
    wide[:] = 0
    filling.launch(world.main).wait()
    assert list(wide) == [0 if change is disable else 2.1] * 4


@pytest.mark.parametrize("nth", [1, 2])
def test_a_fill_that_cannot_be_enabled_stays_disabled(world, wide, filling, fault, nth):
    disable(filling)
    fault(PART, nth)
    with pytest.raises(cu.CudaError, match=PART):
        filling[0].enabled = True
    assert not filling[0].enabled
    filling.launch(world.main).wait()
    assert list(wide) == [0] * 4
    filling[0].enabled = True
    filling.launch(world.main).wait()
    assert list(wide) == [1.5] * 4


def test_a_disabled_fill_that_cannot_be_disabled_again_after_an_update(world, wide, filling, fault):
    disable(filling)
    other = cu.Graph(name="other")
    with other.capture(world.main):
        wide.fill_async(2.1, world.main)
    fault(PART)
    with pytest.raises(cu.CudaError, match=PART):
        filling.update(other)
    with pytest.raises(cu.CaptureError, match="in the middle of a change of fill_async at"):
        filling.launch(world.main)
    filling.close()
    assert list(wide) == [0] * 4


@pytest.mark.parametrize("change", [change_value, disable])
def test_a_part_of_a_change_cannot_be_undone(world, wide, filling, fault, change):
    fault(PART, 2)
    fault(PART, 2)  # counts the calls after the first failure
    with pytest.raises(cu.CudaError, match=PART):
        change(filling)
    for use in (lambda: filling.launch(world.main), lambda: filling[0], lambda: filling.nodes):
        with pytest.raises(cu.CaptureError, match="in the middle of a change of fill_async at"):
            use()
    assert not wide.borrowed
    filling.close()
    wide.close()


CAPTURED = ["cuStreamGetCaptureInfo", "cuGraphNodeGetDependencies", "cuMemsetD2D32Async"]


@pytest.mark.parametrize("function", CAPTURED)
def test_an_operation_of_which_a_part_is_captured(world, wide, fault, function):
    """If a part of an operation is captured, the graph cannot be used.

    The driver's graph contains that part.
    """

    def capture():
        with world.graph.capture(world.main):
            fault(function, 2 if function == "cuMemsetD2D32Async" else 1)
            with pytest.raises(cu.CudaError, match=function):
                wide.fill_async(1.5, world.main)
            world.out.fill_async(1, world.main)

    with pytest.raises(cu.CaptureError, match=r"not captured: fill_async at .* a part of it was"):
        capture()
    assert "not captured" in repr(world.graph)
    wide.close()
    with world.graph.capture(world.main):
        world.out.fill_async(1, world.main)
    world.graph.instantiate().launch(world.main).wait()


def test_an_operation_that_the_driver_refuses_is_left_out(world, wide, fault):
    with world.graph.capture(world.main):
        fault("cuMemsetD2D32Async")
        with pytest.raises(cu.CudaError, match="cuMemsetD2D32Async"):
            wide.fill_async(1.5, world.main)
        world.out.fill_async(1, world.main)
    assert len(world.graph.nodes) == 1
    wide.close()


def test_the_context_is_lost(script):
    script.quiet(
        """
        import cudadrv as cu
        from cudadrv import testing
        stream, buffer = cu.Stream(), cu.DeviceBuffer(16, "f4")
        graph = cu.Graph()
        with graph.capture(stream):
            buffer.fill_async(1, stream)
        step = graph.instantiate()
        testing.configure("fault=operation:1:719")
        step.launch(stream)
        try:
            stream.synchronize()
        except cu.ContextLostError:
            pass
        changes = (
            lambda: step.update(graph),
            lambda: step[0].set(value=2),
            lambda: setattr(step[0], "enabled", False),
        )
        for change in changes:
            try:
                change()
            except cu.ContextLostError:
                continue
            raise AssertionError
        step.close()
        """
    )


def test_a_first_node_that_loses_the_context_says_so(script):
    """The driver call for the first node of a graph loses the context: its error is raised.

    Destroying the driver's new graph fails, too, but does not replace that error.
    """
    said = script.quiet(
        """
        import cudadrv as cu
        from cudadrv import testing

        work, frames = cu.DeviceBuffer(16), cu.LockedBuffer(16)
        testing.configure("fault=cuGraphAddMemcpyNode:1:719")
        try:
            cu.Graph().add_copy(work, frames)
        except cu.ContextLostError as error:
            print(error)
        """
    )
    assert said.startswith("cuGraphAddMemcpyNode: CUDA_ERROR_LAUNCH_FAILED (719)")


def test_the_context_is_lost_during_a_capture(script):
    """The context is lost during a capture: cudadrv makes no more driver calls and ends quietly."""
    said = script.quiet(
        """
        import cudadrv as cu
        from cudadrv import testing

        main, side = cu.Stream(), cu.Stream()
        work, other = cu.DeviceBuffer(16, "f4"), cu.DeviceBuffer(16, "f4")
        ready, graph, empty = cu.Graph(), cu.Graph(), cu.Graph()
        ready.add_fill(work, 1)
        step = ready.instantiate()

        def lost(*calls):
            for call in calls:
                try:
                    call()
                except cu.ContextLostError:
                    continue
                raise AssertionError(call)

        try:
            with graph.capture(main):
                work.fill_async(1, main)
                testing.configure("fault=operation:1:719")
                other.fill_async(1, side)
                lost(
                    side.synchronize,
                    lambda: work.fill_async(2, main),
                    main.record,
                    lambda: side.wait(main),
                    lambda: work.lend(main).__enter__(),
                    lambda: graph.constant([1.0]),
                )
        except cu.ContextLostError:
            pass
        calls = testing.calls() - testing.calls("cuDriverGetVersion")
        lost(
            lambda: graph.capture(main, after=[]).__enter__(),
            lambda: empty.capture(main).__enter__(),
            lambda: ready.add_fill(work, 1),
            lambda: empty.add_fill(work, 1),
            lambda: ready.condition(),
            ready.instantiate,
            lambda: step.launch(main),
            lambda: step.update(ready),
            lambda: empty.add_graph(ready),
        )
        for each in (step, ready, graph, empty, work, main):
            each.close()
        print(testing.calls() - testing.calls("cuDriverGetVersion") - calls)
        """
    )
    assert said == "0\n"


@pytest.mark.parametrize("nth", [1, 2, 4])
def test_a_part_of_a_fill_cannot_be_added(world, fault, nth):
    wide = cu.LockedBuffer.zeros(4, "c16", name="wide")
    graph = cu.Graph()
    fault("cuGraphAddMemsetNode", nth)
    with pytest.raises(cu.CudaError, match="cuGraphAddMemsetNode"):
        graph.add_fill(wide, 1 + 2j)
    assert graph.nodes == ()
    graph.add_fill(wide[1:], 3 + 4j)
    graph.instantiate().launch(world.main).wait()
    assert list(wide) == [0, *[3 + 4j] * 3]
