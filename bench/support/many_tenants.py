"""What a change of one tenant costs where there are 10,000, and what creating them one by one does to the database.

A pool whose engine has told what it can hold, so that every write is also judged by what limits promise of it; one
gateway follows, so that each change is cut, sent and acknowledged.
"""

from __future__ import annotations

import sqlite3
import time
import urllib.request
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from bench.support.control_plane import enrol, following
from bench.support.processes import cpu_seconds
from controlplane.rest_client import Rest

TENANTS = 10_000
# The last so many are measured: the others are there by then.
CREATED = 1_000
CHANGES = 30
BARE_COMMITS = 300
MODEL = {"name": "bench/model", "max_context_tokens": 8192, "default_max_tokens": 256, "max_tokens": 2048}
WRITES, PUBLISHES = "headworks_write_seconds", "headworks_publish_seconds"
WITHIN_SECONDS = "0.01"


def measure(rest: Rest, web: int, folder: Path) -> dict[str, float]:
    """`web`: the process id of the web process that `rest` calls; `folder`: where its database is."""
    rest.post("/models", MODEL)
    rest.post("/pools", {"name": "pool", "model": MODEL["name"]})
    engine = {"name": "engine", "url": "http://10.1.0.1:8000", "pool": "pool", "served_model": "m"}
    rest.post("/engines", {**engine, "kv_capacity_tokens": 1_000_000})
    rest.post("/routes", {"name": "all", "pools": {"pool": 1000}})
    with following([rest.base_url], [enrol(rest, "gateway", "gateway")]) as end:
        create(rest, 0, TENANTS - CREATED)
        writes = since(rest)
        began, cpu_before = time.monotonic(), cpu_seconds(web)
        create(rest, TENANTS - CREATED, TENANTS)
        created_seconds, created_cpu = time.monotonic() - began, cpu_seconds(web) - cpu_before
        held, bare_seconds = writes(), bare_commit_seconds(folder / "bare.sqlite3")
        # The last of them, so that nothing else is published below.
        first = change(rest, 0)
        publishes, cpu_before, began = since(rest), cpu_seconds(web), time.monotonic()
        for number in range(1, CHANGES + 1):
            change(rest, number)
        changed_seconds, changed_cpu = time.monotonic() - began, cpu_seconds(web) - cpu_before
        published = publishes()
        patch_bytes = [size for revision, size in end()["patch_bytes"] if revision > first]
    return {
        "tenants": TENANTS,
        "create_holds_database_ms": 1000 * held[f"{WRITES}_sum"] / held[f"{WRITES}_count"],
        "creates_within_10_ms_percent": 100 * held[f"{WRITES}_bucket {WITHIN_SECONDS}"] / held[f"{WRITES}_count"],
        "bare_commit_ms": 1000 * bare_seconds,
        "create_answered_ms": 1000 * created_seconds / CREATED,
        "create_cpu_ms": 1000 * created_cpu / CREATED,
        "one_of_many_publish_ms": 1000 * published[f"{PUBLISHES}_sum"] / published[f"{PUBLISHES}_count"],
        "one_of_many_work_ms": 1000 * changed_cpu / CHANGES,
        "one_of_many_applied_ms": 1000 * changed_seconds / CHANGES,
        "one_of_many_patch_bytes": max(patch_bytes),
    }


def bare_commit_seconds(file: Path) -> float:
    """What one row by itself takes in SQLite here and now, as durable as the product's: the disk's part of a write."""
    with closing(sqlite3.connect(file, isolation_level=None)) as database:
        database.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; CREATE TABLE rows (value INTEGER)")
        began = time.monotonic()
        for number in range(BARE_COMMITS):
            database.execute("INSERT INTO rows VALUES (?)", [number])
        return (time.monotonic() - began) / BARE_COMMITS


def create(rest: Rest, first: int, end: int) -> None:
    for number in range(first, end):
        rest.post("/tenants", {"name": f"tenant-{number}", "tpm_limit": 60_000, "models": [MODEL["name"]]})


def change(rest: Rest, number: int) -> int:
    """One quota, until the gateway runs it; the revision."""
    answer = rest.patch("/tenants/tenant-0", {"tpm_limit": 1000 + number}, wait="applied", timeout=30)
    if answer["convergence"]["applied"] != 1:
        raise RuntimeError(f"the gateway does not run a change: {answer['convergence']}")
    return int(answer["convergence"]["revision"])


def since(rest: Rest) -> Callable[[], dict[str, float]]:
    """By how much the web process' own counters have grown, once called."""
    before = counters(rest)
    return lambda: {name: value - before.get(name, 0) for name, value in counters(rest).items()}


def counters(rest: Rest) -> dict[str, float]:
    """Samples of its page without labels, or with `le` alone, which follows the name."""
    with urllib.request.urlopen(f"{rest.base_url}/metrics", timeout=30) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    return {
        " ".join([sample.name, *sample.labels.values()]): sample.value
        for family in families
        for sample in family.samples
        if sample.labels.keys() <= {"le"}
    }
