"""The tester's answer as pages show it, on the rules as they stand or with one as it is typed in a form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from controlplane.fleet.services import MODELS
from controlplane.routing import tester
from controlplane.routing.services import ROUTES, RouteFields
from controlplane.web.shown.route_words import escalations, mismatch_words
from policy.admission import NotAdmitted, check_prompt
from wire.canonical import Document
from wire.snapshot import Model

# What a rule is called that has no name yet.
DRAFT = "draft"


class TriedRule(NamedTuple):
    """A rule that was looked at; `why_not` is empty for the one that matched."""

    rule: str
    why_not: str


class PoolStands(NamedTuple):
    """A pool that the request may go to. `percent` None: it is a fallback, or the small model's."""

    pool: str
    percent: float | None
    engines: list[Document]
    cordoned: list[str]
    override: Document | None


def tried(question: Document, draft: tuple[str, Mapping[str, Any]] | None = None) -> Document:
    """`draft`: the name and public form of a rule that is tried in place of the stored one. Raises Refused."""
    if draft is not None:
        question = {**question, "routes": candidates(*draft)}
    answer = tester.explain(question)
    cascade = answer.get("cascade")
    return {
        **answer,
        "tried": [TriedRule(each["rule"], mismatch_words(each["mismatch"] or "")) for each in answer["tried"]],
        "drawn": [_stands(answer, pool, weight / 10) for pool, weight in _heaviest(answer["pools"])],
        "then": [_stands(answer, pool) for pool in answer["fallbacks"]],
        "small": _stands(answer, cascade["pool"]) if cascade else None,
        "escalate_on": escalations(cascade["escalate_on"]) if cascade else [],
        "too_long": _too_long(answer["request"]),
    }


def _too_long(request: Document | None) -> str:
    """Why gateways refuse a request of this size before a rule is tried; empty where they do not."""
    row = request and MODELS.find(request["model"])
    if not request or not row:
        return ""
    model = msgspec.convert(MODELS.wire_form(row), Model)
    measured = request["prompt_tokens_source"] != "estimate"
    try:
        check_prompt(model, request["prompt_tokens"], measured=measured, param="prompt")
    except NotAdmitted as refused:
        return str(refused)
    return ""


def candidates(name: str, rule: Mapping[str, Any]) -> dict[str, Any]:
    """All rules as they would be with this one, as the tester takes them."""
    stored = {row.name: ROUTES.describe(row) for row in ROUTES.queryset()}
    rules = {**stored, (name or DRAFT): rule}
    return {
        each: {field: fields[field] for field in RouteFields.model_fields if fields[field] is not None}
        for each, fields in rules.items()
    }


def _heaviest(pools: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(pools.items(), key=lambda item: (-item[1], item[0]))


def _stands(answer: Document, pool: str, percent: float | None = None) -> PoolStands:
    stands = answer["standing"][pool]
    return PoolStands(pool, percent, stands["engines"], stands["cordoned"], stands.get("override"))
