"""Stages as tests begin them, and targets that take part in them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from controlplane.configs import stage_watch
from controlplane.configs.heads import Heads
from controlplane.configs.models import Stage
from tests.controlplane.conftest import REASON, Rest

CHANGE = {"tenants": {"acme": {"tpm_limit": 7}}}


def begin(rest: Rest, query: str = "", **fields: Any) -> Any:
    return rest.post(f"/config/stages?{REASON}{query}", {"patch": CHANGE, "targets": ["gateway/gw-1"], **fields})


def begun(rest: Rest, query: str = "", **fields: Any) -> str:
    answer = begin(rest, query, **fields)
    assert answer.status_code == 201, answer.content
    return f"/config/stages/{answer.json()['item']['id']}"


def limit_at(heads: Heads, name: str) -> Any:
    assert heads.newest is not None
    return heads.newest.slice("gateway", name).content["tenants"]["acme"].get("tpm_limit")


def acknowledge(target: Any, heads: Heads, **changes: Any) -> None:
    head = heads.newest
    assert head is not None
    hash = head.slice(target.row.kind, target.row.name).hash
    answer = target.post("/config/ack", {"revision": head.number, "hash": hash, "applied_at": 1, **changes})
    assert answer.status_code == 200, answer.content


def look_later(seconds: float = 0) -> None:
    """A look, so many seconds after it is due next."""
    assert stage_watch.look(Stage.objects.latest("pk").look_at + timedelta(seconds=seconds))
