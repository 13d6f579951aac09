from __future__ import annotations

import asyncio
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest

from gpu_agent.engines.pages import EnginePages, PageUnavailable
from tests.wire.fake_control import DEADLINE_SECONDS


@pytest.fixture
async def pages():
    pages = EnginePages(timeout_seconds=0.1, limit_bytes=100_000)
    yield pages
    await pages.close()


@pytest.fixture
def asked(monkeypatch):
    """The names of which DNS was asked. It does not answer until the test ends, but for localhost."""
    asked: list[str] = []
    over = threading.Event()
    real = socket.getaddrinfo

    def answer(host, *args, **kwargs):
        asked.append(host)
        if host != "localhost":
            over.wait(DEADLINE_SECONDS)
        return real("127.0.0.1" if host != "localhost" else host, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    yield asked
    over.set()


async def test_dns_that_does_not_answer_takes_none_of_the_loops_threads_and_is_asked_once(pages, asked):
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(max_workers=1))
    for _ in range(3):
        with pytest.raises(PageUnavailable, match="no answer in time") as refused:
            await pages.read("http://engine-1.test:8000/health", pages.deadline())
        assert refused.value.reach == "unreachable"
    async with asyncio.timeout(DEADLINE_SECONDS / 2):
        assert await asyncio.to_thread(lambda: "written") == "written"
    assert asked == ["engine-1.test"]


async def test_an_engine_by_name_is_found_while_dns_owes_the_answer_of_another(pages, engine, asked):
    waiting = asyncio.create_task(pages.read("http://engine-1.test:8000/health", pages.deadline()))
    port = urlsplit(engine.url).port
    within = asyncio.get_running_loop().time() + DEADLINE_SECONDS / 2
    assert await pages.read(f"http://localhost:{port}/version", within)
    with pytest.raises(PageUnavailable):
        await waiting


async def test_engines_of_one_name_are_looked_for_at_once(engine):
    """As at the first round of looks at a server of eight engines."""
    port_of_engine = urlsplit(engine.url).port
    pages = EnginePages(timeout_seconds=DEADLINE_SECONDS, limit_bytes=100_000)
    try:
        answers = await asyncio.gather(
            *(pages.read(f"http://localhost:{port}/version", pages.deadline()) for port in (1, 2, port_of_engine)),
            return_exceptions=True,
        )
    finally:
        await pages.close()
    assert [getattr(each, "reach", "") for each in answers] == ["refused", "refused", ""]
