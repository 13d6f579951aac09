"""Idempotency-Key: a write that is sent again answers what it answered first, and is done once.

The answer is stored in the transaction of the write itself, so that whoever got none, whatever broke in between, may
send the same again. Units of work run one at a time: of two at once the second waits and finds the first one's answer.

Whoever may do less, or more, than at first is answered nothing again: the write itself would be judged anew.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import F, Q, QuerySet, Sum, Window
from django.db.models.functions import RowNumber
from django.http import HttpRequest
from django.utils import timezone

from controlplane import settings_rows as rows
from controlplane.core.changes import Actor
from controlplane.core.errors import Malformed, Refused
from controlplane.core.models import CALL_SHOWN_CHARACTERS, IdempotentAnswer
from controlplane.core.sealed import seal, unseal
from wire.problems import Problem

HEADER, REPLAYED_HEADER = "Idempotency-Key", "Idempotency-Replayed"
KEY_MAX_CHARACTERS = 200
KEY_PATTERN = f"^[!-~]{{1,{KEY_MAX_CHARACTERS}}}$"
_KEY = re.compile(KEY_PATTERN)
# Headers that say what a write shall do, beside its address and body.
_TELLING_HEADERS = ("content-type", "if-match", "if-none-match")
# Each step of forgetting is a transaction of its own, of milliseconds.
_ROWS_A_STEP = 500


@dataclass(frozen=True)
class KeyedRequest:
    """A request that may come again: who sent it, under which key, and the digest of all that it asks for.

    And of what the caller may do, since an answer may hold what another role or other tenants would not be shown.
    """

    caller: str
    key: str
    call: str
    sha256: str


def keyed_request(request: HttpRequest, actor: Actor, body: bytes | None = None) -> KeyedRequest | None:
    """None where the caller sent no key. `body`: what the route read as a stream. Raises Malformed."""
    key = request.headers.get(HEADER)
    if key is None:
        return None
    if not _KEY.fullmatch(key):
        says = f"give 1 to {KEY_MAX_CHARACTERS} visible ASCII characters, such as a UUID"
        raise Malformed(f"{HEADER}: {says}", [Problem(f"/{HEADER}", "pattern", says)])
    digest = hashlib.sha256()
    telling = [request.headers.get(header, "") for header in _TELLING_HEADERS]
    for part in (_standing(actor), request.method or "", request.get_full_path(), *telling):
        digest.update(part.encode() + b"\n")
    digest.update(request.body if body is None else body)
    # Percent-encoded and without the query, which holds the reason.
    call = f"{request.method} {request.get_full_path().partition('?')[0]}"[:CALL_SHOWN_CHARACTERS]
    return KeyedRequest(f"{actor.kind} {actor.name}", key, call, digest.hexdigest())


def _standing(actor: Actor) -> str:
    return repr((actor.role, actor.entrusted, None if actor.tenants is None else sorted(actor.tenants)))


def stored_answer(asked: KeyedRequest) -> str | None:
    """What this request was answered; None where it comes for the first time, or its answer is too old.

    Raises Refused where the key was used for another request, or with another role or other tenants. Call it first in
    the unit of work.
    """
    row = IdempotentAnswer.objects.filter(caller=asked.caller, key=asked.key).first()
    if row is None:
        return None
    if row.at <= _oldest(timezone.now()):
        row.delete()
        return None
    if row.request_sha256 != asked.sha256:
        says = (
            f"this key was used for another request ({row.call}), or before your role or tenants changed; take a new "
            "key for a new request"
        )
        raise Refused(says, [Problem(f"/{HEADER}", "reused", says)], code="idempotency_key_reused")
    return unseal(row.answer) if row.is_sealed else row.answer


def keep_answer(asked: KeyedRequest, answer: str, *, secret: bool) -> None:
    """Store it with the write, in its transaction. `secret`: encrypted, since it holds one."""
    text = seal(answer) if secret else answer
    IdempotentAnswer.objects.create(
        caller=asked.caller,
        key=asked.key,
        call=asked.call,
        request_sha256=asked.sha256,
        answer=text,
        is_sealed=secret,
        size_bytes=len(text.encode()),
        at=timezone.now(),
    )


def forget(now: datetime) -> int:
    """Remove answers that are too old, beyond what one caller may have, or beyond the space of all; how many."""
    removed = 0
    for excess in (_old(now), _too_many()):
        for pks in _steps(excess):
            removed += IdempotentAnswer.objects.filter(pk__in=pks).delete()[0]
    return removed


def _oldest(now: datetime) -> datetime:
    return now - timedelta(hours=rows.IDEMPOTENCY_KEEP_HOURS.read())


def _old(now: datetime) -> QuerySet[IdempotentAnswer]:
    return IdempotentAnswer.objects.filter(at__lte=_oldest(now))


def _too_many() -> QuerySet[IdempotentAnswer]:
    newest_first = F("pk").desc()
    placed = IdempotentAnswer.objects.annotate(
        place=Window(RowNumber(), partition_by=F("caller"), order_by=newest_first),
        held_bytes=Window(Sum("size_bytes"), order_by=newest_first),
    )
    most, most_bytes = rows.IDEMPOTENCY_KEYS_MAX.read(), rows.IDEMPOTENCY_BYTES_MAX.read()
    return placed.filter(Q(place__gt=most) | Q(held_bytes__gt=most_bytes))


def _steps(excess: QuerySet[IdempotentAnswer]) -> Iterator[list[int]]:
    while pks := [row.pk for row in excess.only("pk")[:_ROWS_A_STEP]]:
        yield pks
