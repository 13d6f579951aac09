"""Rules whose series all fire, and what becomes of them: through the services that the worker calls."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from django.utils import timezone

from controlplane.alerts.models import Alert, Delivery, Incident, LastTold, Rule
from controlplane.alerts.rule_result import Found, found_in
from controlplane.alerts.services import evaluations, events, notifying
from controlplane.alerts.services.inhibition_pack import load_inhibitions
from controlplane.alerts.services.receivers import RECEIVERS
from controlplane.alerts.services.rules import RULES, alertname_of
from controlplane.core.changes import SYSTEM, unit_of_work
from controlplane.core.fields import epoch_ms
from controlplane.fleet.services import NODES
from controlplane.telemetry.query import Sample
from wire.messages import Event

_REASON, _NODE, _FIRING = "benchmark", "node-1", "firing"
_ANNOTATIONS = {"summary": "{{ $labels.engine }} of {{ $labels.pool }} is at {{ $value }}"}


class Storm:
    """`rules` rules whose series are spread over `pools` pools, and `receivers` receivers of every severity."""

    def __init__(self, rules: int, pools: int, receivers: int) -> None:
        self._pools = pools
        with unit_of_work(SYSTEM, _REASON) as unit:
            NODES.create(unit, _NODE, {})
            load_inhibitions(unit)
            for number in range(receivers):
                RECEIVERS.create(unit, f"receiver-{number}", {"url": "https://hooks.example.com/a"})
            for number in range(rules):
                RULES.create(unit, f"Rule{number}", {"expr": "vector(1)", "annotations": _ANNOTATIONS})

    def fire(self, series: Iterable[int]) -> None:
        """Store these series, and no others, as each rule's result of now."""
        numbers = list(series)
        for rule in Rule.objects.order_by("pk"):
            evaluations.store_all([evaluations.Result(rule, self._found(rule, numbers), 0)], timezone.now())

    def _found(self, rule: Rule, numbers: list[int]) -> dict[str, Found]:
        samples = [
            Sample({"engine": f"engine-{number}", "node": f"node-{number % 50}", "pool": self._pool(number)}, 0, 0.97)
            for number in numbers
        ]
        return found_in(samples, alertname_of(rule), {"severity": rule.severity}, len(samples))

    def _pool(self, number: int) -> str:
        return f"pool-{number % self._pools}"

    def xid(self) -> None:
        """An event of a node, told in the transaction that stores it."""
        now = timezone.now()
        told = Event(
            id="storm", at=epoch_ms(now), node=_NODE, kind="xid", subject="GPU-1", severity="critical", detail="XID 79"
        )
        events.take_events(_NODE, [told], now)

    def look(self, later: timedelta) -> int:
        """Look as the worker does so much later; how many messages it wrote."""
        moment = timezone.now() + later
        return notifying.look_at_due(lambda: moment)

    def alerts(self) -> int:
        return Alert.objects.count()

    def incidents(self) -> int:
        return Incident.objects.count()

    def messages(self) -> int:
        return Delivery.objects.count()

    def untold(self) -> int:
        """Alerts that fire and that a receiver has not been told of."""
        firing = set(Alert.objects.filter(state=_FIRING).values_list("pk", flat=True))
        by_receiver: dict[int, set[int]] = {pk: set() for pk in RECEIVERS.queryset().values_list("pk", flat=True)}
        for receiver, alerts in LastTold.objects.values_list("receiver", "alerts"):
            by_receiver[receiver].update(alerts)
        return sum(len(firing - told) for told in by_receiver.values())

    def unended(self) -> int:
        """Receivers of an incident that has ended who were not told so."""
        return LastTold.objects.filter(incident__state="resolved", status=_FIRING).count()
