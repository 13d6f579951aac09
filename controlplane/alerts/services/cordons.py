"""A node's cordon by the policy: asked for by an incident, kept within the policy's limit, published at once."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from controlplane.alerts import models as rows
from controlplane.alerts.services import incidents, policy
from controlplane.configs.current import current as configuration
from controlplane.configs.hub import heads
from controlplane.configs.oversubscription import CEILING_SECTIONS, ceilings_now
from controlplane.configs.publisher import publish
from controlplane.core.changes import Actor, unit_of_work
from controlplane.core.errors import Refused
from controlplane.core.reported import one_line
from controlplane.fleet.services import NODES
from policy.ceilings import Ceiling

CORDONED, NOT_CORDONED, UNCORDONED = "cordoned", "not_cordoned", "uncordoned"


def cordon_for(incident: rows.Incident, node_name: str, reason: str, now: datetime, *, locked: bool) -> None:
    """Cordon a node that an incident is about, or say on its time line why not.

    In the caller's transaction: the revision that takes the node out of service, and the incident that names it, are
    there together or not at all. `locked`: the transaction began with the configuration's lock, which it did where the
    policy was on. Raises Refused only where trying the same again can help.
    """
    node = NODES.get(node_name)
    if node.cordoned:
        because = f": {node.cordon_reason}" if node.cordon_reason else ""
        said = {"node": node.name, "reason": "already"}
        _say(incident, CORDONED, f"the node was cordoned already{because}", now, said)
        return
    current = policy.get()
    if not (locked and current.enabled):
        _say(incident, NOT_CORDONED, "policy is off", now, {"node": node.name, "reason": "policy_off"})
        return
    room = policy.room_for(current, node.name, now)
    if not room.left:
        said = {"node": node.name, "reason": "limit", **room._asdict()}
        _say(incident, NOT_CORDONED, _full(current, *room), now, said)
        return
    before = ceilings_now(configuration(CEILING_SECTIONS))
    try:
        with unit_of_work(Actor("target", f"node/{node.name}"), one_line(reason)) as unit:
            NODES.cordon(unit, node.name)
    except Refused as refused:
        if refused.retry_after_seconds is not None:
            raise
        said = {"node": node.name, "reason": "refused"}
        _say(incident, NOT_CORDONED, f"refused: {refused.detail}", now, said)
        return
    revision = publish(heads.stored())
    rows.PolicyCordon.objects.create(node=node.name, at=now, incident=incident)
    details = {"node": node.name, "reason": "policy", "change_id": str(unit.change_id)}
    number = {"revision": revision.number} if revision is not None else {}
    lowered = _lowered(before, ceilings_now(configuration(CEILING_SECTIONS)))
    text = "; ".join([f"node {node.name} is cordoned by the policy", *lowered])
    _say(incident, CORDONED, text, now, details | number)


def _lowered(before: Mapping[str, Mapping[str, Ceiling]], after: Mapping[str, Mapping[str, Ceiling]]) -> list[str]:
    """What classes have to leave to better ones since, in words."""
    return [
        f"of pool {pool} the class {name} may fill {each.permille / 10:g} %, no more {was.permille / 10:g} %"
        for pool, classes in sorted(after.items())
        for name, each in sorted(classes.items())
        if (was := before.get(pool, {}).get(name)) is not None and each.permille < was.permille
    ]


def _full(current: rows.CordonPolicy, cordoned: int, allowed: int, nodes: int) -> str:
    return (
        f"the policy cordoned {cordoned} other nodes within {current.window_ms / 1000:g} s and may cordon {allowed} of "
        f"{nodes} ({current.max_nodes_permille / 10:g} %, at least {current.min_nodes}); decide by hand"
    )


def _say(incident: rows.Incident, kind: str, text: str, at: datetime, details: Mapping[str, Any]) -> None:
    """Once a node: an event that comes again changes nothing of what was said last, and cordoned is cordoned."""
    entries = incident.entries.filter(kind__in=[CORDONED, NOT_CORDONED, UNCORDONED], details__node=details["node"])
    said = entries.order_by("pk").last()
    if said is not None and said.kind == kind and (kind == CORDONED or said.details["reason"] == details["reason"]):
        return
    incidents.note(incident, kind, text, at, details)
