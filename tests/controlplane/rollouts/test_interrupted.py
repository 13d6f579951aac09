"""Rollouts that workers, gateways, agents and people cut across."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from controlplane.core.models import AuditEntry, Target
from controlplane.fleet.models import Act
from controlplane.rollouts import runner
from controlplane.rollouts.models import Rollout
from tests.controlplane.conftest import Rest
from tests.controlplane.core.racing import at_once, two_writers
from tests.controlplane.rollouts.conftest import report
from tests.controlplane.rollouts.driving import (
    RED_BLACK,
    RED_BLACK_ACTS,
    RESTART,
    RESTART_ACTS,
    asked_to_restart,
    begun,
    held_out,
    pools_of,
    rounds,
)


class Killed(BaseException):
    """What ends a worker's look where it stands."""


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize(("body", "acts"), [(RED_BLACK, RED_BLACK_ACTS), (RESTART, RESTART_ACTS)])
def test_a_worker_that_is_killed_at_each_write_leaves_it_to_the_next_and_nothing_is_done_twice(
    fleet: Rest,
    step: Any,
    answered: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    body: dict[str, Any],
    acts: list[str],
    kept: bool,
) -> None:
    """`kept`: it dies once the write is there, and otherwise just before; then the next one writes it."""
    answered[:] = [100.0]
    name = "_carry_out" if kept else "carry_out"
    look, write = runner.look_at_all, getattr(runner, name)
    died: set[int] = set()

    def die(*given: Any) -> None:
        write(*given)
        at = Rollout.objects.get().writes
        if at not in died:
            died.add(at)
            raise Killed

    def look_and_die() -> int:
        with suppress(Killed):
            look()
        # Its claim is over.
        Rollout.objects.update(look_at=timezone.now())
        return 1

    monkeypatch.setattr(runner, name, die)
    monkeypatch.setattr(runner, "look_at_all", look_and_die)
    path = begun(fleet, body)
    assert rounds(step, lambda: fleet.get(path).json()["state"] == "done", most=200) == acts
    assert len(died) == Rollout.objects.get().writes, "it died at every one"
    entries = AuditEntry.objects.filter(noun="route", key="all", action="update")
    led = [(str(after["pools"]), str(after["fallbacks"])) for after in entries.values_list("after", flat=True) if after]
    assert len(led) == len(set(led)) == (4 if body is RED_BLACK else 0)


def test_an_engine_whose_restart_was_begun_before_it_was_cancelled_comes_back_when_that_has_ended(
    fleet: Rest, gateway: Any, newest: Any
) -> None:
    path = asked_to_restart(fleet, gateway, newest)
    restart = Act.objects.get(state="waiting")
    fleet.post(f"{path}/return")
    assert (Act.objects.get(pk=restart.pk).state, list(held_out())) == ("cancelled", ["old-1"])
    runner.look_at_all()
    assert list(held_out()) == ["old-1"], "its agent has not told since"
    # It had begun: what its report says of it, as it is stored.
    Act.objects.filter(pk=restart.pk).update(state="running")
    report()
    runner.look_at_all()
    assert list(held_out()) == ["old-1"]
    Act.objects.filter(pk=restart.pk).update(state="done")
    runner.look_at_all()
    assert held_out() == {}


def test_an_engine_whose_restart_nobody_had_begun_is_back_once_its_agent_has_told(
    fleet: Rest, gateway: Any, newest: Any
) -> None:
    path = asked_to_restart(fleet, gateway, newest)
    fleet.post(f"{path}/return")
    report()
    runner.look_at_all()
    assert held_out() == {}


def test_a_gateway_that_nobody_hears_of_is_not_waited_for_and_named(
    fleet: Rest, step: Any, target_of: Any, answered: list[Any]
) -> None:
    answered[:] = [100.0]
    target_of("gateway", "gw-2")
    silent = Target.objects.filter(name="gw-2")
    path = begun(fleet, RED_BLACK)
    rounds(step, lambda: fleet.get(path).json()["said"] == "waits for gateway/gw-2")

    def and_gone() -> list[str]:
        acted: list[str] = step()
        silent.update(last_seen_at=timezone.now() - timedelta(hours=1))
        return acted

    and_gone()
    rounds(and_gone, lambda: fleet.get(path).json()["state"] == "done")
    said = [each["said"] for each in fleet.get(path).json()["steps"] if each["kind"] == "shift"]
    assert said == [
        "both sides take what the other cannot; gateway/gw-2 is not heard of",
        *["every condition held; gateway/gw-2 is not heard of"] * 2,
    ]


@two_writers
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("press", ["pause", "abort", "return"])
def test_of_two_people_who_press_at_once_one_is_told_that_it_is_so_already(
    fleet: Rest, operator: Rest, step: Any, answered: list[Any], press: str
) -> None:
    answered[:] = [100.0]
    path = begun(fleet, RED_BLACK)
    rounds(step, lambda: "new" in pools_of())
    before = Rollout.objects.get().writes
    statuses: list[int] = []
    assert at_once(*[lambda: statuses.append(operator.post(f"{path}/{press}").status_code)] * 2) == [None, None]
    assert sorted(statuses) == [200, 409]
    assert Rollout.objects.get().writes == before + 1


def test_one_that_goes_back_can_be_ended_and_gone_back_with_again(
    fleet: Rest, operator: Rest, step: Any, answered: list[Any]
) -> None:
    answered[:] = [100.0]
    path = begun(fleet, RED_BLACK)
    rounds(step, lambda: "new" in pools_of())
    for press, state in (("return", "returning"), ("abort", "aborted"), ("return", "returning")):
        assert operator.post(f"{path}/{press}").json()["item"]["state"] == state
        assert pools_of() == {"old": 1000}
    rounds(step, lambda: fleet.get(path).json()["state"] == "returned")
    assert set(held_out()) == {"new-1", "new-2"}
