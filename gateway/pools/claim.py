"""What one request asks of the pools."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.refusals import Refused
from policy.fairness import Waiting

if TYPE_CHECKING:
    from gateway.pools.placement import Placement


@dataclass(slots=True, eq=False)
class Wait:
    """A claim in a pool's queue, which knows it as `waiting`.

    `answer`: its place, why it has none, or None where it must look for another pool.
    """

    waiting: Waiting
    answer: asyncio.Future[Placement | Refused | None]
    timer: asyncio.TimerHandle | None = None


@dataclass(slots=True, eq=False)
class Claim:
    """A request that wants a place. Times are monotonic milliseconds.

    `tokens`: the KV cache that it may need at most. `output_tokens`: the most that it may get. `blocks`: its leading
    text (policy/affinity.py). `used_tokens`: (prompt, output) that it has used so far. `waits_since_ms`: since when it
    waits, over all pools; None until then.
    """

    number: str
    tenant: str
    priority_class: str
    prompt_tokens: int
    output_tokens: int
    tokens: int
    sequences: int
    blocks: list[int]
    deadline_ms: int
    used_tokens: Callable[[], tuple[int, int]]
    waits_since_ms: int | None = None
    wait: Wait | None = None
