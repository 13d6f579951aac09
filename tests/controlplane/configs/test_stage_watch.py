"""The stage that runs is watched: healthy for long enough it is promoted, else taken back."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from controlplane.configs import stage_watch, stages
from controlplane.configs.heads import Heads
from controlplane.configs.models import Stage
from controlplane.core.models import AuditEntry
from controlplane.telemetry import query
from tests.controlplane.configs.staging import acknowledge, begun, limit_at, look_later
from tests.controlplane.conftest import Rest


def test_healthy_for_long_enough_it_is_promoted(
    gateways: Any, fleet: Rest, newest: Callable[[], Heads], answered: list[Any]
) -> None:
    stage = begun(fleet, watch={"expression": "up", "for_seconds": 30}, then="promote")
    look_later()
    assert fleet.get(stage).json()["said"] == "waits for gateway/gw-1"
    acknowledge(gateways[0], newest())
    look_later()
    look_later(20)
    assert (fleet.get(stage).json()["state"], fleet.get(stage).json()["said"]) == ("running", "healthy")
    look_later(10)
    assert (fleet.get(stage).json()["state"], fleet.get(stage).json()["said"]) == ("promoted", "healthy for 30 s")
    assert limit_at(newest(), "gw-2") == 7


@pytest.mark.parametrize("answer", [0.0, float("nan"), None])
def test_a_breach_takes_it_back_at_once(
    gateways: Any, fleet: Rest, newest: Callable[[], Heads], answered: list[Any], answer: Any
) -> None:
    stage = begun(fleet, watch={"expression": "up", "for_seconds": 30}, then="promote")
    acknowledge(gateways[0], newest())
    answered[:] = [1.0, answer]
    look_later()
    look_later()
    assert (fleet.get(stage).json()["state"], fleet.get(stage).json()["said"]) == ("taken_back", "not healthy: up")
    assert limit_at(newest(), "gw-1") == 60_000
    ended = AuditEntry.objects.filter(noun="stage").latest("id")
    assert (ended.actor_kind, ended.after and ended.after["said"]) == ("system", "not healthy: up")


@pytest.mark.parametrize(
    ("expression", "value", "state"),
    [
        ("errors < 1", 0.0, "running"),
        ("(errors or vector(0)) < 1", 0.0, "running"),
        ("(errors < 1) and (up == 1)", 0.0, "running"),
        ("errors < 1", float("nan"), "taken_back"),
        ("errors < 1 or up", 0.0, "taken_back"),
        ("errors < bool 1", 0.0, "taken_back"),
        ("errors < bool 1", 1.0, "running"),
    ],
)
def test_a_zero_that_a_comparison_let_through_is_well(
    gateways: Any,
    fleet: Rest,
    newest: Callable[[], Heads],
    answered: list[Any],
    expression: str,
    value: float,
    state: str,
) -> None:
    stage = begun(fleet, watch={"expression": expression, "for_seconds": 30}, then="promote")
    acknowledge(gateways[0], newest())
    answered[:] = [value]
    look_later()
    assert fleet.get(stage).json()["state"] == state


def test_only_the_third_look_in_a_row_without_an_answer_takes_it_back(
    gateways: Any, fleet: Rest, newest: Callable[[], Heads], answered: list[Any]
) -> None:
    stage = begun(fleet, watch={"expression": "up", "for_seconds": 30})
    acknowledge(gateways[0], newest())
    away = query.QueryError("away")
    answered[:] = [away, away, 1.0, away, away, away]
    for _ in range(5):
        look_later()
        assert fleet.get(stage).json()["state"] == "running"
    look_later()
    assert "3 times in a row the query has no answer: away" in fleet.get(stage).json()["said"]


def test_one_that_its_target_refuses_or_that_expires_is_taken_back(
    gateways: Any, fleet: Rest, newest: Callable[[], Heads]
) -> None:
    stage = begun(fleet)
    head = newest().newest
    assert head is not None
    gateways[0].post("/config/ack", {"revision": head.number, "error": [{"path": "/", "rule": "r", "message": "m"}]})
    look_later()
    assert fleet.get(stage).json()["said"] == "refused by gateway/gw-1"
    stage = begun(fleet, expires_in_seconds=10)
    acknowledge(gateways[0], newest())
    look_later(11)
    assert (fleet.get(stage).json()["state"], fleet.get(stage).json()["said"]) == ("taken_back", "it expired")


def test_a_target_that_is_revoked_is_not_waited_for(gateways: Any, fleet: Rest, newest: Callable[[], Heads]) -> None:
    stage = begun(fleet, targets=["gateway/gw-1", "gateway/gw-2"])
    acknowledge(gateways[0], newest())
    look_later()
    assert fleet.get(stage).json()["said"] == "waits for gateway/gw-2"
    assert fleet.post(f"/targets/{gateways[1].row.pk}/revoke").status_code == 200
    look_later()
    assert fleet.get(stage).json()["said"] == "its targets run it"
    fleet.post(f"/targets/{gateways[0].row.pk}/revoke")
    look_later()
    shown = fleet.get(stage).json()
    assert (shown["state"], shown["said"]) == ("taken_back", "all its targets were revoked")


def test_a_time_in_which_nobody_looked_counts_for_nothing(
    gateways: Any, fleet: Rest, newest: Callable[[], Heads], answered: list[Any]
) -> None:
    stage = begun(fleet, watch={"expression": "up", "for_seconds": 600}, then="promote")
    acknowledge(gateways[0], newest())
    look_later()
    look_later(600)
    assert fleet.get(stage).json()["state"] == "running"
    while fleet.get(stage).json()["state"] == "running":
        look_later(20)
    assert fleet.get(stage).json()["said"] == "healthy for 600 s"
    stage_row = Stage.objects.latest("pk")
    assert stage_row.healthy_since is not None
    assert stage_row.look_at >= stage_row.healthy_since + timedelta(seconds=600)


def test_what_a_metrics_server_says_is_kept_as_far_as_it_can_be(
    gateways: Any, fleet: Rest, newest: Callable[[], Heads], answered: list[Any]
) -> None:
    stage = begun(fleet, watch={"expression": "up", "for_seconds": 30}, then="promote")
    acknowledge(gateways[0], newest())
    answered[:] = [query.QueryError("half a pair: \ud800")]
    look_later()
    assert fleet.get(stage).json()["said"] == "the query has no answer: half a pair: \ufffd"


def test_one_worker_looks_and_one_that_died_is_followed_by_another(gateways: Any, fleet: Rest) -> None:
    begun(fleet)
    now = timezone.now()
    assert stage_watch.look(now)
    assert not stage_watch.look(now)
    assert stage_watch.look(now + timedelta(seconds=5))


def test_while_a_slow_query_is_asked_nobody_else_looks(
    gateways: Any, fleet: Rest, newest: Callable[[], Heads], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(fleet, watch={"expression": "up", "for_seconds": 30}, then="promote")
    acknowledge(gateways[0], newest())
    now = timezone.now()
    others: list[bool] = []

    def slow(promql: str, at_ms: int) -> list[query.Sample]:
        others.append(stage_watch.look(now + timedelta(seconds=29)))
        return [query.Sample({}, at_ms, 1.0)]

    monkeypatch.setattr(query, "instant", slow)
    assert stage_watch.look(now)
    assert others == [False]
    assert stages.claim(now + timedelta(seconds=4), timedelta(seconds=35)) is None
    # One that is killed meanwhile gives nothing back.
    assert stages.claim(now + timedelta(seconds=5), timedelta(seconds=35)) is not None
    assert not stage_watch.look(now + timedelta(seconds=39))
    assert stage_watch.look(now + timedelta(seconds=40))
