"""What is left of a fleet's goodput when three times as much is asked of it as it can serve.

Real processes on 127.0.0.1: two simulated engines with the scheduler, KV cache and times of a small GPU, a gateway with
quotas, KV ledger, adaptive concurrency, queue and fairness on, and clients that ask without waiting for each other.
Goodput is requests a second whose first token came within 2 s and whose others within 100 ms each on average, as their
user sees it. Nobody waits longer than 20 s for a first token.

First the peak is looked for: rates from below it to above it are offered to the gateway, and to the engines without
it, each asked in turn. The best goodput of all is the peak. Then three times that is offered to the gateway, and in the
same way to the engines alone: what admission is for.
"""

from __future__ import annotations

import argparse
import hashlib
import secrets
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import uvloop

from bench.gateway import answers, gateway_of
from bench.support.open_load import OpenLoad, Promise, Seen
from bench.support.processes import running
from bench.support.report import Targets, report
from bench.support.snapshot_server import snapshot_server
from controlplane.demo.ports import free_port
from simulator.lengths import LogNormal
from simulator.tokenizer import CHAT_TEMPLATE, Words, train_tokenizer
from simulator.traffic import Tenant

MODEL = "bench/overload"
ENGINES = 2
ENGINE = ["--kv-capacity-tokens", "48000", "--max-num-seqs", "48", "--max-model-len", "4096", "--speed", "0.25"]
SWEEP_PER_SECOND = (16.0, 20.0, 25.0)
WARM_UP_SECONDS, SWEEP_SECONDS, DRILL_SECONDS, FULL_SECONDS = 10.0, 20.0, 50.0, 600.0
OVERLOAD = 3
PROMISE = Promise(ttft_seconds=2.0, tpot_seconds=0.1, patience_seconds=20.0)
TARGETS: Targets = {"goodput_percent_of_peak": ("at least", 95.0)}


def configuration(key: str, files: dict[str, str], ports: list[int]) -> dict[str, Any]:
    """`files`: the model's artifacts, by kind."""
    ttft_ms, tpot_ms = int(PROMISE.ttft_seconds * 1000), int(PROMISE.tpot_seconds * 1000)
    pool = {
        "model": MODEL,
        "adaptive_concurrency": True,
        "queue_cap": 32,
        # The rest of the promised time is for the prefill.
        "queue_ttl_ms": ttft_ms // 2,
        "ttft_slo_ms": ttft_ms,
        "tpot_slo_ms": tpot_ms,
    }
    return {
        "kind": "gateway",
        "schema": 1,
        "tenants": {"bench": {"tpm_limit": 10**9, "rpm_limit": 10**6, "max_parallel_requests": 10_000}},
        "keys": {hashlib.sha256(key.encode()).hexdigest(): {"tenant": "bench", "prefix": key[:8]}},
        "models": {MODEL: {"max_context_tokens": 4096, "default_max_tokens": 256, "max_tokens": 2048, **files}},
        "pools": {"chat": pool},
        "engines": {
            f"engine-{number}": {
                "url": f"http://127.0.0.1:{port}", "kind": "vllm", "pool": "chat", "served_model": MODEL,
            }
            for number, port in enumerate(ports)
        },
        "routes": {"all": {"order": 1, "pools": {"chat": 1000}}},
    }  # fmt: skip


def tenant(key: str) -> Tenant:
    """Chats with long prompts and shorter answers among them, all streamed, nobody leaving by himself."""
    return Tenant(
        key=key,
        model=MODEL,
        rate_per_second=1,
        prompt_tokens=LogNormal(median_tokens=250, sigma=0.8, max_tokens=2_000),
        output_tokens=LogNormal(median_tokens=120, sigma=0.7, max_tokens=500),
        stream_share=1,
        chat_share=1,
        cancel_share=0,
    )


def of_seen(name: str, seen: Seen) -> dict[str, float]:
    endings = {f"{name}_{ending.replace(' ', '_')}_per_second": seen.endings[ending] for ending in sorted(seen.endings)}
    return {
        f"{name}_goodput_per_second": seen.goodput,
        f"{name}_ttft_p95_ms": seen.p95_ttft_ms,
        f"{name}_output_tokens_per_second": seen.output_tokens / seen.seconds,
        **{
            ending: count / seen.seconds for ending, count in endings.items() if not ending.endswith("_good_per_second")
        },
    }


async def measure(subjects: dict[str, OpenLoad], drill_seconds: float) -> dict[str, float]:
    figures: dict[str, float] = {}
    for seed, rate in enumerate(SWEEP_PER_SECOND):
        for name, load in subjects.items():
            seen = await load.offer(rate, WARM_UP_SECONDS, SWEEP_SECONDS, seed)
            figures[f"{name}_goodput_at_{rate:g}_per_second"] = seen.goodput
    peak = max(figures.values())
    figures["peak_goodput_per_second"] = peak
    figures["offered_per_second"] = OVERLOAD * peak
    for name, load in subjects.items():
        seen = await load.offer(OVERLOAD * peak, WARM_UP_SECONDS, drill_seconds, len(SWEEP_PER_SECOND))
        figures |= of_seen(name, seen)
        of_it = "goodput_percent_of_peak" if name == "gateway" else f"{name}_goodput_percent_of_peak"
        figures[of_it] = 100 * seen.goodput / peak
    return figures


async def bench(drill_seconds: float) -> dict[str, float]:
    key = f"hw-{secrets.token_hex(16)}"
    tokenizer = train_tokenizer()
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headworks-bench-")))
        ports = [free_port() for _ in range(ENGINES)]
        for number, port in enumerate(ports):
            log = folder / f"engine-{number}.log"
            options = ["--port", str(port), "--model", MODEL, "--seed", str(number), *ENGINE]
            engine = await stack.enter_async_context(running(log, "simulator.engine", *options))
            await answers(port, "/health", engine, log)
        control = await stack.enter_async_context(snapshot_server({"kind": "gateway", "schema": 1}))
        files = {
            "tokenizer": control.add_artifact(tokenizer.to_str().encode()),
            "chat_template": control.add_artifact(CHAT_TEMPLATE.encode()),
        }
        control.publish(configuration(key, files, ports))
        _, gateway_port = await gateway_of(stack, folder, control)
        words = Words(tokenizer)
        subjects = {
            "gateway": OpenLoad([gateway_port], tenant(key), words, PROMISE),
            "engines_alone": OpenLoad(ports, tenant(key), words, PROMISE),
        }
        return await measure(subjects, drill_seconds)


def main(argv: list[str] | None = None) -> int:
    """Prints a table, then one JSON object. Exit status 0 only if every target holds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="offer the overload for ten minutes, not for 50 s")
    seconds = FULL_SECONDS if parser.parse_args(argv).full else DRILL_SECONDS
    return report("overload", __doc__, uvloop.run(bench(seconds)), TARGETS)


if __name__ == "__main__":
    sys.exit(main())
