"""One scripted engine and one gateway before it for all tests of a file."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.gateway.fleet import RunningGateway, ScriptedEngine, running_gateway, shared_configuration, usage


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running_engine() -> AsyncIterator[ScriptedEngine]:
    engine = ScriptedEngine()
    await engine.start()
    yield engine
    await engine.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(
    running_engine: ScriptedEngine, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[RunningGateway]:
    content = shared_configuration(running_engine.url)
    async with running_gateway(tmp_path_factory.mktemp("gateway"), content) as gateway:
        yield gateway


@pytest.fixture
def engine(running_engine: ScriptedEngine) -> ScriptedEngine:
    running_engine.behave, running_engine.usage = running_engine.answer, usage(7, 2)
    running_engine.release.clear()
    running_engine.bodies.clear()
    return running_engine
