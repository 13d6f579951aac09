"""What one gateway's breakers learn reaches the others in less than a second, and those that come later."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
import redis

from gateway.redis_link import RedisLink
from gateway.shared_breakers import SharedBreakers
from policy.breaker import State
from tests.gateway.quota.gateways import off_loop, unix_ms, until
from tests.servers import Server, own_redis

pytestmark = pytest.mark.own_servers
COOLDOWN_MS = 60_000


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with own_redis() as server:
        yield server


class Listener:
    """A gateway's breakers, and what it heard of others."""

    def __init__(self, url: str, clock_ahead_ms: int = 0) -> None:
        self.heard: list[tuple[str, str, State, int]] = []
        self.heard_at: list[float] = []
        self._ahead_ms = clock_ahead_ms
        self.link = RedisLink(url, 1, self.unix_ms)
        self.breakers = SharedBreakers(self.link, self.unix_ms, self._hear)
        self.link.start()

    def unix_ms(self) -> int:
        return unix_ms() + self._ahead_ms

    def _hear(self, kind: str, name: str, state: State, until_unix_ms: int) -> None:
        self.heard.append((kind, name, state, until_unix_ms))
        self.heard_at.append(time.monotonic())

    def opens(self, name: str, for_ms: int = COOLDOWN_MS) -> None:
        self.breakers.on_change("engine", name, "open", self.unix_ms() + for_ms)

    def states(self) -> list[tuple[str, State]]:
        return [(name, state) for _, name, state, _ in self.heard]

    async def hears(self, *states: tuple[str, State]) -> None:
        await until(lambda: len(self.heard) >= len(states), f"{states}")
        assert self.states() == list(states)


@asynccontextmanager
async def listeners(server: Server, *clocks_ahead_ms: int) -> AsyncIterator[list[Listener]]:
    await off_loop(server.start)
    with redis.Redis.from_url(server.url) as client:
        client.flushall()
        client.config_resetstat()
        made = [Listener(f"{server.url}/0", ahead) for ahead in clocks_ahead_ms]
        try:
            await until(lambda: caught_up(client) == len(made), "all to listen")
            yield made
        finally:
            for each in made:
                await each.breakers.close()
                await each.link.close()


def caught_up(client: redis.Redis) -> int:
    """How many listen, and have asked for what was before."""
    return int(client.info("commandstats").get("cmdstat_hgetall", {"calls": 0})["calls"])


async def test_a_breaker_that_opens_is_heard_of_in_less_than_a_second(server: Server):
    async with listeners(server, 0, 0) as (one, other):
        told_at = []
        for number in range(20):
            told_at.append(time.monotonic())
            one.opens(f"e{number}")
            await until(lambda count=number + 1: len(other.heard) == count, "it to be heard")  # type: ignore[misc]
        delays = [heard - told for told, heard in zip(told_at, other.heard_at, strict=True)]
        print(f"from gateway to gateway: {sorted(delays)[10] * 1000:.1f} ms, at most {max(delays) * 1000:.1f} ms")
        assert max(delays) < 1
        assert one.heard == [], "nobody hears of its own"


async def test_closing_is_heard_of_and_a_pool_is_no_engine(server: Server):
    async with listeners(server, 0, 0) as (one, other):
        one.opens("e0")
        one.breakers.on_change("pool", "e0", "open", one.unix_ms() + COOLDOWN_MS)
        await other.hears(("e0", "open"), ("e0", "open"))
        assert {kind for kind, *_ in other.heard} == {"engine", "pool"}
        one.breakers.on_change("engine", "e0", "half_open", 0)
        one.breakers.on_change("engine", "e0", "closed", 0)
        await other.hears(("e0", "open"), ("e0", "open"), ("e0", "closed"))


async def test_clocks_that_differ_do_not_change_how_long_it_is_open(server: Server):
    async with listeners(server, 0, 3_600_000) as (one, other):
        one.opens("e0", 5_000)
        await other.hears(("e0", "open"))
        assert 4_000 < other.heard[0][3] - other.unix_ms() <= 5_000


async def test_a_second_cooldown_never_shortens_the_first_and_another_gateway_does_not_close_it(server: Server):
    async with listeners(server, 0, 0, 0) as (one, other, third):
        one.opens("e0", 50_000)
        await third.hears(("e0", "open"))
        other.opens("e0", 5_000)
        await third.hears(("e0", "open"), ("e0", "open"))
        assert third.heard[1][3] - third.unix_ms() > 45_000
        other.breakers.on_change("engine", "e0", "closed", 0)
        other.opens("e1")
        await third.hears(("e0", "open"), ("e0", "open"), ("e1", "open"))


async def test_a_gateway_that_comes_later_hears_what_is_open_still(server: Server):
    async with listeners(server, 0, 0) as (one, other):
        one.opens("long")
        one.opens("closed")
        one.opens("short", 100)
        one.breakers.on_change("engine", "closed", "closed", 0)
        await until(lambda: ("short", "open") in other.states(), "all to be told")
        short_until_ms = max(until_ms for _, name, _, until_ms in other.heard if name == "short")
        await until(lambda: unix_ms() > short_until_ms, "a cooldown to end")
        late = Listener(f"{server.url}/0")
        await until(lambda: ("long", "open") in late.states(), "it to be heard")
        with redis.Redis.from_url(server.url) as client:
            assert COOLDOWN_MS - 15_000 < client.pttl("headworks:breakers") <= COOLDOWN_MS, "no longer than it is open"
            one.opens("long2")
            await until(lambda: ("long2", "open") in late.states(), "it to be heard")
            assert set(client.hkeys("headworks:breakers")) == {b"engine long", b"engine long2"}
        assert [state for state in late.states() if state[0] == "closed"] == []
        assert all(until_ms > short_until_ms for _, name, _, until_ms in late.heard if name != "short")
        await late.breakers.close()
        await late.link.close()


async def test_what_opened_while_the_redis_was_away_is_told_when_it_is_back(server: Server):
    async with listeners(server, 0, 0) as (one, other):
        one.opens("before")
        await other.hears(("before", "open"))
        await off_loop(server.kill)
        await until(lambda: not one.link.alive, "the loss to be noticed")
        one.opens("meanwhile")
        one.opens("over", 1)
        await off_loop(server.start)
        await until(lambda: ("meanwhile", "open") in other.states(), "it to be told")
        late = Listener(f"{server.url}/0")
        await until(lambda: len(late.heard) >= 2, "what the Redis had lost too")
        assert {name for name, _ in late.states()} == {"before", "meanwhile"}
        await late.breakers.close()
        await late.link.close()


async def test_what_somebody_else_wrote_over_is_begun_anew(server: Server):
    async with listeners(server, 0, 0) as (one, other):
        with redis.Redis.from_url(server.url) as client:
            client.set("headworks:breakers", "by hand")
            one.opens("e0")
            await other.hears(("e0", "open"))
            client.hset("headworks:breakers", "engine e0", "by hand")
            one.opens("e0")
            await other.hears(("e0", "open"), ("e0", "open"))
            assert one.link.alive
            assert client.hkeys("headworks:breakers") == [b"engine e0"]


async def test_what_no_gateway_sent_is_passed_over(server: Server):
    async with listeners(server, 0, 0) as (one, other):
        with redis.Redis.from_url(server.url) as client:
            words = ("open x me", "open ² me", "broken 5 me", "open 5")
            for rubbish in ("", b"\xff\xfe", "node e0 open 5 me", *(f"engine e0 {rest}" for rest in words)):
                client.publish("headworks:breakers:changes", rubbish)
            client.hset("headworks:breakers", mapping={"engine e0": "9" * 13, "rubbish": "x"})
            one.opens("e0")
            await other.hears(("e0", "open"))
            assert client.hkeys("headworks:breakers") == [b"engine e0"]
