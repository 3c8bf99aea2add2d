"""A fixture with an engine for each test; adds the folders of the test modules to sys.path."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from private_engine import Domain, Engine, MemoryState, StreamState


@pytest.fixture
def domain():
    return Domain(Engine())


@pytest.fixture
def memory(domain):
    return MemoryState(domain.engine, 8)


@pytest.fixture
def streams(domain):
    return [StreamState(domain) for _ in range(3)]
