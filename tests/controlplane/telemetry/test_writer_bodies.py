"""What a metric writer may send, and what becomes of it."""

from __future__ import annotations

import sqlite3
from datetime import datetime, timedelta

import pytest
from cramjam import snappy
from django.utils import timezone

from controlplane.core.changes import SYSTEM, unit_of_work
from controlplane.telemetry import forwarding
from controlplane.telemetry.active_series import ActiveSeries
from controlplane.telemetry.models import MetricWriter, RecordingGroup, RecordingRule
from controlplane.telemetry.writers import METRIC_WRITERS
from tests.controlplane.telemetry.test_receiver import counted, rules, stored, value_of
from tests.controlplane.telemetry.upstreams import ToldServer, use
from wire.remote_write_pb2 import WriteRequest
from wire.write_body import Series


def of_b(name, now_ms, **labels):
    return Series({"__name__": name, "cluster": "b", **labels}, [(now_ms, 1.0)])


@pytest.fixture(params=["embedded", "external"])
def engine(request, monkeypatch):
    """Both engines check the same."""
    if request.param == "embedded":
        yield
        return
    with ToldServer() as told:
        monkeypatch.setattr(forwarding, "_active", ActiveSeries())
        use(monkeypatch, told.base)
        monkeypatch.setenv("HEADWORKS_METRICS_SPOOL_BYTES", "0")
        yield


@pytest.fixture
def b(metric_writer):
    return metric_writer("b", cluster="b")


def change(**fields):
    with unit_of_work(SYSTEM, "for a test") as unit:
        METRIC_WRITERS.update(unit, "b", fields)


def test_what_it_writes_is_read_back(b, ask, now_ms):
    assert b.push(of_b("up", now_ms, node="no-target")).status_code == 204
    assert value_of(ask, 'up{cluster="b",node="no-target"}', now_ms) == "1"


@pytest.mark.parametrize(
    ("name", "labels", "rule"),
    [
        ("headworks_gpu_up", {"cluster": "b"}, "own_name"),
        ("DCGM_FI_DEV_GPU_UTIL", {"cluster": "b", "node": "n-1"}, "foreign_owner"),
        ("up", {"cluster": "b", "gateway": "gw-1"}, "foreign_owner"),
        ("up", {"cluster": "a"}, "missing_label"),
        ("up", {}, "missing_label"),
    ],
)
def test_what_is_anothers_is_refused_whole(engine, b, pusher, own_store, now_ms, name, labels, rule):
    pusher("node", "n-1")
    pusher("gateway", "gw-1")
    answer = b.push(of_b("up", now_ms, job="x"), Series({"__name__": name, **labels}, [(now_ms, 1.0)]))
    assert (answer.status_code, answer.json()["code"], rules(answer)) == (400, rule, {rule})
    assert stored(own_store) == 0


def test_a_node_and_a_gateway_of_one_name_are_two(b, pusher, now_ms):
    pusher("node", "n-1")
    assert b.push(of_b("up", now_ms, gateway="n-1")).status_code == 204


def test_what_it_wrote_is_refused_from_when_a_target_of_that_name_enrols(engine, b, pusher, now_ms):
    assert b.push(of_b("up", now_ms, node="n-1")).status_code == 204
    node = pusher("node", "n-1")
    assert rules(b.push(of_b("up", now_ms + 1, node="n-1"))) == {"foreign_owner"}
    assert node.push(Series({"__name__": "up", "node": "n-1"}, [(now_ms, 1.0)])).status_code == 204


def test_other_matchers_count_at_once(engine, b, now_ms):
    assert b.push(of_b("up", now_ms)).status_code == 204
    change(matchers={"cluster": "c"})
    assert rules(b.push(of_b("up", now_ms + 1))) == {"missing_label"}


def test_names_that_rules_record_are_refused_and_its_own_recorded_ones_taken(engine, b, now_ms):
    name = "cluster:requests:rate5m"
    assert b.push(of_b(name, now_ms)).status_code == 204
    group = RecordingGroup.objects.create(name="g", position=0, interval="", next_ms=0)
    rule = RecordingRule.objects.create(group=group, position=0, record=name, expr="1")
    assert rules(b.push(of_b(name, now_ms + 1))) == {"recorded_name"}
    # A rule that is gone records nothing.
    rule.group = None
    rule.save()
    assert b.push(of_b(name, now_ms + 2)).status_code == 204


def test_its_series_are_bounded_for_itself(engine, b, metric_writer, node, now_ms, monkeypatch):
    monkeypatch.setenv("HEADWORKS_METRICS_SERIES_PER_TARGET_MAX", "3")
    other = metric_writer("c", cluster="c")
    assert b.push(*(of_b("up", now_ms, n=str(number)) for number in range(3))).status_code == 204
    answer = b.push(of_b("up", now_ms, n="3"))
    assert (answer.status_code, rules(answer)) == (400, {"too_many_series"})
    assert "writer b would have 4 series; it may have 3" in answer.json()["detail"]
    assert b.push(of_b("up", now_ms + 1, n="1")).status_code == 204
    assert other.push(Series({"__name__": "up", "cluster": "c"}, [(now_ms, 1.0)])).status_code == 204
    assert node.push(Series({"__name__": "up", "node": "n-1"}, [(now_ms, 1.0)])).status_code == 204


def test_what_it_wrote_takes_no_room_of_a_node_that_enrols_later(b, pusher, own_store, now_ms, monkeypatch):
    monkeypatch.setenv("HEADWORKS_METRICS_SERIES_PER_TARGET_MAX", "2")
    assert b.push(*(of_b("up", now_ms, node="n-1", n=str(number)) for number in range(2))).status_code == 204
    node = pusher("node", "n-1")
    assert node.push(Series({"__name__": "up", "node": "n-1"}, [(now_ms, 1.0)])).status_code == 204
    with sqlite3.connect(own_store) as connection:
        owners = connection.execute("SELECT owner, COUNT(*) FROM series GROUP BY owner ORDER BY owner").fetchall()
    assert owners == [("node n-1", 1), ("writer b", 2)]


def test_its_metadata_is_kept_but_not_that_of_our_families(b, now_ms, ask):
    request = WriteRequest()
    for family in ("node_load1", "headworks_gpu_up"):
        request.metadata.add(type=2, metric_family_name=family, help="From a Prometheus.", unit="")
    assert b.send(bytes(snappy.compress_raw(request.SerializeToString()))).status_code == 204
    assert set(ask("metadata").json()["data"]) == {"node_load1"}


def test_samples_and_refusals_are_counted_by_writer(b, now_ms):
    taken = ("headworks_telemetry_writer_samples_total", {"writer": "b"})
    refused = ("headworks_telemetry_writer_refused_bodies_total", {"writer": "b", "reason": "missing_label"})
    before = counted(*taken), counted(*refused)
    b.push(of_b("up", now_ms), of_b("up", now_ms, n="1"))
    b.push(Series({"__name__": "up"}, [(now_ms, 1.0)]))
    assert (counted(*taken), counted(*refused)) == (before[0] + 2, before[1] + 1)


def noted() -> datetime:
    at = MetricWriter.objects.get().last_pushed_at
    assert at is not None
    return at


def test_a_body_is_noted_once_in_some_seconds(b, now_ms):
    b.push(of_b("up", now_ms))
    first = noted()
    b.push(of_b("up", now_ms + 1))
    assert noted() == first
    MetricWriter.objects.update(last_pushed_at=timezone.now() - timedelta(seconds=6))
    b.push(of_b("up", now_ms + 2))
    assert noted() > first


def refusal(answer):
    return answer.status_code, answer.json()["code"]


def test_a_blocked_writer_is_refused_until_it_is_not(b, now_ms):
    change(blocked=True)
    assert refusal(b.push(of_b("up", now_ms))) == (403, "blocked")
    change(blocked=False)
    assert b.push(of_b("up", now_ms)).status_code == 204


def test_an_expired_token_is_refused(b, now_ms):
    MetricWriter.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert refusal(b.push(of_b("up", now_ms))) == (401, "expired")


def test_a_deleted_writer_is_unknown(b, now_ms):
    with unit_of_work(SYSTEM, "for a test") as unit:
        METRIC_WRITERS.delete(unit, "b")
    assert refusal(b.push(of_b("up", now_ms))) == (401, "unauthenticated")


def test_both_tokens_of_a_rotation_are_good_until_the_overlap_ends(b, now_ms):
    old = b.token
    with unit_of_work(SYSTEM, "for a test") as unit:
        new = METRIC_WRITERS.rotate(unit, "b", {"overlap_seconds": 60}).secret
    for number, b.token in enumerate((old, new)):
        assert b.push(of_b("up", now_ms + number)).status_code == 204
    MetricWriter.objects.update(previous_expires_at=timezone.now() - timedelta(seconds=1))
    b.token = old
    assert refusal(b.push(of_b("up", now_ms + 3))) == (401, "expired")
    b.token = new
    assert b.push(of_b("up", now_ms + 3)).status_code == 204


def test_without_an_overlap_the_old_token_ends_at_once(b, now_ms):
    with unit_of_work(SYSTEM, "for a test") as unit:
        METRIC_WRITERS.rotate(unit, "b", {"overlap_seconds": 0})
    assert refusal(b.push(of_b("up", now_ms))) == (401, "unauthenticated")


def test_its_token_opens_nothing_else(b, client):
    for path in ("/prometheus/api/v1/query?query=up", "/api/v1/tenants", "/api/v1/config/snapshot"):
        assert client.get(path, headers={"authorization": f"Bearer {b.token}"}).status_code == 401
