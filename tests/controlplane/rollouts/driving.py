"""Rollouts over REST: how tests begin them, drive them on, and look at what they left."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from controlplane.fleet.models import Engine
from controlplane.rollouts import runner
from controlplane.rollouts.models import Rollout
from controlplane.routing.models import Route
from tests.controlplane.configs.staging import acknowledge
from tests.controlplane.conftest import Rest
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
        age_steps()
    raise AssertionError(Rollout.objects.latest("pk").said)


def age_steps() -> None:
    for row in Rollout.objects.all():
        for each in row.steps.filter(state="running"):
            if each.evidence.get("since_ms"):
                each.evidence["since_ms"] -= 60_000
            if each.kind == "verify" and each.begun_at:
                each.begun_at -= timedelta(seconds=60)
            each.save()


def asked_to_restart(fleet: Rest, gateway: Any, newest: Any) -> str:
    """A rolling restart whose first engine is drained, and its agent asked for the restart."""
    path = begun(fleet, RESTART)
    for act in ("drain", "restart"):
        runner.look_at_all()
        acknowledge(gateway, newest())
        runner.look_at_all()
        if act == "drain":
            do_acts()
    return path
