"""`python -m simulator.traffic`: clients of several tenants, with heavy-tailed lengths, against a local gateway.

Open loop: arrivals are a Poisson process that does not wait for answers, as users do not; a slow server meets
a growing load, not a polite one.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ipaddress
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import aiohttp
import msgspec
import uvloop
from msgspec import Meta, Struct

from simulator.lengths import LengthDistribution, LogNormal
from simulator.tokenizer import Words, train_tokenizer
from simulator.traffic_report import Report, TenantTally

Share = Annotated[float, Meta(ge=0, le=1)]
SUMMARY_SECONDS = 5.0
MAX_LINE_BYTES = 1024 * 1024


class Tenant(Struct, frozen=True, forbid_unknown_fields=True):
    """One tenant's traffic. Shares are of its requests; a cancelling client leaves within `cancel_within_seconds`."""

    key: Annotated[str, Meta(min_length=1, max_length=200)]
    model: Annotated[str, Meta(min_length=1, max_length=200)]
    rate_per_second: Annotated[float, Meta(gt=0, le=10_000)]
    prompt_tokens: LengthDistribution = LogNormal(median_tokens=300, sigma=1.0, max_tokens=4_000)
    output_tokens: LengthDistribution = LogNormal(median_tokens=120, sigma=1.0, max_tokens=2_000)
    stream_share: Share = 0.8
    chat_share: Share = 0.8
    cancel_share: Share = 0.02
    cancel_within_seconds: Annotated[float, Meta(gt=0, le=600)] = 2.0


class _Request(Struct, frozen=True):
    path: str
    body: bytes
    leave_after_seconds: float | None


def draw_request(tenant: Tenant, words: Words, rng: random.Random) -> _Request:
    """The next request of a tenant, decided by `rng` alone."""
    text = words.text(words.draw(rng, tenant.prompt_tokens.draw(rng)))
    chat, stream = rng.random() < tenant.chat_share, rng.random() < tenant.stream_share
    body: dict[str, Any] = {"model": tenant.model, "max_tokens": tenant.output_tokens.draw(rng), "stream": stream}
    if chat:
        body["messages"] = [{"role": "user", "content": text}]
    else:
        body["prompt"] = text
    if stream:
        body["stream_options"] = {"include_usage": True}
    leaves = rng.random() < tenant.cancel_share
    return _Request(
        path="/v1/chat/completions" if chat else "/v1/completions",
        body=msgspec.json.encode(body),
        leave_after_seconds=rng.uniform(0, tenant.cancel_within_seconds) if leaves else None,
    )


class _Usage(Struct, frozen=True):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _Error(Struct, frozen=True):
    code: str | int | None = None


class _Answer(Struct, frozen=True):
    """What a client reads of a body or of a stream's event."""

    choices: list[msgspec.Raw] = []
    usage: _Usage | None = None
    error: _Error | None = None


_decode_answer = msgspec.json.Decoder(_Answer).decode


class Traffic:
    """Sends the requests of all tenants and tallies how they end."""

    def __init__(
        self, session: aiohttp.ClientSession, url: str, tenants: dict[str, Tenant], seed: int, max_in_flight: int
    ) -> None:
        self._session, self._url, self._tenants, self._seed = session, url, tenants, seed
        self._words = Words(train_tokenizer())
        self._max_in_flight = max_in_flight
        self._in_flight: set[asyncio.Task[None]] = set()
        self.tallies = {name: TenantTally(name) for name in tenants}

    async def run(self, seconds: float, stop: asyncio.Event) -> None:
        """Send for `seconds` (0: until `stop`), then leave what is still in flight."""
        jobs = [asyncio.create_task(self._arrivals(name)) for name in self._tenants]
        jobs.append(asyncio.create_task(self._summaries()))
        stopping = asyncio.create_task(stop.wait())
        done, _ = await asyncio.wait([stopping, *jobs], timeout=seconds or None, return_when=asyncio.FIRST_COMPLETED)
        left = [stopping, *jobs, *self._in_flight]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        for task in done:
            task.result()

    def summary(self) -> str:
        return " | ".join(tally.summary() for tally in self.tallies.values())

    async def _summaries(self) -> None:
        while True:
            await asyncio.sleep(SUMMARY_SECONDS)
            print(self.summary(), flush=True)

    async def _arrivals(self, name: str) -> None:
        tenant, tally = self._tenants[name], self.tallies[name]
        rng = random.Random(f"{self._seed}:{name}")
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            due += rng.expovariate(tenant.rate_per_second)
            request = draw_request(tenant, self._words, rng)
            await asyncio.sleep(max(0.0, due - loop.time()))
            if len(self._in_flight) >= self._max_in_flight:
                tally.dropped += 1
                continue
            task = asyncio.create_task(self._send(tenant, tally, request))
            self._in_flight.add(task)
            task.add_done_callback(self._in_flight.discard)

    async def _send(self, tenant: Tenant, tally: TenantTally, request: _Request) -> None:
        tally.requests += 1
        leave = asyncio.timeout(request.leave_after_seconds)
        try:
            async with leave:
                tally.statuses[await self._exchange(tenant, tally, request)] += 1
        except asyncio.CancelledError:
            tally.statuses["unfinished"] += 1
            raise
        except TimeoutError:
            tally.statuses["cancelled" if leave.expired() else "timeout"] += 1
        except (aiohttp.ClientError, msgspec.DecodeError, ValueError):
            tally.statuses["connection_error"] += 1

    async def _exchange(self, tenant: Tenant, tally: TenantTally, request: _Request) -> str:
        """Send one request and read its answer; the status that it ended with."""
        headers = {"Authorization": f"Bearer {tenant.key}", "Content-Type": "application/json"}
        started_at = time.monotonic()
        async with self._session.post(
            self._url + request.path, data=request.body, headers=headers, allow_redirects=False
        ) as response:
            if response.status == 200 and response.content_type == "text/event-stream":
                await _read_stream(response, tally, started_at)
            else:
                try:
                    answer = _decode_answer(await response.read())
                except msgspec.DecodeError:
                    answer = _Answer(error=_Error("unreadable_body"))
                if answer.error is not None:
                    tally.refusal_reasons[str(answer.error.code)] += 1
                if answer.usage is not None:
                    tally.answered(answer.usage.prompt_tokens, answer.usage.completion_tokens)
            return str(response.status)


async def _read_stream(response: aiohttp.ClientResponse, tally: TenantTally, started_at: float) -> None:
    first_at = last_at = None
    async for line in response.content:
        if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
            continue
        answer = _decode_answer(line[6:])
        if answer.error is not None:
            tally.refusal_reasons[str(answer.error.code)] += 1
        if answer.choices:
            last_at = time.monotonic()
            if first_at is None:
                first_at = last_at
                tally.first_token(first_at - started_at)
        if answer.usage is not None:
            tally.answered(answer.usage.prompt_tokens, answer.usage.completion_tokens)
            if first_at is not None and last_at is not None:
                tally.streamed(last_at - first_at, answer.usage.completion_tokens)


def loopback_url(text: str) -> str:
    """A URL on this machine, without a slash at its end.

    Raises: argparse.ArgumentTypeError for any other host: load is made against this machine only.
    """
    parts = urlsplit(text)
    host = parts.hostname or ""
    with contextlib.suppress(ValueError):
        if parts.scheme == "http" and (host == "localhost" or ipaddress.ip_address(host).is_loopback):
            return text.rstrip("/")
    raise argparse.ArgumentTypeError(f"{text!r} is not on this machine; give http://127.0.0.1:PORT")


def read_tenants(path: Path) -> dict[str, Tenant]:
    """Read the tenants' file.

    Raises: OSError; msgspec.DecodeError naming the field at fault.
    """
    tenants: dict[str, Tenant] = msgspec.json.decode(path.read_bytes(), type=dict[str, Tenant])
    if not tenants:
        raise msgspec.ValidationError("there must be at least one tenant")
    return tenants


def write_report(path: Path, report: Report) -> None:
    """Write the report whole or not at all."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=path.name, delete=False) as file:
        file.write(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    Path(file.name).replace(path)


async def generate(options: argparse.Namespace, tenants: dict[str, Tenant]) -> Report:
    """Run the traffic that the command line asks for."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=options.timeout_seconds)
    started_at = time.monotonic()
    async with aiohttp.ClientSession(
        connector=connector, timeout=timeout, read_bufsize=MAX_LINE_BYTES, trust_env=False
    ) as session:
        traffic = Traffic(session, options.url, tenants, options.seed, options.max_in_flight)
        await traffic.run(options.seconds, stop)
    print(traffic.summary(), flush=True)
    rows = {name: tally.report() for name, tally in traffic.tallies.items()}
    return Report(options.url, options.seed, round(time.monotonic() - started_at, 3), rows)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m simulator.traffic", description=__doc__)
    parser.add_argument("--url", type=loopback_url, required=True, help="a gateway or engine on this machine")
    parser.add_argument("--tenants", type=Path, required=True, metavar="FILE", help="JSON: name to traffic")
    parser.add_argument("--seconds", type=float, default=0.0, help="how long (default 0: until SIGTERM)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--report", type=Path, metavar="FILE", help="where the JSON report goes at the end")
    parser.add_argument("--max-in-flight", type=int, default=512, help="arrivals above are dropped and counted")
    parser.add_argument("--timeout-seconds", type=float, default=120.0, help="after which a client gives up")
    options = parser.parse_args(arguments)
    if options.seconds < 0 or options.max_in_flight < 1 or options.timeout_seconds <= 0:
        parser.error("--seconds must not be negative; --max-in-flight and --timeout-seconds must be positive")
    try:
        tenants = read_tenants(options.tenants)
    except (OSError, msgspec.DecodeError) as error:
        parser.error(f"--tenants {options.tenants}: {error}")
    report = uvloop.run(generate(options, tenants))
    if options.report is not None:
        write_report(options.report, report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
