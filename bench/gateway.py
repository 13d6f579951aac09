"""What the gateway costs: latency beside a direct call, requests a second and core, and how soon an engine is left.

Real processes on 127.0.0.1: a gateway, a simulated engine that answers at once, a load generator. The requests are
chats of about 200 tokens that ask for 32 tokens, streamed; no prompt comes twice, so each is measured anew by the
model's tokenizer.

- latency: 32 clients at once, each resting 100 ms on average between requests, as with an engine that takes as long.
  The same load goes straight to the engine in turn with the gateway; the difference of the medians counts.
- throughput: 32 clients that never rest. CPU time of the gateway process alone is counted.
- leaving: clients close their connection while the engine is silent; the engine notes when it learns of it.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import secrets
import statistics
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import uvloop

from bench.support.http_load import request_bytes
from bench.support.processes import cpu_seconds, running
from bench.support.report import Targets, report
from bench.support.snapshot_server import SnapshotServer, snapshot_server
from controlplane.demo.ports import free_port

CONCURRENT = 32
PAUSE_MS = 100
ROUNDS = 3
ROUND_SECONDS = 4
LEAVERS = 50
START_SECONDS = 30
MODEL = "bench/model"
PATH = "/v1/chat/completions"
TARGETS: Targets = {
    "added_p50_ms": ("at most", 2.0),
    "requests_per_second_per_core": ("at least", 1200.0),
    "upstream_closed_max_ms": ("at most", 50.0),
}


class SilentEngine(asyncio.Protocol):
    """Reads a request and says nothing; notes when it came and when the connection closed."""

    def __init__(self, arrived: asyncio.Queue[SilentEngine]) -> None:
        self.arrived = arrived
        self.closed: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        if data.startswith(b"POST"):
            self.arrived.put_nowait(self)

    def connection_lost(self, error: Exception | None) -> None:
        self.closed.set_result(time.perf_counter())


def configuration(key: str, tokenizer: str, engine_port: int, silent_port: int) -> dict[str, Any]:
    model = {"max_context_tokens": 8192, "default_max_tokens": 256, "max_tokens": 4096}
    engine = {"kind": "vllm", "served_model": MODEL, "kv_capacity_tokens": 10_000_000}
    return {
        "kind": "gateway",
        "schema": 1,
        "tenants": {"bench": {"tpm_limit": 10**12, "rpm_limit": 10**9, "max_parallel_requests": 10_000}},
        "keys": {hashlib.sha256(key.encode()).hexdigest(): {"tenant": "bench", "prefix": key[:8]}},
        "models": {MODEL: {**model, "tokenizer": tokenizer}, "bench/silent": model},
        "pools": {"fast": {"model": MODEL}, "silent": {"model": "bench/silent"}},
        "engines": {
            "fast-0": {**engine, "url": f"http://127.0.0.1:{engine_port}", "pool": "fast"},
            "silent-0": {**engine, "url": f"http://127.0.0.1:{silent_port}", "pool": "silent"},
        },
        "routes": {
            "silent": {"order": 1, "match": {"models": {"bench/silent": True}}, "pools": {"silent": 1000}},
            "fast": {"order": 2, "pools": {"fast": 1000}},
        },
    }


async def answers(port: int, path: str, process: Process, log: Path) -> None:
    """Wait for a 200. Raises: RuntimeError with the process's own words if it ends, or does not answer in time."""
    deadline = time.monotonic() + START_SECONDS
    while process.returncode is None and time.monotonic() < deadline:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(f"GET {path} HTTP/1.1\r\nHost: b\r\nConnection: close\r\n\r\n".encode())
            head = await reader.read(64)
            writer.close()
            if b" 200 " in head:
                return
        except OSError:
            pass
        await asyncio.sleep(0.05)
    said = await asyncio.to_thread(log.read_text, errors="replace")
    raise RuntimeError(f"no 200 from port {port}{path}: {said[-4000:]}")


async def load(port: int, body: Path, key: str, seconds: float, pause_ms: float) -> dict[str, Any]:
    arguments = ["--port", str(port), "--path", PATH, "--body", str(body), "--connections", str(CONCURRENT)]
    arguments += ["--seconds", str(seconds), "--pause-ms", str(pause_ms)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.support.http_load", *arguments, stdin=PIPE, stdout=PIPE
    )
    output, _ = await process.communicate(f"{key}\n".encode())
    result: dict[str, Any] = json.loads(output)
    if set(result["statuses"]) != {"200"}:
        raise RuntimeError(f"answers other than 200: {result['statuses']}")
    return result


async def leave(port: int, key: str, stream: bool, arrived: asyncio.Queue[SilentEngine]) -> float:
    """Milliseconds from a client's close until the engine's connection is closed."""
    body = json.dumps({"model": "bench/silent", "messages": [{"role": "user", "content": "hi"}], "stream": stream})
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request_bytes(PATH, body.encode(), key))
    engine = await asyncio.wait_for(arrived.get(), 10)
    begun = time.perf_counter()
    writer.close()
    return (await asyncio.wait_for(engine.closed, 10) - begun) * 1000


async def measure(control: SnapshotServer, gateway: Process, ports: tuple[int, int], key: str, folder: Path,
                  arrived: asyncio.Queue[SilentEngine]) -> dict[str, float]:  # fmt: skip
    gateway_port, engine_port = ports
    body = folder / "body.json"
    text = " ".join(f"the {number}th word of a prompt that a user may have written" for number in range(12))
    message = {"role": "user", "content": f"######## {text}"}
    body.write_text(json.dumps({"model": MODEL, "messages": [message], "max_tokens": 32, "stream": True}))
    for port in (engine_port, gateway_port):
        await load(port, body, key, 1, 0)

    direct: list[dict[str, Any]] = []
    through: list[dict[str, Any]] = []
    for _ in range(ROUNDS):
        direct.append(await load(engine_port, body, key, ROUND_SECONDS, PAUSE_MS))
        through.append(await load(gateway_port, body, key, ROUND_SECONDS, PAUSE_MS))
    before = cpu_seconds(gateway.pid)
    saturated = await load(gateway_port, body, key, ROUND_SECONDS, 0)
    used = cpu_seconds(gateway.pid) - before
    left = [await leave(gateway_port, key, bool(number % 2), arrived) for number in range(LEAVERS)]

    def middle(rows: list[dict[str, Any]], name: str) -> float:
        return float(statistics.median(row[name] for row in rows))

    return {
        "direct_p50_ms": middle(direct, "p50_ms"),
        "direct_p99_ms": middle(direct, "p99_ms"),
        "gateway_p50_ms": middle(through, "p50_ms"),
        "gateway_p99_ms": middle(through, "p99_ms"),
        "added_p50_ms": middle(through, "p50_ms") - middle(direct, "p50_ms"),
        "paced_requests_per_second": middle(through, "requests_per_second"),
        "saturated_requests_per_second": saturated["requests_per_second"],
        "saturated_p50_ms": saturated["p50_ms"],
        "gateway_cpu_ms_per_request": used * 1000 / saturated["requests"],
        "requests_per_second_per_core": saturated["requests"] / used,
        "upstream_closed_p50_ms": statistics.median(left),
        "upstream_closed_max_ms": max(left),
    }


async def bench() -> dict[str, float]:
    key = f"hw-{secrets.token_hex(16)}"
    gateway_port, engine_port = free_port(), free_port()
    arrived: asyncio.Queue[SilentEngine] = asyncio.Queue()
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headworks-bench-")))
        tokenizer = folder / "tokenizer.json"
        async with running(folder / "tokenizer.log", "simulator.tokenizer", str(tokenizer)) as builder:
            await builder.wait()
        silent = await asyncio.get_running_loop().create_server(lambda: SilentEngine(arrived), "127.0.0.1", 0)
        stack.callback(silent.close)
        engine_options = ["--port", str(engine_port), "--model", MODEL, "--tokenizer", str(tokenizer)]
        engine_options += ["--speed", "instant"]
        engine_log, gateway_log = folder / "engine.log", folder / "gateway.log"
        engine = await stack.enter_async_context(running(engine_log, "simulator.engine", *engine_options))
        await answers(engine_port, "/health", engine, engine_log)
        control = await stack.enter_async_context(snapshot_server({"kind": "gateway", "schema": 1}))
        sha = control.add_artifact(tokenizer.read_bytes())
        control.publish(configuration(key, sha, engine_port, silent.sockets[0].getsockname()[1]))
        (folder / "join-token").write_text(control.join_token)
        options = ["--control-url", control.url, "--join-token-file", str(folder / "join-token"), "--name", "bench"]
        options += ["--state-dir", str(folder / "state"), "--port", str(gateway_port)]
        gateway = await stack.enter_async_context(running(gateway_log, "gateway.cli", *options))
        await answers(gateway_port, "/readyz", gateway, gateway_log)
        return await measure(control, gateway, (gateway_port, engine_port), key, folder, arrived)


def main(argv: list[str] | None = None) -> int:
    """Prints a table, then one JSON object. Exit status 0 only if every target holds."""
    argparse.ArgumentParser(description=__doc__).parse_args(argv)
    return report("gateway", __doc__, uvloop.run(bench()), TARGETS)


if __name__ == "__main__":
    sys.exit(main())
