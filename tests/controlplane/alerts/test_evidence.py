"""What shows that an incident is one: series around its start, pools and tenants."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from controlplane.alerts.models import Incident
from controlplane.alerts.rule_loop import evaluate_due
from controlplane.alerts.services import evidence
from controlplane.alerts.services.evidence import Chart, affected_pools, chart_of, span_of
from controlplane.alerts.services.rules import RULES
from controlplane.core.changes import SYSTEM, unit_of_work
from controlplane.core.fields import epoch_ms
from controlplane.telemetry.receiver import store_path
from controlplane.telemetry.store.writer import Owner
from tests.controlplane.alerts.conftest import event
from tests.controlplane.conftest import Rest
from tests.controlplane.telemetry.filling import named, store
from tests.services import free_port

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _own_store(settings: Any, tmp_path: Path) -> None:
    settings.DATA_DIR = tmp_path


def filled(name: str, values: Callable[[int], float], **labels: str) -> None:
    """One value a 15 s over the last 20 minutes."""
    now_ms = epoch_ms(timezone.now())
    points = [(now_ms - 15_000 * ago, values(ago)) for ago in range(80, -1, -1)]
    store(store_path(), [named(name, points, **labels)], Owner("node", "n-1"))


def test_a_rules_incident_has_the_series_that_it_compares_and_who_was_there(fleet: Rest, viewer: Rest) -> None:
    filled("kv_use", lambda ago: 0.5 if ago > 20 else 0.97, pool="short", engine="e1")
    counter, labels = "headworks_gateway_requests_total", {"pool": "short", "outcome": "ok"}
    filled(counter, lambda ago: 100.0 - ago, tenant="acme", **labels)
    filled(counter, lambda _: 100.0, tenant="beta", **labels)
    with unit_of_work(SYSTEM, "a test") as unit:
        RULES.create(unit, "Full", {"expr": "kv_use > 0.9"})
    evaluate_due()
    shown = viewer.get(f"/incidents/{Incident.objects.get().pk}/evidence").json()
    assert (shown["pools"], shown["tenants"], shown["tenants_error"]) == (["short"], ["acme"], None)
    (chart,) = shown["charts"]
    assert (chart["title"], chart["expr"], chart["threshold"], chart["error"]) == ("Full", "kv_use", 0.9, None)
    (series,) = chart["series"]
    assert series["labels"] == {"node": "n-1", "pool": "short", "engine": "e1"}
    # Also what was below the limit, before it began.
    assert {value for _, value in series["points"]} == {"0.5", "0.97"}
    assert viewer.get("/incidents/999999/evidence").status_code == 404


def test_a_metrics_server_that_is_away_is_named_and_takes_nothing_else_away(
    post: Callable[..., None], viewer: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    post(event("engine_down", subject="e1"))
    monkeypatch.setenv("HEADWORKS_PROMETHEUS_URL", f"http://127.0.0.1:{free_port()}")
    shown = viewer.get(f"/incidents/{Incident.objects.get().pk}/evidence").json()
    assert shown["pools"] == ["short"]
    assert "does not answer" in shown["tenants_error"]
    assert [chart["title"] for chart in shown["charts"]] == ["e1: requests", "e1: KV cache"]
    assert all("does not answer" in chart["error"] for chart in shown["charts"])


@pytest.mark.parametrize(
    ("expr", "chart"),
    [
        ("kv_use > 0.9", Chart("R", "kv_use", 0.9)),
        ("(sum(rate(drops[5m])) >= 2)", Chart("R", "sum(rate(drops[5m]))", 2.0)),
        ("up == 0", Chart("R", "up", 0.0)),
        # What is compared with no number is shown as it is.
        ("a > b", Chart("R", "a > b")),
        ("absent(up)", Chart("R", "absent(up)")),
    ],
)
def test_what_is_compared_is_drawn_rather_than_what_is_let_through(expr: str, chart: Chart) -> None:
    found = chart_of("R", expr)
    assert (found.title, "".join(found.expr.split()), found.threshold) == (
        "R",
        "".join(chart.expr.split()),
        chart.threshold,
    )


def test_pools_are_found_by_engine_and_by_node(fleet: Rest) -> None:
    assert affected_pools([{"pool": "named"}, {"engine": "e1"}]) == ["named", "short"]
    assert affected_pools([{"node": "n2", "gpu": "g"}]) == ["short"]
    assert affected_pools([{"node": "n9"}, {"alertname": "DiskFull"}]) == []


def test_the_hour_has_the_start_in_its_middle_or_ends_now() -> None:
    now = timezone.now()
    new, old = Incident(started_at=now - timedelta(minutes=1)), Incident(started_at=now - timedelta(days=1))
    assert span_of(new, now) == (now - evidence.SPAN, now)
    middle = old.started_at
    assert span_of(old, now) == (middle - evidence.SPAN / 2, middle + evidence.SPAN / 2)
