"""A worker and agents whose clock a test moves."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from controlplane.alerts.models import Alert, IncidentState
from controlplane.fleet.models import Act, Engine, Gpu, Node
from controlplane.remediation import runner
from controlplane.remediation.models import Remediation
from tests.controlplane.alerts.conftest import fleet, policy_on, post  # noqa: F401 - fixtures
from tests.controlplane.conftest import Rest

Post = Callable[..., None]
ACTS = ["drain", "stop", "start", "restart"]
XID_95 = "XID 95 (Uncontained ECC error) on GPU 3 (H100, 0000:41:00.0): class memory, action cordon_drain_reset"


class World:
    """The worker's clock, and agents that do what they are asked."""

    def __init__(self, rest: Rest) -> None:
        self.rest, self.now = rest, timezone.now()
        Node.objects.update(allowed_acts={"": ["reset_gpu", "reboot"], "e1": ACTS, "e2": ACTS, "e3": ACTS})
        Gpu.objects.create(
            node=Node.objects.get(name="n1"), uuid="GPU-3", index=3, model="H100", reported_at=self.now, state="ok"
        )
        self.report()

    def report(self, **changed: Any) -> None:
        Engine.objects.update(**({"state": "up", "condition": "ok"} | changed))
        self.heard()

    def heard(self) -> None:
        Node.objects.update(reported_at=self.now)
        Engine.objects.update(reported_at=self.now)
        Gpu.objects.update(reported_at=self.now)

    def look(self, seconds: float = 5, *, silent: bool = False) -> Remediation:
        self.now += timedelta(seconds=seconds)
        if not silent:
            self.heard()
        runner.look_at_all(self.now)
        return Remediation.objects.latest("pk")

    def act(self, state: str = "done", detail: str = "") -> list[tuple[str, str]]:
        """Let agents end what they were asked; what that was."""
        waiting = Act.objects.filter(state="waiting").order_by("pk")
        asked = [(act.action, act.engine.name if act.engine else act.node.name) for act in waiting]
        waiting.update(state=state, detail=detail, state_at=self.now)
        self.now += timedelta(seconds=5)
        self.report()
        return asked


@pytest.fixture
def world(fleet: Rest) -> World:  # noqa: F811
    return World(fleet)


@pytest.fixture
def acting(world: World, policy_on: None) -> World:  # noqa: F811
    changed = {"mode": "act", "verify_ms": 60_000, "min_nodes": 2}
    assert world.rest.patch("/remediation-policy", changed).status_code == 200
    return world


def said(remediation: Remediation) -> tuple[str, str]:
    return remediation.state, remediation.said


def firing() -> list[str]:
    return list(
        Alert.objects.filter(state=IncidentState.FIRING).order_by("pk").values_list("labels__alertname", flat=True)
    )
