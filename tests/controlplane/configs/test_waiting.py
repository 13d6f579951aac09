from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

from controlplane.configs import waiting
from controlplane.configs.heads import Heads
from controlplane.configs.hub import Hub
from tests.controlplane.conftest import Rest


@pytest.fixture(autouse=True)
def _no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub's own thread is not wanted beside a test's transaction."""
    monkeypatch.setattr(Hub, "start", lambda self: None)


@pytest.mark.django_db(transaction=True)
def test_who_waits_holds_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are fewer of them than requests that may wait, and acknowledgements need one to end the waiting."""
    held: list[bool] = []

    def wait_change(self: Hub, seen: int, timeout_seconds: float) -> int:
        held.append(connection.connection is not None)
        return seen

    monkeypatch.setattr(Hub, "wait_change", wait_change)
    waiting.wait_applied(uuid.uuid4(), 0.05)
    assert held
    assert not any(held)


def test_a_later_change_does_not_hold_up_who_waits_for_an_earlier_one(
    target_of: Any, newest: Callable[[], Heads], admin: Rest
) -> None:
    target = target_of()
    change_id = uuid.UUID(admin.post("/tenants", {"name": "first"}).json()["change_id"])
    head = newest().newest
    assert head is not None
    body = {"revision": head.number, "hash": head.slice("gateway", "gw-1").hash, "applied_at": 1}
    assert target.post("/config/ack", body).status_code == 200
    admin.post("/tenants", {"name": "second"})
    newest()
    stands = waiting.wait_applied(change_id, 0)
    assert (stands["revision"], stands["applied"], stands["pending"]) == (head.number, 1, [])
