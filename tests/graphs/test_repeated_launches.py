"""Repeated launches of one executable: the engine records them only when it next needs to.

These launches take the fast path, so each program runs in a process with one Python thread.
"""

import pytest

BEGIN = """
import threading
import cudadrv as cu
from cudadrv import testing

stream, other = cu.Stream(name="main"), cu.Stream(name="other")
frames = cu.LockedBuffer.zeros(16, "f4", name="frames")
result = cu.LockedBuffer.zeros(16, "f4", name="result")
work = cu.DeviceBuffer.zeros(16, "f4", name="work")

def captured(source):
    graph = cu.Graph(name="step")
    with graph.capture(stream):
        work.copy_from_async(source, stream)
        result.copy_from_async(work, stream)
    return graph

def refused(call):
    try:
        call()
    except (cu.OwnershipError, cu.CudaError) as error:
        print(*str(error).splitlines()[:2], sep=" ")
    else:
        print("not refused")

def write():
    frames[0] += 1

def launched(times):
    return [step.launch(stream) for _ in range(times)]

step = captured(frames).instantiate()
stream.synchronize()
"""


@pytest.fixture
def program(driver, script):
    def program(text):
        return script.quiet(BEGIN + text).splitlines()

    return program


def test_the_last_of_them_borrows(program):
    said = program(
        """
tokens = launched(3)
tokens.append(
    step.launch(stream))
refused(write)
for token in tokens:
    refused(write)
    token.wait()
refused(write)
print(frames[0])
"""
    )
    assert all("it is being read by copy_from_async at" in line for line in said[:5])
    first, last = said[1].split("launched at "), said[4].split("launched at ")
    # Both messages name the last launch, until it is known to be complete.
    assert first[1] == last[1]
    assert said[5:] == ["not refused", "1.0"]


def test_other_streams_have_to_wait(program):
    said = program(
        """
tokens = launched(3)
fill = lambda: work.fill_async(0, other)
refused(fill)
other.wait(tokens[1])
refused(fill)
other.wait(tokens[2])
refused(fill)
"""
    )
    assert "DeviceBuffer 'work'" in said[0]
    assert "DeviceBuffer 'work'" in said[1]
    assert said[2] == "not refused"


def test_former_work_of_the_stream_stays_borrowed(program):
    said = program(
        """
source = cu.LockedBuffer.zeros(16, "f4", name="source")
reading = cu.Graph(name="reading")
with reading.capture(stream):
    result.copy_from_async(work, stream)
reading = reading.instantiate()
work.copy_from_async(source, stream)
tokens = [reading.launch(stream) for _ in range(3)]
elsewhere = cu.LockedBuffer(16, "f4")
fetch = lambda: work.copy_to_async(elsewhere, other)
refused(fetch)
tokens[0].wait()
refused(lambda: work.fill_async(0, other))
refused(fetch)
"""
    )
    assert "it is being written by copy_from_async on Stream 'main'" in said[0]
    assert "it is being read by copy_from_async at" in said[1]
    assert said[2] == "not refused"


def test_another_executable_comes_between(program):
    said = program(
        """
second = cu.LockedBuffer.zeros(16, "f4", name="second")
again = captured(second).instantiate()
for _ in range(3):
    first, last = launched(2)
    for _ in range(2):
        token = again.launch(stream)
first.wait()
refused(write)
refused(lambda: second.fill(1))
last.wait()
refused(write)
token.wait()
refused(lambda: second.fill(1))
"""
    )
    assert "LockedBuffer 'frames'" in said[0]
    assert "LockedBuffer 'second'" in said[1]
    assert said[2:] == ["not refused"] * 2


def test_other_work_of_the_stream_comes_between(program):
    said = program(
        """
elsewhere = cu.LockedBuffer(16, "f4")
first, last = launched(2)
work.copy_to_async(elsewhere, stream)
first.wait()
refused(write)
last.wait()
refused(write)
refused(lambda: elsewhere.fill(1))
"""
    )
    assert "LockedBuffer 'frames'" in said[0]
    assert said[1] == "not refused"
    assert "it is being written by copy_to_async" in said[2]


def test_another_stream_comes_between(program):
    said = program(
        """
source = cu.LockedBuffer(16, "f4")
work.copy_from_async(source, stream)
launched(3)
token = step.launch(other)
refused(write)
refused(lambda: work.fill_async(0, stream))
token.wait()
refused(lambda: source.fill(1))
launched(1)
token = launched(2)[1]
refused(lambda: work.fill_async(0, other))
token.wait()
refused(write)
"""
    )
    assert "on Stream 'other'" in said[0]
    assert [line == "not refused" for line in said] == [False, False, True, False, True]


@pytest.mark.parametrize("change", ["step[0].set(source=second)", "step.update(captured(second))"])
def test_a_change_comes_between(program, change):
    said = program(
        f"""
second = cu.LockedBuffer(16, "f4", name="second")
second.fill(7)
tokens = launched(3)
{change}
refused(write)
refused(lambda: second.fill(7))
tokens += launched(3)
refused(lambda: second.fill(8))
tokens[2].wait()
refused(write)
tokens[5].wait()
refused(lambda: second.fill(8))
print(result[0])
"""
    )
    assert "LockedBuffer 'frames'" in said[0]
    assert said[1] == "not refused"
    assert "LockedBuffer 'second'" in said[2]
    assert said[3:] == ["not refused", "not refused", "7.0"]


@pytest.mark.parametrize(
    "end", ["del step", "step.close()", "step.close(); del step; graph = None"]
)
def test_the_executable_ends(program, end):
    said = program(
        f"""
token = launched(3)[2]
{end}
refused(write)
token.wait()
refused(write)
"""
    )
    assert "LockedBuffer 'frames'" in said[0]
    assert said[1] == "not refused"


def test_a_thread_begins(program):
    said = program(
        """
tokens = launched(3)
thread = threading.Thread(target=lambda: refused(write))
thread.start()
thread.join()
tokens += launched(2)
thread = threading.Thread(target=lambda: (tokens[2].wait(), refused(write), tokens[4].wait()))
thread.start()
thread.join()
refused(write)
"""
    )
    assert "LockedBuffer 'frames'" in said[0]
    assert "LockedBuffer 'frames'" in said[1]
    assert said[2] == "not refused"


@pytest.mark.cuda_software
def test_a_launch_that_fails_leaves_the_borrows_of_the_last_one(program):
    said = program(
        """
tokens = launched(3)
tokens.append(
    step.launch(stream))
testing.configure("fault=cuGraphLaunch:1:800")
refused(lambda: step.launch(stream))
refused(write)
tokens[2].wait()
refused(write)
tokens[3].wait()
refused(write)
tokens = launched(2)
refused(write)
tokens[1].wait()
refused(write)
"""
    )
    assert "cuGraphLaunch" in said[0]
    assert "LockedBuffer 'frames'" in said[1]
    assert said[1] == said[2]  # both messages name the last launch that was queued
    assert said[3] == "not refused"
    assert "LockedBuffer 'frames'" in said[4]
    assert said[5] == "not refused"
