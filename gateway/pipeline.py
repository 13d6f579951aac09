"""A request's way through the gateway, in this order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Literal, cast

from gateway.admission import bound_output, count_arrival, identify, measure, read, route, take_quota
from gateway.batches.watching import watch_beside_lines
from gateway.caches.stage import answer_from_cache, keep_answer
from gateway.cascade import ask_small_first, plan_cascade
from gateway.counting import count
from gateway.exchange import ClientLeft, Exchange
from gateway.feedback import remember
from gateway.pools import judge_pool
from gateway.refusals import Refused, refusing
from gateway.relay import serve
from gateway.schemas import check_schema, remember_schemas
from gateway.sessions import check_session
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
    check_session,  # an agent's session: its calls, tokens, cost, depth, repeated tool calls
    answer_from_cache,  # the same request, or one that means the same, was answered before
    route,  # rules by model, tenant, class and sizes → pools
    bound_output,  # max_tokens default and clamp, n cap
    check_schema,  # what constrains the answer: size, depth, alternatives, how many different ones
    plan_cascade,  # whether a small model is asked first
    count_arrival,  # what was asked for, for the sketches
    take_quota,  # reserve tokens, a request, parallel sequences
    ask_small_first,  # its answer, if it is good enough
    serve,  # engine and KV cache → stream through → settle on real usage
)


async def run(x: Exchange, stages: tuple[Stage, ...] = STAGES) -> None:
    """Serve one request to its end. Whatever ends it, all it holds is given back."""
    task = cast("asyncio.Task[object]", asyncio.current_task())
    x.gateway.running.add(task)
    outcome: Outcome = "ok"
    reason = "none"
    stage = stages[0]
    try:
        with refusing():
            for stage in stages:
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
        x.close()
        x.gateway.running.discard(task)
        _look_back(x, outcome, reason)


def _look_back(x: Exchange, outcome: Outcome, reason: str) -> None:
    """One that fails must not keep the others from looking."""
    for ending in ENDINGS:
        try:
            ending(x, outcome, reason)
        except Exception:
            log.exception("%s of request %s failed", ending.__name__, x.request_id.decode())


async def _refuse(x: Exchange, stage: str, refused: Refused) -> None:
    if not x.begun and refused.reason != "deadline_exceeded":
        # Nothing came of it, so nothing is charged; a request that ran into its own deadline has been prefilled.
        x.usage = Usage(0, 0)
    x.settle()
    x.gateway.decisions.refused(x, stage, refused)
    await x.refuse(refused)


ENDINGS: tuple[Ending, ...] = (judge_pool, count, keep_answer, remember, remember_schemas, watch_beside_lines)
