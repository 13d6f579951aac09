"""Where would this request go? The gateways' own matching, on the rules as they stand."""

from __future__ import annotations

from typing import Any

from controlplane.core import fields as f
from controlplane.routing.services import ROUTES, typed
from policy.routing import RequestFacts, match_route
from wire.canonical import Document


class RequestFields(f.Fields):
    """A request as the rules see it. `max_tokens`: the asked output length, or the model's default."""

    model: f.ModelName
    tenant: f.Name
    priority_class: f.Name
    prompt_tokens: f.Count
    max_tokens: f.Count


def explain(fields: Document) -> dict[str, Any]:
    """Each rule tried and why it did not match, and of the one that did the pools with their shares, or its refusal.

    `reason` is matched, rejected or no_route. Raises Refused where the request is described wrongly.
    """
    request = RequestFacts(**f.read(RequestFields, fields).model_dump())
    rows = {row.name: row for row in ROUTES.queryset()}
    # The draw picks one pool by weight; all of them are shown, so any draw does.
    result = match_route({name: typed(row) for name, row in rows.items()}, request, 0.0)
    row = rows.get(result.rule)
    fallbacks = (row.fallbacks if row else None) or {}
    return {
        "reason": result.reason,
        "rule": result.rule or None,
        "message": result.message or None,
        "pools": (row.pools if row else None) or {},
        "fallbacks": sorted(fallbacks, key=lambda pool: (fallbacks[pool], pool)),
        "tried": [{"rule": tried.rule, "mismatch": tried.mismatch or None} for tried in result.tried],
    }
