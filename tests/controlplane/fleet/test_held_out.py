"""Engines that the program keeps out of service, beside people's cordons."""

from __future__ import annotations

from importlib import import_module

import pytest
from django.apps import apps

from controlplane.core.changes import SYSTEM, unit_of_work
from controlplane.core.errors import Conflict
from controlplane.core.models import AuditEntry
from controlplane.fleet.models import Engine
from controlplane.fleet.services import ENGINES
from tests.controlplane.core.configuration import compiled


def hold_out(by: str) -> None:
    with unit_of_work(SYSTEM, "a test") as unit:
        ENGINES.hold_out(unit, "e1", by)


def put_back(by: str) -> None:
    with unit_of_work(SYSTEM, "a test") as unit:
        ENGINES.put_back(unit, "e1", by)


def test_an_engine_that_is_held_out_takes_no_work_until_it_is_put_back(fleet):
    hold_out("rollout 12")
    assert compiled("engines", "e1")["cordoned"] is True
    shown = fleet.get("/engines/e1").json()
    assert (shown["held_out_by"], shown["cordoned"]) == ("rollout 12", False)
    put_back("rollout 12")
    assert compiled("engines", "e1")["cordoned"] is False
    assert fleet.get("/engines/e1").json()["held_out_by"] is None


def test_a_persons_uncordon_does_not_put_it_back_nor_the_program_take_a_cordon(fleet):
    hold_out("rollout 12")
    fleet.post("/engines/e1/uncordon")
    assert compiled("engines", "e1")["cordoned"] is True
    fleet.post("/engines/e1/cordon")
    put_back("rollout 12")
    assert compiled("engines", "e1")["cordoned"] is True
    fleet.post("/engines/e1/uncordon")
    assert compiled("engines", "e1")["cordoned"] is False


def test_only_who_holds_it_out_can_put_it_back(fleet):
    hold_out("rollout 12")
    with pytest.raises(Conflict, match="rollout 12"):
        hold_out("rollout 13")
    put_back("rollout 13")
    assert Engine.objects.get().held_out_by == "rollout 12"


def test_a_repeat_by_the_same_holder_changes_nothing(fleet):
    hold_out("rollout 12")
    before = AuditEntry.objects.count()
    hold_out("rollout 12")
    assert AuditEntry.objects.count() == before


def test_people_cannot_set_it(fleet):
    assert fleet.patch("/engines/e1", {"held_out_by": "me"}).status_code == 422


def test_a_drain_of_an_engine_that_is_held_out_cordons_it_no_more(fleet, agent):
    hold_out("rollout 12")
    assert fleet.post("/acts", {"engine": "e1", "action": "drain"}).status_code == 201
    assert Engine.objects.get().cordoned is False


def report(agent, **facts):
    engine = {"name": "e1", "state": "up", **facts}
    assert agent.post("/nodes/report", {"version": "1", "engines": [engine]}).status_code == 200


def test_an_engine_that_its_node_is_about_to_end_is_held_out_until_it_is_back(fleet, agent):
    report(agent)
    before = AuditEntry.objects.count()
    report(agent, leaving=True)
    report(agent, leaving=True, state="down")
    assert compiled("engines", "e1")["cordoned"] is True
    assert fleet.get("/engines/e1").json()["held_out_by"] == "its node, which is about to end it"
    report(agent)
    assert compiled("engines", "e1")["cordoned"] is False
    assert AuditEntry.objects.count() == before + 2


def test_one_that_its_node_held_out_before_the_holder_had_another_name_is_put_back_too(fleet, agent):
    Engine.objects.update(held_out_by="its node's pre-stop hook")
    import_module("controlplane.fleet.migrations.0010_cuda_version").rename_holder(apps, None)
    report(agent)
    assert Engine.objects.get().held_out_by == ""


def test_a_node_takes_nothing_back_that_a_rollout_holds_out(fleet, agent):
    hold_out("rollout 12")
    report(agent, leaving=True)
    report(agent)
    assert Engine.objects.get().held_out_by == "rollout 12"
