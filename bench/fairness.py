"""Shares and waits of a pool's queue, simulated: by weight and first come first served, and by class with ageing.

Three tenants of the weights 1, 2 and 4 ask an overloaded pool for an hour, the lightest for most and for the longest
answers. Then three classes share a pool that is all but full, most of it taken by the first.
"""

from __future__ import annotations

import argparse
import time
from collections import deque

from bench.support.fairness import Load, Served, simulate
from bench.support.report import Targets, report
from policy.ageing import waits_at_most_ms
from policy.fairness import FairQueue, Waiting
from wire.snapshot import PriorityClass

PLACES = 32
SECONDS = 3_600
WEIGHTS = {"batch": 1, "search": 2, "chat": 4}
TENANTS = [
    Load("batch", "normal", 16, 6_000, 1_200),
    Load("search", "normal", 8, 3_000, 300),
    Load("chat", "normal", 16, 300, 150),
]
CLASSES = {
    "interactive": PriorityClass(rank=0, ageing_ms=10_000),
    "normal": PriorityClass(rank=1, ageing_ms=10_000),
    "bulk": PriorityClass(rank=3, ageing_ms=10_000),
}
CLASS_LOADS = [
    Load("a", "interactive", 4.0, 300, 150),
    Load("b", "normal", 0.4, 300, 150),
    Load("c", "bulk", 0.4, 300, 150),
]
QUEUED, QUEUED_TENANTS = 10_000, 1_000

TARGETS: Targets = {"worst_share_error_percent": ("at most", 5.0), "push_and_pop_us": ("at most", 100.0)}


class FirstComeFirstServed:
    """What a queue without fairness does."""

    def __init__(self) -> None:
        self._requests: deque[Waiting] = deque()

    def push(self, request: Waiting, now_ms: int) -> None:
        self._requests.append(request)

    def pop(self, now_ms: int) -> Waiting | None:
        return self._requests.popleft() if self._requests else None

    def charge(self, request: Waiting, output_tokens: int) -> None:
        pass


def main(argv: list[str] | None = None) -> int:
    """Prints a table, then one JSON object. Exit status 0 only if the targets hold."""
    argparse.ArgumentParser(description=__doc__).parse_args(argv)
    figures: dict[str, float] = {}
    by_arrival = simulate(FirstComeFirstServed(), TENANTS, places=PLACES, seconds=SECONDS, seed=1)
    fair = simulate(FairQueue({}, WEIGHTS), TENANTS, places=PLACES, seconds=SECONDS, seed=1)
    errors = []
    for tenant, weight in WEIGHTS.items():
        due = 100 * weight / sum(WEIGHTS.values())
        figures[f"{tenant}_share_due_percent"] = due
        figures[f"{tenant}_share_fair_percent"] = share(fair, tenant)
        figures[f"{tenant}_share_by_arrival_percent"] = share(by_arrival, tenant)
        errors.append(100 * abs(share(fair, tenant) - due) / due)
    figures["worst_share_error_percent"] = max(errors)
    waited = simulate(FairQueue(CLASSES, {}), CLASS_LOADS, places=PLACES, seconds=SECONDS, seed=1)
    for load in CLASS_LOADS:
        name, served = load.priority_class, waited[load.tenant, load.priority_class]
        bound = waits_at_most_ms(CLASSES[name], CLASSES.values())
        figures[f"{name}_bound_seconds"] = (bound or 0) / 1000
        figures[f"{name}_mean_wait_seconds"] = sum(served.waits_ms) / len(served.waits_ms) / 1000
        figures[f"{name}_longest_wait_seconds"] = max(served.waits_ms) / 1000
    figures["push_and_pop_us"] = push_and_pop_us()
    return report("fairness", __doc__, figures, TARGETS)


def share(got: dict[tuple[str, str], Served], tenant: str) -> float:
    """Of all that was served, by cost, in per cent."""
    whole = sum(served.cost for served in got.values())
    return 100 * sum(served.cost for (name, _), served in got.items() if name == tenant) / whole


def push_and_pop_us() -> float:
    """One of each while many wait, in microseconds of this machine."""
    queue = FairQueue(CLASSES, {})
    classes = sorted(CLASSES)

    def push(number: int) -> None:
        name = classes[number % len(classes)]
        queue.push(Waiting(str(number), f"t-{number % QUEUED_TENANTS}", name, 100 + number % 900, 100), number)

    for number in range(QUEUED):
        push(number)
    began = time.perf_counter()
    for number in range(QUEUED, 2 * QUEUED):
        push(number)
        queue.pop(number)
    return (time.perf_counter() - began) / QUEUED * 1e6


if __name__ == "__main__":
    raise SystemExit(main())
