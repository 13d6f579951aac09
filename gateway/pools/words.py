"""What a request is told that gets no place: which obstacle, its numbers, and when to come again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gateway.pools.choice import PASSING, Obstacle
from gateway.pools.claim import Claim
from gateway.refusals import Refused

if TYPE_CHECKING:
    from gateway.pools.pool import PoolState

# One of several pools that were tried, and what kept the request from it.
Tried = tuple["PoolState", set[Obstacle]]


def queue_full(pool: PoolState, claim: Claim) -> Refused:
    waiting = len(pool.line)
    if pool.pool.queue_cap:
        noun = "request waits" if waiting == 1 else "requests wait"
        said = f"{waiting} {noun} already for a place in the pool {pool.name!r}, as many as may"
    else:
        said = f"the pool {pool.name!r} serves as many requests as it may, and none may wait"
    return Refused(
        "queue_full",
        said,
        retry_after_seconds=pool.retry_in_seconds(),
        numbers={"queue_length": waiting, "queue_cap": pool.pool.queue_cap, "kv_tokens": claim.tokens},
    )


def queue_timeout(pool: PoolState, claim: Claim) -> Refused:
    ttl_ms = pool.line.ttl_ms(claim)
    return Refused(
        "queue_timeout",
        f"no place became free in the pool {pool.name!r} within the {ttl_ms} ms that the request may wait",
        retry_after_seconds=pool.retry_in_seconds(),
        numbers={"queue_length": len(pool.line), "queue_ttl_ms": ttl_ms, "kv_tokens": claim.tokens},
    )


def cannot_finish(pool: PoolState, claim: Claim, late_by_ms: int) -> Refused:
    waiting = len(pool.line)
    return Refused(
        "cannot_finish_in_time",
        f"at the rate at which the pool {pool.name!r} serves the {waiting} that wait, the request's turn would come at "
        f"least {late_by_ms} ms after its time to wait, or its deadline, is over",
        retry_after_seconds=max(late_by_ms / 1000, pool.retry_in_seconds()),
        numbers={"queue_length": waiting, "queue_ttl_ms": pool.line.ttl_ms(claim), "late_by_ms": late_by_ms},
    )


def shed(pool: PoolState, claim: Claim) -> Refused:
    return Refused(
        "shed",
        f"the queue of the pool {pool.name!r} was full, and the request gave way to one of a better class, "
        "or of a tenant with fewer requests in it",
        retry_after_seconds=pool.retry_in_seconds(),
        numbers={"queue_length": len(pool.line), "queue_cap": pool.pool.queue_cap, "kv_tokens": claim.tokens},
    )


def no_place(tried: Sequence[Tried], claim: Claim, now_ms: int, retry_seconds: float) -> Refused:
    """Names the obstacle that passes first: room, then a breaker; that it never fits only if no other would pass."""
    kinds = {obstacle for _, obstacles in tried for obstacle in obstacles}
    if "kv_now" in kinds or "stale" in kinds:
        return Refused(
            "no_kv_capacity",
            f"the request may need {claim.tokens} tokens of KV cache and no engine has as many left to admit now",
            retry_after_seconds=retry_seconds,
            numbers={"kv_tokens": claim.tokens},
        )
    if kinds & PASSING:
        pool = next(pool for pool, obstacles in tried if obstacles & PASSING)
        return queue_full(pool, claim)
    if "breaker" in kinds:
        waits = [pool.choice.retry_in_ms(now_ms) for pool, obstacles in tried if "breaker" in obstacles]
        return Refused(
            "breaker_open",
            "the circuit breaker of every engine that could serve this is open",
            retry_after_seconds=max(retry_seconds, min(waits) / 1000),
        )
    if kinds == {"kv_never"}:
        return Refused(
            "never_fits_kv",
            f"the request may need {claim.tokens} tokens of KV cache, more than any engine of its pools may admit",
            param="max_tokens",
            numbers={"kv_tokens": claim.tokens},
        )
    return Refused("no_engine", "no engine of the pool takes work now", retry_after_seconds=retry_seconds)
