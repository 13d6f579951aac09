"""`?wait=applied`: from a change to its revision, and on until the targets run it."""

from __future__ import annotations

import time
import uuid
from typing import Any

from controlplane import settings_rows as rows
from controlplane.configs.convergence import State, convergence, standing_with
from controlplane.configs.history import Damaged
from controlplane.configs.hub import hub
from controlplane.core.idle import give_back_connection
from controlplane.core.models import AuditEntry
from wire.canonical import Document


def wait_applied(change_id: uuid.UUID, timeout_seconds: float) -> Document:
    """Wait until every target that is not lost applied or refused the change's revision, or the time is over.

    `revision` is null where it was not published in time; targets are named as kind/name.
    """
    began = time.monotonic()
    deadline = began + timeout_seconds
    hub.start()
    while True:
        seen = hub.changes
        revision = _revision(change_id)
        found = _targets()
        targets = [(target, standing_with(target, revision)) for target in found or ()]
        waits = revision is None or found is None or any(state in _WAITED_FOR for _, state in targets)
        left = deadline - time.monotonic()
        if not waits or left <= 0:
            return _answer(revision, targets, time.monotonic() - began)
        give_back_connection()
        # Changes at other web processes wake nobody here; hence the bound.
        hub.wait_change(seen, min(left, rows.POLL_MS.read() / 1000))


_WAITED_FOR = (State.PENDING, State.NEVER)


def _targets() -> list[dict[str, Any]] | None:
    try:
        found: list[dict[str, Any]] = convergence()["targets"]
    except Damaged:
        # The write is stored all the same; it is published with what takes the damaged revision's place.
        return None
    return found


def _revision(change_id: uuid.UUID) -> int | None:
    numbers = AuditEntry.objects.filter(change_id=change_id, revision__isnull=False).values_list("revision", flat=True)
    return numbers.order_by("-revision").first()


def _answer(revision: int | None, targets: list[tuple[dict[str, Any], State]], waited_seconds: float) -> Document:
    def named(*states: State) -> list[str]:
        return [f"{target['kind']}/{target['name']}" for target, state in targets if state in states]

    return {
        "revision": revision,
        "targets": len(targets),
        "applied": len(named(State.APPLIED)),
        "pending": named(*_WAITED_FOR),
        "refused": [
            {"target": f"{target['kind']}/{target['name']}", "problems": target["problems"]}
            for target, state in targets
            if state is State.REFUSED
        ],
        "lost": named(State.LOST),
        "waited_ms": round(waited_seconds * 1000),
    }
