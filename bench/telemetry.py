"""The embedded metric store: samples a second through the receiver, a dashboard page, bytes a sample on disk.

A real web process with SQLite. Two nodes push bodies of 5,000 series with one sample each for 20 seconds, each the next
body once the one before is answered, while one of the page's queries is asked beside it each second. Then 24 range
queries over an hour of 50 nodes with 8 GPUs each, at 15 s, are asked one after the other over HTTP; the samples of that
hour were stored before, packed but for the last five minutes. Then the page is asked five times more, as by a browser
that stays on it; its CPU time in the web process counts. The sender builds its bodies on the other core.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlencode, urlsplit

from bench.support.control_plane import enrol, web_process
from bench.support.memory import resident_mib
from bench.support.processes import cpu_seconds
from bench.support.report import Targets, report
from controlplane.telemetry.store.admission import Window
from controlplane.telemetry.store.database import FILE_NAME
from controlplane.telemetry.store.packing import pack
from controlplane.telemetry.store.retention import prune
from controlplane.telemetry.store.writer import Owner, writer_of
from wire.write_body import key_of

NODES, GPUS, STEP_MS, HOUR_MS = 50, 8, 15_000, 3_600_000
INGEST_SECONDS = 20
ROUNDS = 5
GAUGES = ("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE",
          "DCGM_FI_DEV_SM_CLOCK", "headworks_engine_kv_cache_usage_ratio",
          "headworks_engine_requests_running", "headworks_engine_requests_waiting")  # fmt: skip
COUNTERS = ("headworks_engine_generation_tokens_total", "headworks_engine_prompt_tokens_total",
            "headworks_engine_preemptions_total", "headworks_engine_requests_finished_total")  # fmt: skip
TTFT = "headworks_engine_ttft_seconds_bucket"
BOUNDS = ("0.05", "0.1", "0.25", "0.5", "1", "2.5", "5", "+Inf")
QUERIES = (
    *(f"avg by (node) ({name})" for name in GAUGES),
    *(f"max({name})" for name in GAUGES[:4]),
    *(f"sum by (node) (rate({name}[1m]))" for name in COUNTERS),
    GAUGES[2],
    f"topk(5, {GAUGES[3]})",
    f"{GAUGES[2]} > 70",
    f"count({GAUGES[5]} > 0.95) or vector(0)",
    f"sum({GAUGES[7]}) / sum({GAUGES[6]})",
    f"max_over_time({GAUGES[5]}[5m])",
    f"histogram_quantile(0.95, sum by (le) (rate({TTFT}[1m])))",
    f"histogram_quantile(0.5, sum by (node, le) (rate({TTFT}[5m])))",
)
TARGETS: Targets = {
    "ingest_samples_per_second": ("at least", 50_000.0),
    "page_server_ms": ("at most", 500.0),
    "bytes_per_sample": ("at most", 4.0),
}


def main(argv: list[str] | None = None) -> int:
    """Prints a table, then one JSON object. Exit status 0 only if the targets hold."""
    argparse.ArgumentParser(description=__doc__).parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="headworks-bench-") as name:
        folder = Path(name)
        with web_process(folder) as (rest, web):
            now_ms = int(time.time()) * 1000
            figures = fill(folder / FILE_NAME, now_ms)
            tokens = [enrol(rest, "node", f"push-{number}") for number in range(2)]
            figures |= ingest(rest.base_url, rest.token, tokens, web, now_ms)
            figures["page_first_ms"] = page(rest.base_url, rest.token, now_ms)
            cpu_before = cpu_seconds(web)
            again = [page(rest.base_url, rest.token, now_ms) for _ in range(ROUNDS)]
            figures["page_ms"] = statistics.median(again)
            figures["page_server_ms"] = (cpu_seconds(web) - cpu_before) / ROUNDS * 1000
    return report("telemetry", __doc__, figures, TARGETS)


def fill(path: Path, now_ms: int) -> dict[str, float]:
    """An hour of the fleet's samples, straight into the store's file."""
    dice = random.Random(5)
    begin_ms, window = now_ms - HOUR_MS, Window(0, 2**60, 0)
    fleets = {}
    for node in range(NODES):
        labels = [
            {"__name__": name, "node": f"node-{node}", "gpu": str(gpu), "UUID": f"GPU-{node:08x}-{gpu}"}
            for gpu in range(GPUS)
            for name in (*GAUGES, *COUNTERS)
        ]
        labels += [{"__name__": TTFT, "node": f"node-{node}", "engine": f"e-{node}", "le": bound} for bound in BOUNDS]
        fleets[Owner("node", f"node-{node}")] = {key_of(each): each for each in labels}
    totals = [0.0] * sum(map(len, fleets.values()))
    samples, packed = 0, []
    for at_ms in range(begin_ms, now_ms, STEP_MS):
        place = 0
        for owner, series in fleets.items():
            names = (labels["__name__"] for labels in series.values())
            values = [reading(dice, name, totals, place + row) for row, name in enumerate(names)]
            place += len(series)
            times = [at_ms + dice.randrange(50)] * len(series)
            fresh = series if at_ms == begin_ms else {}
            writer_of(path).write(owner, list(series), fresh, ([1] * len(series), times, values), window, len(series))
            samples += len(series)
        if at_ms in (now_ms - HOUR_MS // 2, now_ms - 300_000):
            pack(path, 2**60)
            prune(path, 0, 2**60)
            packed.append((samples, path.stat().st_size))
    # Growth: what a series costs once, its labels and their index, is told apart.
    (few, small), (many, large) = packed
    per_sample = (large - small) / (many - few)
    per_series = (small - few * per_sample) / len(totals)
    return {"stored_samples": samples, "bytes_per_sample": per_sample, "bytes_per_series": per_series}


def reading(dice: random.Random, name: str, totals: list[float], place: int) -> float:
    """What a GPU or an engine would say: rounded gauges, growing counters, cumulative buckets."""
    if name.endswith("_total"):
        totals[place] += dice.randrange(3000)
        return totals[place]
    if name == TTFT:
        totals[place] += dice.randrange(5)
        return totals[place]
    return round(dice.gauss(0.7, 0.1), 3) if name.endswith("_ratio") else float(round(dice.gauss(65, 6)))


def ingest(url: str, token: str, nodes: Sequence[str], web: int, now_ms: int) -> dict[str, float]:
    command = [sys.executable, "-m", "bench.support.metric_writers", url, str(INGEST_SECONDS)]
    cpu_before, begun = cpu_seconds(web), time.monotonic()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writers:
        asking = ThreadPoolExecutor(1)
        asked = asking.submit(watch, url, token, now_ms, begun + INGEST_SECONDS)
        printed, _ = writers.communicate("\n".join(nodes))
    seconds = time.monotonic() - begun
    sent = json.loads(printed)
    return {
        "ingest_samples_per_second": sent["samples"] / sent["seconds"],
        "ingest_p50_ms": sent["p50_ms"],
        "ingest_p99_ms": sent["p99_ms"],
        "refused_bodies": sent["refused"],
        "queries_answered_meanwhile": asked.result(),
        "server_cpu_percent": 100 * (cpu_seconds(web) - cpu_before) / seconds,
        "server_resident_mib": resident_mib(web),
    }


def watch(url: str, token: str, now_ms: int, until: float) -> int:
    """One query of the page a second."""
    asked = 0
    while time.monotonic() < until:
        range_query(url, token, QUERIES[asked % len(QUERIES)], now_ms)
        asked += 1
        time.sleep(1)
    return asked


def page(url: str, token: str, now_ms: int) -> float:
    begun = time.perf_counter()
    for promql in QUERIES:
        range_query(url, token, promql, now_ms)
    return (time.perf_counter() - begun) * 1000


def range_query(url: str, token: str, promql: str, now_ms: int) -> None:
    asked = {"query": promql, "start": (now_ms - HOUR_MS) / 1000, "end": now_ms / 1000, "step": STEP_MS / 1000}
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    path = f"/prometheus/api/v1/query_range?{urlencode(asked)}"
    connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    if answer.status != http.HTTPStatus.OK or b'"values":' not in body:
        raise RuntimeError(f"{promql}: {answer.status} {body[:300]!r}")


if __name__ == "__main__":
    sys.exit(main())
