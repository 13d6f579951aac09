"""What the control plane says of itself and its fleet: on its page for who may read it, and in its metric store."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.db import DatabaseError
from django.test import Client
from django.utils import timezone
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.parser import text_string_to_metric_families

from controlplane.alerts.models import Delivery, Receiver, Rule
from controlplane.alerts.services import alerts
from controlplane.batches.models import Batch, Status
from controlplane.configs.hub import heads
from controlplane.configs.models import TargetState
from controlplane.configs.publisher import publish
from controlplane.core import gauges
from controlplane.core.fields import epoch_ms
from controlplane.core.models import ApiToken, Role, Target, User
from controlplane.fleet.models import Engine, Model, Node, Pool
from controlplane.telemetry import own_series, query
from controlplane.telemetry.models import MetricWriter, OwnSeriesTurn
from controlplane.telemetry.own_metadata import OWN
from controlplane.telemetry.own_series import OwnSeries, ProcessSeries
from controlplane.tenants.models import Tenant, TenantKey

NOW = timezone.now()
pytestmark = pytest.mark.django_db
Values = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@pytest.fixture(autouse=True)
def own_store(settings: Any, tmp_path: Any) -> None:
    settings.DATA_DIR = tmp_path
    own_series._fleet._alive.clear()


def told(now: datetime = NOW) -> Values:
    return {
        (sample.name, tuple(sorted((name, value) for name, value in sample.labels.items() if value))): sample.value
        for family in gauges.families(now)
        for sample in family.samples
    }


def target(kind: str, name: str, **changes: Any) -> Target:
    fields = {"version": "1", "protocol": 1, "token_hash": name, "token_expires_at": NOW + timedelta(days=2)}
    return Target.objects.create(kind=kind, name=name, **{**fields, "last_seen_at": timezone.now(), **changes})


def key(name: str, **labels: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    return f"headworks_{name}", tuple(sorted(labels.items()))


def test_a_target_that_is_silent_is_lost_and_bears_the_label_of_its_kind():
    publish()
    heads.refresh()
    target("node", "n1", last_seen_at=timezone.now() - timedelta(hours=1), last_pushed_at=NOW)
    target("gateway", "g1")
    values = told()
    assert values[key("target_lost", kind="node", node="n1")] == 1
    assert values[key("target_lost", kind="gateway", gateway="g1")] == 0
    assert values[key("target_pushed_time_seconds", kind="node", node="n1")] == NOW.timestamp()
    assert key("target_pushed_time_seconds", kind="gateway", gateway="g1") not in values
    assert values[key("target_token_expiry_time_seconds", kind="node", node="n1")] == pytest.approx(
        (NOW + timedelta(days=2)).timestamp()
    )
    # Of one that is lost nobody knows what it runs; the other has run nothing yet.
    assert key("target_config_behind_seconds", kind="node", node="n1") not in values
    assert values[key("target_config_behind_seconds", kind="gateway", gateway="g1")] > 0


def test_a_nack_shows_until_the_slice_is_another():
    publish()
    head = heads.refresh()
    assert head is not None
    gateway = target("gateway", "g1")
    desired = head.slice("gateway", "g1").hash
    TargetState.objects.create(target=gateway, error_hash=desired, error_revision=1, error=[])
    refused = key("target_config_refused", kind="gateway", gateway="g1")
    assert told()[refused] == 1
    assert told()[key("target_config_behind_seconds", kind="gateway", gateway="g1")] == 0
    TargetState.objects.filter(target=gateway).update(error_hash="", hash=desired)
    assert told()[refused] == 0


def test_a_revoked_target_has_no_series():
    target("node", "n1", revoked_at=NOW)
    assert not any(("node", "n1") in labels for _, labels in told())


def test_pools_say_what_they_promise():
    model = Model.objects.create(name="m", max_context_tokens=100)
    Pool.objects.create(name="chat", model=model, ttft_slo_ms=500, objective_permille=990, queue_cap=7)
    values = told()
    assert values[key("pool_objective_ratio", pool="chat")] == 0.99
    assert values[key("pool_promise_seconds", pool="chat", slo="ttft")] == 0.5
    assert key("pool_promise_seconds", pool="chat", slo="tpot") not in values
    assert values[key("pool_queue_cap", pool="chat")] == 7


def test_a_start_stands_beside_its_budget_where_there_is_one():
    model = Model.objects.create(name="m", max_context_tokens=100, cold_start_budget_ms={"total": 60_000})
    pool = Pool.objects.create(name="chat", model=model)
    facts = {"start_phases_ms": {"load_model": 50_000, "init_engine": 40_000}, "started_at_ms": 1_000_000}
    Engine.objects.create(
        name="e1", pool=pool, url="http://e", served_model="m", facts=facts, node=Node.objects.create(name="n1")
    )
    whose = {"engine": "e1", "node": "n1", "pool": "chat", "model": "m"}
    values = told()
    assert values[key("cold_start_seconds", **whose, phase="total")] == 90
    assert values[key("cold_start_budget_seconds", **whose, phase="total")] == 60
    assert values[key("cold_start_time_seconds", **whose)] == 1000
    assert key("cold_start_seconds", **whose, phase="load_model") not in values


def test_tokens_and_keys_that_end_soon_are_told_of_and_others_are_not():
    user = User.objects.create(username="ada")
    for name, days in (("soon", 3), ("later", 200), ("long-gone", -40)):
        ApiToken.objects.create(user=user, name=name, token_hash=name, expires_at=NOW + timedelta(days=days))
    tenant = Tenant.objects.create(name="acme")
    soon, later = NOW + timedelta(days=2), NOW + timedelta(days=9)
    first = TenantKey.objects.create(tenant=tenant, key_hash="1", prefix="1", expires_at=soon)
    second = TenantKey.objects.create(tenant=tenant, key_hash="2", prefix="2", expires_at=later)
    MetricWriter.objects.create(name="east", matchers={}, token_hash="t", token_made_at=NOW, expires_at=NOW)
    values = told()
    assert {labels for name, labels in values if name == "headworks_api_token_expiry_time_seconds"} == {
        (("token", "soon"), ("user", "ada"))
    }
    made_at = ApiToken.objects.get(name="soon").created_at
    assert values[key("api_token_made_time_seconds", user="ada", token="soon")] == made_at.timestamp()
    assert values[key("tenant_key_expiry_time_seconds", tenant="acme")] == soon.timestamp()
    assert values[key("metric_writer_token_expiry_time_seconds", writer="east")] == NOW.timestamp()
    TenantKey.objects.filter(pk=first.pk).update(replaced_by=second)
    assert told()[key("tenant_key_expiry_time_seconds", tenant="acme")] == later.timestamp()


def test_rules_that_are_blind_or_late_and_messages_that_wait_are_told_of():
    Rule.objects.create(name="Blind", expr="1", last_error="no", due_at=NOW - timedelta(seconds=90))
    Rule.objects.create(name="Off", expr="1", last_error="no", due_at=NOW - timedelta(days=1), enabled=False)
    receiver = Receiver.objects.create(name="oncall", url="http://r")
    Receiver.objects.create(name="off", url="http://r", enabled=False)
    alert, _ = alerts.open_alert(
        labels={"alertname": "A"}, source="rule", severity="warning", title="t", annotations={}, at=NOW, text="t"
    )
    for number, state in enumerate(("waiting", "waiting", "failed"), 10):
        Delivery.objects.create(
            incident=alert.incident, receiver=receiver, number=number, status="firing", state=state, due_at=NOW,
            created_at=NOW - timedelta(seconds=10 * number),
        )  # fmt: skip
    values = told()
    assert (values[key("rules_failing")], values[key("rule_evaluation_late_seconds")]) == (1, 90)
    assert values[key("deliveries_waiting", receiver="oncall")] >= 2
    assert values[key("delivery_age_seconds", receiver="oncall")] == pytest.approx(110)
    assert values[key("deliveries_failed", receiver="oncall")] == 1
    assert key("deliveries_waiting", receiver="off") not in values
    assert values[key("incidents_firing", severity="warning")] == 1


def test_batches_past_their_window_are_counted_by_tenant():
    def batch(name: str, status: Status, expires: timedelta, **changes: Any) -> None:
        Batch.objects.create(
            id=name, tenant="acme", endpoint="/v1", input_file_id="f", completion_window="24h", status=status,
            created_at=NOW, expires_at=NOW + expires, stops_at=NOW, **changes,
        )  # fmt: skip

    batch("in-time", Status.IN_PROGRESS, timedelta(hours=1))
    batch("late", Status.FINALIZING, timedelta(hours=-1))
    batch("given-up", Status.EXPIRED, timedelta(hours=-1), expired_at=NOW - timedelta(minutes=5))
    batch("long-ago", Status.EXPIRED, timedelta(days=-2), expired_at=NOW - timedelta(days=2))
    values = told()
    assert values[key("batches_open", tenant="acme")] == 2
    assert values[key("batches_past_window", tenant="acme")] == 2


def test_what_cannot_be_read_is_absent_and_the_rest_is_told(monkeypatch: pytest.MonkeyPatch):
    def away(now: datetime) -> Any:
        raise DatabaseError("away")

    monkeypatch.setattr(gauges, "_sources", [away, *gauges._sources])
    assert told()[key("rules_failing")] == 0


def test_every_family_is_known_with_its_words():
    for family in gauges.families(NOW):
        known = OWN[family.name]
        assert (known.kind, known.help) == (family.type, family.documentation)


# The page.


def names_on(page: str) -> set[str]:
    return {family.name for family in text_string_to_metric_families(page)}


def test_names_are_on_the_page_for_those_alone_who_may_read_them(rest_of: Any):
    Model.objects.create(name="m", max_context_tokens=100)
    everybody = Client().get("/metrics").content.decode()
    viewer = rest_of(Role.VIEWER).client.get("/metrics").content.decode()
    assert "headworks_disk_bytes" not in names_on(everybody)
    assert {"headworks_disk_bytes", "headworks_target_lost"} <= names_on(viewer)
    assert names_on(everybody) <= names_on(viewer)


def test_a_token_that_nobody_knows_is_refused():
    answer = Client(headers={"authorization": "Bearer hwt-nobody"}).get("/metrics")
    assert answer.status_code == 401
    assert b"headworks_" not in answer.content


def test_a_person_of_some_tenants_gets_no_page(rest_of: Any):
    reader = rest_of(Role.VIEWER)
    User.objects.update(tenants=["acme"])
    assert reader.client.get("/metrics").status_code == 403


# The store.


def stored(promql: str, at: datetime = NOW) -> dict[tuple[tuple[str, str], ...], float]:
    return {tuple(sorted(each.labels.items())): each.value for each in query.instant(promql, epoch_ms(at))}


def test_one_worker_writes_each_moment():
    first = own_series.record(NOW)
    assert first > 0
    assert own_series.record(NOW + timedelta(milliseconds=1)) == 0
    assert own_series.record(NOW + timedelta(seconds=15)) > 0
    labels = (("__name__", "headworks_rules_failing"), ("job", "headworks"))
    assert stored("headworks_rules_failing", NOW + timedelta(seconds=20)) == {labels: 0.0}


def test_of_two_workers_at_once_one_takes_the_moment(monkeypatch: pytest.MonkeyPatch):
    OwnSeriesTurn.objects.create(pk=1, taken_ms=0)
    read = OwnSeriesTurn.objects.get_or_create

    def overtaken(**asked: Any) -> Any:
        found = read(**asked)
        OwnSeriesTurn.objects.update(taken_ms=1)
        return found

    monkeypatch.setattr(OwnSeriesTurn.objects, "get_or_create", overtaken)
    assert own_series.claim(epoch_ms(NOW)) is None


def test_a_clock_that_was_set_back_stops_nothing():
    assert own_series.claim(epoch_ms(NOW + timedelta(days=1))) is not None
    assert own_series.claim(epoch_ms(NOW)) is not None


def test_a_series_that_is_no_more_ends_at_once():
    gauge = gauges.gauge("x", "X.", "pool")
    gauge.add_metric(("a",), 1)
    gauge.add_metric(("b",), 2)
    series, at_ms = OwnSeries({"job": "headworks"}), epoch_ms(NOW)
    assert series.put([gauge], at_ms) == 2
    left = gauges.gauge("x", "X.", "pool")
    left.add_metric(("a",), 3)
    assert series.put([left], at_ms + 1000) == 1
    assert list(stored("headworks_x", NOW + timedelta(seconds=2)).values()) == [3.0]


def test_a_process_writes_what_it_counts_under_its_own_name():
    registry = CollectorRegistry()
    Counter("headworks_requests", "Requests.", ("status",), registry=registry).labels("200").inc(4)
    process = ProcessSeries(registry)
    process._series.put(registry.collect(), epoch_ms(NOW))
    (labels,) = stored("headworks_requests_total", NOW + timedelta(seconds=1))
    assert {"job", "instance", "status"} <= dict(labels).keys()
    assert stored("headworks_requests_created", NOW + timedelta(seconds=1)) == {}


def test_its_migration_is_whole():
    call_command("makemigrations", "telemetry", check=True, dry_run=True)
