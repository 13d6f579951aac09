"""From rules that are due to incidents: claim, query, label, store."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import NamedTuple

from django.utils import timezone

from controlplane import settings_rows
from controlplane.alerts.models import Rule
from controlplane.alerts.rule_queries import ROUND_SHARE, Allowance, RuleQueries
from controlplane.alerts.rule_result import BadResult, Found, found_in
from controlplane.alerts.services import evaluations
from controlplane.alerts.services.rules import alertname_of
from controlplane.core.fields import epoch_ms
from controlplane.core.idle import give_back_connection
from controlplane.telemetry import query

log = logging.getLogger(__name__)


class _Answer(NamedTuple):
    """What became of a rule's query: its series, or why there are none."""

    rule: Rule
    found: dict[str, Found]
    error: str
    took_ms: int


def evaluate_due(clock: Callable[[], datetime] = timezone.now) -> int:
    """Evaluate every rule whose time has come, many at one moment; how many."""
    interval_seconds = settings_rows.RULE_INTERVAL_SECONDS.read()
    evaluated, begun, texts = 0, clock(), Allowance(ROUND_SHARE * interval_seconds)
    while rules := evaluations.claim(clock()):
        at = clock()
        if (at - begun).total_seconds() >= interval_seconds:
            # Those that were first are due again.
            begun, texts = at, Allowance(ROUND_SHARE * interval_seconds)
        give_back_connection()
        shared = query.SharedReads()
        _store([_asked(rule, at, shared, texts) for rule in rules], at)
        evaluated += len(rules)
    return evaluated


def _asked(rule: Rule, at: datetime, shared: query.SharedReads, texts: Allowance) -> _Answer:
    begun = time.perf_counter()
    found: dict[str, Found] = {}
    error = ""
    try:
        samples = query.instant(rule.expr, epoch_ms(at), shared=shared)
        labels = {**rule.labels, "severity": rule.severity}
        instant = partial(query.instant, at_ms=epoch_ms(at), shared=shared)
        # What a text has no time for is told in its place; a label that is not known would leave the rule blind.
        asking = {"ask": RuleQueries(instant, texts), "ask_for_labels": RuleQueries(instant)}
        series_max = settings_rows.RULE_SERIES_MAX.read()
        found = found_in(samples, alertname_of(rule), labels, series_max, annotations=rule.annotations, **asking)
    except (query.QueryError, BadResult) as refused:
        log.warning("rule %s has no result: %s", rule.name, refused)
        error = str(refused)
    except Exception as fault:
        # The rules after it have their turn all the same, and people see that this one is blind.
        log.exception("rule %s could not be evaluated", rule.name)
        error = f"failed here, and the log says more: {type(fault).__name__}"
    return _Answer(rule, found, error, round((time.perf_counter() - begun) * 1000))


def _store(answers: Sequence[_Answer], at: datetime) -> None:
    with_series = evaluations.with_series([answer.rule for answer in answers])
    quiet: dict[int, int] = {}
    results: list[evaluations.Result] = []
    for answer in answers:
        if answer.error:
            evaluations.fail(answer.rule, at, answer.error, answer.took_ms)
        elif answer.found or answer.rule.pk in with_series:
            results.append(evaluations.Result(answer.rule, answer.found, answer.took_ms))
        else:
            quiet[answer.rule.pk] = answer.took_ms
    evaluations.note_evaluated(quiet, at)
    evaluations.store_all(results, at)
