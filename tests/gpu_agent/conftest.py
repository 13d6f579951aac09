from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.gpu_agent.fake_engine import fake_engine
from tests.services import in_ci
from tests.wire.fake_control import fake_control

FAKE_NVML_SOURCE = Path(__file__).parent / "data" / "fake_nvml.c"


@pytest.fixture
async def control():
    async with fake_control() as running:
        yield running


@pytest.fixture
async def engine():
    async with fake_engine() as running:
        yield running


@pytest.fixture(scope="session")
def fake_nvml_dir(tmp_path_factory):
    """A folder with a libnvidia-ml.so.1 of three GPUs, for LD_LIBRARY_PATH."""
    compiler = shutil.which("cc")
    if compiler is None:
        (pytest.fail if in_ci() else pytest.skip)("needs cc: apt-get install gcc")
    folder = tmp_path_factory.mktemp("nvml")
    library = folder / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-Wall", "-Werror", "-o", library, FAKE_NVML_SOURCE], check=True)
    return folder
