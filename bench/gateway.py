"""What the gateway costs: latency beside a direct call, requests a second and core, and how soon an engine is left.

Real processes on 127.0.0.1: a gateway, a simulated engine that answers at once, a load generator. The requests are
chats of about 200 tokens that ask for 32 tokens, streamed; no prompt comes twice, so each is measured anew by the
model's chat template and tokenizer.

- latency: 32 clients at once, each resting 100 ms on average between requests, as with an engine that takes as long.
  The same load goes straight to the engine in turn with the gateway; the difference of the medians counts.
- throughput: 32 clients that never rest. CPU time of the gateway process alone is counted.
- leaving: clients close their connection while the engine is silent; the engine notes when it learns of it.
- streams: 500 and then 2,000 are held open at an engine that says a word in each every 500 ms, with the time of its
  sending. How late the events come is told with and without the gateway, and what it holds in memory. Beside 500
  streams, short requests are timed as above: the difference is the time to first token that it adds.

The same is asked of vllm-router, another open gateway, which has no tenants, quotas or tokenizer of its own. It is
installed for that from the package index; where that is not possible the figures of it are absent.
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
from typing import Any, NamedTuple, cast

import uvloop

from bench.support.drip_engine import many_files
from bench.support.held_streams import held_streams
from bench.support.http_load import request_bytes
from bench.support.memory import memory_of
from bench.support.other_router import installed, other_router
from bench.support.processes import cpu_seconds, running
from bench.support.report import Targets, report
from bench.support.snapshot_server import SnapshotServer, snapshot_server
from controlplane.demo.ports import free_port

CONCURRENT = 32
PAUSE_MS = 100
ROUNDS = 3
ROUND_SECONDS = 4
LEAVERS = 50
OTHERS_LEAVERS = 4
LEAVE_SECONDS = 10
STREAMS, MANY_STREAMS = 500, 2_000
EVERY_MS = 500
STREAM_SECONDS = 12
# Short requests beside streams: few, so that what is timed is the gateway and not a queue before it.
PROBES = 4
PROBE_SECONDS = 4
START_SECONDS = 30
MODEL = "bench/model"
PATH = "/v1/chat/completions"
TARGETS: Targets = {
    "added_p50_ms": ("at most", 2.0),
    "added_p99_ms": ("at most", 10.0),
    "gateway_requests_per_second_per_core": ("at least", 1200.0),
    "upstream_closed_max_ms": ("at most", 50.0),
    "gateway_added_ttft_beside_500_streams_ms": ("at most", 3.0),
    "gateway_memory_with_2000_streams_mb": ("at most", 250.0),
    "gateway_memory_per_stream_kb": ("at most", 60.0),
    "gateway_2000_streams_event_max_ms": ("at most", 100.0),
}


class SilentEngine(asyncio.Protocol):
    """Reads a request and says nothing; notes when it came and when the connection closed. It is in good health."""

    def __init__(self, arrived: asyncio.Queue[SilentEngine]) -> None:
        self.arrived = arrived
        self.closed: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if data.startswith(b"POST"):
            self.arrived.put_nowait(self)
        elif self._transport is not None:
            self._transport.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}")

    def connection_lost(self, error: Exception | None) -> None:
        self.closed.set_result(time.perf_counter())


class Ports(NamedTuple):
    """Where one is asked for each engine: the engines themselves, or what stands before them."""

    fast: int
    silent: int
    drip: int


class Bed(NamedTuple):
    """What every measurement needs."""

    engines: Ports
    key: str
    body: Path
    drip_body: Path
    arrived: asyncio.Queue[SilentEngine]


def configuration(key: str, files: dict[str, str], ports: Ports) -> dict[str, Any]:
    """`files`: the model's artifacts, by kind."""
    model = {"max_context_tokens": 8192, "default_max_tokens": 256, "max_tokens": 4096, **files}
    engine = {"kind": "vllm", "served_model": MODEL, "kv_capacity_tokens": 10_000_000}
    names = {MODEL: "fast", "bench/silent": "silent", "bench/drip": "drip"}
    return {
        "kind": "gateway",
        "schema": 1,
        "tenants": {"bench": {"tpm_limit": 10**12, "rpm_limit": 10**9, "max_parallel_requests": 10_000}},
        "keys": {hashlib.sha256(key.encode()).hexdigest(): {"tenant": "bench", "prefix": key[:8]}},
        "models": dict.fromkeys(names, model),
        "pools": {pool: {"model": name} for name, pool in names.items()},
        "engines": {
            f"{pool}-0": {**engine, "url": f"http://127.0.0.1:{getattr(ports, pool)}", "pool": pool}
            for pool in names.values()
        },
        "routes": {
            pool: {"order": order, "match": {"models": {name: True}}, "pools": {pool: 1000}}
            for order, (name, pool) in enumerate(names.items())
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


async def load(port: int, bed: Bed, seconds: float, pause_ms: float, connections: int = CONCURRENT) -> dict[str, Any]:
    arguments = ["--port", str(port), "--path", PATH, "--body", str(bed.body), "--connections", str(connections)]
    arguments += ["--seconds", str(seconds), "--pause-ms", str(pause_ms)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.support.http_load", *arguments, stdin=PIPE, stdout=PIPE
    )
    output, _ = await process.communicate(f"{bed.key}\n".encode())
    result: dict[str, Any] = json.loads(output)
    if set(result["statuses"]) != {"200"}:
        raise RuntimeError(f"answers other than 200: {result['statuses']}")
    return result


async def leave(port: int, bed: Bed, stream: bool) -> float:
    """Milliseconds from a client's close until the engine's connection is closed; `LEAVE_SECONDS` if it is not."""
    body = json.dumps({"model": "bench/silent", "messages": [{"role": "user", "content": "hi"}], "stream": stream})
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request_bytes(PATH, body.encode(), bed.key))
    engine = await asyncio.wait_for(bed.arrived.get(), 10)
    begun = time.perf_counter()
    writer.close()
    try:
        return (await asyncio.wait_for(engine.closed, LEAVE_SECONDS) - begun) * 1000
    except TimeoutError:
        return LEAVE_SECONDS * 1000


async def short_requests(bed: Bed, subjects: dict[str, Ports]) -> dict[str, float]:
    """Latency of each in turn, so that what else the machine does is shared; the first one is no gateway."""
    for ports in subjects.values():
        await load(ports.fast, bed, 1, 0)
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in subjects}
    for _ in range(ROUNDS):
        for name, ports in subjects.items():
            rows[name].append(await load(ports.fast, bed, ROUND_SECONDS, PAUSE_MS))
    return {
        f"{name}_{figure}": float(statistics.median(row[figure] for row in rows[name]))
        for name in subjects
        for figure in ("p50_ms", "p99_ms", "requests_per_second")
    }


async def saturation(bed: Bed, name: str, ports: Ports, process: Process) -> dict[str, float]:
    before = cpu_seconds(process.pid)
    saturated = await load(ports.fast, bed, ROUND_SECONDS, 0)
    used = cpu_seconds(process.pid) - before
    return {
        f"{name}_saturated_requests_per_second": saturated["requests_per_second"],
        f"{name}_saturated_p50_ms": saturated["p50_ms"],
        f"{name}_cpu_ms_per_request": used * 1000 / saturated["requests"],
        f"{name}_requests_per_second_per_core": saturated["requests"] / used,
    }


async def beside_streams(bed: Bed, name: str, ports: Ports) -> dict[str, float]:
    """Short requests with and without it while it holds `STREAMS` streams."""
    async with held_streams(ports.drip, PATH, bed.drip_body, bed.key, STREAMS, STREAM_SECONDS) as seen:
        direct = await load(bed.engines.fast, bed, PROBE_SECONDS, PAUSE_MS, PROBES)
        through = await load(ports.fast, bed, PROBE_SECONDS, PAUSE_MS, PROBES)
        delays = await seen
    added = through["p50_ms"] - direct["p50_ms"]
    return {f"{name}_added_ttft_beside_{STREAMS}_streams_ms": added, **of_delays(delays, name, STREAMS)}


async def many_streams(bed: Bed, name: str, port: int, process: Process | None) -> dict[str, float]:
    before = memory_of(process.pid).resident if process else 0
    async with held_streams(port, PATH, bed.drip_body, bed.key, MANY_STREAMS, STREAM_SECONDS) as seen:
        delays = await seen
        held = memory_of(process.pid).resident if process else 0
    figures = of_delays(delays, name, MANY_STREAMS)
    if process:
        figures[f"{name}_memory_before_mb"] = before / 1e6
        figures[f"{name}_memory_with_{MANY_STREAMS}_streams_mb"] = held / 1e6
        figures[f"{name}_memory_per_stream_kb"] = (held - before) / MANY_STREAMS / 1e3
    return figures


def of_delays(delays: dict[str, Any], name: str, streams: int) -> dict[str, float]:
    return {f"{name}_{streams}_streams_event_{figure}": delays[figure] for figure in ("p50_ms", "p99_ms", "max_ms")}


async def measure(bed: Bed, gateway: Process, ports: Ports, other: tuple[Ports, Process] | None) -> dict[str, float]:
    """`other`: another gateway, and the process of it that holds the streams."""
    subjects = {"direct": bed.engines, "gateway": ports, **({"other": other[0]} if other else {})}
    figures = await short_requests(bed, subjects)
    for figure in ("p50_ms", "p99_ms"):
        figures[f"added_{figure}"] = figures[f"gateway_{figure}"] - figures[f"direct_{figure}"]
    figures |= await saturation(bed, "gateway", ports, gateway)
    left = [await leave(ports.silent, bed, bool(number % 2)) for number in range(LEAVERS)]
    figures["upstream_closed_p50_ms"], figures["upstream_closed_max_ms"] = statistics.median(left), max(left)
    figures |= await beside_streams(bed, "gateway", ports)
    figures |= await many_streams(bed, "direct", bed.engines.drip, None)
    figures |= await many_streams(bed, "gateway", ports.drip, gateway)
    if other:
        figures |= await beside_streams(bed, "other", other[0])
        figures |= await many_streams(bed, "other", other[0].drip, other[1])
        left = [await leave(other[0].silent, bed, bool(number % 2)) for number in range(OTHERS_LEAVERS)]
        figures["other_upstream_closed_p50_ms"], figures["other_upstream_closed_max_ms"] = (
            statistics.median(left), max(left),
        )  # fmt: skip
    return figures


async def bench() -> dict[str, float]:
    many_files()
    key = f"hw-{secrets.token_hex(16)}"
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headworks-bench-")))
        arrived: asyncio.Queue[SilentEngine] = asyncio.Queue()
        silent = await asyncio.get_running_loop().create_server(lambda: SilentEngine(arrived), "127.0.0.1", 0)
        stack.callback(silent.close)
        engines = Ports(free_port(), silent.sockets[0].getsockname()[1], free_port())
        bed = Bed(engines, key, *bodies(folder), arrived)
        files = await start_engines(stack, folder, engines)
        gateway, gateway_port = await start_gateway(stack, folder, key, files, engines)
        other = await start_other(stack, folder, engines)
        return await measure(bed, gateway, Ports(gateway_port, gateway_port, gateway_port), other)


def bodies(folder: Path) -> tuple[Path, Path]:
    """A short request, and one for the engine that drips."""
    text = " ".join(f"the {number}th word of a prompt that a user may have written" for number in range(12))
    message = {"role": "user", "content": f"######## {text}"}
    files = folder / "body.json", folder / "drip.json"
    for file, model in zip(files, (MODEL, "bench/drip"), strict=True):
        file.write_text(json.dumps({"model": model, "messages": [message], "max_tokens": 32, "stream": True}))
    return files


async def start_engines(stack: AsyncExitStack, folder: Path, ports: Ports) -> dict[str, Path]:
    """One that answers at once, one that drips; the files of the model that they serve."""
    files = {"tokenizer": folder / "tokenizer.json", "chat_template": folder / "chat_template.jinja"}
    builder_options = [str(files["tokenizer"]), "--chat-template", str(files["chat_template"])]
    async with running(folder / "tokenizer.log", "simulator.tokenizer", *builder_options) as builder:
        await builder.wait()
    options = [
        "--port",
        str(ports.fast),
        "--model",
        MODEL,
        "--tokenizer",
        str(files["tokenizer"]),
        "--speed",
        "instant",
    ]
    drip_options = ["--port", str(ports.drip), "--every-ms", str(EVERY_MS)]
    logs = folder / "engine.log", folder / "drip.log"
    engine = await stack.enter_async_context(running(logs[0], "simulator.engine", *options))
    drip = await stack.enter_async_context(running(logs[1], "bench.support.drip_engine", *drip_options))
    await answers(ports.fast, "/health", engine, logs[0])
    await answers(ports.drip, "/health", drip, logs[1])
    return files


async def start_gateway(
    stack: AsyncExitStack, folder: Path, key: str, files: dict[str, Path], engines: Ports
) -> tuple[Process, int]:
    control = await stack.enter_async_context(snapshot_server({"kind": "gateway", "schema": 1}))
    artifacts = {kind: control.add_artifact(file.read_bytes()) for kind, file in files.items()}
    control.publish(configuration(key, artifacts, engines))
    return await gateway_of(stack, folder, control)


async def gateway_of(stack: AsyncExitStack, folder: Path, control: SnapshotServer) -> tuple[Process, int]:
    """A gateway process that follows `control`, ready, and its port."""
    (folder / "join-token").write_text(control.join_token)
    port, log = free_port(), folder / "gateway.log"
    options = ["--control-url", control.url, "--join-token-file", str(folder / "join-token"), "--name", "bench"]
    options += ["--state-dir", str(folder / "state"), "--port", str(port)]
    gateway = await stack.enter_async_context(running(log, "gateway.cli", *options))
    await answers(port, "/readyz", gateway, log)
    return gateway, port


async def start_other(stack: AsyncExitStack, folder: Path, engines: Ports) -> tuple[Ports, Process] | None:
    """It serves one model, so there is one of it before each engine."""
    python = await installed(folder)
    if python is None:
        return None
    ports = Ports(free_port(), free_port(), free_port())
    for name, port, engine_port in zip(Ports._fields, ports, engines, strict=True):
        log = folder / f"other-{name}.log"
        process = await stack.enter_async_context(other_router(python, engine_port, port, log))
        await answers(port, "/health", process, log)
    # The last one stands before the engine that drips.
    return ports, process


def main(argv: list[str] | None = None) -> int:
    """Prints a table, then one JSON object. Exit status 0 only if every target holds."""
    argparse.ArgumentParser(description=__doc__).parse_args(argv)
    return report("gateway", __doc__, uvloop.run(bench()), TARGETS)


if __name__ == "__main__":
    sys.exit(main())
