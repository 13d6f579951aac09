"""Evaluating rules: which one is due, and what its result leads to.

A rule is claimed by moving `due_at` on: of several workers one changes the row. What a result leads to is written in
batches, so that hundreds of incidents at once hold up no event; what a kill leaves undone the next evaluation does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Q

from controlplane import settings_rows
from controlplane.alerts import models as rows
from controlplane.alerts.annotation import rendered
from controlplane.alerts.rule_state import Active, step
from controlplane.alerts.services import incidents
from controlplane.alerts.services.rules import RULES
from controlplane.core.reported import reported_text

# A rule that was not evaluated for so many of its intervals was not looked at: no worker ran.
MISSED_INTERVALS = 3
# Series whose incidents are opened or ended in one transaction.
BATCH_SERIES = 50


@dataclass(frozen=True)
class Found:
    """One series of a rule's result: the labels of its incident, and its value as Prometheus writes numbers."""

    labels: dict[str, str]
    value: str


def claim(now: datetime) -> rows.Rule | None:
    """Take a rule that is due; None: none is."""
    # None is due later than an interval from now, unless the clock was set back since.
    time_has_come = Q(due_at=None) | Q(due_at__lte=now) | Q(due_at__gt=now + 2 * _interval())
    due = rows.Rule.objects.filter(time_has_come, enabled=True).order_by("due_at", "pk")
    while (rule := due.first()) is not None:
        # None is changed where another worker was faster: there may be a next one.
        if rows.Rule.objects.filter(pk=rule.pk, due_at=rule.due_at).update(due_at=_next_due(rule.due_at, now)):
            return rule
    return None


def _next_due(due_at: datetime | None, now: datetime) -> datetime:
    """An interval after the last one, so that a late look makes the next one no later; anew where it was far behind."""
    interval = _interval()
    return due_at + interval if due_at is not None and due_at <= now < due_at + interval else now + interval


def _interval() -> timedelta:
    return timedelta(seconds=settings_rows.RULE_INTERVAL_SECONDS.read())


def fail(rule: rows.Rule, at: datetime, error: str) -> None:
    """Keep why the rule has no result. What was pending or fires stays as it is."""
    rows.Rule.objects.filter(pk=rule.pk).update(evaluated_at=at, last_error=reported_text(error))


def store(rule: rows.Rule, at: datetime, found: Mapping[str, Found]) -> None:
    """Take the result of an evaluation at `at` (fingerprint → series): open and resolve incidents.

    Nothing is done where the rule has been changed meanwhile, or evaluated later by another worker.
    """
    with transaction.atomic():
        held = _held(rule)
        if held is None or _is_superseded(held, at):
            return
        known = {series.fingerprint: series for series in held.series.select_related("incident")}
        active = _stepped(held, known, at, found)
        rows.Rule.objects.filter(pk=held.pk).update(evaluated_at=at, last_error="")
    changed = [name for name, state in active.items() if name not in known or state != _state(known[name])]
    for names in _batches([*(known.keys() - active.keys()), *changed]):
        with transaction.atomic():
            held = _held(rule)
            if held is None or held.evaluated_at != at:
                return
            for name in names:
                series = known.get(name) or rows.RuleSeries(rule=held, fingerprint=name, labels=found[name].labels)
                _follow(held, series, active.get(name), at)


def _held(rule: rows.Rule) -> rows.Rule | None:
    """The rule's row, held until the transaction ends; None where it is not any more what was evaluated."""
    held = rows.Rule.objects.select_for_update().filter(pk=rule.pk).first()
    return held if held is not None and RULES.describe(held) == RULES.describe(rule) else None


def _is_superseded(rule: rows.Rule, at: datetime) -> bool:
    """Whether it was evaluated later. Much later was a clock that is set back since, which must not make it blind."""
    return rule.evaluated_at is not None and at <= rule.evaluated_at <= at + MISSED_INTERVALS * _interval()


def _batches(names: list[str]) -> Iterator[list[str]]:
    return (names[start : start + BATCH_SERIES] for start in range(0, len(names), BATCH_SERIES))


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


def _follow(rule: rows.Rule, series: rows.RuleSeries, active: Active | None, at: datetime) -> None:
    """Write one series as it is now (None: gone), and open or end its incident."""
    if active is None:
        if series.incident is not None:
            incidents.resolve_incident(series.incident, at, "the rule's condition no longer holds")
        series.delete()
        return
    if active.firing and series.incident is None:
        series.incident = _open(rule, series.labels, active, at)
    series.value, series.active_since, series.absent_since = active.value, active.active_since, active.absent_since
    series.save()


def _state(series: rows.RuleSeries) -> Active:
    return Active(series.value, series.active_since, series.absent_since, firing=series.incident_id is not None)


def _unseen(rule: rows.Rule, at: datetime) -> timedelta:
    since = at - (rule.evaluated_at or at)
    return since if since > MISSED_INTERVALS * _interval() else timedelta(0)


def _open(rule: rows.Rule, labels: dict[str, str], active: Active, at: datetime) -> rows.Incident:
    texts = {name: rendered(text, labels, active.value) for name, text in rule.annotations.items()}
    incident, _ = incidents.open_incident(
        labels=labels,
        source="rule",
        severity=rule.severity,
        title=texts.get("summary") or rule.name,
        annotations=texts,
        at=at,
        text=f"the rule's condition holds since {active.active_since:%Y-%m-%d %H:%M:%S} UTC, value {active.value}",
    )
    return incident
