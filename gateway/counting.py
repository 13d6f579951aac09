"""What a request that has ended adds to the metrics, the sketches and the log of decisions."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from gateway.caches.stage import answer_from_cache
from gateway.decisions import pool_of
from gateway.exchange import Exchange
from gateway.metrics import UNKNOWN
from policy.slo import Seen, kept, promised

if TYPE_CHECKING:
    from gateway.pipeline import Outcome

# The stage under whose name an admitted request is told of.
_ADMITTED_AT = "serve"


def count(x: Exchange, outcome: Outcome, reason: str) -> None:
    pool = pool_of(x)
    tenant = x.tenant_name or UNKNOWN
    metrics = x.gateway.metrics
    metrics.request(pool, tenant, x.priority_class or UNKNOWN, outcome, reason)
    metrics.body_seconds(pool, tenant, x.body_read_seconds, x.body_write_seconds)
    if x.sent_at is None:
        if outcome == "ok":
            x.gateway.decisions.admitted(x, answer_from_cache.__name__)
        return
    series = metrics.series(pool, tenant, x.priority_class or UNKNOWN)
    prompt_tokens, output_tokens = x.used_tokens()
    series.prompt_tokens.inc(prompt_tokens)
    series.generation_tokens.inc(output_tokens)
    series.queue.observe(x.sent_at - x.arrived)
    if outcome == "failed" and x.reader is not None and x.placement is not None:
        metrics.stream_cut(pool, x.placement.state.name, reason)
    if outcome == "cancelled":
        metrics.cancelled(pool, tenant, output_tokens, x.tokens_after_cancel)
    if outcome in ("ok", "cancelled"):
        x.gateway.decisions.admitted(x, _ADMITTED_AT)
    if outcome == "ok":
        x.gateway.sketches.answered(x.tenant_name, x.priority_class, pool, output_tokens)
    seen = _seen(x, outcome, output_tokens)
    _judge(x, pool, tenant, outcome, seen)
    if outcome != "ok":
        return
    if seen.ttft_ms is not None:
        metrics.sizes.began(pool, x.size.tokens, seen.ttft_ms / 1000)
    for histogram, took_ms in ((series.e2e, seen.e2e_ms), (series.ttft, seen.ttft_ms), (series.tpot, seen.tpot_ms)):
        if took_ms is not None:
            histogram.observe(took_ms / 1000)


def _seen(x: Exchange, outcome: Outcome, output_tokens: int) -> Seen:
    """A request whose client left before its first token has waited that long for it, and knows no more."""
    if x.first_byte_at is None or x.last_byte_at is None:
        waited = outcome == "cancelled" and x.ask.stream
        return Seen(ttft_ms=(time.monotonic() - x.arrived) * 1000) if waited else Seen()
    e2e_ms = (x.last_byte_at - x.arrived) * 1000
    if x.reader is None:
        # A whole answer comes after its last token; its first one was seen by nobody.
        return Seen(e2e_ms=e2e_ms)
    tpot_ms = (x.last_byte_at - x.first_byte_at) * 1000 / (output_tokens - 1) if output_tokens > 1 else None
    return Seen((x.first_byte_at - x.arrived) * 1000, tpot_ms, e2e_ms)


def _judge(x: Exchange, pool: str, tenant: str, outcome: Outcome, seen: Seen) -> None:
    """Count for goodput what an engine was asked for: an answer by its times, a failure as missed.

    A client that left is counted where it had reason to: what was promised was broken by then. Each promise is counted
    by itself, too, where the time is known.
    """
    if (configured := x.view.snapshot.pools.get(pool)) is None:
        return
    slo = promised(configured, x.view.snapshot.priority_classes.get(x.priority_class))
    if not slo.promises:
        return
    verdicts = kept(slo, seen)
    for name, was_kept in verdicts.items():
        if outcome == "ok" or not was_kept:
            x.gateway.metrics.promise(pool, name, was_kept)
    is_met = all(verdicts.values()) if verdicts else None
    if outcome == "failed":
        is_met = False
    elif outcome != "ok" and is_met:
        return
    if is_met is not None:
        x.gateway.metrics.judged(pool, tenant, x.priority_class or UNKNOWN, is_met)
