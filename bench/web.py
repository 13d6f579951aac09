"""The web UI: how long pages take, how often they ask the database, what a first visit loads, what viewers cost.

A real web process with SQLite, and fleets of 50 and of 200 nodes with 8 GPUs and two engines each, targets, incidents,
and an hour of samples every 15 s. A page is asked for over HTTP when nothing that pages share is kept any more; figures
are medians. `cpu_ms` is the web process' own time for one page, which other work on the machine does not lengthen.
A dashboard is the callback that gives all figures of a layer: `first` when nobody has looked at that span yet. The
bytes of a first visit are those that Chromium receives, compressed as they come. The viewers are 50 log-ins with the
overview open: each its stream, and its panels at every event and by their own clocks, while a tenant's limit is changed
every ten seconds.
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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlsplit

from bench.support.control_plane import web_process
from bench.support.first_visit import bytes_of
from bench.support.processes import cpu_seconds, ending
from bench.support.report import Targets, report
from bench.support.viewers import COOKIE
from controlplane.rest_client import Rest
from dashboards.charts import LAYERS

SMALL, LARGE = 50, 200
# The large fleet's pages look back five minutes; the dashboard of the small one an hour.
SMALL_MINUTES, LARGE_MINUTES = 61, 8
PAGES = {"overview": "/overview/", "fleet": "/fleet/"}
ROUNDS = 7
# Longer than controlplane.web.kept keeps what it has read.
UNKEPT_SECONDS = 1.2
VIEWERS_SECONDS, QUICK_SECONDS, CHANGE_SECONDS = 60.0, 20.0, 10.0
SPANS = ("15m", "1h")
TARGETS: Targets = {
    "overview_50_ms": ("at most", 300.0),
    "fleet_50_ms": ("at most", 300.0),
    "overview_50_queries": ("at most", 10.0),
    "fleet_50_queries": ("at most", 10.0),
    "overview_200_ms": ("at most", 600.0),
    "fleet_200_ms": ("at most", 600.0),
    "dashboard_first_ms": ("at most", 500.0),
    "overview_first_visit_kb": ("at most", 2000.0),
    "dashboard_first_visit_kb": ("at most", 2000.0),
    "viewers_cpu_percent": ("at most", 30.0),
}
Figures = dict[str, float]


@dataclass(frozen=True)
class Site:
    """A web process with a fleet in it, and the session cookies of who may look."""

    rest: Rest
    pid: int
    cookies: list[str]
    environment: Mapping[str, str]

    def ask(self, path: str, body: bytes = b"") -> tuple[float, float, bytes]:
        """Milliseconds until the whole answer is there, those of the process' CPU, and the answer."""
        parts = urlsplit(self.rest.base_url)
        cookie = f"{COOKIE}={self.cookies[0]}; headworks_csrf={_CSRF}"
        headers = {"Cookie": cookie, "Accept-Encoding": "gzip"}
        if body:
            headers |= {"Content-Type": "application/json", "X-CSRFToken": _CSRF}
        connection = http.client.HTTPConnection(parts.netloc, timeout=60)
        cpu_before, begun = cpu_seconds(self.pid), time.perf_counter()
        connection.request("POST" if body else "GET", path, body or None, headers)
        answer = connection.getresponse()
        text = answer.read()
        took = time.perf_counter() - begun
        connection.close()
        if answer.status != HTTPStatus.OK:
            raise RuntimeError(f"{path}: {answer.status} {text[:300]!r}")
        return took * 1000, (cpu_seconds(self.pid) - cpu_before) * 1000, text


# What a browser would have been given with the page; of Django's length.
_CSRF = "b" * 32


def main(argv: list[str] | None = None) -> int:
    """Prints a table, then one JSON object. Exit status 0 only if the targets hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"viewers look for {QUICK_SECONDS:g} s")
    seconds = QUICK_SECONDS if parser.parse_args(argv).quick else VIEWERS_SECONDS
    with tempfile.TemporaryDirectory(prefix="headworks-bench-") as name:
        folder = Path(name)
        with running(folder / "small", SMALL, SMALL_MINUTES) as site:
            figures = pages(site, SMALL) | dashboards(site) | first_visits(site) | viewers(site, seconds)
        with running(folder / "large", LARGE, LARGE_MINUTES) as site:
            figures |= pages(site, LARGE)
    return report("web", __doc__, figures | {"load_average": os.getloadavg()[0]}, TARGETS)


@contextmanager
def running(folder: Path, nodes: int, minutes: int) -> Iterator[Site]:
    folder.mkdir()
    # Its rules are those of the fleet that is drawn here.
    settings = {"HEADWORKS_RULE_PACK": "off"}
    with web_process(folder, settings) as (rest, pid):
        embedded = {"HEADWORKS_DATABASE_URL": "", "HEADWORKS_REDIS_URL": "", "HEADWORKS_DATA_DIR": str(folder)}
        environment = {**os.environ, **embedded, "DJANGO_SETTINGS_MODULE": "controlplane.settings"}
        told = python(environment, "bench.support.web_fleet", str(nodes), str(minutes))
        yield Site(rest, pid, told.split(), environment)


def python(environment: Mapping[str, str], module: str, *words: str) -> str:
    command = [sys.executable, "-m", module, *words]
    return subprocess.run(command, env=dict(environment), check=True, stdout=subprocess.PIPE, text=True).stdout


def pages(site: Site, nodes: int) -> Figures:
    figures: Figures = {}
    for name, path in PAGES.items():
        site.ask(path)
        figures |= _medians(f"{name}_{nodes}", lambda path=path: _unkept(site, path))  # type: ignore[misc]
    counted = json.loads(python(site.environment, "bench.support.page_queries", site.cookies[0], *PAGES.values()))
    return figures | {f"{name}_{nodes}_queries": counted[path] for name, path in PAGES.items()}


def _unkept(site: Site, path: str) -> tuple[float, float]:
    time.sleep(UNKEPT_SECONDS)
    return site.ask(path)[:2]


def _medians(name: str, ask: Callable[[], tuple[float, float]]) -> Figures:
    took = [ask() for _ in range(ROUNDS)]
    wall, cpu = (statistics.median(each) for each in zip(*took, strict=True))
    return {f"{name}_ms": wall, f"{name}_cpu_ms": cpu}


def dashboards(site: Site) -> Figures:
    """Of the slowest layer and span; `again`: who comes next to the same moment."""
    first, again, cpu = 0.0, 0.0, 0.0
    for layer in LAYERS:
        site.ask(f"/dashboards/{layer.path}")
        for span in SPANS:
            wall_ms, cpu_ms, text = call(site, layer.path, span)
            if b'"figures"' not in text and b"\x1f\x8b" not in text[:2]:
                raise RuntimeError(f"{layer.path} {span}: {text[:300]!r}")
            first, cpu = max(first, wall_ms), max(cpu, cpu_ms)
            again = max(again, call(site, layer.path, span)[0])
    return {"dashboard_first_ms": first, "dashboard_first_cpu_ms": cpu, "dashboard_again_ms": again}


def call(site: Site, layer: str, span: str) -> tuple[float, float, bytes]:
    """What Dash's script sends for the figures of a page."""
    asked = {
        "output": "whole.data",
        "outputs": {"id": "whole", "property": "data"},
        "inputs": [
            {"id": "address", "property": "search", "value": f"?span={span}"},
            {"id": "again", "property": "data", "value": 0},
        ],
        "changedPropIds": ["address.search"],
    }
    return site.ask(f"/dashboards/{layer}_dash-update-component", json.dumps(asked).encode())


def first_visits(site: Site) -> Figures:
    cookie, url = (COOKIE, site.cookies[0]), site.rest.base_url
    overview = bytes_of(url, "/overview/", cookie, "#changes")
    dashboard = bytes_of(url, "/dashboards/", cookie, ".js-plotly-plot")
    return {"overview_first_visit_kb": overview / 1000, "dashboard_first_visit_kb": dashboard / 1000}


def viewers(site: Site, seconds: float) -> Figures:
    """CPU of the web process with all of them and, before that, with none; both while limits change."""
    idle = _cpu_percent(site, CHANGE_SECONDS)
    command = [sys.executable, "-m", "bench.support.viewers", site.rest.base_url, str(seconds)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process, ending(process, 10):
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("the viewers have no pipes")
        process.stdin.write("\n".join(site.cookies).encode())
        process.stdin.close()
        process.stdout.readline()
        percent = _cpu_percent(site, seconds - 1)
        seen = json.loads(process.stdout.readline())
    panels = sum(count for name, count in seen.items() if name.startswith("/"))
    return {
        "idle_cpu_percent": idle,
        "viewers_cpu_percent": percent,
        "viewers_panels_per_second": panels / seen["seconds"],
        "viewers_events_per_second": seen.get("events", 0) / seen["seconds"],
    }


def _cpu_percent(site: Site, seconds: float) -> float:
    before, begun, changes = cpu_seconds(site.pid), time.monotonic(), 0
    while (passed := time.monotonic() - begun) < seconds:
        if passed >= changes * CHANGE_SECONDS:
            changes += 1
            site.rest.patch("/tenants/tenant-0", {"tpm_limit": 1000 + changes})
        time.sleep(0.2)
    return 100 * (cpu_seconds(site.pid) - before) / (time.monotonic() - begun)


if __name__ == "__main__":
    sys.exit(main())
