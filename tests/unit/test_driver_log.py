"""`CudaError.notes`: what the driver logged about the call that failed."""

import ctypes
import pickle
import subprocess
import sys
import traceback
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "ownership"))
from compiled import compiled

import cudadrv as cu

EXPECTED = """\
no failure:
a line without a failure:
a failure: a b
another thread: other
the first thread: a b
a line of the next failure:
the next failure: c
a failure without lines:
many lines: 3 4 5 6 7 8 9 10
a long line: xxxxxxxx...512
"""


def test_which_lines_are_kept(tmp_path):
    program = tmp_path / "driver_log"
    assert not compiled(Path(__file__).parent / "driver_log.c", program)
    done = subprocess.run([program], capture_output=True, text=True, check=True)
    assert done.stdout == EXPECTED


def out_of_memory():
    with pytest.raises(cu.CudaOutOfMemoryError) as failed:
        cu.DeviceBuffer(1 << 50)
    return failed.value


def test_the_line_that_repeats_the_status_is_left_out():
    error = out_of_memory()
    assert isinstance(error.notes, tuple)
    assert not [line for line in error.notes if "Returning" in line]


@pytest.mark.cuda_software  # only its log is known
def test_a_failure_of_another_library_is_not_in_the_notes():
    driver = ctypes.CDLL(cu.driver_info().path)
    graphics = (ctypes.c_uint64 * 3)(0, 0, 16)
    with cu.Device(0).context:
        assert driver.cuCtxCreate_v4(ctypes.byref(ctypes.c_void_p()), graphics, 0, 0) == 801
    assert out_of_memory().notes == ()


WILD = """
.version 8.0
.target sm_70
.address_size 64
.visible .entry wild(.param .u64 at)
{
    .reg .b64 %a;
    ld.param.u64 %a, [at];
    st.global.u64 [%a + 1000000], %a;
    ret;
}
"""


@pytest.fixture
def fault():
    """A function that raises the error of a kernel that stored beyond its buffer."""
    stream = cu.Stream()
    buffer = cu.DeviceBuffer(8, stream=stream)
    kernel = cu.Module(WILD)["wild"]

    def fail():
        kernel.launch(1, 1, buffer, stream=stream)
        with pytest.raises(cu.ContextLostError) as failed:
            stream.synchronize()
        return failed.value

    yield fail
    cu.testing.reset_device()


@pytest.mark.cuda_software
def test_a_fault_is_in_the_notes_and_once_in_the_traceback(fault):
    error = fault()
    [line] = error.notes
    assert line.startswith("kernel 'wild', PTX line 9: st.global.u64: write of 8 bytes at ")
    text = "".join(traceback.format_exception(error))
    assert text.count(line) == 1


@pytest.mark.cuda_software
def test_notes_survive_pickle(fault):
    error = fault()
    error.add_note("seen by a test")
    again = pickle.loads(pickle.dumps(error))
    assert (again.notes, again.suspects) == (error.notes, error.suspects)
    assert again.__notes__ == error.__notes__


@pytest.mark.cuda_software
def test_lines_belong_to_the_thread_whose_call_failed(fault, in_a_thread):
    error = fault()
    assert cu.CudaError(error.status, error.call).notes == error.notes
    assert in_a_thread(lambda: cu.CudaError(error.status, error.call).notes) == ()
