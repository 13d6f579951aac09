from __future__ import annotations

from controlplane.core.changes import SYSTEM, sections, unit_of_work
from controlplane.fleet import services
from controlplane.fleet.models import Node
from tests.controlplane.core.configuration import compiled
from tests.controlplane.fleet.conftest import problem_paths
from wire import snapshot
from wire.problems import type_problems


def test_a_cordon_reaches_the_node_and_all_its_engines(fleet):
    answer = fleet.post("/nodes/n1/cordon?reason=XID+79").json()
    assert answer["item"]["cordoned"] is True
    assert answer["patch"] == {
        "nodes": {"n1": {"cordoned": True, "cordon_reason": "XID 79"}},
        "engines": {"e1": {"cordoned": True}},
    }
    assert type_problems(compiled("nodes", "n1"), snapshot.NodeState) == []
    lifted = fleet.post("/nodes/n1/uncordon").json()
    assert lifted["patch"] == {
        "nodes": {"n1": {"cordoned": False, "cordon_reason": None}},
        "engines": {"e1": {"cordoned": False}},
    }


def test_uncordoning_a_node_leaves_an_engine_that_was_cordoned_itself(fleet):
    fleet.post("/engines/e1/cordon")
    fleet.post("/nodes/n1/cordon")
    fleet.post("/nodes/n1/uncordon")
    assert compiled("engines", "e1")["cordoned"] is True
    assert fleet.post("/engines/e1/uncordon").json()["patch"] == {"engines": {"e1": {"cordoned": False}}}


def test_a_node_has_only_a_name_to_give(admin):
    assert problem_paths(admin.post("/nodes", {"name": "n1", "cordoned": True})) == {"/cordoned"}
    assert not Node.objects.exists()


def test_a_node_with_engines_is_not_deleted(fleet):
    refused = fleet.delete("/nodes/n1")
    assert refused.status_code == 409
    assert "engine 'e1'" in refused.json()["detail"]
    fleet.delete("/engines/e1")
    assert fleet.delete("/nodes/n1").json()["patch"] == {"nodes": {"n1": None}}


def test_a_cordon_of_an_unknown_node_is_not_found(admin):
    assert admin.post("/nodes/nobody/cordon").status_code == 404


def test_ensuring_a_node_makes_it_once(db):
    with unit_of_work(SYSTEM, "enrolled") as unit:
        first = services.ensure_node(unit, "n1")
    with unit_of_work(SYSTEM, "enrolled again") as unit:
        assert services.ensure_node(unit, "n1") == first
    assert unit.changes == []


def test_a_rollback_has_no_way_to_lift_a_cordon():
    assert sections["nodes"].restore is None
    assert sections["engines"].restore is None


def test_a_node_is_not_named_as_the_call_that_agents_report_to(admin):
    refused = admin.post("/nodes", {"name": "report"})
    assert problem_paths(refused) == {"/name"}
    assert not Node.objects.exists()
