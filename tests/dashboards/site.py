"""A real web process with a small fleet whose gateway and nodes push, and the dashboard in a browser."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import cycle
from typing import Any
from urllib.request import Request, urlopen

from playwright.sync_api import Page

from controlplane.rest_client import Rest
from controlplane.telemetry.store.database import FILE_NAME
from controlplane.telemetry.store.writer import Owner
from tests.controlplane.telemetry.filling import store
from tests.dashboards import fleet
from tests.web.site import Site
from wire import PROTOCOL
from wire.write_body import CONTENT_ENCODING, CONTENT_TYPE, Series, encode

STEP_MS = 15_000
RECORDING = Owner("headworks", "recording")
GATEWAY, NODES = "edge-1", ("rack1-gpu01", "rack1-gpu02", "rack1-gpu03")


class Fleet:
    """Targets of a site that push what `tests.dashboards.fleet` says they measure."""

    def __init__(self, site: Site) -> None:
        self._url, self._store = site.url, site.folder / "data" / FILE_NAME
        self._next_ms = 0
        rest = site.rest
        rest.post("/models", {"name": "llama", "max_context_tokens": 131_072})
        rest.post("/pools", {"name": "chat", "model": "llama", "ttft_slo_ms": 800})
        rest.post("/pools", {"name": "summaries", "model": "llama"})
        self._tokens = {
            GATEWAY: _enrol(rest, "gateway", GATEWAY),
            **{node: _enrol(rest, "node", node) for node in NODES},
        }
        for node, pool in zip(NODES, cycle(fleet.POOLS), strict=False):
            where = {"node": node, "pool": pool, "url": f"http://{node}:8000"}
            rest.post("/engines", {"name": f"{node}-vllm", "served_model": "llama", **where})

    def catch_up(self) -> int:
        """Push everything since the last time, or of the last hour, up to now; answers the newest moment (ms)."""
        now_ms = int(time.time() * 1000)
        self.push(range(self._next_ms or now_ms - 3_600_000, now_ms, STEP_MS))
        self.push([now_ms])
        self._next_ms = now_ms + STEP_MS
        return now_ms

    def push(self, times_ms: Sequence[int], *, silent: Sequence[str] = ()) -> None:
        """All but the `silent` ones push their samples of these moments."""
        pushed = {GATEWAY: fleet.gateway_series(GATEWAY, times_ms)}
        pushed |= {node: fleet.node_series(node, pool, times_ms) for node, pool in zip(NODES, cycle(fleet.POOLS))}
        for name, series in pushed.items():
            if name not in silent and times_ms:
                self._write(name, series)

    def record_a_week(self) -> None:
        """Put what rules would have recorded into the site's store, but of six hours, three days ago."""
        end_ms = int(time.time()) // 60 * 60_000
        begin_ms, silent_ms, back_ms = (end_ms - hours * 3_600_000 for hours in (7 * 24 + 1, 78, 72))
        for first_ms, last_ms in ((begin_ms, silent_ms), (back_ms, end_ms + 1)):
            store(self._store, fleet.recorded_series(NODES, range(first_ms, last_ms, 60_000)), RECORDING)

    def _write(self, name: str, series: list[Series]) -> None:
        headers = {
            "Authorization": f"Bearer {self._tokens[name]}",
            "Content-Type": CONTENT_TYPE,
            "Content-Encoding": CONTENT_ENCODING,
        }
        with urlopen(Request(f"{self._url}/prometheus/api/v1/write", encode(series), headers)) as answer:
            assert answer.status == 204


def _enrol(rest: Rest, kind: str, name: str) -> str:
    secret = rest.post("/targets/join-tokens", {"kind": kind, "name": name})["secret"]
    body = {"join_token": secret, "kind": kind, "name": name, "version": "0.1.0", "protocol": PROTOCOL}
    return str(rest.post("/targets/enrol", body)["token"])


def drawn(page: Page, chart: str) -> list[dict[str, Any]]:
    """What Plotly draws in a chart now: name, x and y of each line."""
    lines: list[dict[str, Any]] = page.evaluate(
        """(chart) => (document.querySelector(`#${chart} .js-plotly-plot`)?.data ?? [])
            .map(({name, x, y}) => ({name, x: Array.from(x), y: Array.from(y)}))""",
        chart,
    )
    return lines


def newest_ms(page: Page, chart: str) -> int:
    return max((line["x"][-1] for line in drawn(page, chart)), default=0)
