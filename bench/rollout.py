"""What clients see of a rollout: red-black over four engines, a bad version, a rolling restart of eight.

Real processes on 127.0.0.1: control plane with its worker, a node with its agent a pool, simulated engines with the
times of a small GPU that the agents' commands start and stop, a gateway, and clients whose streams come as a Poisson
process. Good is what had its first token within 2 s and the others within 100 ms each on average, as its user sees it.

Red-black: goodput while traffic moves, against that before. A bad version: its engines become twenty times slower, or
answer 500, once traffic reaches them; how long until no route leads there, and who was hurt: of all requests of the
run those that failed, were cut, or were not good. Rolling restart: streams that were cut, of all.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import uvloop

from bench.support.open_load import OpenLoad, Promise, Seen
from bench.support.report import Targets, report
from bench.support.rolling_fleet import MODEL, RollingFleet, rolling_fleet
from simulator.lengths import LogNormal
from simulator.tokenizer import Words, train_tokenizer
from simulator.traffic import Tenant

OPEN = ("running", "paused", "returning")
PROMISE = Promise(ttft_seconds=2.0, tpot_seconds=0.1, patience_seconds=20.0)
SLOWER = 20.0
WARM_UP_SECONDS, BEFORE_SECONDS, LIMIT_SECONDS = 3.0, 20.0, 400.0
# Of a machine that runs everything at once: its own hiccups are no fault of the new side's.
WATCH = {"window_seconds": 20, "minimum_requests": 2, "tolerance_percent": 200, "floor_ms": 300}
# The first, of which little is seen, is watched for longest.
STEPS = [{"share_permille": share, "for_seconds": 6} for share in (25, 250, 500, 1000)]
STEPS[0]["for_seconds"] = 15
TARGETS: Targets = {
    "red_black_failed_requests": ("at most", 0.0),
    "red_black_goodput_percent_of_before": ("at least", 95.0),
    "slow_version_taken_back_seconds": ("at most", 30.0),
    "slow_version_hurt_percent": ("at most", 1.0),
    "failing_version_taken_back_seconds": ("at most", 30.0),
    "failing_version_hurt_percent": ("at most", 1.0),
    "restart_streams_cut": ("at most", 0.0),
}


class Clients:
    """A load on the gateway for as long as something lasts."""

    def __init__(self, fleet: RollingFleet, rate_per_second: float) -> None:
        self._rate = rate_per_second
        tenant = Tenant(
            key=fleet.key,
            model=MODEL,
            rate_per_second=1,
            prompt_tokens=LogNormal(median_tokens=150, sigma=0.6, max_tokens=1000),
            output_tokens=LogNormal(median_tokens=80, sigma=0.6, max_tokens=300),
            stream_share=1,
            chat_share=1,
            cancel_share=0,
        )
        self._load = OpenLoad([fleet.gateway_port], tenant, Words(train_tokenizer()), PROMISE)

    async def for_seconds(self, seconds: float, seed: int) -> Seen:
        return await self._load.offer(self._rate, WARM_UP_SECONDS, seconds, seed)

    async def while_running(self, doing: Callable[[], Any], seed: int) -> tuple[Seen, Any]:
        """Requests until `doing`, in a thread of its own, returns; and what it returned."""
        return await self._load.offer_while(self._rate, asyncio.to_thread(doing), seed)


def follow(fleet: RollingFleet, body: dict[str, Any], each: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Begin a rollout, and look at it until it has ended; `each` is told what every look saw."""
    path = f"/rollouts/{fleet.rest.post('/rollouts', body)['item']['id']}"
    deadline = time.monotonic() + LIMIT_SECONDS
    while (shown := fleet.rest.get(path))["state"] in OPEN:
        each(shown)
        if time.monotonic() > deadline:
            raise RuntimeError(f"{path} did not end: {shown['said']}")
        time.sleep(0.2)
    return dict(shown)


def red_black(**more: Any) -> dict[str, Any]:
    return {"kind": "red_black", "pool": "old", "new_pool": "new", "steps": STEPS, "watch": WATCH,
            "keep_warm_seconds": 3, "retire": "leave", "warm_up": {"prompts": ["Hello"]}, **more}  # fmt: skip


def failed(seen: Seen) -> int:
    """Requests that ended otherwise than with a whole answer."""
    return sum(count for ending, count in seen.endings.items() if ending not in ("good", "late"))


async def good_version(folder: Path, rate: float) -> dict[str, float]:
    with rolling_fleet(folder, {"old": 4, "new": 4}) as fleet:
        clients = Clients(fleet, rate)
        before = await clients.for_seconds(BEFORE_SECONDS, 1)
        during, shown = await clients.while_running(lambda: follow(fleet, red_black(), lambda _: None), 2)
        if shown["state"] != "done":
            raise RuntimeError(f"the rollout ended as {shown['state']}: {shown['said']}")
        ratio = [seen.endings["good"] / sum(seen.endings.values()) for seen in (before, during)]
        return {
            "before_good_share": ratio[0],
            "red_black_seconds": during.seconds,
            "red_black_requests": sum(during.endings.values()),
            "red_black_failed_requests": failed(during),
            # Arrivals are drawn anew: by request, not by second, so that luck of the draw is none of it.
            "red_black_goodput_percent_of_before": 100 * ratio[1] / ratio[0],
        }


async def bad_version(folder: Path, rate: float, name: str, fault: dict[str, Any]) -> dict[str, float]:
    """The fault begins with the first traffic: before, warm-up and probes would have found it."""
    with rolling_fleet(folder, {"old": 4, "new": 4}) as fleet:
        clients = Clients(fleet, rate)
        moments: dict[str, float] = {}

        def each(shown: dict[str, Any]) -> None:
            if shown["share_permille"] and "bad" not in moments:
                for engine in fleet.urls:
                    if engine.startswith("new-"):
                        fleet.fault(engine, **fault)
                moments["bad"] = time.monotonic()
            if shown["state"] == "returning":
                moments.setdefault("back", time.monotonic())

        def run() -> dict[str, Any]:
            # As long as the good one takes, so that the hurt are counted among as many.
            time.sleep(BEFORE_SECONDS)
            shown = follow(fleet, red_black(), each)
            time.sleep(BEFORE_SECONDS)
            return shown

        seen, shown = await clients.while_running(run, 3)
        if shown["state"] != "returned":
            raise RuntimeError(f"the bad version was not taken back: {shown['state']}: {shown['said']}")
        print(f"{name}: {shown['said']}")
        total = sum(seen.endings.values())
        return {
            f"{name}_requests": total,
            f"{name}_taken_back_seconds": moments["back"] - moments["bad"],
            f"{name}_hurt_percent": 100 * (total - seen.endings["good"]) / total,
            f"{name}_failed_requests": failed(seen),
        }


async def restart(folder: Path, rate: float) -> dict[str, float]:
    with rolling_fleet(folder, {"old": 8}) as fleet:
        clients = Clients(fleet, rate)
        body = {"kind": "rolling_restart", "pool": "old"}
        seen, shown = await clients.while_running(lambda: follow(fleet, body, lambda _: None), 4)
        if shown["state"] != "done":
            raise RuntimeError(f"the restart ended as {shown['state']}: {shown['said']}")
        return {
            "restart_seconds": seen.seconds,
            "restart_requests": sum(seen.endings.values()),
            "restart_streams_cut": seen.endings["cut"],
            "restart_failed_requests": failed(seen),
        }


async def bench(rate: float, parts: Sequence[str]) -> dict[str, float]:
    figures: dict[str, float] = {}
    runs: dict[str, Callable[[Path], Any]] = {
        "red_black": lambda folder: good_version(folder, rate),
        "slow_version": lambda folder: bad_version(folder, rate, "slow_version", {"kind": "slow", "factor": SLOWER}),
        "failing_version": lambda folder: bad_version(folder, rate, "failing_version", {"kind": "error_500"}),
        "restart": lambda folder: restart(folder, rate),
    }
    for name in parts or runs:
        with tempfile.TemporaryDirectory(prefix="headworks-bench-") as folder:
            figures |= await runs[name](Path(folder))
    return figures


def main(argv: list[str] | None = None) -> int:
    """Prints a table, then one JSON object. Exit status 0 only if every target holds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, default=8.0, help="requests a second (default: %(default)s)")
    parser.add_argument("--part", action="append", default=[], help="only this part; as often as needed",
                        choices=["red_black", "slow_version", "failing_version", "restart"])  # fmt: skip
    arguments = parser.parse_args(argv)
    figures = uvloop.run(bench(arguments.rate, arguments.part))
    return report("rollout", __doc__, figures, {name: TARGETS[name] for name in TARGETS if name in figures})


if __name__ == "__main__":
    sys.exit(main())
