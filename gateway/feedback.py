"""`POST /v1/feedback`: what a client says of an answer that it got, by its request id."""

from __future__ import annotations

import uuid
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from gateway.admission import find_tenant
from gateway.caches.room import Answer
from gateway.caches.semantic import Shared
from gateway.refusals import Refused
from policy.asks.body import bad_field, fields_of
from policy.bucket import Bucket, Wait
from wire.messages import Event
from wire.problems import cut

if TYPE_CHECKING:
    from gateway.exchange import Exchange
    from gateway.state import Gateway

PATH = "/v1/feedback"
Verdict = Literal["liked", "approved", "verified", "wrong"]
Cache = Literal["exact", "semantic", "none"]
Effect = Literal["kept", "evicted", "none"]
# Reports that wait for the control plane; the oldest go.
_EVENTS_WAITING = 2_000


class Feedback(Struct, forbid_unknown_fields=True):
    """`request_id`: of the answer's `x-request-id`."""

    request_id: Annotated[str, Meta(min_length=1, max_length=128)]
    verdict: Verdict
    comment: Annotated[str, Meta(max_length=1000)] | None = None


class Told(Struct):
    """What had answered the request, `none` is an engine, and what has become of the answer.

    `kept`: it is given to others who ask the same from now on. `evicted`: it is given to nobody any more.
    """

    cache: Cache
    effect: Effect = "none"


_decoder = msgspec.json.Decoder(Feedback)


@dataclass(slots=True)
class Answered:
    """A request that was answered. `cache`: by what, `none` is an engine.

    `answer` and `shared` are there for as long as the caches keep them.
    """

    model: str
    cache: Cache = "none"
    answer: Callable[[], Answer | None] = lambda: None
    shared: Callable[[], Shared | None] = lambda: None
    similarity: float = 1.0
    verdicts: frozenset[Verdict] = frozenset()


class RecentRequests:
    """The last `capacity` answered requests, by tenant and id; of an id that was sent twice, the later one."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._by_id: OrderedDict[tuple[str, bytes], Answered] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_id)

    def note(self, tenant: str, request_id: bytes, answered: Answered) -> None:
        self._by_id[tenant, request_id] = answered
        self._by_id.move_to_end((tenant, request_id))
        if len(self._by_id) > self._capacity:
            self._by_id.popitem(last=False)

    def find(self, tenant: str, request_id: bytes) -> Answered | None:
        return self._by_id.get((tenant, request_id))


class FeedbackRate:
    """How many calls each tenant may make: `per_minute`, also all at once, refilled evenly."""

    def __init__(self, per_minute: int, now_ms: Callable[[], int]) -> None:
        self._per_minute, self._now_ms = per_minute, now_ms
        self._buckets: dict[str, Bucket] = {}

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, tenant: str, tenants: Container[str]) -> None:
        """Count a call of one of `tenants`. Raises: Refused (`feedback_limit`)."""
        now_ms = self._now_ms()
        bucket = self._buckets.get(tenant)
        if bucket is None:
            # Of those that are gone nothing is kept.
            self._buckets = {name: held for name, held in self._buckets.items() if name in tenants}
            bucket = self._buckets[tenant] = Bucket(self._per_minute, now_ms, lease_ms=0)
        obstacle = bucket.take(1, now_ms)
        if isinstance(obstacle, Wait):
            raise Refused(
                "feedback_limit",
                f"a tenant may send feedback {self._per_minute} times a minute to one gateway",
                retry_after_seconds=obstacle.wait_ms / 1000,
                numbers={"limit": self._per_minute},
            )


class FeedbackEvents:
    """Reports that wait to be told to the control plane; `note_dropped` hears of each that gave way to a newer one."""

    def __init__(self, note_dropped: Callable[[], None]) -> None:
        self._waiting: deque[Event] = deque()
        self._note_dropped = note_dropped

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, event: Event) -> None:
        self._waiting.append(event)
        if len(self._waiting) > _EVENTS_WAITING:
            self._waiting.popleft()
            self._note_dropped()

    def take(self, count: int) -> list[Event]:
        """The oldest `count`; they are no longer kept here."""
        return [self._waiting.popleft() for _ in range(min(count, len(self._waiting)))]


def remember(x: Exchange, outcome: str, reason: str) -> None:
    """An ending: what a client may later say of its answer must be known by then. Runs after `keep_answer`."""
    if outcome != "ok":
        return
    answered, use = Answered(x.model_name), x.cache
    if use is not None and use.answer is not None:
        answered.answer = weakref.ref(use.answer)
    if use is not None and use.hit is not None:
        answered.cache, answered.similarity = use.hit.kind, use.hit.similarity
        if isinstance(use.hit.kept, Shared):
            answered.shared = weakref.ref(use.hit.kept)
    x.gateway.recent.note(x.tenant_name, x.request_id, answered)


async def take_feedback(x: Exchange) -> None:
    """Answers {request_id, verdict, cache, effect}, as `Told` says.

    Raises: Refused and NotAdmitted (`unknown_request`, `feedback_limit`, `bad_json`, `bad_field`, those of the key and
    the body), ClientLeft.
    """
    x.tenant_name, _ = find_tenant(x)
    x.gateway.feedback_rate.take(x.tenant_name, x.view.snapshot.tenants)
    feedback = _read(await x.read_body())
    told = await apply(x.gateway, x.tenant_name, feedback)
    if told is None:
        told = await x.gateway.shared_feedback.ask(x.tenant_name, feedback)
    if told is None:
        raise Refused(
            "unknown_request",
            f"no request {feedback.request_id!r} of yours was answered, or it is forgotten by now; the id is that of "
            "the answer's x-request-id header",
            param="request_id",
        )
    answer = {"request_id": feedback.request_id, "verdict": feedback.verdict, "cache": told.cache}
    await x.answer_json(200, msgspec.json.encode({**answer, "effect": told.effect}))


def _read(body: bytes) -> Feedback:
    fields_of(body)
    try:
        return _decoder.decode(body)
    except msgspec.ValidationError as error:
        raise bad_field(error) from None


async def apply(gateway: Gateway, tenant: str, feedback: Feedback) -> Told | None:
    """Do as a client of a tenant says; None where this gateway remembers no such request of the tenant.

    A verdict that was given before is not counted again, and finds nothing left to do unless it failed then.
    """
    answered = gateway.recent.find(tenant, feedback.request_id.encode())
    if answered is None:
        return None
    if feedback.verdict not in answered.verdicts:
        answered.verdicts |= {feedback.verdict}
        _count(gateway, tenant, answered, feedback.verdict)
        gateway.feedback_events.put(_event(gateway, tenant, answered, feedback))
    return Told(answered.cache, await _act(gateway, answered, feedback.verdict))


async def _act(gateway: Gateway, answered: Answered, verdict: Verdict) -> Effect:
    caches, answer = gateway.caches, answered.answer()
    if verdict != "wrong":
        # An answer that was called wrong stays so for this request, whatever is said later.
        if answer is None or "wrong" in answered.verdicts or gateway.view is None:
            return "none"
        return "kept" if await caches.approve(gateway.view, answer) else "none"
    if answered.cache == "semantic":
        # The answer was to another question, for which it may be right.
        shared = answered.shared()
        if shared is not None:
            caches.was_wrong(shared, answered.similarity)
        return "none" if shared is None else "evicted"
    return "evicted" if answer is not None and caches.forget(answer) else "none"


def _count(gateway: Gateway, tenant: str, answered: Answered, verdict: Verdict) -> None:
    counters, labels = gateway.metrics.caches, (answered.cache, tenant, answered.model)
    counters.feedback.labels(verdict, *labels).inc()
    if verdict == "wrong" and answered.cache != "none":
        counters.wrong_hits.labels(*labels).inc()


def _event(gateway: Gateway, tenant: str, answered: Answered, feedback: Feedback) -> Event:
    by = "an engine" if answered.cache == "none" else f"the {answered.cache} cache"
    said = f": {feedback.comment}" if feedback.comment else ""
    return Event(
        id=uuid.uuid4().hex,
        at=gateway.unix_ms(),
        kind=f"feedback_{feedback.verdict}",
        subject=feedback.request_id,
        severity="warning" if feedback.verdict == "wrong" and answered.cache != "none" else "info",
        detail=cut(f"tenant {tenant}, model {answered.model}, answered by {by}{said}"),
    )
