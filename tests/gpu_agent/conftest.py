from __future__ import annotations

import pytest

from simulator.gpu.build import build
from simulator.gpu.state import StateFile, healthy_machine
from tests.gpu_agent.fake_engine import fake_engine
from tests.services import service_binary
from tests.wire.fake_control import JOIN_TOKEN, fake_control


@pytest.fixture
async def control():
    async with fake_control() as running:
        yield running


@pytest.fixture
async def engine():
    async with fake_engine() as running:
        yield running


@pytest.fixture(scope="session")
def fake_nvml(tmp_path_factory):
    """The simulated libnvidia-ml.so.1."""
    service_binary("cc")
    return build(tmp_path_factory.mktemp("fake-nvml"))


@pytest.fixture
def state(tmp_path, monkeypatch):
    """A healthy machine of three GPUs, which the simulated library of this test's processes shows."""
    file = StateFile(tmp_path / "gpus.json")
    file.create(healthy_machine(3))
    monkeypatch.setenv("HEADWORKS_FAKE_NVML_STATE", str(file.path))
    return file


@pytest.fixture
def environment(fake_nvml, state):
    """Settings of an agent's process that reads the simulated GPUs and enrols with the test's control plane."""
    return {
        "HEADWORKS_AGENT_JOIN_TOKEN": JOIN_TOKEN,
        "HEADWORKS_AGENT_GPU_SOURCE": "nvml",
        "HEADWORKS_AGENT_NVML_LIBRARY": str(fake_nvml),
        "HEADWORKS_AGENT_GPU_INTERVAL_SECONDS": "0.2",
    }
