"""From an XID that a node's agent posts to the webhook that calls somebody, and to the cordon at every gateway.

A real embedded control plane: a web process and a worker on SQLite, eight gateways that follow their streams and
acknowledge, a hundred nodes with an engine each, and a receiver of signed webhooks, all on this machine. Twice a second
another node posts a critical XID; the cordon policy is on for all of them. Times are from just before the post: to the
arrival of the first webhook that names the node, and to when the last gateway has taken the revision that cordons it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from bench.support.control_plane import enrol, following, wait_until, web_process
from bench.support.processes import cpu_seconds, ending
from bench.support.report import Targets, report
from controlplane.rest_client import Rest

EVENTS, GATEWAYS = 100, 8
EVERY_SECONDS = 0.5
PATIENCE_SECONDS = 60.0
MODEL = {"name": "bench/model", "max_context_tokens": 8192}

TARGETS: Targets = {
    "xid_to_webhook_p95_seconds": ("at most", 5.0),
    "xid_to_cordon_p95_seconds": ("at most", 2.0),
    "events_without_webhook": ("at most", 0),
    "events_without_cordon": ("at most", 0),
}


class OnCall:
    """Takes every webhook, and knows when a node was named first: Unix time in ms by node."""

    def __init__(self) -> None:
        self.named: dict[str, int] = {}
        on_call = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                now = now_ms()
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                for alert in body["alerts"]:
                    on_call.named.setdefault(alert["labels"].get("node", ""), now)
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """Nothing beside the figures."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/hook"

    @contextmanager
    def listening(self) -> Iterator[OnCall]:
        thread = threading.Thread(target=self._server.serve_forever)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            thread.join()
            self._server.server_close()


def main(argv: list[str] | None = None) -> int:
    """Prints a table, then one JSON object. Exit status 0 only if the targets hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=EVENTS, help=f"nodes that post one each ({EVENTS})")
    events = parser.parse_args(argv).events
    if events < 2:
        parser.error("--events: give at least 2")
    with tempfile.TemporaryDirectory(prefix="headworks-bench-") as name:
        folder, settings = Path(name), {"HEADWORKS_WEBHOOK_ALLOWED_NETWORKS": "127.0.0.0/8"}
        with (
            web_process(folder, settings) as (rest, web),
            worker(folder, settings) as works,
            OnCall().listening() as on_call,
        ):
            figures = measure(rest, on_call, events, {"web": web, "worker": works})
    return report("paging", __doc__, figures, TARGETS)


@contextmanager
def worker(folder: Path, settings: Mapping[str, str]) -> Iterator[int]:
    """The worker of the embedded control plane of this folder, with beat in it: its process id."""
    embedded = {"HEADWORKS_DATABASE_URL": "", "HEADWORKS_REDIS_URL": "", "HEADWORKS_DATA_DIR": str(folder)}
    command = [sys.executable, "-m", "controlplane.cli", "worker"]
    with (folder / "worker.log").open("wb") as log:
        process = subprocess.Popen(command, env={**os.environ, **embedded, **settings}, stdout=log, stderr=log)
    with ending(process, 10):
        yield process.pid


def measure(rest: Rest, on_call: OnCall, events: int, processes: Mapping[str, int]) -> dict[str, float]:
    """`processes`: ids by name, whose CPU time is told apart."""
    gateways, agents = fill(rest, on_call, events)
    # The worker is up once it has told of the first one, which is not measured.
    post_xid(rest, "warm-up", agents.pop("warm-up"))
    if not wait_until(lambda: "warm-up" in on_call.named, PATIENCE_SECONDS):
        raise RuntimeError("no webhook came")
    posted: dict[str, int] = {}
    before = {name: cpu_seconds(pid) for name, pid in processes.items()}
    with following([rest.base_url], gateways) as end:
        began = time.monotonic()
        for number, (node, token) in enumerate(agents.items()):
            time.sleep(max(0.0, began + number * EVERY_SECONDS - time.monotonic()))
            posted[node] = now_ms()
            post_xid(rest, node, token)
        wait_until(lambda: posted.keys() <= on_call.named.keys(), PATIENCE_SECONDS)
        spent = {name: cpu_seconds(pid) - before[name] for name, pid in processes.items()}
        revisions = cordons(rest)
        newest = max(revisions.values(), default=0)
        wait_until(lambda: stands_at(rest, newest), PATIENCE_SECONDS)
        applied = arrivals(end()["applied"])
    webhooks = [on_call.named[node] - at for node, at in posted.items() if node in on_call.named]
    reached = {node: at_all(applied, revisions[node]) for node in posted if node in revisions}
    cordoned = [at - posted[node] for node, at in reached.items() if at is not None]
    return {
        "events": len(posted),
        "gateways": len(gateways),
        "events_without_webhook": len(posted) - len(webhooks),
        "events_without_cordon": len(posted) - len(cordoned),
        **spread("xid_to_webhook", webhooks),
        **spread("xid_to_cordon", cordoned),
        **{f"{name}_cpu_ms_per_event": 1000 * seconds / len(posted) for name, seconds in spent.items()},
    }


def fill(rest: Rest, on_call: OnCall, events: int) -> tuple[list[str], dict[str, str]]:
    """A fleet, a receiver and the policy; tokens of the gateways, and those of the nodes' agents by node."""
    rest.post("/models", MODEL)
    rest.post("/pools", {"name": "pool", "model": MODEL["name"]})
    agents = {node: enrol(rest, "node", node) for node in ("warm-up", *(f"node-{each}" for each in range(events)))}
    for number, node in enumerate(agents):
        engine = {"name": f"engine-{number}", "url": f"http://10.1.0.{number % 250 + 1}:8000", "pool": "pool"}
        rest.post("/engines", {**engine, "served_model": "m", "node": node})
    rest.patch("/cordon-policy", {"enabled": True, "max_nodes_permille": 1000, "min_nodes": events + 1})
    rest.post("/receivers", {"name": "oncall", "url": on_call.url})
    return [enrol(rest, "gateway", f"gateway-{number}") for number in range(GATEWAYS)], agents


def post_xid(rest: Rest, node: str, token: str) -> None:
    detail = "XID 79 (GPU has fallen off the bus) on GPU 0: class hardware, action cordon_reboot"
    event = {"id": f"xid-of-{node}", "at": now_ms(), "node": node, "kind": "xid", "subject": "GPU-0"}
    Rest(rest.base_url, token, rest.reason).post("/events", [{**event, "severity": "critical", "detail": detail}])


def cordons(rest: Rest) -> dict[str, int]:
    """By node, the revision that cordoned it, as the time line of its incident has it."""
    found: dict[str, int] = {}
    for incident in rest.get("/incidents", limit=1000)["items"]:
        for entry in rest.get(f"/incidents/{incident['id']}")["entries"]:
            if entry["kind"] == "cordoned" and incident["node"]:
                found[incident["node"]] = entry["details"]["revision"]
    return found


def stands_at(rest: Rest, revision: int) -> bool:
    targets = rest.get("/config/convergence")["targets"]
    return all((each["acked_revision"] or 0) >= revision for each in targets if each["kind"] == "gateway")


def arrivals(applied: Sequence[Sequence[int]]) -> dict[int, list[int]]:
    """By revision, when the gateways took it."""
    taken: dict[int, list[int]] = defaultdict(list)
    for revision, at_ms in applied:
        taken[revision].append(at_ms)
    return dict(taken)


def at_all(applied: Mapping[int, list[int]], revision: int) -> int | None:
    """When the last gateway had this revision: it, or a later one that held it and that every gateway took."""
    whole = [number for number, times in applied.items() if number >= revision and len(times) >= GATEWAYS]
    return max(applied[min(whole)]) if whole else None


def spread(name: str, waits_ms: Sequence[int]) -> dict[str, Any]:
    """Middle, 95th percentile and longest, in seconds; without any, longer than anybody waits."""
    seconds = [wait / 1000 for wait in waits_ms]
    if len(seconds) < 2:
        return {f"{name}_p95_seconds": float("inf")}
    return {
        f"{name}_p50_seconds": statistics.median(seconds),
        f"{name}_p95_seconds": statistics.quantiles(seconds, n=20, method="inclusive")[18],
        f"{name}_max_seconds": max(seconds),
    }


def now_ms() -> int:
    return time.time_ns() // 1_000_000


if __name__ == "__main__":
    sys.exit(main())
