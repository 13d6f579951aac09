"""Evaluating rules: which one is due, and what its result leads to.

Rules are claimed by moving `due_at` on, their rows held: of several workers each takes others. What a result leads to
is written in batches, so that hundreds of alerts at once hold up no event; what a kill leaves undone the next
evaluation does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from django.db import transaction
from django.db.models import Case, Q, Value, When

from controlplane import settings_rows
from controlplane.alerts import models as rows
from controlplane.alerts.rule_result import Found
from controlplane.alerts.rule_state import Active, step
from controlplane.alerts.services import alerts
from controlplane.alerts.services.alerts import NewAlert
from controlplane.alerts.services.rules import RULES, alertname_of
from controlplane.core.reported import reported_text

# Rules that are claimed at once: they are evaluated at one moment, and share what they read.
BATCH_RULES = 50
# A rule that was not evaluated for so many of its intervals was not looked at: no worker ran.
MISSED_INTERVALS = 3
# Series whose alerts are opened or ended in one transaction.
BATCH_SERIES = 500
_WRITTEN = ["annotations", "value", "active_since", "absent_since", "incident", "alert"]


def claim(now: datetime) -> list[rows.Rule]:
    """Take rules that are due, up to BATCH_RULES; none where none is."""
    # None is due later than an interval from now, unless the clock was set back since.
    time_has_come = Q(due_at=None) | Q(due_at__lte=now) | Q(due_at__gt=now + 2 * _interval())
    with transaction.atomic():
        # Of several workers each holds others; SQLite has one that writes.
        free = rows.Rule.objects.select_for_update(skip_locked=True)
        due = list(free.filter(time_has_come, enabled=True).order_by("due_at", "pk")[:BATCH_RULES])
        by_next: dict[datetime, list[int]] = defaultdict(list)
        for rule in due:
            by_next[_next_due(rule.due_at, now)].append(rule.pk)
        for due_at, keys in by_next.items():
            rows.Rule.objects.filter(pk__in=keys).update(due_at=due_at)
    return due


def _next_due(due_at: datetime | None, now: datetime) -> datetime:
    """An interval after the last one, so that a late look makes the next one no later; anew where it was far behind."""
    interval = _interval()
    return due_at + interval if due_at is not None and due_at <= now < due_at + interval else now + interval


def _interval() -> timedelta:
    return timedelta(seconds=settings_rows.RULE_INTERVAL_SECONDS.read())


def fail(rule: rows.Rule, at: datetime, error: str, took_ms: int = 0) -> None:
    """Keep why the rule has no result. What was pending or fires stays as it is."""
    rows.Rule.objects.filter(pk=rule.pk).update(evaluated_at=at, took_ms=took_ms, last_error=reported_text(error))


class Result(NamedTuple):
    """What a rule's expression found, by fingerprint, and how long that took."""

    rule: rows.Rule
    found: Mapping[str, Found]
    took_ms: int


def store_all(results: Sequence[Result], at: datetime) -> None:
    """Take the results of evaluations at `at`: open and resolve alerts. Small ones share a transaction.

    Nothing is done of a rule that has been changed meanwhile, or evaluated later by another worker.
    """
    for group in _groups(results):
        with transaction.atomic():
            steps = _steps(group, at)
            note_evaluated({one.rule.pk: one.took_ms for one in steps}, at)
            first, *others = _batches([(one, name) for one in steps for name in one.changed]) or [[]]
            _write(first, at)
        for batch in others:
            _go_on(batch, at)


def _groups(results: Sequence[Result]) -> Iterator[list[Result]]:
    """Up to BATCH_SERIES series together, or one rule of more."""
    group: list[Result] = []
    size = 0
    for result in results:
        if group and size + len(result.found) > BATCH_SERIES:
            yield group
            group, size = [], 0
        group.append(result)
        size += len(result.found)
    if group:
        yield group


class _Step(NamedTuple):
    """A rule, its row held, with its series before and after an evaluation."""

    rule: rows.Rule
    found: Mapping[str, Found]
    known: Mapping[str, rows.RuleSeries]
    active: Mapping[str, Active]
    took_ms: int

    @property
    def changed(self) -> list[str]:
        """What to write: series that are gone, then those that are new or not as they were."""
        changed = [
            name for name, state in self.active.items() if name not in self.known or state != _state(self.known[name])
        ]
        return [*(self.known.keys() - self.active.keys()), *changed]

    def series(self, name: str) -> rows.RuleSeries:
        """The row, which may be new, with its annotations as they are now."""
        found = self.found.get(name)
        series = self.known.get(name)
        if series is None:
            series = rows.RuleSeries(rule=self.rule, fingerprint=name, labels=self.found[name].labels)
        if found is not None:
            series.annotations = found.rendered(self.rule.annotations)
        return series


_Named = tuple[_Step, str]


def _steps(group: Sequence[Result], at: datetime) -> list[_Step]:
    held = _held([result.rule for result in group])
    known: dict[int, dict[str, rows.RuleSeries]] = defaultdict(dict)
    for series in rows.RuleSeries.objects.filter(rule__in=held):
        known[series.rule_id][series.fingerprint] = series
    steps = []
    for result in group:
        rule = held.get(result.rule.pk)
        if rule is not None and not _is_superseded(rule, at):
            active = _stepped(rule, known[rule.pk], at, result.found)
            steps.append(_Step(rule, result.found, known[rule.pk], active, result.took_ms))
    return steps


def _go_on(batch: Sequence[_Named], at: datetime) -> None:
    """A further transaction of a rule with many series; not where it was changed or evaluated in between."""
    with transaction.atomic():
        held = _held([one.rule for one, _ in batch])
        _write([(one, name) for one, name in batch if one.rule.pk in held and held[one.rule.pk].evaluated_at == at], at)


def note_evaluated(took_ms: Mapping[int, int], at: datetime) -> None:
    """Note that rules, by key with how long each took, were evaluated, but of those that were so later.

    All there is to write of those that have no series and found none.
    """
    if not took_ms:
        return
    late = Q(evaluated_at__gte=at, evaluated_at__lte=at + MISSED_INTERVALS * _interval())
    took = Case(*(When(pk=key, then=Value(each)) for key, each in took_ms.items()))
    rows.Rule.objects.filter(pk__in=took_ms).exclude(late).update(evaluated_at=at, took_ms=took, last_error="")


def with_series(rules: Sequence[rows.Rule]) -> set[int]:
    """Keys of those of the rules that have series."""
    return set(rows.RuleSeries.objects.filter(rule__in=rules).values_list("rule", flat=True).distinct())


def _held(rules: Sequence[rows.Rule]) -> dict[int, rows.Rule]:
    """The rules' rows, held until the transaction ends, but of those that are not any more what was evaluated."""
    asked = {rule.pk: RULES.describe(rule) for rule in rules}
    held = rows.Rule.objects.select_for_update().filter(pk__in=asked).order_by("pk")
    return {row.pk: row for row in held if RULES.describe(row) == asked[row.pk]}


def _is_superseded(rule: rows.Rule, at: datetime) -> bool:
    """Whether it was evaluated later. Much later was a clock that is set back since, which must not make it blind."""
    return rule.evaluated_at is not None and at <= rule.evaluated_at <= at + MISSED_INTERVALS * _interval()


def _batches(names: list[_Named]) -> list[list[_Named]]:
    return [names[start : start + BATCH_SERIES] for start in range(0, len(names), BATCH_SERIES)]


def _stepped(
    rule: rows.Rule, known: Mapping[str, rows.RuleSeries], at: datetime, found: Mapping[str, Found]
) -> dict[str, Active]:
    return step(
        {name: _state(series) for name, series in known.items()},
        {name: series.value for name, series in found.items()},
        at,
        pending_for=timedelta(milliseconds=rule.for_ms),
        keep_firing_for=timedelta(milliseconds=rule.keep_firing_for_ms),
        unseen=_unseen(rule, at),
    )


def _write(batch: Sequence[_Named], at: datetime) -> None:
    """Write series as they are now (no longer active: gone), and open or end their alerts."""
    series = [(one, name, one.series(name)) for one, name in batch]
    gone = [row for one, name, row in series if name not in one.active]
    ended = [row.alert_id for row in gone if row.alert_id is not None]
    alerts.resolve_alerts(ended, at, "the rule's condition no longer holds")
    rows.RuleSeries.objects.filter(pk__in=[row.pk for row in gone]).delete()
    kept = [(one.rule, row, one.active[name]) for one, name, row in series if name in one.active]
    fires = [(rule, row, state) for rule, row, state in kept if state.firing and not row.incident_id]
    opened = alerts.open_alerts([_alert(rule, row, state, at) for rule, row, state in fires])
    for (_, row, _), (alert, _) in zip(fires, opened, strict=True):
        row.alert, row.incident = alert, alert.incident
    for _, row, state in kept:
        row.value, row.active_since, row.absent_since = state.value, state.active_since, state.absent_since
    _save([row for _, row, _ in kept])


def _save(series: Sequence[rows.RuleSeries]) -> None:
    """By two statements, however many there are. `bulk_update` would compile an expression a value."""
    new, known = [each for each in series if each.pk is None], [each for each in series if each.pk is not None]
    rows.RuleSeries.objects.bulk_create(new)
    rows.RuleSeries.objects.bulk_create(known, update_conflicts=True, unique_fields=["pk"], update_fields=_WRITTEN)


def _state(series: rows.RuleSeries) -> Active:
    return Active(series.value, series.active_since, series.absent_since, firing=series.incident_id is not None)


def _unseen(rule: rows.Rule, at: datetime) -> timedelta:
    since = at - (rule.evaluated_at or at)
    return since if since > MISSED_INTERVALS * _interval() else timedelta(0)


def _alert(rule: rows.Rule, series: rows.RuleSeries, active: Active, at: datetime) -> NewAlert:
    return NewAlert(
        labels=series.labels,
        source="rule",
        severity=rule.severity,
        title=series.annotations.get("summary") or alertname_of(rule),
        annotations=series.annotations,
        at=at,
        text=f"the rule's condition holds since {active.active_since:%Y-%m-%d %H:%M:%S} UTC, value {active.value}",
    )
