"""Rollouts over REST, with a worker that looks at them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from controlplane.core.changes import SYSTEM, unit_of_work
from controlplane.core.models import AuditEntry, Target
from controlplane.fleet.models import Node, Pool
from controlplane.rollouts import facts, runner, services
from controlplane.rollouts.machine import Decision
from controlplane.rollouts.models import Rollout
from controlplane.rollouts.observed import Facts
from controlplane.routing.models import Route
from tests.controlplane.conftest import REASON, Rest
from tests.controlplane.rollouts.driving import (
    QUICK,
    RED_BLACK,
    RED_BLACK_ACTS,
    age_steps,
    begun,
    held_out,
    pools_of,
    rounds,
)


def test_a_red_black_rollout_runs_from_gate_to_retired(fleet: Rest, step: Any, answered: list[Any]) -> None:
    path = begun(fleet, RED_BLACK)
    assert set(held_out()) == {"new-1", "new-2"}
    acted = rounds(step, lambda: fleet.get(path).json()["state"] != "running")
    shown = fleet.get(path).json()
    assert (shown["state"], pools_of()) == ("done", {"new": 1000})
    assert set(held_out()) == {"old-1", "old-2"}
    assert Route.objects.get(name="all").fallbacks is None
    assert acted == RED_BLACK_ACTS
    assert [each["state"] for each in shown["steps"]] == ["done"] * len(shown["steps"])
    assert [each["kind"] for each in shown["steps"]] == [
        "gate", "start", "check", "warm_up", "shift", "shift", "shift", "keep_warm", "retire",
    ]  # fmt: skip


def test_a_breach_takes_it_back_in_one_revision(fleet: Rest, step: Any, answered: list[Any]) -> None:
    answered[:] = [100.0]
    path = begun(fleet, RED_BLACK)
    rounds(step, lambda: "new" in pools_of() and fleet.get(path).json()["said"].startswith("watched"))
    assert held_out() == {
        "old-2": path.replace("/rollouts/", "rollout "),
        "new-2": path.replace("/rollouts/", "rollout "),
    }
    answered[:] = [100.0, None]
    before = AuditEntry.objects.latest("id").pk
    runner.look_at_all()
    changes = AuditEntry.objects.filter(pk__gt=before, noun__in=["route", "engine"])
    assert len({entry.change_id for entry in changes}) == 1
    assert pools_of() == {"old": 1000}
    assert set(held_out()) == {"new-1", "new-2"}
    rounds(step, lambda: fleet.get(path).json()["state"] == "returned")
    assert "not healthy" in fleet.get(path).json()["steps"][5]["said"]


def test_a_gateway_that_refuses_takes_it_back(fleet: Rest, step: Any, gateway: Any, newest: Any) -> None:
    path = begun(fleet, RED_BLACK)
    for _ in range(20):
        runner.look_at_all()
        if "old" in (Route.objects.get(name="all").fallbacks or {}):
            break
        step()
    head = newest().newest
    gateway.post("/config/ack", {"revision": head.number, "error": [{"path": "/", "rule": "r", "message": "m"}]})
    runner.look_at_all()
    assert fleet.get(path).json()["said"] == "gateway/gw-1 refuses the configuration"
    assert (pools_of(), Route.objects.get(name="all").fallbacks) == ({"old": 1000}, None)


def test_what_was_taken_back_can_be_tried_again_and_what_is_done_the_other_way_round(
    fleet: Rest, step: Any, answered: list[Any]
) -> None:
    answered[:] = [100.0]
    first = begun(fleet, RED_BLACK)
    fleet.post(f"{first}/return")
    rounds(step, lambda: fleet.get(first).json()["state"] == "returned")
    again = begun(fleet, RED_BLACK)
    assert set(held_out().values()) == {again.replace("/rollouts/", "rollout ")}
    rounds(step, lambda: fleet.get(again).json()["state"] == "done")
    assert set(held_out()) == {"old-1", "old-2"}
    back = begun(fleet, {**RED_BLACK, "pool": "new", "new_pool": "old"})
    rounds(step, lambda: fleet.get(back).json()["state"] == "done")
    assert (pools_of(), set(held_out())) == ({"old": 1000}, {"new-1", "new-2"})


def test_people_pause_resume_and_take_it_back(fleet: Rest, operator: Rest, step: Any, answered: list[Any]) -> None:
    answered[:] = [100.0]
    path = begun(fleet, RED_BLACK)
    rounds(step, lambda: "new" in pools_of())
    assert operator.post(f"{path}/pause").json()["item"]["state"] == "paused"
    for _ in range(3):
        step()
        age_steps()
    assert pools_of() == {"old": 500, "new": 500}
    assert operator.post(f"{path}/pause").status_code == 409
    assert operator.post(f"{path}/resume").json()["item"]["state"] == "running"
    answer = operator.post(f"{path}/return").json()
    assert (answer["item"]["state"], pools_of()) == ("returning", {"old": 1000})
    assert answer["patch"]["routes"]["all"]["pools"] == {"new": None, "old": 1000}
    rounds(step, lambda: operator.get(path).json()["state"] == "returned")
    assert operator.post(f"{path}/resume").json()["code"] == "wrong_state"


def test_one_that_is_aborted_leaves_all_as_it_is_and_can_still_be_taken_back(
    fleet: Rest, step: Any, answered: list[Any]
) -> None:
    answered[:] = [100.0]
    path = begun(fleet, RED_BLACK)
    rounds(step, lambda: "new" in pools_of())
    assert fleet.post(f"{path}/abort").json()["item"]["state"] == "aborted"
    assert pools_of() == {"old": 500, "new": 500}
    fleet.post(f"{path}/return")
    rounds(step, lambda: fleet.get(path).json()["state"] == "returned")
    assert pools_of() == {"old": 1000}


def test_where_too_few_ask_a_person_decides_whether_to_go_on(fleet: Rest, step: Any, answered: list[Any]) -> None:
    path = begun(fleet, {**RED_BLACK, "watch": {}})
    for _ in QUICK:
        rounds(step, lambda: fleet.get(path).json()["state"] == "paused")
        assert fleet.get(path).json()["said"].endswith("resume goes on without")
        fleet.post(f"{path}/resume")
    rounds(step, lambda: fleet.get(path).json()["state"] == "done")


def test_an_edit_of_its_route_stops_it_by_name_and_resume_takes_it_up(
    fleet: Rest, step: Any, answered: list[Any]
) -> None:
    answered[:] = [100.0]
    path = begun(fleet, RED_BLACK)
    rounds(step, lambda: "new" in pools_of())
    fleet.post("/pools", {"name": "third", "model": "org/m-1"})
    fleet.post("/engines", {"name": "t-1", "url": "http://10.0.0.9:8000", "pool": "third", "served_model": "m"})
    edit = fleet.patch("/routes/all", {"pools": {"old": 400, "new": 400, "third": 200}})
    assert edit.status_code == 200, edit.content
    rounds(step, lambda: fleet.get(path).json()["state"] == "paused")
    assert "route 'all'" in fleet.get(path).json()["said"]
    fleet.post(f"{path}/resume")
    rounds(step, lambda: fleet.get(path).json()["state"] == "done")
    assert pools_of() == {"new": 800, "third": 200}


def test_a_decision_on_what_somebody_wrote_to_meanwhile_is_dropped(fleet: Rest, step: Any) -> None:
    path = begun(fleet, RED_BLACK)
    seen = Rollout.objects.latest("pk")
    fleet.post(f"{path}/pause")
    with pytest.raises(services.Outdated), unit_of_work(SYSTEM, "late") as unit:
        services.carry_out(unit, seen, Facts(), Decision("done"))
    assert fleet.get(path).json()["state"] == "paused"


def test_a_way_back_that_cannot_be_is_ended_by_hand(fleet: Rest, operator: Rest, step: Any) -> None:
    path = begun(fleet, RED_BLACK)
    fleet.post(f"{path}/return")
    assert fleet.get(path).json()["state"] == "returning"
    assert operator.post(f"{path}/abort").status_code == 200
    step()
    assert fleet.get(path).json()["state"] == "aborted"


def test_a_route_that_is_edited_while_a_look_lasts_is_not_written_over(
    fleet: Rest, step: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = begun(fleet, RED_BLACK)
    gather, edited = facts.gather, {"old": 700, "new": 300}

    def gathered_slowly(*asked: Any, **more: Any) -> Any:
        seen = gather(*asked, **more)
        if seen.routes["all"]["fallbacks"] and pools_of() != edited:
            assert fleet.patch("/routes/all", {"pools": edited}).status_code == 200
        return seen

    monkeypatch.setattr(facts, "gather", gathered_slowly)
    rounds(step, lambda: fleet.get(path).json()["state"] == "paused")
    assert (pools_of(), "route 'all'" in fleet.get(path).json()["said"]) == (edited, True)


def test_a_worker_that_dies_and_a_clock_that_goes_back_keep_no_rollout_waiting(
    fleet: Rest, step: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = begun(fleet, RED_BLACK)
    now = timezone.now()
    Rollout.objects.update(look_at=now + runner.CLAIMED / 2)
    assert runner.look_at_all() == 0
    Rollout.objects.update(look_at=now + timedelta(hours=1))
    assert runner.look_at_all() == 1
    assert fleet.get(path).json()["steps"][0]["state"] == "done"


def test_one_that_cannot_be_looked_at_keeps_no_other_waiting(
    fleet: Rest, step: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = begun(fleet, {**RED_BLACK, "pool": "old"}), Rollout.objects.get()
    second.pk, second.pool, second.new_pool = None, "third", ""
    second.save()
    look = runner._look

    def look_at_one(rollout_id: int, late: timedelta) -> None:
        if first.endswith(f"/{rollout_id}"):
            raise OSError
        look(rollout_id, late)

    monkeypatch.setattr(runner, "_look", look_at_one)
    assert runner.look_at_all() == 2
    second.refresh_from_db()
    assert second.state == "done"


def test_one_worker_looks_at_a_rollout_at_a_time(fleet: Rest, step: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    begun(fleet, RED_BLACK)
    others: list[int] = []
    gather = facts.gather

    def slow(*arguments: Any, **more: Any) -> Any:
        others.append(runner.look_at_all())
        return gather(*arguments, **more)

    monkeypatch.setattr(facts, "gather", slow)
    assert runner.look_at_all() == 1
    assert set(others) == {0}


def test_new_engines_are_registered_in_a_pool_with_the_old_ones_settings(fleet: Rest, step: Any) -> None:
    fleet.patch("/pools/old", {"ttft_slo_ms": 700, "work": "long"})
    engines = {"x-1": {"url": "http://10.0.0.7:8000", "served_model": "m", "node": "n-new"}}
    body = {**RED_BLACK, "new_pool": "next", "engines": engines}
    tried = fleet.post(f"/rollouts?dry_run=true&{REASON}", body)
    assert tried.status_code == 201, tried.content
    assert not Pool.objects.filter(name="next").exists()
    item = tried.json()["item"]
    assert (item["cost"]["gpus_before"], item["cost"]["gpus_most"], item["cost"]["gpus_after"]) == (2, 3, 1)
    assert [condition["name"] for condition in item["spec"]["conditions"]] == [
        "ttft_p95", "tpot_p95", "error_ratio", "breaker", "retries", "goodput",
    ]  # fmt: skip
    path = begun(fleet, body)
    made = Pool.objects.get(name="next")
    assert (made.ttft_slo_ms, made.work) == (700, "long")
    assert held_out() == {"x-1": path.replace("/rollouts/", "rollout ")}


def test_a_node_that_vanishes_half_way_takes_it_back(fleet: Rest, step: Any, answered: list[Any]) -> None:
    answered[:] = [100.0]
    path = begun(fleet, RED_BLACK)
    rounds(step, lambda: "new" in pools_of())
    Node.objects.filter(name="n-new").update(reported_at=None)
    runner.look_at_all()
    assert "its node is not heard of" in fleet.get(path).json()["said"]
    assert pools_of() == {"old": 1000}


def test_a_control_plane_that_was_away_itself_takes_no_node_for_vanished(
    fleet: Rest, step: Any, answered: list[Any]
) -> None:
    answered[:] = [100.0]
    path = begun(fleet, RED_BLACK)
    rounds(step, lambda: "new" in pools_of())
    shares, now = pools_of(), timezone.now()
    Target.objects.update(last_seen_at=now - timedelta(seconds=60))
    Node.objects.update(reported_at=now - timedelta(seconds=60))
    runner.look_at_all()
    assert fleet.get(path).json()["said"] == "no agent and no gateway is heard of, so it waits"
    # The nodes' agents come back one after the other.
    Target.objects.update(last_seen_at=timezone.now())
    Node.objects.filter(name="n-old").update(reported_at=timezone.now())
    runner.look_at_all()
    assert (fleet.get(path).json()["state"], pools_of()) == ("running", shares)
    Rollout.objects.update(deaf_at=timezone.now() - timedelta(seconds=60))
    runner.look_at_all()
    assert "its node is not heard of" in fleet.get(path).json()["said"]
    assert pools_of() == {"old": 1000}


def test_a_step_is_watched_anew_after_no_worker_looked_for_longer_than_its_window(
    fleet: Rest, step: Any, answered: list[Any]
) -> None:
    answered[:] = [100.0]
    path = begun(fleet, RED_BLACK, steps=[{"share_permille": 1000, "for_seconds": 100}])
    rounds(step, lambda: "watched for" in fleet.get(path).json()["said"])
    age_steps()
    Rollout.objects.update(look_at=timezone.now() - timedelta(seconds=1000))
    runner.look_at_all()
    assert fleet.get(path).json()["said"] == "watched for 0 of 5 s"


def test_each_role_may_do_what_fits_it(fleet: Rest, operator: Rest, viewer: Rest, outsider: Rest) -> None:
    for rest, status in ((operator, 403), (viewer, 403), (outsider, 401)):
        assert rest.post("/rollouts", RED_BLACK).status_code == status
    path = begun(fleet, RED_BLACK)
    assert viewer.get("/rollouts").json()["items"][0]["kind"] == "red_black"
    assert viewer.get(path).status_code == 200
    assert outsider.get(path).status_code == 401
    for verb in ("pause", "resume", "abort", "return"):
        assert viewer.post(f"{path}/{verb}").status_code == 403
        assert outsider.post(f"{path}/{verb}").status_code == 401
        assert operator.post(f"{path}/{verb}").status_code == 200
    assert viewer.get("/rollouts/999").status_code == 404


def test_every_write_is_in_the_audit(fleet: Rest, operator: Rest) -> None:
    path = begun(fleet, RED_BLACK)
    operator.post(f"{path}/pause?reason=lunch")
    entries = AuditEntry.objects.filter(noun="rollout").order_by("pk")
    assert [(entry.action, entry.reason) for entry in entries] == [
        ("create", "because of a test"), ("update", "lunch"),
    ]  # fmt: skip
