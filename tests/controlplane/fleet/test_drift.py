"""Engines beside what their pools desire."""

from __future__ import annotations

from controlplane.fleet import drift
from controlplane.fleet.models import Engine

DESIRED = {
    "engine_arguments": {"max-num-seqs": 64, "seed": 1},
    "adapters": {"support": "/srv/support", "sales": "/srv/s"},
}


def report(agent, **facts):
    engine = {"name": "e1", "state": "up", **facts}
    assert agent.post("/nodes/report", {"version": "1", "engines": [engine]}).status_code == 200


def test_an_engine_that_nobody_told_of_differs_in_everything_and_one_without_wishes_in_nothing(fleet):
    assert drift.differing(Engine.objects.get()) == {}
    fleet.patch("/pools/short", DESIRED)
    assert drift.differing(Engine.objects.get()) == {"max-num-seqs": ("64", None), "seed": ("1", None)}


def test_what_its_agent_tells_is_held_against_its_pool(fleet, agent):
    fleet.patch("/pools/short", DESIRED)
    report(
        agent,
        arguments={"max_num_seqs": "128", "seed": "1"},
        adapters={"support": "/srv/support"},
        adapter_problems={"sales": "path_not_allowed: no such folder"},
    )
    shown = fleet.get("/engines/e1").json()
    assert shown["differing_arguments"] == {"max-num-seqs": {"desired": "64", "actual": "128"}}
    assert shown["adapters"] == {"support": "/srv/support"}
    assert shown["missing_adapters"] == {"sales": "path_not_allowed: no such folder"}
    fleet.patch("/pools/short", {"engine_arguments": {"max-num-seqs": 128}, "adapters": {}})
    shown = fleet.get("/engines/e1").json()
    assert (shown["differing_arguments"], shown["missing_adapters"]) == ({}, {})
