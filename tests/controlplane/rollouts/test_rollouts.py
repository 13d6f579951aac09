"""Rollouts over REST, with a worker that looks at them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from controlplane.core.changes import SYSTEM, unit_of_work
from controlplane.core.models import AuditEntry, Target
from controlplane.fleet.models import Act, Engine, Model, Node, Pool
from controlplane.rollouts import facts, runner, services
from controlplane.rollouts.machine import Decision
from controlplane.rollouts.models import Rollout
from controlplane.rollouts.observed import Facts
from controlplane.routing.models import Route
from tests.controlplane.configs.staging import acknowledge
from tests.controlplane.conftest import REASON, Rest
from tests.controlplane.rollouts.conftest import do_acts

QUICK = [{"share_permille": 500, "for_seconds": 1}, {"share_permille": 1000, "for_seconds": 1}]
RED_BLACK = {
    "kind": "red_black", "pool": "old", "new_pool": "new", "steps": QUICK, "keep_warm_seconds": 0,
    "watch": {"go_on_unjudged": True},
}  # fmt: skip
RESTART = {"kind": "rolling_restart", "pool": "old"}
# What agents are asked for, in order.
RED_BLACK_ACTS = ["new-1 warm_up", "new-2 warm_up", "old-1 drain", "old-2 drain", "old-1 stop", "old-2 stop"]
RESTART_ACTS = ["old-1 drain", "old-1 restart", "old-2 drain", "old-2 restart"]


def begun(rest: Rest, body: dict[str, Any], **more: Any) -> str:
    answer = rest.post("/rollouts", {**body, **more})
    assert answer.status_code == 201, answer.content
    return f"/rollouts/{answer.json()['item']['id']}"


def held_out() -> dict[str, str]:
    return dict(Engine.objects.exclude(held_out_by="").values_list("name", "held_out_by"))


def pools_of(name: str = "all") -> Any:
    return Route.objects.get(name=name).pools


def rounds(step: Callable[[], list[str]], done: Callable[[], bool], most: int = 60) -> list[str]:
    """Rounds until something is so; all that agents did meanwhile."""
    acted: list[str] = []
    for _ in range(most):
        acted += step()
        if done():
            return acted
        # As if the time that steps last had passed.
        _age_steps()
    raise AssertionError(Rollout.objects.latest("pk").said)


def _age_steps() -> None:
    for row in Rollout.objects.all():
        for each in row.steps.filter(state="running"):
            if each.evidence.get("since_ms"):
                each.evidence["since_ms"] -= 60_000
            if each.kind == "verify" and each.begun_at:
                each.begun_at -= timedelta(seconds=60)
            each.save()


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
        _age_steps()
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


def test_a_restart_goes_through_the_pool_one_engine_at_a_time(fleet: Rest, step: Any) -> None:
    path = begun(fleet, RESTART)
    acted = rounds(step, lambda: fleet.get(path).json()["state"] == "done")
    assert acted == RESTART_ACTS
    assert held_out() == {}


def test_an_engine_that_comes_back_smaller_stops_it(fleet: Rest, step: Any, capacity: list[int]) -> None:
    path = begun(fleet, RESTART, check_limit_seconds=10)
    rounds(step, lambda: fleet.get(path).json()["steps"][0]["state"] == "done")
    capacity[0] = 500
    rounds(step, lambda: fleet.get(path).json()["state"] == "failed")
    says = "after 10 s not as it was: old-1: its KV capacity fell from 1,000 to 500 tokens"
    assert fleet.get(path).json()["said"] == says
    assert list(held_out()) == ["old-1"]
    assert fleet.post(f"{path}/return").json()["item"]["state"] == "returning"
    assert held_out() == {}


def test_what_no_agent_has_begun_is_asked_of_none_when_it_ends(fleet: Rest, gateway: Any, newest: Any) -> None:
    path = begun(fleet, RESTART)
    runner.look_at_all()
    acknowledge(gateway, newest())
    runner.look_at_all()
    assert [act.action for act in Act.objects.filter(state="waiting")] == ["drain"]
    fleet.post(f"{path}/abort")
    assert [act.state for act in Act.objects.all()] == ["cancelled"]


def test_an_engine_that_is_being_restarted_comes_back_when_it_was(fleet: Rest, gateway: Any, newest: Any) -> None:
    path = begun(fleet, RESTART)
    for act in ("drain", "restart"):
        runner.look_at_all()
        acknowledge(gateway, newest())
        runner.look_at_all()
        assert Act.objects.get(state="waiting").action == act
        if act == "drain":
            do_acts()
    Act.objects.filter(action="restart").update(state="running")
    fleet.post(f"{path}/return")
    runner.look_at_all()
    assert fleet.get(path).json()["steps"][-1]["said"] == "waits for the end of restart of old-1"
    assert list(held_out()) == ["old-1"]
    Act.objects.filter(action="restart").update(state="done")
    runner.look_at_all()
    assert held_out() == {}


def test_the_last_engine_of_a_pool_is_not_restarted_while_the_others_are_cordoned(fleet: Rest, step: Any) -> None:
    path = begun(fleet, RESTART, engines=["old-1"])
    Engine.objects.filter(name="old-2").update(cordoned=True)
    for _ in range(3):
        step()
    assert fleet.get(path).json()["said"] == "no other engine of the pool takes work now: old-2"
    Engine.objects.filter(name="old-2").update(cordoned=False)
    rounds(step, lambda: fleet.get(path).json()["state"] == "done")


def test_to_a_spare_and_back(fleet: Rest, step: Any) -> None:
    path = begun(fleet, {"kind": "to_spare", "engines": ["old-2"]})
    acted = rounds(step, lambda: fleet.get(path).json()["state"] == "done")
    assert acted == ["old-2 drain", "old-2 sleep"]
    Engine.objects.filter(name="old-2").update(condition="sleeping")
    back = begun(fleet, {"kind": "from_spare", "engines": ["old-2"]})
    assert rounds(step, lambda: fleet.get(back).json()["state"] == "done") == ["old-2 wake", "old-2 warm_up"]
    assert held_out() == {}


def test_what_a_failed_restart_left_out_of_service_comes_back_when_it_is_mended(fleet: Rest, step: Any) -> None:
    path = begun(fleet, RESTART)
    rounds(step, lambda: bool(held_out()))
    runner.look_at_all()
    assert do_acts("failed", "timeout") == ["old-1 drain"]
    runner.look_at_all()
    assert (fleet.get(path).json()["state"], set(held_out())) == ("failed", {"old-1"})
    Engine.objects.filter(name="old-1").update(state="down")
    back = begun(fleet, {"kind": "from_spare", "engines": ["old-1"]})
    assert rounds(step, lambda: fleet.get(back).json()["state"] == "done") == ["old-1 start", "old-1 warm_up"]
    assert held_out() == {}


WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"kind": "blue_green"}, "/kind", "kind"),
    ({**RED_BLACK, "new_pool": "old"}, "/new_pool", "same_pool"),
    ({**RED_BLACK, "new_pool": "none"}, "/new_pool", "reference"),
    ({**RED_BLACK, "pool": "new", "new_pool": "old"}, "/new_pool", "has_traffic"),
    ({**RED_BLACK, "steps": [{"share_permille": 500}]}, "/steps", "order"),
    ({**RED_BLACK, "conditions": [{"name": "x", "expression": "up{"}]}, "/conditions/0/expression", "promql"),
    ({**RED_BLACK, "engines": {"x": {"url": "x", "served_model": "m"}}}, "/new_pool", "unique"),
    (
        {**RED_BLACK, "new_pool": "next", "engines": {"x": {"url": "x", "served_model": "m"}}},
        "/engines/x/url", "url",
    ),
    ({**RED_BLACK, "warm_up": {"schemas": ["[]"]}}, "/warm_up/schemas/0", "schema"),
    ({**RESTART, "max_unavailable": 2}, "/max_unavailable", "range"),
    ({**RESTART, "engines": ["new-1"]}, "/engines/new-1", "reference"),
    ({**RESTART, "arguments": {"max num seqs": 1}}, "/arguments/max num seqs", "key"),
    ({"kind": "to_spare", "engines": ["old-1", "old-2"]}, "/engines", "last_engine"),
    ({"kind": "to_spare", "engines": ["old-1", "new-1"]}, "/engines", "one_pool"),
    ({"kind": "from_spare", "engines": ["old-1"]}, "/engines", "no_spare"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "path", "rule"), WRONG)
def test_what_cannot_be_is_refused_by_name(fleet: Rest, body: dict[str, Any], path: str, rule: str) -> None:
    answer = fleet.post("/rollouts", body)
    assert answer.status_code == 422, answer.content
    assert (path, rule) in [(problem["path"], problem["rule"]) for problem in answer.json()["problems"]], answer.content
    assert not Rollout.objects.exists()


def test_what_the_gate_stops_does_not_begin(fleet: Rest, nothing_in_the_way: list[str]) -> None:
    nothing_in_the_way.append("n-new: 3 files of org/m-1 are missing")
    problem = fleet.post("/rollouts", RED_BLACK).json()["problems"][0]
    assert (problem["rule"], problem["message"]) == ("gate", "n-new: 3 files of org/m-1 are missing")


def test_a_new_side_of_another_model_needs_rules_that_say_whose_requests_they_take(fleet: Rest) -> None:
    limits = {"max_context_tokens": 8192, "default_max_tokens": 256, "max_tokens": 2048}
    fleet.post("/models", {"name": "org/m-2", **limits})
    Pool.objects.filter(name="new").update(model=Model.objects.get(name="org/m-2"))
    problem = fleet.post("/rollouts", RED_BLACK).json()["problems"][0]
    assert (problem["path"], problem["rule"]) == ("/new_pool", "any_model")
    fleet.patch("/routes/all", {"match": {"models": ["org/m-1"]}})
    begun(fleet, RED_BLACK)


def test_an_engine_whose_node_forbids_it_is_named(fleet: Rest) -> None:
    from controlplane.fleet.models import Node

    Node.objects.filter(name="n-old").update(allowed_acts={"old-1": ["drain", "restart"]})
    problems = fleet.post("/rollouts", RESTART).json()["problems"]
    says = "the policy of node 'n-old' does not allow drain, restart on 'old-2'"
    assert [problem["message"] for problem in problems] == [says]


def test_one_rollout_a_pool_at_a_time(fleet: Rest) -> None:
    begun(fleet, RED_BLACK)
    for body in (RED_BLACK, RESTART, {"kind": "to_spare", "engines": ["new-1"]}):
        answer = fleet.post("/rollouts", body)
        assert (answer.status_code, answer.json()["code"]) == (409, "rollout"), answer.content


def test_a_stage_that_changes_its_route_is_ended_first(fleet: Rest, gateway: Any) -> None:
    stage = {"patch": {"routes": {"all": {"order": 7}}}, "targets": ["gateway/gw-1"]}
    assert fleet.post("/config/stages", stage).status_code == 201
    answer = fleet.post("/rollouts", RED_BLACK)
    assert (answer.status_code, answer.json()["code"]) == (409, "staged")


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
    _age_steps()
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


def test_a_new_version_is_published_when_its_engines_are_ready(fleet: Rest, step: Any) -> None:
    fleet.post("/models", {"name": "org/m-2", "max_context_tokens": 8192})
    engines = {"v-1": {"url": "http://10.0.0.8:8000", "served_model": "m", "node": "n-new"}}
    body = {"kind": "versioned", "family": "m", "version": "2", "model": "org/m-2", "pool": "m-2", "like": "old"}
    path = begun(fleet, {**body, "engines": engines})
    assert list(held_out()) == ["v-1"]
    rounds(step, lambda: fleet.get(path).json()["state"] == "done")
    assert held_out() == {}
    route = Route.objects.get(name="m-2")
    assert (route.pools, list(route.match["models"])) == ({"m-2": 1000}, ["org/m-2"])
    newest = fleet.get("/model-versions").json()["items"][0]
    assert (newest["family"], newest["version"], newest["model"]) == ("m", "2", "org/m-2")


VERSIONED = {"kind": "versioned", "family": "m", "version": "2.0", "model": "org/m-1", "pool": "new"}


def test_what_cannot_be_published_is_refused_before_an_engine_is_touched(fleet: Rest) -> None:
    published = fleet.post("/model-versions", {"family": "m", "version": "2.0", "model": "org/m-1"})
    assert published.status_code == 201, published.content
    answer = fleet.post("/rollouts", VERSIONED)
    assert (answer.status_code, "is published already" in answer.json()["detail"]) == (409, True), answer.content
    assert held_out() == {}


def test_a_version_that_is_published_is_not_taken_back_and_one_that_is_not_leaves_service(
    fleet: Rest, step: Any
) -> None:
    path = begun(fleet, VERSIONED)
    rounds(step, lambda: fleet.get(path).json()["said"] == "publish begins" or not held_out())
    assert fleet.post(f"{path}/return").status_code == 200
    rounds(step, lambda: fleet.get(path).json()["state"] == "returned")
    assert set(held_out()) == {"new-1", "new-2"}
    again = begun(fleet, VERSIONED)
    rounds(step, lambda: bool(fleet.get("/model-versions").json()["items"]))
    assert fleet.post(f"{again}/return").status_code == 409


def test_a_version_for_a_pool_of_another_model_is_refused(fleet: Rest) -> None:
    fleet.post("/models", {"name": "org/m-2", "max_context_tokens": 8192})
    body = {"kind": "versioned", "family": "m", "version": "2", "model": "org/m-2", "pool": "new"}
    answer = fleet.post("/rollouts", body)
    assert (answer.status_code, answer.json()["detail"][:8]) == (422, "/model: "), answer.content
