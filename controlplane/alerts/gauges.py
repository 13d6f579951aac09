"""Whether alerting itself works, as metrics: rules that are blind or late, messages that wait or were given up."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from django.db.models import Count, Min
from prometheus_client.core import Metric

from controlplane.alerts.models import Delivery, DeliveryState, Incident, IncidentState, Receiver, Rule, Severity
from controlplane.core.gauges import gauge


def families(now: datetime) -> Iterator[Metric]:
    yield from _rules(now)
    yield from _deliveries(now)
    firing = gauge("incidents_firing", "Incidents that go on.", "severity")
    open_ones = Incident.objects.filter(state=IncidentState.FIRING).values_list("severity").annotate(Count("pk"))
    counted = dict(open_ones.order_by())
    for severity in Severity:
        firing.add_metric((severity.value,), counted.get(severity.value, 0))
    yield firing


def _rules(now: datetime) -> Iterator[Metric]:
    enabled = Rule.objects.filter(enabled=True)
    failing = gauge("rules_failing", "Alerting rules whose last evaluation failed.")
    failing.add_metric((), enabled.exclude(last_error="").count())
    late = gauge("rule_evaluation_late_seconds", "How long the alerting rule waits that has been due for longest.")
    due_at = enabled.filter(due_at__isnull=False).aggregate(at=Min("due_at"))["at"]
    late.add_metric((), 0.0 if due_at is None else max(0.0, (now - due_at).total_seconds()))
    yield from (failing, late)


def _deliveries(now: datetime) -> Iterator[Metric]:
    """Of each receiver but those that are off, which keep their messages on purpose."""
    waiting = gauge("deliveries_waiting", "Messages that their receiver has not taken yet.", "receiver")
    age = gauge("delivery_age_seconds", "Since the receiver's oldest message that waits was written.", "receiver")
    failed = gauge("deliveries_failed", "Messages that were given up, until they are sent again.", "receiver")
    of_state = Delivery.objects.values_list("receiver").order_by()
    told = of_state.filter(state=DeliveryState.WAITING).annotate(Count("pk"), Min("created_at"))
    wait = {receiver: (count, oldest) for receiver, count, oldest in told}
    lost = dict(of_state.filter(state=DeliveryState.FAILED).annotate(Count("pk")))
    for pk, name in Receiver.objects.filter(enabled=True).order_by("name").values_list("pk", "name"):
        count, oldest = wait.get(pk, (0, now))
        waiting.add_metric((name,), count)
        age.add_metric((name,), max(0.0, (now - oldest).total_seconds()))
        failed.add_metric((name,), lost.get(pk, 0))
    yield from (waiting, age, failed)
