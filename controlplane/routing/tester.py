"""Where would this request go? The gateways' own reading and matching, on the rules as they stand or as they might."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET

from controlplane.core import fields as f
from controlplane.fleet.services import MODELS, POOLS
from controlplane.routing.asked import Asked, RequestFields, SentRequestFields, by_body, by_sizes
from controlplane.routing.placement import standing_in
from controlplane.routing.services import ROUTES, RouteFields, typed
from controlplane.tenants.models import Tenant
from controlplane.tenants.services import PRIORITY_CLASSES
from policy.admission import NotAdmitted, bounded_output
from policy.cascade import is_asked_first
from policy.routing import RouteResult, in_order, match_route, routes_for
from wire.canonical import Document
from wire.problems import Problem, pointer
from wire.snapshot import Pool, Route
from wire.snapshot_checks import route_problems

_NO_ROUTE = Route(order=0)
# A rule takes some 150 bytes of the answer.
TRIED_MAX = 500


def explain(fields: Document) -> Document:
    """Each rule tried and why it did not match; of the one that did the pools and what stands in them, or its refusal.

    Of more than TRIED_MAX rules, the first and the one that matched; `tried_left_out` says how many more were tried.
    `reason` is matched, rejected, no_route, or that for which gateways refuse the request before a rule is tried.
    Raises Refused where the question is put wrongly.
    """
    question: RequestFields | SentRequestFields = (
        f.read(SentRequestFields, fields) if "request" in fields else f.read(RequestFields, fields)
    )
    rules = _stored() if question.routes is None else _candidates(question.routes)
    try:
        asked = by_body(question.request) if isinstance(question, SentRequestFields) else by_sizes(question)
    except NotAdmitted as refused:
        return {"request": None, "max_tokens": None, **_answer(RouteResult(refused.reason, "", (), str(refused)), {})}
    # The draw picks one pool by weight; all of them are shown, so any draw does.
    led = _led(rules, asked)
    result = match_route(rules, asked.facts, 0.0, led)
    answer = _answer(result, led)
    if answer["cascade"] is not None and (cascade := led[result.rule].cascade) is not UNSET:
        answer["cascade"]["asked_first"] = is_asked_first(cascade, asked.endpoint, asked.size.tokens)
    return {"request": _seen(asked), "max_tokens": _bounded(asked), **answer}


def _led(rules: dict[str, Route], asked: Asked) -> dict[str, Route]:
    """The rules as they hold for the model, as gateways take them. One that does not exist is refused elsewhere."""
    ordered = in_order(rules)
    if asked.model is None:
        return ordered
    pools = {row.name: msgspec.convert(POOLS.wire_form(row), Pool) for row in POOLS.queryset()}
    return routes_for(ordered, asked.facts.model, asked.model, pools)


def _stored() -> dict[str, Route]:
    return {row.name: typed(row) for row in ROUTES.queryset()}


def _candidates(given: dict[str, RouteFields]) -> dict[str, Route]:
    """The rules that are given, held to what stored ones are. Raises Refused with every problem."""
    problems: list[Problem] = []
    rules: dict[str, Route] = {}
    for name, fields in given.items():
        row = ROUTES.row(name=name)
        at = pointer("/routes", name)
        wrong = ROUTES.assign(row, fields.model_dump())
        problems += [Problem(f"{at}{'' if each.path == '/' else each.path}", each.rule, each.message) for each in wrong]
        rules[name] = typed(row)
    f.refuse_if(problems)
    models, classes, pools = set(MODELS.keys()), set(PRIORITY_CLASSES.keys()), set(POOLS.keys())
    named = {tenant for rule in rules.values() for tenant in rule.match.tenants or ()}
    tenants = set(Tenant.objects.filter(name__in=named).values_list("name", flat=True))
    for name, rule in rules.items():
        problems += route_problems(name, rule, models, tenants, classes, pools)
    f.refuse_if(problems)
    return rules


def _seen(asked: Asked) -> Document:
    """The request as the rules see it."""
    return {
        **asked.facts._asdict(),
        "asked_model": asked.asked_model,
        "prompt_tokens_source": asked.size.source,
        "sequences": asked.sequences,
    }


def _bounded(asked: Asked) -> Document | None:
    """The output that a gateway would let it have, its quota aside; None where the model or tenant does not exist.

    None, too, where the API generates nothing.
    """
    if asked.model is None or asked.tenant is None or not asked.generates:
        return None
    bound = bounded_output(asked.asked_max_tokens, asked.size.longest, asked.model, asked.tenant)
    return {"asked": asked.asked_max_tokens, "given": bound.max_tokens, "note": bound.note or None}


def _answer(result: RouteResult, rules: dict[str, Route]) -> dict[str, Any]:
    rule = rules.get(result.rule, _NO_ROUTE)
    shares, fallbacks = rule.pools or {}, rule.fallbacks or {}
    in_order = sorted(fallbacks, key=lambda pool: (fallbacks[pool].order, pool))
    cascade, tried = _cascade(rule), result.tried
    shown = tried if len(tried) <= TRIED_MAX else (*tried[: TRIED_MAX - 1], tried[-1])
    return {
        "reason": result.reason,
        "rule": result.rule or None,
        "message": result.message or None,
        "pools": shares,
        "fallbacks": in_order,
        "cascade": cascade,
        "standing": standing_in(dict.fromkeys([*shares, *in_order, *([cascade["pool"]] if cascade else [])])),
        "tried": [{"rule": each.rule, "mismatch": each.mismatch or None} for each in shown],
        "tried_left_out": len(tried) - len(shown),
    }


def _cascade(rule: Route) -> Document | None:
    if rule.cascade is UNSET:
        return None
    cascade = rule.cascade
    return {
        "pool": cascade.pool,
        "escalate_on": sorted(cascade.escalate_on),
        "confidence_permille": None if cascade.confidence_permille is UNSET else cascade.confidence_permille,
        "max_prompt_tokens": None if cascade.max_prompt_tokens is UNSET else cascade.max_prompt_tokens,
    }
