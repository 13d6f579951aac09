"""Gateways that race on one tenant's limit: how many tokens pass beyond it, while their Redis is there and while not.

Eight real gateways, one Redis, one engine that counts what reaches it, all on 127.0.0.1. Clients of every gateway ask
all the time for more than the tenant may have, each request for the same number of tokens. First the Redis stays;
then, with another tenant, it is killed and loses all it knew, and later is started again, empty.

A limit of L a minute is a bucket of L that refills evenly: from the first request on, at most L + L × t may have passed
after t minutes. Whatever reached the engine beyond that, at any moment, is over the limit. The bucket is empty all the
while, so no later window can have been given more. Of what the limit allows, nearly all must be used.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import math
import secrets
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast

import aiohttp
import uvloop
from prometheus_client.parser import text_string_to_metric_families

from bench.support.http_load import request_bytes, worker
from bench.support.processes import running
from bench.support.report import Targets, report
from bench.support.snapshot_server import SnapshotServer, snapshot_server
from controlplane.demo.ports import free_port

GATEWAYS = 8
SECONDS = 8.0
CONNECTIONS = 4
PAUSE_MS = 20
TOKENS_A_MINUTE = 30_000
TOKENS_A_REQUEST = 20
START_SECONDS = 60
# Ten processes share this machine's few cores: none of them goes alone for that.
ANSWER_SECONDS = 2
MODEL = "bench/model"
PATH = "/v1/chat/completions"
TARGETS: Targets = {
    "with_redis_tokens_over_limit": ("at most", 0),
    "with_redis_used_percent": ("at least", 95),
    "with_redis_decided_alone": ("at most", 0),
    "redis_killed_tokens_over_limit": ("at most", 0),
    "redis_killed_used_percent": ("at least", 80),
}


class Counted:
    """When chats reached the engine, and what it answers them."""

    def __init__(self) -> None:
        self.arrivals: list[float] = []
        self.answer = b""

    def answers(self, prompt_tokens: int, output_tokens: int) -> None:
        usage = {"prompt_tokens": prompt_tokens, "completion_tokens": output_tokens}
        choices = [{"message": {"content": "a"}}]
        body = json.dumps({"object": "chat.completion", "choices": choices, "usage": usage}).encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        self.answer = head.encode() + body


class CountingEngine(asyncio.Protocol):
    """Answers each chat at once and notes when it came; knows no other path."""

    def __init__(self, counted: Counted) -> None:
        self._counted = counted
        self._buffer = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (end := self._request_end()) is not None and self._transport is not None:
            request, self._buffer = self._buffer[:end], self._buffer[end:]
            if request.startswith(f"POST {PATH} ".encode()):
                self._counted.arrivals.append(time.perf_counter())
                self._transport.write(self._counted.answer)
            else:
                self._transport.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")

    def _request_end(self) -> int | None:
        """Where the first request in the buffer ends, if all of it is there."""
        head, mark, body = self._buffer.partition(b"\r\n\r\n")
        if not mark:
            return None
        _, _, rest = head.lower().partition(b"\r\ncontent-length:")
        size = int(rest.split(b"\r\n", 1)[0]) if rest else 0
        return len(head) + len(mark) + size if len(body) >= size else None


class Passed(NamedTuple):
    """What reached the engine of a tenant: tokens beyond the limit at the worst moment, and of what was allowed."""

    tokens_over_limit: float
    used_percent: float


def passed(arrivals: list[float], began: float, ended: float) -> Passed:
    def allowed(at: float) -> float:
        return TOKENS_A_MINUTE * (1 + (at - began) / 60)

    beyond = [(number + 1) * TOKENS_A_REQUEST - allowed(at) for number, at in enumerate(arrivals)]
    used = len(arrivals) * TOKENS_A_REQUEST
    return Passed(max(0, math.ceil(max(beyond, default=0))), 100 * used / allowed(ended))


def configuration(keys: dict[str, str], engine_port: int) -> dict[str, Any]:
    limits = {"tpm_limit": TOKENS_A_MINUTE}
    return {
        "kind": "gateway",
        "schema": 1,
        "tenants": {"probe": {}, "with-redis": limits, "redis-killed": limits},
        "keys": {
            hashlib.sha256(key.encode()).hexdigest(): {"tenant": tenant, "prefix": key[:8]}
            for tenant, key in keys.items()
        },
        "models": {MODEL: {"max_context_tokens": 8192, "default_max_tokens": 256, "max_tokens": 4096}},
        "pools": {"main": {"model": MODEL}},
        "engines": {
            "e0": {"url": f"http://127.0.0.1:{engine_port}", "kind": "vllm", "pool": "main", "served_model": MODEL}
        },
        "routes": {"all": {"order": 1, "pools": {"main": 1000}}},
    }


def chat(max_tokens: int) -> bytes:
    message = {"role": "user", "content": "a question"}
    return json.dumps({"model": MODEL, "messages": [message], "max_tokens": max_tokens}).encode()


class RedisProcess:
    """A Redis that keeps nothing on disk."""

    def __init__(self, binary: str, folder: Path) -> None:
        self.port = free_port()
        self._argv = [binary, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        quiet = asyncio.subprocess.DEVNULL
        self._process = await asyncio.create_subprocess_exec(*self._argv, stdout=quiet, stderr=quiet)

    async def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()


class Race:
    """The gateways and their clients."""

    def __init__(self, ports: list[int], keys: dict[str, str], http: aiohttp.ClientSession, counted: Counted) -> None:
        self._ports, self._keys, self._http, self._counted = ports, keys, http, counted
        self._prompt_tokens = 0

    async def learn(self) -> None:
        """How many tokens the gateways measure for the prompt, so that what is reserved is what is used."""
        self._counted.answers(1, 1)
        headers = {"Authorization": f"Bearer {self._keys['probe']}"}
        url = f"http://127.0.0.1:{self._ports[0]}{PATH}"
        async with self._http.post(url, data=chat(1), headers=headers) as answer:
            self._prompt_tokens = int(answer.headers["x-headworks-prompt-tokens"].split(";")[0])
        self._counted.answers(self._prompt_tokens, TOKENS_A_REQUEST - self._prompt_tokens)

    async def run(self, tenant: str, seconds: float, statuses: Counter[int]) -> list[float]:
        """Latencies of all answers, in seconds."""
        request = request_bytes(PATH, chat(TOKENS_A_REQUEST - self._prompt_tokens), self._keys[tenant])
        until = time.perf_counter() + seconds
        workers = [
            worker(port, request, until, PAUSE_MS / 1000, statuses) for port in self._ports for _ in range(CONNECTIONS)
        ]
        return [latency for latencies in await asyncio.gather(*workers) for latency in latencies]

    async def decided(self, mode: str) -> float:
        return sum([await self._metric(port, "headworks_gateway_ledger_requests_total", mode) for port in self._ports])

    async def until_shared(self) -> None:
        for port in self._ports:
            deadline = time.monotonic() + START_SECONDS
            while not await self._metric(port, "headworks_gateway_ledger", "shared"):
                if time.monotonic() > deadline:
                    raise RuntimeError(f"the gateway on port {port} does not find its Redis")
                await asyncio.sleep(0.05)

    async def _metric(self, port: int, name: str, mode: str) -> float:
        async with self._http.get(f"http://127.0.0.1:{port}/metrics") as answer:
            families = text_string_to_metric_families(await answer.text())
        samples = (sample for family in families for sample in family.samples)
        return sum(sample.value for sample in samples if sample.name == name and sample.labels["mode"] == mode)

    async def measure(self, redis: RedisProcess, seconds: float) -> dict[str, float]:
        await self.until_shared()
        await self.learn()
        statuses: Counter[int] = Counter()
        alone = await self.decided("local")
        self._counted.arrivals.clear()
        began = time.perf_counter()
        latencies = await self.run("with-redis", seconds, statuses)
        steady = passed(self._counted.arrivals, began, time.perf_counter())
        figures = {
            "gateways": float(len(self._ports)),
            "with_redis_requests_per_second": len(latencies) / seconds,
            "with_redis_p50_ms": statistics.median(latencies) * 1000,
            "with_redis_decided_alone": await self.decided("local") - alone,
            "with_redis_tokens_over_limit": steady.tokens_over_limit,
            "with_redis_used_percent": steady.used_percent,
        }
        self._counted.arrivals.clear()
        alone = await self.decided("local")
        began = time.perf_counter()
        racing = asyncio.create_task(self.run("redis-killed", seconds * 1.5, statuses))
        await asyncio.sleep(seconds / 2)
        await redis.kill()
        await asyncio.sleep(seconds / 2)
        await redis.start()
        await racing
        killed = passed(self._counted.arrivals, began, time.perf_counter())
        await self.until_shared()
        unknown = set(statuses) - {200, 429}
        if unknown:
            raise RuntimeError(f"answers other than 200 and 429: {statuses}")
        return figures | {
            "redis_killed_decided_alone": await self.decided("local") - alone,
            "redis_killed_tokens_over_limit": killed.tokens_over_limit,
            "redis_killed_used_percent": killed.used_percent,
        }


@asynccontextmanager
async def gateways(control: SnapshotServer, folder: Path, redis: RedisProcess, count: int) -> AsyncIterator[list[int]]:
    environment = {
        "HEADWORKS_GATEWAY_REDIS_URL": f"redis://127.0.0.1:{redis.port}/0",
        "HEADWORKS_GATEWAY_REDIS_ANSWER_SECONDS": str(ANSWER_SECONDS),
    }
    (folder / "join-token").write_text(control.join_token)
    async with AsyncExitStack() as stack:
        ports = [free_port() for _ in range(count)]
        for number, port in enumerate(ports):
            options = ["--control-url", control.url, "--join-token-file", str(folder / "join-token")]
            options += ["--name", f"g{number}", "--state-dir", str(folder / f"g{number}"), "--port", str(port)]
            log = folder / f"g{number}.log"
            await stack.enter_async_context(running(log, "gateway.cli", *options, environment=environment))
        yield ports


async def until_ready(http: aiohttp.ClientSession, ports: list[int]) -> None:
    deadline = time.monotonic() + START_SECONDS
    for port in ports:
        while True:
            try:
                async with http.get(f"http://127.0.0.1:{port}/readyz") as answer:
                    if answer.status == 200:
                        break
            except aiohttp.ClientError:
                pass
            if time.monotonic() > deadline:
                raise RuntimeError(f"the gateway on port {port} is not ready after {START_SECONDS} s")
            await asyncio.sleep(0.05)


async def bench(binary: str, count: int, seconds: float) -> dict[str, float]:
    keys = {tenant: f"hw-{secrets.token_hex(16)}" for tenant in ("probe", "with-redis", "redis-killed")}
    counted = Counted()
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headworks-bench-")))
        loop = asyncio.get_running_loop()
        engine = await loop.create_server(lambda: CountingEngine(counted), "127.0.0.1", 0)
        stack.callback(engine.close)
        http = await stack.enter_async_context(aiohttp.ClientSession())
        redis = RedisProcess(binary, folder)
        await redis.start()
        stack.push_async_callback(redis.kill)
        content = configuration(keys, engine.sockets[0].getsockname()[1])
        control = await stack.enter_async_context(snapshot_server(content))
        control.publish(live_gateways=count)
        ports = await stack.enter_async_context(gateways(control, folder, redis, count))
        await until_ready(http, ports)
        return await Race(ports, keys, http, counted).measure(redis, seconds)


def main(argv: list[str] | None = None) -> int:
    """Prints a table, then one JSON object. Exit status 0 only if every target holds, 2 without a Redis to run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gateways", type=int, default=GATEWAYS, help=f"default: {GATEWAYS}")
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"of each half of it; default: {SECONDS:g}")
    options = parser.parse_args(argv)
    if (binary := shutil.which("redis-server")) is None:
        print("quota_race needs redis-server: apt-get install redis-server", file=sys.stderr)
        return 2
    return report("quota_race", __doc__, uvloop.run(bench(binary, options.gateways, options.seconds)), TARGETS)


if __name__ == "__main__":
    sys.exit(main())
