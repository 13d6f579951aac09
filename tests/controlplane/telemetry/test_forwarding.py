"""What is checked of a body before an external server gets it: labels once, and how many series its writer has."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from controlplane.telemetry import forwarding
from controlplane.telemetry.active_series import IDLE_SECONDS, ActiveSeries
from tests.controlplane.telemetry.filling import named
from tests.controlplane.telemetry.test_active_series import Clock
from tests.controlplane.telemetry.test_bad_input import bounded as bounded
from tests.controlplane.telemetry.test_receiver import counted, rules
from tests.controlplane.telemetry.upstreams import ToldServer, use
from wire.write_body import encode


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Of a process that has just started."""
    made = Clock()
    monkeypatch.setattr(forwarding, "_active", ActiveSeries(made))
    return made


@pytest.fixture
def server(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Iterator[ToldServer]:
    """Each body is with it when it is answered."""
    with ToldServer() as told:
        use(monkeypatch, told.base)
        monkeypatch.setenv("HEADWORKS_METRICS_SPOOL_BYTES", "0")
        monkeypatch.setenv("HEADWORKS_METRICS_SERIES_PER_TARGET_MAX", "3")
        yield told


def test_more_series_than_a_writer_may_have_are_refused_and_counted(server, node, pusher, now_ms):
    refused = ("headworks_telemetry_refused_bodies_total", {"reason": "too_many_series"})
    before = counted(*refused)
    assert node.push(*(named(name, [(now_ms, 1.0)]) for name in "abc")).status_code == 204
    answer = node.push(named("a", [(now_ms + 1, 1.0)]), named("d", [(now_ms, 1.0)]))
    assert (answer.status_code, answer.json()["code"], rules(answer)) == (400, "too_many_series", {"too_many_series"})
    assert "node n-1 would have 4 series; it may have 3" in answer.json()["detail"]
    assert counted(*refused) == before + 1
    # It goes on with what it has, and another writer has room of its own.
    assert node.push(named("b", [(now_ms + 1, 1.0)])).status_code == 204
    assert pusher("node", "n-2").push(named("d", [(now_ms, 1.0)], node="n-2")).status_code == 204
    assert server.names() == ["a", "b", "c", "b", "d"]


def test_series_that_stopped_make_room(server, clock, node, now_ms):
    assert node.push(*(named(name, [(now_ms, 1.0)]) for name in "abc")).status_code == 204
    clock.now += IDLE_SECONDS - 1
    assert node.push(named("a", [(now_ms, 2.0)])).status_code == 204
    assert node.push(named("d", [(now_ms, 1.0)])).status_code == 400
    clock.now += 1
    assert node.push(named("d", [(now_ms, 1.0)]), named("e", [(now_ms, 1.0)])).status_code == 204
    assert node.push(named("b", [(now_ms, 1.0)])).status_code == 400


def test_a_body_that_breaks_a_rule_takes_no_room(server, node, now_ms):
    assert node.push(named("a", [(now_ms, 1.0)])).status_code == 204
    foreign = [named(name, [(now_ms, 1.0)], node="n-2") for name in "bcd"]
    answer = node.push(named("a", [(now_ms, 2.0)]), *foreign)
    assert (answer.status_code, rules(answer)) == (400, {"foreign_owner"})
    assert [problem["path"] for problem in answer.json()["problems"]] == ["/timeseries/1/node"]
    assert node.push(*(named(name, [(now_ms, 1.0)]) for name in "bc")).status_code == 204


def test_what_another_writer_may_write_is_still_foreign(server, node, pusher, now_ms):
    """Known is what this writer wrote."""
    assert node.push(named("a", [(now_ms, 1.0)])).status_code == 204
    assert rules(pusher("node", "n-2").push(named("a", [(now_ms, 1.0)]))) == {"foreign_owner"}


def test_body_after_body_of_new_series_fills_no_memory(server, node, now_ms, bounded, monkeypatch):
    monkeypatch.setenv("HEADWORKS_METRICS_SERIES_PER_TARGET_MAX", "1000")
    assert node.push(*(named("a", [(now_ms, 1.0)], n=str(number)) for number in range(1000))).status_code == 204
    body = encode([named("b", [(now_ms, 1.0)], n=f"{number:05}") for number in range(20_000)])
    for _ in range(5):
        answer = node.send(body)
        assert (answer.status_code, answer.json()["code"]) == (400, "too_many_series")
    assert node.push(named("a", [(now_ms + 1, 1.0)], n="1")).status_code == 204
    assert server.names() == ["a"] * 1001
