"""All arithmetic instructions on many values. All drivers must give the same bits.

A failure names all instructions of the family with wrong results, and the first operands for which
each of them is wrong. So one run on a GPU finds everything.
"""

import numpy as np
import pytest

import cudadrv as cu

from . import approximations, bits, comparisons, conversions, floats, integers, video
from .kinds import COUNT, operands
from .operation import THREADS, Operation, module_text

FAMILIES = {
    "integers": integers.operations,
    "bits": bits.operations,
    "single precision": floats.singles,
    "double precision": floats.doubles,
    "half precision": floats.half_arithmetic,
    "minimum and maximum": floats.extremes,
    "signs": floats.signs,
    "comparisons": comparisons.operations,
    "conversions": conversions.operations,
    "video": video.operations,
    "approximations": approximations.operations,
}
# One schedule suffices: results of a thread do not depend on when work runs.
one_schedule = pytest.mark.parametrize("cuda_schedule", ["eager"], indirect=True)


class Bench:
    """Runs instructions. Buffers with operands are made once for each combination of types."""

    def __init__(self):
        self.stream = cu.Stream()
        self.inputs: dict[object, list[cu.DeviceBuffer]] = {}
        self.output = cu.DeviceBuffer(COUNT, "u8")

    def buffers(self, kinds) -> list[cu.DeviceBuffer]:
        """Buffers with the operands.

        There are always three: a kernel with fewer operands ignores the rest.
        """
        if kinds not in self.inputs:
            made = [
                cu.DeviceBuffer.from_array(np.array(column, dtype=kind.dtype))
                for kind, column in zip(kinds, operands(kinds), strict=True)
            ]
            self.inputs[kinds] = (made * 3)[:3]
        return self.inputs[kinds]

    def results(self, kernel, operation: Operation) -> list[int]:
        inputs = [cu.read(buffer) for buffer in self.buffers(operation.operands)]
        kernel.launch(COUNT // THREADS, THREADS, self.output, *inputs, stream=self.stream)
        self.stream.synchronize()
        result = np.empty(COUNT, operation.result.dtype)
        self.output.view(result.dtype)[:COUNT].copy_to(result)
        return result.tolist()


@one_schedule
@pytest.mark.parametrize("family", FAMILIES)
def test_bits(driver, family):
    operations = FAMILIES[family]()
    if not cu.driver_info().is_software:
        operations = [each for each in operations if video.runs_as_specified(each)]
    bench = Bench()
    wrong = []
    with cu.Module(module_text(operations)) as module:
        for i, operation in enumerate(operations):
            difference = operation.difference(bench.results(module[f"k{i}"], operation))
            if difference:
                wrong.append(difference)
    assert not wrong, f"{len(wrong)} of {len(operations)} instructions:\n" + "\n".join(wrong)


def test_few_video_instructions_are_left_out_on_real_drivers():
    operations = video.operations()
    left_out = [each for each in operations if not video.runs_as_specified(each)]
    assert (len(operations), len(left_out)) == (361, 36)
