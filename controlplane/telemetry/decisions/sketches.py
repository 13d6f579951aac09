"""Per-minute sketches of gateways: taken, and summed up over a span."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Literal, NamedTuple

import msgspec
from django.db.models import QuerySet, Sum

from controlplane.core import fields as f
from controlplane.core.errors import Refused
from controlplane.core.scope import Tenants, within
from controlplane.telemetry.decisions.models import MinuteSketch
from controlplane.telemetry.decisions.names import KnownNames
from wire.canonical import Document
from wire.problems import Problem
from wire.sketches import MINUTE_MS, Sketch, add, added, quantile

LENGTHS = ("prompt_tokens", "max_tokens", "output_tokens")
QUANTILES = {"p50": 500, "p90": 900, "p95": 950, "p99": 990}
# Some 5 s of reading.
SUMMARY_ROWS_MAX = 500_000
_Parts = list[list[tuple[int, int]]]
_parts = msgspec.msgpack.Decoder(_Parts)
By = Literal["tenant", "class", "pool"]
_COLUMNS: dict[By, str] = {"tenant": "tenant", "class": "priority_class", "pool": "pool"}


class Span(NamedTuple):
    """Minutes that begin at or after `since_ms` and before `until_ms`, Unix time in ms."""

    since_ms: int
    until_ms: int


def take(gateway: str, told: Sequence[Sketch], now_ms: int) -> None:
    """Store what a gateway tells. The same minute, tenant, class and pool counts once, however often it comes."""
    names = KnownNames(told)
    same: dict[tuple[int, str, str, str], list[Sketch]] = {}
    for sketch in told:
        labels = names.tenant(sketch.tenant), names.priority_class(sketch.priority_class), names.pool(sketch.pool)
        same.setdefault((min(sketch.minute, f.EPOCH_MS_MAX), *labels), []).append(sketch)
    MinuteSketch.objects.bulk_create(
        (
            MinuteSketch(
                gateway=gateway,
                minute_ms=minute_ms,
                received_ms=now_ms,
                tenant=tenant,
                priority_class=priority_class,
                pool=pool,
                arrivals=sum(sketch.arrivals for sketch in sketches),
                lengths=msgspec.msgpack.encode(
                    [sorted(added(*(getattr(sketch, name) for sketch in sketches)).items()) for name in LENGTHS]
                ),
            )
            for (minute_ms, tenant, priority_class, pool), sketches in same.items()
        ),
        ignore_conflicts=True,
    )


def summary(span: Span, by: Sequence[By], tenants: Tenants = None, **only: str) -> list[Document]:
    """Arrivals and quantiles of lengths in a span, one entry for each value of `by`.

    `tenants`: of these alone; None: of all. `only`: tenant, priority_class, pool that a sketch must have; an empty one
    is any. Raises Refused (`too_many_sketches`).
    """
    found = MinuteSketch.objects.filter(minute_ms__gte=span.since_ms, minute_ms__lt=span.until_ms)
    found = within(found, "tenant", tenants)
    found = found.filter(**{column: name for column, name in only.items() if name})
    _check_number(found)
    groups: dict[tuple[str, ...], _Group] = {}
    for labels, minute_ms, arrivals, parts in _read(found, by):
        groups.setdefault(labels, _Group()).add(minute_ms, arrivals, parts)
    return [{**dict(zip(by, labels, strict=True)), **groups[labels].described()} for labels in sorted(groups)]


def lengths_of(span: Span, pools: Collection[str] | None, tenant: str = "") -> dict[str, dict[int, int]]:
    """The counts of all requests that were given one of the pools: of `prompt_tokens`, `max_tokens`, `output_tokens`.

    `pools`: None is any; `tenant`: empty is any. Raises Refused (`too_many_sketches`).
    """
    found = MinuteSketch.objects.filter(minute_ms__gte=span.since_ms, minute_ms__lt=span.until_ms)
    if pools is not None:
        found = found.filter(pool__in=sorted(pools))
    if tenant:
        found = found.filter(tenant=tenant)
    _check_number(found)
    counts: dict[str, dict[int, int]] = {name: {} for name in LENGTHS}
    for _, _, _, parts in _read(found, ()):
        for name, part in zip(LENGTHS, parts, strict=True):
            add(counts[name], part)
    return counts


def lengths_by_pool(span: Span) -> dict[str, dict[str, dict[int, int]]]:
    """Of each pool the counts of all requests that were given it, as `lengths_of` has them.

    Raises Refused (`too_many_sketches`).
    """
    found = MinuteSketch.objects.filter(minute_ms__gte=span.since_ms, minute_ms__lt=span.until_ms)
    _check_number(found)
    pools: dict[str, dict[str, dict[int, int]]] = {}
    for (pool,), _, _, parts in _read(found, ("pool",)):
        counts = pools.setdefault(pool, {name: {} for name in LENGTHS})
        for name, part in zip(LENGTHS, parts, strict=True):
            add(counts[name], part)
    return pools


def arrivals_of(span: Span, pool: str) -> dict[int, int]:
    """How many requests were given the pool in each minute that has any; minutes in Unix time in ms.

    Raises Refused (`too_many_sketches`).
    """
    found = MinuteSketch.objects.filter(minute_ms__gte=span.since_ms, minute_ms__lt=span.until_ms, pool=pool)
    _check_number(found)
    return dict(found.order_by().values_list("minute_ms").annotate(Sum("arrivals")))


def parts_of(sketch: MinuteSketch) -> _Parts:
    """The counts of its prompt_tokens, max_tokens and output_tokens."""
    return _parts.decode(sketch.lengths)


def _check_number(found: QuerySet[MinuteSketch]) -> None:
    if found[SUMMARY_ROWS_MAX : SUMMARY_ROWS_MAX + 1].exists():
        says = f"more than {SUMMARY_ROWS_MAX} sketches lie in this span; shorten it, or name a tenant or pool"
        raise Refused(says, [Problem("/since", "too_many_sketches", says)], code="too_many_sketches")


def _read(found: QuerySet[MinuteSketch], by: Sequence[By]) -> Iterator[tuple[tuple[str, ...], int, int, _Parts]]:
    columns = [_COLUMNS[each] for each in by]
    values = found.order_by().values_list(*columns, "minute_ms", "arrivals", "lengths")
    for *labels, minute_ms, arrivals, lengths in values.iterator(chunk_size=2000):
        yield tuple(labels), minute_ms, arrivals, _parts.decode(lengths)


class _Group:
    """The sum of some sketches."""

    def __init__(self) -> None:
        self._minutes: dict[int, int] = {}
        self._counts: list[dict[int, int]] = [{} for _ in LENGTHS]

    def add(self, minute_ms: int, arrivals: int, parts: _Parts) -> None:
        self._minutes[minute_ms] = self._minutes.get(minute_ms, 0) + arrivals
        for counts, part in zip(self._counts, parts, strict=True):
            add(counts, part)

    def described(self) -> Document:
        lengths = {
            name: {
                "count": sum(counts.values()),
                **{label: quantile(counts, permille) for label, permille in QUANTILES.items()},
            }
            for name, counts in zip(LENGTHS, self._counts, strict=True)
        }
        busiest_ms = max(self._minutes, key=lambda minute_ms: (self._minutes[minute_ms], -minute_ms))
        return {
            "arrivals": sum(self._minutes.values()),
            "arrivals_in_busiest_minute": self._minutes[busiest_ms],
            "busiest_minute": f.iso(f.from_epoch_ms(busiest_ms)),
            **lengths,
        }


def whole_minutes(span: Span) -> Span:
    """The minutes that lie within the span in whole."""
    return Span(-(-span.since_ms // MINUTE_MS) * MINUTE_MS, span.until_ms // MINUTE_MS * MINUTE_MS)
