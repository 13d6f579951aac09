from __future__ import annotations

import pytest

from tests.wire.fake_control import TOKEN, fake_control
from wire.credentials import Credentials, store_credentials


@pytest.fixture
async def control():
    async with fake_control() as running:
        yield running


@pytest.fixture
def state_dir(tmp_path):
    """The state folder of a target that has enrolled."""
    store_credentials(tmp_path, Credentials("gw-1", TOKEN, 4_000_000_000_000, 3_900_000_000_000))
    return tmp_path
