"""A small model is asked first, where the request's route says so; a better one where its answer is not good enough.

The small model's answer is held back until it is whole and judged, so nothing of it reaches a client that is then given
another one. Its place in the queue and its KV cache are those of its own pool; its tokens are the tenant's, whichever
answer is given.
"""

from __future__ import annotations

import time
from typing import NamedTuple, NoReturn

import msgspec
from msgspec import UNSET, Raw

from gateway.caches.room import Answer
from gateway.caches.stage import give_again
from gateway.exchange import Exchange, Message
from gateway.measure import PromptSize
from gateway.metrics import UNKNOWN
from gateway.refusals import Refused
from gateway.relay import serve
from gateway.usage import Usage
from policy.admission import bounded_output
from policy.asks import Ask
from policy.cascade import Verdict, Wanted, is_asked_first, judge_answer, without_logprobs
from policy.kv import reservation_tokens
from policy.routing import RouteResult
from wire.snapshot import Cascade, Model

# The small pool's engines were asked and did not serve; all else that refuses comes before any of them is asked.
_ENGINE_FAILED = ("engine_unreachable", "engine_overloaded", "engine_error", "engine_rejected")
_LATE = "deadline_exceeded"
_NO_PLACE = "no_place"


class Small(NamedTuple):
    """What is asked of the small model."""

    cascade: Cascade
    model_name: str
    model: Model
    size: PromptSize
    max_tokens: int
    sequences: int

    @property
    def tokens(self) -> int:
        """The most that it may use."""
        return reservation_tokens(self.size.tokens, self.max_tokens, self.sequences)


async def plan_cascade(x: Exchange) -> None:
    """Whether the small model of the request's route is asked, and for how much; the quota then covers both calls.

    It is not where the prompt is too long for it, where the tenant's limit could never hold both calls, or where its
    session has no room for both.
    """
    cascade = x.view.routes[x.route.rule].cascade
    if cascade is UNSET or not is_asked_first(cascade, x.endpoint, x.size.tokens):
        return
    name = x.view.snapshot.pools[cascade.pool].model
    model = x.view.snapshot.models[name]
    size = await x.gateway.measure.prompt_size(x.ask, name, x.view, x.tenant_name)
    if size.longest >= model.max_context_tokens:
        return
    max_tokens, _ = bounded_output(x.max_tokens, size.longest, model, x.tenant)
    small = Small(cascade, name, model, size, max_tokens, x.ask.sequences)
    largest = x.gateway.quotas.largest_tokens(x.tenant_name)
    own = reservation_tokens(x.size.tokens, x.max_tokens, x.ask.sequences)
    if largest is not None and own + small.tokens > largest:
        return
    if x.session is None or x.session.reserve_beside(model, size.tokens, max_tokens, x.ask.sequences):
        x.small = small


async def ask_small_first(x: Exchange) -> bool:
    """Answer by the small model, if it answers well enough. True: it did.

    Raises: Refused, where its engines failed and the route does not escalate on that, or where time is over.
    """
    small = x.small
    if small is None:
        return False
    pool = small.cascade.pool
    x.gateway.sketches.arrived(x.tenant_name, x.priority_class, pool, small.size.tokens, small.max_tokens)
    held = _Held(x.gateway.limits.max_answer_bytes)
    draft = _draft(x, small, held)
    is_given = False
    try:
        reason = await _ask(x, small, draft, held)
        is_given = reason is None
    finally:
        x.gateway.pools.ended(draft)
        x.reached_engine |= draft.reached_engine
        if not is_given:
            _charge(x, small, draft)
    x.gateway.metrics.patterns.cascaded(pool, x.tenant_name, reason or "none")
    if reason is not None:
        x.cascade_note = f"escalated;reason={reason}".encode()
        return False
    await _give(x, small, draft, held)
    return True


class _Held:
    """Takes an answer as a server would, and keeps it."""

    def __init__(self, most_bytes: int) -> None:
        self._left = most_bytes
        self.parts: list[bytes] = []

    async def send(self, message: Message) -> None:
        part = message.get("body", b"")
        self._left -= len(part)
        if self._left < 0:
            raise Refused("engine_error", "the small model's answer is larger than the gateway holds")
        self.parts.append(part)

    @property
    def body(self) -> bytes:
        if len(self.parts) > 1:
            self.parts = [b"".join(self.parts)]
        return self.parts[0]


async def _nothing_comes() -> NoReturn:
    raise RuntimeError("the body was read before")


def _draft(x: Exchange, small: Small, held: _Held) -> Exchange:
    """The same request as the small model is asked it. It holds no quota and no session of its own."""
    draft = Exchange(x.gateway, x.view, x.scope, _nothing_comes, held.send)
    draft.arrived, draft.headers, draft.request_id, draft.notes = x.arrived, x.headers, x.request_id, x.notes
    draft.tenant_name, draft.tenant, draft.priority_class = x.tenant_name, x.tenant, x.priority_class
    draft.deadline, draft.deadline_is_clients = x.deadline, x.deadline_is_clients
    draft.endpoint, draft.ask = x.endpoint, _with_logprobs(x) if _needs_logprobs(x, small) else x.ask
    draft.model_name, draft.model, draft.size, draft.max_tokens = (
        small.model_name, small.model, small.size, small.max_tokens,
    )  # fmt: skip
    draft.route = RouteResult("matched", x.route.rule, (small.cascade.pool,), "")
    return draft


async def _ask(x: Exchange, small: Small, draft: Exchange, held: _Held) -> str | None:
    """Why the answer is not to be given; None: it is."""
    try:
        await serve(draft)
        if x.ask.stream and draft.reader is None:
            raise Refused("engine_error", "the small model answered a stream with something else")
    except Refused as refused:
        if refused.reason == _LATE:
            raise
        # As everywhere, what an engine failed at costs nothing.
        draft.usage = Usage(0, 0)
        if refused.reason not in _ENGINE_FAILED:
            return _NO_PLACE
        if "engine_failed" not in small.cascade.escalate_on:
            x.placement, x.sent_at = draft.placement, draft.sent_at
            raise
        return "engine_failed"
    wanted = Wanted(json=_wants_json(x.ask), own_length=small.max_tokens == x.ask.asked_max_tokens)
    streamed = draft.reader is not None
    verdict = judge_answer(held.body, stream=streamed, cascade=small.cascade, wanted=wanted)
    _note(x, draft, verdict)
    if verdict.reason is None and _needs_logprobs(x, small):
        held.parts = [without_logprobs(held.body, stream=streamed)]
    return verdict.reason


def _note(x: Exchange, draft: Exchange, verdict: Verdict) -> None:
    prompt_tokens, output_tokens = draft.used_tokens()
    x.note(small_prompt_tokens=prompt_tokens, small_output_tokens=output_tokens)
    if verdict.confidence_permille is not None:
        x.note(confidence_permille=verdict.confidence_permille)


def _charge(x: Exchange, small: Small, draft: Exchange) -> None:
    """What was used for an answer that is not given: by the tenant, the session, and the small model's pool."""
    prompt_tokens, output_tokens = draft.used_tokens()
    x.small_tokens = prompt_tokens + output_tokens
    if x.session is not None:
        x.session.add(small.model, prompt_tokens, output_tokens)
    series = x.gateway.metrics.series(small.cascade.pool, x.tenant_name, x.priority_class or UNKNOWN)
    series.prompt_tokens.inc(prompt_tokens)
    series.generation_tokens.inc(output_tokens)


async def _give(x: Exchange, small: Small, draft: Exchange, held: _Held) -> None:
    """The small model's answer is the request's, and what it used is what the request used."""
    x.cascade_note = b"small"
    x.placement, x.sent_at, x.reader = draft.placement, draft.sent_at, draft.reader
    x.usage = Usage(*draft.used_tokens())
    if x.session is not None:
        x.session.price_by(small.model)
    x.settle()
    x.first_byte_at = time.monotonic()
    await give_again(x, Answer(held.body, x.ask.stream, x.gateway.now_ms()))
    x.last_byte_at = time.monotonic()


def _needs_logprobs(x: Exchange, small: Small) -> bool:
    """Whether they are asked for without the client's asking."""
    asked = x.ask.raw("logprobs") not in (b"", b"null", b"false")
    return "low_confidence" in small.cascade.escalate_on and not asked


def _with_logprobs(x: Exchange) -> Ask:
    value = b"true" if x.endpoint == "chat" else b"1"
    return Ask(x.endpoint, msgspec.json.encode({**x.ask.fields, "logprobs": Raw(value)}))


def _wants_json(ask: Ask) -> bool:
    form = ask.response_format
    return b'"json_object"' in form or b'"json_schema"' in form
