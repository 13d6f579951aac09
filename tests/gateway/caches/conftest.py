"""One gateway with an exact cache, and one with both, for the tests of a file."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.gateway.caches.support import PATIENT, AnsweringEngine, with_policy
from tests.gateway.fleet import RunningGateway, running_gateway


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine_of_file() -> AsyncIterator[AnsweringEngine]:
    engine = AnsweringEngine()
    await engine.start()
    yield engine
    await engine.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def embedder_of_file() -> AsyncIterator[AnsweringEngine]:
    engine = AnsweringEngine()
    await engine.start()
    yield engine
    await engine.stop()


@pytest_asyncio.fixture(loop_scope="module")
async def engine(engine_of_file: AnsweringEngine) -> AnsweringEngine:
    engine_of_file.reset()
    return engine_of_file


@pytest_asyncio.fixture(loop_scope="module")
async def embedder(embedder_of_file: AnsweringEngine) -> AnsweringEngine:
    embedder_of_file.reset()
    embedder_of_file.behave = embedder_of_file.embed
    return embedder_of_file


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def exact(engine_of_file: AnsweringEngine, tmp_path_factory) -> AsyncIterator[RunningGateway]:
    content = with_policy(engine_of_file.url)
    async with running_gateway(tmp_path_factory.mktemp("exact"), content) as gateway:
        yield gateway


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def semantic(
    engine_of_file: AnsweringEngine, embedder_of_file: AnsweringEngine, tmp_path_factory
) -> AsyncIterator[RunningGateway]:
    content = with_policy(engine_of_file.url, embedder_of_file.url)
    async with running_gateway(tmp_path_factory.mktemp("semantic"), content, PATIENT) as gateway:
        yield gateway
