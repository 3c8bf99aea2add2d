"""Fixtures of the tests of pools."""

import pytest

import cudadrv as cu


@pytest.fixture(autouse=True)
def pools(driver):
    """The pools of device 0, which are empty."""
    cu.reap()
    return cu.Device(0).context.pools
