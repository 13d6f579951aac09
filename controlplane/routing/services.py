"""The only writer of routes."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec
from pydantic import AfterValidator, Field

from controlplane.core import fields as f
from controlplane.core.nouns import Noun, as_set, present
from controlplane.routing import models as rows
from wire import snapshot, snapshot_checks
from wire.canonical import Document
from wire.problems import Problem, pointer

_NAME_LISTS = ("models", "tenants", "priority_classes")
_POOLS_MAX = 100


def _distinct(reasons: list[snapshot.EscalationReason]) -> list[snapshot.EscalationReason]:
    return sorted(set(reasons))


class MatchFields(f.Fields):
    """Conditions, all of which must hold; null: any. Token bounds: `min` inclusive, `max` exclusive."""

    models: f.ModelNames | None = None
    tenants: f.Names | None = None
    priority_classes: f.Names | None = None
    min_prompt_tokens: f.Count | None = None
    max_prompt_tokens: f.Count | None = None
    min_max_tokens: f.Count | None = None
    max_max_tokens: f.Count | None = None


class CascadeFields(f.Fields):
    """A small model is asked first, in `pool`; the route's own pools where its answer is not good enough.

    `escalate_on`: what makes it not good enough. `low_confidence`: a mean probability of its tokens below
    `confidence_permille`. Prompts longer than `max_prompt_tokens` go to the route's pools at once.
    """

    pool: f.Name
    escalate_on: Annotated[list[snapshot.EscalationReason], Field(min_length=1), AfterValidator(_distinct)]
    confidence_permille: f.PerMille | None = None
    max_prompt_tokens: f.Count | None = None


class RouteFields(f.Fields):
    """`pools` {name: weight in per mille, in all 1000} or `reject`, the message of a refusal.

    `fallbacks` {pool: order}: tried in that order when the drawn pool cannot take the request. `cascade`: a small model
    that is asked first.
    """

    order: f.Count = f.default_of(rows.Route, "order")
    match: MatchFields = MatchFields()
    pools: Annotated[dict[f.Name, f.PerMille], Field(min_length=1, max_length=_POOLS_MAX)] | None = None
    fallbacks: Annotated[dict[f.Name, f.Count], Field(min_length=1, max_length=_POOLS_MAX)] | None = None
    reject: Annotated[f.Text, Field(min_length=1, max_length=500)] | None = None
    cascade: CascadeFields | None = None


class _AnyName:
    """Holds every name: whether it exists is checked on the whole configuration."""

    def __contains__(self, name: object) -> bool:
        return True


class RouteNoun(Noun[rows.Route]):
    noun = "route"
    row = rows.Route
    fields = RouteFields
    section = "routes"
    order: ClassVar[int] = 50
    # POST /routes/test is the tester.
    reserved_names = frozenset({"test"})
    independent = True

    def describe(self, row: rows.Route) -> Document:
        conditions = {**row.match, **{name: sorted(row.match[name]) for name in _NAME_LISTS if name in row.match}}
        return {
            "name": row.name,
            "order": row.order,
            "match": {name: conditions.get(name) for name in MatchFields.model_fields},
            "pools": row.pools,
            "fallbacks": row.fallbacks,
            "reject": row.reject or None,
            "cascade": row.cascade and _with_list(row.cascade),
        }

    def assign(self, row: rows.Route, values: Document) -> list[Problem]:
        match = values["match"]
        sets = {name: as_set(match[name]) for name in _NAME_LISTS}
        cascade = values["cascade"]
        if cascade is not None:
            cascade = present({**cascade, "escalate_on": as_set(cascade["escalate_on"])})
        rest = {"match": present({**match, **sets}), "reject": values["reject"] or "", "cascade": cascade}
        super().assign(row, {**values, **rest})
        route, everything = typed(row), _AnyName()
        found = snapshot_checks.route_problems(row.name, route, everything, everything, everything, everything)
        prefix = pointer("/routes", row.name)
        return [Problem(problem.path.removeprefix(prefix) or "/", problem.rule, problem.message) for problem in found]

    def wire_form(self, row: rows.Route) -> Document:
        fallbacks = {pool: {"order": order} for pool, order in row.fallbacks.items()} if row.fallbacks else None
        return present(
            {
                "order": row.order,
                "match": row.match,
                "pools": row.pools,
                "fallbacks": fallbacks,
                "reject": row.reject or None,
                "cascade": row.cascade,
            }
        )

    def from_wire(self, content: Document) -> Document:
        fields: dict[str, Any] = dict(content)
        if "match" in content:
            lists = {name: list(names) for name, names in content["match"].items() if name in _NAME_LISTS}
            fields["match"] = {**content["match"], **lists}
        if "fallbacks" in content:
            fields["fallbacks"] = {pool: entry["order"] for pool, entry in content["fallbacks"].items()}
        if "cascade" in content:
            fields["cascade"] = {**content["cascade"], "escalate_on": list(content["cascade"]["escalate_on"])}
        return fields


ROUTES = RouteNoun()


def _with_list(cascade: Document) -> Document:
    """The public form of a cascade."""
    shown = {**cascade, "escalate_on": sorted(cascade["escalate_on"])}
    return {name: shown.get(name) for name in CascadeFields.model_fields}


def typed(row: rows.Route) -> snapshot.Route:
    """The rule as gateways match with it."""
    return msgspec.convert(ROUTES.wire_form(row), snapshot.Route)
