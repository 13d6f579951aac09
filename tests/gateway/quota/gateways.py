"""The quotas of several gateways in one process, on one real Redis that a test may take away."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import redis

from gateway.quota.lease import QuotaLease
from gateway.quotas import Quotas
from gateway.redis_link import RedisLink
from gateway.refusals import Refused
from gateway.view import compile_view
from tests.servers import Server
from wire.snapshot import GatewaySnapshot, Tenant

LEASE_MS = 600_000


def now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def unix_ms() -> int:
    return time.time_ns() // 1_000_000


class Counting:
    """One gateway's quotas."""

    def __init__(self, url: str, answer_seconds: float) -> None:
        self.link = RedisLink(url, answer_seconds, unix_ms)
        self.quotas = Quotas(now_ms, unix_ms, LEASE_MS)
        self.quotas.count_together(self.link)

    def configure(self, tenant: Tenant, gateways: int, revision: int = 1) -> None:
        self.quotas.configure(compile_view(GatewaySnapshot(schema=1, tenants={"t": tenant}), revision), gateways)

    async def taken(self, tokens: int, sequences: int = 1) -> QuotaLease | None:
        """None where a limit says no."""
        try:
            return await self.quotas.reserve("t", tokens, sequences)
        except Refused:
            return None

    async def uses(self, tokens: int) -> int:
        """Take and use tokens; how many."""
        lease = await self.taken(tokens)
        if lease is None:
            return 0
        lease.settle(tokens, reached_engine=True)
        return tokens

    async def refusal(self, tokens: int, sequences: int = 1) -> Refused:
        try:
            await self.quotas.reserve("t", tokens, sequences)
        except Refused as refused:
            return refused
        raise AssertionError("it was not refused")

    def left(self) -> int:
        return int(dict(self.quotas.headers("t"))[b"x-ratelimit-remaining-tokens"])

    def waiting(self) -> int:
        return self.quotas.moment().waiting


async def until(condition: Callable[[], bool], what: str, timeout_s: float = 15) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout_s} s for {what}"
        await asyncio.sleep(0.005)


@asynccontextmanager
async def counting(
    server: Server, tenant: Tenant, gateways: int, answer_seconds: float = 1
) -> AsyncIterator[list[Counting]]:
    """Gateways that begin on an empty Redis and have found it."""
    # A test that failed may have left it killed.
    await off_loop(server.start)
    with redis.Redis.from_url(server.url) as client:
        client.flushall()
    made = [Counting(f"{server.url}/0", answer_seconds) for _ in range(gateways)]
    try:
        for each in made:
            each.configure(tenant, gateways)
            each.link.start()
        await until_together(made)
        yield made
    finally:
        for each in made:
            await each.quotas.close(0.1)
            await each.link.close()


async def until_together(gateways: list[Counting]) -> None:
    """All have found the Redis, and told it what they had to."""
    await until(lambda: all(each.quotas.is_together for each in gateways), "the Redis to be found")
    await until(lambda: not any(each.waiting() for each in gateways), "all to be told")


async def until_alone(gateways: list[Counting]) -> None:
    await until(lambda: not any(each.quotas.is_together for each in gateways), "the loss to be noticed")


async def off_loop(call: Callable[[], None]) -> None:
    await asyncio.to_thread(call)


@contextmanager
def stopped(server: Server) -> Iterator[None]:
    """It takes connections and answers nothing."""
    with redis.Redis.from_url(server.url) as client:
        pid = int(client.info("server")["process_id"])
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
