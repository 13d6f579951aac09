"""Which requests the control plane is told of, and the bounded queue in which these wait: never on a request's way."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from gateway.metrics import UNKNOWN
from gateway.refusals import Refused
from wire.messages import ADMITTED, Decision, StageNote
from wire.problems import cut

if TYPE_CHECKING:
    from gateway.exchange import Exchange

Kind = Literal["admitted", "refused"]
_EVERY = 100
# In its own words an engine may repeat the prompt, which is nobody's here.
_ENGINES_WORDS = "engine_rejected"


class Sampler:
    """Which admitted requests are told of: the first of each tenant in every second, and every hundredth."""

    def __init__(self) -> None:
        self._number = 0
        self._second = 0
        self._told: set[str] = set()

    def takes(self, tenant: str, now_ms: int) -> bool:
        self._number += 1
        second = now_ms // 1000
        if second != self._second:
            self._second = second
            self._told.clear()
        if tenant not in self._told:
            self._told.add(tenant)
            return True
        return self._number % _EVERY == 0


class DecisionLog:
    """Decisions that wait to be sent: `capacity` at most. The oldest go first, samples before any refusal.

    `note_dropped` hears of each that goes.
    """

    def __init__(self, capacity: int, note_dropped: Callable[[Kind], None]) -> None:
        self._capacity, self._note_dropped = capacity, note_dropped
        self._refused: deque[Decision] = deque()
        self._admitted: deque[Decision] = deque()
        self._sampler = Sampler()

    def __len__(self) -> int:
        return len(self._refused) + len(self._admitted)

    def refused(self, x: Exchange, stage: str, refused: Refused) -> None:
        """A request that was answered with an error, whoever made it."""
        told = refused.row.means if refused.reason == _ENGINES_WORDS else refused.message
        numbers = _sizes(x)
        numbers.update(refused.numbers)
        if refused.retry_after_seconds:
            numbers["retry_after_ms"] = round(refused.retry_after_seconds * 1000)
        self.put("refused", _decision(x, stage, refused.reason, refused.row.status, cut(told), numbers))

    def admitted(self, x: Exchange, stage: str) -> None:
        """A request that an engine answered, or was answering when its client left; most are not told of."""
        if self._sampler.takes(x.tenant_name, x.gateway.now_ms()):
            numbers = _sizes(x)
            numbers["output_tokens"] = x.used_tokens()[1]
            moments = (("queue_ms", x.sent_at), ("first_byte_ms", x.first_byte_at), ("took_ms", x.last_byte_at))
            for name, at in moments:
                if at is not None:
                    numbers[name] = round((at - x.arrived) * 1000)
            self.put("admitted", _decision(x, stage, ADMITTED, 200, "", numbers))

    def put(self, kind: Kind, decision: Decision) -> None:
        (self._refused if kind == "refused" else self._admitted).append(decision)
        if len(self) > self._capacity:
            self._make_room()

    def take(self, count: int) -> list[Decision]:
        """The oldest `count` refusals, then samples; they are no longer kept here."""
        taken = [self._refused.popleft() for _ in range(min(count, len(self._refused)))]
        return taken + [self._admitted.popleft() for _ in range(min(count - len(taken), len(self._admitted)))]

    def _make_room(self) -> None:
        kind: Kind = "admitted" if self._admitted else "refused"
        (self._admitted or self._refused).popleft()
        self._note_dropped(kind)


def pool_of(x: Exchange) -> str:
    """The pool of the request's engine, else the one that its route prefers."""
    return x.placement.pool if x.placement else next(iter(x.route.pools), UNKNOWN)


def _sizes(x: Exchange) -> dict[str, int]:
    """What is known of the request; a stage that was not reached has added nothing."""
    numbers = {}
    if x.size.source:
        numbers["prompt_tokens"] = x.size.tokens
    if x.max_tokens:
        numbers.update(max_tokens=x.max_tokens, sequences=x.ask.sequences)
    return numbers


def _decision(x: Exchange, stage: str, reason: str, status: int, message: str, numbers: dict[str, int]) -> Decision:
    return Decision(
        request_id=x.request_id.decode(),
        at=x.gateway.unix_ms() - round((time.monotonic() - x.arrived) * 1000),
        revision=x.view.revision,
        stage=stage,
        reason=reason,
        status=status,
        tenant=x.tenant_name or UNKNOWN,
        priority_class=x.priority_class or UNKNOWN,
        pool=pool_of(x),
        message=message,
        numbers=numbers,
        stages=[StageNote(note.stage, note.took_us, note.numbers) for note in x.notes],
    )
