"""No use of an object whose ``__init__`` never ran crashes, for all extension classes."""

import re
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("bare_objects.py")
# Outcomes that show that the use was not refused early.
WRONG = re.compile(
    r"its process ended with|SystemError|UnboundLocalError|Cuda\w*Error|ContextLostError"
    r"|'NoneType' object (?!cannot be interpreted)|: $"
)


@pytest.mark.parametrize("cuda_schedule", ["eager"], indirect=True)
def test_every_attribute_of_every_class(lines_of):
    lines = lines_of(PROGRAM)
    assert not [line for line in lines if WRONG.search(line)]
    # The output has more than 2000 uses, and these are among them.
    for use in (
        "_module.Module.__getitem__ 0",
        "_stream.Stream.record 0",
        "_driver_pool.DriverPool.trim 0",
    ):
        assert any(
            line.startswith(f"cudadrv.{use}: TypeError") and line.endswith("never initialized")
            for line in lines
        ), use
    assert len(lines) > 2000
