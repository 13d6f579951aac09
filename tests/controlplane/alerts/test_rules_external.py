"""Rules on an external metrics server: the same life of a series as on the embedded store, on both kinds of them."""

from __future__ import annotations

import urllib.request
from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from controlplane.alerts.models import Rule, RuleSeries
from controlplane.alerts.rule_loop import evaluate_due
from controlplane.alerts.services.rules import RULES
from controlplane.core.changes import SYSTEM, unit_of_work
from controlplane.core.fields import epoch_ms
from tests.controlplane.telemetry.filling import named
from tests.controlplane.telemetry.upstreams import KINDS, RealServer, use
from wire.write_body import CONTENT_ENCODING, CONTENT_TYPE, VERSION, VERSION_HEADER, encode

pytestmark = pytest.mark.django_db
INTERVAL = timedelta(seconds=15)
HEADERS = {"Content-Type": CONTENT_TYPE, "Content-Encoding": CONTENT_ENCODING, VERSION_HEADER: VERSION}


@pytest.mark.parametrize("kind", KINDS)
def test_a_rule_fires_lasts_and_ends_on_an_external_server(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = RealServer(kind, tmp_path)
    start = timezone.now() - timedelta(minutes=2)
    fields = {
        "expr": 'kv_use{engine!=""} > 0.9',
        "for_ms": 15_000,
        "keep_firing_for_ms": 20_000,
        "annotations": {"summary": '{{ $labels.engine }} of {{ query "count(kv_use)" | first | value }}'},
    }
    with unit_of_work(SYSTEM, "a test") as unit:
        RULES.create(unit, "Full", fields)

    def evaluate(number: int) -> dict[str, str]:
        """What the evaluation with this number, an interval after the one before, leaves of each series."""
        assert evaluate_due(lambda: start + number * INTERVAL) == 1
        series = RuleSeries.objects.order_by("pk")
        return {one.annotations["summary"]: "firing" if one.incident_id else "pending" for one in series}

    use(monkeypatch, server.base)
    with server.running():
        for number, value in enumerate((0.95, 0.97, 0.99, 0.1, 0.1, 0.1)):
            at_ms = epoch_ms(start + number * INTERVAL)
            body = encode([named("kv_use", [(at_ms, value)], engine="e-1")])
            urllib.request.urlopen(
                urllib.request.Request(server.settings["HEADWORKS_REMOTE_WRITE_URL"], body, HEADERS)
            ).close()
        server.show()
        assert evaluate(0) == {"e-1 of 1": "pending"}
        assert evaluate(1) == {"e-1 of 1": "firing"}
    # It is away, which ends nothing and is told.
    assert evaluate(2) == {"e-1 of 1": "firing"}
    assert "does not answer" in Rule.objects.get().last_error
    with server.running():
        assert evaluate(3) == {"e-1 of 1": "firing"}
        assert Rule.objects.get().last_error == ""
        assert evaluate(4) == {"e-1 of 1": "firing"}
        assert evaluate(5) == {}
