"""Fixtures of tests with several processes."""

import pytest
from other_process import Other


@pytest.fixture
def other(driver):
    process = Other(driver)
    yield process
    if process.process.returncode is None:
        assert process.end() == 0
