"""Where each gateway and node stands, as metrics: lost, refusing, behind, silent in its telemetry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime

from prometheus_client.core import Metric

from controlplane.configs.convergence import State, convergence
from controlplane.configs.history import Damaged
from controlplane.core.gauges import gauge
from controlplane.core.models import Target, TargetKind
from controlplane.core.token_gauges import target_labels

_LABELS = ("kind", "node", "gateway")
_WAITING = (State.PENDING, State.NEVER)


def counts() -> Iterator[Metric]:
    """The newest revision, and targets by kind and state: no names. Nothing where a revision is damaged."""
    try:
        stands = convergence()
    except Damaged:
        return
    if stands["revision"] is not None:
        newest = gauge("config_revision", "Newest published revision.")
        newest.add_metric((), stands["revision"])
        yield newest
    targets = gauge("targets", "Targets that are not revoked, by kind and state.", "kind", "state")
    counted = Counter((target["kind"], target["state"]) for target in stands["targets"])
    for kind in TargetKind:
        for state in State:
            targets.add_metric((kind.value, state.value), counted[kind.value, state.value])
    yield targets


def families(now: datetime) -> Iterator[Metric]:
    """One row a target. Nothing where a revision is damaged."""
    try:
        stands = convergence()
    except Damaged:
        return
    lost = gauge("target_lost", "1 while nothing is heard of the target (HEADWORKS_TARGET_SILENT_SECONDS).", *_LABELS)
    refused = gauge("target_config_refused", "1 while the target refuses its newest configuration (NACK).", *_LABELS)
    behind = gauge(
        "target_config_behind_seconds",
        "How long the newest revision waits for the target to apply it; 0: it has.",
        *_LABELS,
    )
    for target in stands["targets"]:
        labels, state = target_labels(target["kind"], target["name"]), State(target["state"])
        lost.add_metric(labels, state is State.LOST)
        refused.add_metric(labels, state is State.REFUSED)
        # Of one that is lost it is not known.
        if state is not State.LOST:
            behind.add_metric(labels, (target["lag_ms"] or 0) / 1000 if state in _WAITING else 0)
    pushed = gauge("target_pushed_time_seconds", "Unix time at which samples last came from the target.", *_LABELS)
    pushes = Target.objects.filter(revoked_at=None)
    for kind, name, at in pushes.values_list("kind", "name", "last_pushed_at"):
        if at is not None:
            pushed.add_metric(target_labels(kind, name), at.timestamp())
    yield from (lost, refused, behind, pushed)
