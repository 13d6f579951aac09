"""A request's way through the gateway, in this order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Literal, cast

from gateway.admission import bound_output, count_arrival, identify, measure, read, route, take_quota
from gateway.decisions import pool_of
from gateway.exchange import ClientLeft, Exchange
from gateway.metrics import UNKNOWN
from gateway.refusals import Refused, refusing
from gateway.relay import serve
from gateway.usage import Usage

log = logging.getLogger("headworks.gateway")

Outcome = Literal["ok", "refused", "failed", "cancelled"]
# A stage that answers True has answered the request: it is at its end.
Stage = Callable[[Exchange], Awaitable[bool | None]]
# What looks back on a request when it has ended; each is told its outcome and the reason in words of the metrics.
Ending = Callable[[Exchange, Outcome, str], None]

STAGES: tuple[Stage, ...] = (
    identify,  # bearer key → tenant, priority class, deadline
    read,  # bounded body → model, texts, what was asked
    measure,  # the model's own tokenizer → prompt tokens
    route,  # rules by model, tenant, class and sizes → pools
    bound_output,  # max_tokens default and clamp, n cap
    count_arrival,  # what was asked for, for the sketches
    take_quota,  # reserve tokens, a request, parallel sequences
    serve,  # engine and KV cache → stream through → settle on real usage
)


async def run(x: Exchange) -> None:
    """Serve one request to its end. Whatever ends it, all it holds is given back."""
    task = cast("asyncio.Task[object]", asyncio.current_task())
    x.gateway.running.add(task)
    outcome: Outcome = "ok"
    reason = "none"
    stage = STAGES[0]
    try:
        with refusing():
            for stage in STAGES:
                with x.noting(stage.__name__):
                    answered = await stage(x)
                if answered:
                    break
    except Refused as refused:
        outcome, reason = ("failed" if x.sent_at and refused.row.status >= 500 else "refused"), refused.reason
        await _refuse(x, stage.__name__, refused)
    except ClientLeft:
        outcome, reason = "cancelled", "client_left"
    except asyncio.CancelledError:
        task.uncancel()
        if x.client_left:
            outcome, reason = "cancelled", "client_left"
        else:
            outcome, reason = "failed", "draining"
            await _refuse(
                x, stage.__name__, Refused("draining", "this gateway shut down before the answer was complete")
            )
    except Exception:
        log.exception("request %s failed", x.request_id.decode())
        outcome, reason = "failed", "internal_error"
        failed = Refused("internal_error", "the gateway failed; tell its operators the x-request-id")
        await _refuse(x, stage.__name__, failed)
    finally:
        x.settle()
        x.stop_watching()
        x.gateway.running.discard(task)
        for look_back in ENDINGS:
            look_back(x, outcome, reason)


async def _refuse(x: Exchange, stage: str, refused: Refused) -> None:
    if not x.begun and refused.reason != "deadline_exceeded":
        # Nothing came of it, so nothing is charged; a request that ran into its own deadline has been prefilled.
        x.usage = Usage(0, 0)
    x.settle()
    x.gateway.decisions.refused(x, stage, refused)
    await x.refuse(refused)


def _count(x: Exchange, outcome: Outcome, reason: str) -> None:
    pool = pool_of(x)
    labels = (pool, x.tenant_name or UNKNOWN, x.priority_class or UNKNOWN)
    x.gateway.metrics.request(*labels, outcome, reason)
    if x.sent_at is None:
        return
    series = x.gateway.metrics.series(*labels)
    prompt_tokens, output_tokens = x.used_tokens()
    series.prompt_tokens.inc(prompt_tokens)
    series.generation_tokens.inc(output_tokens)
    series.queue.observe(x.sent_at - x.arrived)
    if outcome in ("ok", "cancelled"):
        x.gateway.decisions.admitted(x, serve.__name__)
    if outcome == "ok":
        x.gateway.sketches.answered(x.tenant_name, x.priority_class, pool, output_tokens)
    if x.first_byte_at is None or x.last_byte_at is None or outcome != "ok":
        return
    series.e2e.observe(x.last_byte_at - x.arrived)
    if x.reader is None:
        # A whole answer comes after its last token; its first one was seen by nobody.
        return
    series.ttft.observe(x.first_byte_at - x.arrived)
    if output_tokens > 1:
        series.tpot.observe((x.last_byte_at - x.first_byte_at) / (output_tokens - 1))


ENDINGS: tuple[Ending, ...] = (_count,)
