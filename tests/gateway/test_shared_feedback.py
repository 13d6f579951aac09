"""A client's verdict reaches the gateway that gave the answer, wherever it comes in."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import redis

from gateway import shared_feedback
from gateway.feedback import Feedback, Told
from gateway.redis_link import RedisLink
from gateway.shared_feedback import SharedFeedback
from tests.gateway.caches.support import AnsweringEngine, cache_of, feedback, with_policy
from tests.gateway.fleet import chat, running_gateway
from tests.gateway.quota.gateways import off_loop, unix_ms, until
from tests.servers import Server, own_redis

pytestmark = pytest.mark.own_servers
CHANNEL = "headworks:feedback"
# What no gateway here is waited for so long, on a busy machine either.
ANSWER_SECONDS = 60


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_feedback, "_ANSWER_SECONDS", ANSWER_SECONDS)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with own_redis() as server:
        yield server


class Gateway:
    """One that remembers some requests of tenant alpha."""

    def __init__(self, url: str, *known: str) -> None:
        self.known, self.heard = set(known), list[str]()
        self.link = RedisLink(url, 1, unix_ms)
        self.shared = SharedFeedback(self.link, self._apply)
        self.link.start()

    async def _apply(self, tenant: str, feedback: Feedback) -> Told | None:
        self.heard.append(feedback.request_id)
        if tenant == "alpha" and feedback.request_id in self.known:
            return Told("exact", "evicted")
        return None

    async def ask(self, request_id: str, tenant: str = "alpha") -> Told | None:
        return await self.shared.ask(tenant, Feedback(request_id, "wrong"))


@asynccontextmanager
async def gateways(server: Server, *known: tuple[str, ...]) -> AsyncIterator[list[Gateway]]:
    await off_loop(server.start)
    with redis.Redis.from_url(server.url) as client:
        made = [Gateway(f"{server.url}/0", *names) for names in known]
        try:
            await until(lambda: listeners(client) == len(made), "all to listen")
            # Redis knows it a moment before they do.
            await until(lambda: all(each.shared._listening for each in made), "all to know it")
            yield made
        finally:
            for each in made:
                await each.shared.close()
                await each.link.close()
        await until(lambda: listeners(client) == 0, "nobody to listen")


def listeners(client: redis.Redis) -> int:
    return dict(client.pubsub_numsub(CHANNEL))[CHANNEL.encode()]


async def test_the_one_that_remembers_a_request_answers(server: Server):
    async with gateways(server, (), ("r-1",), ("r-2",)) as (asking, first, second):
        assert await asking.ask("r-1") == Told("exact", "evicted")
        assert await asking.ask("r-2") == Told("exact", "evicted")
        assert await asking.ask("r-1", tenant="beta") is None
        assert (first.heard, second.heard, asking.heard) == (["r-1", "r-2", "r-1"], ["r-1", "r-2", "r-1"], [])


async def test_that_nobody_knows_is_told_as_soon_as_all_have_said_so(server: Server):
    async with gateways(server, (), (), ()) as (asking, _, _):
        begun = time.monotonic()
        assert await asking.ask("r-1") is None
        assert time.monotonic() - begun < ANSWER_SECONDS / 2


async def test_one_that_is_alone_asks_nobody(server: Server):
    async with gateways(server, ("r-1",)) as (alone,):
        assert await alone.ask("r-1") is None


async def test_many_that_ask_at_once_get_their_own_answers_and_too_many_none(server: Server):
    names = [f"r-{number}" for number in range(64)]
    async with gateways(server, (), tuple(names[::2])) as (asking, _):
        told = await asyncio.gather(*(asking.ask(name) for name in names))
        assert [answer is not None for answer in told] == [True, False] * 32
        told = await asyncio.gather(*(asking.ask("r-0") for _ in range(70)))
        assert [answer is not None for answer in told] == [True] * 64 + [False] * 6


async def test_rubbish_on_the_channel_hurts_nobody(server: Server):
    async with gateways(server, (), ("r-1",)) as (asking, _):
        with redis.Redis.from_url(server.url) as client:
            for rubbish in (b"", b"{", b"\xff", b'{"gateway":"x"}', b'{"number":99,"told":null}', b"[" * 2_000):
                client.publish(CHANNEL, rubbish)
                client.publish(f"{CHANNEL}:{asking.shared._me}", rubbish)
        assert await asking.ask("r-1") == Told("exact", "evicted")


async def test_without_a_redis_nobody_is_asked_and_one_that_comes_back_is_used_again(
    server: Server, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(shared_feedback, "_ANSWER_SECONDS", 1)
    unlinked = SharedFeedback(RedisLink("", 1, unix_ms), Gateway.ask)  # type: ignore[arg-type]
    assert await unlinked.ask("alpha", Feedback("r-1", "wrong")) is None
    await unlinked.close()
    async with gateways(server, (), ("r-1",)) as (asking, _):
        await off_loop(server.kill)
        begun = time.monotonic()
        assert await asking.ask("r-1") is None
        assert time.monotonic() - begun < 10
        await off_loop(server.start)
        deadline = time.monotonic() + 15
        while await asking.ask("r-1") is None:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)


async def test_a_wrong_hit_is_evicted_at_the_gateway_that_gave_it(server: Server, tmp_path: Path):
    await off_loop(server.start)
    engine = AnsweringEngine()
    await engine.start()
    environment = {"HEADWORKS_GATEWAY_REDIS_URL": f"{server.url}/1"}
    content = with_policy(engine.url)
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    async with (
        running_gateway(tmp_path / "one", content, environment) as one,
        running_gateway(tmp_path / "other", content, environment) as other,
    ):
        # Each keeps answers of its own.
        first, _ = await cache_of(one, chat())
        assert (await cache_of(other, chat()))[1] == "miss"
        async with one.post(chat(), headers={"X-Request-Id": "r-1"}) as answer:
            assert await answer.read() == first

        with redis.Redis.from_url(server.url) as client:
            await until(lambda: listeners(client) == 2, "both to listen")
        told = {"request_id": "r-1", "verdict": "wrong", "cache": "exact", "effect": "evicted"}
        await other.until(lambda: feedback(other, "r-1", "wrong"), (200, told), "both to know it")
        assert (await cache_of(one, chat()))[1] == "miss"
        assert (await cache_of(other, chat()))[1].startswith("exact")
        assert await one.metric("headworks_gateway_cache_wrong_hits_total") == 1
        assert await other.metric("headworks_gateway_cache_wrong_hits_total") == 0
        assert (await feedback(other, "r-2", "wrong"))[0] == 404
    await engine.stop()
