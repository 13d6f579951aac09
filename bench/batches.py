"""What batches make of the capacity that interactive requests leave, and what they cost these.

Real processes on 127.0.0.1: a simulated engine with the scheduler, KV cache and times of a small GPU, slowed down so
that its times are far above this machine's, and a gateway that takes lines of a batch without end. Three loads, with
the same interactive streams through the gateway: these alone; beside them as many lines at once as the engine runs
sequences, sent past the gateway, which is all that interactive requests leave of it, at whatever cost to them; beside
them lines through the gateway.

Filled is what lines got of what is left, in their output tokens a second. Lines have short prompts and longer answers,
as where texts are made or rewritten. One with a long prompt costs interactive requests more, however few run: its
prefill stands in their way, which no gateway can change.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import random
import secrets
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import uvloop

from bench.gateway import answers, gateway_of
from bench.support.line_server import LineServer
from bench.support.open_load import OpenLoad, Promise, Seen
from bench.support.processes import running
from bench.support.report import Targets, report
from controlplane.demo.ports import free_port
from simulator.lengths import LogNormal
from simulator.tokenizer import CHAT_TEMPLATE, Words, train_tokenizer
from simulator.traffic import Tenant, draw_request

MODEL = "bench/batches"
SEQUENCES = 64
SPEED = 0.2
ENGINE = ["--kv-capacity-tokens", "160000", "--max-num-seqs", str(SEQUENCES), "--max-model-len", "4096"]
RATE_PER_SECOND = 2.0
# By then the gateway knows how many sequences the engine runs.
WARM_UP_SECONDS, SECONDS, QUICK_SECONDS = 45.0, 300.0, 70.0
PROMISE = Promise(ttft_seconds=10.0, tpot_seconds=1.0, patience_seconds=60.0)
TARGETS: Targets = {
    "filled_percent": ("at least", 80.0),
    "ttft_p95_cost_percent": ("at most", 10.0),
    "failed_lines": ("at most", 0.0),
}


def configuration(key: str, files: dict[str, str], port: int) -> dict[str, Any]:
    """`files`: the model's artifacts, by kind."""
    limits = {"tpm_limit": 10**9, "rpm_limit": 10**6, "max_parallel_requests": 10_000}
    return {
        "kind": "gateway",
        "schema": 1,
        "tenants": {"interactive": limits, "nightly": limits},
        "keys": {hashlib.sha256(key.encode()).hexdigest(): {"tenant": "interactive", "prefix": key[:8]}},
        "priority_classes": {"batch": {"rank": 90}},
        "models": {MODEL: {"max_context_tokens": 4096, "default_max_tokens": 256, "max_tokens": 2048, **files}},
        "pools": {"chat": {"model": MODEL, "queue_cap": 64}},
        "engines": {
            "engine": {"url": f"http://127.0.0.1:{port}", "kind": "vllm", "pool": "chat", "served_model": MODEL}
        },
        "routes": {"all": {"order": 1, "pools": {"chat": 1000}}},
    }


def tenant(key: str) -> Tenant:
    """Chats whose prompts are as the simulator's own traffic has them, nobody leaving by himself."""
    return Tenant(
        key=key,
        model=MODEL,
        rate_per_second=1,
        prompt_tokens=LogNormal(median_tokens=300, sigma=1.0, max_tokens=3_500),
        output_tokens=LogNormal(median_tokens=120, sigma=0.5, max_tokens=400),
        stream_share=1,
        chat_share=1,
        cancel_share=0,
    )


class Lines:
    """Bodies of lines: a short text each, of which a longer one is made."""

    def __init__(self, words: Words) -> None:
        self._words, self._rng = words, random.Random(7)
        self._kind = msgspec.structs.replace(
            tenant(""),
            prompt_tokens=LogNormal(median_tokens=100, sigma=0.5, max_tokens=500),
            output_tokens=LogNormal(median_tokens=200, sigma=0.5, max_tokens=600),
        )

    def draw(self) -> bytes:
        body = msgspec.json.decode(draw_request(self._kind, self._words, self._rng).body)
        return msgspec.json.encode({name: value for name, value in body.items() if not name.startswith("stream")})


async def most_tokens_per_second(port: int, lines: Lines, seconds: float) -> float:
    """Output tokens a second of as many lines at once as the engine runs sequences."""
    begin = time.monotonic() + WARM_UP_SECONDS
    end, tokens = begin + seconds, 0

    async def ask(http: aiohttp.ClientSession) -> None:
        nonlocal tokens
        url, headers = f"http://127.0.0.1:{port}/v1/chat/completions", {"Content-Type": "application/json"}
        while time.monotonic() < end:
            async with http.post(url, data=lines.draw(), headers=headers) as answer:
                used = msgspec.json.decode(await answer.read())["usage"]["completion_tokens"]
            if begin <= time.monotonic() < end:
                tokens += used

    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as http:
        await asyncio.gather(*(ask(http) for _ in range(SEQUENCES)))
    return tokens / seconds


def figures_of(
    alone: Seen, crowded: Seen, most: float, beside: Seen, batch_tokens: int, failed: int
) -> dict[str, float]:
    batch = batch_tokens / beside.seconds
    return {
        "interactive_tokens_per_second": beside.output_tokens / beside.seconds,
        "left_tokens_per_second": most,
        "batch_tokens_per_second": batch,
        "filled_percent": 100 * batch / most,
        "alone_ttft_p95_ms": alone.p95_ttft_ms,
        "past_the_gateway_ttft_p95_ms": crowded.p95_ttft_ms,
        "beside_ttft_p95_ms": beside.p95_ttft_ms,
        "ttft_p95_cost_percent": 100 * (beside.p95_ttft_ms / alone.p95_ttft_ms - 1),
        "interactive_not_answered": float(
            sum(
                count
                for seen in (alone, crowded, beside)
                for how, count in seen.endings.items()
                if how not in ("good", "late")
            )
        ),
        "failed_lines": float(failed),
    }


async def bench(seconds: float) -> dict[str, float]:
    key = f"hw-{secrets.token_hex(16)}"
    tokenizer = train_tokenizer()
    words = Words(tokenizer)
    lines = Lines(words)
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headworks-bench-")))
        port, log = free_port(), folder / "engine.log"
        options = ["--port", str(port), "--model", MODEL, *ENGINE, "--speed", str(SPEED)]
        engine = await stack.enter_async_context(running(log, "simulator.engine", *options))
        await answers(port, "/health", engine, log)
        control = LineServer({"kind": "gateway", "schema": 1}, "nightly", MODEL, lines.draw)
        await control.start()
        stack.push_async_callback(control.stop)
        files = {
            "tokenizer": control.add_artifact(tokenizer.to_str().encode()),
            "chat_template": control.add_artifact(CHAT_TEMPLATE.encode()),
        }
        control.publish(configuration(key, files, port))
        _, gateway_port = await gateway_of(stack, folder, control)
        load = OpenLoad([gateway_port], tenant(key), words, PROMISE)
        alone = await load.offer(RATE_PER_SECOND, WARM_UP_SECONDS, seconds, seed=1)
        control.open = True
        begin = time.monotonic() + WARM_UP_SECONDS
        # The same arrivals with the same lengths.
        beside = await load.offer(RATE_PER_SECOND, WARM_UP_SECONDS, seconds, seed=1)
        control.open = False
        # Last, since the gateway would take for usual what its requests meet here.
        crowded, most = await asyncio.gather(
            load.offer(RATE_PER_SECOND, WARM_UP_SECONDS, seconds, seed=1), most_tokens_per_second(port, lines, seconds)
        )
        return figures_of(alone, crowded, most, beside, control.tokens_between(begin, begin + seconds), control.failed)


def main(argv: list[str] | None = None) -> int:
    """Prints a table, then one JSON object. Exit status 0 only if every target holds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="70 s a load, not five minutes: p95 of 140 chats is known to a tenth"
    )
    seconds = QUICK_SECONDS if parser.parse_args(argv).quick else SECONDS
    return report("batches", __doc__, uvloop.run(bench(seconds)), TARGETS)


if __name__ == "__main__":
    sys.exit(main())
