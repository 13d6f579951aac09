"""Metrics: samples a second, pages of an hour and of a week, bytes a sample, beside Prometheus and VictoriaMetrics.

A real web process with SQLite, on two cores: the senders build their bodies on the other one. 50 nodes push bodies of
1,000 series with one sample each over two connections, the next body once the one before is answered, for five minutes,
while one query of the page is asked beside it each second. The page is 24 range queries over an hour of 50 nodes with
8 GPUs each at 15 s, asked one after the other over HTTP; that hour was stored before, packed but for the last five
minutes. `first` is its first time, the next figure the median of five more, as by a browser that stays on it. The week
is 24 range queries over seven days of recorded series, one sample a minute, in 1,008 steps; the dashboard's week is the
queries of its charts, in its steps. Pass-through is the same pushes checked and handed to a server that takes
everything, by the web process' CPU time.

Debian's Prometheus and VictoriaMetrics, where they are installed, get the same samples by remote write, the same
pushes and the same queries, one after the other, in their default settings.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode, urlsplit

from bench.support import fleet_metrics as fleet
from bench.support.control_plane import answers, enrol, wait_for, wait_until, web_process
from bench.support.memory import resident_mib
from bench.support.metric_servers import SERVERS, installed, size_of
from bench.support.processes import cpu_seconds, ending
from bench.support.report import Targets, report
from controlplane.demo.ports import free_port
from controlplane.telemetry.store.admission import Window
from controlplane.telemetry.store.database import FILE_NAME
from controlplane.telemetry.store.packing import pack
from controlplane.telemetry.store.retention import prune
from controlplane.telemetry.store.writer import Owner, writer_of
from wire.push import WRITE_PATH as PUSH
from wire.write_body import key_of

INGEST_SECONDS, QUICK_SECONDS = 300.0, 20.0
PUSHING_NODES = 50
ROUNDS = 5
QUERY = "/prometheus/api/v1/query_range"
TARGETS: Targets = {
    "ingest_samples_per_second": ("at least", 50_000.0),
    "passed_on_samples_per_cpu_second": ("at least", 150_000.0),
    "page_first_ms": ("at most", 500.0),
    "page_ms": ("at most", 500.0),
    "week_first_ms": ("at most", 2000.0),
    "dashboard_week_first_ms": ("at most", 2000.0),
    "bytes_per_sample": ("at most", 4.0),
}
Figures = dict[str, float]


@dataclass(frozen=True)
class Engine:
    """Whom a page asks and nodes push to."""

    query_url: str
    write_url: str
    token: str
    pid: int


def main(argv: list[str] | None = None) -> int:
    """Prints a table, then one JSON object. Exit status 0 only if the targets hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"push for {QUICK_SECONDS:g} s instead of five minutes")
    seconds = QUICK_SECONDS if parser.parse_args(argv).quick else INGEST_SECONDS
    now_ms = int(time.time()) * 1000
    with tempfile.TemporaryDirectory(prefix="headworks-bench-") as name:
        folder = Path(name)
        own = embedded(folder, now_ms, seconds) | {"passed_on_samples_per_cpu_second": passed_on(folder)}
        others = {server: beside(folder, server, now_ms, seconds) for server in installed()}
    figures = {**own, "load_average": os.getloadavg()[0]}
    text = f"{__doc__}\n{compared(own, others)}"
    for server, measured in others.items():
        figures |= {f"{server}_{figure}": value for figure, value in measured.items()}
    return report("telemetry", text, figures, TARGETS)


def compared(own: Figures, others: dict[str, Figures]) -> str:
    """A row a figure that others have too; in brackets the embedded store's figure over theirs."""
    lines = [f"{'':32} {'embedded':>12}" + "".join(f" {server:>24}" for server in others)]
    for figure, value in own.items():
        cells = [_beside(value, theirs[figure]) for theirs in others.values() if figure in theirs]
        if cells:
            lines.append(f"{figure:32} {value:12.1f}" + "".join(cells))
    missing = [server for server in SERVERS if server not in others]
    return "\n".join([*lines, *(f"{server} is not installed here" for server in missing)])


def _beside(value: float, theirs: float) -> str:
    ratio = f"({value / theirs:.2f})" if theirs else ""
    return f" {theirs:14.1f} {ratio:>9}"


def embedded(folder: Path, now_ms: int, seconds: float) -> Figures:
    with tempfile.TemporaryDirectory(dir=folder) as name, web_process(Path(name)) as (rest, web):
        path = Path(name) / FILE_NAME
        figures = fill(path, fleet.hour(now_ms), now_ms)
        engine = Engine(f"{rest.base_url}{QUERY}", f"{rest.base_url}{PUSH}", rest.token, web)
        tokens = [enrol(rest, "node", f"push-{number}") for number in range(PUSHING_NODES)]
        figures |= page(engine, now_ms) | ingest(engine, tokens, seconds, now_ms)
        figures["store_mib_after"] = size_of(path.parent, f"{FILE_NAME}*") / 2**20
    with tempfile.TemporaryDirectory(dir=folder) as name, web_process(Path(name)) as (rest, web):
        recorded = fill(Path(name) / FILE_NAME, fleet.week(now_ms), now_ms)
        figures["recorded_disk_bytes_per_sample"] = recorded["disk_bytes_per_sample"]
        return figures | week(Engine(f"{rest.base_url}{QUERY}", f"{rest.base_url}{PUSH}", rest.token, web), now_ms)


def beside(folder: Path, server: str, now_ms: int, seconds: float) -> Figures:
    """The same on a server of this name."""
    with tempfile.TemporaryDirectory(dir=folder) as name, SERVERS[server](Path(name)) as running:
        samples = running.fill(fleet.hour(now_ms))
        figures = {"disk_bytes_per_sample": running.settled_bytes() / samples}
        engine = Engine(f"{running.url}/api/v1/query_range", running.write_url, "none", running.pid)
        figures |= page(engine, now_ms) | ingest(engine, ["none"] * PUSHING_NODES, seconds, now_ms)
    with tempfile.TemporaryDirectory(dir=folder) as name, SERVERS[server](Path(name)) as running:
        samples = running.fill(fleet.week(now_ms))
        figures["recorded_disk_bytes_per_sample"] = running.settled_bytes() / samples
        engine = Engine(f"{running.url}/api/v1/query_range", running.write_url, "none", running.pid)
        return figures | week(engine, now_ms)


def fill(path: Path, slices: Iterable[fleet.Slice], now_ms: int) -> Figures:
    """Straight into the store's file, packed now and then as a control plane would, but for the last five minutes."""
    window, writer = Window(0, 2**60, 0), writer_of(path)
    samples, series, packed = 0, 0, []
    for part in slices:
        owner = Owner("node", part.owner)
        keys = [key_of(labels) for labels in part.labels]
        fresh = {key: labels for key, labels in zip(keys, part.labels, strict=True) if key not in writer.known(owner)}
        if part.times_ms[0] >= now_ms - fleet.HOUR_SLICE_MS and writer.samples_written:
            packed.append((samples, packed_size(path)))
            writer.samples_written = 0
        times, values = list(part.times_ms) * len(keys), part.values.ravel().tolist()
        writer.write(owner, keys, fresh, ([len(part.times_ms)] * len(keys), times, values), window, len(keys))
        samples, series = samples + part.values.size, series + len(fresh)
        if writer.samples_written >= 500_000:
            packed.append((samples, packed_size(path)))
            writer.samples_written = 0
    # Growth: what a series costs once, its labels and their index, is told apart.
    (few, small), (many, large) = packed[0], packed[-1]
    per_sample = (large - small) / (many - few)
    return {
        "disk_bytes_per_sample": large / many,
        "bytes_per_sample": per_sample,
        "bytes_per_series": (small - few * per_sample) / series,
        "stored_samples": samples,
    }


def packed_size(path: Path) -> int:
    pack(path, 2**60)
    prune(path, 0, 2**60)
    return path.stat().st_size


def passed_on(folder: Path) -> float:
    """Samples a second of the web process' CPU time, with a server behind it that takes everything."""
    port = free_port()
    sink = f"http://127.0.0.1:{port}"
    settings = {"HEADWORKS_REMOTE_WRITE_URL": f"{sink}/api/v1/write", "HEADWORKS_PROMETHEUS_URL": sink}
    server = subprocess.Popen([sys.executable, "-m", "bench.support.metrics_sink", str(port)])
    with ending(server, 10), tempfile.TemporaryDirectory(dir=folder) as name:
        wait_for(lambda: answers(sink), "the server behind")
        with web_process(Path(name), settings) as (rest, web):
            tokens = [enrol(rest, "node", f"push-{number}") for number in range(PUSHING_NODES)]
            # Labels are checked once a series: not part of what goes on for months.
            push(f"{rest.base_url}{PUSH}", tokens, 3)
            begun = cpu_seconds(web)
            sent = push(f"{rest.base_url}{PUSH}", tokens, QUICK_SECONDS)
            if sent["refused"]:
                raise RuntimeError(f"{sent['refused']} bodies were not passed on")
            if not wait_until(lambda: settled(sink), QUICK_SECONDS):
                raise RuntimeError(f"what was pushed was not passed on within {QUICK_SECONDS:g} s")
            return sent["samples"] / (cpu_seconds(web) - begun)


def settled(sink: str) -> bool:
    """Whether nothing comes for a second."""
    before = get(sink, "")
    time.sleep(1)
    return get(sink, "") == before


def push(write_url: str, tokens: Sequence[str], seconds: float) -> Figures:
    command = [sys.executable, "-m", "bench.support.metric_writers", write_url, str(seconds)]
    done = subprocess.run(command, input="\n".join(tokens), stdout=subprocess.PIPE, text=True, check=True)
    figures: Figures = json.loads(done.stdout)
    return figures


def ingest(engine: Engine, tokens: Sequence[str], seconds: float, now_ms: int) -> Figures:
    cpu_before, begun = cpu_seconds(engine.pid), time.monotonic()
    with ThreadPoolExecutor(1) as asking:
        asked = asking.submit(watch, engine, now_ms, begun + seconds)
        sent = push(engine.write_url, tokens, seconds)
    cpu, passed = cpu_seconds(engine.pid) - cpu_before, time.monotonic() - begun
    waits = asked.result()
    return {
        "ingest_samples_per_second": sent["samples"] / sent["seconds"],
        "ingest_samples_per_cpu_second": sent["samples"] / cpu,
        "ingest_p50_ms": sent["p50_ms"],
        "ingest_p99_ms": sent["p99_ms"],
        "ingest_refused_bodies": sent["refused"],
        "query_meanwhile_ms": statistics.median(waits),
        "query_meanwhile_longest_ms": max(waits),
        "server_cpu_percent": 100 * cpu / passed,
        "server_resident_mib": resident_mib(engine.pid),
    }


def watch(engine: Engine, now_ms: int, until: float) -> list[float]:
    """One query of the page a second; how long each took, in ms."""
    waits: list[float] = []
    while time.monotonic() < until:
        promql = fleet.HOUR_PAGE[len(waits) % len(fleet.HOUR_PAGE)]
        waits.append(asked_ms(engine, [promql], now_ms, fleet.HOUR_MS, fleet.HOUR_STEP_MS))
        time.sleep(1)
    return waits


def page(engine: Engine, now_ms: int) -> Figures:
    return _pages(engine, "page", fleet.HOUR_PAGE, now_ms, fleet.HOUR_MS, fleet.HOUR_STEP_MS)


def week(engine: Engine, now_ms: int) -> Figures:
    page = _pages(engine, "week", fleet.WEEK_PAGE, now_ms, fleet.WEEK_MS, fleet.WEEK_STEP_MS)
    step_ms = fleet.DASHBOARD_WEEK_STEP_MS
    return page | _pages(engine, "dashboard_week", fleet.DASHBOARD_WEEK, now_ms, fleet.WEEK_MS, step_ms)


def _pages(engine: Engine, name: str, queries: Sequence[str], now_ms: int, span_ms: int, step_ms: int) -> Figures:
    first = asked_ms(engine, queries, now_ms, span_ms, step_ms)
    cpu_before = cpu_seconds(engine.pid)
    again = [asked_ms(engine, queries, now_ms, span_ms, step_ms) for _ in range(ROUNDS)]
    cpu_ms = (cpu_seconds(engine.pid) - cpu_before) / ROUNDS * 1000
    return {f"{name}_first_ms": first, f"{name}_ms": statistics.median(again), f"{name}_server_cpu_ms": cpu_ms}


def asked_ms(engine: Engine, queries: Sequence[str], now_ms: int, span_ms: int, step_ms: int) -> float:
    """How long the queries take together."""
    begun = time.perf_counter()
    for promql in queries:
        asked = {"query": promql, "start": (now_ms - span_ms) / 1000, "end": now_ms / 1000, "step": step_ms / 1000}
        body = get(f"{engine.query_url}?{urlencode(asked)}", engine.token)
        if b'"values":' not in body:
            raise RuntimeError(f"{promql}: {body[:300]!r}")
    return (time.perf_counter() - begun) * 1000


def get(url: str, token: str) -> bytes:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=60)
    connection.request("GET", f"{parts.path}?{parts.query}", headers={"Authorization": f"Bearer {token}"})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    if answer.status != http.HTTPStatus.OK:
        raise RuntimeError(f"{url}: {answer.status} {body[:300]!r}")
    return body


if __name__ == "__main__":
    sys.exit(main())
