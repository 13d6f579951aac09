"""Rolling restarts, and engines that are put aside and taken back, over REST."""

from __future__ import annotations

from typing import Any

from controlplane.fleet.models import Act, Engine
from controlplane.rollouts import runner
from tests.controlplane.configs.staging import acknowledge
from tests.controlplane.conftest import Rest
from tests.controlplane.rollouts.conftest import do_acts
from tests.controlplane.rollouts.driving import RESTART, RESTART_ACTS, begun, held_out, rounds


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
