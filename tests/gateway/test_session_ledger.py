"""A session that wanders between gateways is counted once, as a whole, while their Redis is there."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from gateway.redis_link import RedisLink
from gateway.session_ledger import Closing, SessionLedger, Standing
from policy.sessions import NOTHING, Ended, Spent
from tests.gateway.fleet import RunningGateway, ScriptedEngine, changed, chat, configuration, running_gateway
from tests.servers import Server, own_redis
from wire.snapshot import SessionLimits

pytestmark = pytest.mark.own_servers
LEASE_MS, IDLE_MS = 60_000, 3_600_000
MOST = Spent(1, 150, 40)
CLOSED = Closing(Ended("tokens", 101, 900, 0, 1000, closes=True), SessionLimits(max_tokens=1000))


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with own_redis() as server:
        yield server


@pytest.fixture
def redis_url(server: Server) -> str:
    return server.url


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    async with Redis.from_url(redis_url) as client:
        yield client


@asynccontextmanager
async def ledger_of(url: str, lease_ms: int = LEASE_MS, answer_seconds: float = 2.0) -> AsyncIterator[SessionLedger]:
    link = RedisLink(url, answer_seconds, lambda: 0)
    ledger = SessionLedger(link, lease_ms)
    link.start()
    await until(lambda: is_alive(ledger))
    yield ledger
    await ledger.close()
    await link.close()


async def until(ask: Callable[[], Awaitable[bool]], timeout_s: float = 10) -> None:
    deadline = time.monotonic() + timeout_s
    while not await ask():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


async def is_alive(ledger: SessionLedger) -> bool:
    return ledger.alive


class Named:
    """One session, asked for at any ledger."""

    def __init__(self) -> None:
        self.name = secrets.token_hex(8)

    async def take(self, ledger: SessionLedger, idle_ms: int = IDLE_MS) -> tuple[Standing, Any]:
        together = await ledger.take("alpha", self.name, MOST, idle_ms)
        assert together is not None
        return together

    async def standing(self, ledger: SessionLedger) -> Standing:
        """By a call that is taken back."""
        standing, held = await self.take(ledger)
        ledger.settle(held, NOTHING)
        await ledger.close()
        return standing

    async def runs(self, ledger: SessionLedger, running: Spent) -> bool:
        return (await self.standing(ledger)).running == running


async def test_what_one_gateway_took_another_one_knows(redis_url: str):
    session = Named()
    async with ledger_of(redis_url) as here, ledger_of(redis_url) as there:
        standing, held = await session.take(here)
        assert standing == Standing(NOTHING, NOTHING, None)
        assert (await session.standing(there)).running == MOST
        here.settle(held, Spent(1, 120, 33))
        await here.close()
        assert await session.standing(there) == Standing(Spent(1, 120, 33), NOTHING, None)


async def test_a_closed_session_is_closed_everywhere(redis_url: str):
    session = Named()
    async with ledger_of(redis_url) as here, ledger_of(redis_url) as there:
        _, held = await session.take(here)
        here.settle(held, NOTHING, CLOSED)
        await here.close()
        assert (await session.standing(there)).closed == CLOSED


async def test_a_session_of_which_no_call_ran_leaves_nothing_behind(redis_url: str, redis: Redis):
    session, before = Named(), await redis.keys("headworks:session:*")
    async with ledger_of(redis_url) as ledger:
        _, first = await session.take(ledger)
        _, second = await session.take(ledger)
        ledger.settle(first, NOTHING)
        await ledger.close()
        assert len(await redis.keys("headworks:session:*")) == len(before) + 1
        ledger.settle(second, NOTHING)
        await ledger.close()
        assert len(await redis.keys("headworks:session:*")) == len(before)


async def test_calls_side_by_side_at_two_gateways_all_see_the_ones_before(redis_url: str):
    session = Named()
    async with ledger_of(redis_url) as here, ledger_of(redis_url) as there:
        taken = await asyncio.gather(*(session.take(ledger) for ledger in (here, there) * 10))
        assert sorted(standing.running.iterations for standing, _ in taken) == list(range(20))


async def test_what_a_gateway_that_died_had_reserved_lapses(redis_url: str):
    session = Named()
    async with ledger_of(redis_url, lease_ms=50) as dying, ledger_of(redis_url) as living:
        await session.take(dying)
        await until(lambda: session.runs(living, NOTHING))


async def test_a_session_is_forgotten_when_it_is_idle_and_not_while_a_call_runs(redis_url: str, redis: Redis):
    session = Named()
    async with ledger_of(redis_url) as ledger:
        _, held = await session.take(ledger, idle_ms=1_000)
        assert LEASE_MS - 5_000 < await redis.pttl(held.key) <= LEASE_MS
        ledger.settle(held, MOST)
        await ledger.close()
        assert 0 < await redis.pttl(held.key) <= 1_000


async def test_a_session_is_named_on_the_redis_by_no_word_of_its_client(redis_url: str):
    async with ledger_of(redis_url) as ledger:
        taken = await ledger.take("alpha", "secret-plan", MOST, IDLE_MS)
        assert taken is not None
        assert "secret-plan" not in taken[1].key


async def test_a_call_whose_client_leaves_while_the_redis_is_asked_is_taken_back(redis_url: str, redis: Redis):
    session = Named()
    async with ledger_of(redis_url) as ledger:
        await session.take(ledger)
        await redis.client_pause(300, all=True)
        leaving = asyncio.ensure_future(session.take(ledger))
        await asyncio.sleep(0)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        await until(lambda: session.runs(ledger, MOST))


async def test_a_redis_that_is_slow_is_not_waited_for_and_what_it_counts_late_is_taken_back(
    redis_url: str, redis: Redis
):
    session = Named()
    async with ledger_of(redis_url, answer_seconds=0.1) as ledger:
        await redis.client_pause(400, all=True)
        assert await ledger.take("alpha", session.name, MOST, IDLE_MS) is None
        assert not ledger.alive
        await until(lambda: is_alive(ledger))
        await until(lambda: session.runs(ledger, NOTHING))


async def test_what_another_version_wrote_closes_nothing(redis_url: str, redis: Redis):
    session = Named()
    async with ledger_of(redis_url) as ledger:
        _, held = await session.take(ledger)
        await redis.hset(held.key, "closed", '["moon", 1]')
        assert (await session.standing(ledger)).closed is None


@pytest.mark.parametrize("broken", ["text", "count", "lease"])
async def test_what_somebody_else_wrote_there_is_one_sessions_alone(
    redis_url: str, redis: Redis, caplog: pytest.LogCaptureFixture, broken: str
):
    session, another = Named(), Named()
    async with ledger_of(redis_url) as ledger:
        _, held = await session.take(ledger)
        match broken:
            case "text":
                await redis.set(held.key, "by hand")
            case "count":
                await redis.hset(held.key, "calls", "many")
            case _:
                await redis.hset(held.key, "lease:x", "1 2 soon")
        was = await redis.dump(held.key)
        for _ in range(2):
            assert await ledger.take("alpha", session.name, MOST, IDLE_MS) is None, "this gateway goes by its own"
        ledger.settle(held, MOST)
        await ledger.close()
        await another.take(ledger)
        assert ledger.alive
        assert await redis.dump(held.key) == was
        said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        assert len(said) == 1
        assert "a session of tenant alpha" in said[0]


def _limited(engine: ScriptedEngine, max_iterations: int) -> dict[str, Any]:
    return changed(
        configuration(engine.url),
        tenants__alpha={"session_limits": "agents"},
        session_limits__agents={"max_iterations": max_iterations},
    )


async def test_a_session_ends_at_its_ceiling_whichever_gateways_it_calls(
    engine: ScriptedEngine, tmp_path: Path, redis_url: str
):
    content, environment = _limited(engine, 3), {"HEADWORKS_GATEWAY_REDIS_URL": redis_url}
    async with (
        running_gateway(_folder(tmp_path, "a"), content, environment) as first,
        running_gateway(_folder(tmp_path, "b"), content, environment) as second,
    ):
        for gateway in (first, second):
            await until(partial(_counts_together, gateway))
        mine = {"X-Session-Id": secrets.token_hex(8)}
        statuses = [(await gateway.call(chat(), headers=mine))[0] for gateway in (first, second, first)]
        assert statuses == [200, 200, 200]
        assert await second.refusal(chat(), headers=mine) == (429, "session_iterations")
        assert await first.refusal(chat(), headers=mine) == (429, "session_iterations")
        assert len(engine.bodies) == 3


async def test_while_the_redis_is_away_a_gateway_goes_by_what_it_has_seen(engine: ScriptedEngine, tmp_path: Path):
    with own_redis() as server:
        environment = {"HEADWORKS_GATEWAY_REDIS_URL": server.url}
        async with running_gateway(tmp_path, _limited(engine, 2), environment) as gateway:
            await until(partial(_counts_together, gateway))
            mine = {"X-Session-Id": secrets.token_hex(8)}
            assert (await gateway.call(chat(), headers=mine))[0] == 200
            await asyncio.to_thread(server.kill)
            assert (await gateway.call(chat(), headers=mine))[0] == 200
            assert await gateway.refusal(chat(), headers=mine) == (429, "session_iterations")


async def test_a_gateway_that_is_killed_without_a_redis_begins_its_sessions_anew_and_with_one_does_not(
    engine: ScriptedEngine, tmp_path: Path, redis_url: str
):
    for name, url, status in (("alone", "", 200), ("together", redis_url, 429)):
        environment = {"HEADWORKS_GATEWAY_REDIS_URL": url}
        async with running_gateway(_folder(tmp_path, name), _limited(engine, 1), environment) as gateway:
            if url:
                await until(partial(_counts_together, gateway))
            mine = {"X-Session-Id": secrets.token_hex(8)}
            assert (await gateway.call(chat(), headers=mine))[0] == 200
            assert (await gateway.call(chat(), headers=mine))[0] == 429
            await asyncio.to_thread(gateway.process.kill)
            (gateway.state_dir.parent / "gateway.log").unlink()
            gateway.launch()
            await gateway.until_ready()
            if url:
                await until(partial(_counts_together, gateway))
            assert (await gateway.call(chat(), headers=mine))[0] == status


def _folder(tmp_path: Path, name: str) -> Path:
    folder = tmp_path / name
    folder.mkdir()
    return folder


async def _counts_together(gateway: RunningGateway) -> bool:
    """Whether the gateway has found the Redis."""
    return "limits are counted together" in gateway.process.log_tail()
