"""The stage that answers from a cache, and the ending that keeps what an engine answered."""

from __future__ import annotations

import asyncio
import time

import msgspec
from msgspec import UNSET

from gateway.caches.answers import may_be_kept
from gateway.caches.caches import CacheUse, Hit
from gateway.caches.exact import ShelfName
from gateway.caches.keys import CACHED_ENDPOINTS, Wish, key_of
from gateway.caches.questions import MESSAGES_MAX, question_in
from gateway.caches.room import Answer, Recorder
from gateway.caches.semantic import Place
from gateway.exchange import Exchange
from gateway.refusals import Refused

# A stream is given again in pieces of so many bytes, so that a slow reader holds up nobody else's memory.
_PIECE_BYTES = 64 * 1024


async def answer_from_cache(x: Exchange) -> bool:
    """Answer what was answered before, where the tenant's policy, or else the model's, says so."""
    caches = x.gateway.caches
    named = caches.policy_of(x.view, x.tenant, x.model)
    if named is None or x.endpoint not in CACHED_ENDPOINTS:
        return False
    name, policy = named
    wish = Wish.of(x.headers.get(b"cache-control"))
    use = x.cache = CacheUse(ShelfName(x.tenant_name, name), policy, b"")
    if not wish.write:
        use.header = b"bypass"
        return False
    _read_request(x, use)
    hit = await _find(x, use, wish) if wish.read else None
    if hit is None:
        use.header = b"miss"
        use.recorder = Recorder(caches.room, caches.answer_bytes_max)
        x.on_part = use.recorder.hear
        return False
    answer = hit.kept.answer
    x.note(age_ms=hit.age_ms, similarity_permille=round(hit.similarity * 1000), bytes=len(answer.body))
    await _count_as_request(x)
    caches.counters.looked(hit.kind, x.tenant_name, x.model_name, hit=True)
    use.hit, use.answer, use.header = hit, answer, hit.header
    await give_again(x, answer)
    return True


async def _count_as_request(x: Exchange) -> None:
    """A hit takes no tokens and runs nowhere. It is a request all the same: `rpm_limit` holds for it."""
    x.lease = await x.gateway.quotas.reserve(x.tenant_name, 0, 0)
    x.lease.settle(0, reached_engine=True)


def _read_request(x: Exchange, use: CacheUse) -> None:
    caches, ask = x.gateway.caches, x.ask
    context = (
        x.endpoint.encode(),
        caches.configurations.of(x.view, x.model, x.tenant),
        b"stream" if ask.stream else b"whole",
    )
    # By whichever of its names the model was called, and however it was said that the answer is no stream.
    instead = {"model": x.model_name.encode(), "stream": None}
    use.key = key_of(ask.fields, context, instead)
    semantic = use.policy.semantic
    if semantic is UNSET or x.endpoint != "chat" or ask.messages > MESSAGES_MAX:
        return
    # What belongs to a session answers what was said in it before.
    if b"x-session-id" in x.headers:
        return
    use.question = question_in(ask.fields, caches.question_characters_max)
    if use.question is not None:
        embedding = (semantic.embedding_model.encode(), msgspec.json.encode(_served_as(x, semantic.embedding_model)))
        scope = key_of(ask.fields, (*context, *embedding), {**instead, "messages": use.question.before})
        use.place = Place(use.shelf, scope)


def _served_as(x: Exchange, model: str) -> list[str]:
    """The names by which engines know an embedding model: under another one, it gives other vectors."""
    snapshot = x.view.snapshot
    pools = {name for name, pool in snapshot.pools.items() if pool.model == model}
    return sorted({engine.served_model for engine in snapshot.engines.values() if engine.pool in pools})


async def _find(x: Exchange, use: CacheUse, wish: Wish) -> Hit | None:
    """What answers it. Look-ups that found nothing are counted here, a hit once it is given."""
    caches, labels = x.gateway.caches, (x.tenant_name, x.model_name)
    if use.policy.exact is not UNSET:
        if hit := caches.find_same(use, wish.max_age_ms):
            return hit
        caches.counters.looked("exact", *labels, hit=False)
    if use.question is not None:
        if hit := await caches.find_alike(x.view, use, wish.max_age_ms):
            return hit
        caches.counters.looked("semantic", *labels, hit=False)
    return None


async def give_again(x: Exchange, answer: Answer) -> None:
    """As it was sent the first time, byte for byte, under the headers of this request."""
    try:
        async with asyncio.timeout(x.deadline - time.monotonic()):
            if not answer.stream:
                await x.answer_json(200, answer.body)
                return
            await x.begin_stream()
            last = len(answer.body) - _PIECE_BYTES
            for begin in range(0, last, _PIECE_BYTES):
                await x.stream(answer.body[begin : begin + _PIECE_BYTES])
            await x.end_stream(answer.body[max(0, -(-last // _PIECE_BYTES)) * _PIECE_BYTES :])
    except TimeoutError:
        raise Refused("deadline_exceeded", "the kept answer was not taken in time; allow more time") from None


def keep_answer(x: Exchange, outcome: str, reason: str) -> None:
    """Keep an answer that is whole, and give back the memory of one that is not."""
    use = x.cache
    if use is None or use.recorder is None:
        return
    body = use.recorder.end()
    if body is None or outcome != "ok" or not _is_still_wanted(x, use):
        return
    stream, asked = x.reader is not None, x.ask.asked_max_tokens
    as_asked = asked is not None and asked == x.max_tokens
    # An engine that answers a stream's request as a whole is not one to be imitated.
    if stream != x.ask.stream or not may_be_kept(x.endpoint, body, stream=stream, length_was_asked_for=as_asked):
        return
    use.answer = Answer(body, stream, x.gateway.now_ms())
    x.gateway.caches.keep(use, use.answer)


def _is_still_wanted(x: Exchange, use: CacheUse) -> bool:
    """The configuration may be another one since the request came."""
    view = x.gateway.view
    if view is None or view is x.view:
        return True
    tenant, model = view.snapshot.tenants.get(x.tenant_name), view.snapshot.models.get(x.model_name)
    if tenant is None or model is None:
        return False
    named = x.gateway.caches.policy_of(view, tenant, model)
    return named is not None and named[0] == use.shelf.policy
