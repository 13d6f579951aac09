"""A proposed limit, tried on what came: how many requests would have been refused, and whose.

Requests that gateways told of (refusals, samples of admitted ones) are replayed as they were; the others, of which
per-minute sketches tell how many there were and how long, are drawn from these.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import Annotated, Any, NamedTuple

import msgspec
from pydantic import Field

from controlplane.core import fields as f
from controlplane.core.errors import NotFound, Refused
from controlplane.core.scope import Tenants
from controlplane.telemetry.decisions import models as rows
from controlplane.telemetry.decisions.sketches import Span, parts_of, whole_minutes
from controlplane.tenants.services import TENANTS
from policy.limits import Limits, limits_at
from policy.shadow import ADMITTED, Arrival, replay
from wire import messages, snapshot
from wire.canonical import Document
from wire.problems import Problem
from wire.sketches import MINUTE_MS, middle_of

# Each is replayed twice, in some 10 µs: a call takes 2 s at most.
ARRIVALS_MAX = 100_000
TENANTS_MAX = 50
# A request that ended here was given a pool, and counts in the sketches.
_STAGES = ("take_quota", "serve")
# The same question has the same answer.
_SEED = 1


class ProposedFields(f.Fields):
    """Limits to try; one that is not given stays as the tenant has it, null is no limit."""

    tpm_limit: f.Count | None = None
    rpm_limit: f.Count | None = None
    max_parallel_requests: f.Count | None = None
    max_tokens_cap: f.Positive | None = None


class ShadowFields(f.Fields):
    """`tenants` {name: limits}, tried on what came in the last whole `minutes`."""

    tenants: Annotated[dict[f.Name, ProposedFields], Field(min_length=1, max_length=TENANTS_MAX)]
    minutes: Annotated[int, Field(ge=1, le=1440)] = 60


class _Label(NamedTuple):
    """What decisions and sketches are matched by. Not by pool: a decision has the one that answered."""

    minute_ms: int
    gateway: str
    priority_class: str


class _Came(NamedTuple):
    arrival: Arrival
    priority_class: str


class _Told(NamedTuple):
    """What decisions say of a tenant: requests as they were, reasons of refusals, how long admitted ones ran."""

    came: dict[_Label, list[_Came]]
    refused: Counter[str]
    took_ms: list[int]


def try_limits(fields: Document, now_ms: int, tenants: Tenants = None) -> Document:
    """Replay the last minutes under the limits that hold and under the proposed ones; changes nothing.

    `tenants`: whose the caller may ask about; None: of all. Raises Refused, NotFound.
    """
    asked = f.read(ShadowFields, fields)
    span = whole_minutes(Span(now_ms - asked.minutes * MINUTE_MS, now_ms))
    if tenants is not None and (others := sorted(asked.tenants.keys() - tenants)):
        raise NotFound(f"there is no tenant {others[0]!r}")
    found: list[Document] = []
    for name, proposed in sorted(asked.tenants.items()):
        room = ARRIVALS_MAX - sum(each["arrivals"] for each in found)
        found.append(_of_tenant(name, proposed, span, room))
    since, until = (f.iso(f.from_epoch_ms(edge_ms)) for edge_ms in span)
    return {"since": since, "until": until, "tenants": found}


def _of_tenant(name: str, proposed: ProposedFields, span: Span, room: int) -> Document:
    tenant = msgspec.convert(TENANTS.wire_form(TENANTS.get(name)), snapshot.Tenant)
    told = _told(name, span, room)
    came = sorted(_all(name, span, told, room), key=lambda each: each.arrival.at_ms)
    given = proposed.model_dump(include=proposed.model_fields_set)
    cap = tenant.max_tokens_cap if isinstance(tenant.max_tokens_cap, int) else None
    tried: dict[str, Any] = {}
    for label, changes in (("configured", {}), ("proposed", given)):
        limits_then = _limits(tenant, changes, parallel=bool(told.took_ms))
        arrivals = (each.arrival for each in came)
        tried[label] = _refused(came, replay(arrivals, limits_then, changes.get("max_tokens_cap", cap)))
    return {
        "tenant": name,
        "arrivals": len(came),
        "of_them_told": sum(map(len, told.came.values())),
        "refused_then": dict(sorted(told.refused.items())),
        "limits": given,
        # Without a sample that says how long requests ran, nobody knows how many ran at once.
        "parallel_requests_tried": bool(told.took_ms),
        **tried,
    }


def _limits(tenant: snapshot.Tenant, changes: Mapping[str, Any], *, parallel: bool) -> Callable[[int], Limits]:
    fixed = {field: value for field, value in changes.items() if field in Limits._fields}

    def at(moment_ms: int) -> Limits:
        limits = limits_at(tenant, moment_ms)._replace(**fixed)
        return limits if parallel else limits._replace(max_parallel_requests=None)

    return at


def _refused(came: Sequence[_Came], verdicts: Iterable[str]) -> Document:
    reasons: Counter[str] = Counter()
    classes: dict[str, Counter[str]] = {}
    for each, verdict in zip(came, verdicts, strict=True):
        of_class = classes.setdefault(each.priority_class, Counter())
        of_class["arrivals"] += 1
        if verdict != ADMITTED:
            reasons[verdict] += 1
            of_class["refused"] += 1
    return {
        "refused": reasons.total(),
        "reasons": dict(sorted(reasons.items())),
        "by_class": {
            name: {"arrivals": counts["arrivals"], "refused": counts["refused"]}
            for name, counts in sorted(classes.items())
        },
    }


def _told(name: str, span: Span, room: int) -> _Told:
    told = _Told({}, Counter(), [])
    found = rows.Decision.objects.filter(
        tenant=name,
        # Rows are found by when they were told, which is after they came.
        received_ms__gte=span.since_ms,
        at_ms__gte=span.since_ms,
        at_ms__lt=span.until_ms,
        stage__in=_STAGES,
    )
    columns = ("gateway", "at_ms", "priority_class", "reason", "numbers")
    for gateway, at_ms, priority_class, reason, numbers in found.order_by("pk").values_list(*columns)[: room + 1]:
        if not {"prompt_tokens", "max_tokens", "sequences"} <= numbers.keys():
            continue
        sizes = numbers["prompt_tokens"], numbers["max_tokens"], numbers["sequences"]
        used, took_ms = sizes[0] + numbers.get("output_tokens", sizes[1] * sizes[2]), numbers.get("took_ms", 0)
        label = _Label(at_ms - at_ms % MINUTE_MS, gateway, priority_class)
        told.came.setdefault(label, []).append(_Came(Arrival(at_ms, *sizes, used, took_ms), priority_class))
        if reason != messages.ADMITTED:
            told.refused[reason] += 1
        elif "took_ms" in numbers:
            told.took_ms.append(took_ms)
    return told


def _all(name: str, span: Span, told: _Told, room: int) -> Iterator[_Came]:
    """What was told of, and of each minute as many more as its sketches counted.

    Raises Refused (`too_many_arrivals`) where that is more than there is `room` for.
    """
    known = Counter({label: len(came) for label, came in told.came.items()})
    count = known.total()
    typical_ms = round(statistics.median(told.took_ms)) if told.took_ms else 0
    for came in told.came.values():
        yield from (_as_long(each, typical_ms) for each in came)
    random = Random(_SEED)  # noqa: S311 - draws lengths, guards nothing
    found = rows.MinuteSketch.objects.filter(tenant=name, minute_ms__gte=span.since_ms, minute_ms__lt=span.until_ms)
    for sketch in found.order_by("minute_ms", "pk").iterator():
        label = _Label(sketch.minute_ms, sketch.gateway, sketch.priority_class)
        of_these = min(known[label], sketch.arrivals)
        known[label] -= of_these
        count += sketch.arrivals - of_these
        _check_number(count, room)
        yield from _drawn(label, parts_of(sketch), sketch.arrivals - of_these, typical_ms, random)
    _check_number(count, room)


def _check_number(count: int, room: int) -> None:
    if count > room:
        says = f"more than {ARRIVALS_MAX} requests came; try fewer `minutes`, or fewer tenants"
        raise Refused(says, [Problem("/minutes", "too_many_arrivals", says)], code="too_many_arrivals")


def _as_long(came: _Came, typical_ms: int) -> _Came:
    """A request that was refused would have run as long as others did."""
    return came if came.arrival.took_ms else came._replace(arrival=came.arrival._replace(took_ms=typical_ms))


def _drawn(
    label: _Label, parts: Sequence[Sequence[tuple[int, int]]], count: int, took_ms: int, random: Random
) -> Iterator[_Came]:
    prompts, largest, outputs = (_draws(part, count, random) for part in parts)
    for prompt_tokens, max_tokens, output_tokens in zip(prompts, largest, outputs or largest, strict=True):
        at_ms = label.minute_ms + random.randrange(MINUTE_MS)
        used = prompt_tokens + min(output_tokens, max_tokens)
        yield _Came(Arrival(at_ms, prompt_tokens, max_tokens, 1, used, took_ms), label.priority_class)


def _draws(part: Sequence[tuple[int, int]], count: int, random: Random) -> list[int]:
    """`count` lengths as they are distributed; none where nothing was counted."""
    if not part or not count:
        return []
    buckets, weights = zip(*part, strict=True)
    return [middle_of(bucket) for bucket in random.choices(buckets, weights, k=count)]
