"""The log of decisions: taken from gateways, listed, found by request, told in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from django.db import transaction

from controlplane.core import fields as f
from controlplane.core.errors import NotFound
from controlplane.core.nouns import PAGE_ROWS, page_of
from controlplane.core.reported import reported_text, storable_text
from controlplane.core.scope import Tenants, within
from controlplane.telemetry.decisions import models as rows
from controlplane.telemetry.decisions.names import KnownNames
from wire import messages
from wire.canonical import Document

# A writer of the configuration waits for one such part at most (SQLite has one writer), which takes milliseconds.
_ROWS_AT_ONCE = 500
_TOLD_MAX = 20
_encoded = msgspec.msgpack.encode
# More than a gateway has; another program may tell any.
REASONS_MAX = 100


def take(gateway: str, told: Sequence[messages.Decision], now_ms: int) -> None:
    """Store what a gateway tells. The same request at the same time counts once, however often it comes."""
    names = KnownNames(told)
    fresh = [_row(gateway, decision, names, now_ms) for decision in told]
    for start in range(0, len(fresh), _ROWS_AT_ONCE):
        with transaction.atomic():
            rows.Decision.objects.bulk_create(fresh[start : start + _ROWS_AT_ONCE], ignore_conflicts=True)


def _row(gateway: str, decision: messages.Decision, names: KnownNames, now_ms: int) -> rows.Decision:
    return rows.Decision(
        gateway=gateway,
        request_id=storable_text(decision.request_id),
        # The wire allows later ones, but nobody could be shown them.
        at_ms=min(decision.at, f.EPOCH_MS_MAX),
        received_ms=now_ms,
        revision=decision.revision,
        stage=decision.stage,
        reason=decision.reason,
        status=decision.status,
        tenant=names.tenant(decision.tenant),
        priority_class=names.priority_class(decision.priority_class),
        pool=names.pool(decision.pool),
        message=reported_text(decision.message),
        numbers=decision.numbers,
        stages=_encoded([(note.stage, note.took_us, note.numbers) for note in decision.stages]),
    )


def page(
    *,
    tenant: str = "",
    pool: str = "",
    reason: str = "",
    gateway: str = "",
    refused: bool = False,
    since_ms: int | None = None,
    tenants: Tenants = None,
    limit: int = PAGE_ROWS,
    after: int = 0,
) -> tuple[list[rows.Decision], int | None]:
    """Decisions, the last received first, received at `since_ms` or later. `after`: the last of the page before.

    `refused`: without samples of admitted requests. `tenants`: of these alone; None: of all.
    """
    given = {"tenant": tenant, "pool": pool, "reason": reason, "gateway": gateway}
    named = {field: value for field, value in given.items() if value}
    found = within(rows.Decision.objects.filter(**named), "tenant", tenants)
    if refused:
        found = found.exclude(reason=messages.ADMITTED)
    if since_ms is not None:
        # Rows are numbered as they are received: by number, an index serves both the bound and the order.
        first = rows.Decision.objects.filter(received_ms__gte=since_ms).order_by("received_ms", "pk").first()
        if first is None:
            return [], None
        found = found.filter(pk__gte=first.pk)
    if after:
        found = found.filter(pk__lt=after)
    return page_of(found.order_by("-pk"), limit, lambda row: row.pk)


def reasons_of_refusals() -> list[str]:
    """The reasons of the refusals that are kept, by name, REASONS_MAX of them at most; each costs one index look-up."""
    found: list[str] = []
    refusals = (
        rows.Decision.objects.exclude(reason=messages.ADMITTED).order_by("reason").values_list("reason", flat=True)
    )
    while len(found) < REASONS_MAX and (following := refusals.filter(reason__gt=found[-1] if found else "").first()):
        found.append(following)
    return found


def of_request(request_id: str, tenants: Tenants = None) -> list[rows.Decision]:
    """What was decided of a request (of these tenants alone), newest first: a client may use an id again.

    Raises NotFound.
    """
    decided = within(rows.Decision.objects.filter(request_id=storable_text(request_id)), "tenant", tenants)
    found = list(decided.order_by("-at_ms", "-pk")[:_TOLD_MAX])
    if not found:
        raise NotFound(
            f"no decision of request {request_id!r} is kept: all refusals are told within seconds and kept for "
            "HEADWORKS_DECISIONS_KEEP_HOURS; of admitted requests, samples"
        )
    return found


def describe(row: rows.Decision) -> Document:
    return {
        "request_id": row.request_id,
        "gateway": row.gateway,
        "at": f.iso(f.from_epoch_ms(row.at_ms)),
        "received_at": f.iso(f.from_epoch_ms(row.received_ms)),
        "revision": row.revision,
        "stage": row.stage,
        "reason": row.reason,
        "status": row.status,
        "tenant": row.tenant,
        "class": row.priority_class,
        "pool": row.pool,
        "message": row.message,
        "numbers": row.numbers,
        "stages": [note._asdict() for note in stages_of(row)],
    }


class StageOf(NamedTuple):
    """What one stage of the request's way did: how long it took in microseconds, and the numbers that it weighed."""

    stage: str
    took_us: int
    numbers: dict[str, int]


_stages = msgspec.msgpack.Decoder(list[StageOf])


def stages_of(row: rows.Decision) -> list[StageOf]:
    """The way of the request, in order; empty where its gateway did not tell."""
    return _stages.decode(row.stages)


def in_words(row: rows.Decision) -> str:
    """Who decided what, by which configuration, and why."""
    verb = "admitted" if row.reason == messages.ADMITTED else "refused"
    words = (
        f"{f.iso(f.from_epoch_ms(row.at_ms))}: gateway {row.gateway} {verb} request {row.request_id} of tenant "
        f"{row.tenant} (class {row.priority_class}, pool {row.pool}) by revision {row.revision}"
    )
    if row.reason != messages.ADMITTED:
        words += f", at stage {row.stage} with {row.status} {row.reason}"
        words += f": {row.message.rstrip('.')}" if row.message else ""
    words += "."
    if row.numbers:
        weighed = ", ".join(f"{name.replace('_', ' ')} {number:,}" for name, number in sorted(row.numbers.items()))
        words += f" In numbers: {weighed}."
    return words
