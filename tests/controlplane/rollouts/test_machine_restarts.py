"""A rolling restart from look to look: one engine at a time, and each comes back as it was."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.rollouts import machine
from controlplane.rollouts.observed import ActFacts
from tests.controlplane.rollouts.world import HOLDER, World


def test_a_restart_takes_one_engine_at_a_time_out_before_it_is_drained() -> None:
    world = World.restarting(3)
    while world.rollout.state == "running":
        asked = len(world.asked)
        world.look()
        assert sum(bool(each.held_out_by) for each in world.engines.values()) <= 1
        for name, _ in world.asked[asked:]:
            assert world.engines[name].held_out_by == HOLDER
        world.pass_time(2)
    assert world.rollout.state == "done"
    assert world.asked == [(f"e-{number}", action) for number in range(3) for action in ("drain", "restart")]
    assert not any(each.held_out_by for each in world.engines.values())


def test_nothing_is_drained_before_every_gateway_knows() -> None:
    world = World.restarting(2)
    world.pending = ("gateway/gw-1",)
    for _ in range(20):
        world.look()
    assert world.asked == []
    world.pending = ()
    world.look()
    world.look()
    world.look()
    assert world.asked == [("e-0", "drain")]


@pytest.mark.parametrize(
    ("endings", "capacity", "why"),
    [
        ({"drain": ActFacts("failed", "timeout")}, 1000, "could not drain: e-0 failed: timeout"),
        ({"restart": ActFacts("failed", "did_not_serve")}, 1000, "could not restart: e-0 failed: did_not_serve"),
        ({}, 900, "after 60 s not as it was: e-0: its KV capacity fell from 1,000 to 900 tokens"),
    ],
)
def test_an_engine_that_fails_stops_it_with_the_others_untouched(
    endings: dict[str, ActFacts], capacity: int, why: str
) -> None:
    world = World.restarting(3)
    world.endings = endings
    world.reach("drain")
    world.set("e-0", kv_capacity_tokens=capacity)
    said = ""
    while world.rollout.state == "running":
        said = world.look().said
        world.pass_time(2)
    assert (world.rollout.state, said) == ("failed", why)
    assert {name for name, _ in world.asked} == {"e-0"}
    assert [name for name, each in world.engines.items() if each.held_out_by] == ["e-0"]


def test_a_node_that_vanishes_while_it_should_act_ends_it_at_the_limit() -> None:
    world = World.restarting(2)
    world.endings = {"drain": ActFacts("waiting")}
    world.reach("drain")
    world.look()
    world.look()
    world.set("e-0", silent=True)
    assert not world.look().is_write
    world.pass_time(61)
    decision = world.look()
    assert (decision.state, decision.said) == ("failed", "could not drain: the node of e-0 is not heard of")


def test_a_capacity_may_fall_as_far_as_was_said() -> None:
    world = World.restarting(1, capacity_may_fall_percent=20)
    world.reach("drain")
    world.set("e-0", kv_capacity_tokens=800)
    world.run()
    assert world.rollout.state == "done"


def test_a_gateway_that_refuses_what_takes_an_engine_out_of_service_is_waited_for() -> None:
    world = World.restarting(2)
    world.refusing = ("gateway/gw-1",)
    world.look()
    world.look()
    for _ in range(5):
        assert world.look().said == "gateway/gw-1 refuses the configuration; mend that first"
    assert world.asked == []
    world.refusing = ()
    world.reach("restart")
    assert world.asked == [("e-0", "drain")]


def test_an_engine_that_fails_meanwhile_counts_among_those_that_may_be_out_of_service() -> None:
    world = World.restarting(3)
    world.set("e-2", up=False)
    world.look()
    said = world.look().said
    assert said == "at most 1 may be out of service, and now e-2: it does not answer"
    assert not any(each.held_out_by for each in world.engines.values())
    world.set("e-2", up=True)
    world.run()
    assert world.rollout.state == "done"


def test_an_engine_that_is_down_is_restarted_without_a_drain() -> None:
    world = World.restarting(1)
    world.set("e-0", up=False)
    world.reach("verify")
    assert world.asked == [("e-0", "restart")]


def test_who_is_being_restarted_comes_back_only_when_that_has_ended() -> None:
    world = World.restarting(2)
    world.run_to("restart")
    world.set("e-0", ending_by="restart")
    world.write(machine.taken_back(world.rollout, world.facts(), "by hand"))
    for _ in range(3):
        assert world.look().steps[0].said == "waits for the end of restart of e-0"
    assert world.engines["e-0"].held_out_by == HOLDER
    world.set("e-0", ending_by="")
    world.run()
    assert (world.rollout.state, world.engines["e-0"].held_out_by) == ("returned", "")


@pytest.mark.parametrize("is_back", [True, False])
def test_one_whose_restart_ended_before_its_agent_saw_it_up_is_waited_for_but_not_for_ever(is_back: bool) -> None:
    world = World.restarting(2)
    world.run_to("restart")
    world.set("e-0", ending_by="restart", up=False)
    world.write(machine.taken_back(world.rollout, world.facts(), "by hand"))
    world.look()
    world.set("e-0", ending_by="")
    for _ in range(3):
        assert world.look().steps[0].said == "not ready: e-0: it does not answer"
        world.pass_time(2)
    world.set("e-0", up=is_back)
    world.run()
    assert (world.rollout.state, world.engines["e-0"].held_out_by) == ("returned", "" if is_back else HOLDER)


@pytest.mark.parametrize("change", [{"cordoned": True}, {"held_out_by": "rollout 7"}])
def test_the_last_engine_that_takes_work_is_not_restarted(change: dict[str, Any]) -> None:
    world = World.restarting(2)
    world.set("e-1", **change)
    world.look()
    assert world.look().said == "no other engine of the pool takes work now: e-1"
    assert not world.engines["e-0"].held_out_by
    world.set("e-1", cordoned=False, held_out_by="")
    world.run()
    assert world.rollout.state == "done"
