"""A node's cordon by the policy: asked for by an incident, kept within the policy's limit, published at once."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from controlplane.alerts import models as rows
from controlplane.alerts.services import incidents, policy
from controlplane.configs.hub import heads
from controlplane.configs.publisher import publish
from controlplane.core.changes import REASON_MAX_CHARACTERS, Actor, unit_of_work
from controlplane.core.errors import Refused
from controlplane.fleet.services import NODES

CORDONED, NOT_CORDONED, UNCORDONED = "cordoned", "not_cordoned", "uncordoned"


def cordon_for(incident: rows.Incident, reason: str, now: datetime, *, locked: bool) -> None:
    """Cordon the incident's node, or say on its time line why not.

    In the caller's transaction: the revision that takes the node out of service, and the incident that names it, are
    there together or not at all. `locked`: the transaction began with the configuration's lock, which it did where the
    policy was on. Raises Refused only where trying the same again can help.
    """
    node = NODES.get(incident.node)
    if node.cordoned:
        because = f": {node.cordon_reason}" if node.cordon_reason else ""
        _say(incident, CORDONED, f"the node was cordoned already{because}", now, {"reason": "already"})
        return
    current = policy.get()
    if not (locked and current.enabled):
        _say(incident, NOT_CORDONED, "policy is off", now, {"reason": "policy_off"})
        return
    room = policy.room_for(current, node.name, now)
    if not room.left:
        _say(incident, NOT_CORDONED, _full(current, *room), now, {"reason": "limit", **room._asdict()})
        return
    try:
        with unit_of_work(Actor("target", f"node/{node.name}"), _one_line(reason)) as unit:
            NODES.cordon(unit, node.name)
    except Refused as refused:
        if refused.retry_after_seconds is not None:
            raise
        _say(incident, NOT_CORDONED, f"refused: {refused.detail}", now, {"reason": "refused"})
        return
    revision = publish(heads.stored())
    rows.PolicyCordon.objects.create(node=node.name, at=now, incident=incident)
    details = {"reason": "policy", "change_id": str(unit.change_id)}
    number = {"revision": revision.number} if revision is not None else {}
    _say(incident, CORDONED, f"node {node.name} is cordoned by the policy", now, details | number)


def _one_line(text: str) -> str:
    """As the audit takes it: texts of a driver's may hold anything."""
    printable = "".join(character if character.isprintable() else " " for character in text)
    return " ".join(printable.split())[:REASON_MAX_CHARACTERS]


def _full(current: rows.CordonPolicy, cordoned: int, allowed: int, nodes: int) -> str:
    return (
        f"the policy cordoned {cordoned} other nodes within {current.window_ms / 1000:g} s and may cordon {allowed} of "
        f"{nodes} ({current.max_nodes_permille / 10:g} %, at least {current.min_nodes}); decide by hand"
    )


def _say(incident: rows.Incident, kind: str, text: str, at: datetime, details: Mapping[str, Any]) -> None:
    """Once: an event that comes again changes nothing of what was said last, and cordoned is cordoned."""
    said = incident.entries.filter(kind__in=[CORDONED, NOT_CORDONED, UNCORDONED]).order_by("pk").last()
    if said is not None and said.kind == kind and (kind == CORDONED or said.details["reason"] == details["reason"]):
        return
    incidents.note(incident, kind, text, at, details)
