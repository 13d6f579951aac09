"""The cordon policy: the one row, and the only way to write it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any

from pydantic import Field

from controlplane.alerts import models as rows
from controlplane.alerts.cordon_limit import Room, room
from controlplane.core import fields as f
from controlplane.core.changes import UnitOfWork
from controlplane.fleet.models import Node
from wire.canonical import Document

NOUN, KEY = "cordon policy", "cordon-policy"
# Cordons of the policy are kept with their incidents; no window need reach further back than people do.
WINDOW_MAX_MS = 7 * 86_400_000


class PolicyFields(f.Fields):
    """At most `max_nodes_permille` of the nodes, and `min_nodes` at least, are cordoned within `window_ms`."""

    enabled: bool = f.default_of(rows.CordonPolicy, "enabled")
    max_nodes_permille: f.PerMille = f.default_of(rows.CordonPolicy, "max_nodes_permille")
    min_nodes: Annotated[int, Field(ge=0, le=100_000)] = f.default_of(rows.CordonPolicy, "min_nodes")
    window_ms: Annotated[int, Field(ge=1000, le=WINDOW_MAX_MS)] = f.default_of(rows.CordonPolicy, "window_ms")


def get() -> rows.CordonPolicy:
    """The policy; that which nobody has written yet is the default, which is off."""
    return rows.CordonPolicy.objects.order_by("pk").first() or rows.CordonPolicy(pk=1)


def describe(policy: rows.CordonPolicy) -> Document:
    return {name: getattr(policy, name) for name in PolicyFields.model_fields}


def update(unit: UnitOfWork, fields: Mapping[str, Any]) -> rows.CordonPolicy:
    """Change the given fields. Raises Refused with every problem."""
    policy = get()
    before = describe(policy)
    for name, value in f.read(PolicyFields, {**before, **fields}).model_dump().items():
        setattr(policy, name, value)
    policy.save()
    unit.record(NOUN, KEY, before, describe(policy))
    return policy


def room_for(policy: rows.CordonPolicy, node: str, now: datetime) -> Room:
    """How much of its limit the policy has used by nodes other than `node`, each once however often it fails."""
    since = now - timedelta(milliseconds=policy.window_ms)
    others = rows.PolicyCordon.objects.filter(at__gt=since).exclude(node=node)
    return room(
        cordoned=others.values("node").distinct().count(),
        nodes=Node.objects.count(),
        max_nodes_permille=policy.max_nodes_permille,
        min_nodes=policy.min_nodes,
    )
