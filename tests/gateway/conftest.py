"""One scripted engine and one gateway process before it, for tests that need no other fleet."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.gateway.fleet import RunningGateway, ScriptedEngine, configuration, running_gateway


@pytest.fixture
async def engine() -> AsyncIterator[ScriptedEngine]:
    engine = ScriptedEngine()
    await engine.start()
    yield engine
    await engine.stop()


@pytest.fixture
async def second_engine() -> AsyncIterator[ScriptedEngine]:
    engine = ScriptedEngine()
    await engine.start()
    yield engine
    await engine.stop()


@pytest.fixture
async def gateway(engine: ScriptedEngine, tmp_path: Path) -> AsyncIterator[RunningGateway]:
    async with running_gateway(tmp_path, configuration(engine.url)) as gateway:
        yield gateway
