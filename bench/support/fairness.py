"""A pool with a fixed number of places under simulated load, in simulated time: who got how much, and who waited."""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from policy.fairness import CostWeights, Waiting

# Of one request in a full batch: prompt tokens read, and output tokens written, in a millisecond.
PREFILL_TOKENS_PER_MS = 10.0
DECODE_TOKENS_PER_MS = 0.03
# Output that is reserved for each request, as `max_tokens` is: what it really gets is not known before.
EXPECTED_OUTPUT_TOKENS = 500


class Load(NamedTuple):
    """Requests of one tenant and class, Poisson in time, their lengths log-normal around the medians."""

    tenant: str
    priority_class: str
    per_second: float
    prompt_tokens: int
    output_tokens: int


class Queue(Protocol):
    def push(self, request: Waiting, now_ms: int) -> None: ...
    def pop(self, now_ms: int) -> Waiting | None: ...
    def charge(self, request: Waiting, output_tokens: int) -> None: ...


@dataclass
class Served:
    """What a tenant got in a class. `cost`: tokens, each with the weight of its kind, of answers that ended."""

    cost: int = 0
    requests: int = 0
    waits_ms: list[int] = field(default_factory=list)


def simulate(
    queue: Queue, loads: Sequence[Load], *, places: int, seconds: int, seed: int
) -> dict[tuple[str, str], Served]:
    """Run `loads` against `places` that each serve one request at a time; what each tenant got in each class."""
    drawn = random.Random(seed)
    costs = CostWeights()
    got = {(load.tenant, load.priority_class): Served() for load in loads}
    pending = _arrivals(loads, seconds * 1000, drawn)
    pending.reverse()
    arrived: dict[str, tuple[int, int]] = {}
    busy: list[tuple[int, str, Waiting]] = []
    now_ms = 0
    while pending or busy:
        while pending and pending[-1][0] <= now_ms:
            at_ms, request, output_tokens = pending.pop()
            arrived[request.request_id] = at_ms, output_tokens
            queue.push(request, at_ms)
        while busy and busy[0][0] <= now_ms:
            _, _, request = heapq.heappop(busy)
            output_tokens = arrived.pop(request.request_id)[1]
            queue.charge(request, output_tokens)
            served = got[request.tenant, request.priority_class]
            served.cost += request.prompt_tokens * costs.prompt + output_tokens * costs.output
            served.requests += 1
        while len(busy) < places and (taken := queue.pop(now_ms)) is not None:
            at_ms, output_tokens = arrived[taken.request_id]
            got[taken.tenant, taken.priority_class].waits_ms.append(now_ms - at_ms)
            heapq.heappush(busy, (now_ms + _service_ms(taken, output_tokens), taken.request_id, taken))
        coming = [pending[-1][0]] if pending else []
        coming += [busy[0][0]] if busy else []
        now_ms = min(coming, default=now_ms)
        if now_ms > seconds * 1000:
            break
    return got


def _service_ms(request: Waiting, output_tokens: int) -> int:
    return 1 + int(request.prompt_tokens / PREFILL_TOKENS_PER_MS + output_tokens / DECODE_TOKENS_PER_MS)


def _arrivals(loads: Sequence[Load], until_ms: int, drawn: random.Random) -> list[tuple[int, Waiting, int]]:
    """(when, request, the output it will get), in the order of time."""
    found = []
    for number, load in enumerate(loads):
        at_ms, count = drawn.expovariate(load.per_second) * 1000, 0
        while at_ms < until_ms:
            prompt, output = (
                max(1, int(median * drawn.lognormvariate(0, 0.7)))
                for median in (load.prompt_tokens, load.output_tokens)
            )
            name = f"{number}-{count}"
            request = Waiting(name, load.tenant, load.priority_class, prompt, EXPECTED_OUTPUT_TOKENS)
            found.append((int(at_ms), request, output))
            at_ms, count = at_ms + drawn.expovariate(load.per_second) * 1000, count + 1
    return sorted(found, key=lambda each: (each[0], each[1].request_id))
