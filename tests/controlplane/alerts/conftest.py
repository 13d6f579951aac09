"""A fleet of three nodes with an engine each, and agents that post events."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from controlplane.configs.hub import heads
from controlplane.configs.publisher import publish
from controlplane.core.fields import epoch_ms
from controlplane.core.models import Target
from controlplane.core.tokens import new_token, token_hash
from tests.controlplane.conftest import Rest

XID_79 = "XID 79 (GPU has fallen off the bus) on GPU 3 (H100, 0000:41:00.0): class hardware, action cordon_reboot"
_numbers = itertools.count()


def event(kind: str = "xid", severity: str = "critical", detail: str = XID_79, **changes: Any) -> dict[str, Any]:
    """An event of n1, of now."""
    return {
        "id": f"event-{next(_numbers):08}",
        "at": epoch_ms(timezone.now()),
        "node": "n1",
        "kind": kind,
        "subject": "GPU-3",
        "severity": severity,
        "detail": detail,
        **changes,
    }


def target(kind: str, name: str) -> Rest:
    """An enrolled target's script."""
    token, now = new_token("hwg"), timezone.now()
    Target.objects.create(
        kind=kind,
        name=name,
        version="test",
        protocol=1,
        token_hash=token_hash(token),
        token_expires_at=now + timedelta(days=1),
        last_seen_at=now,
    )
    return Rest(token)


@pytest.fixture
def fleet(admin: Rest) -> Rest:
    """An administrator's REST: nodes n1 to n3, each with the engine of its number, all in one pool with a route."""
    made = [
        ("/models", {"name": "org/m-1", "max_context_tokens": 8192}),
        ("/pools", {"name": "short", "model": "org/m-1"}),
        *(("/nodes", {"name": f"n{number}"}) for number in (1, 2, 3)),
        *(
            (
                "/engines",
                {
                    "name": f"e{number}",
                    "url": f"http://10.0.0.{number}:8000",
                    "pool": "short",
                    "served_model": "m",
                    "node": f"n{number}",
                },
            )
            for number in (1, 2, 3)
        ),
        ("/routes", {"name": "all", "pools": {"short": 1000}}),
    ]
    for path, body in made:
        answer = admin.post(path, body)
        assert answer.status_code == 201, answer.content
    publish()
    heads.refresh()
    return admin


@pytest.fixture
def policy_on(fleet: Rest) -> None:
    assert fleet.patch("/cordon-policy", {"enabled": True}).status_code == 200


@pytest.fixture
def post(fleet: Rest) -> Callable[..., None]:
    """Post events, each as its own node's agent does, in one body a node; they must be taken."""
    agents = {name: target("node", name) for name in ("n1", "n2", "n3")}

    def send(*events: dict[str, Any]) -> None:
        for node in dict.fromkeys(each["node"] for each in events):
            body = [each for each in events if each["node"] == node]
            answer = agents[node].post("/events", body)
            assert answer.status_code == 200, answer.content
            assert answer.json() == {"taken": [each["id"] for each in body]}

    return send
