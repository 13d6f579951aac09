"""From publishing a quota change to every target running it, with all of them on this machine.

A real web process with SQLite and a thousand enrolled targets (`--targets`): twenty are gateways with the whole
configuration, the others nodes' agents with their own part. All clients are one process that verifies each hash and
acknowledges; its CPU time is told apart. One tenant's quota changes every second for two minutes, so that the memory of
the second can be held against that of the first; then a node is cordoned, so that an agent is told something too.

A second web process holds ten thousand tenants, the last thousand of which are measured while a script creates them:
how long each write keeps the database from others, its commit included, and what a bare commit of SQLite takes at that
moment. Then one quota changes thirty times, each once the gateway that follows runs the one before; the work is all CPU
time of the web process meanwhile, by change.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from bench.support import many_tenants
from bench.support.control_plane import REASON, enrol, following, wait_for, wait_until, web_process
from bench.support.many_tenants import MODEL
from bench.support.memory import resident_mib
from bench.support.processes import cpu_seconds
from bench.support.report import Targets, report
from controlplane.rest_client import Rest

GATEWAYS = 20
TENANTS = 100
CHANGES = 120
CHANGE_EVERY_SECONDS = 1.0
CONVERGE_SECONDS = 30.0

TARGETS: Targets = {
    "publish_to_applied_p99_ms": ("at most", 1000.0),
    # 1: all targets run the newest revision at the end.
    "converged": ("at least", 1.0),
    "memory_second_to_first_minute": ("at most", 1.05),
    "create_holds_database_ms": ("at most", 10.0),
    "one_of_many_work_ms": ("at most", 100.0),
    "one_of_many_patch_bytes": ("at most", 1000.0),
}


def main(argv: list[str] | None = None) -> int:
    """Prints a table, then one JSON object. Exit status 0 only if the targets hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--targets", type=int, default=1000, help="gateways and agents together (default: 1000)")
    targets = parser.parse_args(argv).targets
    if targets < 2:
        parser.error("--targets: give at least 2, a gateway and an agent")
    with tempfile.TemporaryDirectory(prefix="headworks-bench-") as folder, web_process(Path(folder)) as (rest, web):
        figures = measure(rest, web, targets)
    with tempfile.TemporaryDirectory(prefix="headworks-bench-") as folder, web_process(Path(folder)) as (rest, web):
        figures.update(many_tenants.measure(rest, web, Path(folder)))
    return report("config_push", __doc__, figures, TARGETS)


def measure(rest: Rest, web: int, targets: int) -> dict[str, float]:
    gateways = min(GATEWAYS, targets - 1)
    tokens = fill(rest, gateways, targets - gateways)
    resident: list[float] = []
    with following([rest.base_url], tokens) as end:
        wait_for(lambda: standing(rest)["applied"] == targets, "all targets on the first revision")
        first = newest(rest)[0]["number"] + 1
        began, cpu_before = time.monotonic(), cpu_seconds(web)
        for number in range(CHANGES):
            rest.patch("/tenants/tenant-0", {"tpm_limit": 1000 + number})
            time.sleep(max(0.0, began + (number + 1) * CHANGE_EVERY_SECONDS - time.monotonic()))
            resident.append(resident_mib(web))
        measured_seconds, cpu_used = time.monotonic() - began, cpu_seconds(web) - cpu_before
        rest.post("/nodes/node-0/cordon")
        cordoned = time.monotonic()
        converged = wait_until(lambda: all_run_newest(rest, targets), CONVERGE_SECONDS)
        converge_seconds = time.monotonic() - cordoned
        result = end()
    published = {item["number"]: epoch_ms(item["published_at"]) for item in rest.get("/revisions", limit=1000)["items"]}
    waits = [at - published[revision] for revision, at in result["applied"] if revision >= first]
    return {
        "targets": targets,
        "gateways": gateways,
        "pushes_measured": len(waits),
        "publish_to_applied_p50_ms": statistics.median(waits),
        "publish_to_applied_p99_ms": statistics.quantiles(waits, n=100)[98],
        "publish_to_applied_max_ms": max(waits),
        "change_to_all_applied_ms": round(converge_seconds * 1000),
        "converged": int(converged),
        "server_cpu_percent": round(100 * cpu_used / measured_seconds, 1),
        "server_resident_mib": resident[-1],
        "memory_second_to_first_minute": statistics.mean(resident[CHANGES // 2 :])
        / statistics.mean(resident[: CHANGES // 2]),
        "clients_cpu_seconds": round(result["cpu_seconds"], 2),
    }


def fill(rest: Rest, gateways: int, nodes: int) -> list[str]:
    """A fleet with an engine a node, tenants, and enrolled targets; their tokens."""
    rest.post("/models", MODEL)
    rest.post("/pools", {"name": "pool", "model": MODEL["name"]})
    tokens = [enrol(rest, "gateway", f"gateway-{number}") for number in range(gateways)]
    for number in range(nodes):
        tokens.append(enrol(rest, "node", f"node-{number}"))
        address = f"http://10.1.{number // 250}.{number % 250 + 1}:8000"
        engine = {"name": f"engine-{number}", "url": address, "pool": "pool", "served_model": "m"}
        rest.post("/engines", {**engine, "node": f"node-{number}"})
    for number in range(TENANTS):
        rest.post("/tenants", {"name": f"tenant-{number}", "tpm_limit": 60_000, "models": [MODEL["name"]]})
    return tokens


def standing(rest: Rest) -> dict[str, Any]:
    answer: dict[str, Any] = rest.get("/config/convergence")
    return answer


def all_run_newest(rest: Rest, targets: int) -> bool:
    stands = standing(rest)
    # One more than the quota changes made: the cordon has been published.
    cordoned = any(entry["reasons"] == [REASON] and "nodes" in str(entry["changed"]) for entry in newest(rest))
    return bool(stands["applied"] == targets and cordoned)


def newest(rest: Rest) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = rest.get("/revisions", limit=1)["items"]
    return items


def epoch_ms(iso: str) -> int:
    return round(datetime.fromisoformat(iso).timestamp() * 1000)


if __name__ == "__main__":
    sys.exit(main())
