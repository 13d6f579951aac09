"""`GET /overview`: what the overview page shows, for scripts."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Router

from controlplane.alerts.services import incidents
from controlplane.core import audit
from controlplane.core.fields import iso
from controlplane.core.security import viewer
from controlplane.diagnosis import standing
from controlplane.web.shown import lately, pool_words
from controlplane.web.shown.overview import Overview, PoolLine, overview
from wire.canonical import Document

router = Router(tags=["overview"])
_MEASURED = (
    "goodput_ratio", "requests_per_second", "failed_ratio", "refused_ratio", "queue_seconds", "engine_seconds",
    "kv_left_ratio", "kv_left_tokens", "age_seconds",
)  # fmt: skip


@router.get("/overview", auth=viewer, response=dict[str, Any], summary="Whether all is right, and if not, why")
def read_overview(request: HttpRequest) -> Document:
    """The fleet's `state` (`good`, `wait`, `bad`, `none`: nothing to judge yet) and every pool's, each in a sentence.

    Pools with trouble come first. Numbers of requests are of the last five minutes, seconds are means; what was not
    measured is null. `stale`: the engines' newest sample is older than a minute.
    """
    return describe(overview())


def describe(seen: Overview) -> Document:
    """The public form."""
    spread = seen.spread
    return {
        "at": iso(seen.at),
        "state": seen.state,
        "sentence": seen.sentence,
        "troubles": [trouble._asdict() for trouble in seen.troubles],
        "metrics_missing": seen.metrics_missing or None,
        "pools": [_pool(line) for line in seen.pools],
        "findings": [standing.describe(each.row) for each in seen.findings],
        "incidents": {
            "firing": dict(seen.firing.by_severity),
            "worst": [incidents.describe(row) for row in seen.firing.worst],
        },
        "convergence": {
            "revision": spread.revision,
            "published_at": iso(spread.published_at),
            "applied": spread.applied,
            "targets": len(spread.targets),
            "troubled": [{name: target[name] for name in ("kind", "name", "state")} for target in spread.troubled],
        },
        "changes": [audit.describe(row) for row in lately.changes()],
        "muted": [
            {
                "kind": "maintenance_window" if each.is_window else "silence",
                "name": each.name,
                "until": iso(each.until),
            }
            for each in lately.muted()
        ],
        "first_steps": [{"name": step.name, "title": str(step.title), "done": step.done} for step in seen.steps],
    }


def _pool(line: PoolLine) -> Document:
    return {
        "name": line.name,
        "model": line.model,
        "state": line.state,
        "sentence": f"{line.name}: {line.sentence}",
        "reasons": [{"name": reason.name, "text": pool_words.why(reason)} for reason in line.reasons],
        "engines": {name: getattr(line.facts.engines, name) for name in ("up", "down", "out", "unknown")},
        "objective_ratio": line.facts.objective_ratio,
        "promises": {name: {"seconds": seconds, "kept_ratio": kept} for name, seconds, kept in line.promises},
        **{name: getattr(line.reading, name) for name in _MEASURED},
        "kv_capacity_tokens": line.kv_capacity_tokens,
        "stale": line.is_stale,
    }
