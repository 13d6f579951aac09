"""What cannot be a rollout: refused by name over REST, before anything is touched."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.fleet.models import Model, Node, Pool
from controlplane.rollouts.models import Rollout
from tests.controlplane.conftest import Rest
from tests.controlplane.rollouts.driving import RED_BLACK, RESTART, begun

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
