"""One scripted engine and one gateway process before it, for tests that need no other fleet."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.gateway.fleet import RunningGateway, ScriptedEngine, configuration, running_gateway, scripted_engine

engine = pytest_asyncio.fixture(scripted_engine)
second_engine = pytest_asyncio.fixture(scripted_engine)


@pytest.fixture
async def gateway(engine: ScriptedEngine, tmp_path: Path) -> AsyncIterator[RunningGateway]:
    async with running_gateway(tmp_path, configuration(engine.url)) as gateway:
        yield gateway
