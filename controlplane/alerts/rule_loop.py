"""From rules that are due to incidents: claim, query, label, store."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from django.utils import timezone

from controlplane import settings_rows
from controlplane.alerts.models import Rule
from controlplane.alerts.services import evaluations
from controlplane.alerts.services.evaluations import Found
from controlplane.alerts.services.incidents import fingerprint
from controlplane.core.fields import epoch_ms
from controlplane.core.idle import give_back_connection
from controlplane.core.reported import storable_text
from controlplane.telemetry import query
from controlplane.telemetry.results import number
from wire.write_body import METRIC_NAME

log = logging.getLogger(__name__)


class BadResult(ValueError):
    """A result that no incidents can be made of; the message says why."""


def evaluate_due(clock: Callable[[], datetime] = timezone.now) -> int:
    """Evaluate every rule whose time has come, one after the other; how many."""
    evaluated = 0
    while (rule := evaluations.claim(clock())) is not None:
        _evaluate(rule, clock())
        evaluated += 1
    return evaluated


def _evaluate(rule: Rule, at: datetime) -> None:
    give_back_connection()
    try:
        found = labelled(rule, query.instant(rule.expr, epoch_ms(at)), settings_rows.RULE_SERIES_MAX.read())
    except (query.QueryError, BadResult) as error:
        log.warning("rule %s has no result: %s", rule.name, error)
        evaluations.fail(rule, at, str(error))
    except Exception as error:
        # The rules after it have their turn all the same, and people see that this one is blind.
        log.exception("rule %s could not be evaluated", rule.name)
        evaluations.fail(rule, at, f"failed here, and the log says more: {type(error).__name__}")
    else:
        evaluations.store(rule, at, found)


def labelled(rule: Rule, samples: Sequence[query.Sample], series_max: int) -> dict[str, Found]:
    """Each series of a result under the labels of its incident, by their fingerprint. Raises BadResult.

    As Prometheus labels alerts: those of the series without its name, under those of the rule, and `alertname`.
    """
    if len(samples) > series_max:
        raise BadResult(
            f"the result has {len(samples)} series; each would be an incident, and HEADWORKS_RULE_SERIES_MAX is "
            f"{series_max}: choose or aggregate fewer"
        )
    own = {**rule.labels, "alertname": rule.name, "severity": rule.severity}
    found = {}
    for sample in samples:
        labels = {**_storable(sample.labels), **own}
        found[fingerprint(labels)] = Found(labels, number(sample.value))
    if len(found) < len(samples):
        raise BadResult("two series have the same labels once the rule's labels are set; aggregate them into one")
    return found


def _storable(labels: Mapping[str, str]) -> dict[str, str]:
    return {name: storable_text(value) for name, value in labels.items() if name != METRIC_NAME}
