from __future__ import annotations

import pytest

from gpu_agent.engines.pages import EnginePages


@pytest.fixture
async def pages():
    pages = EnginePages(timeout_seconds=20, limit_bytes=100_000)
    yield pages
    await pages.close()
