"""How many engines a pool should have, from what waits and what is held. Pure: time is passed in.

Never from GPU utilisation: a GPU is as busy with ten sequences as with a hundred, so it says nothing of what is left.
What says it is the context that is held and that waits, beside what an engine can hold, and how long people wait.
Up at once, since who waits now cannot wait for a trend; down only to the most that was wanted within a while, since a
model takes minutes to load. Source: seed 1, section 18; KEDA's and the HPA's stabilisation window.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

# Of what engines may hold, so much is aimed at: the rest is for what comes while another one starts.
TARGET_PERMILLE = 800
# People wait longer than promised: so much more at most, in one step.
_STEP_PERMILLE_MAX = 2000


class Signals(NamedTuple):
    """A pool at one moment; None: not known. `engines`: those that take work.

    `admissible_tokens`: what these may hold together; `held_tokens`: what running requests may need of it;
    `waiting_tokens`: what those that wait will. Times are p95 in seconds; `ttft_slo_seconds` is promised.
    """

    engines: int
    admissible_tokens: int | None
    held_tokens: float | None
    waiting_tokens: float | None
    queue_length: float | None
    queue_seconds: float | None
    ttft_seconds: float | None
    ttft_slo_seconds: float | None


def wanted_engines(now: Signals) -> int:
    """What the pool needs now, at least one. Where nothing is known of it, what it has."""
    have = max(1, now.engines)
    by_tokens = _by_tokens(now)
    wanted = have if by_tokens is None else by_tokens
    return max(1, wanted, _by_time(now, have))


def _by_tokens(now: Signals) -> int | None:
    if not now.engines or not now.admissible_tokens or now.held_tokens is None:
        return None
    each = now.admissible_tokens / now.engines
    demand = now.held_tokens + (now.waiting_tokens or 0)
    return -(-round(demand * 1000) // round(each * TARGET_PERMILLE))


def _by_time(now: Signals, have: int) -> int:
    """More than there are where the first token is late and requests wait for a place, which more engines shorten."""
    if not now.ttft_slo_seconds or not now.ttft_seconds or not now.queue_length:
        return 0
    over = min(round(1000 * now.ttft_seconds / now.ttft_slo_seconds), _STEP_PERMILLE_MAX)
    return -(-have * over // 1000) if over > 1000 else 0


class Wanted(NamedTuple):
    """How many were wanted at a moment, Unix time in ms."""

    at_ms: int
    engines: int


def settled(recent: Sequence[Wanted], now: Wanted, down_ms: int) -> tuple[list[Wanted], int]:
    """What is to be remembered of the last `down_ms`, and the number to have: the most wanted in it.

    Of moments that wanted no more than a later one nothing needs to be remembered: what is kept stays short.
    """
    kept = [each for each in recent if now.at_ms - down_ms < each.at_ms <= now.at_ms and each.engines > now.engines]
    kept.append(now)
    return kept, kept[0].engines


def needs_spare(cold_start_ms: int | None, queue_ttl_ms: int) -> bool:
    """Whether an engine that is started for those who wait comes after they have given up."""
    return cold_start_ms is not None and cold_start_ms > queue_ttl_ms
