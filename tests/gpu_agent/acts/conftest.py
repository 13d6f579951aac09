from __future__ import annotations

import pytest

from tests.gpu_agent.acts.unit import unit_in
from tests.simulator.conftest import start_engine as start_engine


@pytest.fixture
def engine_url(start_engine):
    """A simulated vLLM in which everything can be changed."""
    return start_engine("--dev-mode", "--runtime-lora", "--speed", "20").url


@pytest.fixture
def unit(tmp_path):
    with unit_in(tmp_path) as running:
        yield running
