"""Remote writes at the HTTP edge."""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from cramjam import snappy
from django.test import Client
from django.utils import timezone

from controlplane.configs.metrics import REGISTRY
from controlplane.core.models import Target
from controlplane.telemetry import receiver
from controlplane.telemetry.ownership import TargetSource
from controlplane.telemetry.store.packing import pack
from controlplane.telemetry.store.writer import Owner, writer_of
from tests.controlplane.telemetry.filling import named
from tests.controlplane.telemetry.writing import write
from wire.remote_write import Body, Bounds
from wire.remote_write_pb2 import WriteRequest
from wire.write_body import STALE, Series, encode, key_of


def stored(path: Any) -> int:
    """Samples in the store's file, by a connection of our own."""
    if not path.exists() or not path.stat().st_size:
        return 0
    with sqlite3.connect(path) as connection:
        packed = connection.execute("SELECT COALESCE(SUM(samples), 0) FROM chunk").fetchone()[0]
        return int(packed + connection.execute("SELECT COALESCE(SUM(samples), 0) FROM batch").fetchone()[0])


def value_of(ask: Any, query: str, at_ms: int) -> Any:
    (row,) = ask("query", query=query, time=at_ms / 1000).json()["data"]["result"]
    return row["value"][1]


def rules(answer: Any) -> set[str]:
    return {problem["rule"] for problem in answer.json()["problems"]}


def test_what_is_answered_204_is_read_back(node, ask, now_ms):
    answer = node.push(named("temperature", [(now_ms - 1000, 61.5), (now_ms, 62)], gpu="3"))
    assert (answer.status_code, answer.content) == (204, b"")
    written = {
        what: answer[f"X-Prometheus-Remote-Write-{what}-Written"] for what in ("Samples", "Histograms", "Exemplars")
    }
    assert written == {"Samples": "2", "Histograms": "0", "Exemplars": "0"}
    data = ask("query", query="temperature", time=now_ms / 1000).json()["data"]
    metric = {"__name__": "temperature", "gpu": "3", "node": "n-1"}
    assert data == {"resultType": "vector", "result": [{"metric": metric, "value": [now_ms / 1000, "62"]}]}


def test_a_gateway_writes_under_its_own_label(pusher, own_store, now_ms):
    gateway = pusher("gateway", "gw-1")
    assert gateway.push(Series({"__name__": "a", "gateway": "gw-1"}, [(now_ms, 1)])).status_code == 204
    assert stored(own_store) == 1


def noted(writer: Any) -> tuple[Any, Any]:
    row = Target.objects.get(pk=writer.row.pk)
    return row.last_pushed_at, row.last_seen_at


def test_a_gateways_push_is_noted_once_in_some_seconds_even_where_nothing_can_be_kept(pusher):
    gateway = pusher("gateway", "gw-1")
    assert gateway.send(b"no snappy").status_code == 400
    pushed_at, seen_at = noted(gateway)
    assert pushed_at == seen_at is not None
    gateway.send(b"no snappy")
    assert noted(gateway) == (pushed_at, seen_at)
    Target.objects.update(last_pushed_at=timezone.now() - timedelta(seconds=6))
    gateway.send(b"no snappy")
    assert min(noted(gateway)) > seen_at


def test_a_nodes_push_is_no_report(node, now_ms):
    assert node.push(named("temperature", [(now_ms, 61.5)])).status_code == 204
    assert noted(node) == (None, None)


@pytest.mark.parametrize(
    ("labels", "rule", "where"),
    [
        ({"node": "n-2"}, "foreign_owner", "/timeseries/1/node"),
        ({}, "missing_owner", "/timeseries/1/node"),
        ({"node": "n-1", "gateway": "gw-1"}, "foreign_owner", "/timeseries/1/gateway"),
    ],
)
def test_it_refuses_a_series_of_another(node, own_store, now_ms, labels, rule, where):
    answer = node.push(named("a", [(now_ms, 1)]), Series({"__name__": "b", **labels}, [(now_ms, 1)]))
    assert answer.status_code == 400
    assert [(problem["path"], problem["rule"]) for problem in answer.json()["problems"]] == [(where, rule)]
    assert stored(own_store) == 0


def test_it_refuses_a_name_that_is_recorded_here(node, own_store, now_ms):
    assert node.push(named("vllm:num_requests_running", [(now_ms, 1)])).status_code == 204
    answer = node.push(named("pool:headworks_gateway_requests:rate1m", [(now_ms, 1)]))
    assert rules(answer) == {"recorded_name"}
    assert stored(own_store) == 1


def test_a_node_and_a_gateway_of_one_name_are_two_writers(node, pusher, own_store, now_ms):
    assert node.push(named("a", [(now_ms, 1)])).status_code == 204
    answer = pusher("gateway", "n-1").push(named("a", [(now_ms + 1, 1)]))
    assert rules(answer) == {"missing_owner", "foreign_owner"}
    assert stored(own_store) == 1


def test_every_distinct_reason_is_named_once(node, own_store, now_ms):
    request = WriteRequest()
    for key in [key_of({"__name__": "a-b", "node": "n-1"})] * 3 + [key_of({"__name__": "a", "node": "n-9"})] * 3:
        request.timeseries.add(labels=key).samples.add(timestamp=now_ms)
    answer = node.send(bytes(snappy.compress_raw(request.SerializeToString())))
    assert [problem["rule"] for problem in answer.json()["problems"]] == ["metric_name", "foreign_owner"]
    assert stored(own_store) == 0


def test_at_most_ten_reasons_are_shown(node, now_ms):
    answer = node.push(*(named("a", [(now_ms, 1)], node=f"n-{number}") for number in range(2, 32)))
    assert len(answer.json()["problems"]) == 10


@pytest.mark.parametrize(
    ("body", "code"),
    [(b"no snappy", "not_snappy"), (bytes(snappy.compress_raw(b"no protobuf")), "not_protobuf")],
)
def test_a_body_of_another_form_is_refused_by_name(node, own_store, body, code):
    answer = node.send(body)
    assert (answer.status_code, answer.json()["code"]) == (400, code)
    assert stored(own_store) == 0


@pytest.mark.parametrize(
    ("headers", "right"),
    [
        ({"content-encoding": "gzip"}, "Content-Encoding: snappy"),
        (
            {"content-type": "application/x-protobuf;proto=io.prometheus.write.v2.Request"},
            "proto=prometheus.WriteRequest",
        ),
        ({"content-type": "application/json"}, "Content-Type: application/x-protobuf"),
    ],
)
def test_another_form_is_refused_with_what_would_be_right(node, headers, right):
    answer = node.send(b"", **headers)
    assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_form")
    assert right in answer.json()["detail"]


@pytest.mark.parametrize(
    "kind",
    [
        "",
        "application/x-protobuf; proto=prometheus.WriteRequest",
        'application/x-protobuf;proto="prometheus.WriteRequest"',
    ],
)
def test_the_form_may_be_said_in_several_ways(node, now_ms, kind):
    assert node.send(encode([named("a", [(now_ms, 1)])]), **{"content-type": kind}).status_code == 204


def test_a_body_that_is_too_large_is_refused(node, monkeypatch, own_store, now_ms):
    monkeypatch.setenv("HEADWORKS_METRICS_BODY_MAX_BYTES", "1024")
    # Larger as it comes, and larger when unpacked.
    for body in (os.urandom(1025), bytes(snappy.compress_raw(bytes(1025)))):
        answer = node.send(body)
        assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")
    assert stored(own_store) == 0


def test_bodies_are_decoded_one_at_a_time(node, monkeypatch):
    together = threading.Barrier(2)

    def decode(raw: bytes, bounds: Bounds) -> Body:
        together.wait(timeout=0.5)
        raise AssertionError("two bodies are decoded at once")

    monkeypatch.setattr(receiver, "decode", decode)
    with ThreadPoolExecutor(2) as writers:
        taken = [writers.submit(receiver.take, TargetSource(Owner("node", "n-1")), b"") for _ in range(2)]
    assert [type(each.exception()) for each in taken] == [threading.BrokenBarrierError] * 2


@pytest.mark.parametrize("header", ["", "Bearer wrong", "Basic YTpi"])
def test_a_stranger_is_refused(node, own_store, now_ms, header):
    answer = node.send(encode([named("a", [(now_ms, 1)])]), authorization=header)
    assert answer.status_code == 401
    assert stored(own_store) == 0


def test_a_person_may_not_write(admin, now_ms):
    token = admin.client.defaults["HTTP_AUTHORIZATION"].removeprefix("Bearer ")
    assert write(encode([named("a", [(now_ms, 1)])]), token).status_code == 401


def test_a_revoked_target_is_refused(node, now_ms):
    Target.objects.update(revoked_at=timezone.now())
    assert node.push(named("a", [(now_ms, 1)])).status_code == 403


def test_an_expired_token_is_refused(node, now_ms):
    Target.objects.update(token_expires_at=timezone.now() - timedelta(seconds=1))
    assert node.push(named("a", [(now_ms, 1)])).status_code == 401


def test_only_post_writes(db):
    assert write(b"", "", method="GET").status_code == 405


@pytest.mark.parametrize("pack_first", [False, True])
def test_the_same_again_counts_once(node, own_store, now_ms, pack_first):
    series = [named("a", [(now_ms - 9000, 1), (now_ms, 2)]), named("b", [(now_ms, float("nan"))])]
    assert node.push(*series).status_code == 204
    if pack_first:
        assert pack(own_store, 2**60) == 3
    assert node.push(*series).status_code == 204
    assert stored(own_store) == 3


@pytest.mark.parametrize("pack_first", [False, True])
def test_another_value_at_a_stored_time_is_refused(node, own_store, now_ms, ask, pack_first):
    node.push(named("a", [(now_ms - 9000, 1), (now_ms, 2)]))
    if pack_first:
        pack(own_store, 2**60)
    for at_ms in (now_ms - 9000, now_ms):
        answer = node.push(named("a", [(at_ms, 5)]), named("b", [(now_ms, 5)]))
        assert (answer.status_code, rules(answer)) == (400, {"duplicate"})
    assert stored(own_store) == 2
    assert value_of(ask, "a", now_ms) == "2"


def test_one_time_with_two_values_in_a_body_is_refused(node, own_store, now_ms):
    answer = node.push(named("a", [(now_ms, 1), (now_ms, 2)]))
    assert rules(answer) == {"duplicate"}
    assert node.push(named("a", [(now_ms, 1), (now_ms, 1)])).status_code == 204
    assert stored(own_store) == 1


@pytest.mark.parametrize("pack_first", [False, True])
def test_a_sample_that_comes_a_little_late_takes_its_place(node, own_store, ask, now_ms, pack_first):
    node.push(named("a", [(now_ms - 60_000, 1), (now_ms, 3)]))
    if pack_first:
        pack(own_store, 2**60)
    assert node.push(named("a", [(now_ms - 30_000, 2)])).status_code == 204
    for _ in range(2):
        assert value_of(ask, "a", now_ms - 29_000) == "2"
        assert value_of(ask, "a", now_ms) == "3"
        assert value_of(ask, "count_over_time(a[5m])", now_ms) == "3"
        pack(own_store, 2**60)


def test_a_sample_that_comes_too_late_is_refused(node, own_store, now_ms):
    node.push(named("a", [(now_ms, 1)]))
    assert rules(node.push(named("a", [(now_ms - 300_001, 2)]))) == {"out_of_order"}
    assert node.push(named("a", [(now_ms - 300_000, 2)])).status_code == 204
    assert stored(own_store) == 2


def test_a_series_that_is_new_may_begin_in_the_past(node, own_store, now_ms):
    node.push(named("a", [(now_ms, 1)]))
    assert node.push(named("b", [(now_ms - 3_600_000, 1)])).status_code == 204
    assert stored(own_store) == 2


@pytest.mark.parametrize(
    ("at_ms", "rule"),
    [(0, "too_old"), (-(2**63), "too_old"), (4_102_444_800_000, "too_far_in_future"), (2**63 - 1, "too_far_in_future")],
)
def test_a_time_far_from_now_is_refused(node, own_store, at_ms, rule):
    answer = node.push(named("a", [(at_ms, 1)]))
    assert (answer.status_code, rules(answer)) == (400, {rule})
    assert stored(own_store) == 0


def test_series_of_one_target_are_bounded(node, own_store, now_ms, monkeypatch):
    monkeypatch.setenv("HEADWORKS_METRICS_SERIES_PER_TARGET_MAX", "3")
    assert node.push(*(named("a", [(now_ms, 1)], n=str(number)) for number in range(3))).status_code == 204
    answer = node.push(named("a", [(now_ms, 1)], n="3"))
    assert (answer.status_code, rules(answer)) == (400, {"too_many_series"})
    # What it has already it may go on writing, and the refused one left nothing.
    assert node.push(named("a", [(now_ms + 1, 1)], n="1")).status_code == 204
    with sqlite3.connect(own_store) as connection:
        assert connection.execute("SELECT COUNT(*) FROM series").fetchone() == (3,)


def test_a_stale_series_is_gone_at_once(node, ask, now_ms):
    node.push(named("a", [(now_ms - 1000, 1), (now_ms, STALE)]))
    assert value_of(ask, "a", now_ms - 1000) == "1"
    assert ask("query", query="a", time=now_ms / 1000).json()["data"]["result"] == []


def counted(name: str, labels: dict[str, str]) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


def test_samples_and_refused_bodies_are_counted(node, now_ms, monkeypatch):
    monkeypatch.setenv("HEADWORKS_METRICS_BODY_MAX_BYTES", "1024")
    tries = {
        "not_snappy": lambda: node.send(b"no snappy"),
        "foreign_owner": lambda: node.push(*(named("a", [(now_ms, 1)], node=f"n-{number}") for number in (2, 3))),
        "too_old": lambda: node.push(named("a", [(0, 1)])),
        "body_too_large": lambda: node.send(bytes(1025)),
        "unsupported_form": lambda: node.send(b"", **{"content-encoding": "gzip"}),
        "unauthenticated": lambda: write(b"", "wrong"),
        "method_not_allowed": lambda: write(b"", "", method="GET"),
    }
    for reason, send in tries.items():
        before = counted("headworks_telemetry_refused_bodies_total", {"reason": reason})
        assert send().status_code >= 400
        assert counted("headworks_telemetry_refused_bodies_total", {"reason": reason}) == before + 1
    before = counted("headworks_telemetry_samples_total", {})
    assert node.push(named("a", [(now_ms - 1, 1), (now_ms, 1)])).status_code == 204
    assert counted("headworks_telemetry_samples_total", {}) == before + 2
    page = Client().get("/metrics").content.decode()
    assert 'headworks_telemetry_refused_bodies_total{reason="foreign_owner"}' in page


def test_an_empty_body_is_taken(node):
    assert node.push().status_code == 204


def test_a_locked_store_asks_to_send_again(node, own_store, now_ms, monkeypatch):
    monkeypatch.setattr("controlplane.telemetry.store.database._BUSY_SECONDS", 0.05)
    body = encode([named("a", [(now_ms, 1)])])
    node.push()
    with sqlite3.connect(own_store, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        answer = node.send(body)
        assert (answer.status_code, answer["retry-after"]) == (503, "5")
        other.execute("ROLLBACK")
    assert node.send(body).status_code == 204
    assert stored(own_store) == 1


def test_a_full_disk_asks_to_send_again(node, own_store, now_ms):
    node.push(named("a", [(now_ms, 1)]))
    connection = writer_of(own_store)._connection
    assert connection is not None
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count={pages}")
    many = [named("b", [(now_ms, 1.0)], n=str(number)) for number in range(500)]
    assert node.push(*many).status_code == 503
    # The next one begins with a connection of its own, to which the limit does not apply.
    assert node.push(*many).status_code == 204
    assert stored(own_store) == 501


def test_a_file_that_is_no_store_asks_to_send_again(node, own_store, now_ms):
    own_store.write_bytes(b"not a database" * 1000)
    assert node.push(named("a", [(now_ms, 1)])).status_code == 503


def test_a_store_of_another_version_is_left_alone(node, own_store, now_ms):
    with sqlite3.connect(own_store) as connection:
        connection.execute("PRAGMA user_version=99")
    assert node.push(named("a", [(now_ms, 1)])).status_code == 503
    with sqlite3.connect(own_store) as connection:
        assert connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone() == (0,)


def test_only_the_owner_can_read_the_files(node, own_store, now_ms):
    node.push(named("a", [(now_ms, 1)]))
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in own_store.parent.glob("metrics.*")}
    assert len(modes) >= 3
    assert set(modes.values()) == {0o600}


def test_much_that_is_unpacked_is_packed_at_once(node, own_store, now_ms, monkeypatch):
    monkeypatch.setenv("HEADWORKS_METRICS_PACK_SAMPLES", "1000")
    node.push(named("a", [(now_ms - place, 1.0) for place in range(1000)]))
    receiver._packer.submit(lambda: None).result(10)
    with sqlite3.connect(own_store) as connection:
        assert connection.execute("SELECT COUNT(*) FROM batch").fetchone() == (0,)
    assert stored(own_store) == 1000


def test_a_store_that_was_removed_is_made_anew(node, ask, own_store, now_ms):
    """What is answered from then on is on disk, and nothing of the old file's series is taken for the new one's."""
    for number in range(3):
        assert node.push(named(f"old_{number}", [(now_ms - 1, 1.0)])).status_code == 204
    assert len(ask("query", query='{__name__=~".+"}').json()["data"]["result"]) == 3
    for suffix in ("", "-wal", "-shm"):
        own_store.with_name(own_store.name + suffix).unlink(missing_ok=True)
    assert ask("query", query='{__name__=~".+"}').json()["data"]["result"] == []
    for number in range(3):
        assert node.push(named(f"new_{number}", [(now_ms - 1, 1.0)])).status_code == 204
    assert stored(own_store) == 3
    found = ask("query", query='{__name__=~".+"}').json()["data"]["result"]
    assert [each["metric"]["__name__"] for each in found] == ["new_0", "new_1", "new_2"]
