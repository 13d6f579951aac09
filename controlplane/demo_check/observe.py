"""What a check looks at: targets, samples, engines' pages."""

from __future__ import annotations

import math
import re
import time
import urllib.request
from collections.abc import Iterable
from typing import Any

from controlplane.demo.fleet import Fleet
from controlplane.demo_check.steps import expect, wait_until

_RUNNING = re.compile(r"^vllm:num_requests_(?:running|waiting)\{[^}]*\} (\S+)$", re.M)
_ENDED = re.compile(r"^vllm:request_success_total\{[^}]*\} (\S+)$", re.M)


def all_converged(fleet: Fleet) -> bool:
    targets = fleet.rest.get("/config/convergence")["targets"]
    return bool(targets) and all(target["state"] == "applied" for target in targets)


def converge(fleet: Fleet) -> str:
    """Wait until every target runs the newest revision. Raises: NotHeld."""
    wait_until(lambda: all_converged(fleet), "all targets run the newest revision")
    return f"{len(fleet.rest.get('/config/convergence')['targets'])} targets"


def applied_everywhere(written: dict[str, Any]) -> dict[str, Any]:
    """Where a write with `wait=applied` stands. Raises: NotHeld unless every target runs it."""
    stands: dict[str, Any] = written["convergence"]
    expect(not stands["pending"] and not stands["refused"], f"not applied everywhere: {stands}")
    return stands


def standing_of(fleet: Fleet, kind: str, name: str) -> dict[str, Any]:
    """Where one target stands, as `GET /config/convergence` has it."""
    targets: list[dict[str, Any]] = fleet.rest.get("/config/convergence")["targets"]
    return next(target for target in targets if (target["kind"], target["name"]) == (kind, name))


def number(fleet: Fleet, promql: str) -> float:
    """The value of a query with one result; 0 for none."""
    result = fleet.rest.query(promql)
    return float(result[0]["value"][1]) if result else 0.0


def sample_times(fleet: Fleet, selector: str, since: float) -> list[float]:
    """Unix times of a series' samples since then, old to new."""
    seconds = math.ceil(time.time() - since)
    found = fleet.rest.query(f"{selector}[{seconds}s]")
    return sorted(float(at) for series in found for at, _ in series["values"] if float(at) >= since)


def running_on(fleet: Fleet, engines: Iterable[str]) -> dict[str, int]:
    """Engine → requests that it runs or has waiting."""
    return {name: _sum(_RUNNING, _page(fleet, name)) for name in engines}


def taken_by(fleet: Fleet, engines: Iterable[str]) -> dict[str, int]:
    """Engine → requests that it has taken so far, running or ended, but for those of clients that left."""
    pages = {name: _page(fleet, name) for name in engines}
    return {name: _sum(_RUNNING, page) + _sum(_ENDED, page) for name, page in pages.items()}


def _page(fleet: Fleet, engine: str) -> str:
    with urllib.request.urlopen(f"{fleet.engine_address(engine)}/metrics", timeout=5) as answer:  # noqa: S310
        text: bytes = answer.read()
    return text.decode()


def _sum(sample: re.Pattern[str], page: str) -> int:
    return sum(int(float(value)) for value in sample.findall(page))
