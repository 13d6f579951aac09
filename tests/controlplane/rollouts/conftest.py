"""A pool that is served, a second one that nobody is sent to yet, and a gateway that applies what it is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.utils import timezone

from controlplane.configs.heads import Heads
from controlplane.configs.publisher import publish
from controlplane.core.models import Target
from controlplane.fleet.models import Act, Engine, Node
from controlplane.rollouts import runner
from tests.controlplane.configs.conftest import answered, newest, target_of
from tests.controlplane.configs.staging import acknowledge
from tests.controlplane.conftest import Rest

__all__ = ["answered", "newest", "target_of"]

MODEL = {"name": "org/m-1", "max_context_tokens": 8192, "default_max_tokens": 256, "max_tokens": 2048}
ACTS = ["start", "stop", "drain", "restart", "sleep", "wake", "warm_up"]


@pytest.fixture
def fleet(admin: Rest, target_of: Any) -> Rest:
    """Pools `old`, to which a route leads, and `new`: two engines each, on a node each, whose agents report."""
    made: list[tuple[str, dict[str, Any]]] = [("/models", MODEL)]
    for pool in ("old", "new"):
        made += [("/pools", {"name": pool, "model": "org/m-1"}), ("/nodes", {"name": f"n-{pool}"})]
        for number in (1, 2):
            url = f"http://10.0.0.{number}:80{len(made):02}"
            at = {"node": f"n-{pool}", "url": url, "pool": pool, "served_model": "m"}
            made.append(("/engines", {"name": f"{pool}-{number}", **at}))
    for path, body in [*made, ("/routes", {"name": "all", "pools": {"old": 1000}})]:
        answer = admin.post(path, body)
        assert answer.status_code == 201, answer.content
    for pool in ("old", "new"):
        target_of("node", f"n-{pool}")
    report()
    return admin


def report(**facts: Any) -> None:
    """As if every agent had told just now that all is well, but for these columns of the engines."""
    now = timezone.now()
    Target.objects.update(last_seen_at=now)
    for node in Node.objects.all():
        node.reported_at = now
        node.allowed_acts = dict.fromkeys(node.engines.values_list("name", flat=True), ACTS)
        node.save()
    told = {"state": "up", "condition": "ok", "kv_capacity_tokens": 1000, "reported_at": now, **facts}
    Engine.objects.update(**told)


def do_acts(state: str = "done", detail: str = "") -> list[str]:
    """Let agents end what they were asked; which acts that were, as `engine action`."""
    acts = list(Act.objects.filter(state="waiting").order_by("pk"))
    Act.objects.filter(state="waiting").update(state=state, detail=detail, state_at=timezone.now())
    return [f"{act.engine.name if act.engine else ''} {act.action}" for act in acts]


@pytest.fixture
def gateway(target_of: Any, fleet: Rest, newest: Callable[[], Heads]) -> Any:
    made = target_of("gateway", "gw-1")
    acknowledge(made, newest())
    return made


@pytest.fixture
def capacity() -> list[int]:
    """How many tokens each engine says that it holds."""
    return [1000]


@pytest.fixture
def step(gateway: Any, newest: Callable[[], Heads], capacity: list[int]) -> Callable[[], list[str]]:
    """One round of everybody: a worker looks, the revision is published and applied, agents act and report."""

    def go() -> list[str]:
        runner.look_at_all()
        if publish() is not None:
            acknowledge(gateway, newest())
        done = do_acts()
        report(kv_capacity_tokens=capacity[0])
        return done

    return go


@pytest.fixture(autouse=True)
def nothing_in_the_way(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the gate has against the new engines; tests add to it."""
    found: list[str] = []
    monkeypatch.setattr("controlplane.rollouts.candidates.in_the_way", lambda pool, engines: list(found))
    return found
